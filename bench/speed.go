package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"syscall"
	"time"

	"agentos/bench/floor"
	"agentos/bench/peers"
	"agentos/bench/scenario"
)

// The two ways in. They are not to be compared with each other: a library is called,
// a server is asked.
const (
	inProcess = "in process"
	overHTTP  = "over HTTP"
)

// subject is one system as it is reached at one level.
type subject struct {
	system, title, level, durability string
	// once measures runs of one capability on an empty store.
	once func(ctx context.Context, capability string) (sample, error)
}

// sample is one measurement.
type sample struct {
	latency
	throughput
}

// subjects are everything that is measured side by side.
func (b *bench) subjects() []*subject {
	onRedis := map[string]string{"everysec": "fsync every second", "always": "fsync before each answer"}[b.fsync]
	var all []*subject
	add := func(s subject, process, served func(context.Context, string) (sample, error)) {
		s.level, s.once = inProcess, process
		all = append(all, new(s))
		s.level, s.once = overHTTP, served
		all = append(all, new(s))
	}
	for _, name := range []string{floor.Min, floor.Full} {
		add(subject{system: name, title: name, durability: onRedis},
			func(ctx context.Context, capability string) (sample, error) { return b.floor(ctx, name, capability) },
			func(ctx context.Context, capability string) (sample, error) {
				return b.floorServed(ctx, name, capability)
			})
	}
	for _, name := range []string{redisStore, fileStore} {
		durability := onRedis
		if name == fileStore {
			durability = "fsync before each answer"
		}
		add(subject{system: name, title: "agentos, " + name, durability: durability},
			func(ctx context.Context, capability string) (sample, error) { return b.product(ctx, name, capability) },
			func(ctx context.Context, capability string) (sample, error) {
				return b.productServed(ctx, name, capability)
			})
	}
	if b.peers {
		for _, p := range peers.All() {
			s := subject{system: p.Name, title: p.Title, durability: p.Durability}
			if p.Redis {
				s.title, s.durability = s.title+", Redis", onRedis
			}
			add(s,
				func(ctx context.Context, capability string) (sample, error) { return b.peer(ctx, p, capability) },
				func(ctx context.Context, capability string) (sample, error) { return b.peerServed(ctx, p, capability) })
		}
	}
	// One level after the other, so that the rows of a table are neighbours in time.
	slices.SortStableFunc(all, func(x, y *subject) int {
		order := []string{inProcess, overHTTP}
		return slices.Index(order, x.level) - slices.Index(order, y.level)
	})
	return all
}

// speed measures every capability on every subject, in rounds, so that outside load
// falls on all of them.
func (b *bench) speed(ctx context.Context) error {
	type measured struct {
		*subject
		capability string
		samples    []sample
	}
	var all []*measured
	for _, capability := range []string{lookup, approve} {
		for _, s := range b.subjects() {
			all = append(all, &measured{subject: s, capability: capability})
		}
	}
	for round := range b.rounds {
		fmt.Fprintf(b.errs, "bench: round %d of %d (load %s)\n", round+1, b.rounds, load())
		for _, m := range all {
			got, err := m.once(ctx, m.capability)
			if err != nil {
				return fmt.Errorf("%s of %s %s: %w", m.capability, m.title, m.level, err)
			}
			m.samples = append(m.samples, got)
		}
	}
	for _, m := range all {
		b.out.Speed = append(b.out.Speed, m.row(m.capability, m.samples))
	}
	return nil
}

// row takes the medians of the rounds.
func (s *subject) row(capability string, samples []sample) speed {
	each := func(of func(sample) int64) (out []int64) {
		for _, x := range samples {
			out = append(out, of(x))
		}
		return out
	}
	p50, rate := each(func(x sample) int64 { return x.P50 }), each(func(x sample) int64 { return x.rate })
	return speed{
		System: s.system, Title: s.title, Level: s.level, Durability: s.durability, Scenario: capability,
		latency: latency{P50: median(p50), P99: median(each(func(x sample) int64 { return x.P99 }))},
		P50Low:  slices.Min(p50), P50High: slices.Max(p50),
		Rate: median(rate), Low: slices.Min(rate), High: slices.Max(rate),
		CPU:       median(each(func(x sample) int64 { return x.cpu })),
		ServerCPU: median(each(func(x sample) int64 { return x.server })),
	}
}

// timed measures do. cpu tells the processor time of the system so far; nil is this
// process.
func (b *bench) timed(ctx context.Context, back *backing, cpu func() (int64, error), do func(context.Context) error) (sample, error) {
	if cpu == nil {
		cpu = ownCPU
	}
	used := func(ctx context.Context) (t throughput, err error) {
		if t.cpu, err = cpu(); err == nil && back.server != nil {
			t.server, err = back.server.cpu(ctx)
		}
		return t, err
	}
	l, err := sequential(ctx, b.runs, do)
	if err != nil {
		return sample{}, err
	}
	t, err := concurrent(ctx, b.length, used, do)
	return sample{l, t}, err
}

// ownCPU is the processor time of this process so far, in microseconds.
func ownCPU() (int64, error) {
	var u syscall.Rusage
	err := syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return (u.Utime.Nano() + u.Stime.Nano()) / 1000, err
}

// empty runs f on an empty store and deletes it before the next measurement
// begins: a disk still busy with it would slow that one down.
func (b *bench) empty(ctx context.Context, name string, f func(*backing) (sample, error)) (sample, error) {
	back, err := newBacking(ctx, name, b.dir, b.fsync)
	if err != nil {
		return sample{}, err
	}
	got, err := f(back)
	return got, errors.Join(err, back.close())
}

func (b *bench) floor(ctx context.Context, name, capability string) (sample, error) {
	return b.empty(ctx, redisStore, func(back *backing) (sample, error) {
		p, err := floor.New(name, back.server.client)
		if err != nil {
			return sample{}, err
		}
		return b.timed(ctx, back, nil, func(ctx context.Context) error { return p.Run(ctx, capability) })
	})
}

func (b *bench) product(ctx context.Context, name, capability string) (got sample, err error) {
	return got, b.on(ctx, name, func(back *backing, p *process) (err error) {
		got, err = b.timed(ctx, back, nil, func(ctx context.Context) error { return p.run(ctx, capability) })
		return err
	})
}

func (b *bench) floorServed(ctx context.Context, name, capability string) (sample, error) {
	return b.empty(ctx, redisStore, func(back *backing) (sample, error) {
		cmd, err := self(floorCommand, "-program", name, "-redis", back.server.addr, "-capability", capability)
		if err != nil {
			return sample{}, err
		}
		return b.drive(ctx, back, served{cmd, capability, plainWire()})
	})
}

func (b *bench) productServed(ctx context.Context, name, capability string) (sample, error) {
	return b.empty(ctx, name, func(back *backing) (sample, error) {
		cmd, err := self(serveCommand, "-store", back.url())
		if err != nil {
			return sample{}, err
		}
		return b.drive(ctx, back, served{cmd, capability, productWire(capability)})
	})
}

// peer lets a peer drive itself, so that no protocol stands between.
func (b *bench) peer(ctx context.Context, p peers.Peer, capability string) (sample, error) {
	return b.empty(ctx, redisStore, func(back *backing) (sample, error) {
		f, err := p.Measure(ctx, b.node, b.peerSettings(back, capability))
		return sample{latency{P50: f.P50, P99: f.P99}, throughput{rate: f.Rate, cpu: f.CPU}}, err
	})
}

func (b *bench) peerServed(ctx context.Context, p peers.Peer, capability string) (sample, error) {
	return b.empty(ctx, redisStore, func(back *backing) (sample, error) {
		cmd, err := p.Serve(b.node, b.peerSettings(back, capability))
		if err != nil {
			return sample{}, err
		}
		return b.drive(ctx, back, served{cmd, capability, plainWire()})
	})
}

func (b *bench) peerSettings(back *backing, capability string) peers.Settings {
	ms := func(d time.Duration) int64 { return d.Milliseconds() }
	return peers.Settings{
		Redis: back.url(), Dir: back.dir, System: scenario.System(), Message: scenario.User(), Capability: capability,
		WarmUp: min(warmUp, b.runs), Runs: b.runs, WarmUpMS: ms(b.length / warmUpPart), MeasureMS: ms(b.length), InFlight: inFlight,
	}
}

// served is a server to be started, and how it is asked.
type served struct {
	cmd        *exec.Cmd
	capability string
	wire       wire
}

// drive starts the server, measures it from outside, and stops it.
func (b *bench) drive(ctx context.Context, back *backing, s served) (sample, error) {
	c, err := startChild(ctx, s.cmd)
	if err != nil {
		return sample{}, err
	}
	t := newTarget(c.url, s.capability, s.wire)
	got, err := b.timed(ctx, back, c.cpu, t.run)
	t.client.CloseIdleConnections()
	return got, errors.Join(err, c.stop())
}
