package storetest

import (
	"encoding/json"
	"time"

	"agentos/holds"
	"agentos/runtime/journal"
	"agentos/runtime/store"
)

func decideCases() []Case {
	return []Case{
		{"Decide/part_keeps_the_run_held", decidePart},
		{"Decide/all_leases_the_run", decideLeased},
		{"Decide/all_without_lease_leaves_it_due", decideDue},
		{"Decide/cancelled_leaves_the_run_due", decideCancelled},
		{"Decide/keeps_every_byte", decideBytes},
		{"Decide/on_another_revision_conflicts", decideRevision},
		{"Decide/of_a_closed_hold_conflicts", decideClosed},
		{"Decide/of_an_unknown_hold", decideUnknown},
		{"Decide/just_before_expiry", decideBefore},
		{"Decide/at_and_after_expiry", decideAfter},
		{"Decide/an_earlier_hold_stays_decided", decideEarlier},
		{"Decide/refuses_bad_arguments", decideRefuses},
	}
}

func (k *kit) decide(d store.Decide) store.Decided {
	k.Helper()
	got, err := k.s.Decide(k.ctx, d)
	k.ok(err)
	return got
}

func decidePart(k *kit) {
	h := k.held(runID(1), time.Hour)
	d := k.decision(h, false, ttl)
	d.Summary = json.RawMessage(`{"decided":1}`)
	got := k.decide(d)
	if got.Record.Status != store.Held || got.Record.HoldID != h.ID || got.Record.Seq != 3 || got.Entries[0].Seq != 3 {
		k.Fatalf("answer %+v", got)
	}
	k.equal("lease", got.Lease, store.Lease{})
	k.equal("hold", k.holdOf(h.ID), d.Hold)
	k.sameBytes("summary", k.view(runID(1)).Summary, d.Summary)
	k.claimNone("still held")
	got = k.decide(k.decision(d.Hold, true, ttl))
	k.equal("status", got.Record.Status, store.Running)
	k.sameBytes("summary kept", got.Record.Summary, d.Summary)
}

func decideLeased(k *kit) {
	h := k.held(runID(1), time.Hour)
	d := k.decision(h, true, ttl)
	got := k.decide(d)
	if got.Record.Status != store.Running || got.Record.HoldID != "" || got.Record.Epoch != 2 || got.Lease.Epoch != 2 || len(got.Entries) != 2 {
		k.Fatalf("answer %+v", got)
	}
	k.equal("record", k.view(runID(1)).Record, got.Record)
	k.equal("hold", k.holdOf(h.ID), d.Hold)
	k.claimNone("leased")
	k.commit(got.Lease, running(1))
	k.h.Advance(2 * ttl)
	if c := k.claimOnly(runID(1)); !c.Lapsed || c.Hold != nil {
		k.Fatalf("claimed %+v", c)
	}
}

func decideDue(k *kit) {
	h := k.held(runID(1), time.Hour)
	got := k.decide(k.decision(h, true, 0))
	k.equal("lease", got.Lease, store.Lease{})
	k.equal("status", got.Record.Status, store.Running)
	c := k.claimOnly(runID(1))
	if c.Lapsed || c.Hold != nil || c.Record.Status != store.Running || c.Record.Idle != 1 {
		k.Fatalf("claimed %+v", c)
	}
	k.equal("entries", len(c.Journal), 4)
}

func decideCancelled(k *kit) {
	h := k.held(runID(1), time.Hour)
	d := k.decision(h, false, 0)
	d.Hold = h.Closed(holds.Cancelled, h.Revision+1)
	got := k.decide(d)
	if got.Record.Status != store.Running || got.Record.HoldID != "" {
		k.Fatalf("answer %+v", got)
	}
	k.equal("hold", k.holdOf(h.ID), d.Hold)
	k.equal("list", k.allHolds(store.HoldFilter{Status: holds.Cancelled}, 10), []holds.Hold{d.Hold})
	if c := k.claimOnly(runID(1)); c.Hold != nil || c.Record.Status != store.Running {
		k.Fatalf("claimed %+v", c)
	}
}

func decideBytes(k *kit) {
	h := k.held(runID(1), time.Hour)
	d := k.decision(h, false, 0)
	d.Hold.Items[0].Decision = &holds.Decision{Action: holds.Edit, By: "ann ✓", Reason: "<because> &", Data: json.RawMessage(awkward), At: h.CreatedAt}
	d.Hold.Items[0].Changed = &holds.Change{OldDigest: "sha256:1", OldSchema: json.RawMessage(`{"maximum":1e2}`)}
	d.Hold.Requests = []holds.Request{{Key: "key \"1\"", Digest: "sha256:2"}}
	d.Entries[0].Data = json.RawMessage(awkward)
	k.decide(d)
	k.restart()
	got := k.holdOf(h.ID)
	k.equal("hold", got, d.Hold)
	k.sameBytes("arguments", got.Items[0].Data, []byte(awkward))
	k.sameBytes("edit", got.Items[0].Decision.Data, []byte(awkward))
	k.sameBytes("entry", k.journal(runID(1))[2].Data, []byte(awkward))
	k.equal("hold of the view", *k.view(runID(1)).Hold, d.Hold)
	k.equal("hold of the list", k.allHolds(store.HoldFilter{}, 10), []holds.Hold{d.Hold})
}

func decideRevision(k *kit) {
	h := k.held(runID(1), time.Hour)
	first := k.decision(h, false, 0)
	k.decide(first)
	for _, seen := range []int64{h.Revision, h.Revision - 1, first.Hold.Revision + 1} {
		d := k.decision(h, true, ttl)
		d.Seen, d.Hold.Revision = seen, seen+5
		_, err := k.s.Decide(k.ctx, d)
		k.refused(err, store.ErrConflict)
	}
	k.equal("hold", k.holdOf(h.ID), first.Hold)
	k.types(runID(1), journal.RunCreated, journal.HoldOpened, journal.HoldDecided)
}

func decideClosed(k *kit) {
	decided := k.held(runID(1), time.Hour)
	d := k.decision(decided, true, ttl)
	k.decide(d)
	cancelled := k.held(runID(2), time.Hour)
	c := k.cancellation(runID(2), 2, &cancelled)
	_, err := k.s.Cancel(k.ctx, c)
	k.ok(err)
	for _, closed := range []holds.Hold{d.Hold, *c.Hold} {
		try := k.decision(closed, true, ttl)
		try.Hold.Status = holds.Decided
		_, err := k.s.Decide(k.ctx, try)
		k.refused(err, store.ErrConflict)
		k.equal("hold", k.holdOf(closed.ID), closed)
	}
}

func decideUnknown(k *kit) {
	h := k.held(runID(1), time.Hour)
	for _, id := range []string{store.HoldID(runID(1), 2), store.HoldID(runID(2), 1), "h_", "x", "r_1", "h_*_1", ""} {
		d := k.decision(h, true, ttl)
		d.Hold.ID = id
		_, err := k.s.Decide(k.ctx, d)
		k.refused(err, store.ErrNotFound)
		_, err = k.s.Hold(k.ctx, id)
		k.refused(err, store.ErrNotFound)
	}
}

func decideBefore(k *kit) {
	h := k.held(runID(1), time.Hour)
	k.h.Advance(time.Hour - k.nearly())
	k.claimNone("not expired")
	k.decide(k.decision(h, true, ttl))
	k.h.Advance(k.nearly())
	k.claimNone("decided and leased")
}

func decideAfter(k *kit) {
	for n, late := range []time.Duration{0, time.Millisecond, time.Hour} {
		h := k.held(runID(n), time.Hour)
		k.h.Advance(time.Hour + late)
		for _, all := range []bool{true, false} {
			_, err := k.s.Decide(k.ctx, k.decision(h, all, ttl))
			k.refused(err, store.ErrConflict)
		}
		k.equal("hold", k.holdOf(h.ID), h)
		c := k.claimOnly(runID(n))
		closed := h.Closed(holds.Expired, 3)
		k.commit(c.Lease, store.Tx{Status: store.Failed, Hold: &closed, Entries: []journal.New{entry(journal.RunFailed, "expired")}})
	}
}

// decideEarlier holds a run twice: what was decided on the first hold must not
// leak into the second.
func decideEarlier(k *kit) {
	first := k.held(runID(1), time.Hour)
	d := k.decision(first, true, ttl)
	l := k.decide(d).Lease
	second := hold(runID(1), 2, 5, first.CreatedAt, 2*time.Hour)
	k.commit(l, store.Tx{Status: store.Held, Hold: &second, Entries: entries(1)})
	v := k.view(runID(1))
	k.equal("pending hold", *v.Hold, second)
	k.equal("first hold", k.holdOf(first.ID), d.Hold)
	old := k.decision(first, true, ttl)
	old.Seen, old.Hold.Revision = second.Revision, second.Revision+1
	_, err := k.s.Decide(k.ctx, old)
	k.refused(err, store.ErrConflict)
	k.decide(k.decision(second, true, ttl))
	k.equal("holds", len(k.allHolds(store.HoldFilter{Status: holds.Decided}, 10)), 2)
}

func decideRefuses(k *kit) {
	h := k.held(runID(1), time.Hour)
	before := k.view(runID(1))
	for what, edit := range map[string]func(*store.Decide){
		"closed otherwise": func(d *store.Decide) { d.Hold.Status = holds.Expired },
		"same revision":    func(d *store.Decide) { d.Hold.Revision = d.Seen },
		"no entry":         func(d *store.Decide) { d.Entries = nil },
		"a last entry":     func(d *store.Decide) { d.Entries = []journal.New{entry(journal.RunCompleted, "x")} },
		"negative lease":   func(d *store.Decide) { d.Lease = -1 },
	} {
		d := k.decision(h, true, ttl)
		edit(&d)
		_, err := k.s.Decide(k.ctx, d)
		k.invalid(what, err)
	}
	k.equal("run", k.view(runID(1)), before)
}
