package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"agentos/api"
	"agentos/api/client"
)

// startProcesses is how many fresh processes are started for one figure.
const startProcesses = 7

// coldManifest is an agent with the bundled MCP server; the mock model answers.
const coldManifest = `name: bench
mcp_servers:
  orders:
    command: ["${agentos}", example-orders]
    effects: {read: [lookup_order]}
config: {models: {main: mock/m}}
capabilities:
  support:
    input: {type: object, properties: {message: {type: string}}, required: [message]}
    output: {type: object, properties: {answer: {type: string}}, required: [answer]}
    loop: {model: main}
`

// starts measures how long agentos serve takes to its first completed run, with an
// empty store and with one that is full of held runs.
func (b *bench) starts(ctx context.Context) error {
	binary, err := b.binary(ctx)
	if err != nil {
		return err
	}
	for _, name := range []string{fileStore, redisStore} {
		row := start{Store: name, Processes: startProcesses, Held: b.parked}
		back, err := newBacking(ctx, name, b.dir, b.fsync)
		if err != nil {
			return err
		}
		err = func() (err error) {
			// The file does not exist yet: making it is part of a cold start.
			if row.Empty, err = b.firstRuns(ctx, binary, name, nil); err != nil {
				return err
			}
			err = b.with(ctx, back, func(p *process) error {
				_, err := park(ctx, p, b.parked, 0)
				return err
			})
			if err != nil {
				return err
			}
			row.Full, err = b.firstRuns(ctx, binary, name, back)
			return err
		}()
		if err := errors.Join(err, back.close()); err != nil {
			return err
		}
		b.out.Starts = append(b.out.Starts, row)
	}
	return nil
}

// firstRuns is the median of some processes, in microseconds. Without a backing
// each has a new one.
func (b *bench) firstRuns(ctx context.Context, binary, name string, back *backing) (int64, error) {
	var took []int64
	for range startProcesses {
		on := back
		if back == nil {
			var err error
			if on, err = newBacking(ctx, name, b.dir, b.fsync); err != nil {
				return 0, err
			}
		}
		d, err := firstRun(ctx, binary, on)
		if back == nil {
			err = errors.Join(err, on.close())
		}
		if err != nil {
			return 0, err
		}
		took = append(took, d.Microseconds())
	}
	return median(took), nil
}

// firstRun times one process from its start to the answer to its first run.
func firstRun(ctx context.Context, binary string, back *backing) (took time.Duration, err error) {
	if err := os.WriteFile(filepath.Join(back.dir, "agentos.yaml"), []byte(coldManifest), 0o600); err != nil {
		return 0, err
	}
	cmd := exec.Command(binary, "serve", "--addr", "127.0.0.1:0", "--store", back.url())
	cmd.Dir = back.dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
	began := now()
	p, err := startChild(ctx, cmd)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, p.stop()) }()
	c, err := newClient(p.url)
	if err != nil {
		return 0, err
	}
	r, err := c.CreateRun(ctx, client.CreateRun{
		Env: environment, Agent: "bench", Capability: "support", Wait: 10 * time.Second,
		Body: api.CreateRun{Input: []byte(`{"message":"Look up order A-1001."}`)},
	})
	took = now().Sub(began)
	if err == nil && r.Status != api.RunCompleted {
		err = fmt.Errorf("the first run is %s: %+v", r.Status, r.Error)
	}
	return took, err
}

// newClient is the product's own client, on connections that it does not keep.
func newClient(url string) (*client.Client, error) {
	return client.New(client.Config{URL: url, HTTP: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}})
}
