package storetest

import (
	"time"

	"agentos/holds"
	"agentos/runtime/journal"
	"agentos/runtime/store"
)

// replayCases repeat operations whose answer was lost: same Op, same answer, and
// nothing written twice.
func replayCases() []Case {
	return []Case{
		{"Replay/create", replayCreate},
		{"Replay/create_after_others_took_the_run", replayCreateLate},
		{"Replay/commit", replayCommit},
		{"Replay/commit_after_the_lease_was_taken", replayCommitLost},
		{"Replay/commit_that_gave_the_run_away", replayCommitGiven},
		{"Replay/commit_after_a_renewal", replayCommitRenewed},
		{"Replay/commit_after_a_cancel_request", replayCommitCancel},
		{"Replay/decide", replayDecide},
		{"Replay/decide_after_others_took_the_run", replayDecideLate},
		{"Replay/decide_after_another_decision", replayDecideOther},
		{"Replay/cancel", replayCancel},
		{"Replay/survives_a_restart", replayRestart},
		{"Replay/no_op_is_no_repeat", replayNoOp},
	}
}

func replayCreate(k *kit) {
	for n, lease := range []time.Duration{0, ttl} {
		c := k.creation(runID(n), lease)
		first := k.createAs(c)
		for range 3 {
			k.equal("answer", k.createAs(c), first)
		}
		k.types(c.RunID, journal.RunCreated)
	}
	k.claimOnly(runID(0))
}

func replayCreateLate(k *kit) {
	c := k.creation(runID(1), ttl)
	first := k.createAs(c)
	k.h.Advance(2 * ttl)
	k.claimOnly(runID(1))
	again := k.createAs(c)
	if !again.Existing || again.Lease != (store.Lease{}) {
		k.Fatalf("another has the run, the answer is %+v", again)
	}
	k.equal("entry", again.Entry, first.Entry)
	k.types(runID(1), journal.RunCreated)
}

func replayCommit(k *kit) {
	at := k.create(runID(100), 0).Entry.At
	pending := hold(runID(2), 1, 3, at, time.Hour)
	for n, tx := range []store.Tx{
		running(2),
		{Status: store.Running, Lease: ttl},
		{Status: store.Held, Hold: &pending, Entries: entries(1)},
		{Status: store.Queued, Due: time.Hour, Entries: entries(1)},
		completed(),
		{Status: store.Failed, Entries: []journal.New{entry(journal.RunFailed, "no")}},
	} {
		l := k.create(runID(n), ttl).Lease
		k.commit(l, running(1))
		tx.Op = k.op()
		first := k.commit(l, tx)
		before := k.view(runID(n))
		for range 3 {
			got, err := k.s.Commit(k.ctx, l, tx)
			k.ok(err)
			k.equal("answer", got.Entries, first.Entries)
			k.equal("lease", got.Lease.Epoch, first.Lease.Epoch)
		}
		k.equal("run", k.view(runID(n)), before)
		k.equal("entries", len(k.journal(runID(n))), 2+len(tx.Entries))
	}
}

// replayCommitLost is the dangerous one: were the repeat answered like the first,
// a worker would go on with a run that another one has.
func replayCommitLost(k *kit) {
	l := k.create(runID(1), ttl).Lease
	tx := running(1)
	tx.Op = k.op()
	k.commit(l, tx)
	k.h.Advance(2 * ttl)
	c := k.claimOnly(runID(1))
	_, err := k.s.Commit(k.ctx, l, tx)
	k.refused(err, store.ErrLeaseLost)
	k.commit(c.Lease, running(1))
	_, err = k.s.Commit(k.ctx, l, tx)
	k.refused(err, store.ErrLeaseLost)
	k.equal("entries", len(k.journal(runID(1))), 3)
}

func replayCommitGiven(k *kit) {
	l := k.create(runID(1), ttl).Lease
	tx := store.Tx{Op: k.op(), Status: store.Queued, Entries: entries(2)}
	first := k.commit(l, tx)
	c := k.claimOnly(runID(1))
	got, err := k.s.Commit(k.ctx, l, tx)
	k.ok(err)
	k.equal("answer", got, first)
	k.equal("entries", len(k.journal(runID(1))), 3)
	k.commit(c.Lease, running(1))
	_, err = k.s.Commit(k.ctx, l, tx)
	k.refused(err, store.ErrLeaseLost)
}

func replayCommitRenewed(k *kit) {
	l := k.create(runID(1), ttl).Lease
	tx := running(1)
	tx.Op = k.op()
	k.commit(l, tx)
	k.h.Advance(30 * time.Second)
	end := k.renew(l)[0].Lease.Expires
	got, err := k.s.Commit(k.ctx, l, tx)
	k.ok(err)
	if got.Lease.Expires.Before(end) {
		k.Fatalf("the repeat shortened the lease from %v to %v", end, got.Lease.Expires)
	}
	k.equal("entries", len(k.journal(runID(1))), 2)
}

func replayCommitCancel(k *kit) {
	l := k.create(runID(1), ttl).Lease
	tx := running(1)
	tx.Op = k.op()
	k.commit(l, tx)
	requested, err := k.s.Cancel(k.ctx, k.cancellation(runID(1), 2, nil))
	k.ok(err)
	got, err := k.s.Commit(k.ctx, l, tx)
	k.ok(err)
	if !requested || got.CancelBy != "ann" {
		k.Fatalf("requested %t, the repeat tells %q", requested, got.CancelBy)
	}
	k.equal("entries", len(k.journal(runID(1))), 2)
}

func replayDecide(k *kit) {
	for n, d := range []struct {
		all   bool
		lease time.Duration
	}{{false, ttl}, {true, 0}, {true, ttl}} {
		h := k.held(runID(n), time.Hour)
		decision := k.decision(h, d.all, d.lease)
		first, err := k.s.Decide(k.ctx, decision)
		k.ok(err)
		for range 3 {
			got, err := k.s.Decide(k.ctx, decision)
			k.ok(err)
			k.equal("answer", got, first)
		}
		k.equal("entries", len(k.journal(runID(n))), 2+len(decision.Entries))
	}
}

func replayDecideLate(k *kit) {
	h := k.held(runID(1), time.Hour)
	d := k.decision(h, true, ttl)
	first, err := k.s.Decide(k.ctx, d)
	k.ok(err)
	k.h.Advance(2 * ttl)
	c := k.claimOnly(runID(1))
	got, err := k.s.Decide(k.ctx, d)
	k.ok(err)
	k.equal("entries", got.Entries, first.Entries)
	k.equal("lease", got.Lease, store.Lease{})
	k.commit(c.Lease, running(1))
	_, err = k.s.Decide(k.ctx, d)
	k.refused(err, store.ErrConflict)
}

func replayDecideOther(k *kit) {
	h := k.held(runID(1), time.Hour)
	one := k.decision(h, false, 0)
	_, err := k.s.Decide(k.ctx, one)
	k.ok(err)
	_, err = k.s.Decide(k.ctx, k.decision(one.Hold, true, 0))
	k.ok(err)
	_, err = k.s.Decide(k.ctx, one)
	k.refused(err, store.ErrConflict)
	k.types(runID(1), journal.RunCreated, journal.HoldOpened, journal.HoldDecided, journal.HoldDecided, journal.HoldClosed)
}

func replayCancel(k *kit) {
	h := k.held(runID(1), time.Hour)
	k.create(runID(2), 0)
	l := k.create(runID(3), ttl).Lease
	for _, c := range []store.Cancel{k.cancellation(runID(1), 2, &h), k.cancellation(runID(2), 1, nil), k.cancellation(runID(3), 1, nil)} {
		first, err := k.s.Cancel(k.ctx, c)
		k.ok(err)
		for range 3 {
			requested, err := k.s.Cancel(k.ctx, c)
			k.ok(err)
			k.equal("requested", requested, first)
		}
	}
	k.types(runID(1), journal.RunCreated, journal.HoldOpened, journal.RunCancelled)
	k.types(runID(2), journal.RunCreated, journal.RunCancelled)
	k.equal("hold", k.holdOf(h.ID).Status, holds.Cancelled)
	k.commit(l, running(1)) // only asked
}

func replayRestart(k *kit) {
	c := k.creation(runID(1), ttl)
	made := k.createAs(c)
	k.restart()
	k.equal("create", k.createAs(c), made)
	tx := running(2)
	tx.Op = k.op()
	first := k.commit(made.Lease, tx)
	k.restart()
	got, err := k.s.Commit(k.ctx, made.Lease, tx)
	k.ok(err)
	k.equal("commit", got, first)
	h := hold(runID(1), 1, 4, made.Entry.At, time.Hour)
	k.commit(made.Lease, store.Tx{Status: store.Held, Hold: &h, Entries: entries(1)})
	d := k.decision(h, true, ttl)
	decided, err := k.s.Decide(k.ctx, d)
	k.ok(err)
	k.restart()
	again, err := k.s.Decide(k.ctx, d)
	k.ok(err)
	k.equal("decide", again, decided)
}

func replayNoOp(k *kit) {
	c := k.creation(runID(1), ttl)
	c.Op = ""
	l := k.createAs(c).Lease
	for range 3 {
		_, err := k.s.Commit(k.ctx, l, running(1))
		k.ok(err)
	}
	k.equal("entries", len(k.journal(runID(1))), 4)
	if again := k.createAs(c); !again.Existing {
		k.Fatalf("created again: %+v", again)
	}
}
