package server_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"agentos/api"
	"agentos/api/auth"
	"agentos/api/client"
	"agentos/api/server"
	"agentos/audit"
	"agentos/capabilities"
	"agentos/gateway"
	"agentos/gateway/mock"
	"agentos/holds"
	"agentos/internal/clock"
	"agentos/internal/egress"
	"agentos/internal/ids"
	"agentos/internal/rawjson"
	"agentos/internal/testenv/toolserver"
	"agentos/runtime"
	"agentos/runtime/journal"
	"agentos/runtime/mcp"
	"agentos/runtime/store"
	"agentos/runtime/store/file"
)

func TestMain(m *testing.M) {
	toolserver.Main()
	goleak.VerifyTestMain(m)
}

const manifest = `
name: shop
title: Shop
mcp_servers:
  orders:
    command: [%q]
    env: {%s}
    effects: {read: [lookup_order]}
config: {models: {main: mock/m}}
capabilities:
  support:
    input: {type: object, properties: {message: {type: string}}, required: [message]}
    output: {type: object, properties: {answer: {type: string}}, required: [answer]}
    timeout: 30s
    loop:
      model: main
      %s
`

// testClock is the system clock moved forward by a test, with heartbeats that come
// when the test says so.
type testClock struct {
	off   atomic.Int64
	beats chan time.Time
}

func (c *testClock) Now() time.Time { return time.Now().Add(time.Duration(c.off.Load())) }

func (c *testClock) After(d time.Duration) <-chan time.Time {
	if d == server.Heartbeat {
		return c.beats
	}
	return time.After(d)
}

// faultyStore fails reads and Create with fault while one is set.
type faultyStore struct {
	store.Store
	fault atomic.Pointer[error]
}

func (f *faultyStore) set(err error) {
	if err == nil {
		f.fault.Store(nil)
		return
	}
	f.fault.Store(&err)
}

var errPanic = errors.New("panic")

func (f *faultyStore) check() error {
	p := f.fault.Load()
	switch {
	case p == nil:
		return nil
	case errors.Is(*p, errPanic):
		panic("the store fell over: secret-cause")
	}
	return *p
}

func (f *faultyStore) Create(ctx context.Context, c store.Create) (store.Created, error) {
	if err := f.check(); err != nil {
		return store.Created{}, err
	}
	return f.Store.Create(ctx, c)
}

func (f *faultyStore) Run(ctx context.Context, id string) (store.View, error) {
	if err := f.check(); err != nil {
		return store.View{}, err
	}
	return f.Store.Run(ctx, id)
}

func (f *faultyStore) Runs(ctx context.Context, q store.RunFilter, p store.Page) ([]store.View, string, error) {
	if err := f.check(); err != nil {
		return nil, "", err
	}
	return f.Store.Runs(ctx, q, p)
}

func (f *faultyStore) Hold(ctx context.Context, id string) (store.HoldView, error) {
	if err := f.check(); err != nil {
		return store.HoldView{}, err
	}
	return f.Store.Hold(ctx, id)
}

// Orders does not panic: the engine reads them in a goroutine of its own as well.
func (f *faultyStore) Orders(ctx context.Context, env string) (store.Orders, error) {
	if p := f.fault.Load(); p != nil && !errors.Is(*p, errPanic) {
		return store.Orders{}, *p
	}
	return f.Store.Orders(ctx, env)
}

// Document does not panic either: keys are followed in a goroutine of their own.
func (f *faultyStore) Document(ctx context.Context, env, name string) (store.Document, error) {
	if p := f.fault.Load(); p != nil && !errors.Is(*p, errPanic) {
		return store.Document{}, *p
	}
	return f.Store.Document(ctx, env, name)
}

func (f *faultyStore) LogEnd(ctx context.Context, name string) (int64, json.RawMessage, error) {
	if err := f.check(); err != nil {
		return 0, nil, err
	}
	return f.Store.LogEnd(ctx, name)
}

// damagedStore fails what reads a run.
type damagedStore struct {
	*faultyStore
	damaged atomic.Bool
}

func (d *damagedStore) Journal(ctx context.Context, id string, after int64) ([]journal.Entry, error) {
	if d.damaged.Load() {
		return nil, fmt.Errorf("entry 2: %w", store.ErrDamaged)
	}
	return d.faultyStore.Journal(ctx, id, after)
}

func (d *damagedStore) Run(ctx context.Context, id string) (store.View, error) {
	if d.damaged.Load() {
		return store.View{}, fmt.Errorf("entry 2: %w", store.ErrDamaged)
	}
	return d.faultyStore.Run(ctx, id)
}

func (d *damagedStore) Create(ctx context.Context, c store.Create) (store.Created, error) {
	if d.damaged.Load() {
		return store.Created{}, fmt.Errorf("entry 1: %w", store.ErrDamaged)
	}
	return d.faultyStore.Create(ctx, c)
}

func (d *damagedStore) Hold(ctx context.Context, id string) (store.HoldView, error) {
	if d.damaged.Load() {
		return store.HoldView{}, fmt.Errorf("entry 2: %w", store.ErrDamaged)
	}
	return d.faultyStore.Hold(ctx, id)
}

func (f *faultyStore) Holds(ctx context.Context, q store.HoldFilter, p store.Page) ([]holds.Hold, string, error) {
	if err := f.check(); err != nil {
		return nil, "", err
	}
	return f.Store.Holds(ctx, q, p)
}

func (f *faultyStore) Health(ctx context.Context) (store.Health, error) {
	if err := f.check(); err != nil {
		return store.Health{}, err
	}
	return f.Store.Health(ctx)
}

// rig is the product behind a real HTTP server: a file store, a real MCP child and
// the mock model. Every answer is checked against the document.
type rig struct {
	t      *testing.T
	dir    string
	ledger string
	rule   string // what the manifest does with cancel_order: approve or deny
	// command starts the MCP server; the test binary unless set.
	command string
	// concurrency and maxQueued are the engine's, its defaults unless set.
	concurrency, maxQueued int
	clock                  *testClock
	log                    *logBuffer

	store    *damagedStore
	engine   *runtime.Engine
	server   *server.Server
	tokens   *server.RunTokens
	registry *prometheus.Registry
	http     *httptest.Server
	client   *client.Client
	checked  *checked
	keys     *auth.Keyring
	// key is what requests carry that bring no credential of their own; "" nothing.
	key  string
	stop func()
}

// as makes a key and returns its secret. Who has no words is an admin.
func (r *rig) as(name string, words ...string) string {
	r.t.Helper()
	k := api.CreateKey{Name: name}
	for _, w := range words {
		if slices.Contains(auth.Roles(), auth.Role(w)) {
			k.Roles = append(k.Roles, w)
		} else {
			k.Groups = append(k.Groups, w)
		}
	}
	if len(words) == 0 {
		k.Roles = []string{"admin"}
	}
	made, err := r.keys.Create(r.ctx(), auth.Actor{Name: "local"}, k)
	if err != nil {
		r.t.Fatalf("key of %s: %v", name, err)
	}
	return made.Secret
}

// keyed adds the rig's key to requests without a credential.
type keyed struct{ r *rig }

// RoundTrip implements http.RoundTripper.
func (k keyed) RoundTrip(req *http.Request) (*http.Response, error) {
	if k.r.key != "" && req.Header.Get("Authorization") == "" {
		req = req.Clone(req.Context())
		req.Header.Set("Authorization", "Bearer "+k.r.key)
	}
	return k.r.checked.RoundTrip(req)
}

// logBuffer collects the server's log.
type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logBuffer) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(b)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

func newRig(t *testing.T) *rig {
	t.Helper()
	dir := t.TempDir()
	r := &rig{
		t: t, dir: dir, ledger: filepath.Join(dir, "ledger"), rule: "approve: [cancel_order]",
		clock: &testClock{beats: make(chan time.Time)}, log: &logBuffer{},
	}
	return r.up()
}

func (r *rig) up() *rig {
	t := r.t
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	s, err := file.Open(ctx, file.Config{Path: filepath.Join(r.dir, "agentos.db"), Clock: r.clock})
	if err != nil {
		t.Fatal(err)
	}
	r.store = &damagedStore{faultyStore: &faultyStore{Store: s}}
	g := newGateway(t)
	agent := r.agent(ctx)
	log := slog.New(slog.NewTextHandler(r.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	r.engine, err = runtime.New(ctx, runtime.Config{
		Store: r.store, Gateway: g, Agents: []*runtime.Agent{agent}, Clock: clock.System{}, IDs: ids.Random{},
		Log: log, Redact: func(s string) string { return s }, Env: "default", Worker: "test",
		Concurrency: r.concurrency, MaxQueued: r.maxQueued,
	})
	if err != nil {
		t.Fatal(err)
	}
	worked := make(chan struct{})
	go func() {
		defer close(worked)
		if err := r.engine.Work(ctx); err != nil {
			t.Errorf("work: %v", err)
		}
	}()
	if r.keys, err = auth.New(auth.Config{Store: r.store, Env: "default", Clock: r.clock, IDs: ids.Random{}, Log: log}); err != nil {
		t.Fatal(err)
	}
	followed := make(chan struct{})
	go func() {
		defer close(followed)
		r.keys.Follow(ctx)
	}()
	r.tokens, r.registry = server.NewRunTokens(ids.Random{}), prometheus.NewRegistry()
	r.server, err = server.New(ctx, server.Config{
		Engine: r.engine, Store: r.store, Gateway: g, Keys: r.keys, Audit: audit.NewChain(r.store, "default"), Env: "default", Version: "test", Clock: r.clock, IDs: ids.Random{},
		Log: log, Metrics: r.registry, Tokens: r.tokens, MockModel: "mock/m",
		Warnings: func() []string { return []string{"a policy warning"} },
	})
	if err != nil {
		t.Fatal(err)
	}
	r.http = httptest.NewServer(r.server.Handler())
	before := r.checked
	r.checked = newChecked(t, r.server.Document(), r.http.Client().Transport)
	if before != nil {
		r.checked.seen = before.seen
	}
	if r.client, err = client.New(client.Config{URL: r.http.URL, HTTP: &http.Client{Transport: keyed{r}}}); err != nil {
		t.Fatal(err)
	}
	r.stop = sync.OnceFunc(func() {
		r.http.CloseClientConnections()
		r.http.Close()
		r.engine.Drain(context.WithoutCancel(ctx), 100*time.Millisecond)
		cancel()
		<-worked
		<-followed
		if err := agent.MCP.Close(context.WithoutCancel(ctx)); err != nil {
			t.Errorf("close MCP: %v", err)
		}
		if err := s.Close(); err != nil {
			t.Errorf("close store: %v", err)
		}
	})
	t.Cleanup(func() { r.stop() })
	return r
}

func newGateway(t *testing.T) *gateway.Gateway {
	t.Helper()
	model, err := mock.New(mock.Config{Clock: clock.System{}})
	if err != nil {
		t.Fatal(err)
	}
	g, err := gateway.New(gateway.Config{
		Providers: map[string]gateway.Provider{"mock": model}, Clock: clock.System{}, MaxWait: 10 * time.Millisecond, Attempts: 2,
		Rand: func(int64) int64 { return 0 }, Redact: func(s string) string { return s },
	})
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func (r *rig) agent(ctx context.Context) *runtime.Agent {
	t := r.t
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var env []string
	for k, v := range toolserver.Env(r.ledger) {
		env = append(env, fmt.Sprintf("%s: %q", k, v))
	}
	a, err := capabilities.Parse("agentos.yaml", fmt.Appendf(nil, manifest, cmp.Or(r.command, self), strings.Join(env, ", "), r.rule), r.dir)
	if err != nil {
		t.Fatal(err)
	}
	e, err := egress.New(egress.Config{})
	if err != nil {
		t.Fatal(err)
	}
	set, err := mcp.Open(ctx, mcp.Config{
		Servers: a.Servers, Egress: e, Binary: self, Version: "test", Clock: clock.System{},
		Resolve: func(s string) (string, error) { return s, nil }, Redact: func(s string) string { return s },
		Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	set.Wait(ctx)
	return &runtime.Agent{Manifest: a, MCP: set}
}

func (r *rig) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	r.t.Cleanup(cancel)
	return ctx
}

// message is the body of a run whose model is told message.
func message(text string) api.CreateRun {
	return api.CreateRun{Input: rawjson.Object([]rawjson.Field{{Name: "message", Value: rawjson.Quote(text)}})}
}

// create asks for a run and waits for it.
func (r *rig) create(text string, wait time.Duration) api.Run {
	r.t.Helper()
	run, err := r.client.CreateRun(r.ctx(), client.CreateRun{
		Env: "default", Agent: "shop", Capability: "support", Body: message(text), Wait: wait,
	})
	if err != nil {
		r.t.Fatalf("create run: %v", err)
	}
	return run
}

// held creates a run that is held on cancel_order of an order.
func (r *rig) held(order string) api.Run {
	r.t.Helper()
	run := r.create(`call:cancel_order {"order_id":"`+order+`"}`, 10*time.Second)
	if run.Status != api.RunHeld || run.Hold == nil {
		r.t.Fatalf("the run is %s, want held; error %+v", run.Status, run.Error)
	}
	return run
}

// busy creates a run that stays at work until it is cancelled, or handed back when
// the rig stops.
func (r *rig) busy() api.Run {
	r.t.Helper()
	run := r.create(`call:wait {"ms":20000}`, 0)
	r.entry(run.RunID, "call.started")
	return run
}

// entry waits until the run has an entry of the type.
func (r *rig) entry(run, kind string) api.Entry {
	r.t.Helper()
	for e, err := range r.client.Events(r.ctx(), "default", run, 0) {
		if err != nil {
			r.t.Fatalf("events: %v", err)
		}
		if e.Type == kind {
			return e
		}
	}
	r.t.Fatalf("run %s ended without %s", run, kind)
	return api.Entry{}
}

func (r *rig) decide(hold string, wait time.Duration, ds ...api.ItemDecision) (api.Decided, error) {
	return r.client.Decide(r.ctx(), client.Decide{Env: "default", Hold: hold, Body: api.Decide{Decisions: ds}, Wait: wait})
}

func item(action string) api.ItemDecision { return api.ItemDecision{ID: "call_1", Action: action} }

func (r *rig) ran(tool, part string, want int) {
	r.t.Helper()
	if n := toolserver.Count(r.t, r.ledger, tool, part); n != want {
		r.t.Errorf("%s with %q ran %d times, want %d", tool, part, n, want)
	}
}

// answer is what one raw request got.
type answer struct {
	status int
	header http.Header
	body   []byte
}

func (a answer) code() string {
	var body api.ErrorBody
	if json.Unmarshal(a.body, &body) != nil {
		return ""
	}
	return string(body.Error.Code)
}

// call is a raw request. Headers are "Name: value".
type call struct {
	method, path, body string
	headers            []string
	host               string
}

// send sends a raw request; bodies go as JSON unless a header says otherwise.
func (r *rig) send(c call) answer {
	r.t.Helper()
	var body io.Reader
	if c.body != "" {
		body = strings.NewReader(c.body)
	}
	req, err := http.NewRequestWithContext(r.ctx(), c.method, r.http.URL+c.path, body)
	if err != nil {
		r.t.Fatal(err)
	}
	if c.body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for _, h := range c.headers {
		name, value, _ := strings.Cut(h, ":")
		req.Header.Del(name)
		if value = strings.TrimSpace(value); value != "" {
			req.Header.Set(name, value)
		}
	}
	if c.host != "" {
		req.Host = c.host
	}
	res, err := keyed{r}.RoundTrip(req)
	if err != nil {
		r.t.Fatalf("%s %s: %v", c.method, c.path, err)
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	if err != nil {
		r.t.Fatalf("%s %s: %v", c.method, c.path, err)
	}
	return answer{status: res.StatusCode, header: res.Header, body: raw}
}
