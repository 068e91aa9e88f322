package main

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"agentos/internal/clock"
)

// warmUp is how many runs come before a sequential measurement. A program in
// JavaScript gets faster for some hundred.
const warmUp = 200

// sequential times n calls of do, one after the other, after a warm-up.
func sequential(ctx context.Context, n int, do func(context.Context) error) (latency, error) {
	for range min(warmUp, n) {
		if err := do(ctx); err != nil {
			return latency{}, err
		}
	}
	took := make([]int64, 0, n)
	for range n {
		began := now()
		if err := do(ctx); err != nil {
			return latency{}, err
		}
		took = append(took, now().Sub(began).Microseconds())
	}
	return spread(took), nil
}

// throughput is what a measurement with many runs in flight gave: runs per second,
// and microseconds of processor time for one run in the system and in redis-server.
type throughput struct{ rate, cpu, server int64 }

// warmUpPart is which part of the time of a throughput measurement goes before it.
const warmUpPart = 4

// concurrent keeps inFlight calls of do going for d, after a warm-up. used tells
// the processor time so far.
func concurrent(ctx context.Context, d time.Duration, used func(context.Context) (throughput, error), do func(context.Context) error) (throughput, error) {
	if _, _, err := loops(ctx, d/warmUpPart, do); err != nil {
		return throughput{}, err
	}
	before, err := used(ctx)
	if err != nil {
		return throughput{}, err
	}
	n, took, err := loops(ctx, d, do)
	if err != nil {
		return throughput{}, err
	}
	after, err := used(ctx)
	return throughput{
		rate: int64(float64(n) / took.Seconds()), cpu: (after.cpu - before.cpu) / max(n, 1), server: (after.server - before.server) / max(n, 1),
	}, err
}

// loops keeps inFlight calls of do going for d and counts them.
func loops(ctx context.Context, d time.Duration, do func(context.Context) error) (n int64, took time.Duration, err error) {
	began := now()
	end := began.Add(d)
	var ended atomic.Int64
	var wg sync.WaitGroup
	errs := make([]error, inFlight)
	for i := range inFlight {
		wg.Go(func() {
			for errs[i] == nil && now().Before(end) {
				if errs[i] = do(ctx); errs[i] == nil {
					ended.Add(1)
				}
			}
		})
	}
	wg.Wait()
	return ended.Load(), now().Sub(began), errors.Join(errs...)
}

// spread sorts took, which must not be empty.
func spread(took []int64) latency {
	slices.Sort(took)
	return latency{P50: took[len(took)/2], P99: took[len(took)*99/100]}
}

// median returns the upper of the two middle values of an even number.
func median(of []int64) int64 {
	of = slices.Sorted(slices.Values(of))
	return of[len(of)/2]
}

func now() time.Time { return clock.System{}.Now() }
