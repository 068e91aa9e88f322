package runtime_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"agentos/holds"
	"agentos/holds/policy"
	"agentos/internal/problem"
	"agentos/internal/testenv"
	"agentos/runtime/journal"
	"agentos/runtime/store"
)

// finance wants two people of finance, none of them the requester ("tester").
const finance = `      approve:
        - {id: fin, tool: cancel_order, reviewers: {roles: [finance], require: 2, not_requester: true}}
        - {id: big, tool: cancel_order, when: 'args.order_id == "BIG"', reviewers: {roles: [board]}}
`

// voter posts as a person with roles, having looked at the hold.
func (r *rig) voter(holdID, who string, d holds.ItemDecision) (holds.Hold, error) {
	r.t.Helper()
	seen, err := r.store.Hold(r.ctx(), holdID)
	if err != nil {
		r.t.Fatal(err)
	}
	return r.voterAt(holdID, who, seen.Hold.Revision, d)
}

func (r *rig) voterAt(holdID, who string, revision int64, d holds.ItemDecision) (holds.Hold, error) {
	words := strings.Fields(who)
	return r.engine.Decide(r.ctx(), "default", holdID, holds.Post{
		By: words[0], Roles: words[1:], From: "192.0.2.1", Revision: revision, Decisions: []holds.ItemDecision{d},
	})
}

func edit(args string) holds.ItemDecision {
	return holds.ItemDecision{ID: "call_1", Action: holds.Edit, Data: json.RawMessage(args), Reason: "wrong one"}
}

// kinds are the stores that decide about races.
func kinds() []string { return []string{"file", "redis"} }

// urlOf is a store of that kind for one test alone; "" is a file.
func urlOf(t *testing.T, kind string) string {
	t.Helper()
	if kind == "redis" {
		return testenv.StartRedis(t).URL()
	}
	return ""
}

// A vote is there after a restart, and only the second person's lets the call run.
func TestQuorumSurvivesRestart(t *testing.T) {
	for _, kind := range kinds() {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, finance, sequence(asks(call{"a", "cancel_order", `{"order_id":"A-1"}`}), says("ok")))
			r.url = urlOf(t, kind)
			r.up()
			v := r.start("go")
			if h := v.Hold; h.Requester != "tester" || h.Items[0].Reviewers.Require != 2 || h.Items[0].Reviewers.Sets[0].Rule != "fin" {
				t.Fatalf("hold %+v", h)
			}
			for who, want := range map[string]problem.Code{
				"tester finance": problem.RequesterMayNotDecide, "eve support": problem.NotReviewer, "eve": problem.NotReviewer,
			} {
				if _, err := r.voter(v.Hold.ID, who, approve("call_1")); problem.CodeOf(err) != want {
					t.Errorf("%s: %v, want %s", who, err, want)
				}
			}
			if h, err := r.voter(v.Hold.ID, "ann finance", approve("call_1")); err != nil || h.Status != holds.Pending || h.Items[0].Decision != nil {
				t.Fatalf("the first vote: %v %+v", err, h)
			}
			r.restart()
			if h, err := r.voter(v.Hold.ID, "ann finance", approve("call_1")); err != nil || h.Status != holds.Pending || h.Items[0].Approvals() != 1 {
				t.Errorf("the same person after a restart: %v %+v", err, h)
			}
			if _, err := r.voter(v.Hold.ID, "ann finance", holds.ItemDecision{ID: "call_1", Action: holds.Reject}); problem.CodeOf(err) != problem.AlreadyVoted {
				t.Errorf("a change of mind: %v", err)
			}
			r.ran("cancel_order", "", 0)
			if h, err := r.voter(v.Hold.ID, "bob finance", approve("call_1")); err != nil || h.Status != holds.Decided {
				t.Fatalf("the second vote: %v %+v", err, h)
			}
			r.want(r.wait(v.ID), store.Completed)
			r.ran("cancel_order", "A-1", 1)
			told := r.decisions(v.ID)
			if got := strings.Join(told, "; "); got != "ann approve open from 192.0.2.1; bob approve from 192.0.2.1" {
				t.Errorf("the journal tells %s", got)
			}
		})
	}
}

// decisions are the votes as the journal of a run tells them.
func (r *rig) decisions(id string) []string {
	r.t.Helper()
	var out []string
	for _, e := range r.journal(id) {
		if e.Type != journal.HoldDecided {
			continue
		}
		var d journal.HoldDecision
		if err := json.Unmarshal(e.Data, &d); err != nil {
			r.t.Fatal(err)
		}
		for _, it := range d.Items {
			text := it.Decision.By + " " + string(it.Decision.Action)
			if it.Open {
				text += " open"
			}
			out = append(out, text+" from "+it.Decision.From)
		}
	}
	return out
}

// An edit voids the approval of what it replaces, survives a restart, and runs when
// two people want it; the model is told the editor's reason.
func TestQuorumOfAnEdit(t *testing.T) {
	for _, kind := range kinds() {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, finance, sequence(asks(call{"a", "cancel_order", `{"order_id":"A-1","n":9007199254740993}`}), says("ok")))
			r.url = urlOf(t, kind)
			r.up()
			v := r.start("go")
			seen := v.Hold.Revision
			if _, err := r.voter(v.Hold.ID, "ann finance", approve("call_1")); err != nil {
				t.Fatal(err)
			}
			if _, err := r.voterAt(v.Hold.ID, "bob finance", seen, edit(`{"order_id":"A-2"}`)); problem.CodeOf(err) != problem.HoldStale {
				t.Errorf("an edit of what was looked at before the vote: %v", err)
			}
			if _, err := r.voter(v.Hold.ID, "bob finance", edit(`{"order_id":"BIG"}`)); problem.CodeOf(err) != problem.NotReviewer || !strings.Contains(err.Error(), "board") {
				t.Errorf("an edit that needs the board: %v", err)
			}
			if _, err := r.voter(v.Hold.ID, "bob finance", edit(`{"order_id":"A-2","n":9007199254740993}`)); err != nil {
				t.Fatal(err)
			}
			r.restart()
			h, err := r.store.Hold(r.ctx(), v.Hold.ID)
			if it := h.Hold.Items[0]; err != nil || string(it.Data) != `{"order_id":"A-2","n":9007199254740993}` || it.Approvals() != 1 || !it.Votes[0].Void {
				t.Fatalf("after the edit: %v %+v", err, h.Hold.Items[0])
			}
			if _, err := r.voter(v.Hold.ID, "ann finance", approve("call_1")); err != nil {
				t.Fatal(err)
			}
			r.want(r.wait(v.ID), store.Completed)
			r.ran("cancel_order", `{"order_id":"A-2","n":9007199254740993}`, 1)
			r.ran("cancel_order", "", 1)
			if text := r.state(v.ID).Calls[0].Finished.Text; !strings.Contains(text, "Their reason: wrong one") {
				t.Errorf("the model is told %q", text)
			}
		})
	}
}

// An edit into what another rule asks about needs that rule's people too.
func TestEditNeedsTheOtherRulesPeople(t *testing.T) {
	r := newRig(t, finance, sequence(asks(call{"a", "cancel_order", `{"order_id":"A-1"}`}), says("ok"))).up()
	v := r.start("go")
	if _, err := r.voter(v.Hold.ID, "ann finance board", edit(`{"order_id":"BIG"}`)); err != nil {
		t.Fatal(err)
	}
	r.restart()
	if _, err := r.voter(v.Hold.ID, "bob finance", approve("call_1")); problem.CodeOf(err) != problem.NotReviewer {
		t.Errorf("without the board: %v", err)
	}
	if _, err := r.voter(v.Hold.ID, "bob board finance", approve("call_1")); err != nil {
		t.Fatal(err)
	}
	r.want(r.wait(v.ID), store.Completed)
	r.ran("cancel_order", "BIG", 1)
}

// Many people vote at once, all having seen the same revision: the votes that count
// are of different people, and the call runs once.
func TestRacingVotes(t *testing.T) {
	for _, kind := range kinds() {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, strings.Replace(finance, "require: 2", "require: 3", 1), sequence(asks(call{"a", "cancel_order", `{"order_id":"A-1"}`}), says("ok")))
			r.url = urlOf(t, kind)
			r.up()
			v := r.start("go")
			var wg sync.WaitGroup
			for i := range 8 {
				wg.Go(func() {
					who := fmt.Sprintf("p%d finance", i%4) // everybody clicks twice
					for range 50 {
						_, err := r.voter(v.Hold.ID, who, approve("call_1"))
						code := problem.CodeOf(err)
						if code == problem.HoldStale { // somebody was faster; look again
							continue
						}
						if err != nil && code != problem.HoldDecided {
							t.Errorf("%s: %v", who, err)
						}
						return
					}
					t.Errorf("%s was never heard", who)
				})
			}
			wg.Wait()
			r.want(r.wait(v.ID), store.Completed)
			r.ran("cancel_order", "", 1)
			people := map[string]bool{}
			told := r.decisions(v.ID)
			for _, d := range told {
				people[strings.Fields(d)[0]] = true
			}
			if len(told) != 3 || len(people) != 3 {
				t.Errorf("the journal tells of %v", told)
			}
		})
	}
}

// An edit and an approval race: never do two different arguments make one quorum.
func TestRacingEditAndApproval(t *testing.T) {
	for _, kind := range kinds() {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, finance, func(_ int, body json.RawMessage) (string, error) {
				if !strings.Contains(string(body), `"role":"tool"`) {
					return asks(call{"a", "cancel_order", `{"order_id":"A-1"}`}), nil
				}
				return says("ok"), nil
			})
			r.url = urlOf(t, kind)
			r.up()
			for range 5 {
				v := r.start("go")
				if _, err := r.voter(v.Hold.ID, "ann finance", approve("call_1")); err != nil {
					t.Fatal(err)
				}
				seen, err := r.store.Hold(r.ctx(), v.Hold.ID)
				if err != nil {
					t.Fatal(err)
				}
				var wg sync.WaitGroup
				results := make([]error, 2)
				for i, d := range []holds.ItemDecision{approve("call_1"), edit(`{"order_id":"A-2"}`)} {
					wg.Go(func() {
						_, results[i] = r.voterAt(v.Hold.ID, []string{"bob finance", "cat finance"}[i], seen.Hold.Revision, d)
					})
				}
				wg.Wait()
				s := r.state(v.ID)
				switch {
				case results[0] == nil && results[1] == nil, results[0] != nil && results[1] != nil:
					t.Fatalf("both or none won: %v", results)
				case results[0] == nil:
					r.want(r.wait(v.ID), store.Completed)
				case s.Calls[0].Approved() || s.Hold == nil || s.Hold.Items[0].Approvals() != 1:
					t.Errorf("the edit won: %+v", s.Calls[0])
				}
			}
			r.ran("cancel_order", "A-2", 0)
		})
	}
}

// A hold that expires with one of two votes lets nothing run.
func TestQuorumExpires(t *testing.T) {
	r := newRig(t, finance, sequence(asks(call{"a", "cancel_order", `{"order_id":"A-1"}`}), says("ok"))).up()
	v := r.start("go")
	if _, err := r.voter(v.Hold.ID, "ann finance", edit(`{"order_id":"A-2"}`)); err != nil {
		t.Fatal(err)
	}
	r.clock.advance(policy.DefaultExpires + time.Second)
	s := r.until(v.ID, func(s *journal.State) bool { return s.End != "" })
	if s.Calls[0].Finished.Outcome != journal.Expired {
		t.Errorf("outcome %s", s.Calls[0].Finished.Outcome)
	}
	r.ran("cancel_order", "", 0)
}

// When finance has not decided after an hour, the board may decide too; nothing is
// written at that moment, and at the end of its time the hold rejects.
func TestEscalation(t *testing.T) {
	const loop = `      approve:
        - tool: cancel_order
          reviewers: {roles: [finance]}
          expires: 3h
          on_expire: {escalate: {to: {roles: [board]}, after: 1h}}
`
	r := newRig(t, loop, func(_ int, body json.RawMessage) (string, error) {
		if !strings.Contains(string(body), `"role":"tool"`) {
			return asks(call{"a", "cancel_order", `{"order_id":"A-1"}`}), nil
		}
		return says("ok"), nil
	}).up()
	v, late := r.start("go"), r.start("go")
	seq := v.Seq
	if _, err := r.voter(v.Hold.ID, "bob board", approve("call_1")); problem.CodeOf(err) != problem.NotReviewer || !strings.Contains(err.Error(), "on also for a person with role board") {
		t.Errorf("too early: %v", err)
	}
	r.clock.advance(time.Hour + time.Second)
	if _, err := r.voter(v.Hold.ID, "eve support", approve("call_1")); problem.CodeOf(err) != problem.NotReviewer {
		t.Errorf("nobody at all: %v", err)
	}
	if n := len(r.journal(v.ID)); int64(n) != seq {
		t.Errorf("%d entries, %d when the hold was opened", n, seq)
	}
	r.restart()
	if _, err := r.voter(v.Hold.ID, "bob board", approve("call_1")); err != nil {
		t.Fatal(err)
	}
	r.want(r.wait(v.ID), store.Completed)
	r.ran("cancel_order", "", 1)
	r.clock.advance(2 * time.Hour)
	if s := r.until(late.ID, func(s *journal.State) bool { return s.End != "" }); s.Calls[0].Finished.Outcome != journal.Expired {
		t.Errorf("outcome %s", s.Calls[0].Finished.Outcome)
	}
	r.ran("cancel_order", "", 1)
}
