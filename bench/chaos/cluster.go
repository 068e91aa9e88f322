package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"agentos/api/client"
)

// environment and agent are what the workers serve.
const (
	environment = "default"
	agent       = "chaos"
)

// cluster are the processes under torment: one Redis, the shared MCP server and
// the workers, each on a port that it keeps.
type cluster struct {
	dir    string
	binary string // agentos
	store  string // URL
	ledger ledger
	lease  time.Duration

	redis   *process
	shared  *process
	workers []*process
	clients []*client.Client // of the workers
	http    *http.Client
}

// newCluster builds agentos and starts everything in dir. What was started before
// an error is ended again.
func newCluster(ctx context.Context, s settings, dir, modelURL string) (*cluster, error) {
	c := &cluster{
		dir: dir, binary: filepath.Join(dir, "agentos"), ledger: ledger{path: filepath.Join(dir, "ledger.jsonl")}, lease: s.lease,
		http: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 2 * s.clients, IdleConnTimeout: time.Second}},
	}
	err := c.begin(ctx, s, modelURL)
	if err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

func (c *cluster) begin(ctx context.Context, s settings, modelURL string) error {
	if out, err := exec.CommandContext(ctx, "go", "build", "-o", c.binary, "agentos/cmd/agentos").CombinedOutput(); err != nil {
		return fmt.Errorf("build agentos: %w\n%s", err, out)
	}
	if err := c.startRedis(ctx, s.fsync); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	port, err := freePort()
	if err != nil {
		return err
	}
	c.shared = c.process("shared-mcp", port, self, httpTools, c.ledger.path, "127.0.0.1:"+port)
	if err := c.shared.start(ctx); err != nil {
		return err
	}
	path := filepath.Join(c.dir, "agentos.yaml")
	if err := os.WriteFile(path, []byte(manifest(self, c.ledger.path, port)), 0o600); err != nil {
		return err
	}
	for i := range s.workers {
		if err := c.startWorker(ctx, i, path, modelURL); err != nil {
			return err
		}
	}
	return nil
}

// process describes a child that listens on port.
func (c *cluster) process(name, port string, argv ...string) *process {
	return &process{name: name, argv: argv, log: filepath.Join(c.dir, name+".log"), answers: func(ctx context.Context) bool {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", "127.0.0.1:"+port)
		if err != nil {
			return false
		}
		return conn.Close() == nil
	}}
}

func (c *cluster) startRedis(ctx context.Context, fsync string) error {
	port, err := freePort()
	if err != nil {
		return err
	}
	c.store = "redis://127.0.0.1:" + port
	c.redis = c.process("redis", port, "redis-server", "--port", port, "--bind", "127.0.0.1", "--dir", c.dir,
		"--save", "", "--appendonly", "yes", "--appendfsync", fsync, "--maxmemory-policy", "noeviction")
	c.redis.answers = func(ctx context.Context) bool { return pong(ctx, port) }
	if err := c.redis.start(ctx); err != nil {
		return fmt.Errorf("%w (apt-get install redis-server)", err)
	}
	return nil
}

// pong reports whether Redis has loaded its file and answers.
func pong(ctx context.Context, port string) bool {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", "127.0.0.1:"+port)
	if err != nil {
		return false
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	if _, err := conn.Write([]byte("PING\r\n")); err != nil {
		return false
	}
	answer := make([]byte, 5)
	_, err = conn.Read(answer)
	return err == nil && bytes.Equal(answer, []byte("+PONG"))
}

func (c *cluster) startWorker(ctx context.Context, i int, manifest, modelURL string) error {
	port, err := freePort()
	if err != nil {
		return err
	}
	api, err := client.New(client.Config{URL: "http://127.0.0.1:" + port, HTTP: c.http})
	if err != nil {
		return err
	}
	w := c.process("worker-"+strconv.Itoa(i+1), port, c.binary, "serve", "--addr", "127.0.0.1:"+port, "--store", c.store,
		"--lease", c.lease.String(), "--shutdown-grace", "1s", "--log", "json", manifest)
	w.env = []string{"OPENAI_BASE_URL=" + modelURL, "OPENAI_API_KEY="}
	w.answers = func(ctx context.Context) bool {
		ctx, stop := context.WithTimeout(ctx, time.Second)
		defer stop()
		return api.Health(ctx) == nil
	}
	c.workers, c.clients = append(c.workers, w), append(c.clients, api)
	return w.start(ctx)
}

// manifest declares the two servers, and a capability for each kind of gate.
func manifest(self, ledger, port string) string {
	capability := func(name, rest string) string {
		return `
  ` + name + `:
    input: {type: object, properties: {message: {type: string}}, required: [message]}
    output: {type: object, properties: {answer: {type: string}}, required: [answer]}
    loop: {model: main, system: You are tormented., tool_names: namespaced, deny: [drop], ` + rest + `}`
	}
	return `name: ` + agent + `
mcp_servers:
  local:
    command: [` + strconv.Quote(self) + `, ` + stdioTools + `, ` + strconv.Quote(ledger) + `]
    env: {GORACE: atexit_sleep_ms=0} # a build with the race detector would be slow to end
    effects: {read: [read], idempotent: [set]}
  shared:
    url: http://127.0.0.1:` + port + `/mcp
    effects: {read: [read], idempotent: [set]}
network: {allow: ["127.0.0.1:` + port + `"]}
config: {models: {main: openai/chaos}}
capabilities:` +
		capability("work", "approve: [refund]") +
		capability("serial", "approve: [refund], parallel_calls: false") +
		capability("hasty", "approve: [{tool: refund, expires: 2s}]") +
		capability("strict", "approve: [{tool: refund, expires: 2s, on_expire: fail}]") + "\n"
}

// fsck has agentos check the store, and returns what it says about faults. It is
// for a cluster that rests.
func (c *cluster) fsck(ctx context.Context) (found string, err error) {
	out, err := exec.CommandContext(ctx, c.binary, "fsck", "--store", c.store).CombinedOutput()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return "", nil
	case errors.As(err, &exit) && exit.ExitCode() == 1:
		return string(out), nil
	}
	return "", fmt.Errorf("agentos fsck: %w\n%s", err, out)
}

// hasFsck reports whether this agentos can check a store.
func (c *cluster) hasFsck(ctx context.Context) (bool, error) {
	out, err := exec.CommandContext(ctx, c.binary, "help").CombinedOutput()
	return bytes.Contains(out, []byte("\n  fsck")), err
}

// close ends every process.
func (c *cluster) close() {
	for _, w := range c.workers {
		w.signal(syscall.SIGCONT)
		w.end(syscall.SIGKILL)
	}
	for _, p := range []*process{c.shared, c.redis} {
		if p != nil {
			p.end(syscall.SIGKILL)
		}
	}
	c.http.CloseIdleConnections()
}
