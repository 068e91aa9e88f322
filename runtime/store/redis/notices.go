package redis

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"agentos/runtime/store"
)

// Notices claims notices of each partition in turn, the first of which changes, so
// that none waits for the others. A claim is not repeated by itself; what was taken
// before a partition failed is returned without the error.
func (s *Store) Notices(ctx context.Context, n int, ttl time.Duration) ([]store.Notice, error) {
	if ttl < time.Millisecond {
		return nil, errors.New("notices: no time to live")
	}
	type taken struct {
		store.Notice
		due int64
	}
	var all []taken
	first := int(s.turn.Add(1))
	for i := range s.cfg.Partitions {
		if len(all) >= n {
			break
		}
		k := s.partition((first + i) % s.cfg.Partitions)
		reply, err := s.once(ctx, "claim notices", s.scripts.notices, []string{k.notices()}, k.base, n-len(all), millis(ttl))
		if err != nil && len(all) == 0 {
			return nil, err
		}
		if err != nil {
			break
		}
		for _, r := range list(reply) {
			row := list(r)
			t := taken{store.Notice{RunID: text(row, 0), Env: unescape(text(row, 2)), Seq: number(row, 3), Claim: number(row, 4)}, number(row, 1)}
			if told := text(row, 5); told != "" {
				t.Told = json.RawMessage(told)
			}
			all = append(all, t)
		}
	}
	slices.SortStableFunc(all, func(a, b taken) int { return cmp.Compare(a.due, b.due) })
	out := make([]store.Notice, len(all))
	for i, t := range all {
		out[i] = t.Notice
	}
	return out, nil
}

// Settle keeps what came of telling.
func (s *Store) Settle(ctx context.Context, n store.Settled) error {
	if err := n.Check(); err != nil {
		return err
	}
	k, due := s.keysOf(n.RunID), ""
	if n.Again {
		due = millis(n.Due)
	}
	reply, err := s.read(ctx, "settle notice", s.scripts.settle, []string{k.notices(), k.told(n.RunID), k.run(n.RunID)},
		k.base, n.RunID, n.Claim, n.Seq, due, []byte(n.Told))
	if err != nil {
		return err
	}
	if text(list(reply), 0) != "ok" {
		return fmt.Errorf("settle notice: run %s, claim %d: %w", n.RunID, n.Claim, store.ErrLeaseLost)
	}
	return nil
}

// AppendLog adds items to a log.
func (s *Store) AppendLog(ctx context.Context, name string, seen int64, items ...store.LogItem) ([]string, error) {
	if err := store.CheckAppend(seen, items); err != nil {
		return nil, err
	}
	k := s.keysOf(name)
	args := append(make([]any, 0, 2+2*len(items)), k.base, seen)
	for _, it := range items {
		args = append(args, it.Key, []byte(it.Text))
	}
	reply, err := s.write(ctx, "append to log", s.scripts.append, []string{k.log(name), k.logged(name)}, args...)
	if err != nil {
		return nil, err
	}
	row := list(reply)
	switch text(row, 0) {
	case "ok":
		return nil, nil
	case "known":
		var known []string
		for i := range row[1:] {
			known = append(known, text(row, i+1))
		}
		return known, nil
	}
	return nil, fmt.Errorf("append to log %s: it has %d items: %w", name, number(row, 1), store.ErrConflict)
}

// LogEnd reads the end of a log.
func (s *Store) LogEnd(ctx context.Context, name string) (int64, json.RawMessage, error) {
	k := s.keysOf(name)
	reply, err := s.read(ctx, "read end of log", s.scripts.logEnd, []string{k.log(name)}, k.base)
	if err != nil {
		return 0, nil, err
	}
	row := list(reply)
	n := number(row, 0)
	if n == 0 {
		return 0, nil, nil
	}
	return n, json.RawMessage(text(row, 1)), nil
}

// Log reads items.
func (s *Store) Log(ctx context.Context, name string, after int64, limit int) ([]json.RawMessage, error) {
	if limit < 1 {
		return nil, nil
	}
	reply, err := s.command(ctx, "read log", "lrange", s.keysOf(name).log(name), after, after+int64(limit)-1)
	if err != nil {
		return nil, err
	}
	rows := list(reply)
	out := make([]json.RawMessage, len(rows))
	for i := range rows {
		out[i] = json.RawMessage(text(rows, i))
	}
	return out, nil
}
