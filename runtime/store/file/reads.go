package file

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"log/slog"
	"strconv"
	"strings"

	"agentos/holds"
	"agentos/runtime/journal"
	"agentos/runtime/store"
)

func isNone(err error) bool { return errors.Is(err, sql.ErrNoRows) }

func damagedIfNone(err error, runID string) error {
	if isNone(err) {
		return damaged(runID, "its first entry is missing")
	}
	return err
}

// viewQuery reads runs with their first and last entry and their pending hold.
const viewQuery = "SELECT " + runColumns + `, f.id, f.at, f.type, f.data, l.id, l.at, l.type, l.data, h.body
	FROM runs r
	LEFT JOIN entries f ON f.id = (r.n << 20 | 1)
	LEFT JOIN entries l ON l.id = (r.n << 20 | r.seq)
	LEFT JOIN holds h ON r.hold <> '' AND h.id = r.hold
	WHERE `

func scanView(from scanner) (store.View, int64, error) {
	var first, last entryFields
	var hold []byte
	more := append(append(first.fields(), last.fields()...), &hold)
	r, err := scanRun(from, more...)
	if err != nil {
		return store.View{}, 0, err
	}
	if err := r.damage(); err != nil {
		return store.View{}, r.n, err
	}
	v := store.View{Record: r.Record, First: first.entry(), Last: last.entry()}
	if hold != nil {
		if v.Hold, err = decodeHold(r.HoldID, hold); err != nil {
			v.Hold = nil // shown as the damaged run it is
		}
	}
	return v, r.n, nil
}

// Run reads one run.
func (s *Store) Run(ctx context.Context, id string) (store.View, error) {
	return read(ctx, s, func(t *txn) (store.View, error) {
		v, _, err := scanView(t.one(viewQuery+"r.id = ?", id))
		if isNone(err) {
			_, err = t.run(id)
		}
		return v, err
	})
}

// Journal reads the entries of a run after a place.
func (s *Store) Journal(ctx context.Context, runID string, after int64) ([]journal.Entry, error) {
	return read(ctx, s, func(t *txn) ([]journal.Entry, error) {
		r, err := t.run(runID)
		if err != nil {
			return nil, err
		}
		return t.entries(r, after)
	})
}

// Hold reads a hold with its run.
func (s *Store) Hold(ctx context.Context, id string) (store.HoldView, error) {
	return read(ctx, s, func(t *txn) (store.HoldView, error) {
		h, err := t.hold(id)
		if err != nil {
			return store.HoldView{}, err
		}
		r, err := t.run(store.RunOfHold(id))
		if err != nil {
			return store.HoldView{}, err
		}
		entries, err := t.entries(r, 0)
		if err != nil {
			return store.HoldView{}, err
		}
		return store.HoldView{Hold: *h, Record: r.Record, Journal: entries, Now: moment(t.now)}, nil
	})
}

// filter is the WHERE clause of a list.
type filter struct {
	clauses []string
	args    []any
	// driven says that a clause walks an index already. The others are written
	// with a plus, which keeps SQLite from choosing theirs: without statistics it
	// would guess.
	driven bool
}

func newFilter(column string, p store.Page) (*filter, error) {
	if err := p.Check(); err != nil {
		return nil, err
	}
	f := &filter{}
	if p.Cursor != "" {
		n, err := strconv.ParseInt(p.Cursor, 10, 64)
		if err != nil || n < 1 {
			return nil, store.BadCursor(p.Cursor)
		}
		f.clauses, f.args = []string{column + " < ?"}, []any{n}
	}
	return f, nil
}

// equal adds column = value unless value is "". The first column that is indexed
// drives the query.
func (f *filter) equal(column, value string, indexed bool) {
	if value == "" {
		return
	}
	clause := "+" + column + " = ?"
	if indexed && !f.driven {
		clause, f.driven = column+" = ?", true
	}
	f.clauses, f.args = append(f.clauses, clause), append(f.args, value)
}

func (f *filter) where() string {
	if len(f.clauses) == 0 {
		return "1"
	}
	return strings.Join(f.clauses, " AND ")
}

// Runs lists runs, newest first.
func (s *Store) Runs(ctx context.Context, q store.RunFilter, p store.Page) ([]store.View, string, error) {
	query, args, err := runsQuery(q, p)
	if err != nil {
		return nil, "", err
	}
	return list(ctx, s, query, args, p.Limit, scanView)
}

func runsQuery(q store.RunFilter, p store.Page) (string, []any, error) {
	f, err := newFilter("r.n", p)
	if err != nil {
		return "", nil, err
	}
	if q.SessionID != "" {
		f.clauses = append(f.clauses, "r.session <> ''") // as the index says
	}
	open := q.Status
	if open.Finished() { // most runs are: no index to begin with
		open = ""
	}
	f.equal("r.session", q.SessionID, true)
	f.equal("r.status", string(open), true)
	f.equal("r.agent", q.Agent, true)
	f.equal("r.env", q.Env, true)
	if q.Status.Finished() {
		f.equal("r.status", string(q.Status), true)
	}
	f.equal("r.capability", q.Capability, false)
	return viewQuery + f.where() + " ORDER BY r.n DESC LIMIT ?", f.args, nil
}

// Holds lists holds, newest first.
func (s *Store) Holds(ctx context.Context, q store.HoldFilter, p store.Page) ([]holds.Hold, string, error) {
	query, args, err := holdsQuery(q, p)
	if err != nil {
		return nil, "", err
	}
	return list(ctx, s, query, args, p.Limit, scanHold)
}

func holdsQuery(q store.HoldFilter, p store.Page) (string, []any, error) {
	f, err := newFilter("h.n", p)
	if err != nil {
		return "", nil, err
	}
	pending := q.Status
	if pending != holds.Pending {
		pending = ""
	}
	f.equal("h.status", string(pending), true)
	f.equal("h.agent", q.Agent, true)
	f.equal("h.env", q.Env, true)
	if pending == "" {
		f.equal("h.status", string(q.Status), true)
	}
	if !q.OpenedBefore.IsZero() {
		f.clauses, f.args = append(f.clauses, "+h.created_at < ?"), append(f.args, q.OpenedBefore.UnixMilli())
	}
	return "SELECT h.n, h.id, h.body FROM holds h WHERE " + f.where() + " ORDER BY h.n DESC LIMIT ?", f.args, nil
}

func scanHold(from scanner) (holds.Hold, int64, error) {
	var n int64
	var id string
	var body []byte
	if err := from.Scan(&n, &id, &body); err != nil {
		return holds.Hold{}, 0, err
	}
	h, err := decodeHold(id, body)
	if err != nil {
		h = &holds.Hold{ID: id, RunID: store.RunOfHold(id)} // one bad hold hides no other
	}
	return *h, n, nil
}

// list reads a page of the query, whose last argument is the limit, and one row
// more to know whether another page follows.
func list[A any](ctx context.Context, s *Store, query string, args []any, limit int, scan func(scanner) (A, int64, error)) ([]A, string, error) {
	type page struct {
		rows []A
		next string
	}
	p, err := read(ctx, s, func(t *txn) (page, error) {
		var p page
		var last int64
		count := 0
		err := t.each(query, append(args, limit+1), func(from scanner) error {
			row, n, err := scan(from)
			if count++; count > limit {
				p.next = strconv.FormatInt(last, 10)
				return nil
			}
			last = n
			switch {
			case errors.Is(err, store.ErrDamaged):
				s.log.LogAttrs(ctx, slog.LevelWarn, "left out of a list: the run cannot be read; see agentos fsck", slog.Any("error", err))
				return nil
			case err != nil:
				return unavailable(err)
			}
			p.rows = append(p.rows, row)
			return nil
		})
		return p, err
	})
	return p.rows, p.next, err
}

// GetState reads a value of agent code.
func (s *Store) GetState(ctx context.Context, scope, key string) (json.RawMessage, error) {
	return read(ctx, s, func(t *txn) (json.RawMessage, error) {
		var value []byte
		err := t.one("SELECT value FROM state WHERE scope = ? AND key = ?", scope, key).Scan(&value)
		if isNone(err) {
			err = store.ErrNotFound
		}
		return value, err
	})
}

// PutState writes a value of agent code.
func (s *Store) PutState(ctx context.Context, scope, key string, value json.RawMessage) error {
	return s.do(ctx, func(t *txn) error {
		return t.exec(`INSERT INTO state (scope, key, value) VALUES (?, ?, ?)
			ON CONFLICT (scope, key) DO UPDATE SET value = excluded.value`, scope, key, blob(value))
	})
}

// DeleteState removes a value of agent code, if it is there.
func (s *Store) DeleteState(ctx context.Context, scope, key string) error {
	return s.do(ctx, func(t *txn) error {
		return t.exec("DELETE FROM state WHERE scope = ? AND key = ?", scope, key)
	})
}
