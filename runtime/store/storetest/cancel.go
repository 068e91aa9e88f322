package storetest

import (
	"encoding/json"
	"time"

	"agentos/holds"
	"agentos/runtime/journal"
	"agentos/runtime/store"
)

func cancelCases() []Case {
	return []Case{
		{"Cancel/held_ends_with_its_hold", cancelHeld},
		{"Cancel/queued_ends", cancelQueued},
		{"Cancel/leased_is_asked_to_stop", cancelLeased},
		{"Cancel/running_and_due_is_asked_to_stop", cancelDue},
		{"Cancel/parked_is_due_at_once", cancelParked},
		{"Cancel/expired_and_claimed_is_asked_to_stop", cancelExpired},
		{"Cancel/on_other_entries_conflicts", cancelSeen},
		{"Cancel/must_close_the_hold", cancelHold},
		{"Cancel/finished_conflicts", cancelFinished},
		{"Cancel/unknown", cancelUnknown},
		{"Cancel/damaged_ends_with_its_hold", cancelDamaged},
		{"Cancel/refuses_bad_arguments", cancelRefuses},
	}
}

func (k *kit) cancel(c store.Cancel) (requested bool) {
	k.Helper()
	requested, err := k.s.Cancel(k.ctx, c)
	k.ok(err)
	return requested
}

func cancelHeld(k *kit) {
	h := k.held(runID(1), time.Hour)
	c := k.cancellation(runID(1), 2, &h)
	c.Entries = append([]journal.New{entry(journal.HoldClosed, "cancelled")}, c.Entries...)
	c.Summary = json.RawMessage(`{"by":"ann"}`)
	if k.cancel(c) {
		k.Fatalf("nobody works on the run, it was only asked to stop")
	}
	v := k.view(runID(1))
	k.equal("status", v.Status, store.Cancelled)
	k.sameBytes("summary", v.Summary, c.Summary)
	k.equal("hold", k.holdOf(h.ID), *c.Hold)
	k.types(runID(1), journal.RunCreated, journal.HoldOpened, journal.HoldClosed, journal.RunCancelled)
	k.h.Advance(2 * time.Hour)
	k.claimNone("finished")
}

func cancelQueued(k *kit) {
	k.create(runID(1), 0)
	l := k.create(runID(2), ttl).Lease
	k.commit(l, store.Tx{Status: store.Queued, Due: time.Hour})
	for n := 1; n <= 2; n++ {
		if k.cancel(k.cancellation(runID(n), 1, nil)) {
			k.Fatalf("nobody works on the run, it was only asked to stop")
		}
		k.equal("status", k.view(runID(n)).Status, store.Cancelled)
	}
	k.h.Advance(2 * time.Hour)
	k.claimNone("finished")
}

func cancelLeased(k *kit) {
	l := k.create(runID(1), ttl).Lease
	for i, by := range []string{"ann", "bob"} {
		c := k.cancellation(runID(1), int64(i), nil) // whatever was seen
		c.By = by
		if !k.cancel(c) {
			k.Fatalf("the run was ended under its worker")
		}
	}
	v := k.view(runID(1))
	k.equal("asked by", v.CancelBy, "ann")
	k.equal("status", v.Status, store.Running)
	k.h.Advance(2 * ttl) // a lease that ran out is still somebody's
	if !k.cancel(k.cancellation(runID(1), 1, nil)) {
		k.Fatalf("the run was ended under its worker")
	}
	got := k.commit(l, store.Tx{Status: store.Cancelled, Entries: []journal.New{entry(journal.RunCancelled, "ann")}})
	k.equal("asked by", got.CancelBy, "ann")
}

func cancelDue(k *kit) {
	h := k.held(runID(1), time.Hour)
	k.decide(k.decision(h, true, 0))
	if !k.cancel(k.cancellation(runID(1), 4, nil)) {
		k.Fatalf("a decided run was ended, its calls may be under way")
	}
	k.equal("asked by", k.claimOnly(runID(1)).Record.CancelBy, "ann")
}

func cancelParked(k *kit) {
	l := k.create(runID(1), ttl).Lease
	k.commit(l, store.Tx{Status: store.Running, Due: time.Hour})
	k.claimNone("parked")
	if !k.cancel(k.cancellation(runID(1), 1, nil)) {
		k.Fatalf("the request was not recorded")
	}
	k.equal("asked by", k.claimOnly(runID(1)).Record.CancelBy, "ann")
}

func cancelExpired(k *kit) {
	h := k.held(runID(1), time.Hour)
	k.h.Advance(time.Hour)
	c := k.claimOnly(runID(1))
	if !k.cancel(k.cancellation(runID(1), 2, &h)) {
		k.Fatalf("the run was ended under its worker")
	}
	k.equal("hold", k.holdOf(h.ID), h)
	closed := h.Closed(holds.Expired, 3)
	got := k.commit(c.Lease, store.Tx{Status: store.Running, Lease: ttl, Hold: &closed, Entries: entries(1)})
	k.equal("asked by", got.CancelBy, "ann")
}

func cancelSeen(k *kit) {
	h := k.held(runID(1), time.Hour)
	d := k.decision(h, false, 0)
	k.decide(d)
	for _, seen := range []int64{0, 2, 4} {
		_, err := k.s.Cancel(k.ctx, k.cancellation(runID(1), seen, &h))
		k.refused(err, store.ErrConflict)
	}
	k.equal("hold", k.holdOf(h.ID), d.Hold)
	k.equal("asked by", k.view(runID(1)).CancelBy, "")
	k.cancel(k.cancellation(runID(1), 3, &d.Hold))
}

func cancelHold(k *kit) {
	h := k.held(runID(1), time.Hour)
	_, err := k.s.Cancel(k.ctx, k.cancellation(runID(1), 2, nil))
	k.refused(err, store.ErrConflict)
	other := hold(runID(1), 2, 2, h.CreatedAt, time.Hour)
	_, err = k.s.Cancel(k.ctx, k.cancellation(runID(1), 2, &other))
	k.refused(err, store.ErrConflict)
	k.create(runID(2), 0)
	none := hold(runID(2), 1, 1, h.CreatedAt, time.Hour)
	_, err = k.s.Cancel(k.ctx, k.cancellation(runID(2), 1, &none))
	k.refused(err, store.ErrConflict)
	k.equal("hold", k.holdOf(h.ID), h)
}

func cancelFinished(k *kit) {
	k.finish(k.create(runID(1), ttl).Lease)
	_, err := k.s.Cancel(k.ctx, k.cancellation(runID(1), 2, nil))
	k.refused(err, store.ErrConflict)
	k.types(runID(1), journal.RunCreated, journal.RunCompleted)
}

func cancelUnknown(k *kit) {
	_, err := k.s.Cancel(k.ctx, k.cancellation(runID(1), 0, nil))
	k.refused(err, store.ErrNotFound)
}

func cancelDamaged(k *kit) {
	h := k.held(runID(1), time.Hour)
	k.h.Damage(runID(1))
	k.damaged[runID(1)] = true
	c := k.cancellation(runID(1), 2, &h)
	if k.cancel(c) {
		k.Fatalf("nobody works on the run, it was only asked to stop")
	}
	v := k.view(runID(1))
	k.equal("status", v.Status, store.Cancelled)
	k.equal("last", v.Last.Type, journal.RunCancelled)
	list := k.allHolds(store.HoldFilter{Status: holds.Cancelled}, 10)
	if len(list) != 1 || list[0].ID != h.ID {
		k.Errorf("cancelled holds: %+v", list)
	}
	k.equal("pending holds", len(k.allHolds(store.HoldFilter{Status: holds.Pending}, 10)), 0)
	k.h.Advance(2 * time.Hour)
	k.claimNone("cancelled")
}

func cancelRefuses(k *kit) {
	h := k.held(runID(1), time.Hour)
	foreign := hold(runID(2), 1, 2, h.CreatedAt, time.Hour).Closed(holds.Cancelled, 3)
	for what, edit := range map[string]func(*store.Cancel){
		"no entry":       func(c *store.Cancel) { c.Entries = nil },
		"other entry":    func(c *store.Cancel) { c.Entries = entries(1) },
		"pending hold":   func(c *store.Cancel) { c.Hold = &h },
		"another's hold": func(c *store.Cancel) { c.Hold = &foreign },
	} {
		c := k.cancellation(runID(1), 2, &h)
		edit(&c)
		_, err := k.s.Cancel(k.ctx, c)
		k.invalid(what, err)
	}
	k.equal("hold", k.holdOf(h.ID), h)
}
