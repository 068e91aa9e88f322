package file

import "context"

const (
	// sweepEvery is how often finished runs are looked at, in ms.
	sweepEvery = 60_000
	// sweepBatch is the most runs deleted at once: few enough that the writer is
	// back within milliseconds.
	sweepBatch = 50
)

// sweep deletes a batch of the runs whose retention is over, with their entries,
// holds and state. It runs on the writer's goroutine after a group; while there
// is more to delete, after each one. An unfinished run is never looked at. What
// goes wrong is tried again next time, and the writes that fail for the same
// reason say it.
func (s *Store) sweep(ctx context.Context, c *conn) {
	now := s.now()
	if s.retention <= 0 || now-s.swept < sweepEvery {
		return
	}
	s.swept = now
	t := &txn{conn: c, ctx: ctx, now: now}
	n, err := t.deleteFinished(now - s.retention)
	if err != nil {
		_ = t.exec("ROLLBACK") //nolint:errcheck // fails when the transaction never began or is gone
		return
	}
	if n == sweepBatch {
		s.swept = 0
	}
}

// deleteFinished deletes runs that finished before the time, and says how many.
func (t *txn) deleteFinished(before int64) (int, error) {
	type key struct {
		n  int64
		id string
	}
	var keys []key
	err := t.each("SELECT n, id FROM runs INDEXED BY runs_finished WHERE due IS NULL AND updated_at < ? ORDER BY updated_at LIMIT ?",
		[]any{before, sweepBatch}, func(from scanner) error {
			var k key
			err := from.Scan(&k.n, &k.id)
			keys = append(keys, k)
			return err
		})
	if err != nil || len(keys) == 0 {
		return 0, err
	}
	if err := t.exec("BEGIN IMMEDIATE"); err != nil {
		return 0, err
	}
	for _, k := range keys {
		for _, q := range []struct {
			text string
			args []any
		}{
			{"DELETE FROM entries WHERE id > ? AND id <= ?", []any{k.n << seqBits, k.n<<seqBits | maxSeq}},
			{"DELETE FROM holds WHERE run = ?", []any{k.n}},
			{"DELETE FROM state WHERE scope = ?", []any{"run/" + k.id}},
			{"DELETE FROM runs WHERE n = ?", []any{k.n}},
		} {
			if err := t.exec(q.text, q.args...); err != nil {
				return 0, err
			}
		}
	}
	return len(keys), t.exec("COMMIT")
}
