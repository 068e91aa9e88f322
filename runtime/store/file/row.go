package file

import (
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"agentos/holds"
	"agentos/internal/rawjson"
	"agentos/runtime/journal"
	"agentos/runtime/store"
)

// row is a run as the table has it.
type row struct {
	store.Record
	n       int64
	request string
	leased  bool
	// due is 0 when the run is finished.
	due   int64
	op    string
	opSeq int64
	// unreadable says what of the record no program of ours has written, or "".
	unreadable string
}

const runColumns = `r.n, r.id, r.request, r.env, r.agent, r.capability, r.session, r.status, r.seq, r.epoch, r.idle,
	r.leased, coalesce(r.due, 0), r.hold, r.cancel_by, r.summary, r.created_at, r.updated_at, r.op, r.op_seq`

// fields are the places for runColumns; scanRun makes of the mark and the times what
// the row has of them.
func (r *row) fields(leased, created, updated *int64) []any {
	return []any{
		&r.n, &r.ID, &r.request, &r.Env, &r.Agent, &r.Capability, &r.SessionID, &r.Status, &r.Seq, &r.Epoch, &r.Idle,
		leased, &r.due, &r.HoldID, &r.CancelBy, (*[]byte)(&r.Summary), created, updated, &r.op, &r.opSeq,
	}
}

// scanner is a *sql.Row or *sql.Rows.
type scanner interface{ Scan(dest ...any) error }

// scanRun reads runColumns and whatever follows them.
func scanRun(from scanner, more ...any) (*row, error) {
	var r row
	var created, updated, leased int64
	if err := from.Scan(append(r.fields(&leased, &created, &updated), more...)...); err != nil {
		return nil, err
	}
	r.leased = leased == 1
	switch s := r.Status; {
	case s != store.Queued && s != store.Running && s != store.Held && !s.Finished():
		r.unreadable = fmt.Sprintf("its status is %.64q", s)
	case leased != 0 && leased != 1:
		r.unreadable = fmt.Sprintf("its mark of a lease is %d", leased)
	case r.Seq < 1 || r.Seq > maxSeq || r.Epoch < 0 || r.Idle < 0:
		r.unreadable = fmt.Sprintf("it counts %d entries, %d leases and %d claims", r.Seq, r.Epoch, r.Idle)
	}
	r.CreatedAt, r.UpdatedAt = moment(created), moment(updated)
	if len(r.Summary) == 0 {
		r.Summary = nil
	}
	return &r, nil
}

func moment(ms int64) time.Time { return time.UnixMilli(ms).UTC() }

// lease is the lease of a leased run.
func (r *row) lease() store.Lease {
	return store.Lease{RunID: r.ID, Epoch: r.Epoch, Expires: moment(r.due)}
}

// give leases the run under a new epoch.
func (r *row) give(now int64, ttl time.Duration) store.Lease {
	r.Epoch++
	r.leased, r.due = true, now+ttl.Milliseconds()
	return r.lease()
}

// one is the single row of a query.
type one struct {
	row *sql.Row
	err error
}

// Scan reads the row; sql.ErrNoRows when there is none.
func (o one) Scan(dest ...any) error {
	err := o.err
	if err == nil {
		err = o.row.Scan(dest...)
	}
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return unavailable(err)
	}
	return err
}

func (t *txn) one(query string, args ...any) one {
	st, err := t.stmt(t.ctx, query)
	if err != nil {
		return one{err: err}
	}
	return one{row: st.QueryRowContext(t.ctx, args...)}
}

// each calls f for every row of the query.
func (t *txn) each(query string, args []any, f func(scanner) error) error {
	st, err := t.stmt(t.ctx, query)
	if err != nil {
		return unavailable(err)
	}
	rows, err := st.QueryContext(t.ctx, args...)
	if err != nil {
		return unavailable(err)
	}
	for rows.Next() {
		if err := f(rows); err != nil {
			return errors.Join(err, rows.Close())
		}
	}
	if err := errors.Join(rows.Err(), rows.Close()); err != nil {
		return unavailable(err)
	}
	return nil
}

// run reads the run called id, store.ErrNotFound when there is none,
// store.ErrDamaged when it cannot be read.
func (t *txn) run(id string) (*row, error) {
	r, err := scanRun(t.one("SELECT "+runColumns+" FROM runs r WHERE r.id = ?", id))
	if errors.Is(err, sql.ErrNoRows) {
		return nil, fmt.Errorf("run %s: %w", id, store.ErrNotFound)
	}
	if err != nil {
		return nil, err
	}
	return r, r.damage()
}

// damage is store.ErrDamaged for a row that cannot be read.
func (r *row) damage() error {
	if r.unreadable == "" {
		return nil
	}
	return damaged(r.ID, "its record cannot be read: %s", r.unreadable)
}

// save writes what changes in a run: op becomes its newest operation, which found
// it at seq before. notify has others told of the run, once nobody is at it.
func (t *txn) save(r *row, op string, before int64, notify bool) error {
	r.UpdatedAt = moment(t.now)
	if r.Seq > before || !r.leased {
		r.Idle = 0
	}
	r.op, r.opSeq = op, before
	due := sql.NullInt64{Int64: r.due, Valid: !r.Status.Finished()}
	if notify {
		if err := t.exec("UPDATE runs SET notify_at = max(claimed, ?) WHERE n = ?", t.now, r.n); err != nil {
			return err
		}
	}
	return t.exec(`UPDATE runs SET status = ?, seq = ?, epoch = ?, idle = ?, leased = ?, due = ?, hold = ?, cancel_by = ?,
		summary = ?, updated_at = ?, op = ?, op_seq = ? WHERE n = ?`,
		r.Status, r.Seq, r.Epoch, r.Idle, r.leased, due, r.HoldID, r.CancelBy,
		blob(r.Summary), t.now, r.op, r.opSeq, r.n)
}

// blob is raw as a value that is never NULL.
func blob(raw json.RawMessage) []byte {
	if raw == nil {
		return []byte{}
	}
	return raw
}

// append gives the entries their place and time.
func (t *txn) append(r *row, entries []journal.New) ([]journal.Entry, error) {
	if r.Seq+int64(len(entries)) > maxSeq {
		return nil, fmt.Errorf("run %s: a journal holds at most %d entries", r.ID, maxSeq)
	}
	var out []journal.Entry
	for _, e := range entries {
		r.Seq++
		if err := t.exec("INSERT INTO entries (id, at, type, data) VALUES (?, ?, ?, ?)", r.n<<seqBits|r.Seq, t.now, e.Type, blob(e.Data)); err != nil {
			return nil, err
		}
		out = append(out, journal.Entry{Seq: r.Seq, At: moment(t.now), Type: e.Type, Data: e.Data})
	}
	t.changed = r.ID
	return out, nil
}

// entries reads the journal of r after seq after; store.ErrDamaged when it is not
// all there.
func (t *txn) entries(r *row, after int64) ([]journal.Entry, error) {
	after = max(after, 0)
	var out []journal.Entry
	if after >= r.Seq {
		return nil, nil
	}
	err := t.each("SELECT id, at, type, data FROM entries WHERE id > ? AND id <= ? ORDER BY id",
		[]any{r.n<<seqBits | after, r.n<<seqBits | maxSeq}, func(s scanner) error {
			var e entryFields
			if err := s.Scan(e.fields()...); err != nil {
				return unavailable(err)
			}
			out = append(out, e.entry())
			return nil
		})
	if err != nil {
		return nil, err
	}
	for i, e := range out {
		if e.Seq != after+int64(i)+1 {
			return nil, damaged(r.ID, "entry %d is missing", after+int64(i)+1)
		}
	}
	if have := after + int64(len(out)); have != r.Seq {
		return nil, damaged(r.ID, "it has %d entries of %d", have, r.Seq)
	}
	return out, nil
}

func damaged(runID, format string, args ...any) error {
	return fmt.Errorf("run %s: %w: "+format, append([]any{runID, store.ErrDamaged}, args...)...)
}

// entryFields are the columns id, at, type and data of an entry that may be
// missing.
type entryFields struct {
	id, at sql.NullInt64
	typ    sql.NullString
	data   []byte
}

func (e *entryFields) fields() []any { return []any{&e.id, &e.at, &e.typ, &e.data} }

func (e *entryFields) entry() journal.Entry {
	if !e.id.Valid {
		return journal.Entry{}
	}
	return journal.Entry{Seq: e.id.Int64 & maxSeq, At: moment(e.at.Int64), Type: journal.Type(e.typ.String), Data: e.data}
}

// hold reads the hold called id; store.ErrNotFound when there is none.
func (t *txn) hold(id string) (*holds.Hold, error) {
	var body []byte
	err := t.one("SELECT body FROM holds WHERE id = ?", id).Scan(&body)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, fmt.Errorf("hold %s: %w", id, store.ErrNotFound)
	}
	if err != nil {
		return nil, err
	}
	return decodeHold(id, body)
}

func decodeHold(id string, body []byte) (*holds.Hold, error) {
	var h holds.Hold
	if err := json.Unmarshal(body, &h); err != nil {
		return nil, damaged(store.RunOfHold(id), "hold %s: %v", id, err)
	}
	return &h, nil
}

// putHold stores a hold of the run, and has the run point at it while it is
// pending.
func (t *txn) putHold(r *row, h *holds.Hold) error {
	r.HoldID = ""
	if h.Status == holds.Pending {
		r.HoldID = h.ID
	}
	body, err := rawjson.Marshal(h)
	if err != nil {
		return fmt.Errorf("hold %s: %w", h.ID, err)
	}
	return t.exec(`INSERT INTO holds (id, run, env, agent, status, revision, created_at, expires_at, body)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT (id) DO UPDATE SET status = excluded.status, revision = excluded.revision, expires_at = excluded.expires_at, body = excluded.body`,
		h.ID, r.n, h.Env, h.Agent, h.Status, h.Revision, h.CreatedAt.UnixMilli(), h.ExpiresAt.UnixMilli(), body)
}
