package file

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"agentos/runtime/store"
)

// Notices claims notices.
func (s *Store) Notices(ctx context.Context, n int, ttl time.Duration) ([]store.Notice, error) {
	if ttl < time.Millisecond {
		return nil, errors.New("notices: no time to live")
	}
	return change(ctx, s, func(t *txn) ([]store.Notice, error) {
		var numbers []int64
		var out []store.Notice
		err := t.each("SELECT n, id, env, seq, claims + 1, told FROM runs INDEXED BY runs_notify WHERE notify_at <= ? ORDER BY notify_at, n LIMIT ?",
			[]any{t.now, max(n, 0)}, func(from scanner) error {
				var number int64
				var one store.Notice
				if err := from.Scan(&number, &one.RunID, &one.Env, &one.Seq, &one.Claim, (*[]byte)(&one.Told)); err != nil {
					return unavailable(err)
				}
				if len(one.Told) == 0 {
					one.Told = nil
				}
				numbers, out = append(numbers, number), append(out, one)
				return nil
			})
		if err != nil {
			return nil, err
		}
		for _, number := range numbers {
			end := t.now + ttl.Milliseconds()
			if err := t.exec("UPDATE runs SET notify_at = ?, claimed = ?, claims = claims + 1 WHERE n = ?", end, end, number); err != nil {
				return nil, err
			}
		}
		return out, nil
	})
}

// Settle keeps what came of telling.
func (s *Store) Settle(ctx context.Context, n store.Settled) error {
	if err := n.Check(); err != nil {
		return err
	}
	_, err := change(ctx, s, func(t *txn) (struct{}, error) {
		var number, seq, claims int64
		err := t.one("SELECT n, seq, claims FROM runs WHERE id = ?", n.RunID).Scan(&number, &seq, &claims)
		if isNone(err) || err == nil && claims != n.Claim {
			err = fmt.Errorf("settle notice: run %s, claim %d: %w", n.RunID, n.Claim, store.ErrLeaseLost)
		}
		if err != nil {
			return struct{}{}, err
		}
		var at any
		switch {
		case seq != n.Seq:
			at = t.now
		case n.Again:
			at = t.now + n.Due.Milliseconds()
		}
		return struct{}{}, t.exec("UPDATE runs SET told = ?, claimed = 0, notify_at = ? WHERE n = ?", blob(n.Told), at, number)
	})
	return err
}

// AppendLog adds items to a log.
func (s *Store) AppendLog(ctx context.Context, name string, seen int64, items ...store.LogItem) ([]string, error) {
	if err := store.CheckAppend(seen, items); err != nil {
		return nil, err
	}
	return change(ctx, s, func(t *txn) ([]string, error) {
		var known []string
		for _, it := range items {
			var there int
			err := t.one("SELECT 1 FROM logs WHERE name = ? AND key = ?", name, it.Key).Scan(&there)
			if err == nil {
				known = append(known, it.Key)
			} else if !isNone(err) {
				return nil, err
			}
		}
		if len(known) > 0 {
			return known, nil
		}
		var length int64
		if err := t.one("SELECT coalesce(max(place), 0) FROM logs WHERE name = ?", name).Scan(&length); err != nil {
			return nil, err
		}
		if length != seen {
			return nil, fmt.Errorf("append to log %s: it has %d items: %w", name, length, store.ErrConflict)
		}
		for i, it := range items {
			err := t.exec("INSERT INTO logs (name, place, key, item) VALUES (?, ?, ?, ?)", name, seen+int64(i)+1, it.Key, blob(it.Text))
			if err != nil {
				return nil, err
			}
		}
		return nil, nil
	})
}

// LogEnd reads the end of a log.
func (s *Store) LogEnd(ctx context.Context, name string) (int64, json.RawMessage, error) {
	var n int64
	var last []byte
	_, err := read(ctx, s, func(t *txn) (struct{}, error) {
		err := t.one("SELECT place, item FROM logs WHERE name = ? ORDER BY place DESC LIMIT 1", name).Scan(&n, &last)
		if isNone(err) {
			err = nil
		}
		return struct{}{}, err
	})
	return n, last, err
}

// Log reads items.
func (s *Store) Log(ctx context.Context, name string, after int64, limit int) ([]json.RawMessage, error) {
	return read(ctx, s, func(t *txn) ([]json.RawMessage, error) {
		var out []json.RawMessage
		err := t.each("SELECT item FROM logs WHERE name = ? AND place > ? ORDER BY place LIMIT ?",
			[]any{name, after, max(limit, 0)}, func(from scanner) error {
				var item []byte
				if err := from.Scan(&item); err != nil {
					return unavailable(err)
				}
				out = append(out, item)
				return nil
			})
		return out, err
	})
}
