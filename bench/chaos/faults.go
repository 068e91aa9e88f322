package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"agentos/internal/clock"
)

// fault is a kind of fault.
type fault string

// The faults. The first three are about workers, of which one at a time is away;
// the others happen beside them.
const (
	killWorker fault = "kill_worker" // SIGKILL, then started again
	stopWorker fault = "stop_worker" // SIGSTOP for longer than its lease, then SIGCONT
	termWorker fault = "term_worker" // SIGTERM, then started again: a rolling restart
	killRedis  fault = "kill_redis"  // SIGKILL, then started again on its append-only file
	killShared fault = "kill_shared" // SIGKILL of the shared MCP server, then started again
	killChild  fault = "kill_child"  // SIGKILL of a worker's own MCP server
)

// schedule spreads the faults over the runs, in two lanes that go on at the same
// time: a fault waits until enough runs have begun, and runs wait until the faults
// have caught up. So the number of faults does not depend on the machine.
type schedule struct {
	runs  int
	begun atomic.Int64
	lanes []*lane
}

// lane is a row of faults, one after another.
type lane struct {
	faults []fault
	dice   dice
	done   atomic.Int64

	mu     sync.Mutex // guards counts
	counts map[fault]int
}

// slack is how many faults the runs may be ahead.
const slack = 4

func newSchedule(s settings) *schedule {
	out := &schedule{runs: s.runs}
	for i, kinds := range [][]fault{{killWorker, stopWorker, termWorker}, {killRedis, killShared, killChild}} {
		l := &lane{dice: dice{rand.New(rand.NewPCG(s.seed, uint64(1)<<63+uint64(i)))}, counts: map[fault]int{}}
		for range s.faults {
			l.faults = append(l.faults, kinds...)
		}
		l.dice.Shuffle(len(l.faults), func(i, j int) { l.faults[i], l.faults[j] = l.faults[j], l.faults[i] })
		out.lanes = append(out.lanes, l)
	}
	return out
}

// begin waits until run n (from 0) may begin, and counts it.
func (s *schedule) begin(ctx context.Context, n int) {
	for _, l := range s.lanes {
		for ctx.Err() == nil && n*len(l.faults) > (int(l.done.Load())+slack)*s.runs {
			pause(ctx, 5*time.Millisecond)
		}
	}
	s.begun.Add(1)
}

// torment does all faults. It returns when they are done and everything runs.
func (s *schedule) torment(ctx context.Context, c *cluster) error {
	errs := make(chan error, len(s.lanes))
	for _, l := range s.lanes {
		go func() { errs <- l.torment(ctx, s, c) }()
	}
	var first error
	for range s.lanes {
		if err := <-errs; err != nil && first == nil {
			first = err
		}
	}
	return first
}

func (l *lane) torment(ctx context.Context, s *schedule, c *cluster) error {
	for i, f := range l.faults {
		for ctx.Err() == nil && int(s.begun.Load())*2*len(l.faults) < (2*i+1)*s.runs {
			pause(ctx, 5*time.Millisecond)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		happened, err := l.do(ctx, f, c)
		if err != nil {
			return fmt.Errorf("%s: %w", f, err)
		}
		if happened {
			l.mu.Lock()
			l.counts[f]++
			l.mu.Unlock()
		}
		l.done.Add(1)
	}
	return nil
}

// do does one fault and repairs it. happened is false when there was nothing to
// break at that moment.
func (l *lane) do(ctx context.Context, f fault, c *cluster) (happened bool, err error) {
	w := c.workers[l.dice.IntN(len(c.workers))]
	moment := time.Duration(l.dice.IntN(400)) * time.Millisecond
	switch f {
	case killWorker:
		w.end(syscall.SIGKILL)
		pause(ctx, moment)
		return true, w.start(ctx)
	case termWorker:
		w.end(syscall.SIGTERM)
		return true, w.start(ctx)
	case stopWorker:
		w.signal(syscall.SIGSTOP)
		pause(ctx, c.lease+c.lease/2+moment)
		w.signal(syscall.SIGCONT)
		return true, nil
	case killRedis:
		c.redis.end(syscall.SIGKILL)
		pause(ctx, moment/2)
		return true, c.redis.start(ctx)
	case killShared:
		c.shared.end(syscall.SIGKILL)
		pause(ctx, moment)
		return true, c.shared.start(ctx)
	case killChild:
		return l.killChild(ctx, c), nil
	}
	return false, fmt.Errorf("unknown fault %q", f)
}

// killChild kills the MCP server of any worker that has one. The workers belong to
// the other lane, so only their numbers are looked at.
func (l *lane) killChild(ctx context.Context, c *cluster) bool {
	deadline := clock.System{}.Now().Add(patience)
	for ctx.Err() == nil && (clock.System{}).Now().Before(deadline) {
		w := c.workers[l.dice.IntN(len(c.workers))]
		if pid := childOf(int(w.pid.Load()), c.ledger.path); pid != 0 {
			return syscall.Kill(pid, syscall.SIGKILL) == nil
		}
		pause(ctx, 10*time.Millisecond)
	}
	return false
}

// counts adds up what happened, by kind.
func (s *schedule) counts() map[fault]int {
	out := map[fault]int{}
	for _, l := range s.lanes {
		l.mu.Lock()
		for f, n := range l.counts {
			out[f] += n
		}
		l.mu.Unlock()
	}
	return out
}
