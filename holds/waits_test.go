package holds

import (
	"strings"
	"testing"
	"time"

	"agentos/holds/policy"
)

// A hold waits for those who can still say something about one of its items.
func TestWaits(t *testing.T) {
	t.Parallel()
	// The second item is decided in all but the first case: what waits is the quorum.
	base := quorum()
	first := base
	rest := base
	rest.Items = append([]Item{}, base.Items...)
	for i := range rest.Items[1:] {
		rest.Items[i+1].Decision = &Decision{Action: Reject, By: "dan"}
	}
	voted := play(t, rest, []step{{by: "ann", roles: "finance", action: Approve}})
	edited := play(t, voted, []step{{by: "zoe", action: Edit, data: `{"order_id":"A-2"}`, revision: true}})
	later := rest
	later.Items = append([]Item{}, rest.Items...)
	later.Items[0].Reviewers.Sets = []policy.ReviewerSet{{Rule: "big", Roles: []string{"finance"}, Escalate: &policy.Escalation{Roles: []string{"boss"}, AfterMS: time.Minute.Milliseconds()}}}
	for _, tc := range []struct {
		name, who, roles string
		hold             Hold
		after            time.Duration
		want             bool
	}{
		{"anybody's item", "eve", "", first, 0, true},
		{"a role that the rule names", "ann", "finance", rest, 0, true},
		{"a user that the rule names", "zoe", "", rest, 0, true},
		{"another role", "eve", "support", rest, 0, false},
		{"the requester", "req", "finance", rest, 0, false},
		{"local", "local", "*", rest, 0, true},
		{"has voted", "ann", "finance", voted, 0, false},
		{"the second person", "bob", "finance", voted, 0, true},
		{"voted for what was edited since", "ann", "finance", edited, 0, true},
		{"has edited", "zoe", "", edited, 0, false},
		{"before the escalation", "max", "boss", later, time.Minute - 1, false},
		{"after the escalation", "max", "boss", later, time.Minute, true},
		{"expired", "ann", "finance", rest, base.ExpiresAt.Sub(opened), false},
		{"cancelled", "ann", "finance", rest.Closed(Cancelled, 9), 0, false},
	} {
		if got := tc.hold.Waits(policy.Person{Name: tc.who, Roles: strings.Fields(tc.roles)}, opened.Add(tc.after)); got != tc.want {
			t.Errorf("%s: %v, want %v", tc.name, got, tc.want)
		}
	}
}
