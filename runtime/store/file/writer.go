package file

import (
	"context"
	"errors"
	"fmt"

	"agentos/runtime/store"
)

// maxGroup is the most operations that share a transaction, so that a stream of
// them cannot keep the first one waiting.
const maxGroup = 256

var errClosed = errors.New("the store is closed")

// op is one operation on its way through the writer.
type op struct {
	ctx  context.Context //nolint:containedctx // the operation's own, handed to the goroutine that runs it
	do   func(*txn) error
	err  error
	tx   txn
	done chan error
}

// txn is what an operation works with. It belongs to the operation's goroutine:
// the writer, or the reader that lent its connection.
type txn struct {
	*conn
	ctx context.Context //nolint:containedctx // without cancellation: a statement once begun ends
	// now is the time of the operation in unix ms.
	now int64
	// changed is the run that got entries; due says that a run may be claimed.
	changed string
	due     bool
}

// unavailable marks err as the store's failure.
func unavailable(err error) error {
	return fmt.Errorf("%w: %w", store.ErrUnavailable, err)
}

func (t *txn) exec(query string, args ...any) error {
	st, err := t.stmt(t.ctx, query)
	if err == nil {
		_, err = st.ExecContext(t.ctx, args...)
	}
	if err != nil {
		return unavailable(err)
	}
	return nil
}

// do has f run by the writer, and returns once what it wrote is on disk.
func (s *Store) do(ctx context.Context, f func(*txn) error) error {
	if err := ctx.Err(); err != nil {
		return unavailable(err)
	}
	o := &op{ctx: ctx, do: f, done: make(chan error, 1)}
	select {
	case s.ops <- o:
	case <-s.closing:
		return unavailable(errClosed)
	case <-ctx.Done():
		return unavailable(ctx.Err())
	}
	select {
	case err := <-o.done:
		return err
	case <-ctx.Done():
		return unavailable(ctx.Err())
	}
}

// change is do with an answer. An answer that comes too late is dropped: the
// caller that has gone does not look at it.
func change[A any](ctx context.Context, s *Store, f func(*txn) (A, error)) (A, error) {
	var answer, none A
	err := s.do(ctx, func(t *txn) (err error) {
		answer, err = f(t)
		return err
	})
	if err != nil {
		return none, err
	}
	return answer, nil
}

// read runs f on a consistent state of the store.
func read[A any](ctx context.Context, s *Store, f func(*txn) (A, error)) (A, error) {
	if s.memory {
		return change(ctx, s, f)
	}
	var none A
	if err := ctx.Err(); err != nil {
		return none, unavailable(err)
	}
	select {
	case <-s.closing:
		return none, unavailable(errClosed)
	default:
	}
	var c *conn
	select {
	case c = <-s.idle:
	case <-s.closing:
		return none, unavailable(errClosed)
	case <-ctx.Done():
		return none, unavailable(ctx.Err())
	}
	defer func() { s.idle <- c }()
	t := &txn{conn: c, ctx: context.WithoutCancel(ctx), now: s.now()}
	if err := t.exec("BEGIN"); err != nil {
		return none, err
	}
	answer, err := f(t)
	if end := t.exec("ROLLBACK"); err == nil {
		err = end
	}
	return answer, err
}

func (s *Store) now() int64 { return s.clock.Now().UnixMilli() }

// write is the writer's goroutine; Close waits for it.
func (s *Store) write(ctx context.Context, c *conn) {
	defer close(s.stopped)
	for {
		select {
		case o := <-s.ops:
			s.group(ctx, c, o)
			s.sweep(ctx, c)
		case <-s.closing:
			return
		}
	}
}

// group runs first and what has gathered behind it in one transaction.
func (s *Store) group(ctx context.Context, c *conn, first *op) {
	t := &txn{conn: c, ctx: ctx}
	err := t.exec("BEGIN IMMEDIATE")
	ops := []*op{first}
	for err == nil {
		if err = s.apply(c, ops[len(ops)-1]); err != nil || len(ops) == maxGroup {
			break
		}
		o := s.next()
		if o == nil {
			break
		}
		ops = append(ops, o)
	}
	if err == nil {
		err = t.exec("COMMIT")
	}
	if err != nil {
		_ = t.exec("ROLLBACK") //nolint:errcheck // fails when SQLite has rolled back itself
	}
	s.failed.Store(err != nil)
	for _, o := range ops {
		s.finish(o, err)
	}
}

// next returns an operation that is waiting, or nil.
func (s *Store) next() *op {
	select {
	case o := <-s.ops:
		return o
	default:
		return nil
	}
}

// apply runs o inside a savepoint. An error means that the transaction is gone
// and nothing of it may be committed: SQLite ends it by itself when the disk is
// full or fails.
func (s *Store) apply(c *conn, o *op) error {
	if o.err = o.ctx.Err(); o.err != nil {
		o.err = unavailable(o.err)
		return nil //nolint:nilerr // the operation failed, the transaction did not
	}
	o.tx = txn{conn: c, ctx: context.WithoutCancel(o.ctx), now: s.now()}
	if err := o.tx.exec("SAVEPOINT op"); err != nil {
		return err
	}
	if o.err = o.do(&o.tx); o.err != nil {
		o.tx.changed, o.tx.due = "", false
		if err := o.tx.exec("ROLLBACK TO op"); err != nil {
			return errors.Join(o.err, err)
		}
	}
	return o.tx.exec("RELEASE op")
}

// finish tells those who wait, then the caller. err is the transaction's.
func (s *Store) finish(o *op, err error) {
	if err != nil {
		o.done <- err
		return
	}
	if o.tx.changed != "" {
		s.bell.ring(o.tx.changed)
	}
	if o.tx.due {
		s.bell.wake()
	}
	o.done <- o.err
}
