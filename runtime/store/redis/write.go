package redis

import (
	"context"
	"fmt"
	"strconv"

	"agentos/runtime/journal"
	"agentos/runtime/store"
)

// answer is the reply of a script that writes: {what, first entry, at, epoch,
// lease end, cancelled by, …}.
type answer []any

func (a answer) what() string { return text(a, 0) }

// lease is what the operation gave, or the zero Lease.
func (a answer) lease(runID string) store.Lease {
	if number(a, 4) == 0 {
		return store.Lease{}
	}
	return store.Lease{RunID: runID, Epoch: number(a, 3), Expires: moment(a, 4)}
}

func (a answer) entries(written []journal.New) []journal.Entry {
	return stamped(number(a, 1), moment(a, 2), written)
}

// Create stores a run and its first entry.
func (s *Store) Create(ctx context.Context, c store.Create) (store.Created, error) {
	if err := c.Check(); err != nil {
		return store.Created{}, err
	}
	status := store.Queued
	if c.Lease > 0 {
		status = store.Running
	}
	k := s.keysOf(c.RunID)
	names := []string{k.run(c.RunID), k.due(), k.envs(), k.runIndex(c.Env), k.runsBy(c.Env, status)}
	if c.Key != "" {
		names = append(names, k.byKey(c.Key))
	}
	reply, err := s.write(ctx, "create run", s.scripts.create, names,
		k.base, c.RunID, escape(c.Op), c.Request, escape(c.Env), escape(c.Agent), escape(c.Capability), escape(c.SessionID),
		c.Key, []byte(c.Summary), millis(c.Lease), (c.MaxQueued+s.cfg.Partitions-1)/s.cfg.Partitions, encodeEntry(c.Entry))
	if err != nil {
		return store.Created{}, err
	}
	a := answer(list(reply))
	switch a.what() {
	case "ok":
		return created(c, status, a), nil
	case "again":
		out, err := existing(text(a, 6), list(at(a, 7)), at(a, 8))
		out.Lease = a.lease(out.Record.ID)
		// A lease that is over cannot be given again.
		out.Existing = c.Lease > 0 && out.Lease.Epoch == 0
		return out, err
	case "exists":
		return existing(text(a, 1), list(at(a, 2)), at(a, 3))
	case "conflict":
		return store.Created{}, fmt.Errorf("create: run %s: %w", text(a, 1), store.ErrIdempotencyConflict)
	case "full":
		return store.Created{}, fmt.Errorf("create: %w", store.ErrQueueFull)
	}
	return store.Created{}, refused("create", text(a, 1), a)
}

// created answers from the request: the script has stored just that.
func created(c store.Create, status store.Status, a answer) store.Created {
	now := moment(a, 2)
	r := store.Record{
		ID: c.RunID, Env: c.Env, Agent: c.Agent, Capability: c.Capability, SessionID: c.SessionID,
		Status: status, Seq: 1, Epoch: number(a, 3), CreatedAt: now, UpdatedAt: now,
	}
	if len(c.Summary) > 0 {
		r.Summary = c.Summary
	}
	return store.Created{Record: r, Lease: a.lease(c.RunID), Entry: a.entries([]journal.New{c.Entry})[0]}
}

func existing(id string, rec []any, first any) (store.Created, error) {
	e, err := entry(1, first)
	if err != nil {
		return store.Created{}, fmt.Errorf("create: run %s: %w", id, err)
	}
	return store.Created{Record: record(id, rec), Existing: true, Entry: e}, nil
}

// Commit moves a run on under its lease.
func (s *Store) Commit(ctx context.Context, l store.Lease, tx store.Tx) (store.Committed, error) {
	if err := tx.Check(l.RunID); err != nil {
		return store.Committed{}, err
	}
	k := s.keysOf(l.RunID)
	orders := ""
	if tx.Orders != nil {
		orders = strconv.FormatInt(*tx.Orders, 10)
	}
	args := append(make([]any, 0, 18+len(tx.Entries)), k.base, l.RunID, escape(tx.Op), flag(tx.Notify), l.Epoch, string(tx.Status),
		millis(tx.Lease), millis(tx.Due), millis(s.cfg.Retention), []byte(tx.Summary), orders)
	args, err := encodeHold(args, tx.Hold)
	if err != nil {
		return store.Committed{}, err
	}
	reply, err := s.write(ctx, "commit", s.scripts.commit, k.of(l.RunID), encodeEntries(args, tx.Entries)...)
	if err != nil {
		return store.Committed{}, err
	}
	a := answer(list(reply))
	switch a.what() {
	case "ok", "again":
		return store.Committed{Lease: a.lease(l.RunID), Entries: a.entries(tx.Entries), CancelBy: unescape(text(a, 5))}, nil
	case "lost":
		return store.Committed{}, fmt.Errorf("commit: run %s, epoch %d: %w", l.RunID, l.Epoch, store.ErrLeaseLost)
	case "orders":
		return store.Committed{}, fmt.Errorf("commit: run %s: %w", l.RunID, store.ErrOrders)
	case "hold":
		return store.Committed{}, fmt.Errorf("commit: run %s waits on hold %q; only that hold can be closed or kept, or a new one opened", l.RunID, text(a, 1))
	}
	return store.Committed{}, refused("commit", l.RunID, a)
}

// Decide replaces a pending hold.
func (s *Store) Decide(ctx context.Context, d store.Decide) (store.Decided, error) {
	if err := d.Check(); err != nil {
		return store.Decided{}, err
	}
	run := store.RunOfHold(d.Hold.ID)
	if run == "" {
		return store.Decided{}, fmt.Errorf("decide: hold %q: %w", d.Hold.ID, store.ErrNotFound)
	}
	k := s.keysOf(run)
	args := append(make([]any, 0, 14+len(d.Entries)), k.base, run, escape(d.Op), flag(d.Notify), d.Seen, millis(d.Lease), []byte(d.Summary))
	args, err := encodeHold(args, &d.Hold)
	if err != nil {
		return store.Decided{}, err
	}
	reply, err := s.write(ctx, "decide", s.scripts.decide, k.of(run), encodeEntries(args, d.Entries)...)
	if err != nil {
		return store.Decided{}, err
	}
	a := answer(list(reply))
	switch a.what() {
	case "ok", "again":
		return store.Decided{Record: record(run, list(at(a, 6))), Lease: a.lease(run), Entries: a.entries(d.Entries)}, nil
	case "missing":
		return store.Decided{}, fmt.Errorf("decide: hold %s: %w", d.Hold.ID, store.ErrNotFound)
	case "conflict":
		return store.Decided{}, fmt.Errorf("decide: hold %s, revision %d: %w", d.Hold.ID, d.Seen, store.ErrConflict)
	}
	return store.Decided{}, refused("decide", run, a)
}

// Cancel ends a run nobody works on, or asks its worker to.
func (s *Store) Cancel(ctx context.Context, c store.Cancel) (requested bool, err error) {
	if err := c.Check(); err != nil {
		return false, err
	}
	k := s.keysOf(c.RunID)
	args := append(make([]any, 0, 15+len(c.Entries)), k.base, c.RunID, escape(c.Op), flag(c.Notify), c.Seen, escape(c.By),
		millis(s.cfg.Retention), []byte(c.Summary))
	if args, err = encodeHold(args, c.Hold); err != nil {
		return false, err
	}
	reply, err := s.write(ctx, "cancel", s.scripts.cancel, k.of(c.RunID), encodeEntries(args, c.Entries)...)
	if err != nil {
		return false, err
	}
	a := answer(list(reply))
	switch a.what() {
	case "ok", "again":
		return number(a, 1) == 0, nil
	case "missing":
		return false, fmt.Errorf("cancel: run %s: %w", c.RunID, store.ErrNotFound)
	case "conflict":
		return false, fmt.Errorf("cancel: run %s, %d entries: %w", c.RunID, c.Seen, store.ErrConflict)
	}
	return false, refused("cancel", c.RunID, a)
}

// flag is a condition for scripts.
func flag(is bool) string {
	if is {
		return "1"
	}
	return "0"
}

// of returns the keys a transition of the run declares: run, due.
func (k keys) of(run string) []string { return []string{k.run(run), k.due()} }

// refused is the error for the replies that are left.
func refused(what, run string, a answer) error {
	if a.what() == "damaged" {
		return fmt.Errorf("%s: run %s: %w", what, run, store.ErrDamaged)
	}
	return fmt.Errorf("%s: run %s: the script answered %s", what, run, strconv.Quote(a.what()))
}
