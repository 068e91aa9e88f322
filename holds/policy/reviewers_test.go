package policy

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestReviewers(t *testing.T) {
	t.Parallel()
	finance := ReviewerSet{Rule: "a", Roles: []string{"finance", "board"}, Users: []string{"ann"}}
	legal := ReviewerSet{Rule: "b", Roles: []string{"legal"}}
	both := Reviewers{Sets: []ReviewerSet{finance, legal}}
	for _, c := range []struct {
		name   string
		r      Reviewers
		who    Person
		lacked string
	}{
		{"nobody is named", Reviewers{Require: 3}, Person{Name: "x"}, ""},
		{"a role", Reviewers{Sets: []ReviewerSet{finance}}, Person{Name: "x", Roles: []string{"night", "board"}}, ""},
		{"a name", Reviewers{Sets: []ReviewerSet{finance}}, Person{Name: "ann"}, ""},
		{"neither", Reviewers{Sets: []ReviewerSet{finance}}, Person{Name: "x", Roles: []string{"ann", "Finance"}}, "a"},
		{"a role is no name", Reviewers{Sets: []ReviewerSet{finance}}, Person{Name: "finance"}, "a"},
		{"every set counts", both, Person{Name: "ann"}, "b"},
		{"every set", both, Person{Name: "ann", Roles: []string{"legal"}}, ""},
		{"any role", both, Person{Name: "local", Roles: []string{AnyRole}}, ""},
		{"a name like any role", both, Person{Name: AnyRole}, "a"},
		{"nobody at all", both, Person{}, "a"},
	} {
		lacked := ""
		if s := c.r.Lacking(c.who, time.Hour); s != nil {
			lacked = s.Rule
		}
		if lacked != c.lacked {
			t.Errorf("%s: lacks %q, want %q", c.name, lacked, c.lacked)
		}
	}
}

func TestVerdictReviewers(t *testing.T) {
	t.Parallel()
	finance := []ReviewerSet{{Roles: []string{"finance"}}}
	a := Rule{ID: "a", Effect: Ask, Tool: "refund", Reviewers: Reviewers{Require: 2, Sets: finance}}
	b := Rule{ID: "b", Effect: Ask, Tool: "refund", Reviewers: Reviewers{NotRequester: true, Sets: []ReviewerSet{{Users: []string{"ann"}}}}}
	plain := Rule{ID: "p", Effect: Ask, Tool: "refund"}
	want := Reviewers{Require: 2, NotRequester: true, Sets: []ReviewerSet{
		{Rule: "a", Roles: []string{"finance"}}, {Rule: "b", Users: []string{"ann"}},
	}}
	call := Call{Server: "shop", Tool: "refund"}
	if diff := cmp.Diff(want, Evaluate([]Rule{a, plain, b}, call).Reviewers); diff != "" {
		t.Error(diff)
	}
	if finance[0].Rule != "" {
		t.Error("the verdict has changed the rule")
	}
	if r := Evaluate([]Rule{plain}, call).Reviewers; !r.Equal(Reviewers{}) {
		t.Errorf("a rule without reviewers: %+v", r)
	}
	doubt := Rule{ID: "d", Effect: Deny, Tool: "refund", When: when(t, "args.x > 1")}
	if r := Evaluate([]Rule{a, doubt}, call).Reviewers; r.Require != 2 || len(r.Sets) != 1 {
		t.Errorf("beside a doubt: %+v", r)
	}
	if again := want.And(want); !again.Equal(want) {
		t.Errorf("twice the same is %+v", again)
	}
}

// Other people are added when their time has come, and never before.
func TestEscalation(t *testing.T) {
	t.Parallel()
	r := Reviewers{Sets: []ReviewerSet{{
		Rule: "a", Roles: []string{"finance"}, Escalate: &Escalation{Roles: []string{"board"}, Users: []string{"zoe"}, AfterMS: time.Hour.Milliseconds()},
	}}}
	finance, board, zoe, eve := Person{"f", []string{"finance"}}, Person{"b", []string{"board"}}, Person{"zoe", nil}, Person{"eve", []string{"support"}}
	for _, c := range []struct {
		who    Person
		waited time.Duration
		may    bool
	}{
		{finance, 0, true},
		{finance, 2 * time.Hour, true},
		{board, 0, false},
		{board, -time.Hour, false},
		{board, time.Hour - time.Millisecond, false},
		{board, time.Hour, true},
		{zoe, time.Hour - 1, false},
		{zoe, time.Hour, true},
		{eve, 24 * time.Hour, false},
	} {
		if may := r.Lacking(c.who, c.waited) == nil; may != c.may {
			t.Errorf("%s after %s: %v", c.who.Name, c.waited, may)
		}
	}
	// It is one more set when another rule asks as well.
	both := r.And(Reviewers{Sets: []ReviewerSet{{Rule: "b", Roles: []string{"legal"}}}})
	if s := both.Lacking(board, time.Hour); s == nil || s.Rule != "b" {
		t.Errorf("the board stands for legal too: %+v", s)
	}
}
