package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"time"

	"agentos/gateway"
	"agentos/holds"
	"agentos/internal/clock"
	"agentos/internal/egress"
	"agentos/internal/ids"
	"agentos/internal/secrets"
	"agentos/runtime"
	"agentos/runtime/mcp"
	"agentos/runtime/store"
)

const (
	environment = "default"
	// inFlight is how many runs a throughput measurement keeps going.
	inFlight = 64
)

// openAgent starts the tool and connects to it.
func openAgent(ctx context.Context, dir string) (*runtime.Agent, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	m, err := manifest(self, dir)
	if err != nil {
		return nil, err
	}
	e, err := egress.New(egress.Config{})
	if err != nil {
		return nil, err
	}
	set, err := mcp.Open(ctx, mcp.Config{
		Servers: m.Servers, Egress: e, Binary: self, Version: "bench", Clock: clock.System{},
		Resolve: func(s string) (string, error) { return s, nil }, Redact: secrets.New(nil).Redact,
		Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return nil, err
	}
	set.Wait(ctx)
	if len(set.Tools()) == 0 {
		return nil, errors.Join(fmt.Errorf("the tool did not start: %+v", set.Status()), set.Close(ctx))
	}
	return &runtime.Agent{Manifest: m, MCP: set}, nil
}

// process is an engine with its store, as one process of the product has them.
type process struct {
	engine  *runtime.Engine
	gateway *gateway.Gateway
	store   *counted
	input   []byte
	stop    context.CancelFunc
	worked  chan error
}

// processConfig is what a process is made of.
type processConfig struct {
	store *counted
	agent *runtime.Agent
	talk  *talker // may be nil
	// alone leaves out the worker that claims runs beside the engine: every round
	// trip is a run's then.
	alone bool
	// concurrency is how many runs are worked on at once; unless given more than
	// are in flight, so that none of them waits for a slot.
	concurrency int
	lease       time.Duration // 0 is the engine's own
}

// newProcess starts an engine on a store.
func newProcess(ctx context.Context, c processConfig) (*process, error) {
	redact := secrets.New(nil).Redact
	g, err := gateway.New(gateway.Config{Providers: providers(c.talk), Clock: clock.System{}, Rand: rand.Int64N, Redact: redact})
	if err != nil {
		return nil, err
	}
	if c.concurrency == 0 {
		c.concurrency = 4 * inFlight
	}
	life, stop := context.WithCancel(ctx)
	p := &process{gateway: g, store: c.store, input: input(), stop: stop, worked: make(chan error, 1)}
	p.engine, err = runtime.New(life, runtime.Config{
		Store: c.store, Gateway: g, Agents: []*runtime.Agent{c.agent}, Clock: clock.System{}, IDs: ids.Random{}, Log: slog.New(slog.DiscardHandler),
		Redact: redact, Env: environment, Worker: "bench", Concurrency: c.concurrency, Lease: c.lease,
	})
	if err != nil {
		stop()
		return nil, err
	}
	if c.alone {
		p.worked <- nil
		return p, nil
	}
	go func() { p.worked <- p.engine.Work(life) }()
	return p, nil
}

// close ends the engine, not its store.
func (p *process) close(ctx context.Context) error {
	p.engine.Drain(ctx, 10*time.Second)
	p.stop()
	return <-p.worked
}

// start begins a run of the capability and waits until it rests.
func (p *process) start(ctx context.Context, capability string, want store.Status) (store.View, error) {
	v, err := p.engine.Start(ctx, runtime.StartRequest{
		Env: environment, Agent: "bench", Capability: capability, Requester: "bench", Input: p.input,
	})
	if err != nil {
		return v, err
	}
	return p.wait(ctx, v.ID, want)
}

func (p *process) wait(ctx context.Context, id string, want store.Status) (store.View, error) {
	v, err := p.engine.Wait(ctx, environment, id)
	if err == nil && v.Status != want {
		err = fmt.Errorf("run %s is %s, want %s: %s", id, v.Status, want, v.Last.Data)
	}
	return v, err
}

// decide approves a hold and waits for the end of its run.
func (p *process) decide(ctx context.Context, holdID string) error {
	post := holds.Post{By: "ann", Decisions: []holds.ItemDecision{{ID: "call_1", Action: holds.Approve}}}
	if _, err := p.engine.Decide(ctx, environment, holdID, post); err != nil {
		return err
	}
	_, err := p.wait(ctx, store.RunOfHold(holdID), store.Completed)
	return err
}

// run makes one whole run: the two turns of lookup, or the round trip of approve
// through a person who decides at once.
func (p *process) run(ctx context.Context, capability string) error {
	if capability == lookup {
		_, err := p.start(ctx, lookup, store.Completed)
		return err
	}
	v, err := p.start(ctx, approve, store.Held)
	if err != nil {
		return err
	}
	return p.decide(ctx, v.HoldID)
}
