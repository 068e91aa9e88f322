package storetest

import (
	"encoding/json"
	"strings"
	"sync/atomic"
	"time"

	"agentos/holds"
	"agentos/runtime/journal"
	"agentos/runtime/store"
)

func commitCases() []Case {
	return []Case{
		{"Commit/appends_and_stamps", commitAppends},
		{"Commit/keeps_every_byte", commitBytes},
		{"Commit/running_pushes_the_lease", commitPushes},
		{"Commit/queued_hands_back", commitQueued},
		{"Commit/running_without_a_lease_is_due_later", commitParked},
		{"Commit/held_waits_with_its_hold", commitHeld},
		{"Commit/finished_is_never_due_again", commitFinished},
		{"Commit/replaces_the_summary_only_when_given", commitSummary},
		{"Commit/tells_a_cancel_request", commitCancel},
		{"Commit/of_a_stale_epoch_is_refused", commitStale},
		{"Commit/of_an_unclaimed_lapsed_lease_counts", commitLapsed},
		{"Commit/without_a_lease_is_refused", commitUnleased},
		{"Commit/leaves_no_pending_hold_behind", commitOverHold},
		{"Commit/touches_no_ended_hold", commitEndedHold},
		{"Commit/at_once_leaves_no_gap", commitAtOnce},
		{"Commit/refuses_bad_arguments", commitRefuses},
	}
}

func commitAppends(k *kit) {
	c := k.create(runID(1), ttl)
	want := []journal.Entry{c.Entry}
	for n := range 4 {
		k.h.Advance(time.Second)
		tx := running(n)
		got := k.commit(c.Lease, tx)
		if len(got.Entries) != n {
			k.Fatalf("%d entries stamped, want %d", len(got.Entries), n)
		}
		for i, e := range got.Entries {
			want = append(want, e)
			if e.Seq != int64(len(want)) || !e.At.After(c.Entry.At) || e.Type != tx.Entries[i].Type {
				k.Fatalf("entry %d is stamped %+v", len(want), e)
			}
			k.sameBytes("data", e.Data, tx.Entries[i].Data)
		}
	}
	k.equal("journal", k.journal(runID(1)), want)
	v := k.view(runID(1))
	k.equal("seq", v.Seq, int64(len(want)))
	if !v.UpdatedAt.After(v.CreatedAt) {
		k.Fatalf("created %v, updated %v", v.CreatedAt, v.UpdatedAt)
	}
}

func commitBytes(k *kit) {
	l := k.create(runID(1), ttl).Lease
	big := json.RawMessage(`["` + strings.Repeat("é🦊", 1<<18) + `",` + awkward + `]`)
	spaced := json.RawMessage("{ \"a\" :\t1.0,\n\"a b\":[ ] }")
	got := k.commit(l, store.Tx{Status: store.Running, Lease: ttl, Summary: spaced, Entries: []journal.New{
		{Type: journal.ModelAnswered, Data: big}, {Type: journal.CallStarted, Data: spaced},
	}})
	k.sameBytes("stamped", got.Entries[0].Data, big)
	k.restart()
	list := k.journal(runID(1))
	k.sameBytes("big entry", list[1].Data, big)
	k.sameBytes("entry with spaces", list[2].Data, spaced)
	k.sameBytes("summary", k.view(runID(1)).Summary, spaced)
}

func commitPushes(k *kit) {
	l := k.create(runID(1), ttl).Lease
	for range 4 {
		k.h.Advance(ttl - 30*time.Second)
		got := k.commit(l, running(1)).Lease
		if got.Epoch != l.Epoch || !got.Expires.After(l.Expires) {
			k.Fatalf("lease %+v after %+v", got, l)
		}
		l = got
		k.claimNone("working")
	}
	k.h.Advance(ttl)
	k.claimOnly(runID(1))
}

func commitQueued(k *kit) {
	l := k.create(runID(1), ttl).Lease
	got := k.commit(l, store.Tx{Status: store.Queued, Entries: entries(1)})
	k.equal("lease", got.Lease, store.Lease{})
	_, err := k.s.Commit(k.ctx, l, running(1))
	k.refused(err, store.ErrLeaseLost)
	k.claimOnly(runID(1))
}

func commitParked(k *kit) {
	l := k.create(runID(1), ttl).Lease
	tx := store.Tx{Op: "park", Status: store.Running, Due: time.Hour}
	for range 2 { // the repeat of the Op is answered alike
		k.equal("lease", k.commit(l, tx).Lease, store.Lease{})
	}
	_, err := k.s.Commit(k.ctx, l, running(1))
	k.refused(err, store.ErrLeaseLost)
	k.equal("status", k.view(runID(1)).Status, store.Running)
	k.h.Advance(time.Hour - k.nearly())
	k.claimNone("parked")
	k.h.Advance(k.nearly())
	if c := k.claimOnly(runID(1)); c.Lapsed {
		k.Fatalf("a parked run counts as one whose worker died")
	}
}

func commitHeld(k *kit) {
	h := k.held(runID(1), time.Hour)
	v := k.view(runID(1))
	k.equal("status", v.Status, store.Held)
	k.equal("hold of the view", *v.Hold, h)
	got, err := k.s.Hold(k.ctx, h.ID)
	k.ok(err)
	k.equal("hold", got.Hold, h)
	k.equal("record", got.Record, v.Record)
	k.equal("journal", got.Journal, k.journal(runID(1)))
	if got.Now.Before(got.Record.UpdatedAt) {
		k.Fatalf("now is %v, the run was updated at %v", got.Now, got.Record.UpdatedAt)
	}
	_, err = k.s.Commit(k.ctx, store.Lease{RunID: runID(1), Epoch: 1}, running(1))
	k.refused(err, store.ErrLeaseLost)
	k.claimNone("waiting for a person")
}

func commitFinished(k *kit) {
	for n, tx := range []store.Tx{
		completed(),
		{Status: store.Failed, Entries: append(entries(2), entry(journal.RunFailed, "no"))},
		{Status: store.Cancelled, Entries: []journal.New{entry(journal.RunCancelled, "ann")}},
	} {
		l := k.create(runID(n), ttl).Lease
		got := k.commit(l, tx)
		k.equal("lease", got.Lease, store.Lease{})
		v := k.view(runID(n))
		k.equal("status", v.Status, tx.Status)
		k.equal("last", v.Last, got.Entries[len(got.Entries)-1])
		_, err := k.s.Commit(k.ctx, l, running(1))
		k.refused(err, store.ErrLeaseLost)
	}
	k.h.Advance(farAhead)
	k.claimNone("all are finished")
	k.equal("runs are kept", len(k.allRuns(store.RunFilter{}, 200)), 3)
}

func commitSummary(k *kit) {
	l := k.create(runID(1), ttl).Lease
	k.commit(l, running(1))
	k.sameBytes("kept", k.view(runID(1)).Summary, []byte(`{"for":"lists"}`))
	tx := running(1)
	tx.Summary = json.RawMessage(`{"turns":2}`)
	k.commit(l, tx)
	k.sameBytes("replaced", k.view(runID(1)).Summary, tx.Summary)
}

func commitCancel(k *kit) {
	l := k.create(runID(1), ttl).Lease
	k.equal("asked by", k.commit(l, running(1)).CancelBy, "")
	_, err := k.s.Cancel(k.ctx, k.cancellation(runID(1), 2, nil))
	k.ok(err)
	k.equal("asked by", k.commit(l, running(1)).CancelBy, "ann")
	k.equal("asked by", k.view(runID(1)).CancelBy, "ann")
	k.h.Advance(2 * ttl)
	c := k.claimOnly(runID(1))
	k.equal("asked by", c.Record.CancelBy, "ann")
	k.commit(c.Lease, store.Tx{Status: store.Cancelled, Entries: []journal.New{entry(journal.RunCancelled, "ann")}})
}

// commitStale is a worker that was stopped for longer than its lease.
func commitStale(k *kit) {
	old := k.create(runID(1), ttl).Lease
	k.h.Advance(2 * ttl)
	c := k.claimOnly(runID(1))
	refuse := func(when string) {
		k.Helper()
		before := k.view(runID(1))
		for _, tx := range []store.Tx{running(1), completed(), {Status: store.Queued, Op: k.op()}} {
			_, err := k.s.Commit(k.ctx, old, tx)
			k.refused(err, store.ErrLeaseLost)
		}
		k.equal("the run "+when, k.view(runID(1)), before)
	}
	refuse("after the claim")
	k.commit(c.Lease, running(2))
	refuse("after a commit of the other")
	k.finish(c.Lease)
	refuse("after the end")
	k.types(runID(1), journal.RunCreated, journal.ModelAnswered, journal.ModelAnswered, journal.RunCompleted)
}

func commitLapsed(k *kit) {
	l := k.create(runID(1), ttl).Lease
	k.h.Advance(5 * ttl)
	got := k.commit(l, running(1))
	if got.Lease.Epoch != l.Epoch {
		k.Fatalf("lease %+v", got.Lease)
	}
	k.claimNone("working again")
}

func commitUnleased(k *kit) {
	k.create(runID(1), 0)
	for _, l := range []store.Lease{{RunID: runID(1)}, {RunID: runID(1), Epoch: 1}, {RunID: runID(2), Epoch: 1}} {
		_, err := k.s.Commit(k.ctx, l, running(1))
		k.refused(err, store.ErrLeaseLost)
	}
	// Decided and left to others: the epoch is that of the worker which opened
	// the hold, the lease is not.
	h := k.held(runID(3), time.Hour)
	_, err := k.s.Decide(k.ctx, k.decision(h, true, 0))
	k.ok(err)
	_, err = k.s.Commit(k.ctx, store.Lease{RunID: runID(3), Epoch: 1}, running(1))
	k.refused(err, store.ErrLeaseLost)
	k.equal("claimed", claimedIDs(k.claim(9)), []string{runID(1), runID(3)})
}

func commitOverHold(k *kit) {
	h := k.held(runID(1), time.Hour)
	k.h.Advance(time.Hour)
	c := k.claimOnly(runID(1))
	other := hold(runID(1), 2, 3, h.CreatedAt, 2*time.Hour)
	closedOther := other.Closed(holds.Expired, 3)
	for what, tx := range map[string]store.Tx{
		"running":                         running(1),
		"completed":                       completed(),
		"queued":                          {Status: store.Queued},
		"another hold":                    {Status: store.Held, Hold: &other, Entries: entries(1)},
		"closing one that was never open": {Status: store.Running, Lease: ttl, Hold: &closedOther, Entries: entries(1)},
	} {
		_, err := k.s.Commit(k.ctx, c.Lease, tx)
		k.invalid(what, err)
	}
	k.commit(c.Lease, store.Tx{Status: store.Held, Hold: &h}) // handed back as it was
	again := k.claimOnly(runID(1))
	k.equal("hold", *again.Hold, h)
}

func commitEndedHold(k *kit) {
	h := k.held(runID(1), time.Hour)
	d := k.decision(h, true, ttl)
	l := k.decide(d).Lease
	expired := h.Closed(holds.Expired, 9)
	_, err := k.s.Commit(k.ctx, l, store.Tx{Status: store.Running, Lease: ttl, Hold: &expired, Entries: entries(1)})
	k.invalid("closing a decided hold", err)
	_, err = k.s.Commit(k.ctx, l, store.Tx{Status: store.Held, Hold: &h, Entries: entries(1)})
	k.invalid("opening a decided hold", err)
	never := hold(runID(1), 2, 9, h.CreatedAt, time.Hour).Closed(holds.Expired, 9)
	_, err = k.s.Commit(k.ctx, l, store.Tx{Status: store.Running, Lease: ttl, Hold: &never, Entries: entries(1)})
	k.invalid("closing a hold that was never opened", err)
	k.equal("hold", k.holdOf(h.ID), d.Hold)
	k.equal("entries", len(k.journal(runID(1))), 4)
	k.commit(l, running(1))
}

func commitAtOnce(k *kit) {
	const runs, commits = 6, 20
	var failed atomic.Int64
	together(runs*2, func(i int) {
		id := runID(i % runs)
		c, err := k.s.Create(k.ctx, k.creation(id, ttl))
		if err != nil || c.Existing {
			return // the other one works on it
		}
		for range commits {
			tx := running(3)
			tx.Op = k.op()
			if _, err := k.s.Commit(k.ctx, c.Lease, tx); err != nil {
				failed.Add(1)
				k.Errorf("commit to %s: %v", id, err)
			}
		}
	})
	for n := range runs {
		k.equal("entries", len(k.journal(runID(n))), 1+3*commits)
	}
}

func commitRefuses(k *kit) {
	l := k.create(runID(1), ttl).Lease
	before := k.view(runID(1))
	pending := hold(runID(1), 1, 2, before.CreatedAt, time.Hour)
	closed := pending.Closed(holds.Expired, 2)
	foreign := hold(runID(2), 1, 2, before.CreatedAt, time.Hour)
	last := entry(journal.RunCompleted, "x")
	for what, tx := range map[string]store.Tx{
		"no status":                   {Lease: ttl},
		"unknown status":              {Status: "odd", Lease: ttl},
		"running without lease":       {Status: store.Running, Entries: entries(1)},
		"held without hold":           {Status: store.Held, Entries: entries(1)},
		"held with a closed hold":     {Status: store.Held, Hold: &closed},
		"held with another's hold":    {Status: store.Held, Hold: &foreign},
		"running with a pending hold": {Status: store.Running, Lease: ttl, Hold: &pending},
		"finished without entry":      {Status: store.Completed},
		"finished with another entry": {Status: store.Completed, Entries: entries(1)},
		"failed with completed":       {Status: store.Failed, Entries: []journal.New{last}},
		"a last entry that is not":    {Status: store.Running, Lease: ttl, Entries: []journal.New{last}},
		"an entry after the last":     {Status: store.Completed, Entries: []journal.New{last, entries(1)[0]}},
		"two last entries":            {Status: store.Completed, Entries: []journal.New{last, last}},
		"negative due":                {Status: store.Queued, Due: -time.Second},
		"entry without type":          {Status: store.Running, Lease: ttl, Entries: []journal.New{{Data: json.RawMessage(`1`)}}},
	} {
		_, err := k.s.Commit(k.ctx, l, tx)
		k.invalid(what, err)
	}
	k.equal("the run", k.view(runID(1)), before)
}
