package runtime_test

import (
	"encoding/json"
	"strings"
	"testing"

	"agentos/holds"
	"agentos/holds/policy"
	"agentos/internal/problem"
	"agentos/runtime"
	"agentos/runtime/journal"
	"agentos/runtime/store"
)

// conditional asks above 9007199254740992 cents, denies above twice that, and
// knows the caller.
const conditional = `      approve:
        - {id: big, tool: cancel_order, when: args.cents > 9007199254740992}
        - {id: nightly, tool: ping, when: "'night' in requester.groups && input.message == 'go' && run.capability == 'support'"}
      deny:
        - {id: huge, tool: cancel_order, when: args.cents > 18014398509481984}
`

func cents(n string) call { return call{"a", "cancel_order", `{"order_id":"A-1","cents":` + n + `}`} }

func TestConditionsDecideAboutTheCall(t *testing.T) {
	for name, c := range map[string]struct {
		ask     call
		held    bool
		outcome journal.Outcome
		rules   string
		reason  string
	}{
		"below":            {cents("9007199254740992"), false, journal.Success, "", ""},
		"above by one":     {cents("9007199254740993"), true, "", "big", ""},
		"far above":        {cents("18014398509481985"), false, journal.Denied, "huge", ""},
		"no number at all": {cents(`"1"`), true, "", "big huge", "The condition of rule big could not be decided: no such overload"},
		"missing":          {call{"a", "cancel_order", `{"order_id":"A-1"}`}, true, "", "big huge", "no such key: cents"},
		"inexact":          {cents("100000000000000000000"), true, "", "big huge", "cannot be compared exactly"},
		"requester, input": {call{"a", "ping", `{}`}, true, "", "nightly", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, conditional, sequence(asks(c.ask), says("ok"))).up()
			v, err := r.engine.Start(r.ctx(), runtime.StartRequest{
				Env: "default", Agent: "shop", Capability: "support", Requester: "tester", Groups: []string{"day", "night"},
				Input: json.RawMessage(`{"message":"go"}`),
			})
			if err != nil {
				t.Fatal(err)
			}
			v = r.wait(v.ID)
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
			if it := v.Hold.Items[0]; !strings.Contains(it.Reason, c.reason) || strings.Join(it.Rules, " ") != c.rules {
				t.Errorf("item: rules %v, reason %q", it.Rules, it.Reason)
			}
		})
	}
}

// An edit is judged with the arguments it brings, from memory and from the store.
func TestConditionsDecideAboutEdits(t *testing.T) {
	r := newRig(t, conditional, sequence(asks(cents("9007199254740993")), says("ok"))).up()
	v := r.start("go")
	for range 2 {
		_, err := r.post(v.Hold.ID, holds.ItemDecision{ID: "call_1", Action: holds.Edit, Data: json.RawMessage(`{"order_id":"A-1","cents":18014398509481985}`)})
		if problem.CodeOf(err) != problem.EditDenied || !strings.Contains(err.Error(), "huge") {
			t.Errorf("an edit that policy denies: %v", err)
		}
		r.restart()
	}
	v = r.decide(v, holds.ItemDecision{ID: "call_1", Action: holds.Edit, Data: json.RawMessage(`{"order_id":"A-1","cents":18014398509481984}`)})
	r.want(v, store.Completed)
	r.ran("cancel_order", `"cents":18014398509481984`, 1)
}

func TestListedVerdicts(t *testing.T) {
	r := newRig(t, conditional, sequence(says("ok"))).up()
	want := map[string]policy.Effect{"cancel_order": policy.Conditional, "ping": policy.Conditional, "lookup_order": policy.Allow}
	for _, tool := range r.agent.Tools(r.agent.Manifest.Capabilities["support"]) {
		if e := want[tool.Tool]; e != "" && tool.Verdict.Effect != e {
			t.Errorf("%s: %+v, want %s", tool.Tool, tool.Verdict, e)
		}
	}
}
