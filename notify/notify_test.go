package notify_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"agentos/audit"
	"agentos/holds"
	"agentos/notify"
	"agentos/runtime/journal"
	"agentos/runtime/store"
	"agentos/runtime/store/file"
	"agentos/runtime/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// target is told by a test's rules.
type target struct {
	name string
	tell func(ctx context.Context, r notify.Run, state json.RawMessage) notify.Told
}

func (t *target) Name() string { return t.name }

func (t *target) Tell(ctx context.Context, r notify.Run, state json.RawMessage) notify.Told {
	return t.tell(ctx, r, state)
}

// rig is a store and tellers.
type rig struct {
	t     *testing.T
	store store.Store
	clock *storetest.Clock
	log   bytes.Buffer
	// settled gets a value after each notice that was settled or could not be.
	settled chan store.Settled
}

// observed tells of what was settled.
type observed struct {
	notify.Store
	settled chan store.Settled
}

func (o observed) Settle(ctx context.Context, s store.Settled) error {
	err := o.Store.Settle(ctx, s)
	o.settled <- s
	return err
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{t: t, clock: storetest.NewClock(), settled: make(chan store.Settled, 100)}
	s, err := file.Open(t.Context(), file.Config{Clock: r.clock})
	if err != nil {
		t.Fatal(err)
	}
	r.store = s
	t.Cleanup(func() { _ = s.Close() })
	return r
}

// teller works until the test ends it, or itself ends.
func (r *rig) teller(s notify.Store, targets ...notify.Target) (stop func()) {
	r.t.Helper()
	t, err := notify.New(notify.Config{Store: observed{s, r.settled}, Targets: targets, Clock: fast{}, Log: slog.New(slog.NewTextHandler(&r.log, nil))})
	if err != nil {
		r.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(r.t.Context())
	var ended sync.WaitGroup
	ended.Go(func() { t.Work(ctx) })
	stop = func() { cancel(); ended.Wait() }
	r.t.Cleanup(stop)
	return stop
}

// fast is a clock on which waiting is short.
type fast struct{}

func (fast) Now() time.Time                       { return time.Now() }
func (fast) After(time.Duration) <-chan time.Time { return time.After(time.Millisecond) }

// run creates a run with n answers of which others are to be told.
func (r *rig) run(n int) store.Lease {
	r.t.Helper()
	id := fmt.Sprintf("r_%026d", n)
	c, err := r.store.Create(r.t.Context(), store.Create{
		Op: id, RunID: id, Request: "q", Env: "prod", Agent: "a", Capability: "c", Entry: entry(r.t, journal.RunCreated, journal.Created{Agent: "a"}), Lease: time.Minute,
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return c.Lease
}

func (r *rig) commit(l store.Lease, notify bool, list ...journal.New) {
	r.t.Helper()
	tx := store.Tx{Op: fmt.Sprint(l.RunID, time.Now().UnixNano()), Status: store.Running, Lease: time.Minute, Entries: list, Notify: notify}
	if _, err := r.store.Commit(r.t.Context(), l, tx); err != nil {
		r.t.Fatal(err)
	}
}

func entry(t *testing.T, kind journal.Type, v any) journal.New {
	t.Helper()
	n, err := journal.Encode(kind, v)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func answer(t *testing.T) journal.New {
	t.Helper()
	return entry(t, journal.RunRecovered, journal.Recovered{})
}

// next waits for a value.
func next[T any](t *testing.T, ch <-chan T) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(20 * time.Second):
		t.Fatal("nobody was told")
		panic("unreachable")
	}
}

// Every target is told of all entries, with its own state, once for each news.
func TestTellsEachTarget(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	told := make(chan string, 10)
	counts := func(name string) *target {
		return &target{name, func(_ context.Context, run notify.Run, state json.RawMessage) notify.Told {
			told <- fmt.Sprintf("%s: %s %s of %d after %s", name, run.Env, run.ID[26:], len(run.Journal), state)
			return notify.Told{State: json.RawMessage(fmt.Sprintf(`{"%s":%d}`, name, len(run.Journal)))}
		}}
	}
	silent := &target{"silent", func(context.Context, notify.Run, json.RawMessage) notify.Told { return notify.Told{} }}
	l := r.run(1)
	r.commit(l, true, answer(t))
	r.commit(r.run(2), false, answer(t))
	r.teller(r.store, counts("a"), silent, counts("b"))
	wanted := func(want ...string) {
		t.Helper()
		got := map[string]bool{}
		for range want {
			got[next(t, told)] = true
		}
		for _, w := range want {
			if !got[w] {
				t.Errorf("told %v, want %q", got, w)
			}
		}
		next(t, r.settled)
	}
	wanted("a: prod 01 of 2 after ", "b: prod 01 of 2 after ")
	r.commit(l, true, answer(t), answer(t))
	wanted(`a: prod 01 of 4 after {"a":2}`, `b: prod 01 of 4 after {"b":2}`)
	r.clock.Advance(time.Hour)
	r.commit(l, true, answer(t)) // nothing else was told meanwhile: this is the next
	wanted(`a: prod 01 of 5 after {"a":4}`, `b: prod 01 of 5 after {"b":4}`)
}

// The earliest time that a target asks for is kept, and only those whose time has
// come need to do anything then.
func TestTellsAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	told := make(chan string, 10)
	in := func(name string, due time.Duration) *target {
		return &target{name, func(_ context.Context, _ notify.Run, state json.RawMessage) notify.Told {
			told <- name
			return notify.Told{State: json.RawMessage(`1`), Again: state == nil, Due: due}
		}}
	}
	r.commit(r.run(1), true, answer(t))
	r.teller(r.store, in("late", 2*time.Hour), in("early", time.Hour))
	next(t, told)
	next(t, told)
	next(t, r.settled)
	r.clock.Advance(59 * time.Minute)
	select {
	case name := <-told:
		t.Fatalf("%s was told before its time", name)
	case <-time.After(100 * time.Millisecond):
	}
	r.clock.Advance(time.Minute)
	next(t, told)
	next(t, told)
}

// A target that does not come to its end holds up no other run; and when its
// process stops, another one tells the run again.
func TestStoppedInTheMiddle(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	begun, told := make(chan string, 40), make(chan string, 40)
	stop := r.teller(r.store, &target{"x", func(ctx context.Context, run notify.Run, _ json.RawMessage) notify.Told {
		if strings.HasSuffix(run.ID, "0") {
			begun <- run.ID
			<-ctx.Done()
			return notify.Told{State: json.RawMessage(`"half"`)}
		}
		told <- run.ID
		return notify.Told{}
	}})
	r.commit(r.run(10), true, answer(t))
	next(t, begun)
	for i := 1; i < 8; i++ {
		r.commit(r.run(i), true, answer(t))
		next(t, told)
		next(t, r.settled)
	}
	stop()
	r.teller(r.store, &target{"x", func(_ context.Context, run notify.Run, state json.RawMessage) notify.Told {
		told <- run.ID + string(state)
		return notify.Told{}
	}})
	if id := next(t, told); id != fmt.Sprintf("r_%026d", 10) {
		t.Errorf("%s was told again", id)
	}
}

// faulty fails now and then.
type faulty struct {
	store.Store
	mu      sync.Mutex
	journal error
	settle  error
}

func (f *faulty) take(err *error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := *err
	*err = nil
	return out
}

func (f *faulty) Journal(ctx context.Context, id string, after int64) ([]journal.Entry, error) {
	if err := f.take(&f.journal); err != nil {
		return nil, err
	}
	return f.Store.Journal(ctx, id, after)
}

func (f *faulty) Settle(ctx context.Context, s store.Settled) error {
	if err := f.take(&f.settle); err != nil {
		return err
	}
	return f.Store.Settle(ctx, s)
}

// A journal that cannot be read now is read later; whoever cannot keep what was
// told tells again; of a damaged run nobody is told, and it is not tried for ever.
func TestFaults(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		journal, settle error
		wait            time.Duration
		want            int
	}{
		"journal": {store.ErrUnavailable, nil, 5 * time.Second, 1},
		"settle":  {nil, store.ErrUnavailable, time.Minute, 2},
		"damaged": {store.ErrDamaged, nil, time.Hour, 0},
		"gone":    {store.ErrNotFound, nil, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			told := make(chan string, 10)
			stop := r.teller(&faulty{Store: r.store, journal: c.journal, settle: c.settle}, &target{"x", func(_ context.Context, run notify.Run, _ json.RawMessage) notify.Told {
				told <- run.ID
				return notify.Told{}
			}})
			r.commit(r.run(1), true, answer(t))
			if c.want == 2 {
				next(t, told)
			}
			next(t, r.settled)
			r.clock.Advance(c.wait)
			if c.want > 0 {
				next(t, told)
			} else {
				l := r.run(2)
				r.commit(l, true, answer(t))
				if id := next(t, told); id != l.RunID {
					t.Errorf("%s was told", id)
				}
			}
			stop()
			if name == "damaged" && !strings.Contains(r.log.String(), "damaged") {
				t.Errorf("the log says nothing: %s", r.log.String())
			}
		})
	}
}

// appender is a chain that fails at first.
type appender struct {
	audit.Chain
	fail  int
	tried chan int
	keys  []string
}

func (a *appender) Append(_ context.Context, list ...audit.Keyed) error {
	for _, k := range list {
		a.keys = append(a.keys, k.Key)
	}
	a.fail--
	a.tried <- len(list)
	if a.fail >= 0 {
		return errors.New("down")
	}
	return nil
}

// What is decided gets into the audit however often that fails, and once it is
// there only what is new is appended.
func TestAuditTarget(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	chain := &appender{fail: 1, tried: make(chan int, 10)}
	r.teller(r.store, &notify.Audit{Chain: chain, Log: slog.New(slog.DiscardHandler)})
	l := r.run(1)
	h := holds.Hold{
		ID: store.HoldID(l.RunID, 1), RunID: l.RunID, Env: "prod", Agent: "a", Kind: holds.ToolCall, Status: holds.Pending, Revision: 3,
		Items: []holds.Item{{ID: "call_1", Data: json.RawMessage(`{}`)}, {ID: "call_2", Data: json.RawMessage(`{}`)}}, CreatedAt: r.clock.Now(), ExpiresAt: r.clock.Now().Add(time.Hour),
	}
	asks := journal.Answered{Turn: 1, Message: json.RawMessage(`{}`), Calls: []journal.Asked{{ID: "call_1", Name: "x"}, {ID: "call_2", Name: "x"}}}
	_, err := r.store.Commit(t.Context(), l, store.Tx{
		Op: "hold", Status: store.Held, Hold: &h, Entries: []journal.New{entry(t, journal.ModelAnswered, asks), entry(t, journal.HoldOpened, journal.Opened{Hold: h})},
	})
	if err != nil {
		t.Fatal(err)
	}
	decide := func(i int) {
		t.Helper()
		seen := h.Revision
		h.Revision++
		d := journal.HoldDecision{HoldID: h.ID, By: "ann", Items: []journal.DecidedItem{{ID: h.Items[i].ID, Proposed: json.RawMessage(`{}`), Decision: holds.Decision{Action: holds.Reject, By: "ann"}}}}
		h.Items[i].Decision = &d.Items[0].Decision
		list := []journal.New{entry(t, journal.HoldDecided, d)}
		if _, err := r.store.Decide(t.Context(), store.Decide{Op: h.Items[i].ID, Hold: h, Seen: seen, Entries: list, Notify: true}); err != nil {
			t.Fatal(err)
		}
	}
	decide(0)
	if n := next(t, chain.tried); n != 1 {
		t.Errorf("%d entries, want 1", n)
	}
	next(t, r.settled)
	r.clock.Advance(2 * time.Second)
	next(t, chain.tried)
	decide(1)
	if n := next(t, chain.tried); n != 1 {
		t.Errorf("%d entries after the second decision, want 1", n)
	}
	want := fmt.Sprint([]string{l.RunID + "/4", l.RunID + "/4", l.RunID + "/5"})
	if got := fmt.Sprint(chain.keys); got != want {
		t.Errorf("appended %s, want %s", got, want)
	}
}

func TestNamesDiffer(t *testing.T) {
	t.Parallel()
	if _, err := notify.New(notify.Config{Targets: []notify.Target{&target{name: "a"}, &target{name: "a"}}}); err == nil {
		t.Error("two targets of one name were accepted")
	}
}
