package storetest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"agentos/holds"
	"agentos/runtime/journal"
	"agentos/runtime/store"
)

func claimCases() []Case {
	return []Case{
		{"Claim/oldest_first_and_at_most_n", claimOrder},
		{"Claim/gives_each_run_to_one_worker", claimRace},
		{"Claim/queued_for_later_waits", claimLater},
		{"Claim/counts_what_led_to_nothing", claimIdle},
		{"Claim/tells_a_lapsed_lease", claimLapsed},
		{"Claim/takes_an_expired_hold", claimHold},
		{"Claim/of_an_expired_hold_can_be_repeated", claimHoldAgain},
		{"Claim/brings_the_whole_journal", claimJournal},
		{"Claim/damaged_blocks_no_other", claimDamaged},
		{"Claim/damaged_and_held_can_fail", claimDamagedHold},
		{"Claim/damaged_record_blocks_no_other", claimRuined},
		{"Claim/damaged_index_takes_no_hold_early", claimHasty},
		{"Claim/refuses_bad_arguments", claimRefuses},
	}
}

func claimOrder(k *kit) {
	for _, n := range []int{3, 1, 5, 2, 4} {
		k.create(runID(n), 0)
		k.h.Advance(time.Second)
	}
	k.equal("none", len(k.claim(0)), 0)
	k.equal("first", claimedIDs(k.claim(2)), []string{runID(3), runID(1)})
	k.equal("second", claimedIDs(k.claim(2)), []string{runID(5), runID(2)})
	k.equal("third", claimedIDs(k.claim(2)), []string{runID(4)})
	k.claimNone("all are taken")
}

func claimRace(k *kit) {
	const runs = 60
	for n := range runs {
		k.create(runID(n), 0)
	}
	var mu sync.Mutex
	taken := map[string]int{}
	handles := k.handles()
	together(8, func(i int) {
		for {
			got, err := handles[i%2].Claim(k.ctx, 1+i%4, ttl)
			if err != nil {
				k.Errorf("claim: %v", err)
				return
			}
			if len(got) == 0 {
				return
			}
			mu.Lock()
			for _, c := range got {
				taken[c.Record.ID]++
				if c.Lease.Epoch != 1 {
					k.Errorf("run %s has epoch %d", c.Record.ID, c.Lease.Epoch)
				}
			}
			mu.Unlock()
		}
	})
	for id, n := range taken {
		if n != 1 {
			k.Errorf("run %s was taken %d times", id, n)
		}
	}
	k.equal("runs taken", len(taken), runs)
}

func claimLater(k *kit) {
	l := k.create(runID(1), ttl).Lease
	k.commit(l, store.Tx{Status: store.Queued, Due: time.Hour})
	k.equal("status", k.view(runID(1)).Status, store.Queued)
	k.claimNone("not due yet")
	k.h.Advance(time.Hour - k.nearly())
	k.claimNone("nearly due")
	k.h.Advance(k.nearly())
	if c := k.claimOnly(runID(1)); c.Lapsed || c.Record.Status != store.Running {
		k.Fatalf("claimed %+v", c)
	}
}

func claimIdle(k *kit) {
	k.create(runID(1), 0)
	for n := 1; n <= 3; n++ {
		c := k.claimOnly(runID(1))
		if c.Record.Idle != n || c.Record.Epoch != int64(n) || c.Lease.Epoch != int64(n) {
			k.Fatalf("claim %d: idle %d, epoch %d, lease %d", n, c.Record.Idle, c.Record.Epoch, c.Lease.Epoch)
		}
		if n == 2 { // a commit without entries is no progress
			k.commit(c.Lease, store.Tx{Status: store.Running, Lease: ttl})
		}
		k.h.Advance(2 * ttl)
	}
	c := k.claimOnly(runID(1))
	k.commit(c.Lease, running(1))
	k.equal("idle after an entry", k.view(runID(1)).Idle, 0)
	k.h.Advance(2 * ttl)
	c = k.claimOnly(runID(1))
	k.equal("idle after the next claim", c.Record.Idle, 1)
	k.commit(c.Lease, store.Tx{Status: store.Queued}) // given back: its worker lives
	c = k.claimOnly(runID(1))
	k.equal("idle after it was given back", c.Record.Idle, 1)
}

func claimLapsed(k *kit) {
	l := k.create(runID(1), ttl).Lease
	k.h.Advance(ttl + time.Second)
	c := k.claimOnly(runID(1))
	if !c.Lapsed {
		k.Fatalf("a lease ran out, the claim does not say so")
	}
	k.commit(c.Lease, store.Tx{Status: store.Queued})
	if c = k.claimOnly(runID(1)); c.Lapsed {
		k.Fatalf("the run was handed back, the claim says its lease lapsed")
	}
	if c.Lease.Epoch <= l.Epoch+1 {
		k.Fatalf("epoch %d was used before", c.Lease.Epoch)
	}
}

func claimHold(k *kit) {
	h := k.held(runID(1), time.Hour)
	k.claimNone("the hold is open")
	k.h.Advance(time.Hour - k.nearly())
	k.claimNone("the hold is open still")
	k.h.Advance(k.nearly())
	c := k.claimOnly(runID(1))
	if c.Lapsed || c.Hold == nil || c.Record.Status != store.Held || c.Record.HoldID != h.ID {
		k.Fatalf("claimed %+v", c)
	}
	k.equal("hold", *c.Hold, h)
	closed := h.Closed(holds.Expired, 3)
	k.commit(c.Lease, store.Tx{Status: store.Running, Lease: ttl, Hold: &closed, Entries: []journal.New{entry(journal.HoldClosed, "expired")}})
	k.equal("hold", k.holdOf(h.ID), closed)
	k.equal("status", k.view(runID(1)).Status, store.Running)
}

func claimHoldAgain(k *kit) {
	h := k.held(runID(1), time.Hour)
	k.h.Advance(time.Hour)
	k.claimOnly(runID(1))
	k.claimNone("taken")
	k.h.Advance(2 * ttl) // the worker dies before it has closed the hold
	c := k.claimOnly(runID(1))
	if !c.Lapsed || c.Hold == nil || c.Record.Idle != 2 {
		k.Fatalf("claimed %+v", c)
	}
	closed := h.Closed(holds.Expired, 4)
	k.commit(c.Lease, store.Tx{Status: store.Failed, Hold: &closed, Entries: []journal.New{
		entry(journal.HoldClosed, "expired"), entry(journal.RunFailed, "expired"),
	}})
	k.equal("hold", k.holdOf(h.ID), closed)
}

func claimJournal(k *kit) {
	l := k.create(runID(1), ttl).Lease
	for range 20 {
		l = k.commit(l, running(15)).Lease
	}
	want := k.journal(runID(1))
	k.equal("entries", len(want), 301)
	k.h.Advance(2 * ttl)
	k.equal("journal", k.claimOnly(runID(1)).Journal, want)
}

func claimDamagedHold(k *kit) {
	h := k.held(runID(1), time.Hour)
	k.h.Damage(runID(1))
	k.damaged[runID(1)] = true
	k.h.Advance(time.Hour)
	c := k.claimOnly(runID(1))
	if len(c.Journal) != 0 || c.Hold == nil {
		k.Fatalf("claimed %+v", c)
	}
	closed := h.Closed(holds.Expired, c.Record.Seq+1)
	k.commit(c.Lease, store.Tx{Status: store.Failed, Hold: &closed, Entries: []journal.New{entry(journal.RunFailed, "damaged")}})
	k.equal("status", k.view(runID(1)).Status, store.Failed)
	k.h.Advance(time.Hour)
	k.claimNone("failed")
}

func claimDamaged(k *kit) {
	for n := range 3 {
		k.create(runID(n), 0)
		k.h.Advance(time.Second)
	}
	k.h.Damage(runID(1))
	k.damaged[runID(1)] = true
	got := k.claim(10)
	k.equal("claimed", claimedIDs(got), []string{runID(0), runID(1), runID(2)})
	for i, c := range got {
		if (len(c.Journal) == 0) != (i == 1) {
			k.Errorf("run %s comes with %d entries", c.Record.ID, len(c.Journal))
		}
	}
	out := k.commit(got[1].Lease, store.Tx{Status: store.Failed, Entries: []journal.New{entry(journal.RunFailed, "damaged")}})
	k.equal("place of the last entry", out.Entries[0].Seq, got[1].Record.Seq+1)
	v := k.view(runID(1))
	k.equal("status", v.Status, store.Failed)
	k.equal("last", v.Last.Type, journal.RunFailed)
	_, err := k.s.Journal(k.ctx, runID(1), 0)
	k.refused(err, store.ErrDamaged)
}

// A run that cannot be read stops nobody, gets an error of its own from every
// operation, and goes on where it was once it can be read again.
func claimRuined(k *kit) {
	h := k.held(runID(1), time.Hour)
	k.create(runID(2), 0)
	k.h.Ruin(runID(1))
	k.h.Advance(time.Hour)
	k.create(runID(3), 0)
	got := claimedIDs(k.claim(10))
	slices.Sort(got)
	k.equal("claimed", got, []string{runID(2), runID(3)})
	k.claimNone("it is set aside")

	health, err := k.s.Health(k.ctx)
	k.ok(err)
	if !slices.ContainsFunc(health.Warnings, func(w string) bool { return strings.Contains(w, runID(1)) }) {
		k.Errorf("the store does not warn of the run: %v", health.Warnings)
	}
	for what, do := range map[string]func() error{
		"run":     func() error { _, err := k.s.Run(k.ctx, runID(1)); return err },
		"journal": func() error { _, err := k.s.Journal(k.ctx, runID(1), 0); return err },
		"hold":    func() error { _, err := k.s.Hold(k.ctx, h.ID); return err },
		"create":  func() error { _, err := k.s.Create(k.ctx, k.creation(runID(1), ttl)); return err },
		"decide":  func() error { _, err := k.s.Decide(k.ctx, k.decision(h, true, ttl)); return err },
		"cancel":  func() error { _, err := k.s.Cancel(k.ctx, k.cancellation(runID(1), 2, &h)); return err },
		"commit": func() error {
			_, err := k.s.Commit(k.ctx, store.Lease{RunID: runID(1), Epoch: 1}, running(1))
			return err
		},
	} {
		if err := do(); !errors.Is(err, store.ErrDamaged) {
			k.Errorf("%s: %v, want %v", what, err, store.ErrDamaged)
		}
	}
	if r := k.renew(store.Lease{RunID: runID(1), Epoch: 1})[0]; !r.Lost {
		k.Errorf("a lease of the run was renewed")
	}
	var listed []string
	for _, v := range k.allRuns(store.RunFilter{}, 1) {
		listed = append(listed, v.ID)
	}
	slices.Sort(listed)
	k.equal("list", listed, []string{runID(2), runID(3)})
	k.allHolds(store.HoldFilter{OpenedBefore: time.Now().Add(farAhead)}, 1)

	k.h.Mend(runID(1))
	k.h.Advance(time.Hour)
	c := k.claim(10)
	i := slices.IndexFunc(c, func(c store.Claimed) bool { return c.Record.ID == runID(1) })
	if i < 0 || c[i].Hold == nil || len(c[i].Journal) != 2 {
		k.Fatalf("claimed %+v", c)
	}
	health, err = k.s.Health(k.ctx)
	k.ok(err)
	if slices.ContainsFunc(health.Warnings, func(w string) bool { return strings.Contains(w, runID(1)) }) {
		k.Errorf("the store warns of a run that goes on: %v", health.Warnings)
	}
}

func claimHasty(k *kit) {
	h := k.held(runID(1), time.Hour)
	k.h.Hasten(runID(1))
	k.claimNone("the hold is open")
	k.equal("hold", k.holdOf(h.ID).Status, holds.Pending)
	k.h.Advance(time.Hour - k.nearly())
	k.claimNone("the hold is open still")
	k.h.Advance(k.nearly())
	if c := k.claimOnly(runID(1)); c.Hold == nil {
		k.Fatalf("claimed %+v", c)
	}
}

func claimRefuses(k *kit) {
	k.create(runID(1), 0)
	_, err := k.s.Claim(k.ctx, 1, 0)
	k.invalid("claim for no time", err)
	k.equal("epoch", k.view(runID(1)).Epoch, int64(0))
}

func renewCases() []Case {
	return []Case{
		{"Renew/pushes_the_end", renewPushes},
		{"Renew/answers_each_lease_in_order", renewEach},
		{"Renew/of_an_unclaimed_lapsed_lease_works", renewLapsed},
		{"Renew/tells_a_cancel_request", renewCancel},
		{"Renew/refuses_bad_arguments", renewRefuses},
	}
}

func (k *kit) renew(leases ...store.Lease) []store.Renewal {
	k.Helper()
	got, err := k.s.Renew(k.ctx, leases, ttl)
	k.ok(err)
	if len(got) != len(leases) {
		k.Fatalf("%d renewals for %d leases", len(got), len(leases))
	}
	return got
}

func renewPushes(k *kit) {
	l := k.create(runID(1), ttl).Lease
	for range 5 {
		k.h.Advance(ttl - 30*time.Second)
		r := k.renew(l)[0]
		if r.Lost || r.Lease.Epoch != l.Epoch || r.Lease.RunID != l.RunID || !r.Lease.Expires.After(l.Expires) {
			k.Fatalf("renewal %+v of %+v", r, l)
		}
		l = r.Lease
		k.claimNone("renewed")
	}
	k.equal("epoch", k.view(runID(1)).Epoch, int64(1))
	k.h.Advance(ttl)
	k.claimOnly(runID(1))
}

func renewEach(k *kit) {
	var leases []store.Lease
	var want []bool
	for n := range 12 {
		l := k.create(runID(n), ttl).Lease
		switch n % 4 {
		case 1:
			k.finish(l)
		case 2:
			l.Epoch++
		case 3:
			l.RunID = runID(100 + n)
		}
		leases, want = append(leases, l), append(want, n%4 != 0)
	}
	var got []bool
	for i, r := range k.renew(leases...) {
		got = append(got, r.Lost)
		if r.Lease.RunID != leases[i].RunID {
			k.Errorf("place %d: renewal of %s", i, r.Lease.RunID)
		}
	}
	k.equal("lost", got, want)
	k.equal("nothing", len(k.renew()), 0)

	k.h.Advance(2 * ttl)
	ids := claimedIDs(k.claim(20))
	slices.Sort(ids)
	for _, n := range []int{0, 4, 8} {
		if !slices.Contains(ids, runID(n)) {
			k.Errorf("%s was not taken", runID(n))
		}
		if !k.renew(leases[n])[0].Lost {
			k.Errorf("%s was taken by another, its first lease is renewed", runID(n))
		}
	}
	for n := 1; n < 12; n += 4 {
		if slices.Contains(ids, runID(n)) {
			k.Errorf("finished %s came back: %s", runID(n), fmt.Sprint(ids))
		}
	}
}

func renewLapsed(k *kit) {
	l := k.create(runID(1), ttl).Lease
	k.h.Advance(3 * ttl)
	if r := k.renew(l)[0]; r.Lost {
		k.Fatalf("nobody has taken the run, its lease is lost")
	}
	k.claimNone("renewed")
	h := k.held(runID(2), time.Hour)
	k.h.Advance(time.Hour)
	claimed := k.claim(5)
	k.renew(claimed[len(claimed)-1].Lease)
	k.equal("hold stays", k.holdOf(h.ID).Status, holds.Pending)
}

func renewCancel(k *kit) {
	l := k.create(runID(1), ttl).Lease
	if by := k.renew(l)[0].CancelBy; by != "" {
		k.Fatalf("cancelled by %q, nobody asked", by)
	}
	_, err := k.s.Cancel(k.ctx, k.cancellation(runID(1), 1, nil))
	k.ok(err)
	k.equal("asked by", k.renew(l)[0].CancelBy, "ann")
}

func renewRefuses(k *kit) {
	l := k.create(runID(1), ttl).Lease
	_, err := k.s.Renew(k.ctx, []store.Lease{l}, 0)
	k.invalid("renew for no time", err)
	k.claimNone("still leased")
}
