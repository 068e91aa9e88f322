package journal

import (
	"encoding/json"
	"strings"
	"testing"

	"agentos/holds"
	"agentos/holds/policy"
)

// votedRun is a run held for two approvals, up to the hold.
func votedRun(t *testing.T) *record {
	t.Helper()
	h := holds.Hold{ID: "h_1_1", Kind: holds.ToolCall, Status: holds.Pending, Items: []holds.Item{{
		ID: "call_1", Title: "cancel_order", Data: json.RawMessage(`{}`), Reviewers: policy.Reviewers{Require: 2},
	}}}
	r := &record{t: t}
	return r.
		add(RunCreated, Created{Agent: "a", Input: json.RawMessage(`{}`), Prompt: "go"}).
		add(ModelAnswered, Answered{Turn: 1, Message: toolCalls("d"), Calls: []Asked{asked("call_1", "d", policy.Ask, `{}`)}}).
		add(HoldOpened, Opened{Hold: h})
}

func vote(by string, action holds.Action, proposed, data string, open bool) HoldDecision {
	return HoldDecision{HoldID: "h_1_1", By: by, Items: []DecidedItem{{
		ID: "call_1", Proposed: json.RawMessage(proposed), Open: open,
		Decision: holds.Decision{Action: action, By: by, Data: json.RawMessage(data), Reason: by},
	}}}
}

func TestFoldVotes(t *testing.T) {
	t.Parallel()
	s, err := Fold(votedRun(t).add(HoldDecided, vote("ann", holds.Approve, `{}`, "", true)).entries)
	if err != nil {
		t.Fatal(err)
	}
	if c := s.Call("call_1"); c.Decision != nil || c.Approved() || s.Hold.Items[0].Approvals() != 1 {
		t.Errorf("one of two: %+v", c)
	}
	edited := votedRun(t).
		add(HoldDecided, vote("ann", holds.Approve, `{}`, "", true)).
		add(HoldDecided, vote("bob", holds.Edit, `{}`, `{"a":1}`, true))
	if s, err = Fold(edited.entries); err != nil {
		t.Fatal(err)
	}
	if c := s.Call("call_1"); c.Approved() || string(c.Effective()) != `{}` || string(s.Hold.Items[0].Data) != `{"a":1}` {
		t.Errorf("an edit that one of two approves: %+v runs with %s", c, c.Effective())
	}
	edited.add(HoldDecided, vote("ann", holds.Approve, `{"a":1}`, "", false)).add(HoldClosed, Closed{HoldID: "h_1_1", Why: holds.Decided})
	if s, err = Fold(edited.entries); err != nil {
		t.Fatal(err)
	}
	if c := s.Call("call_1"); !c.Approved() || string(c.Effective()) != `{"a":1}` || c.Decision.By != "ann" || len(c.Item.Votes) != 3 {
		t.Errorf("an edit that both approve: %+v runs with %s", c, c.Effective())
	}
	// The end of the hold before everybody has voted lets nothing run.
	early := votedRun(t).add(HoldDecided, vote("ann", holds.Edit, `{}`, `{"a":1}`, true)).add(HoldClosed, Closed{HoldID: "h_1_1", Why: holds.Expired})
	if s, err = Fold(early.entries); err != nil {
		t.Fatal(err)
	}
	if c := s.Call("call_1"); c.Approved() || !c.Expired || string(c.Effective()) != `{}` {
		t.Errorf("expired with one vote: %+v", c)
	}
}

// A journal that says a call was approved by fewer people than its hold asked for
// is none that an engine has written, and lets nothing run.
func TestFoldRefusesTooFewVotes(t *testing.T) {
	t.Parallel()
	stricter := vote("ann", holds.Edit, `{}`, `{"a":1}`, false)
	stricter.Items[0].Reviewers = &policy.Reviewers{Require: 3}
	for _, c := range []struct {
		want    string
		entries []HoldDecision
	}{
		{"1 approvals of the 2", []HoldDecision{vote("ann", holds.Approve, `{}`, "", false)}},
		{"1 approvals of the 3", []HoldDecision{stricter}},
		{"2 approvals of the 2", []HoldDecision{vote("ann", holds.Approve, `{}`, "", true), vote("bob", holds.Approve, `{}`, "", true)}},
		{"decided before", []HoldDecision{vote("ann", holds.Reject, `{}`, "", false), vote("bob", holds.Approve, `{}`, "", true)}},
		{"other arguments", []HoldDecision{vote("ann", holds.Edit, `{}`, `{"a":1}`, true), vote("bob", holds.Approve, `{}`, "", false)}},
		{"0 approvals of the 2", []HoldDecision{vote("ann", holds.Reject, `{}`, "", true)}},
		{"1 approvals of the 2", []HoldDecision{vote("ann", holds.Approve, `{}`, "", true), vote("ann", holds.Approve, `{}`, "", false)}},
	} {
		r := votedRun(t)
		for _, d := range c.entries {
			r.add(HoldDecided, d)
		}
		if _, err := Fold(r.entries); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("want %q, got %v", c.want, err)
		}
	}
}
