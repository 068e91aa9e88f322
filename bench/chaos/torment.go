package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"agentos/internal/clock"
)

// torment drives all runs through a cluster while the faults happen, lets
// everything come to rest, and judges what is there. Nothing it started is left
// when it returns.
func torment(ctx context.Context, s settings, dir string, progress io.Writer) (*report, error) {
	m, err := startModel()
	if err != nil {
		return nil, err
	}
	defer m.close()
	c, err := newCluster(ctx, s, dir, m.url)
	if err != nil {
		return nil, err
	}
	defer c.close()
	fmt.Fprintf(progress, "chaos: %d workers on %s, files in %s\n", s.workers, c.store, dir)
	began := clock.System{}.Now()
	stories, faults, err := play(ctx, s, c, progress)
	if err != nil {
		return nil, err
	}
	took := clock.System{}.Now().Sub(began)
	r := &report{
		Runs: s.runs, Seed: s.seed, Workers: s.workers, AppendFsync: s.fsync, Lease: s.lease.String(),
		Seconds: took.Seconds(), RunsPerSec: float64(s.runs) / took.Seconds(), Faults: faults, Fsck: "not available",
	}
	e, err := gather(ctx, c, stories)
	if err != nil {
		return nil, err
	}
	r.tell(e)
	r.Violations = slices.Concat(e.judge(), e.told(), m.judge())
	r.ModelCalls = m.calls
	if has, err := c.hasFsck(ctx); err != nil || !has {
		return r.forgiven(s), err
	}
	faulty, err := c.fsck(ctx)
	r.Fsck = "clean"
	if faulty != "" {
		r.Fsck = "faulty"
		r.Violations = append(r.Violations, violation{Check: checkFsck, Text: faulty})
	}
	return r.forgiven(s), err
}

// forgiven sorts out what Redis was allowed to lose.
func (r *report) forgiven(s settings) *report {
	if s.fsync != "always" {
		r.Violations, r.Lost = forgive(r.Violations)
	}
	return r
}

// play drives the runs and the faults to their end.
func play(ctx context.Context, s settings, c *cluster, progress io.Writer) ([]*story, map[fault]int, error) {
	driving, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	plan := newSchedule(s)
	tormented := make(chan error, 1)
	go func() {
		err := plan.torment(driving, c)
		if err != nil {
			stop(err)
		}
		tormented <- err
	}()
	d := &driver{clients: c.clients, seed: s.seed}
	stories := make([]*story, s.runs)
	var next, done atomic.Int64
	var clients sync.WaitGroup
	for range s.clients {
		clients.Go(func() {
			for {
				n := int(next.Add(1)) - 1
				if n >= s.runs {
					return
				}
				plan.begin(driving, n)
				stories[n] = d.drive(driving, newPlan(s.seed, n))
				done.Add(1)
			}
		})
	}
	rested := make(chan struct{})
	go func() {
		clients.Wait()
		close(rested)
	}()
	err := watch(ctx, rested, tormented, stop, func() {
		fmt.Fprintf(progress, "chaos: %d of %d runs, faults: %s\n", done.Load(), s.runs, list(plan.counts()))
	})
	return stories, plan.counts(), err
}

// watch waits for the faults and then for the runs, which have settleTime left
// from there on. What has not come to rest by then is for the audit to report.
func watch(ctx context.Context, rested <-chan struct{}, tormented <-chan error, stop context.CancelCauseFunc, tell func()) error {
	var late <-chan time.Time
	for {
		select {
		case err := <-tormented:
			if err != nil {
				<-rested
				return err
			}
			tormented, late = nil, clock.System{}.After(settleTime)
		case <-rested:
			if tormented != nil {
				if err := <-tormented; err != nil {
					return err
				}
			}
			return ctx.Err()
		case <-late:
			stop(errors.New("the runs have not come to rest in time"))
			late = nil
		case <-clock.System{}.After(10 * time.Second):
			tell()
		}
	}
}

// judge returns what the model found wrong with the requests it got.
func (m *model) judge() []violation {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := m.faults
	for _, text := range m.strange {
		out = append(out, violation{Check: checkHistory, Text: "a request about none of the runs: " + text})
	}
	return out
}
