package runtime_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"agentos/audit"
	"agentos/holds"
	"agentos/internal/problem"
	"agentos/internal/testenv"
	"agentos/runtime"
	"agentos/runtime/journal"
	"agentos/runtime/store"
)

var incident = runtime.Order{By: "olga", Reason: "incident 7"}

func (r *rig) switchOff(tool string) int {
	r.t.Helper()
	_, n, err := r.engine.SwitchOff(r.ctx(), "default", runtime.ToolOff{Tool: tool, Order: incident})
	if err != nil {
		r.t.Fatal(err)
	}
	return n
}

// wantOff checks that a call was denied by the operator and never started.
func wantOff(t *testing.T, c *journal.Call) {
	t.Helper()
	if c.Started != nil || c.Finished == nil || c.Finished.Outcome != journal.Denied || !strings.Contains(c.Finished.Text, "(operator)") ||
		!strings.Contains(c.Finished.Text, incident.Reason) {
		t.Errorf("started %v, finished %+v", c.Started, c.Finished)
	}
}

func TestSwitchOff(t *testing.T) {
	t.Run("cancels the hold that asks", func(t *testing.T) {
		r := newRig(t, usual, sequence(asks(call{"a", "cancel_order", `{"order_id":"A-1"}`}), says("ok"))).up()
		v := r.start("go")
		r.want(v, store.Held)
		if n := r.switchOff("orders/cancel_order"); n != 1 {
			t.Errorf("%d holds were cancelled", n)
		}
		r.want(r.wait(v.ID), store.Completed)
		wantOff(t, r.state(v.ID).Calls[0])
		r.ran("cancel_order", "", 0)
		h, err := r.post(v.Hold.ID, approve("call_1"))
		if problem.CodeOf(err) != problem.HoldCancelled || h.Status != holds.Cancelled || !strings.Contains(h.Reason, incident.Reason) {
			t.Errorf("a decision after that: %v; %s, %q", err, h.Status, h.Reason)
		}
		if n := r.switchOff("orders/cancel_order"); n != 0 {
			t.Errorf("%d more holds were cancelled", n)
		}
		v = r.start("again") // nobody is asked
		r.want(v, store.Completed)
		if _, err := r.engine.SwitchOn(r.ctx(), "default", "", "orders/cancel_order", runtime.Order{}); err != nil {
			t.Fatal(err)
		}
		r.model.reply = sequence(asks(call{"a", "cancel_order", `{"order_id":"A-1"}`}))
		r.want(r.start("on again"), store.Held)
	})
	t.Run("other items are asked about again", func(t *testing.T) {
		r := newRig(t, "      approve: [cancel_order, ping]\n", sequence(
			asks(call{"a", "cancel_order", `{"order_id":"A-1"}`}, call{"b", "ping", `{"n":1}`}, call{"c", "ping", `{"n":2}`}), says("ok"))).up()
		v := r.start("go")
		if _, err := r.post(v.Hold.ID, approve("call_2")); err != nil {
			t.Fatal(err)
		}
		if n := r.switchOff("cancel_*"); n != 1 {
			t.Errorf("%d holds were cancelled", n)
		}
		r.until(v.ID, func(s *journal.State) bool { return s.Holds == 2 })
		second := r.wait(v.ID)
		r.want(second, store.Held)
		if len(second.Hold.Items) != 1 || second.Hold.Items[0].ID != "call_3" {
			t.Errorf("items %+v", second.Hold.Items)
		}
		r.ran("ping", `"n":1`, 1) // was approved
		r.want(r.decide(second, approve("call_3")), store.Completed)
		wantOff(t, r.state(v.ID).Calls[0])
		r.ran("ping", "", 2)
	})
	t.Run("of another agent", func(t *testing.T) {
		r := newRig(t, usual, sequence(asks(call{"a", "ping", `{"n":1}`}), says("ok"))).up()
		_, _, err := r.engine.SwitchOff(r.ctx(), "default", runtime.ToolOff{Agent: "nobody", Tool: "ping", Order: incident})
		if problem.CodeOf(err) != problem.AgentNotFound {
			t.Errorf("unknown agent: %v", err)
		}
		_, _, err = r.engine.SwitchOff(r.ctx(), "default", runtime.ToolOff{Agent: "shop", Tool: "pong", Order: incident})
		if err != nil {
			t.Fatal(err)
		}
		r.want(r.start("go"), store.Completed)
		r.ran("ping", "", 1)
	})
	t.Run("a lost outcome is still asked about", func(t *testing.T) {
		r := crash(t, "", crashPlan{Point: "before:call.finished", Scene: "once"})
		v := r.wait(r.crashed())
		r.want(v, store.Held)
		if n := r.switchOff("ping"); n != 0 {
			t.Errorf("%d holds were cancelled", n)
		}
		r.want(r.decide(v, holds.ItemDecision{ID: "call_1", Action: holds.Retry}), store.Completed)
		if o := r.state(v.ID).Calls[0].Finished.Outcome; o != journal.Unknown {
			t.Errorf("outcome %s", o)
		}
		r.ran("ping", "", 1)
	})
}

// deaf is a store whose reader does not learn of orders until it has to.
type deaf struct {
	store.Store
	hears atomic.Bool
}

func (d *deaf) Orders(ctx context.Context, env string) (store.Orders, error) {
	if !d.hears.Load() {
		return store.Orders{}, nil
	}
	return d.Store.Orders(ctx, env)
}

func (d *deaf) Commit(ctx context.Context, l store.Lease, tx store.Tx) (store.Committed, error) {
	res, err := d.Store.Commit(ctx, l, tx)
	if err != nil {
		d.hears.Store(true)
	}
	return res, err
}

// An engine that has not heard of an order starts no call against it, and opens no
// hold that nobody would cancel.
func TestOrdersReachEveryEngine(t *testing.T) {
	for name, tool := range map[string]string{"a call": "ping", "a hold": "cancel_order"} {
		t.Run(name, func(t *testing.T) {
			url := testenv.StartRedis(t).URL()
			loud := newRig(t, usual, sequence(says("ok")))
			loud.url = url
			loud.up()
			loud.switchOff(tool)
			loud.stop() // so that the run stays with the other

			r := newRig(t, usual, sequence(asks(call{"a", tool, `{"order_id":"A-1","n":1}`}), asks(call{"a", tool, `{"order_id":"A-1","n":1}`}), says("ok")))
			r.url = url
			d := &deaf{}
			r.wrap = func(s store.Store) store.Store {
				d.Store = s
				return d
			}
			r.up()
			v := r.begin("go")
			s := r.until(v.ID, func(s *journal.State) bool { return s.End != "" })
			if s.End != journal.RunCompleted || !d.hears.Load() {
				t.Fatalf("end %s, heard %t", s.End, d.hears.Load())
			}
			wantOff(t, s.Calls[0])
			r.ran(tool, "", 0)
		})
	}
}

func (r *rig) pause() {
	r.t.Helper()
	if _, err := r.engine.PauseAgent(r.ctx(), "default", "shop", incident); err != nil {
		r.t.Fatal(err)
	}
}

// resume ends the pause and comes to the time at which paused runs are looked at.
func (r *rig) resume() {
	r.t.Helper()
	if _, err := r.engine.ResumeAgent(r.ctx(), "default", "shop", runtime.Order{}); err != nil {
		r.t.Fatal(err)
	}
	r.clock.advance(20 * time.Second)
}

// parked waits until the run is back in the queue and says why.
func (r *rig) parked(id string) store.View {
	r.t.Helper()
	ctx := r.ctx()
	for {
		v, err := r.engine.View(ctx, "default", id)
		if err != nil {
			r.t.Fatalf("waited in vain: %v", err)
		}
		if why := runtime.Waiting(v.Summary); v.Status == store.Queued && why != "" {
			if why != "The agent is paused: incident 7" {
				r.t.Errorf("waiting %q", why)
			}
			return v
		}
	}
}

func TestPause(t *testing.T) {
	t.Run("new runs wait", func(t *testing.T) {
		r := newRig(t, usual, sequence(says("ok"))).up()
		r.pause()
		v := r.begin("go")
		for range 6 { // more often than a run may be taken over from the dead
			r.parked(v.ID)
			r.clock.advance(20 * time.Second)
		}
		if n := r.model.asked(); n != 0 {
			t.Errorf("the model was asked %d times", n)
		}
		r.resume()
		r.want(r.wait(v.ID), store.Completed)
		if v := r.wait(v.ID); runtime.Waiting(v.Summary) != "" {
			t.Errorf("still waiting: %s", v.Summary)
		}
	})
	t.Run("a call under way ends, nothing follows", func(t *testing.T) {
		r := newRig(t, usual, sequence(asks(call{"a", "wait", `{"ms":400}`}), says("ok"))).up()
		v := r.begin("go")
		r.until(v.ID, func(s *journal.State) bool { return len(s.Calls) == 1 && s.Calls[0].Started != nil })
		r.pause()
		r.parked(v.ID)
		if s := r.state(v.ID); s.Calls[0].Finished == nil || s.Calls[0].Finished.Outcome != journal.Success || len(s.Answers) != 1 {
			t.Errorf("call %+v, %d answers", s.Calls[0].Finished, len(s.Answers))
		}
		r.resume()
		r.want(r.wait(v.ID), store.Completed)
		r.ran("wait", "", 1)
	})
	t.Run("holds can be decided", func(t *testing.T) {
		r := newRig(t, usual, sequence(asks(call{"a", "cancel_order", `{"order_id":"A-1"}`}), says("ok"))).up()
		v := r.start("go")
		r.pause()
		if _, err := r.post(v.Hold.ID, approve("call_1")); err != nil {
			t.Fatal(err)
		}
		r.parked(v.ID)
		r.ran("cancel_order", "", 0)
		r.resume()
		r.want(r.wait(v.ID), store.Completed)
		r.ran("cancel_order", "", 1)
	})
	t.Run("of nobody", func(t *testing.T) {
		r := newRig(t, usual, sequence(says("ok"))).up()
		if _, err := r.engine.PauseAgent(r.ctx(), "default", "nobody", incident); problem.CodeOf(err) != problem.AgentNotFound {
			t.Errorf("unknown agent: %v", err)
		}
		if _, err := r.engine.PauseAgent(r.ctx(), "other", "shop", incident); problem.CodeOf(err) != problem.AgentNotFound && problem.CodeOf(err) != problem.EnvNotFound {
			t.Errorf("unknown environment: %v", err)
		}
	})
}

// A full engine queues up to its bound, and refuses before anything is written.
func TestQueueBound(t *testing.T) {
	r := newRig(t, usual, nil)
	asked, release := make(chan struct{}, 3), make(chan struct{})
	open := sync.OnceFunc(func() { close(release) })
	r.model.reply = func(int, json.RawMessage) (string, error) {
		asked <- struct{}{}
		<-release
		return says("ok"), nil
	}
	r.concurrency, r.maxQueued = 1, 2
	r.up()
	t.Cleanup(open)
	running := r.begin("one")
	<-asked
	queued := []store.View{r.begin("two"), r.begin("three")}
	_, err := r.engine.Start(r.ctx(), runtime.StartRequest{Env: "default", Agent: "shop", Capability: "support", Input: json.RawMessage(`{"message":"four"}`)})
	p := problem.From(err)
	if p == nil || p.Code != problem.QueueFull || p.RetryAfter <= 0 {
		t.Errorf("the fourth: %v", err)
	}
	if runs, _, err := r.store.Runs(r.ctx(), store.RunFilter{}, store.Page{Limit: 10}); err != nil || len(runs) != 3 {
		t.Errorf("%d runs, %v", len(runs), err)
	}
	open()
	for _, v := range append(queued, running) {
		r.want(r.wait(v.ID), store.Completed)
	}
}

// A key can be used anew when the run it made is gone; what was decided about the
// old run does not fit the new one, and no tool takes it for a repetition.
func TestKeyAfterRetention(t *testing.T) {
	r := newRig(t, usual, sequence(asks(call{"a", "cancel_order", `{"order_id":"A-1"}`})))
	r.retention = time.Hour
	r.model.reply = func(_ int, body json.RawMessage) (string, error) {
		if strings.Contains(string(body), `"role":"tool"`) {
			return says("ok"), nil
		}
		return asks(call{"a", "cancel_order", `{"order_id":"A-1"}`}), nil
	}
	r.up()
	first := r.wait(r.crashed())
	r.want(first, store.Held)
	r.want(r.decide(first, approve("call_1")), store.Completed)
	if again := r.crashed(); again != first.ID {
		t.Errorf("the key gave %s and then %s", first.ID, again)
	}
	r.clock.advance(3 * time.Hour)
	r.start("sweeps")
	for n := 0; ; n++ {
		if _, err := r.engine.View(r.ctx(), "default", first.ID); problem.CodeOf(err) == problem.RunNotFound {
			break
		}
		r.clock.advance(time.Hour)
		r.start(fmt.Sprint("sweeps again ", n))
	}
	second := r.wait(r.crashed())
	r.want(second, store.Held)
	if second.ID == first.ID || second.Hold.ID == first.HoldID {
		t.Fatalf("the ids came again: %s, %s", second.ID, second.Hold.ID)
	}
	h, err := r.engine.Decide(r.ctx(), "default", first.HoldID, holds.Post{By: "ann", Revision: first.Hold.Revision, Decisions: []holds.ItemDecision{approve("call_1")}})
	if problem.CodeOf(err) != problem.HoldNotFound {
		t.Errorf("the old approval: %v, %+v", err, h)
	}
	r.ran("cancel_order", "", 1)
}

// Every order is recorded before it is done; what would change nothing is not, and
// without the record nothing is done.
func TestOrdersAreRecorded(t *testing.T) {
	r := newRig(t, usual, sequence(says("ok")))
	var acts []audit.Keyed
	var down error
	r.record = func(_ context.Context, list ...audit.Keyed) error {
		acts = append(acts, list...)
		return down
	}
	r.up()
	o := runtime.Order{By: "ann", From: "192.0.2.1", Reason: "incident 7"}
	do := map[string]func() error{
		"agent.paused":  func() error { _, err := r.engine.PauseAgent(r.ctx(), "default", "shop", o); return err },
		"agent.resumed": func() error { _, err := r.engine.ResumeAgent(r.ctx(), "default", "shop", o); return err },
		"tool.off": func() error {
			_, _, err := r.engine.SwitchOff(r.ctx(), "default", runtime.ToolOff{Tool: "ping", Order: o})
			return err
		},
		"tool.on": func() error { _, err := r.engine.SwitchOn(r.ctx(), "default", "", "ping", o); return err },
	}
	orders := func() runtime.Orders {
		t.Helper()
		all, err := r.engine.Orders(r.ctx(), "default")
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	for i, event := range []string{"agent.paused", "tool.off", "agent.resumed", "tool.on"} {
		acts, down = nil, store.ErrUnavailable
		if err := do[event](); problem.CodeOf(err) != problem.StoreUnavailable {
			t.Errorf("%s without its record: %v", event, err)
		}
		if v := orders().Version; v != int64(i) {
			t.Errorf("%s was done without its record: version %d", event, v)
		}
		acts, down = nil, nil
		for range 2 {
			if err := do[event](); err != nil {
				t.Fatal(err)
			}
		}
		if len(acts) != 1 {
			t.Fatalf("%s: %d records, want 1", event, len(acts))
		}
		e := acts[0].Entry
		if string(e.Event) != event || e.By != "ann" || e.From != "192.0.2.1" || e.Reason != "incident 7" || e.Env != "default" || e.At.IsZero() {
			t.Errorf("%s is recorded as %+v", event, e)
		}
		if wantTool := map[bool]string{true: "ping"}[strings.HasPrefix(event, "tool")]; e.Tool != wantTool {
			t.Errorf("%s is recorded of tool %q", event, e.Tool)
		}
	}
}
