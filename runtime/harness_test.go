package runtime_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"agentos/audit"
	"agentos/capabilities"
	"agentos/holds"
	"agentos/internal/clock"
	"agentos/internal/egress"
	"agentos/internal/problem"
	"agentos/internal/rawjson"
	"agentos/internal/testenv/toolserver"
	"agentos/platform"
	"agentos/runtime"
	"agentos/runtime/journal"
	"agentos/runtime/mcp"
	"agentos/runtime/store"
)

func TestMain(m *testing.M) {
	toolserver.Main()
	if os.Getenv(envCrash) != "" {
		fmt.Fprintln(os.Stderr, crashChild())
		os.Exit(3)
	}
	goleak.VerifyTestMain(m)
}

// model is a scripted OpenAI-compatible upstream.
type model struct {
	mu       sync.Mutex
	requests []json.RawMessage
	// reply answers the n-th request, counting from 1.
	reply func(n int, body json.RawMessage) (string, error)
}

func (m *model) Complete(ctx context.Context, body json.RawMessage) (json.RawMessage, error) {
	m.mu.Lock()
	m.requests = append(m.requests, body)
	n := len(m.requests)
	m.mu.Unlock()
	text, err := m.reply(n, body)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return json.RawMessage(text), err
}

// messages returns the conversation of the n-th request.
func (m *model) messages(t *testing.T, n int) []json.RawMessage {
	t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.requests) < n {
		t.Fatalf("the model was asked %d times, want at least %d", len(m.requests), n)
	}
	list, err := rawjson.Elements(rawjson.Get(m.requests[n-1], "messages"))
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func (m *model) asked() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.requests)
}

// sequence answers with the given bodies in order, the last one for ever.
func sequence(bodies ...string) func(int, json.RawMessage) (string, error) {
	return func(n int, _ json.RawMessage) (string, error) { return bodies[min(n, len(bodies))-1], nil }
}

// says is a reply with text and no calls.
func says(text string) string {
	return `{"model":"m","choices":[{"index":0,"finish_reason":"stop","message":{"role":"assistant","content":` + string(rawjson.Quote(text)) + `}}],"usage":{"prompt_tokens":3,"completion_tokens":2,"total_tokens":5}}`
}

// call is one tool call as a provider writes it: id, name, arguments as text.
type call struct{ id, name, args string }

// asks is a reply that asks for calls.
func asks(calls ...call) string { return asksWith("tool_calls", calls...) }

func asksWith(finish string, calls ...call) string {
	parts := make([]string, len(calls))
	for i, c := range calls {
		parts[i] = `{"id":` + string(rawjson.Quote(c.id)) + `,"type":"function","function":{"name":` + string(rawjson.Quote(c.name)) + `,"arguments":` + string(rawjson.Quote(c.args)) + `}}`
	}
	return `{"model":"m","choices":[{"index":0,"finish_reason":"` + finish + `","message":{"role":"assistant","content":null,"tool_calls":[` + strings.Join(parts, ",") + `]}}],"usage":null}`
}

// shifted is the system clock moved forward by a test.
type shifted struct {
	mu  sync.Mutex
	off time.Duration
}

func (c *shifted) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Now().Add(c.off)
}

func (c *shifted) After(d time.Duration) <-chan time.Time { return time.After(d) }

func (c *shifted) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.off += d
}

const manifestHead = `
name: shop
mcp_servers:
  orders:
    command: [%q]
    env: {%s}
    effects: {read: [lookup_order]}
config: {models: {main: test/m}}
capabilities:
  support:
    input: {type: object, properties: {message: {type: string}}, required: [message]}
    output: {type: object, properties: {answer: {type: string}}, required: [answer]}
    timeout: 30s
    loop:
      model: main
`

// usual gates cancel_order.
const usual = "      approve: [cancel_order]\n"

// rig is one process of the product around a real store and real MCP children.
type rig struct {
	t      *testing.T
	model  *model
	clock  *shifted
	dir    string
	ledger string
	loop   string // the end of the manifest: what stands under loop
	// operator is the platform file; none when empty.
	operator string
	lease    time.Duration
	// concurrency and maxQueued are the engine's; retention is the file's.
	concurrency, maxQueued int
	retention              time.Duration
	env                    map[string]string
	wrap                   func(store.Store) store.Store
	url                    string // the store; a file in dir when empty
	notify                 func(journal.Type, bool) bool
	record                 func(context.Context, ...audit.Keyed) error

	store  store.Store
	agent  *runtime.Agent
	engine *runtime.Engine
	stop   func()
}

// newRig starts a process whose model answers as reply says.
func newRig(t *testing.T, loop string, reply func(int, json.RawMessage) (string, error)) *rig {
	t.Helper()
	dir := t.TempDir()
	r := &rig{t: t, model: &model{reply: reply}, clock: &shifted{}, dir: dir, ledger: filepath.Join(dir, "ledger"), loop: loop}
	return r
}

func (r *rig) up() *rig {
	t := r.t
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	url := r.url
	if url == "" {
		url = "file:" + filepath.Join(r.dir, "agentos.db")
	}
	s, err := openStore(ctx, url, r.clock, r.retention)
	if err != nil {
		t.Fatal(err)
	}
	r.store = s
	if r.wrap != nil {
		r.store = r.wrap(s)
	}
	if r.agent, err = loadAgent(ctx, r.dir, r.ledger, r.loop, r.env); err != nil {
		t.Fatal(err)
	}
	if r.operator != "" {
		operator, err := platform.Parse("platform.yaml", []byte(r.operator))
		if err != nil {
			t.Fatal(err)
		}
		r.agent.Operator = operator.Policy
	}
	log := slog.New(slog.NewTextHandler(testLog{t}, &slog.HandlerOptions{Level: slog.LevelDebug}))
	if r.engine, err = newEngineAs(ctx, r.store, r.model, r.agent, log, runtime.Config{
		Lease: r.lease, Concurrency: r.concurrency, MaxQueued: r.maxQueued, Notify: r.notify, Record: r.record,
	}); err != nil {
		t.Fatal(err)
	}
	worked := make(chan struct{})
	go func() {
		defer close(worked)
		if err := r.engine.Work(ctx); err != nil {
			t.Errorf("work: %v", err)
		}
	}()
	r.stop = sync.OnceFunc(func() {
		r.engine.Drain(context.WithoutCancel(ctx), 2*time.Second)
		cancel()
		<-worked
		if err := r.agent.MCP.Close(context.WithoutCancel(ctx)); err != nil {
			t.Errorf("close MCP: %v", err)
		}
		if err := r.store.Close(); err != nil {
			t.Errorf("close store: %v", err)
		}
	})
	t.Cleanup(func() { r.stop() })
	return r
}

// restart stops the process in an orderly way and starts another on its data.
func (r *rig) restart() {
	r.t.Helper()
	r.stop()
	r.up()
}

// loadAgent makes the agent whose MCP server is this test binary.
func loadAgent(ctx context.Context, dir, ledger, loop string, more map[string]string) (*runtime.Agent, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	var env []string
	for _, vars := range []map[string]string{toolserver.Env(ledger), more} {
		for k, v := range vars {
			env = append(env, fmt.Sprintf("%s: %q", k, v))
		}
	}
	if loop == "" {
		loop = "      max_turns: 10\n"
	}
	text := fmt.Sprintf(manifestHead, self, strings.Join(env, ", ")) + loop
	a, err := capabilities.Parse("agentos.yaml", []byte(text), dir)
	if err != nil {
		return nil, fmt.Errorf("%w\n%s", err, text)
	}
	e, err := egress.New(egress.Config{})
	if err != nil {
		return nil, err
	}
	set, err := mcp.Open(ctx, mcp.Config{
		Servers: a.Servers, Egress: e, Binary: self, Version: "test", Clock: clock.System{},
		Resolve: func(s string) (string, error) { return s, nil }, Redact: func(s string) string { return s },
		Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return nil, err
	}
	return &runtime.Agent{Manifest: a, MCP: set}, nil
}

// testLog writes to the test's log.
type testLog struct{ t *testing.T }

func (l testLog) Write(b []byte) (int, error) {
	l.t.Log(strings.TrimSpace(string(b)))
	return len(b), nil
}

func (r *rig) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	r.t.Cleanup(cancel)
	return ctx
}

// start begins a run and waits until it is held or finished.
func (r *rig) start(message string) store.View {
	r.t.Helper()
	return r.wait(r.begin(message).ID)
}

func (r *rig) begin(message string) store.View {
	r.t.Helper()
	v, err := r.engine.Start(r.ctx(), runtime.StartRequest{
		Env: "default", Agent: "shop", Capability: "support", Requester: "tester",
		Input: rawjson.Object([]rawjson.Field{{Name: "message", Value: rawjson.Quote(message)}}),
	})
	if err != nil {
		r.t.Fatalf("start: %v", err)
	}
	return v
}

func (r *rig) wait(id string) store.View {
	r.t.Helper()
	v, err := r.engine.Wait(r.ctx(), "default", id)
	if err != nil {
		r.t.Fatalf("wait: %v", err)
	}
	return v
}

// decide posts decisions and waits for the run.
func (r *rig) decide(v store.View, ds ...holds.ItemDecision) store.View {
	r.t.Helper()
	if v.Hold == nil {
		r.t.Fatalf("the run is %s, not held: %s", v.Status, v.Last.Data)
	}
	if _, err := r.post(v.Hold.ID, ds...); err != nil {
		r.t.Fatalf("decide: %v", err)
	}
	return r.wait(v.ID)
}

func (r *rig) post(holdID string, ds ...holds.ItemDecision) (holds.Hold, error) {
	return r.engine.Decide(r.ctx(), "default", holdID, holds.Post{Decisions: ds, By: "ann"})
}

func approve(id string) holds.ItemDecision { return holds.ItemDecision{ID: id, Action: holds.Approve} }

func (r *rig) journal(id string) []journal.Entry {
	r.t.Helper()
	entries, err := r.store.Journal(r.ctx(), id, 0)
	if err != nil {
		r.t.Fatal(err)
	}
	return entries
}

func (r *rig) state(id string) *journal.State {
	r.t.Helper()
	s, err := journal.Fold(r.journal(id))
	if err != nil {
		r.t.Fatal(err)
	}
	return s
}

func (r *rig) want(v store.View, status store.Status) {
	r.t.Helper()
	if v.Status != status {
		r.t.Fatalf("the run is %s, want %s; last entry %s %s", v.Status, status, v.Last.Type, v.Last.Data)
	}
}

// wantFault checks the error of a failed run.
func (r *rig) wantFault(v store.View, code problem.Code) {
	r.t.Helper()
	r.want(v, store.Failed)
	if s := r.state(v.ID); s.Fault.Code != code || s.Fault.Message == "" {
		r.t.Errorf("fault = %+v, want %s", s.Fault, code)
	}
}

func (r *rig) ran(tool, part string, want int) {
	r.t.Helper()
	if n := toolserver.Count(r.t, r.ledger, tool, part); n != want {
		r.t.Errorf("%s with %q ran %d times, want %d", tool, part, n, want)
	}
}

// until waits for a fact, looking again whenever the run has news.
func (r *rig) until(id string, fact func(*journal.State) bool) *journal.State {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.ctx(), 15*time.Second)
	defer cancel()
	news, err := r.store.Watch(ctx, id)
	if err != nil {
		r.t.Fatal(err)
	}
	for {
		select {
		case <-news:
			if s := r.state(id); fact(s) {
				return s
			}
		case <-ctx.Done():
			r.t.Fatalf("waited in vain; journal: %v", r.journal(id))
		}
	}
}
