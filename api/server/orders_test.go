package server_test

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"agentos/api"
	"agentos/api/client"
	"agentos/internal/problem"
	"agentos/runtime/store"
)

// changed is an answer to an order.
func (r *rig) changed(o api.Orders, err error) api.Orders {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
	if now, err := r.client.Orders(r.ctx(), "default"); err != nil || !cmp.Equal(now, o) {
		r.t.Errorf("the orders are %+v (%v), the answer said %+v", now, err, o)
	}
	return o
}

func (r *rig) switchOff(o api.SwitchOff) api.SwitchedOff {
	r.t.Helper()
	done, err := r.client.SwitchOff(r.ctx(), "default", o)
	r.changed(done.Orders, err)
	return done
}

func (r *rig) switchOn(o api.SwitchOn) api.Orders {
	r.t.Helper()
	return r.changed(r.client.SwitchOn(r.ctx(), "default", o))
}

func TestSwitchOff(t *testing.T) {
	r := newRig(t)
	held := r.held("A-1")
	off := api.SwitchOff{Tool: "orders/cancel_order", Reason: "incident <7>"}
	first := r.switchOff(off)
	if first.Version != 1 || first.CancelledHolds != 1 || len(first.Paused) != 0 || len(first.Off) != 1 ||
		!slices.Equal(first.Matches, []api.ToolName{{Agent: "shop", Server: "orders", Tool: "cancel_order"}}) {
		t.Fatalf("%+v", first)
	}
	if o := first.Off[0]; o.Tool != off.Tool || o.Agent != "" || o.By != "local" || o.Reason != off.Reason || time.Since(o.At.Time) > time.Minute {
		t.Errorf("order %+v", o)
	}
	h, err := r.client.Hold(r.ctx(), "default", held.Hold.HoldID)
	if err != nil || h.Status != api.HoldCancelled || !strings.Contains(h.Reason, off.Reason) {
		t.Errorf("hold: %v %s %q", err, h.Status, h.Reason)
	}
	run, err := r.client.Run(r.ctx(), "default", held.RunID, 10*time.Second)
	if err != nil || run.Status != api.RunCompleted {
		t.Errorf("run: %v %s %+v", err, run.Status, run.Error)
	}
	r.denied(held.RunID, api.Verdict{Effect: "ask", Rules: []string{"approve:cancel_order"}}) // when it was asked for
	_, err = r.decide(held.Hold.HoldID, 0, item("approve"))
	if ce := (*client.Error)(nil); !errors.As(err, &ce) || ce.Problem.Code != problem.HoldCancelled || ce.Hold == nil || ce.Hold.Reason != h.Reason {
		t.Errorf("an approval that comes too late: %v", err)
	}

	if again := r.switchOff(api.SwitchOff{Tool: off.Tool, Reason: "another"}); !cmp.Equal(again.Orders, first.Orders) || again.CancelledHolds != 0 {
		t.Errorf("a repeat: %+v", again)
	}
	// Nobody is asked about what is off.
	next := r.create(`call:cancel_order {"order_id":"A-2"}`, 10*time.Second)
	if next.Status != api.RunCompleted {
		t.Errorf("the next run is %s", next.Status)
	}
	r.denied(next.RunID, api.Verdict{Effect: "deny", Rules: []string{"operator"}, Reason: h.Reason})

	if on := r.switchOn(api.SwitchOn{Tool: "cancel_order"}); on.Version != 1 || len(on.Off) != 1 {
		t.Errorf("taking back another order: %+v", on)
	}
	if on := r.switchOn(api.SwitchOn{Tool: off.Tool, Agent: "shop"}); on.Version != 1 {
		t.Errorf("taking back the order of an agent: %+v", on)
	}
	on := r.switchOn(api.SwitchOn{Tool: off.Tool})
	if on.Version != 2 || len(on.Off) != 0 {
		t.Errorf("on: %+v", on)
	}
	if again := r.switchOn(api.SwitchOn{Tool: off.Tool}); again.Version != 2 {
		t.Errorf("on again: %+v", again)
	}
	r.held("A-3")
	r.ran("cancel_order", "", 0)
	for _, line := range []string{
		`msg="operator's order" order=off by=local agent="" tool=orders/cancel_order version=1`,
		`msg="operator's order" order=on by=local agent="" tool=orders/cancel_order version=2`,
	} {
		if !strings.Contains(r.log.String(), line) {
			t.Errorf("not in the log: %s", line)
		}
	}
}

// denied wants the one call of a run to have been denied by the operator and never
// started. The verdict is the one when the model asked for the call.
func (r *rig) denied(run string, verdict api.Verdict) {
	r.t.Helper()
	tr, err := r.client.Trajectory(r.ctx(), "default", run)
	if err != nil || len(tr.Turns) == 0 || len(tr.Turns[0].Calls) != 1 {
		r.t.Fatalf("%v %+v", err, tr)
	}
	c := tr.Turns[0].Calls[0]
	if c.Outcome != "denied" || c.Executions != 0 || !cmp.Equal(c.Verdict, verdict) ||
		!strings.Contains(c.Text, "(operator)") || !strings.Contains(c.Text, "incident <7>") {
		r.t.Errorf("call %+v", c)
	}
	for _, h := range tr.Holds {
		if h.Why != "cancelled" || !strings.Contains(h.Reason, "incident <7>") {
			r.t.Errorf("hold %+v", h)
		}
	}
}

// What a pattern means is told, so that a wrong name does not pass for a tool that
// is off.
func TestSwitchOffTellsWhatItMeans(t *testing.T) {
	r := newRig(t)
	for pattern, want := range map[string][]string{
		"*_order": {"cancel_order", "lookup_order"}, "orders/lookup_order": {"lookup_order"}, "other/*": nil, "cancel_ordr": nil,
	} {
		for _, agent := range []string{"", "shop"} {
			var got []string
			for _, m := range r.switchOff(api.SwitchOff{Tool: pattern, Agent: agent, Reason: "x"}).Matches {
				got = append(got, m.Tool)
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s of %q means %v, want %v", pattern, agent, got, want)
			}
		}
	}
}

func TestPause(t *testing.T) {
	r := newRig(t)
	paused := r.changed(r.client.PauseAgent(r.ctx(), "default", "shop", api.PauseAgent{Reason: "incident 7"}))
	if paused.Version != 1 || len(paused.Paused) != 1 || paused.Paused[0].Agent != "shop" || paused.Paused[0].By != "local" || paused.Paused[0].Reason != "incident 7" {
		t.Fatalf("%+v", paused)
	}
	if again := r.changed(r.client.PauseAgent(r.ctx(), "default", "shop", api.PauseAgent{Reason: "another"})); !cmp.Equal(again, paused) {
		t.Errorf("a repeat: %+v", again)
	}
	r.shown(&paused.Paused[0].Order)

	run := r.create("say:hello", 0)
	for ctx := r.ctx(); run.Waiting == ""; {
		var err error
		if run, err = r.client.Run(ctx, "default", run.RunID, 0); err != nil {
			t.Fatal(err)
		}
	}
	if run.Status != api.RunQueued || run.Waiting != "The agent is paused: incident 7" || run.Turns != 0 {
		t.Errorf("run %+v", run)
	}
	if a := r.send(call{method: "GET", path: home + "/runs/" + run.RunID + "?wait=true&wait_timeout=50ms"}); a.status != http.StatusAccepted {
		t.Errorf("waiting for a run of a paused agent: %d %s", a.status, a.body)
	}

	if none := r.changed(r.client.ResumeAgent(r.ctx(), "default", "nobody")); !cmp.Equal(none, paused) {
		t.Errorf("resuming nobody: %+v", none)
	}
	resumed := r.changed(r.client.ResumeAgent(r.ctx(), "default", "shop"))
	if resumed.Version != 2 || len(resumed.Paused) != 0 {
		t.Errorf("resumed: %+v", resumed)
	}
	if again := r.changed(r.client.ResumeAgent(r.ctx(), "default", "shop")); !cmp.Equal(again, resumed) {
		t.Errorf("resumed again: %+v", again)
	}
	r.shown(nil)
	r.clock.off.Store(int64(15 * time.Second))
	run, err := r.client.Run(r.ctx(), "default", run.RunID, 10*time.Second)
	if err != nil || run.Status != api.RunCompleted || run.Waiting != "" {
		t.Errorf("after the pause: %v %+v", err, run)
	}
	if !strings.Contains(r.log.String(), `msg="operator's order" order=resume by=local agent=shop tool="" version=2`) {
		t.Error("who resumed is not in the log")
	}
}

// shown wants the agent to be shown as paused by the order, or not at all.
func (r *rig) shown(want *api.Order) {
	r.t.Helper()
	ready, err := r.client.Ready(r.ctx())
	if err != nil || !ready.Ready || !cmp.Equal(ready.Agents[0].Paused, want) {
		r.t.Errorf("/ready: %v %+v", err, ready)
	}
	list, err := r.client.Agents(r.ctx(), "default")
	if err != nil || !cmp.Equal(list[0].Paused, want) {
		r.t.Errorf("agents: %v %+v", err, list)
	}
	if a, err := r.client.Agent(r.ctx(), "default", "shop"); err != nil || !cmp.Equal(a.Paused, want) {
		r.t.Errorf("agent: %v %+v", err, a)
	}
}

// fullQueue starts again with an engine that works on one run and lets one wait,
// and fills both. It returns the run that waits, made with the key "waits".
func (r *rig) fullQueue() (busy, waits api.Run) {
	r.t.Helper()
	r.stop()
	r.concurrency, r.maxQueued = 1, 1
	r.up()
	busy = r.busy()
	waits, err := r.waits()
	if err != nil || waits.Status != api.RunQueued {
		r.t.Fatalf("the second run: %v %s", err, waits.Status)
	}
	return busy, waits
}

func (r *rig) waits() (api.Run, error) {
	return r.client.CreateRun(r.ctx(), client.CreateRun{Env: "default", Agent: "shop", Capability: "support", Body: message("say:x"), Key: "waits"})
}

func TestQueueFull(t *testing.T) {
	r := newRig(t)
	busy, waits := r.fullQueue()
	for i, headers := range [][]string{nil, {"Idempotency-Key: another"}} {
		a := r.send(call{method: "POST", path: runsPath + "?wait=true", body: ok, headers: headers})
		if a.status != http.StatusTooManyRequests || a.code() != "queue_full" || a.header.Get("Retry-After") != "5" {
			t.Errorf("%d: %d, Retry-After %q, %s", i, a.status, a.header.Get("Retry-After"), a.body)
		}
	}
	// A request that has its run is answered with it, one that cannot work is told so.
	if again, err := r.waits(); err != nil || again.RunID != waits.RunID {
		t.Errorf("the same request again: %v %s", err, again.RunID)
	}
	r.want(call{method: "POST", path: runsPath, body: `{"input":{"message":"say:y"}}`, headers: []string{"Idempotency-Key: waits"}}, problem.IdempotencyConflict)
	if runs, _, err := r.store.Runs(r.ctx(), store.RunFilter{}, store.Page{Limit: 10}); err != nil || len(runs) != 2 {
		t.Errorf("%d runs are stored, %v", len(runs), err)
	}

	if _, err := r.client.Cancel(r.ctx(), "default", busy.RunID); err != nil {
		t.Fatal(err)
	}
	if run, err := r.client.Run(r.ctx(), "default", waits.RunID, 10*time.Second); err != nil || run.Status != api.RunCompleted {
		t.Errorf("the run that waited: %v %s", err, run.Status)
	}
	// The key of the refused request is as good as new.
	a := r.send(call{method: "POST", path: runsPath + "?wait=true", body: ok, headers: []string{"Idempotency-Key: another"}})
	if a.status != http.StatusOK {
		t.Errorf("after that: %d %s", a.status, a.body)
	}
}

// Many orders at the same time are all kept.
func TestOrdersAtTheSameTime(t *testing.T) {
	r := newRig(t)
	const n = 4
	errs := make(chan error, n)
	for i := range n {
		go func() {
			_, err := r.client.SwitchOff(r.ctx(), "default", api.SwitchOff{Tool: fmt.Sprint("tool_", i), Reason: "x"})
			errs <- err
		}()
	}
	for range n {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	o, err := r.client.Orders(r.ctx(), "default")
	if err != nil || o.Version != n || len(o.Off) != n {
		t.Errorf("%v %+v", err, o)
	}
}
