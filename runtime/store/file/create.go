package file

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"agentos/holds"
	"agentos/runtime/journal"
	"agentos/runtime/store"
)

// Create stores a run and its first entry.
func (s *Store) Create(ctx context.Context, c store.Create) (store.Created, error) {
	if err := c.Check(); err != nil {
		return store.Created{}, err
	}
	return change(ctx, s, func(t *txn) (store.Created, error) {
		r, err := t.before(c)
		switch {
		case err == nil:
			return t.existing(r, c)
		case errors.Is(err, store.ErrNotFound):
			return t.create(c)
		}
		return store.Created{}, err
	})
}

// before finds the run that is the answer to c already.
func (t *txn) before(c store.Create) (*row, error) {
	if c.Key == "" {
		return t.run(c.RunID)
	}
	r, err := scanRun(t.one("SELECT "+runColumns+" FROM runs r WHERE r.key = ? AND r.key <> ''", c.Key))
	if isNone(err) {
		return t.run(c.RunID)
	}
	if err != nil {
		return nil, err
	}
	return r, r.damage()
}

// room refuses a run that would be queued behind too many others.
func (t *txn) room(c store.Create) error {
	if c.Lease > 0 || c.MaxQueued == 0 {
		return nil
	}
	var n int
	err := t.one("SELECT count(*) FROM (SELECT 1 FROM runs INDEXED BY runs_status WHERE status = ? AND env = ? LIMIT ?)",
		store.Queued, c.Env, c.MaxQueued).Scan(&n)
	if err == nil && n >= c.MaxQueued {
		err = store.ErrQueueFull
	}
	return err
}

func (t *txn) create(c store.Create) (store.Created, error) {
	if err := t.room(c); err != nil {
		return store.Created{}, err
	}
	r := &row{request: c.Request, op: c.Op, due: t.now, Record: store.Record{
		ID: c.RunID, Env: c.Env, Agent: c.Agent, Capability: c.Capability, SessionID: c.SessionID,
		Status: store.Queued, Summary: c.Summary, CreatedAt: moment(t.now), UpdatedAt: moment(t.now),
	}}
	var lease store.Lease
	if c.Lease > 0 {
		r.Status = store.Running
		lease = r.give(t.now, c.Lease)
	}
	err := t.one(`INSERT INTO runs (id, key, request, env, agent, capability, session, status, seq, epoch, idle, leased, due,
		hold, cancel_by, summary, created_at, updated_at, op, op_seq)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, 1, ?, 0, ?, ?, '', '', ?, ?, ?, ?, 0) RETURNING n`,
		r.ID, c.Key, r.request, r.Env, r.Agent, r.Capability, r.SessionID, r.Status, r.Epoch, r.leased, r.due,
		blob(r.Summary), t.now, t.now, r.op).Scan(&r.n)
	if err != nil {
		return store.Created{}, err
	}
	entries, err := t.append(r, []journal.New{c.Entry})
	if err != nil {
		return store.Created{}, err
	}
	t.due = !r.leased
	return store.Created{Record: r.Record, Lease: lease, Entry: entries[0]}, nil
}

// existing answers a Create for a run that is there: made by the same attempt, or
// by another for the same request.
func (t *txn) existing(r *row, c store.Create) (store.Created, error) {
	if r.request != c.Request {
		return store.Created{}, fmt.Errorf("run %s: %w", r.ID, store.ErrIdempotencyConflict)
	}
	var e entryFields
	if err := t.one("SELECT id, at, type, data FROM entries WHERE id = ?", r.n<<seqBits|1).Scan(e.fields()...); err != nil {
		return store.Created{}, damagedIfNone(err, r.ID)
	}
	out := store.Created{Record: r.Record, Entry: e.entry(), Existing: true}
	if c.Op != "" && r.op == c.Op {
		switch {
		case c.Lease <= 0:
			out.Existing = false
		case r.leased && r.Epoch == 1:
			out.Existing, out.Lease = false, r.lease()
		}
	}
	return out, nil
}

// Claim takes runs that are due.
func (s *Store) Claim(ctx context.Context, n int, ttl time.Duration) ([]store.Claimed, error) {
	if ttl < time.Millisecond {
		return nil, errors.New("claim: no time to live")
	}
	if n <= 0 {
		return nil, nil
	}
	return change(ctx, s, func(t *txn) ([]store.Claimed, error) {
		var rows []*row
		err := t.each("SELECT "+runColumns+" FROM runs r INDEXED BY runs_due WHERE r.due <= ? ORDER BY r.due, r.n LIMIT ?",
			[]any{t.now, n}, func(from scanner) error {
				r, err := scanRun(from)
				if err != nil {
					return unavailable(err)
				}
				rows = append(rows, r)
				return nil
			})
		if err != nil {
			return nil, err
		}
		var out []store.Claimed
		for _, r := range rows {
			wait, err := t.wait(s, r)
			if err != nil {
				return nil, err
			}
			if wait > 0 {
				if err := t.exec("UPDATE runs SET due = ? WHERE n = ?", wait, r.n); err != nil {
					return nil, err
				}
				continue
			}
			c, err := t.claim(r, ttl)
			if err != nil {
				return nil, err
			}
			out = append(out, c)
		}
		return out, nil
	})
}

// asideFor is when a run that cannot be read is looked at again.
const asideFor = time.Hour

// wait returns when a run that is due may be taken, or 0 for now: the index only
// says when to look. A run that cannot be read is set aside.
func (t *txn) wait(s *Store, r *row) (int64, error) {
	if err := r.damage(); err != nil {
		s.log.LogAttrs(t.ctx, slog.LevelError, "a run that is due cannot be read; it is set aside for an hour; see agentos fsck",
			slog.String("run_id", r.ID), slog.Any("error", err))
		s.aside.Store(r.ID, true)
		return t.now + asideFor.Milliseconds(), nil
	}
	if r.Status != store.Held || r.leased {
		return 0, nil
	}
	var expires int64
	err := t.one("SELECT expires_at FROM holds WHERE id = ?", r.HoldID).Scan(&expires)
	if isNone(err) || err == nil && expires <= t.now {
		return 0, nil
	}
	return expires, err
}

func (t *txn) claim(r *row, ttl time.Duration) (store.Claimed, error) {
	c := store.Claimed{Lapsed: r.leased}
	c.Lease = r.give(t.now, ttl)
	r.Idle++
	if r.Status == store.Queued {
		r.Status = store.Running
	}
	err := t.exec("UPDATE runs SET status = ?, epoch = ?, idle = ?, leased = 1, due = ? WHERE n = ?", r.Status, r.Epoch, r.Idle, r.due, r.n)
	if err != nil {
		return c, err
	}
	c.Record = r.Record
	c.Journal, err = t.entries(r, 0)
	if err != nil && !errors.Is(err, store.ErrDamaged) {
		return c, err
	}
	damage := err
	if r.Status == store.Held {
		if c.Hold, err = t.holdOf(r); err != nil {
			damage = err
		}
	}
	if errors.Is(damage, store.ErrDamaged) {
		c.Journal, damage = nil, nil
	}
	return c, damage
}

// holdOf reads the pending hold of a held run; that it is missing is a damage.
func (t *txn) holdOf(r *row) (*holds.Hold, error) {
	h, err := t.hold(r.HoldID)
	if errors.Is(err, store.ErrNotFound) {
		return nil, damaged(r.ID, "hold %q is missing", r.HoldID)
	}
	return h, err
}

// Renew pushes the end of leases.
func (s *Store) Renew(ctx context.Context, leases []store.Lease, ttl time.Duration) ([]store.Renewal, error) {
	if ttl < time.Millisecond {
		return nil, errors.New("renew: no time to live")
	}
	if len(leases) == 0 {
		return nil, nil
	}
	return change(ctx, s, func(t *txn) ([]store.Renewal, error) {
		out := make([]store.Renewal, len(leases))
		for i, l := range leases {
			due := t.now + ttl.Milliseconds()
			err := t.one("UPDATE runs SET due = ? WHERE id = ? AND epoch = ? AND leased = 1 RETURNING cancel_by", due, l.RunID, l.Epoch).Scan(&out[i].CancelBy)
			out[i].Lease = l
			switch {
			case err == nil:
				out[i].Lease.Expires = moment(due)
			case isNone(err):
				out[i].Lost = true
			default:
				return nil, err
			}
		}
		return out, nil
	})
}
