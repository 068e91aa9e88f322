package storetest

import (
	"time"

	"agentos/runtime/store"
)

func readCases() []Case {
	return []Case{
		{"Read/unknown_is_not_found", readUnknown},
		{"Read/journal_after_a_place", readJournal},
		{"Read/damaged_is_told", readDamaged},
		{"Read/ids_of_runs_and_holds_fit", readIDs},
	}
}

func readUnknown(k *kit) {
	k.create(runID(1), 0)
	for _, id := range []string{runID(2), "", "r_", "*", "r_%", "h_1_1"} {
		_, err := k.s.Run(k.ctx, id)
		k.refused(err, store.ErrNotFound)
		_, err = k.s.Journal(k.ctx, id, 0)
		k.refused(err, store.ErrNotFound)
	}
}

func readJournal(k *kit) {
	l := k.create(runID(1), ttl).Lease
	k.commit(l, running(9))
	k.create(runID(2), 0) // lies next to it
	all := k.journal(runID(1))
	k.equal("entries", len(all), 10)
	for after := range 10 {
		got, err := k.s.Journal(k.ctx, runID(1), int64(after))
		k.ok(err)
		k.equal("journal", got, all[after:])
	}
	for after, want := range map[int64]int{-1: 10, 10: 0, 11: 0, 1 << 40: 0} {
		got, err := k.s.Journal(k.ctx, runID(1), after)
		k.ok(err)
		k.equal("entries", len(got), want)
	}
}

func readDamaged(k *kit) {
	h := k.held(runID(1), time.Hour)
	k.create(runID(2), 0)
	k.h.Damage(runID(1))
	k.damaged[runID(1)] = true
	_, err := k.s.Journal(k.ctx, runID(1), 0)
	k.refused(err, store.ErrDamaged)
	_, err = k.s.Hold(k.ctx, h.ID)
	k.refused(err, store.ErrDamaged)
	v := k.view(runID(1))
	k.equal("status", v.Status, store.Held)
	k.equal("runs listed", len(k.allRuns(store.RunFilter{}, 10)), 2)
	k.equal("entries of the other", len(k.journal(runID(2))), 1)
}

func readIDs(k *kit) {
	for n := 1; n <= 12; n += 11 {
		if got := store.RunOfHold(store.HoldID(runID(7), n)); got != runID(7) {
			k.Errorf("hold %d belongs to %q", n, got)
		}
	}
	for _, id := range []string{"", "h_", "h_1", "h__1", "h_1_", "r_1_1", "1_1"} {
		if got := store.RunOfHold(id); got != "" {
			k.Errorf("hold %q belongs to %q", id, got)
		}
	}
}
