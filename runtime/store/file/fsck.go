package file

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"agentos/holds"
	"agentos/runtime/store"
)

var _ store.Inspector = (*Store)(nil)

// Parts of a trace that belong to no run.
const (
	wholeFile   = "file"
	entriesOf   = "entries of run number "
	strangeHold = "hold "
	documentOf  = "document number "
)

// tracePage is how many traces are read at once.
const tracePage = 500

// tracing is a query that pages through traces by a key that grows. Its columns
// are the key, a run id and a part.
type tracing struct {
	query string
	first any
}

// tracings are runs, then what belongs to no run: entries, holds, state, documents. A hold
// belongs to the run its id names; an index may say otherwise.
func tracings() []tracing {
	return []tracing{
		{"SELECT n, id, '' FROM runs WHERE n > ? ORDER BY n LIMIT ?", int64(-1 << 62)},
		{`SELECT e.id | ` + strconv.Itoa(maxSeq) + ` AS last, '', '` + entriesOf + `' || (e.id >> ` + strconv.Itoa(seqBits) + `) FROM entries e
			WHERE e.id > ? AND NOT EXISTS (SELECT 1 FROM runs r WHERE r.n = e.id >> ` + strconv.Itoa(seqBits) + `)
			GROUP BY last ORDER BY last LIMIT ?`, int64(-1 << 62)},
		{`SELECT h.n, '', '` + strangeHold + `' || h.id FROM holds h WHERE h.n > ? AND NOT EXISTS (SELECT 1 FROM runs r
			WHERE r.n = h.run AND substr(h.id, 1, length(r.id) + 1) = 'h_' || substr(r.id, 3) || '_') ORDER BY h.n LIMIT ?`, int64(-1 << 62)},
		{`SELECT DISTINCT s.scope, substr(s.scope, 5), '' FROM state s WHERE s.scope > ? AND s.scope < 'run0'
			AND NOT EXISTS (SELECT 1 FROM runs r WHERE r.id = substr(s.scope, 5)) ORDER BY s.scope LIMIT ?`, "run/"},
		{"SELECT n, '', '" + documentOf + "' || n FROM documents WHERE n > ? ORDER BY n LIMIT ?", int64(-1 << 62)},
	}
}

// Traces goes through the file as such, the runs, and what lacks a run.
func (s *Store) Traces(ctx context.Context, visit func([]store.Trace) error) error {
	if err := visit([]store.Trace{{Part: wholeFile}}); err != nil {
		return err
	}
	for _, q := range tracings() {
		for after := q.first; ; {
			page, last, err := s.traces(ctx, q.query, after)
			if err != nil || len(page) == 0 {
				if err != nil {
					return err
				}
				break
			}
			if err := visit(page); err != nil {
				return err
			}
			after = last
		}
	}
	return nil
}

// traces reads a page after a key, and the last key of the page.
func (s *Store) traces(ctx context.Context, query string, after any) (page []store.Trace, last any, err error) {
	page, err = read(ctx, s, func(t *txn) (page []store.Trace, err error) {
		err = t.each(query, []any{after, tracePage}, func(from scanner) error {
			var tr store.Trace
			if err := from.Scan(&last, &tr.RunID, &tr.Part); err != nil {
				return unavailable(err)
			}
			if id, ok := strings.CutPrefix(tr.Part, strangeHold); ok && store.RunOfHold(id) != "" {
				tr = store.Trace{RunID: store.RunOfHold(id)}
			}
			page = append(page, tr)
			return nil
		})
		return page, err
	})
	return page, last, err
}

// Inspect reads a run and checks its row against its entries and holds. The
// tables' own indexes are SQLite's, and are checked with the file.
func (s *Store) Inspect(ctx context.Context, tr store.Trace, repair bool) (store.Inspection, error) {
	look := read[store.Inspection]
	if repair {
		look = change[store.Inspection]
	}
	return look(ctx, s, func(t *txn) (store.Inspection, error) {
		i := &inspection{txn: t, repair: repair, id: tr.RunID}
		err := i.look(tr)
		return i.out, err
	})
}

// inspection is the look at one trace.
type inspection struct {
	*txn
	repair bool
	id     string
	out    store.Inspection
}

func (i *inspection) found(code store.FindingCode, holdID, format string, args ...any) {
	i.out.Findings = append(i.out.Findings, store.Found(code, i.id, holdID, fmt.Sprintf(format, args...)))
}

// fixed is found for what an index says wrong; the query sets it right.
func (i *inspection) fixed(f store.Finding, query string, args ...any) error {
	if i.repair {
		if err := i.exec(query, args...); err != nil {
			return err
		}
		f.Repaired = true
	}
	i.out.Findings = append(i.out.Findings, f)
	return nil
}

func (i *inspection) look(tr store.Trace) error {
	if number, ok := strings.CutPrefix(tr.Part, documentOf); ok {
		return i.document(number)
	}
	switch number, entries := strings.CutPrefix(tr.Part, entriesOf); {
	case tr.Part == wholeFile:
		return i.file()
	case entries:
		return i.orphanEntries(number)
	case tr.RunID == "":
		i.found(store.HoldOrphan, strings.TrimPrefix(tr.Part, strangeHold), "its id names no run")
		return nil
	}
	r, err := i.run(tr.RunID)
	if errors.Is(err, store.ErrNotFound) {
		return i.orphans()
	}
	if errors.Is(err, store.ErrDamaged) {
		i.found(store.RecordDamaged, "", "%v", err)
		return nil
	}
	if err != nil {
		return err
	}
	i.out.Record = &r.Record
	if i.out.Journal, err = i.entries(r, 0); errors.Is(err, store.ErrDamaged) {
		i.found(store.JournalIncomplete, "", "%v", err)
	} else if err != nil {
		return err
	} else if r.Seq < 1 {
		i.found(store.JournalIncomplete, "", "the record counts %d entries", r.Seq)
	}
	expiry, err := i.holds(r)
	if err != nil {
		return err
	}
	if r.leased && (r.Status.Finished() || r.Status == store.Queued) {
		i.found(store.LeaseStray, "", "it is %s", r.Status)
	}
	return i.due(r, expiry)
}

// isIndexFault reports whether SQLite tells of an index that does not agree with
// its table.
func isIndexFault(line string) bool {
	return strings.Contains(line, "missing from index") || strings.Contains(line, "entries in index")
}

// file has SQLite check the file.
func (i *inspection) file() error {
	var faults []string
	indexes := true
	err := i.each("PRAGMA integrity_check(20)", nil, func(from scanner) error {
		var line string
		err := from.Scan(&line)
		if line != "ok" {
			faults = append(faults, line)
			indexes = indexes && isIndexFault(line)
		}
		return err
	})
	if err != nil || len(faults) == 0 {
		return err
	}
	code := store.FileDamaged
	if indexes {
		code = store.FileIndex
	}
	f := store.Found(code, "", "", strings.Join(faults, "; "))
	if !indexes {
		i.out.Findings = append(i.out.Findings, f)
		return nil
	}
	return i.fixed(f, "REINDEX")
}

func (i *inspection) orphanEntries(number string) error {
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil {
		return fmt.Errorf("inspect: %q is no run number", number)
	}
	var runs, count int
	err = i.one("SELECT (SELECT count(*) FROM runs WHERE n = ?), (SELECT count(*) FROM entries WHERE id BETWEEN ? AND ?)",
		n, n<<seqBits, n<<seqBits|maxSeq).Scan(&runs, &count)
	if err == nil && runs == 0 && count > 0 {
		i.found(store.JournalOrphan, "", "%d entries of run number %d", count, n)
	}
	return err
}

// document reads a document as those who need it will.
func (i *inspection) document(number string) error {
	var env, name string
	var d store.Document
	err := i.one("SELECT env, name, version, text FROM documents WHERE n = ?", number).Scan(&env, &name, &d.Version, (*[]byte)(&d.Text))
	if isNone(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if fault := d.Check(name); fault != nil {
		i.found(store.DocumentDamaged, "", "of environment %q: %v", env, fault)
	}
	return nil
}

// orphans are holds and state of a run that does not exist.
func (i *inspection) orphans() error {
	err := i.eachHold(func(row holdRow) error {
		i.found(store.HoldOrphan, row.id, "it is %s", row.status)
		return nil
	})
	if err != nil {
		return err
	}
	var keys int
	err = i.one("SELECT count(*) FROM state WHERE scope = ?", "run/"+i.id).Scan(&keys)
	if err == nil && keys > 0 {
		i.found(store.StateOrphan, "", "%d values", keys)
	}
	return err
}

// holdRow is a hold as its row tells it.
type holdRow struct {
	id                 string
	n, run             int64
	env, agent         string
	status             holds.Status
	revision, expiryMS int64
	body               []byte
}

// eachHold calls f for every hold whose id names the run.
func (i *inspection) eachHold(f func(holdRow) error) error {
	from := strings.TrimSuffix(store.HoldID(i.id, 0), "0")
	var rows []holdRow
	err := i.each(`SELECT n, id, run, env, agent, status, revision, expires_at, body FROM holds
		WHERE id > ? AND id < ? ORDER BY n`, []any{from, from[:len(from)-1] + "`"}, func(s scanner) error {
		var r holdRow
		if err := s.Scan(&r.n, &r.id, &r.run, &r.env, &r.agent, &r.status, &r.revision, &r.expiryMS, &r.body); err != nil {
			return unavailable(err)
		}
		if store.RunOfHold(r.id) == i.id {
			rows = append(rows, r)
		}
		return nil
	})
	for _, r := range rows {
		if err == nil {
			err = f(r)
		}
	}
	return err
}

// holds reads the holds of the run and checks that lists show them as they are.
// It returns the expiry of the pending one, 0 when it cannot be told.
func (i *inspection) holds(r *row) (expiry int64, err error) {
	seen := false
	err = i.eachHold(func(row holdRow) error {
		seen = seen || row.id == r.HoldID
		h, err := decodeHold(row.id, row.body)
		switch {
		case err != nil || h.ID != row.id:
			i.found(store.HoldDamaged, row.id, "it cannot be read: %v", err)
			return nil
		case h.Status != row.status || h.Revision != row.revision || h.ExpiresAt.UnixMilli() != row.expiryMS:
			i.found(store.HoldDamaged, row.id, "it is %s at revision %d until %s, and %s at revision %d until %s",
				h.Status, h.Revision, stampOf(h.ExpiresAt.UnixMilli()), row.status, row.revision, stampOf(row.expiryMS))
			return nil
		}
		i.out.Holds = append(i.out.Holds, *h)
		if h.ID == r.HoldID {
			expiry = row.expiryMS
		}
		if h.Status == holds.Pending && h.ID != r.HoldID {
			i.found(store.HoldStray, h.ID, "it is pending, and its run waits on %q", r.HoldID)
		}
		if row.env == h.Env && row.agent == h.Agent && row.run == r.n {
			return nil
		}
		f := store.Found(store.HoldListStray, i.id, h.ID,
			fmt.Sprintf("it is listed for %s in %s, run number %d; it belongs to %s in %s, run number %d", row.agent, row.env, row.run, h.Agent, h.Env, r.n))
		return i.fixed(f, "UPDATE holds SET env = ?, agent = ?, run = ? WHERE n = ?", h.Env, h.Agent, r.n, row.n)
	})
	if err == nil && r.HoldID != "" && !seen {
		i.found(store.HoldMissing, r.HoldID, "the run waits on it")
	}
	return expiry, err
}

func stampOf(ms int64) string { return moment(ms).Format("2006-01-02T15:04:05.000Z") }

// due checks when somebody looks at the run again. A run in nobody's hands may be
// due at any time: what made it wait is not kept.
func (i *inspection) due(r *row, expiry int64) error {
	const set = "UPDATE runs SET due = ? WHERE n = ?"
	switch {
	case r.Status.Finished() && r.due != 0:
		f := store.Found(store.DueStray, i.id, "", "it is "+string(r.Status))
		return i.fixed(f, "UPDATE runs SET due = NULL WHERE n = ?", r.n)
	case r.Status.Finished():
		return nil
	case r.due == 0:
		at := i.now
		if r.Status == store.Held && !r.leased && expiry != 0 {
			at = expiry
		}
		return i.fixed(store.Found(store.DueMissing, i.id, "", "it is "+string(r.Status)), set, at, r.n)
	case r.Status == store.Held && !r.leased && expiry != 0 && r.due != expiry:
		f := store.Found(store.DueTime, i.id, r.HoldID, "it is due at "+stampOf(r.due)+", the hold expires at "+stampOf(expiry))
		return i.fixed(f, set, expiry, r.n)
	}
	return nil
}
