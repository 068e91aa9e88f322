package redis

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"agentos/runtime/store"
)

// Claim takes runs that are due. With several partitions it first asks each how
// long its runs have been due, so that the oldest of all are taken. A claim is
// not repeated by itself: a lost answer leaves runs leased to nobody until ttl is
// over. What was taken before a partition failed is returned without the error.
func (s *Store) Claim(ctx context.Context, n int, ttl time.Duration) ([]store.Claimed, error) {
	if ttl < time.Millisecond {
		return nil, errors.New("claim: no time to live")
	}
	shares, err := s.shares(ctx, n)
	if err != nil {
		return nil, err
	}
	var all []taken
	for p, share := range shares {
		k := s.partition(p)
		reply, err := s.once(ctx, "claim", s.scripts.claim, []string{k.due(), k.aside()}, k.base, share, millis(ttl))
		if err != nil && len(all) == 0 {
			return nil, err
		}
		if err != nil {
			s.cfg.Log.LogAttrs(ctx, slog.LevelWarn, "part of the claim failed", slog.Any("error", err))
			break
		}
		for _, row := range list(reply) {
			if c, ok := s.claimed(ctx, list(row)); ok {
				all = append(all, c)
			}
		}
	}
	slices.SortStableFunc(all, func(a, b taken) int { return cmp.Compare(a.due, b.due) })
	out := make([]store.Claimed, len(all))
	for i, t := range all {
		out[i] = t.Claimed
	}
	return out, nil
}

// taken is a claimed run and when it had become due.
type taken struct {
	store.Claimed
	due int64
}

// shares returns how many runs to claim from each partition.
func (s *Store) shares(ctx context.Context, n int) (map[int]int, error) {
	if n <= 0 {
		return nil, nil
	}
	if s.cfg.Partitions == 1 {
		return map[int]int{0: n}, nil
	}
	type run struct {
		due       int64
		partition int
	}
	var due []run
	for p := range s.cfg.Partitions {
		k := s.partition(p)
		reply, err := s.read(ctx, "claim", s.scripts.peek, []string{k.due()}, k.base, n)
		if err != nil {
			return nil, err
		}
		times := list(reply)
		for i := range times {
			due = append(due, run{number(times, i), p})
		}
	}
	slices.SortFunc(due, func(a, b run) int { return cmp.Compare(a.due, b.due) })
	out := map[int]int{}
	for _, r := range due[:min(n, len(due))] {
		out[r.partition]++
	}
	return out, nil
}

// claimed reads a row of claim.lua. A run without a record that can be read is told
// in the log and by Health only: there is nothing that could be failed.
func (s *Store) claimed(ctx context.Context, row []any) (taken, bool) {
	id := text(row, 0)
	if len(row) < 2 {
		s.cfg.Log.LogAttrs(ctx, slog.LevelError, "a run that is due has no record that can be read; it is set aside for an hour; see agentos fsck", slog.String("run_id", id))
		return taken{}, false
	}
	c := store.Claimed{Record: record(id, list(at(row, 4))), Lapsed: number(row, 3) == 1}
	c.Lease = store.Lease{RunID: id, Epoch: c.Record.Epoch, Expires: moment(row, 2)}
	var err error
	if c.Journal, err = entries(0, list(at(row, 5))); err != nil {
		c.Journal = nil
	}
	if at(row, 6) != nil {
		if c.Hold, err = hold(c.Record.HoldID, at(row, 6)); err != nil {
			c.Journal, c.Hold = nil, nil
		}
	}
	return taken{c, number(row, 1)}, true
}

// Renew pushes the ends of leases, all of a partition in one request.
func (s *Store) Renew(ctx context.Context, leases []store.Lease, ttl time.Duration) ([]store.Renewal, error) {
	if ttl < time.Millisecond {
		return nil, errors.New("renew: no time to live")
	}
	byPartition := map[int][]int{}
	for i, l := range leases {
		p := s.partitionOf(l.RunID)
		byPartition[p] = append(byPartition[p], i)
	}
	out := make([]store.Renewal, len(leases))
	for p, places := range byPartition {
		if err := s.renew(ctx, s.partition(p), places, leases, ttl, out); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// renew renews leases[i] into out[i] for each i of places.
func (s *Store) renew(ctx context.Context, k keys, places []int, leases []store.Lease, ttl time.Duration, out []store.Renewal) error {
	names, args := []string{k.due()}, []any{k.base, millis(ttl)}
	for _, i := range places {
		names = append(names, k.run(leases[i].RunID))
		args = append(args, leases[i].RunID, leases[i].Epoch)
	}
	reply, err := s.read(ctx, "renew", s.scripts.renew, names, args...)
	if err != nil {
		return err
	}
	rows := list(reply)
	for n, i := range places {
		row := list(at(rows, n))
		out[i] = store.Renewal{Lease: leases[i], Lost: number(row, 0) == 0, CancelBy: unescape(text(row, 1))}
		if !out[i].Lost {
			out[i].Lease.Expires = moment(row, 0)
		}
	}
	return nil
}
