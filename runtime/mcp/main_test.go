package mcp

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"agentos/capabilities"
	"agentos/internal/clock"
	"agentos/internal/egress"
	"agentos/internal/rawjson"
)

// TestMain lets the test binary play the MCP server: children are started with
// the name of a mode in their environment.
func TestMain(m *testing.M) {
	if mode := os.Getenv("MCP_TEST_MODE"); mode != "" {
		play, ok := modes[mode]
		if !ok {
			fmt.Fprintln(os.Stderr, "no such mode:", mode)
			os.Exit(3)
		}
		play(&child{in: bufio.NewReaderSize(os.Stdin, 1<<20), tools: standardTools})
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// msg is a message from the client under test.
type msg struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	Result json.RawMessage `json:"result"`
	Error  json.RawMessage `json:"error"`
}

// call returns tool name, arguments and idempotency key of a tools/call.
func (m msg) call() (name string, args json.RawMessage, key string) {
	var p struct {
		Name      string          `json:"name"`
		Arguments json.RawMessage `json:"arguments"`
		Meta      map[string]any  `json:"_meta"` //nolint:tagliatelle // the protocol's name
	}
	_ = json.Unmarshal(m.Params, &p)
	key, _ = p.Meta["agentos/idempotency_key"].(string)
	return p.Name, p.Arguments, key
}

// child is the server's side of a pipe.
type child struct {
	in    *bufio.Reader
	mu    sync.Mutex
	tools string
}

func (c *child) next() (msg, bool) {
	line, err := c.in.ReadBytes('\n')
	if err != nil {
		return msg{}, false
	}
	var m msg
	if err := json.Unmarshal(line, &m); err != nil {
		fmt.Fprintln(os.Stderr, "client sent", string(line))
		os.Exit(4)
	}
	return m, true
}

func (c *child) print(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	fmt.Fprintf(os.Stdout, format, args...)
}

func (c *child) result(id json.RawMessage, result string) {
	c.print(`{"jsonrpc":"2.0","id":%s,"result":%s}`+"\n", id, result)
}

// loop answers everything in the standard way, unless over does.
func (c *child) loop(over func(msg) bool) {
	for {
		m, ok := c.next()
		if !ok {
			return
		}
		if over != nil && over(m) {
			continue
		}
		if r := standard(m, c.tools); r != "" {
			c.result(m.ID, r)
		}
	}
}

const standardTools = `[{"name":"echo","description":"Says it again.","inputSchema":{"type":"object","properties":{"text":{"type":"string"}}}},` +
	`{"name":"write","description":"Writes to the ledger.","inputSchema":{"type":"object"}}]`

// standard is a well-behaved server; "" means no answer.
func standard(m msg, tools string) string {
	switch m.Method {
	case "initialize":
		return `{"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":true}},"serverInfo":{"name":"scripted","version":"1"}}`
	case "tools/list":
		return `{"tools":` + tools + `}`
	case "tools/call":
		name, args, key := m.call()
		if name == "write" {
			ledger(key, args)
			return text("written")
		}
		return text(string(args))
	}
	return ""
}

func text(s string) string {
	return `{"content":[{"type":"text","text":` + string(rawjson.Quote(s)) + `}]}`
}

// ledger records an execution durably.
func ledger(key string, args json.RawMessage) {
	path := os.Getenv("MCP_TEST_LEDGER")
	if path == "" {
		return // an HTTP server of the tests counts by itself
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		panic(err)
	}
	fmt.Fprintf(f, "%s %s\n", key, args)
	_ = f.Sync()
	_ = f.Close()
}

// hang does nothing until the process is killed.
func hang() {
	ch := make(chan os.Signal, 1)
	signal.Notify(ch, syscall.SIGUSR1)
	<-ch
}

// rig is one test's set of servers.
type rig struct {
	t      *testing.T
	ledger string
	log    *logBuffer
	cfg    Config
	*Set
}

type logBuffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *logBuffer) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{t: t, ledger: filepath.Join(t.TempDir(), "ledger"), log: &logBuffer{}}
	policy, err := egress.New(egress.Config{})
	if err != nil {
		t.Fatal(err)
	}
	r.cfg = Config{
		Servers: map[string]*capabilities.Server{}, Egress: policy, Binary: "/bin/agentos",
		Resolve: func(s string) (string, error) { return s, nil }, Redact: func(s string) string { return s },
		BaseEnv: []string{"PATH=" + os.Getenv("PATH")}, Version: "0.0.1", Clock: clock.System{},
		Log: slog.New(slog.NewTextHandler(r.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	return r
}

// child adds a server that plays mode.
func (r *rig) child(alias, mode string) *capabilities.Server {
	s := &capabilities.Server{
		Alias: alias, Command: []string{os.Args[0]}, Cwd: r.t.TempDir(), Required: true,
		Env:            map[string]string{"MCP_TEST_MODE": mode, "MCP_TEST_LEDGER": r.ledger, "MCP_TEST_DIR": filepath.Dir(r.ledger), "GORACE": "atexit_sleep_ms=0"},
		ConnectTimeout: 20 * time.Second, CallTimeout: 20 * time.Second,
	}
	r.cfg.Servers[alias] = s
	return s
}

// open opens the set and waits for the first attempts.
func (r *rig) open() *rig {
	r.t.Helper()
	set, err := Open(r.ctx(), r.cfg)
	if err != nil {
		r.t.Fatal(err)
	}
	r.Set = set
	r.t.Cleanup(func() {
		_ = set.Close(context.Background())
		r.cfg.Egress.Close()
		if r.t.Failed() {
			r.t.Log(r.log.String())
		}
	})
	set.Wait(r.ctx())
	return r
}

func (r *rig) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	r.t.Cleanup(cancel)
	return ctx
}

// call calls a tool of class once.
func (r *rig) call(server, tool, args string) Result {
	return r.callAs(Once, server, tool, args)
}

func (r *rig) callAs(e Effect, server, tool, args string) Result {
	return r.Call(r.ctx(), CallRequest{Server: server, Tool: tool, Arguments: json.RawMessage(args), IdempotencyKey: "r_1/call_1", Effect: e})
}

// executions returns the lines of the ledger.
func (r *rig) executions() []string {
	b, err := os.ReadFile(r.ledger)
	if err != nil {
		return nil
	}
	return strings.Split(strings.TrimSpace(string(b)), "\n")
}

func (r *rig) mustConnect() *rig {
	r.t.Helper()
	for _, s := range r.Status() {
		if s.Status != Connected {
			r.t.Fatalf("%s is %s: %s", s.Name, s.Status, s.Error)
		}
	}
	return r
}

func (r *rig) names() []string {
	var out []string
	for _, t := range r.Tools() {
		out = append(out, t.Server+"/"+t.Name)
	}
	return out
}

// eventually polls for a fact.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	limit := time.NewTimer(15 * time.Second)
	defer limit.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-limit.C:
			t.Fatalf("it never came true that %s", what)
		}
	}
}
