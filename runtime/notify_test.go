package runtime_test

import (
	"testing"
	"time"

	"agentos/audit"
	"agentos/holds"
	"agentos/internal/rawjson"
	"agentos/runtime/journal"
	"agentos/runtime/store"
)

// told claims and settles what others are to be told of, and returns the events of
// the audit in it.
func (r *rig) told() []audit.Event {
	r.t.Helper()
	list, err := r.store.Notices(r.ctx(), 10, time.Minute)
	if err != nil {
		r.t.Fatal(err)
	}
	var events []audit.Event
	for _, n := range list {
		entries, err := r.store.Journal(r.ctx(), n.RunID, 0)
		if err != nil {
			r.t.Fatal(err)
		}
		told, err := audit.FromRun(n.Env, n.RunID, entries)
		if err != nil {
			r.t.Fatal(err)
		}
		for _, k := range told {
			events = append(events, k.Entry.Event)
			if c := k.Entry.Call; c != nil && c.Arguments != rawjson.Digest([]byte(`{"order_id":"A-1"}`)) {
				r.t.Errorf("the record of %s tells other arguments than were sent", c.ID)
			}
		}
		if err := r.store.Settle(r.ctx(), store.Settled{RunID: n.RunID, Claim: n.Claim, Seq: n.Seq}); err != nil {
			r.t.Fatal(err)
		}
	}
	return events
}

func (r *rig) wantTold(want ...audit.Event) {
	r.t.Helper()
	got := r.told()
	if len(got) != len(want) {
		r.t.Fatalf("told %v, want %v", got, want)
	}
	for i := range want {
		if got[i] != want[i] {
			r.t.Errorf("told %v, want %v", got, want)
		}
	}
}

// Others are to be told of exactly those runs in which a person had a part, as soon
// as that is in the journal.
func TestNotices(t *testing.T) {
	ask := sequence(asks(call{"a", "cancel_order", `{"order_id":"A-1"}`}), says("ok"))
	for name, c := range map[string]struct {
		end  func(r *rig, v store.View)
		want []audit.Event
	}{
		"approved": {func(r *rig, v store.View) {
			if _, err := r.post(v.Hold.ID, approve("call_1")); err != nil {
				r.t.Fatal(err)
			}
			r.want(r.wait(v.ID), store.Completed)
		}, []audit.Event{audit.HoldDecided, audit.CallRan}},
		"rejected": {func(r *rig, v store.View) {
			if _, err := r.post(v.Hold.ID, holds.ItemDecision{ID: "call_1", Action: holds.Reject}); err != nil {
				r.t.Fatal(err)
			}
			r.want(r.wait(v.ID), store.Completed)
		}, []audit.Event{audit.HoldDecided}},
		"switched off": {func(r *rig, v store.View) {
			r.switchOff("cancel_order")
			r.want(r.wait(v.ID), store.Completed)
		}, []audit.Event{audit.HoldCancelled}},
		"cancelled": {func(r *rig, v store.View) {
			if _, err := r.engine.Cancel(r.ctx(), "default", v.ID, "ann"); err != nil {
				r.t.Fatal(err)
			}
		}, []audit.Event{audit.HoldCancelled, audit.RunCancelled}},
	} {
		for _, kind := range kinds() {
			t.Run(name+" "+kind, func(t *testing.T) {
				r := newRig(t, usual, ask)
				r.notify, r.url = audit.Concerns, urlOf(t, kind)
				r.up()
				v := r.start("go")
				r.want(v, store.Held)
				r.wantTold()
				c.end(r, v)
				r.wantTold(c.want...)
				r.wantTold()
			})
		}
	}
	t.Run("nobody asked", func(t *testing.T) {
		r := newRig(t, "", sequence(asks(call{"a", "lookup_order", `{"order_id":"A-1"}`}), says("ok")))
		r.notify = audit.Concerns
		r.up()
		r.want(r.wait(r.start("go").ID), store.Completed)
		r.wantTold()
	})
	t.Run("of everything", func(t *testing.T) {
		r := newRig(t, usual, ask)
		r.notify = func(k journal.Type, _ bool) bool { return k == journal.HoldOpened || k.Last() }
		r.up()
		v := r.start("go")
		r.want(v, store.Held)
		list, err := r.store.Notices(r.ctx(), 10, time.Minute)
		if err != nil || len(list) != 1 || list[0].RunID != v.ID || list[0].Seq != v.Seq {
			t.Errorf("%+v, %v", list, err)
		}
	})
}
