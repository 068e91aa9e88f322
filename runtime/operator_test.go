package runtime_test

import (
	"encoding/json"
	"strings"
	"testing"

	"agentos/holds"
	"agentos/internal/problem"
	"agentos/internal/testenv/toolserver"
	"agentos/runtime"
	"agentos/runtime/journal"
	"agentos/runtime/store"
)

func rulesOf(rules string) string { return "policy: {rules: [" + rules + "]}" }

// What a manifest says never lowers what the operator says, and the other way round.
func TestOperatorAndManifest(t *testing.T) {
	const (
		opAsk   = `{id: o, effect: ask, tool: cancel_order, reviewers: {roles: [security], require: 2}}`
		opDeny  = `{id: o, effect: deny, tool: orders/cancel_order, reason: Not here.}`
		opAllow = `{effect: allow, tool: cancel_order}`
		allow   = "\npolicy: {rules: [{id: m, effect: allow, tool: cancel_order}, {id: m2, effect: allow, tool: '*'}]}"
		ask     = "      approve: [{id: m, tool: cancel_order, reviewers: {users: [ann, bob], not_requester: true}}]\n"
		deny    = "      deny: [{id: m, tool: cancel_order}]\n"
		turns   = "      max_turns: 5\n"
	)
	for name, c := range map[string]struct {
		operator, loop string
		held           bool
		outcome        journal.Outcome
		rules          string
		require, sets  int
	}{
		"nobody says anything":          {"", turns, false, journal.Success, "", 0, 0},
		"operator asks, manifest not":   {opAsk, turns, true, "", "operator:o", 2, 1},
		"operator asks, manifest opens": {opAsk, turns + allow, true, "", "operator:o", 2, 1},
		"operator denies":               {opDeny, turns + allow, false, journal.Denied, "operator:o", 0, 0},
		"operator denies, manifest asks": {
			opDeny, ask, false, journal.Denied, "operator:o", 0, 0,
		},
		"operator opens, manifest asks":   {opAllow, ask, true, "", "m", 1, 1},
		"operator opens, manifest denies": {opAllow, deny, false, journal.Denied, "m", 0, 0},
		"operator opens":                  {opAllow, turns, false, journal.Success, "operator:1", 0, 0},
		"both ask":                        {opAsk, ask, true, "", "operator:o m", 2, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, c.loop, sequence(asks(call{"a", "cancel_order", `{"order_id":"A-1"}`}), says("ok")))
			r.operator = rulesOf(c.operator)
			v := r.up().start("go")
			asked := r.state(v.ID).Calls[0]
			if got := strings.Join(asked.Verdict.Rules, " "); got != c.rules {
				t.Errorf("rules %q, want %q", got, c.rules)
			}
			if !c.held {
				r.want(v, store.Completed)
				if asked.Finished.Outcome != c.outcome {
					t.Errorf("outcome %s, want %s", asked.Finished.Outcome, c.outcome)
				}
				return
			}
			r.want(v, store.Held)
			who := v.Hold.Items[0].Reviewers
			if who.Needed() != c.require || len(who.Sets) != c.sets {
				t.Errorf("reviewers %+v, want %d people of %d sets", who, c.require, c.sets)
			}
		})
	}
}

// A call that waits is judged by the operator's policy of the day it runs.
func TestOperatorPolicyChangesWhileACallWaits(t *testing.T) {
	const never = `{id: never, effect: deny, tool: cancel_order, reason: Since today.}`
	for name, c := range map[string]struct {
		before, after string
		outcome       journal.Outcome
		ran           int
	}{
		"a deny that came": {`{id: o, effect: ask, tool: cancel_order}`, never, journal.Denied, 0},
		"a gate that went": {`{id: o, effect: ask, tool: cancel_order}`, "", journal.Success, 1},
		"the same":         {`{id: o, effect: ask, tool: cancel_order}`, `{id: o, effect: ask, tool: cancel_order}`, journal.Success, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, "      max_turns: 5\n", sequence(asks(call{"a", "cancel_order", `{"order_id":"A-1"}`}), says("ok")))
			r.operator = rulesOf(c.before)
			v := r.up().start("go")
			r.want(v, store.Held)
			was := r.agent.Operator.Digest
			r.operator = rulesOf(c.after)
			r.restart()
			now := r.agent.Operator.Digest
			if v = r.wait(v.ID); v.Status != store.Held {
				t.Fatalf("the run is %s: a hold is the proof of its own gate", v.Status)
			}
			v = r.decide(v, approve("call_1"))
			r.want(v, store.Completed)
			s := r.state(v.ID)
			if s.Calls[0].Finished.Outcome != c.outcome || toolserver.Count(t, r.ledger, "cancel_order", "") != c.ran {
				t.Errorf("outcome %s, ran %d times", s.Calls[0].Finished.Outcome, toolserver.Count(t, r.ledger, "cancel_order", ""))
			}
			if s.Created.PolicyDigest != was || was == "" || s.Answers[0].PolicyDigest != "" {
				t.Errorf("created under %q, first turn under %q; want %q", s.Created.PolicyDigest, s.Answers[0].PolicyDigest, was)
			}
			told := now
			switch now {
			case was:
				told = ""
			case "":
				told = journal.NoPolicy
			}
			if s.Answers[1].PolicyDigest != told || s.PolicyDigest != now {
				t.Errorf("the second turn tells %q, the run is under %q; want %q, %q", s.Answers[1].PolicyDigest, s.PolicyDigest, told, now)
			}
		})
	}
}

// An edit is judged by the operator's rules too.
func TestOperatorJudgesEdits(t *testing.T) {
	r := newRig(t, usual, sequence(asks(call{"a", "cancel_order", `{"order_id":"A-1"}`}), says("ok")))
	r.operator = rulesOf(`{id: vip, effect: deny, tool: cancel_order, when: 'args.order_id == "VIP"'}, {id: big, effect: ask, tool: cancel_order, when: 'args.order_id == "BIG"', reviewers: {users: [zoe]}}`)
	v := r.up().start("go")
	r.want(v, store.Held)
	post := func(by, id string) (holds.Hold, error) {
		return r.engine.Decide(r.ctx(), "default", v.Hold.ID, holds.Post{By: by, Decisions: []holds.ItemDecision{
			{ID: "call_1", Action: holds.Edit, Data: json.RawMessage(`{"order_id":"` + id + `"}`)},
		}})
	}
	if _, err := post("ann", "VIP"); problem.CodeOf(err) != problem.EditDenied || !strings.Contains(err.Error(), "operator:vip") {
		t.Errorf("an edit that the operator denies: %v", err)
	}
	if _, err := post("ann", "BIG"); problem.CodeOf(err) != problem.NotReviewer || !strings.Contains(err.Error(), "operator:big") {
		t.Errorf("an edit that asks another: %v", err)
	}
	if _, err := post("zoe", "BIG"); err != nil {
		t.Error(err)
	}
	r.want(r.wait(v.ID), store.Completed)
	if toolserver.Count(t, r.ledger, "cancel_order", "BIG") != 1 {
		t.Errorf("ledger: %+v", toolserver.Ledger(t, r.ledger))
	}
}

// An operator's rule that reads like a gate for a tool and is none stops the agent,
// unless the operator has another rule for that tool; one for another agent's tool
// is no fault.
func TestOperatorRulesThatProtectNothing(t *testing.T) {
	for name, c := range map[string]struct {
		rules      string
		misleading string
		idle       string
	}{
		"another agent's": {`{id: a, effect: deny, tool: "salary_*"}`, "", "rule operator:a matches no tool of any agent"},
		"near":            {`{id: a, effect: ask, tool: cancelOrder}`, `rule operator:a: "cancelOrder" matches no tool, but server orders offers "cancel_order": write "orders/cancel_order"`, "rule operator:a matches no tool of any agent"},
		"near, and another rule is about the tool": {
			`{id: a, effect: ask, tool: cancelOrder}, {id: b, effect: allow, tool: cancel_order}`, "", "rule operator:a matches no tool of any agent",
		},
		"matches": {`{id: a, effect: ask, tool: cancel_order}`, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, "      max_turns: 5\n", sequence(says("ok")))
			r.operator = rulesOf(c.rules)
			r.up()
			r.agent.MCP.Wait(r.ctx())
			got := ""
			if p := r.agent.Misleading(); p != nil {
				got = p.Details[0].Message
			}
			if got != c.misleading {
				t.Errorf("misleading %q, want %q", got, c.misleading)
			}
			if idle := r.agent.Idle(); len(idle) > 0 {
				t.Errorf("idle rules of the manifest: %v", idle)
			}
			if idle := strings.Join(runtime.IdleOperator([]*runtime.Agent{r.agent}), "\n"); idle != c.idle {
				t.Errorf("idle rules of the operator %q, want %q", idle, c.idle)
			}
		})
	}
}
