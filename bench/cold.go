package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"agentos/api"
	"agentos/api/client"
	"agentos/internal/clock"
)

// coldProcesses is how many fresh processes are started.
const coldProcesses = 7

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

// cold builds the product and starts it a few times on an empty directory.
func (b *bench) cold(ctx context.Context) error {
	dir, err := os.MkdirTemp(b.dir, "cold-")
	if err != nil {
		return err
	}
	binary := filepath.Join(dir, "agentos")
	if out, err := exec.CommandContext(ctx, "go", "build", "-o", binary, "agentos/cmd/agentos").CombinedOutput(); err != nil {
		return fmt.Errorf("go build: %w\n%s", err, out)
	}
	var took []int64
	for range coldProcesses {
		d, err := firstRun(ctx, binary, dir)
		if err != nil {
			return err
		}
		took = append(took, d.Microseconds())
	}
	b.out.Cold = coldStart{Processes: coldProcesses, First: median(took)}
	return nil
}

// firstRun times one process from its start to the answer to its first run.
func firstRun(ctx context.Context, binary, parent string) (took time.Duration, err error) {
	dir, err := os.MkdirTemp(parent, "process-")
	if err != nil {
		return 0, err
	}
	if err := os.WriteFile(filepath.Join(dir, "agentos.yaml"), []byte(coldManifest), 0o600); err != nil {
		return 0, err
	}
	port, err := freePort(ctx)
	if err != nil {
		return 0, err
	}
	addr := "127.0.0.1:" + port
	c, err := client.New(client.Config{URL: "http://" + addr, HTTP: &http.Client{Transport: &http.Transport{}}})
	if err != nil {
		return 0, err
	}
	cmd := exec.CommandContext(ctx, binary, "serve", "--addr", addr)
	cmd.Dir = dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	began := now()
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	defer func() {
		err = errors.Join(err, cmd.Process.Signal(syscall.SIGTERM), cmd.Wait())
	}()
	r, err := completed(ctx, c)
	took = now().Sub(began)
	if err == nil && r.Status != api.RunCompleted {
		err = fmt.Errorf("the first run is %s: %+v", r.Status, r.Error)
	}
	return took, err
}

// completed asks for a run until the server listens.
func completed(ctx context.Context, c *client.Client) (api.Run, error) {
	ctx, stop := context.WithTimeout(ctx, 20*time.Second)
	defer stop()
	for {
		r, err := c.CreateRun(ctx, client.CreateRun{
			Env: environment, Agent: "bench", Capability: "support", Wait: 10 * time.Second,
			Body: api.CreateRun{Input: []byte(`{"message":"Look up order A-1001."}`)},
		})
		var refused *url.Error
		if !errors.As(err, &refused) || !errors.Is(err, syscall.ECONNREFUSED) {
			return r, err
		}
		select {
		case <-ctx.Done():
			return r, ctx.Err()
		case <-clock.System{}.After(time.Millisecond):
		}
	}
}
