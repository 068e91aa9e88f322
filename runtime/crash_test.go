package runtime_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	goruntime "runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"agentos/gateway"
	"agentos/holds"
	"agentos/internal/clock"
	"agentos/internal/ids"
	"agentos/internal/testenv"
	"agentos/internal/testenv/toolserver"
	"agentos/runtime"
	"agentos/runtime/store"
	"agentos/runtime/store/file"
	"agentos/runtime/store/redis"
)

// The crash tests run the engine in a child process that kills itself with
// SIGKILL at one point of a run, and then look at what another process finds.
const (
	envCrash   = "AGENTOS_TEST_CRASH"
	crashKey   = "the-run"
	crashLease = 3 * time.Second
)

// crashPlan is what a child is told in its environment.
type crashPlan struct {
	Store, Dir string
	// Point is where the child dies: a store.Point, or "during:model".
	Point string
	// Stop makes the child stop there, to be continued, instead of dying.
	Stop bool
	// Scene chooses the calls the model asks for.
	Scene string
	// Loop is the end of the manifest.
	Loop string
}

// scenes are what the model asks for in its first answer.
var scenes = map[string]string{
	"read":  asks(call{"a", "lookup_order", `{"order_id":"A-1"}`}),
	"once":  asks(call{"a", "ping", `{"n":1}`}),
	"gated": asks(call{"a", "cancel_order", `{"order_id":"A-1"}`}),
	"two":   asks(call{"a", "ping", `{"n":1}`}, call{"b", "ping", `{"n":2}`}),
}

// crashModel asks for the scene's calls until it sees a result.
func crashModel(scene string) func(int, json.RawMessage) (string, error) {
	return func(_ int, body json.RawMessage) (string, error) {
		if strings.Contains(string(body), `"role":"tool"`) {
			return says("done"), nil
		}
		return scenes[scene], nil
	}
}

func openStore(ctx context.Context, url string, c clock.Clock, retention time.Duration) (store.Store, error) {
	if path, ok := strings.CutPrefix(url, "file:"); ok {
		return file.Open(ctx, file.Config{Path: path, Clock: c, Retention: retention})
	}
	return redis.Open(ctx, redis.Config{
		URL: url, Log: slog.New(slog.DiscardHandler),
		Offset: func() time.Duration { return time.Until(c.Now()) },
	})
}

// crashChild is the process that dies. It returns only when the point was never
// reached.
func crashChild() error {
	var p crashPlan
	if err := json.Unmarshal([]byte(os.Getenv(envCrash)), &p); err != nil {
		return err
	}
	die := func() {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
	if p.Stop {
		// Sent to this very thread, the signal stops the process before the call
		// returns; sent to the process, some time later.
		die = sync.OnceFunc(func() {
			goruntime.LockOSThread()
			defer goruntime.UnlockOSThread()
			_ = syscall.Tgkill(os.Getpid(), syscall.Gettid(), syscall.SIGSTOP)
		})
	}
	ctx := context.Background()
	plain, err := openStore(ctx, p.Store, clock.System{}, 0)
	if err != nil {
		return err
	}
	s := store.Fault{Store: plain, At: func(_ context.Context, at store.Point) {
		if at.String() == p.Point {
			die()
		}
	}}
	reply := crashModel(p.Scene)
	m := &model{reply: func(n int, body json.RawMessage) (string, error) {
		if p.Point == "during:model" {
			die()
		}
		return reply(n, body)
	}}
	agent, err := loadAgent(ctx, p.Dir, filepath.Join(p.Dir, "ledger"), p.Loop, nil)
	if err != nil {
		return err
	}
	e, err := newEngine(ctx, s, m, agent, slog.New(slog.DiscardHandler), crashLease)
	if err != nil {
		return err
	}
	go func() { _ = e.Work(ctx) }()
	v, err := e.Start(ctx, crashStart())
	if err != nil {
		return err
	}
	v, err = e.Wait(ctx, "default", v.ID)
	if err != nil {
		return err
	}
	if v.Hold != nil && v.Hold.Kind == holds.ToolCall {
		_, err := e.Decide(ctx, "default", v.Hold.ID, holds.Post{By: "ann", Decisions: []holds.ItemDecision{approve("call_1")}})
		if err != nil {
			return err
		}
		v, err = e.Wait(ctx, "default", v.ID)
		if err != nil {
			return err
		}
	}
	return fmt.Errorf("the run reached %s without passing %s", v.Status, p.Point)
}

func crashStart() runtime.StartRequest {
	return runtime.StartRequest{
		Env: "default", Agent: "shop", Capability: "support", Requester: "tester", Key: crashKey,
		Input: json.RawMessage(`{"message":"go"}`),
	}
}

func newEngine(ctx context.Context, s store.Store, p gateway.Provider, a *runtime.Agent, log *slog.Logger, lease time.Duration) (*runtime.Engine, error) {
	return newEngineAs(ctx, s, p, a, log, runtime.Config{Lease: lease})
}

// newEngineAs fills in what every engine of the tests has.
func newEngineAs(ctx context.Context, s store.Store, p gateway.Provider, a *runtime.Agent, log *slog.Logger, cfg runtime.Config) (*runtime.Engine, error) {
	g, err := gateway.New(gateway.Config{
		Providers: map[string]gateway.Provider{"test": p}, Clock: clock.System{}, MaxWait: 50 * time.Millisecond,
		Rand: func(int64) int64 { return 0 }, Redact: func(s string) string { return s },
	})
	if err != nil {
		return nil, err
	}
	cfg.Store, cfg.Gateway, cfg.Agents, cfg.Clock, cfg.IDs, cfg.Log = s, g, []*runtime.Agent{a}, clock.System{}, ids.Random{}, log
	cfg.Redact = func(s string) string { return s }
	cfg.Env, cfg.Worker = "default", fmt.Sprint("pid ", os.Getpid())
	return runtime.New(ctx, cfg)
}

// die runs a child until it kills itself.
func die(t *testing.T, p crashPlan) {
	t.Helper()
	raw, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env = append(os.Environ(), envCrash+"="+string(raw))
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Fatalf("the child did not die of SIGKILL at %s: %v\n%s", p.Point, err, out)
	}
}

// crash runs a child until it kills itself and returns a fresh process on what it
// left.
func crash(t *testing.T, url string, p crashPlan) *rig {
	t.Helper()
	p.Dir = t.TempDir()
	if url == "" {
		url = "file:" + filepath.Join(p.Dir, "agentos.db")
	}
	p.Store = url
	die(t, p)
	r := newRig(t, p.Loop, crashModel(p.Scene))
	// The dead process's lease ends soon; the one of this process must outlast a
	// busy machine.
	r.dir, r.ledger, r.lease, r.url = p.Dir, filepath.Join(p.Dir, "ledger"), 10*time.Second, url
	return r.up()
}

// crashed returns the run the dead process made, as a caller finds it: by asking
// again with the same key.
func (r *rig) crashed() string {
	r.t.Helper()
	v, err := r.engine.Start(r.ctx(), crashStart())
	if err != nil {
		r.t.Fatal(err)
	}
	return v.ID
}

// TestCrashTable dies at every row of the crash table, with both stores.
func TestCrashTable(t *testing.T) {
	const once, read = "ping", "lookup_order"
	rows := []struct {
		name   string
		plan   crashPlan
		held   holds.Kind             // the hold found after recovery, "" for none
		decide []holds.ItemDecision   // how it is decided
		tool   string                 // whose executions are counted
		before int                    // executions when the hold is found, or at the end without one
		after  int                    // executions at the end
		more   func(*rig, store.View) // further checks
	}{
		{name: "before the creation commit", plan: crashPlan{Point: "before:run.created", Scene: "once"}, tool: once, before: 1, after: 1},
		{name: "after the creation commit", plan: crashPlan{Point: "after:run.created", Scene: "once"}, tool: once, before: 1, after: 1},
		{name: "during a model call", plan: crashPlan{Point: "during:model", Scene: "once"}, tool: once, before: 1, after: 1, more: func(r *rig, _ store.View) {
			if n := r.model.asked(); n != 2 {
				r.t.Errorf("the second process asked the model %d times, want 2", n)
			}
		}},
		{name: "before the answer is written", plan: crashPlan{Point: "before:model.answered+call.started", Scene: "once"}, tool: once, before: 1, after: 1},
		{
			name: "answered, not started", plan: crashPlan{Point: "before:call.finished+call.started", Scene: "two", Loop: "      parallel_calls: false\n"}, tool: once,
			held: holds.OutcomeUnknown, decide: []holds.ItemDecision{{ID: "call_1", Action: holds.Skip}}, before: 1, after: 2,
		},
		{
			name: "started, once, before the call", plan: crashPlan{Point: "after:model.answered+call.started", Scene: "once"}, tool: once,
			held: holds.OutcomeUnknown, decide: []holds.ItemDecision{{ID: "call_1", Action: holds.Retry}}, before: 0, after: 1,
		},
		{
			name: "started, once, after the effect, retry", plan: crashPlan{Point: "before:call.finished", Scene: "once"}, tool: once,
			held: holds.OutcomeUnknown, decide: []holds.ItemDecision{{ID: "call_1", Action: holds.Retry}}, before: 1, after: 2,
		},
		{
			name: "started, once, after the effect, skip", plan: crashPlan{Point: "before:call.finished", Scene: "once"}, tool: once,
			held: holds.OutcomeUnknown, decide: []holds.ItemDecision{{ID: "call_1", Action: holds.Skip}}, before: 1, after: 1,
		},
		{
			name: "started, once, after the effect, ran", plan: crashPlan{Point: "before:call.finished", Scene: "once"}, tool: once,
			held: holds.OutcomeUnknown, decide: []holds.ItemDecision{{ID: "call_1", Action: holds.Ran, Data: json.RawMessage(`"it ran"`)}}, before: 1, after: 1,
		},
		{name: "started, read, before the call", plan: crashPlan{Point: "after:model.answered+call.started", Scene: "read"}, tool: read, before: 1, after: 1},
		{name: "started, read, after the effect", plan: crashPlan{Point: "before:call.finished", Scene: "read"}, tool: read, before: 2, after: 2, more: func(r *rig, _ store.View) {
			l := toolserver.Ledger(r.t, r.ledger)
			if l[0].Key == "" || l[0].Key != l[1].Key {
				r.t.Errorf("idempotency keys %q and %q", l[0].Key, l[1].Key)
			}
		}},
		{name: "finished", plan: crashPlan{Point: "after:call.finished", Scene: "once"}, tool: once, before: 1, after: 1},
		{name: "before the end is written", plan: crashPlan{Point: "before:model.answered+run.completed", Scene: "once"}, tool: once, before: 1, after: 1},
		{
			name: "before the hold is written", plan: crashPlan{Point: "before:model.answered+hold.opened", Scene: "gated", Loop: usual}, tool: "cancel_order",
			held: holds.ToolCall, decide: []holds.ItemDecision{approve("call_1")}, before: 0, after: 1,
		},
		{
			name: "held", plan: crashPlan{Point: "after:model.answered+hold.opened", Scene: "gated", Loop: usual}, tool: "cancel_order",
			held: holds.ToolCall, decide: []holds.ItemDecision{approve("call_1")}, before: 0, after: 1,
		},
		{
			name: "before the decision commit", plan: crashPlan{Point: "before:hold.decided+hold.closed", Scene: "gated", Loop: usual}, tool: "cancel_order",
			held: holds.ToolCall, decide: []holds.ItemDecision{approve("call_1")}, before: 0, after: 1,
		},
		{name: "after the decision commit", plan: crashPlan{Point: "after:hold.decided+hold.closed", Scene: "gated", Loop: usual}, tool: "cancel_order", before: 1, after: 1},
		{name: "decided, before the start is written", plan: crashPlan{Point: "before:call.started", Scene: "gated", Loop: usual}, tool: "cancel_order", before: 1, after: 1},
		{
			name: "decided and started", plan: crashPlan{Point: "after:call.started", Scene: "gated", Loop: usual}, tool: "cancel_order",
			held: holds.OutcomeUnknown, decide: []holds.ItemDecision{{ID: "call_1", Action: holds.Retry}}, before: 0, after: 1,
		},
	}
	for _, kind := range []string{"file", "redis"} {
		t.Run(kind, func(t *testing.T) {
			for _, row := range rows {
				t.Run(row.name, func(t *testing.T) {
					t.Parallel()
					url := ""
					if kind == "redis" {
						url = testenv.StartRedis(t).URL()
					}
					r := crash(t, url, row.plan)
					if row.plan.Point == "before:run.created" {
						if runs, _, err := r.store.Runs(r.ctx(), store.RunFilter{}, store.Page{Limit: 1}); err != nil || len(runs) > 0 {
							t.Fatalf("runs %v, %v: there is none that was created", runs, err)
						}
					}
					v, err := r.engine.Start(r.ctx(), crashStart())
					if err != nil {
						t.Fatal(err)
					}
					v = r.wait(v.ID)
					if row.held != "" {
						r.want(v, store.Held)
						if v.Hold.Kind != row.held {
							t.Fatalf("hold of kind %s, want %s", v.Hold.Kind, row.held)
						}
						r.ran(row.tool, "", row.before)
						v = r.decide(v, row.decide...)
					}
					r.want(v, store.Completed)
					r.ran(row.tool, "", row.after)
					if _, err := r.state(v.ID).History(); err != nil {
						t.Errorf("history: %v", err)
					}
					if row.more != nil {
						row.more(r, v)
					}
				})
			}
		})
	}
}
