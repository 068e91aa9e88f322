package file

import (
	"context"
	"errors"
	"fmt"

	"agentos/holds"
	"agentos/runtime/store"
)

// Commit moves a run on under its lease.
func (s *Store) Commit(ctx context.Context, l store.Lease, tx store.Tx) (store.Committed, error) {
	if err := tx.Check(l.RunID); err != nil {
		return store.Committed{}, err
	}
	return change(ctx, s, func(t *txn) (store.Committed, error) { return t.commit(l, tx) })
}

func (t *txn) commit(l store.Lease, tx store.Tx) (store.Committed, error) {
	r, err := t.run(l.RunID)
	if errors.Is(err, store.ErrNotFound) {
		return store.Committed{}, lost(l)
	}
	if err != nil {
		return store.Committed{}, err
	}
	current := r.leased && r.Epoch == l.Epoch
	repeat := tx.Op != "" && r.op == tx.Op
	switch {
	case !current && (!repeat || tx.Lease != 0):
		return store.Committed{}, lost(l)
	case repeat:
		return t.committed(r, tx)
	}
	if err := t.fits(r, tx); err != nil {
		return store.Committed{}, err
	}
	if tx.Orders != nil {
		o, err := t.orders(r.Env)
		if err == nil && o.Version > *tx.Orders {
			err = fmt.Errorf("run %s: %w", r.ID, store.ErrOrders)
		}
		if err != nil {
			return store.Committed{}, err
		}
	}
	return t.advance(r, tx)
}

// fits sees to it that a commit leaves no pending hold behind and touches no hold
// that has ended: h is the pending hold of a held run, a new one, or none.
func (t *txn) fits(r *row, tx store.Tx) error {
	h := tx.Hold
	if r.HoldID != "" {
		if h == nil && tx.Status.Finished() {
			if _, err := t.holdOf(r); errors.Is(err, store.ErrDamaged) {
				r.HoldID = "" // there is nothing to close
				return nil
			}
		}
		if h == nil || h.ID != r.HoldID {
			return fmt.Errorf("commit: run %s waits on hold %s, which must be closed or kept", r.ID, r.HoldID)
		}
		return nil
	}
	if h == nil {
		return nil
	}
	if h.Status != holds.Pending {
		return fmt.Errorf("commit: run %s does not wait on hold %s", r.ID, h.ID)
	}
	_, err := t.hold(h.ID)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return nil
	case err != nil:
		return err
	}
	return fmt.Errorf("commit: hold %s was opened before", h.ID)
}

// advance applies tx to the run.
func (t *txn) advance(r *row, tx store.Tx) (store.Committed, error) {
	before := r.Seq
	entries, err := t.append(r, tx.Entries)
	if err != nil {
		return store.Committed{}, err
	}
	if tx.Hold != nil {
		if err := t.putHold(r, tx.Hold); err != nil {
			return store.Committed{}, err
		}
	}
	r.Status, r.leased = tx.Status, tx.Status == store.Running && tx.Lease > 0
	switch tx.Status {
	case store.Running, store.Queued:
		r.due = t.now + tx.Due.Milliseconds()
		if r.leased {
			r.due = t.now + tx.Lease.Milliseconds()
		}
		t.due = !r.leased
	case store.Held:
		r.due = tx.Hold.ExpiresAt.UnixMilli()
	case store.Completed, store.Failed, store.Cancelled:
		r.due = 0
	}
	if tx.Summary != nil {
		r.Summary = tx.Summary
	}
	if err := t.save(r, tx.Op, before, tx.Notify); err != nil {
		return store.Committed{}, err
	}
	out := store.Committed{Entries: entries, CancelBy: r.CancelBy}
	if r.leased {
		out.Lease = r.lease()
	}
	return out, nil
}

// committed answers a repeated Commit from what it wrote.
func (t *txn) committed(r *row, tx store.Tx) (out store.Committed, err error) {
	if tx.Status == store.Running && tx.Lease > 0 {
		out.Lease = r.lease()
	}
	out.CancelBy = r.CancelBy
	out.Entries, err = t.entries(r, r.opSeq)
	return out, err
}

func lost(l store.Lease) error {
	return fmt.Errorf("run %s, epoch %d: %w", l.RunID, l.Epoch, store.ErrLeaseLost)
}

// Decide replaces a pending hold.
func (s *Store) Decide(ctx context.Context, d store.Decide) (store.Decided, error) {
	if err := d.Check(); err != nil {
		return store.Decided{}, err
	}
	return change(ctx, s, func(t *txn) (store.Decided, error) {
		r, err := t.run(store.RunOfHold(d.Hold.ID))
		if err != nil {
			return store.Decided{}, err
		}
		if d.Op != "" && r.op == d.Op {
			return t.decided(r)
		}
		if err := t.decidable(r, d); err != nil {
			return store.Decided{}, err
		}
		return t.decide(r, d)
	})
}

// decidable compares: a decision fits only the hold it was worked out on.
func (t *txn) decidable(r *row, d store.Decide) error {
	var status holds.Status
	var revision, expires int64
	err := t.one("SELECT status, revision, expires_at FROM holds WHERE id = ?", d.Hold.ID).Scan(&status, &revision, &expires)
	if isNone(err) {
		return fmt.Errorf("hold %s: %w", d.Hold.ID, store.ErrNotFound)
	}
	if err != nil {
		return err
	}
	if status != holds.Pending || revision != d.Seen || t.now >= expires ||
		r.HoldID != d.Hold.ID || r.leased {
		return fmt.Errorf("hold %s is %s at revision %d: %w", d.Hold.ID, status, revision, store.ErrConflict)
	}
	return nil
}

func (t *txn) decide(r *row, d store.Decide) (store.Decided, error) {
	before := r.Seq
	entries, err := t.append(r, d.Entries)
	if err != nil {
		return store.Decided{}, err
	}
	if err := t.putHold(r, &d.Hold); err != nil {
		return store.Decided{}, err
	}
	out := store.Decided{Entries: entries}
	switch {
	case d.Hold.Status == holds.Pending:
		r.due = d.Hold.ExpiresAt.UnixMilli()
	case d.Lease > 0:
		r.Status = store.Running
		out.Lease = r.give(t.now, d.Lease)
	default:
		r.Status, r.due, t.due = store.Running, t.now, true
	}
	if d.Summary != nil {
		r.Summary = d.Summary
	}
	if err := t.save(r, d.Op, before, d.Notify); err != nil {
		return store.Decided{}, err
	}
	out.Record = r.Record
	return out, nil
}

// decided answers a repeated Decide. A lease that was given is given again while
// it is the current one: nothing but a Claim can have come between.
func (t *txn) decided(r *row) (out store.Decided, err error) {
	out.Record = r.Record
	if r.leased && r.Idle == 0 {
		out.Lease = r.lease()
	}
	out.Entries, err = t.entries(r, r.opSeq)
	return out, err
}

// Cancel ends a run nobody works on, or asks its worker to.
func (s *Store) Cancel(ctx context.Context, c store.Cancel) (bool, error) {
	if err := c.Check(); err != nil {
		return false, err
	}
	return change(ctx, s, func(t *txn) (bool, error) {
		r, err := t.run(c.RunID)
		switch {
		case err != nil:
			return false, err
		case c.Op != "" && r.op == c.Op:
			return false, nil
		case r.Status.Finished():
			return false, fmt.Errorf("run %s is %s: %w", r.ID, r.Status, store.ErrConflict)
		case r.leased || r.Status == store.Running:
			return true, t.requestCancel(r, c.By)
		}
		return false, t.cancel(r, c)
	})
}

// requestCancel notes who asked first. It is no operation of the run: that of its
// worker must stay recognisable.
func (t *txn) requestCancel(r *row, by string) error {
	if !r.leased { // nobody has it: somebody must look at it now
		t.due = true
		if err := t.exec("UPDATE runs SET due = ? WHERE n = ?", t.now, r.n); err != nil {
			return err
		}
	}
	if r.CancelBy != "" {
		return nil
	}
	return t.exec("UPDATE runs SET cancel_by = ? WHERE n = ?", by, r.n)
}

func (t *txn) cancel(r *row, c store.Cancel) error {
	hold := ""
	if c.Hold != nil {
		hold = c.Hold.ID
	}
	if r.Seq != c.Seen || r.HoldID != hold {
		return fmt.Errorf("run %s has %d entries: %w", r.ID, r.Seq, store.ErrConflict)
	}
	before := r.Seq
	if _, err := t.append(r, c.Entries); err != nil {
		return err
	}
	if c.Hold != nil {
		if err := t.putHold(r, c.Hold); err != nil {
			return err
		}
	}
	r.Status, r.due = store.Cancelled, 0
	if c.Summary != nil {
		r.Summary = c.Summary
	}
	return t.save(r, c.Op, before, c.Notify)
}
