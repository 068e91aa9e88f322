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
	"agentos/runtime"
	"agentos/runtime/mcp"
)

// floorFull is the reference program in the report.
const floorFull = "floor-full"

// warmUp is how many runs come before a sequential measurement.
const warmUp = 50

// bench is one measurement of everything.
type bench struct {
	settings
	dir   string
	agent *runtime.Agent
	talk  *talker
	errs  io.Writer
	out   *report
}

// measure takes all measurements; files are kept under dir.
func measure(ctx context.Context, s settings, dir string, errs io.Writer) (*report, error) {
	b := &bench{settings: s, dir: dir, errs: errs, out: newReport(s, now())}
	b.talk = &talker{call: asks(freeTool), answer: says("Done.")}
	var err error
	if b.agent, err = openAgent(ctx, dir); err != nil {
		return nil, err
	}
	for _, step := range []struct {
		name string
		do   func(context.Context) error
	}{
		{"the tool alone", b.tool},
		{"round trips", b.trips},
		{"latency and throughput", b.speed},
		{"held runs", b.held},
		{"bytes per turn", b.turns},
		{"cold start", b.cold},
	} {
		fmt.Fprintf(errs, "bench: %s (load %s)\n", step.name, load())
		if err = step.do(ctx); err != nil {
			err = fmt.Errorf("%s: %w", step.name, err)
			break
		}
	}
	b.out.LoadAfter = load()
	return b.out, errors.Join(err, b.agent.MCP.Close(context.WithoutCancel(ctx)))
}

// tool measures the MCP call that every run makes once.
func (b *bench) tool(ctx context.Context) (err error) {
	b.out.Tool, err = sequential(ctx, b.runs, func(ctx context.Context) error {
		res := b.agent.MCP.Call(ctx, mcp.CallRequest{
			Server: "orders", Tool: freeTool, Arguments: []byte(`{"order_id":"A-1002"}`), IdempotencyKey: "bench", Effect: mcp.Read,
		})
		if res.Outcome != mcp.Success {
			return fmt.Errorf("the call ended %s: %s", res.Outcome, res.Text)
		}
		return nil
	})
	return err
}

// on runs f with a process on an empty store and takes both down again.
func (b *bench) on(ctx context.Context, name string, f func(*backing, *process) error) error {
	back, err := newBacking(ctx, name, b.dir, b.fsync)
	if err != nil {
		return err
	}
	return errors.Join(b.with(ctx, back, func(p *process) error { return f(back, p) }), back.close())
}

// with runs f with a process on what the backing keeps.
func (b *bench) with(ctx context.Context, back *backing, f func(*process) error) error {
	s, err := back.open(ctx)
	if err != nil {
		return err
	}
	p, err := newProcess(ctx, s, b.agent, b.talk, true)
	if err != nil {
		return errors.Join(err, s.Close())
	}
	return errors.Join(f(p), p.close(ctx), s.Close())
}

// scenario is one kind of run on one system.
type scenario struct {
	system, name string
	do           func(context.Context) error
	p50, p99     []int64
	rate         []int64
}

// speed measures every scenario on every system, in rounds, so that outside load
// falls on all of them.
func (b *bench) speed(ctx context.Context) error {
	found := map[string]*scenario{}
	var order []*scenario
	add := func(system, name string, do func(context.Context) error) error {
		sc := found[system+name]
		if sc == nil {
			sc = &scenario{system: system, name: name}
			found[system+name] = sc
			order = append(order, sc)
		}
		sc.do = do
		return b.once(ctx, sc)
	}
	for range b.rounds {
		back, err := newBacking(ctx, redisStore, b.dir, b.fsync)
		if err != nil {
			return err
		}
		f := newFloor(back.server.client)
		if err := errors.Join(add(floorFull, lookup, f.lookup), add(floorFull, approve, f.approve), back.close()); err != nil {
			return err
		}
		for _, name := range []string{redisStore, fileStore} {
			err := b.on(ctx, name, func(_ *backing, p *process) error {
				return errors.Join(add(name, lookup, p.lookup), add(name, approve, p.approve))
			})
			if err != nil {
				return err
			}
		}
	}
	for _, name := range []string{lookup, approve} {
		for _, sc := range order {
			if sc.name == name {
				b.out.Speed = append(b.out.Speed, sc.result())
			}
		}
	}
	return nil
}

// once is one round of a scenario.
func (b *bench) once(ctx context.Context, sc *scenario) error {
	l, err := sequential(ctx, b.runs, sc.do)
	if err != nil {
		return err
	}
	rate, err := concurrent(ctx, b.duration(), sc.do)
	sc.p50, sc.p99, sc.rate = append(sc.p50, l.P50), append(sc.p99, l.P99), append(sc.rate, rate)
	return err
}

func (sc *scenario) result() speed {
	return speed{
		System: sc.system, Scenario: sc.name, latency: latency{P50: median(sc.p50), P99: median(sc.p99)},
		Rate: median(sc.rate), Low: slices.Min(sc.rate), High: slices.Max(sc.rate),
	}
}

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

// concurrent keeps inFlight calls of do going for d and returns how many ended per
// second. A tenth of d goes before as a warm-up.
func concurrent(ctx context.Context, d time.Duration, do func(context.Context) error) (int64, error) {
	if _, _, err := loops(ctx, d/10, do); err != nil {
		return 0, err
	}
	n, took, err := loops(ctx, d, do)
	return int64(float64(n) / took.Seconds()), err
}

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

func spread(took []int64) latency {
	slices.Sort(took)
	return latency{P50: took[len(took)/2], P99: took[len(took)*99/100]}
}

func median(of []int64) int64 {
	of = slices.Sorted(slices.Values(of))
	return of[len(of)/2]
}

func now() time.Time { return clock.System{}.Now() }
