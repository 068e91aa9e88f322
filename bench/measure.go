package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
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

// scenario is one kind of run on one system, with what the rounds gave.
type scenario struct {
	system, name string
	p50, p99     []int64
	rate         []int64
	cpu, server  []int64
}

// speed measures every scenario on every system, in rounds, so that outside load
// falls on all of them.
func (b *bench) speed(ctx context.Context) error {
	var all []*scenario
	for _, name := range []string{lookup, approve} {
		for _, system := range []string{floorFull, redisStore, fileStore} {
			all = append(all, &scenario{system: system, name: name})
		}
	}
	for range b.rounds {
		for _, sc := range all {
			if err := b.round(ctx, sc); err != nil {
				return fmt.Errorf("%s on %s: %w", sc.name, sc.system, err)
			}
		}
	}
	for _, sc := range all {
		b.out.Speed = append(b.out.Speed, sc.result())
	}
	return nil
}

// round measures a scenario on an empty store. What it wrote is deleted before the
// next begins: a disk still busy with it would slow that one down.
func (b *bench) round(ctx context.Context, sc *scenario) error {
	if sc.system != floorFull {
		return b.on(ctx, sc.system, func(back *backing, p *process) error {
			return b.once(ctx, sc, back, map[string]func(context.Context) error{lookup: p.lookup, approve: p.approve}[sc.name])
		})
	}
	back, err := newBacking(ctx, redisStore, b.dir, b.fsync)
	if err != nil {
		return err
	}
	f := newFloor(back.server.client)
	do := map[string]func(context.Context) error{lookup: f.lookup, approve: f.approve}[sc.name]
	return errors.Join(b.once(ctx, sc, back, do), back.close())
}

// once is one round of a scenario.
func (b *bench) once(ctx context.Context, sc *scenario, back *backing, do func(context.Context) error) error {
	l, err := sequential(ctx, b.runs, do)
	if err != nil {
		return err
	}
	t, err := concurrent(ctx, b.length, back, do)
	if err != nil {
		return err
	}
	sc.p50, sc.p99 = append(sc.p50, l.P50), append(sc.p99, l.P99)
	sc.rate, sc.cpu, sc.server = append(sc.rate, t.rate), append(sc.cpu, t.cpu), append(sc.server, t.server)
	return nil
}

func (sc *scenario) result() speed {
	return speed{
		System: sc.system, Scenario: sc.name, latency: latency{P50: median(sc.p50), P99: median(sc.p99)},
		Rate: median(sc.rate), Low: slices.Min(sc.rate), High: slices.Max(sc.rate), CPU: median(sc.cpu), ServerCPU: median(sc.server),
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

// throughput is what a measurement with many runs in flight gave: runs per second,
// and microseconds of processor time for one run here and in redis-server.
type throughput struct{ rate, cpu, server int64 }

// concurrent keeps inFlight calls of do going for d. A tenth of d goes before as a
// warm-up.
func concurrent(ctx context.Context, d time.Duration, back *backing, do func(context.Context) error) (throughput, error) {
	if _, _, err := loops(ctx, d/10, do); err != nil {
		return throughput{}, err
	}
	cpu, server, err := cpuTimes(ctx, back)
	if err != nil {
		return throughput{}, err
	}
	n, took, err := loops(ctx, d, do)
	if err != nil {
		return throughput{}, err
	}
	cpuAfter, serverAfter, err := cpuTimes(ctx, back)
	return throughput{
		rate: int64(float64(n) / took.Seconds()), cpu: (cpuAfter - cpu) / max(n, 1), server: (serverAfter - server) / max(n, 1),
	}, err
}

// cpuTimes are the microseconds of processor time of this process and of the
// backing's server so far.
func cpuTimes(ctx context.Context, back *backing) (here, server int64, err error) {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0, 0, err
	}
	if back.server != nil {
		server, err = back.server.cpu(ctx)
	}
	return (u.Utime.Nano() + u.Stime.Nano()) / 1000, server, err
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
