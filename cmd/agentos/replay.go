package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"

	"github.com/spf13/cobra"

	"agentos/api"
	"agentos/api/client"
	"agentos/holds/policy"
	"agentos/internal/rawjson"
	"agentos/internal/visible"
)

// replayReport is what judging recorded calls again has shown, and its --json.
type replayReport struct {
	// Runs and Calls are how many were looked at; Same is how many calls would be
	// decided as they were.
	Runs  int `json:"runs"`
	Calls int `json:"calls"`
	Same  int `json:"same"`
	// Different are calls that would be decided otherwise; Unjudged those of which
	// that cannot be said.
	Different []changedVerdict `json:"different"`
	Unjudged  []unjudged       `json:"unjudged"`
	// More says that there are more runs than --limit.
	More bool `json:"more,omitempty"`
}

// changedVerdict is a call that would be decided otherwise today.
type changedVerdict struct {
	RunID string `json:"run_id"`
	Call  string `json:"call"`
	Tool  string `json:"tool"`
	// Edited says that it is about the arguments a person put in place, which were
	// accepted then.
	Edited bool           `json:"edited,omitempty"`
	Then   policy.Verdict `json:"then"`
	Now    policy.Verdict `json:"now"`
}

// unjudged is a call, or a whole run where Call is absent.
type unjudged struct {
	RunID string `json:"run_id"`
	Call  string `json:"call,omitempty"`
	Tool  string `json:"tool,omitempty"`
	Why   string `json:"why"`
}

// redacted begins what stands in a record for the value of a secret.
const redacted = "[secret:"

// replay makes the RunE that judges recorded calls.
func (r *remote) replay(b book, f policyFlags) func(*cobra.Command, []string) error {
	return r.run(func(ctx context.Context, c *client.Client, args []string) error {
		out := replayReport{Different: []changedVerdict{}, Unjudged: []unjudged{}}
		ids := args
		if f.runs {
			var err error
			if ids, out.More, err = r.newest(ctx, c, b, f); err != nil {
				return err
			}
		}
		for _, id := range ids {
			if err := out.read(ctx, c, b, r.environment, id); err != nil {
				return err
			}
		}
		if err := out.print(r); err != nil {
			return err
		}
		if len(out.Different) > 0 {
			return failed{exitFailed}
		}
		return nil
	})
}

// newest lists the runs to replay, and whether there are more.
func (r *remote) newest(ctx context.Context, c *client.Client, b book, f policyFlags) (ids []string, more bool, err error) {
	q := f.query
	if q.Agent == "" {
		q.Agent = b.agent.Name
	}
	for len(ids) < f.limit {
		q.Limit = min(maxRows, f.limit-len(ids))
		list, err := c.Runs(ctx, r.environment, q)
		if err != nil {
			return nil, false, err
		}
		for _, run := range list.Runs {
			ids = append(ids, run.RunID)
		}
		if list.NextCursor == "" || list.NextCursor == q.Cursor {
			return ids, false, nil
		}
		q.Cursor = list.NextCursor
	}
	return ids, true, nil
}

// read judges the calls of one run. A run that the server cannot tell is no reason
// to leave out the others.
func (p *replayReport) read(ctx context.Context, c *client.Client, b book, env, id string) error {
	p.Runs++
	t, err := c.Trajectory(ctx, env, id)
	if refused := (*client.Error)(nil); errors.As(err, &refused) && refused.Status >= 500 {
		p.Unjudged = append(p.Unjudged, unjudged{RunID: id, Why: refused.Problem.Message})
		return nil
	}
	if err != nil {
		return err
	}
	for _, turn := range t.Turns {
		for _, call := range turn.Calls {
			p.Calls++
			p.judge(b, t.Run, call)
		}
	}
	return nil
}

// judge compares what was decided about a call with what would be today.
func (p *replayReport) judge(b book, run api.Run, c api.Call) {
	then := recorded(c.Verdict)
	if why := b.beyond(run, c); why != "" {
		p.cannot(run, c, why)
		return
	}
	now, why := b.again(run, c, c.ProposedArguments)
	if why != "" {
		p.cannot(run, c, why)
		return
	}
	if now.Effect != then.Effect || now.Effect == policy.Ask && !asksAlike(now, then) {
		p.Different = append(p.Different, changedVerdict{RunID: run.RunID, Call: c.ID, Tool: toolOf(c), Then: then, Now: now})
		return
	}
	if len(c.DecidedArguments) > 0 && !bytes.Equal(c.DecidedArguments, c.ProposedArguments) {
		now, why := b.again(run, c, c.DecidedArguments)
		if why != "" {
			p.cannot(run, c, "as it was edited: "+why)
			return
		}
		if now.Effect == policy.Deny {
			p.Different = append(p.Different, changedVerdict{RunID: run.RunID, Call: c.ID, Tool: toolOf(c), Edited: true, Then: then, Now: now})
			return
		}
	}
	p.Same++
}

// asksAlike reports whether the same rules ask the same people.
func asksAlike(a, b policy.Verdict) bool {
	return slices.Equal(sorted(a.Rules), sorted(b.Rules)) && sameReviewers(a.Reviewers, b.Reviewers)
}

// recorded is a verdict as the API tells it.
func recorded(v api.Verdict) policy.Verdict {
	out := policy.Verdict{Effect: policy.Effect(v.Effect), Rules: v.Rules, Reason: v.Reason}
	if r := v.Reviewers; r != nil {
		out.Reviewers = policy.Reviewers{Require: r.Require, NotRequester: r.NotRequester}
		for _, s := range r.Sets {
			out.Reviewers.Sets = append(out.Reviewers.Sets, policy.ReviewerSet{Rule: s.Rule, Roles: s.Roles, Users: s.Users})
		}
	}
	return out
}

func (p *replayReport) cannot(run api.Run, c api.Call, why string) {
	p.Unjudged = append(p.Unjudged, unjudged{RunID: run.RunID, Call: c.ID, Tool: toolOf(c), Why: why})
}

// beyond returns why a call is none that the rules decide about, or "".
func (b book) beyond(run api.Run, c api.Call) string {
	capability := b.agent.Capabilities[run.Capability]
	switch {
	case run.Agent != b.agent.Name:
		return fmt.Sprintf("the run is of agent %s, the manifest of %s", run.Agent, b.agent.Name)
	case capability == nil || capability.Loop == nil:
		return "the manifest has no capability " + run.Capability + " with a loop"
	case c.Verdict.Effect == "":
		return "policy was not asked: the call was not one that could run"
	case slices.Equal(c.Verdict.Rules, []string{policy.OperatorOrder}):
		return "an operator had switched the tool off"
	}
	return b.offers(capability, c.Server, c.Tool)
}

// again judges a recorded call with the arguments. why is set when what is recorded
// does not tell: something that matters is missing, or was redacted, so that policy
// would be asked about another call.
func (b book) again(run api.Run, c api.Call, args json.RawMessage) (now policy.Verdict, why string) {
	capability := b.agent.Capabilities[run.Capability]
	call := policy.Call{
		Server: c.Server, Tool: c.Tool, Args: args, Input: run.Input,
		// A journal from before the hint was recorded still tells that it decided.
		Destructive: c.Destructive || slices.Contains(c.Verdict.Rules, policy.DestructiveHint),
		Requester:   policy.Requester{Name: run.Requester, Groups: run.RequesterGroups},
		Run:         policy.Run{ID: run.RunID, Agent: run.Agent, Capability: run.Capability, SessionID: run.SessionID, Env: run.Env},
	}
	now = b.judge(capability, call)
	for _, fact := range []struct {
		name string
		at   *json.RawMessage
	}{{"the arguments, which are", &call.Args}, {"the input, which is", &call.Input}} {
		raw := *fact.at
		state, other := "missing", json.RawMessage("{}")
		switch {
		case bytes.Contains(raw, []byte(redacted)):
			state, other = "partly redacted", nil
		case len(raw) > 0 && rawjson.Kind(raw) != "null":
			continue
		}
		// What makes no difference to the verdict does not matter.
		*fact.at = other
		if !reflect.DeepEqual(b.judge(capability, call), now) {
			return now, "rules look at " + fact.name + " " + state
		}
		*fact.at = raw
	}
	return now, ""
}

func toolOf(c api.Call) string {
	if c.Tool == "" {
		return c.Name
	}
	return c.Server + "/" + c.Tool
}

func (d changedVerdict) print(w io.Writer) {
	what, then := "", visible.Text(string(d.Then.Effect))
	if d.Edited {
		what, then = ", as it was edited", "accepted"
	}
	fmt.Fprintf(w, "DIFFERENT     %s %s %s%s: %s → %s\n", visible.Text(d.RunID), visible.Text(d.Call), visible.Text(d.Tool), what, then, d.Now.Effect)
	diffLine(w, "-", "rules", ruleNames(d.Then.Rules))
	diffLine(w, "+", "rules", ruleNames(d.Now.Rules))
	if then, now := asked(d.Then), asked(d.Now); then != now && !d.Edited {
		diffLine(w, "-", "reviewers", then)
		diffLine(w, "+", "reviewers", now)
	}
	if d.Now.Reason != "" {
		diffLine(w, " ", "reason", visible.Text(d.Now.Reason))
	}
}

// print shows what is different and what cannot be judged, and counts the rest.
func (p *replayReport) print(r *remote) error {
	if r.json {
		return printJSON(r.out, p)
	}
	for _, d := range p.Different {
		d.print(r.out)
	}
	for _, u := range p.Unjudged {
		what := visible.Text(u.RunID)
		if u.Call != "" {
			what += " " + visible.Text(u.Call) + " " + visible.Text(u.Tool)
		}
		fmt.Fprintf(r.out, "cannot judge  %s: %s\n", what, visible.Text(u.Why))
	}
	if p.More {
		fmt.Fprintf(r.err, "agentos: these are the newest %d runs; there are more (--limit)\n", p.Runs)
	}
	_, err := fmt.Fprintf(r.out, "%d calls of %d runs: %d decided alike, %d differently, %d cannot be judged\n",
		p.Calls, p.Runs, p.Same, len(p.Different), len(p.Unjudged))
	return err
}
