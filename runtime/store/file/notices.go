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

// AppendLog adds an item to a log.
func (s *Store) AppendLog(ctx context.Context, name string, a store.Append) (int64, error) {
	if err := a.Check(); err != nil {
		return 0, err
	}
	return change(ctx, s, func(t *txn) (int64, error) {
		var place int64
		err := t.one("SELECT place FROM logs WHERE name = ? AND key = ?", name, a.Key).Scan(&place)
		if !isNone(err) {
			return place, err
		}
		if err := t.one("SELECT coalesce(max(place), 0) FROM logs WHERE name = ?", name).Scan(&place); err != nil {
			return 0, err
		}
		if place != a.Seen {
			return 0, fmt.Errorf("append to log %s: it has %d items: %w", name, place, store.ErrConflict)
		}
		return place + 1, t.exec("INSERT INTO logs (name, place, key, item) VALUES (?, ?, ?, ?)", name, place+1, a.Key, blob(a.Item))
	})
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
