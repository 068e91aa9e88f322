package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"agentos/api"
	"agentos/api/client"
	"agentos/internal/clock"
	"agentos/runtime/journal"
)

// takeovers is how many processes are killed, and takeoverLease what their runs are
// leased for: less than by default, so that the measurement does not consist of
// waiting for it.
const (
	takeovers     = 3
	takeoverLease = 5 * time.Second
)

// takeover kills processes in the middle of a call and measures how long the run
// waits for the process that is left.
func (b *bench) takeover(ctx context.Context) error {
	var took []int64
	for i := range takeovers {
		back, err := newBacking(ctx, redisStore, b.dir, b.fsync)
		if err != nil {
			return err
		}
		d, err := takeOver(ctx, back, takeoverLease, time.Duration(i)*time.Second/takeovers)
		if err := errors.Join(err, back.close()); err != nil {
			return err
		}
		took = append(took, d.Microseconds())
	}
	b.out.Takeover = takeover{Kills: takeovers, Lease: takeoverLease.Microseconds(), Longest: slices.Max(took), Median: median(took)}
	return nil
}

// takeOver starts two servers, kills the one that works on a run, and returns how
// long after that the other has it. later puts the kill off: a worker looks for
// runs once in a second, and the kills should not all come at the same time of it.
func takeOver(ctx context.Context, back *backing, lease, later time.Duration) (took time.Duration, err error) {
	var pair []*child
	defer func() {
		for _, c := range pair {
			err = errors.Join(err, c.kill()) // its tool would not let it end in peace
		}
	}()
	for range 2 {
		cmd, err := self(serveCommand, "-store", back.url(), "-lease", lease.String())
		if err != nil {
			return 0, err
		}
		// Killed, it cannot delete its files; they go with those of the store.
		cmd.Env = append(os.Environ(), "TMPDIR="+back.dir)
		c, err := startChild(ctx, cmd)
		if err != nil {
			return 0, err
		}
		pair = append(pair, c)
	}
	owner, err := newClient(pair[0].url)
	if err != nil {
		return 0, err
	}
	other, err := newClient(pair[1].url)
	if err != nil {
		return 0, err
	}
	r, err := owner.CreateRun(ctx, client.CreateRun{Env: environment, Agent: "bench", Capability: stuck, Body: api.CreateRun{Input: input()}})
	if err != nil {
		return 0, err
	}
	// The process that creates a run works on it.
	seq, err := until(ctx, owner, r.RunID, 0, journal.CallStarted)
	if err != nil {
		return 0, err
	}
	select {
	case <-ctx.Done():
		return 0, ctx.Err()
	case <-clock.System{}.After(later):
	}
	began := now()
	err = pair[0].kill()
	pair = pair[1:]
	if err != nil {
		return 0, err
	}
	_, err = until(ctx, other, r.RunID, seq, journal.RunRecovered)
	return now().Sub(began), err
}

// until follows a run until its journal has an entry of a type, and returns the
// entry's number.
func until(ctx context.Context, c *client.Client, run string, after int64, want journal.Type) (seq int64, err error) {
	ctx, stop := context.WithTimeout(ctx, time.Minute)
	defer stop()
	for e, err := range c.Events(ctx, environment, run, after) {
		if err != nil {
			return 0, fmt.Errorf("waiting for %s: %w", want, err)
		}
		if e.Type == string(want) {
			return e.Seq, nil
		}
	}
	return 0, fmt.Errorf("run %s ended without %s", run, want)
}
