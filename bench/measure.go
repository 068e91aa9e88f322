package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"

	"agentos/bench/peers"
	"agentos/bench/scenario"
	"agentos/runtime"
	"agentos/runtime/mcp"
)

// bench is one measurement of everything.
type bench struct {
	settings
	dir   string
	agent *runtime.Agent
	talk  *talker
	errs  io.Writer
	out   *report
	// node is where the peers are installed.
	node string
	// built is the product's binary once it is built.
	built string
}

// measure takes all measurements; files are kept under dir.
func measure(ctx context.Context, s settings, dir string, errs io.Writer) (*report, error) {
	b := &bench{settings: s, dir: dir, errs: errs, talk: newTalker()}
	var err error
	if s.peers {
		if b.node, err = installPeers(ctx, errs); err != nil {
			return nil, err
		}
	}
	// What was installed just now is not the load that a measurement is judged by.
	b.out = newReport(s, now())
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
		{"decision to tool", b.react},
		{"held runs", b.held},
		{"bytes per turn", b.turns},
		{"start", b.starts},
		{"takeover", b.takeover},
	} {
		fmt.Fprintf(errs, "bench: %s (load %s)\n", step.name, load())
		if err = step.do(ctx); err != nil {
			err = fmt.Errorf("%s: %w", step.name, err)
			break
		}
	}
	b.out.LoadAfter = load()
	b.out.Targets = judge(b.out)
	return b.out, errors.Join(err, b.agent.MCP.Close(context.WithoutCancel(ctx)))
}

// installPeers keeps the packages of the peers from one measurement to the next.
func installPeers(ctx context.Context, errs io.Writer) (dir string, err error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	fmt.Fprintf(errs, "bench: the peers, under %s\n", cache)
	return peers.Install(ctx, cache, errs)
}

// binary builds the product, once.
func (b *bench) binary(ctx context.Context) (string, error) {
	if b.built != "" {
		return b.built, nil
	}
	path := filepath.Join(b.dir, "agentos")
	if out, err := exec.CommandContext(ctx, "go", "build", "-o", path, "agentos/cmd/agentos").CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	b.built = path
	return path, nil
}

// tool measures the MCP call that every run makes once.
func (b *bench) tool(ctx context.Context) (err error) {
	b.out.Tool, err = sequential(ctx, b.runs, func(ctx context.Context) error {
		res := b.agent.MCP.Call(ctx, mcp.CallRequest{
			Server: "orders", Tool: scenario.FreeTool, Arguments: []byte(`{"order_id":"A-1002"}`), IdempotencyKey: "bench", Effect: mcp.Read,
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
	p, err := newProcess(ctx, processConfig{store: s, agent: b.agent, talk: b.talk})
	if err != nil {
		return errors.Join(err, s.Close())
	}
	return errors.Join(f(p), p.close(ctx), s.Close())
}
