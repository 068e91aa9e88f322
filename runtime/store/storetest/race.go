package storetest

import (
	"errors"
	"sync/atomic"
	"time"

	"agentos/holds"
	"agentos/runtime/journal"
	"agentos/runtime/store"
)

// raceCases let two operations meet. Whatever the order, one wins and the other
// sees it.
func raceCases() []Case {
	return []Case{
		{"Race/decisions", raceDecisions},
		{"Race/decision_and_expiry", raceExpiry},
		{"Race/decision_and_cancel", raceCancel},
		{"Race/cancel_and_commit", raceCommit},
		{"Race/commit_and_takeover", raceTakeover},
	}
}

// outcome counts winners, and losers by the error they may get.
type outcome struct{ won, lost atomic.Int64 }

func (o *outcome) note(k *kit, what string, err, may error) {
	switch {
	case err == nil:
		o.won.Add(1)
	case errors.Is(err, may):
		o.lost.Add(1)
	default:
		k.Errorf("%s: %v", what, err)
	}
}

func raceDecisions(k *kit) {
	for n := range 5 {
		h := k.held(runID(n), time.Hour)
		handles := k.handles()
		var o outcome
		together(16, func(i int) {
			d := k.decision(h, i%4 != 0, ttl)
			for j := range d.Hold.Items {
				if it := d.Hold.Items[j].Decision; it != nil && i%2 == 1 {
					it.Action = holds.Reject
				}
			}
			_, err := handles[i%2].Decide(k.ctx, d)
			o.note(k, "decide", err, store.ErrConflict)
		})
		if o.won.Load() != 1 {
			k.Fatalf("%d decisions won", o.won.Load())
		}
		decided := 0
		for _, e := range k.journal(runID(n)) {
			if e.Type == journal.HoldDecided {
				decided++
			}
		}
		k.equal("decisions in the journal", decided, 1)
	}
}

func raceExpiry(k *kit) {
	for n := range 10 {
		h := k.held(runID(n), time.Hour)
		k.h.Advance(time.Hour - k.nearly())
		var o outcome
		var claimed atomic.Int64
		together(3, func(i int) {
			switch i {
			case 0:
				k.h.Advance(k.nearly())
			case 1:
				_, err := k.s.Decide(k.ctx, k.decision(h, true, ttl))
				o.note(k, "decide", err, store.ErrConflict)
			case 2:
				for range 3 {
					got, err := k.s.Claim(k.ctx, 5, 10*time.Hour)
					if err != nil {
						k.Errorf("claim: %v", err)
					}
					for _, c := range got {
						if c.Record.ID == runID(n) {
							claimed.Add(1)
						}
					}
				}
			}
		})
		if o.won.Load()+claimed.Load() > 1 {
			k.Fatalf("a hold was decided %d times and claimed as expired %d times", o.won.Load(), claimed.Load())
		}
		k.settle()
	}
}

// settle ends every run that is due.
func (k *kit) settle() {
	k.Helper()
	k.h.Advance(20 * time.Hour)
	for _, c := range k.claim(50) {
		tx := store.Tx{Status: store.Failed, Entries: []journal.New{entry(journal.RunFailed, "settled")}}
		if c.Hold != nil {
			closed := c.Hold.Closed(holds.Expired, c.Record.Seq)
			tx.Hold = &closed
		}
		k.commit(c.Lease, tx)
	}
}

func raceCancel(k *kit) {
	for n := range 10 {
		h := k.held(runID(n), time.Hour)
		var o outcome
		var requested atomic.Bool
		together(2, func(i int) {
			if i == 0 {
				_, err := k.s.Decide(k.ctx, k.decision(h, true, ttl))
				o.note(k, "decide", err, store.ErrConflict)
				return
			}
			asked, err := k.s.Cancel(k.ctx, k.cancellation(runID(n), 2, &h))
			requested.Store(asked)
			if !asked {
				o.note(k, "cancel", err, store.ErrConflict)
			}
		})
		if o.won.Load() != 1 {
			k.Fatalf("%d won, cancel was a request: %t", o.won.Load(), requested.Load())
		}
		if v := k.view(runID(n)); (v.Status == store.Running) != requested.Load() {
			k.Fatalf("run is %s, cancel was a request: %t", v.Status, requested.Load())
		}
	}
}

func raceCommit(k *kit) {
	for n := range 10 {
		l := k.create(runID(n), ttl).Lease
		var o outcome
		together(2, func(i int) {
			if i == 0 {
				_, err := k.s.Commit(k.ctx, l, completed())
				o.note(k, "commit", err, nil)
				return
			}
			requested, err := k.s.Cancel(k.ctx, k.cancellation(runID(n), 1, nil))
			o.note(k, "cancel", err, store.ErrConflict)
			if err == nil && !requested {
				k.Errorf("the run was ended under its worker")
			}
		})
		k.types(runID(n), journal.RunCreated, journal.RunCompleted)
	}
}

func raceTakeover(k *kit) {
	for n := range 10 {
		old := k.create(runID(n), ttl).Lease
		k.h.Advance(2 * ttl)
		var o outcome
		var next atomic.Pointer[store.Claimed]
		together(2, func(i int) {
			if i == 0 {
				_, err := k.s.Commit(k.ctx, old, completed())
				o.note(k, "commit", err, store.ErrLeaseLost)
				return
			}
			got, err := k.s.Claim(k.ctx, 1, ttl)
			if err != nil {
				k.Errorf("claim: %v", err)
			}
			if len(got) == 1 {
				next.Store(&got[0])
			}
		})
		if (o.won.Load() == 1) == (next.Load() != nil) {
			k.Fatalf("the old worker won %d times, the run was taken over: %t", o.won.Load(), next.Load() != nil)
		}
		if c := next.Load(); c != nil {
			k.finish(c.Lease)
		}
		k.types(runID(n), journal.RunCreated, journal.RunCompleted)
	}
}
