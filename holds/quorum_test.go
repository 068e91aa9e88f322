package holds

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"agentos/holds/policy"
	"agentos/internal/problem"
)

// quorum is a hold whose first item two of finance must approve, and not the
// requester; the second item is anybody's.
func quorum() Hold {
	h := sample()
	h.Requester = "req"
	h.Items[0].Reviewers = policy.Reviewers{Require: 2, NotRequester: true, Sets: []policy.ReviewerSet{{Rule: "big", Roles: []string{"finance"}, Users: []string{"zoe"}}}}
	return h
}

// step is one request. Its want is "" for a vote that counts, "same" for one that
// changes nothing, else a code.
type step struct {
	by, roles string
	action    Action
	data      string
	revision  bool // gives the revision it sees
	verdict   policy.Verdict
	want      string
}

// play applies the steps in order and returns the hold after them.
func play(t *testing.T, h Hold, steps []step) Hold {
	t.Helper()
	for i, s := range steps {
		p := Post{By: s.by, Roles: strings.Fields(s.roles), Decisions: []ItemDecision{{ID: "call_1", Action: s.action, Data: json.RawMessage(s.data), Verdict: s.verdict}}}
		if s.revision {
			p.Revision = h.Revision
		}
		before, err := json.Marshal(h)
		if err != nil {
			t.Fatal(err)
		}
		next, changed, err := Apply(h, p, opened)
		got := string(problem.CodeOf(err))
		if err == nil {
			got = map[bool]string{true: "", false: "same"}[changed]
		}
		if got != s.want {
			t.Fatalf("step %d (%s by %s): %q %v, want %q", i+1, s.action, s.by, got, err, s.want)
		}
		if after, err := json.Marshal(h); err != nil || string(after) != string(before) {
			t.Fatalf("step %d changed the hold that it was given:\n%s", i+1, cmp.Diff(string(before), string(after)))
		}
		if h = next; changed {
			h.Revision++
		}
	}
	return h
}

func TestQuorum(t *testing.T) {
	t.Parallel()
	const other, third = `{"order_id":"A-2"}`, `{"order_id":"A-3"}`
	deny := policy.Verdict{Effect: policy.Deny, Rules: []string{"huge"}, Reason: "Never."}
	board := policy.Verdict{Effect: policy.Ask, Rules: []string{"huge"}, Reviewers: policy.Reviewers{Require: 3, Sets: []policy.ReviewerSet{{Rule: "huge", Roles: []string{"board"}}}}}
	for _, c := range []struct {
		name  string
		steps []step
		// end is the action that decided the item, or "" while it is open; data what
		// would run, approvals how many approve it.
		end       Action
		data      string
		approvals int
	}{
		{"one is not enough", []step{{by: "ann", roles: "finance", action: Approve}}, "", `{"order_id":"A-1"}`, 1},
		{"two are", []step{
			{by: "ann", roles: "finance", action: Approve}, {by: "bob", roles: "x finance", action: Approve, revision: true},
		}, Approve, `{"order_id":"A-1"}`, 2},
		{"a name counts like a role", []step{
			{by: "zoe", action: Approve}, {by: "bob", roles: "finance", action: Approve, revision: true},
		}, Approve, `{"order_id":"A-1"}`, 2},
		{"the same person is one person", []step{
			{by: "ann", roles: "finance", action: Approve},
			{by: "ann", roles: "finance", action: Approve, want: "same"},
			{by: "ann", roles: "finance", action: Approve, data: `{"order_id":"A-1"}`, revision: true, want: "same"},
		}, "", `{"order_id":"A-1"}`, 1},
		{"whoever has every role is one person", []step{
			{by: "local", roles: policy.AnyRole, action: Approve}, {by: "local", roles: policy.AnyRole, action: Approve, want: "same"},
		}, "", `{"order_id":"A-1"}`, 1},
		{"strangers and the requester", []step{
			{by: "eve", action: Approve, want: "not_reviewer"},
			{by: "eve", roles: "support big", action: Reject, want: "not_reviewer"},
			{by: "req", roles: "finance *", action: Approve, want: "requester_may_not_decide"},
			{by: "req", roles: "finance", action: Reject, want: "requester_may_not_decide"},
			{by: "", roles: "", action: Approve, want: "not_reviewer"},
		}, "", `{"order_id":"A-1"}`, 0},
		{"one reject decides", []step{{by: "ann", roles: "finance", action: Reject}}, Reject, `{"order_id":"A-1"}`, 0},
		{"one reject decides after an approval, whatever it looked at", []step{
			{by: "ann", roles: "finance", action: Approve}, {by: "bob", roles: "finance", action: Reject},
		}, Reject, `{"order_id":"A-1"}`, 1},
		{"nobody changes sides", []step{
			{by: "ann", roles: "finance", action: Approve},
			{by: "ann", roles: "finance", action: Reject, want: "already_voted"},
			{by: "ann", roles: "finance", action: Edit, data: other, revision: true, want: "already_voted"},
		}, "", `{"order_id":"A-1"}`, 1},
		{"who votes second looks at the hold", []step{
			{by: "ann", roles: "finance", action: Approve},
			{by: "bob", roles: "finance", action: Approve, want: "invalid_decision"},
			{by: "bob", roles: "finance", action: Edit, data: other, want: "invalid_decision"},
		}, "", `{"order_id":"A-1"}`, 1},
		{"an edit is its author's approval of other arguments", []step{
			{by: "ann", roles: "finance", action: Edit, data: other},
			{by: "ann", roles: "finance", action: Edit, data: other, want: "same"},
			{by: "ann", roles: "finance", action: Approve, revision: true, want: "already_voted"},
			{by: "bob", roles: "finance", action: Approve, revision: true},
		}, Approve, other, 2},
		{"an edit voids what was said of the old arguments", []step{
			{by: "ann", roles: "finance", action: Approve}, {by: "bob", roles: "finance", action: Edit, data: other, revision: true},
		}, "", other, 1},
		{"who was made void may vote again", []step{
			{by: "ann", roles: "finance", action: Approve},
			{by: "bob", roles: "finance", action: Edit, data: other, revision: true},
			{by: "ann", roles: "finance", action: Approve, revision: true},
		}, Approve, other, 2},
		{"approving the arguments before the edit", []step{
			{by: "ann", roles: "finance", action: Edit, data: other},
			{by: "bob", roles: "finance", action: Approve, data: `{"order_id":"A-1"}`, revision: true, want: "invalid_decision"},
		}, "", other, 1},
		{"the same edit by another person is a second approval", []step{
			{by: "ann", roles: "finance", action: Edit, data: other}, {by: "bob", roles: "finance", action: Edit, data: other, revision: true},
		}, Edit, other, 2},
		{"the same edit written otherwise is another one", []step{
			{by: "ann", roles: "finance", action: Edit, data: other}, {by: "bob", roles: "finance", action: Edit, data: `{ "order_id":"A-2"}`, revision: true},
		}, "", `{ "order_id":"A-2"}`, 1},
		{"an edit of an edit", []step{
			{by: "ann", roles: "finance", action: Edit, data: other},
			{by: "bob", roles: "finance", action: Edit, data: third, revision: true},
			{by: "ann", roles: "finance", action: Approve, revision: true},
		}, Approve, third, 2},
		{"an edit that does not fit, or is denied, changes nothing", []step{
			{by: "ann", roles: "finance", action: Approve},
			{by: "bob", roles: "finance", action: Edit, data: `{"order_id":7}`, revision: true, want: "invalid_edit"},
			{by: "bob", roles: "finance", action: Edit, data: other, revision: true, verdict: deny, want: "edit_denied"},
		}, "", `{"order_id":"A-1"}`, 1},
		{"an edit that asks others needs others, its author first", []step{
			{by: "ann", roles: "finance", action: Edit, data: other, verdict: board, want: "not_reviewer"},
			{by: "ann", roles: "finance board", action: Edit, data: other, verdict: board},
			{by: "bob", roles: "finance", action: Approve, revision: true, want: "not_reviewer"},
			{by: "bob", roles: "board", action: Approve, revision: true, want: "not_reviewer"},
			{by: "bob", roles: "finance board", action: Approve, revision: true},
		}, "", other, 2},
		{"stricter reviewers void votes even where the arguments stay", []step{
			{by: "ann", roles: "finance", action: Approve},
			{by: "bob", roles: "finance board", action: Edit, data: `{"order_id":"A-1"}`, revision: true, verdict: board},
		}, "", `{"order_id":"A-1"}`, 1},
		{"decided is decided", []step{
			{by: "ann", roles: "finance", action: Approve},
			{by: "bob", roles: "finance", action: Approve, revision: true},
			{by: "ann", roles: "finance", action: Approve, want: "same"},
			{by: "bob", roles: "finance", action: Approve, want: "same"},
			{by: "cat", roles: "finance", action: Approve, want: "hold_decided"},
			{by: "ann", roles: "finance", action: Reject, want: "hold_decided"},
		}, Approve, `{"order_id":"A-1"}`, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			h := play(t, quorum(), c.steps)
			it := h.Items[0]
			var end Action
			if it.Decision != nil {
				end = it.Decision.Action
			}
			if end != c.end || string(it.Data) != c.data || it.Approvals() != c.approvals {
				t.Errorf("decided %q, data %s, %d approvals; want %q, %s, %d", end, it.Data, it.Approvals(), c.end, c.data, c.approvals)
			}
			if edited := c.data != `{"order_id":"A-1"}`; edited != (string(it.Proposed) == `{"order_id":"A-1"}`) {
				t.Errorf("proposed is %q", it.Proposed)
			}
			if h.Status != Pending {
				t.Errorf("the hold is %s, and its second item is open", h.Status)
			}
		})
	}
}

// An edit makes a single approval into a quorum when policy asks more people about
// the arguments it brings.
func TestEditBecomesQuorum(t *testing.T) {
	t.Parallel()
	two := policy.Verdict{Effect: policy.Ask, Reviewers: policy.Reviewers{Require: 2}}
	h := play(t, sample(), []step{{by: "ann", action: Edit, data: `{"order_id":"B"}`, verdict: two}})
	if it := h.Items[0]; it.Decision != nil || it.Approvals() != 1 || string(it.Data) != `{"order_id":"B"}` {
		t.Fatalf("after the edit: %+v", it)
	}
	h = play(t, h, []step{{by: "bob", action: Approve, revision: true}})
	if it := h.Items[0]; it.Decision == nil || it.Decision.By != "bob" || it.Approvals() != 2 {
		t.Errorf("after the approval: %+v", it)
	}
	// An edit that policy would let run as it is leaves the gate as it was.
	h = play(t, quorum(), []step{{by: "ann", roles: "finance", action: Edit, data: `{"order_id":"B"}`, verdict: policy.Verdict{Effect: policy.Allow}}})
	if it := h.Items[0]; it.Decision != nil || it.Reviewers.Require != 2 {
		t.Errorf("an edit has lowered the gate: %+v", it)
	}
}

// All decisions of a request are applied or none, also where one of two items is
// not the person's to decide.
func TestQuorumIsAllOrNothing(t *testing.T) {
	t.Parallel()
	p := post("eve", approve("call_1"), approve("call_3"))
	if _, changed, err := Apply(quorum(), p, opened); problem.CodeOf(err) != problem.NotReviewer || changed {
		t.Errorf("both: %v", err)
	}
	h, _, err := Apply(quorum(), post("eve", approve("call_3")), opened)
	if err != nil || h.Items[1].Decision == nil || h.Status != Pending {
		t.Errorf("the one: %v", err)
	}
	p.Roles = []string{"finance"}
	h, _, err = Apply(h, p, opened)
	if err != nil || h.Items[0].Approvals() != 1 || h.Status != Pending {
		t.Errorf("the other, with the first one repeated: %v %+v", err, h.Items[0])
	}
}

func TestVotesAreBounded(t *testing.T) {
	t.Parallel()
	var steps []step
	for i := range maxVotes {
		steps = append(steps, step{by: "p" + string(rune('A'+i%2)), roles: "finance", action: Edit, data: fmt.Sprintf(`{"order_id":"%d"}`, i), revision: true})
	}
	last := step{by: "pA", roles: "finance", action: Edit, data: `{"order_id":"x"}`, revision: true, want: "invalid_decision"}
	play(t, quorum(), append(steps, last))
}

// What a quorum depends on is part of what is compared between the hold that was
// shown and the one its journal tells.
func TestDifferenceOfQuorum(t *testing.T) {
	t.Parallel()
	voted := play(t, quorum(), []step{{by: "ann", roles: "finance", action: Edit, data: `{"order_id":"A-2"}`}})
	for want, change := range map[string]func(*Hold){
		"":                             func(*Hold) {},
		"its requester":                func(h *Hold) { h.Requester = "ann" },
		"the reviewers of item call_1": func(h *Hold) { h.Items[0].Reviewers.Require = 1 },
		"the votes of item call_1":     func(h *Hold) { h.Items[0].Votes[0].By = "bob" },
		"the arguments of item call_1": func(h *Hold) { h.Items[0].Proposed = json.RawMessage(`{}`) },
	} {
		var copied Hold
		raw, err := json.Marshal(voted)
		if err == nil {
			err = json.Unmarshal(raw, &copied)
		}
		if err != nil {
			t.Fatal(err)
		}
		change(&copied)
		if got := Difference(copied, voted); got != want {
			t.Errorf("difference %q, want %q", got, want)
		}
	}
}
