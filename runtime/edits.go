package runtime

import (
	"encoding/json"
	"slices"

	"agentos/holds"
	"agentos/holds/policy"
	"agentos/internal/problem"
	"agentos/internal/rawjson"
	"agentos/runtime/journal"
)

// withVerdicts adds to every edit what the operator's orders and the policy of now
// say about the call with the edited arguments: the model could not have run what
// they deny either.
func (e *Engine) withVerdicts(s suspended, post holds.Post) (holds.Post, error) {
	post.Decisions = slices.Clone(post.Decisions)
	for i, d := range post.Decisions {
		it := s.hold.Item(d.ID)
		if d.Action != holds.Edit || it == nil {
			continue
		}
		v, err := e.editVerdict(s, it, d.Data)
		if err != nil {
			return post, err
		}
		post.Decisions[i].Verdict = v
	}
	return post, nil
}

func (e *Engine) editVerdict(s suspended, it *holds.Item, data json.RawMessage) (policy.Verdict, error) {
	a := e.agents[s.record.Agent]
	if a == nil {
		return policy.Verdict{Effect: policy.Deny, Reason: "this server does not serve agent " + s.record.Agent + " and cannot check edited arguments; edit at one that does"}, nil
	}
	if off := e.orders.Load().off(s.record.Agent, it.Server, it.Tool); off != nil {
		return *off, nil
	}
	created, err := s.created()
	if err != nil {
		return policy.Verdict{}, err
	}
	rules := a.rules(a.Manifest.Capabilities[s.record.Capability])
	// A server that is away cannot say whether its tool is destructive; the hold
	// knows whether it said so.
	call := policy.Call{Server: it.Server, Tool: it.Tool, Destructive: slices.Contains(it.Rules, policy.DestructiveHint)}
	for _, t := range a.MCP.Tools() {
		if t.Server == it.Server && t.Name == it.Tool {
			call = asPolicy(t)
		}
	}
	return policy.Evaluate(rules, inRun(call, s.record, created, data)), nil
}

// created is how the run began.
func (s *suspended) created() (journal.Created, error) {
	if s.state != nil {
		return s.state.Created, nil
	}
	var c journal.Created
	if len(s.entries) == 0 {
		return c, problem.New(problem.JournalDamaged, "run %s is damaged in the store: its first entry is missing", s.record.ID)
	}
	if err := rawjson.Unmarshal(s.entries[0].Data, &c); err != nil {
		return c, problem.Wrap(err, problem.JournalDamaged, "run %s is damaged in the store: its first entry is unreadable", s.record.ID)
	}
	return c, nil
}
