package storetest

import (
	"errors"
	"time"

	"agentos/holds"
	"agentos/runtime/journal"
	"agentos/runtime/store"
)

// farAhead is beyond every time that cases set.
const farAhead = 10_000 * time.Hour

// audit checks what must hold of any store at any time: journals without gaps,
// a pending hold for each held run and no other, the lists agreeing with the
// runs, and every unfinished run due exactly once.
func (k *kit) audit() {
	k.Helper()
	pending := map[string]bool{}
	unfinished := map[string]bool{}
	for _, v := range k.allRuns(store.RunFilter{}, 200) {
		if !v.Status.Finished() {
			unfinished[v.ID] = true
		}
		if !k.damaged[v.ID] {
			k.auditRun(v)
		}
		if v.HoldID != "" {
			pending[v.HoldID] = true
		}
	}
	for _, h := range k.allHolds(store.HoldFilter{}, 200) {
		if (h.Status == holds.Pending) != pending[h.ID] {
			k.Errorf("hold %s is %s; its run waits on it: %t", h.ID, h.Status, pending[h.ID])
		}
		delete(pending, h.ID)
	}
	if len(pending) > 0 {
		k.Errorf("runs wait on holds that are not listed: %v", pending)
	}
	k.auditDue(unfinished)
}

func (k *kit) auditRun(v store.View) {
	k.Helper()
	list := k.journal(v.ID)
	if int64(len(list)) != v.Seq {
		k.Errorf("run %s has %d entries, its record counts %d", v.ID, len(list), v.Seq)
		return
	}
	for i, e := range list {
		if e.Seq != int64(i)+1 || i > 0 && e.At.Before(list[i-1].At) || e.At.Location() != time.UTC {
			k.Errorf("run %s: entry at place %d has seq %d and time %v", v.ID, i+1, e.Seq, e.At)
		}
		if e.Type.Last() != (v.Status.Finished() && e.Seq == v.Seq) {
			k.Errorf("run %s is %s and has %s at place %d of %d", v.ID, v.Status, e.Type, e.Seq, v.Seq)
		}
	}
	k.equal("first entry", v.First, list[0])
	k.equal("last entry", v.Last, list[len(list)-1])
	if list[0].Type != journal.RunCreated {
		k.Errorf("run %s begins with %s", v.ID, list[0].Type)
	}
	if (v.Status == store.Held) != (v.HoldID != "") || (v.Status == store.Held) != (v.Hold != nil) {
		k.Errorf("run %s is %s, hold id %q, hold %v", v.ID, v.Status, v.HoldID, v.Hold)
		return
	}
	if v.Hold != nil && (v.Hold.ID != v.HoldID || v.Hold.Status != holds.Pending) {
		k.Errorf("run %s waits on %s but shows %s, which is %s", v.ID, v.HoldID, v.Hold.ID, v.Hold.Status)
	}
	one, err := k.s.Run(k.ctx, v.ID)
	k.ok(err)
	k.equal("the run read alone and in a list", one, v)
}

// auditDue looks at the due index the only way there is: by claiming what is due
// when all is. A little at a time, as workers do.
func (k *kit) auditDue(unfinished map[string]bool) {
	k.Helper()
	k.h.Advance(farAhead)
	for {
		got := k.claim(50)
		if len(got) == 0 {
			break
		}
		for _, c := range got {
			if !unfinished[c.Record.ID] {
				k.Errorf("run %s was claimed, though finished, unknown or claimed already", c.Record.ID)
			}
			delete(unfinished, c.Record.ID)
		}
	}
	for id := range unfinished {
		k.Errorf("run %s is not finished and never due", id)
	}
}

// allRuns reads all pages of a list.
func (k *kit) allRuns(f store.RunFilter, limit int) []store.View {
	k.Helper()
	return allPages(k, limit, func(p store.Page) ([]store.View, string, error) { return k.s.Runs(k.ctx, f, p) })
}

// allHolds reads all pages of a list.
func (k *kit) allHolds(f store.HoldFilter, limit int) []holds.Hold {
	k.Helper()
	return allPages(k, limit, func(p store.Page) ([]holds.Hold, string, error) { return k.s.Holds(k.ctx, f, p) })
}

var errEndless = errors.New("the list has no end")

func allPages[A any](k *kit, limit int, page func(store.Page) ([]A, string, error)) []A {
	k.Helper()
	var all []A
	cursor := ""
	for range 10_000 {
		rows, next, err := page(store.Page{Limit: limit, Cursor: cursor})
		k.ok(err)
		if len(rows) > limit {
			k.Fatalf("a page has %d rows, the limit is %d", len(rows), limit)
		}
		all = append(all, rows...)
		if next == "" {
			return all
		}
		cursor = next
	}
	k.ok(errEndless)
	return nil
}
