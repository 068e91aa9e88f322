package redis

import (
	"context"
	"fmt"
	"strconv"

	"agentos/runtime/journal"
	"agentos/runtime/store"
)

// Run reads one run. Of a damaged run the view has what is left of it.
func (s *Store) Run(ctx context.Context, id string) (store.View, error) {
	k := s.keysOf(id)
	reply, err := s.read(ctx, "read run", s.scripts.run, []string{k.run(id)}, k.base, id)
	if err != nil {
		return store.View{}, err
	}
	row := list(reply)
	if len(row) == 0 {
		return store.View{}, fmt.Errorf("run %q: %w", id, store.ErrNotFound)
	}
	v := view(id, row)
	if v.Seq == 0 {
		return store.View{}, damaged(id, "its record is missing or cannot be read")
	}
	return v, nil
}

// view reads {record, entries in the journal, first entry, last entry, hold}.
// What is missing or unreadable stays zero, so that one damaged run spoils no
// list. When entries are missing, the outer ones are believed only where their
// type tells their place.
func view(id string, parts []any) store.View {
	v := store.View{Record: record(id, list(at(parts, 0)))}
	whole := number(parts, 1) == v.Seq
	if e, err := entry(1, at(parts, 2)); err == nil && (whole || e.Type == journal.RunCreated) {
		v.First = e
	}
	if e, err := entry(v.Seq, at(parts, 3)); err == nil && (whole || e.Type.Last()) {
		v.Last = e
	}
	if at(parts, 4) != nil {
		if h, err := hold(v.HoldID, at(parts, 4)); err == nil {
			v.Hold = h
		}
	}
	return v
}

// Journal reads the entries of a run after a place.
func (s *Store) Journal(ctx context.Context, runID string, after int64) ([]journal.Entry, error) {
	after = max(after, 0)
	k := s.keysOf(runID)
	reply, err := s.read(ctx, "read journal", s.scripts.journal, []string{k.run(runID)},
		k.base, runID, strconv.FormatInt(after, 10))
	if err != nil {
		return nil, err
	}
	row := list(reply)
	want, have := number(row, 0), number(row, 1)
	switch {
	case at(row, 0) == nil && have == 0:
		return nil, fmt.Errorf("run %q: %w", runID, store.ErrNotFound)
	case want != have:
		return nil, damaged(runID, "it has %d entries of %d", have, want)
	}
	return entries(after, list(at(row, 2)))
}

// Hold reads a hold with its run.
func (s *Store) Hold(ctx context.Context, id string) (store.HoldView, error) {
	run := store.RunOfHold(id)
	if run == "" {
		return store.HoldView{}, fmt.Errorf("hold %q: %w", id, store.ErrNotFound)
	}
	k := s.keysOf(run)
	reply, err := s.read(ctx, "read hold", s.scripts.hold, []string{k.run(run)}, k.base, run, id)
	if err != nil {
		return store.HoldView{}, err
	}
	row := list(reply)
	rec := record(run, list(at(row, 1)))
	switch {
	case len(row) == 0:
		return store.HoldView{}, damaged(run, "its record cannot be read")
	case at(row, 0) == nil && rec.HoldID == id:
		return store.HoldView{}, damaged(run, "its hold %s is missing", id)
	case at(row, 0) == nil:
		return store.HoldView{}, fmt.Errorf("hold %q: %w", id, store.ErrNotFound)
	}
	h, err := hold(id, at(row, 0))
	if err != nil {
		return store.HoldView{}, err
	}
	all, err := entries(0, list(at(row, 2)))
	if err == nil && (int64(len(all)) != rec.Seq || rec.Seq == 0) {
		err = damaged(run, "it has %d entries of %d", len(all), rec.Seq)
	}
	if err != nil {
		return store.HoldView{}, err
	}
	return store.HoldView{Hold: *h, Record: rec, Journal: all, Now: moment(row, 3)}, nil
}

func damaged(runID, format string, args ...any) error {
	return fmt.Errorf("run %s: %w: "+format, append([]any{runID, store.ErrDamaged}, args...)...)
}
