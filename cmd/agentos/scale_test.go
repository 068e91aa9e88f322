package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"agentos/api"
	"agentos/api/client"
	"agentos/internal/clock"
	"agentos/internal/testenv"
	"agentos/internal/testenv/toolserver"
)

const scaleManifest = `name: shop
mcp_servers:
  orders:
    command: [%q]
    env: {AGENTOS_TEST_TOOLSERVER: "1", AGENTOS_TEST_LEDGER: %q, GORACE: atexit_sleep_ms=0}
capabilities:
  support:
    input: {type: object, properties: {message: {type: string}}, required: [message]}
    output: {type: object, properties: {answer: {type: string}}, required: [answer]}
    loop: {model: main, approve: [cancel_order]}
config: {models: {main: openai/gpt-4o-mini}}
`

// fleet is several servers on one Redis.
type fleet struct {
	t      *testing.T
	dir    string
	ledger string
	store  string
	flags  []string
}

func newFleet(t *testing.T, store string, flags ...string) *fleet {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	f := &fleet{t: t, dir: t.TempDir(), store: store, flags: flags}
	f.ledger = filepath.Join(f.dir, "ledger")
	if err := os.WriteFile(filepath.Join(f.dir, "agentos.yaml"), fmt.Appendf(nil, scaleManifest, self, f.ledger), 0o600); err != nil {
		t.Fatal(err)
	}
	return f
}

// member is one server of a fleet.
type member struct {
	*client.Client
	t   *testing.T
	end func(syscall.Signal)
}

// start runs one more server and waits until it serves.
func (f *fleet) start(flags ...string) *member {
	t := f.t
	t.Helper()
	args := slices.Concat([]string{"serve", "--addr", "127.0.0.1:0", "--store", f.store}, f.flags, flags)
	cmd := exec.CommandContext(context.Background(), "agentos", args...)
	cmd.Dir = f.dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + f.dir, "NO_PROXY=*", "GORACE=atexit_sleep_ms=0"}
	errs, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	drained := make(chan struct{})
	m := &member{t: t}
	m.end = func(sig syscall.Signal) {
		if err := cmd.Process.Signal(sig); err != nil {
			return // it has ended
		}
		<-drained
		_ = cmd.Wait() // killed, or told to stop
	}
	t.Cleanup(func() { m.end(syscall.SIGKILL) })
	lines, url := bufio.NewReader(errs), ""
	var said strings.Builder
	for url == "" {
		line, err := lines.ReadString('\n')
		said.WriteString(line)
		if err != nil {
			close(drained)
			t.Fatalf("the server did not say where it serves: %v\n%s", err, said.String())
		}
		_, url, _ = strings.Cut(strings.TrimSpace(line), "serving on ")
	}
	go func() {
		defer close(drained)
		_, _ = io.Copy(io.Discard, lines)
	}()
	if m.Client, err = client.New(client.Config{URL: url, HTTP: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}}); err != nil {
		t.Fatal(err)
	}
	return m
}

func scaleContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// run starts a run whose model calls a tool.
func (m *member) run(ctx context.Context, call, key string, wait time.Duration) api.Run {
	m.t.Helper()
	r, err := m.CreateRun(ctx, client.CreateRun{
		Env: "default", Agent: "shop", Capability: "support", Key: key, Wait: wait,
		Body: api.CreateRun{Input: []byte(`{"message":` + fmt.Sprintf("%q", "call:"+call) + `}`)},
	})
	if err != nil {
		m.t.Fatalf("create: %v", err)
	}
	return r
}

func (m *member) settled(ctx context.Context, run string) api.Run {
	m.t.Helper()
	for {
		r, err := m.Run(ctx, "default", run, 20*time.Second)
		if err != nil {
			m.t.Fatalf("run %s: %v", run, err)
		}
		if r.Status != "queued" && r.Status != "running" {
			return r
		}
	}
}

// follow collects the events of a run to its end.
func (m *member) follow(ctx context.Context, run string, after int64) <-chan []string {
	out := make(chan []string, 1)
	go func() {
		var all []string
		for e, err := range m.Events(ctx, "default", run, after) {
			if err != nil {
				all = append(all, err.Error())
				break
			}
			all = append(all, fmt.Sprint(e.Seq, " ", e.Type))
		}
		out <- all
	}()
	return out
}

// The stores a fleet can share.
func eachRedis(t *testing.T, f func(t *testing.T, url string, flags []string, failOver func())) {
	t.Helper()
	t.Run("single", func(t *testing.T) {
		t.Parallel()
		f(t, testenv.StartRedis(t).URL(), nil, func() {})
	})
	t.Run("sentinel", func(t *testing.T) {
		t.Parallel()
		master := testenv.StartRedis(t)
		testenv.StartReplica(t, master)
		s := testenv.StartSentinels(t, master, 3)
		f(t, s.URL(), []string{"--wait-replicas", "1"}, s.FailOver)
	})
	t.Run("cluster", func(t *testing.T) {
		t.Parallel()
		nodes := testenv.StartRedisCluster(t, 3)
		f(t, "redis+cluster://"+nodes[0].Addr+","+nodes[1].Addr, []string{"--partitions", "4"}, func() {})
	})
}

// A run is created on one server, which dies, decided on a second, which is full,
// and finished on a third; whoever waits or follows it there misses nothing.
func TestFleetSharesARun(t *testing.T) {
	eachRedis(t, func(t *testing.T, url string, flags []string, failOver func()) {
		t.Helper()
		ctx := scaleContext(t)
		f := newFleet(t, url, append(flags, "--lease", "2s")...)
		a, b, c := f.start(), f.start("--concurrency", "1"), f.start()
		held := a.run(ctx, `cancel_order {"order_id":"A-1002"}`, "one", 20*time.Second)
		if held.Status != "held" {
			t.Fatalf("the run is %s", held.Status)
		}
		events := c.follow(ctx, held.RunID, 0)
		a.end(syscall.SIGKILL)
		failOver()
		busy := b.run(ctx, `wait {"ms":3000}`, "", 0)
		if again := b.run(ctx, `cancel_order {"order_id":"A-1002"}`, "one", 0); again.RunID != held.RunID {
			t.Errorf("the key gives %s on another server, want %s", again.RunID, held.RunID)
		}
		list, err := b.Holds(ctx, "default", client.HoldQuery{Status: "pending"})
		if err != nil || len(list.Holds) != 1 {
			t.Fatalf("holds %+v, %v", list.Holds, err)
		}
		h := list.Holds[0]
		d := client.Decide{Env: "default", Hold: h.HoldID, Body: api.Decide{
			Revision: h.Revision, Decisions: []api.ItemDecision{{ID: h.Items[0].ID, Action: "approve"}},
		}}
		if _, err := b.Decide(ctx, d); err != nil {
			t.Fatal(err)
		}
		if r := c.settled(ctx, held.RunID); r.Status != "completed" {
			t.Errorf("the run is %s", r.Status)
		}
		want := []string{"1 run.created", "2 model.answered", "3 hold.opened", "4 hold.decided", "5 hold.closed", "6 call.started", "7 call.finished", "8 model.answered", "9 run.completed"}
		if got := <-events; !slices.Equal(got, want) {
			t.Errorf("events %q, want %q", got, want)
		}
		if got := <-c.follow(ctx, held.RunID, 5); !slices.Equal(got, want[5:]) {
			t.Errorf("events after 5: %q", got)
		}
		if n := toolserver.Count(t, f.ledger, "cancel_order", ""); n != 1 {
			t.Errorf("cancel_order ran %d times", n)
		}
		if r := c.settled(ctx, busy.RunID); r.Status != "completed" {
			t.Errorf("the other run is %s", r.Status)
		}
	})
}

// Servers are replaced one after another under load: every run ends, none is held
// up for longer than the grace and a little, and no tool runs twice.
func TestFleetRollingRestart(t *testing.T) {
	t.Parallel()
	ctx := scaleContext(t)
	f := newFleet(t, testenv.StartRedis(t).URL(), "--lease", "5s", "--shutdown-grace", "2s")
	var mu sync.Mutex
	servers := []*member{f.start(), f.start()}
	pick := func(n int) *member {
		mu.Lock()
		defer mu.Unlock()
		return servers[n%len(servers)]
	}
	over := make(chan struct{})
	var clients sync.WaitGroup
	var runs sync.Map
	for i := range 8 {
		clients.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-over:
					return
				default:
				}
				key := fmt.Sprintf("%d-%d", i, n)
				began := time.Now()
				// A server that is stopping refuses; the same key goes to another.
				for try := 0; ctx.Err() == nil; try++ {
					r, err := pick(try+i).CreateRun(ctx, client.CreateRun{
						Env: "default", Agent: "shop", Capability: "support", Key: key, Wait: 20 * time.Second,
						Body: api.CreateRun{Input: fmt.Appendf(nil, `{"message":"call:wait {\"ms\":300,\"key\":\"%s\"}"}`, key)},
					})
					if err == nil && r.Status == "completed" {
						runs.Store(r.RunID, time.Since(began))
						break
					}
					if err == nil && r.Status != "queued" && r.Status != "running" {
						t.Errorf("run %s is %s", r.RunID, r.Status)
						return
					}
				}
			}
		})
	}
	for i := range servers {
		fresh := f.start()
		mu.Lock()
		old := servers[i]
		servers[i] = fresh
		mu.Unlock()
		old.end(syscall.SIGTERM)
	}
	<-clock.System{}.After(time.Second) // some more load on the new ones
	close(over)
	clients.Wait()
	n := 0
	runs.Range(func(id, took any) bool {
		n++
		if took.(time.Duration) > 5*time.Second {
			t.Errorf("run %s took %s", id, took)
		}
		return true
	})
	if n < 16 {
		t.Errorf("only %d runs", n)
	}
	seen := map[string]bool{}
	for _, e := range toolserver.Ledger(t, f.ledger) {
		if seen[e.Key] {
			t.Errorf("%s ran twice", e.Key)
		}
		seen[e.Key] = true
	}
}

// Redis is away for longer than a lease while calls are under way: /ready says so
// and why, and everything goes on when it is back, without a restart.
func TestFleetOutlivesRedis(t *testing.T) {
	t.Parallel()
	ctx := scaleContext(t)
	r := testenv.StartRedis(t, "appendonly yes", "appendfsync always")
	f := newFleet(t, r.URL(), "--lease", "1s")
	a, b := f.start(), f.start()
	var ids []string
	for i := range 6 {
		ids = append(ids, []*member{a, b}[i%2].run(ctx, fmt.Sprintf(`wait {"ms":1500,"n":%d}`, i), "", 0).RunID)
	}
	held := a.run(ctx, `cancel_order {"order_id":"A-1002"}`, "", 20*time.Second)
	r.Kill()
	for _, m := range []*member{a, b} {
		ready, err := m.Ready(ctx)
		if err != nil || ready.Ready || ready.Store.Reachable || !strings.Contains(strings.Join(ready.Warnings, " "), "nothing listens at its address") {
			t.Errorf("ready while Redis is away: %+v, %v", ready, err)
		}
	}
	<-clock.System{}.After(3 * time.Second)
	r.Restart()
	for _, m := range []*member{a, b} {
		for {
			ready, err := m.Ready(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if ready.Ready {
				break
			}
		}
	}
	for _, id := range ids {
		got := b.settled(ctx, id)
		// A call whose end could not be written is asked about, never repeated.
		if got.Status != "completed" && (got.Status != "held" || got.Hold == nil || got.Hold.Kind != "outcome_unknown") {
			t.Errorf("run %s is %s", id, got.Status)
		}
	}
	if got := b.settled(ctx, held.RunID); got.Status != "held" {
		t.Errorf("the held run is %s", got.Status)
	}
	if n := toolserver.Count(t, f.ledger, "wait", ""); n != len(ids) {
		t.Errorf("%d calls ran, want %d", n, len(ids))
	}
}
