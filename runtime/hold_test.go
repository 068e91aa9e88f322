package runtime_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"agentos/holds"
	"agentos/internal/problem"
	"agentos/internal/rawjson"
	"agentos/internal/schema"
	"agentos/internal/testenv/toolserver"
	"agentos/runtime/journal"
	"agentos/runtime/store"
)

func compile(t *testing.T, raw json.RawMessage) *schema.Schema {
	t.Helper()
	s, err := schema.Compile(raw, schema.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

var twoCancels = asks(call{"a", "cancel_order", `{"order_id":"A-1"}`}, call{"b", "cancel_order", `{"order_id":"A-2"}`})

// B05, C11: one of two items, a restart, the other; then everything again.
func TestPartialDecisions(t *testing.T) {
	r := newRig(t, usual, sequence(twoCancels, says("ok"))).up()
	v := r.start("go")
	h, err := r.post(v.Hold.ID, approve("call_1"))
	if err != nil || h.Status != holds.Pending || h.Items[0].Decision == nil {
		t.Fatalf("first item: %v, hold %+v", err, h)
	}
	if h2, err := r.post(v.Hold.ID, approve("call_1")); err != nil || h2.Revision != h.Revision {
		t.Errorf("the repeat: %v, revision %d then %d", err, h.Revision, h2.Revision)
	}
	r.ran("cancel_order", "", 0)
	r.restart()
	r.want(r.wait(v.ID), store.Held)
	r.want(r.decide(v, approve("call_2")), store.Completed)
	r.ran("cancel_order", "A-1", 1)
	r.ran("cancel_order", "A-2", 1)
	if h, err := r.post(v.Hold.ID, approve("call_1")); err != nil || h.Status != holds.Decided {
		t.Errorf("the first body a third time: %v, %s", err, h.Status)
	}
	r.ran("cancel_order", "", 2)
}

// C10: sixteen clients race, approving and rejecting.
func TestRacingDecisions(t *testing.T) {
	r := newRig(t, usual, sequence(asks(call{"a", "cancel_order", `{"order_id":"A-1"}`}), says("ok"))).up()
	v := r.start("go")
	var wg sync.WaitGroup
	var mu sync.Mutex
	won := map[holds.Action]int{}
	for i := range 16 {
		wg.Go(func() {
			d := holds.ItemDecision{ID: "call_1", Action: holds.Approve}
			if i%2 == 1 {
				d.Action = holds.Reject
			}
			h, err := r.post(v.Hold.ID, d)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				won[d.Action]++
			case problem.CodeOf(err) != problem.HoldDecided:
				t.Errorf("loser: %v", err)
			case h.Items[0].Decision == nil || h.Items[0].Decision.Action == d.Action:
				t.Errorf("the loser does not see the winner: %+v", h.Items[0].Decision)
			}
		})
	}
	wg.Wait()
	v = r.wait(v.ID)
	r.want(v, store.Completed)
	if len(won) != 1 {
		t.Fatalf("winners: %v", won)
	}
	want := 0
	if won[holds.Approve] == 8 {
		want = 1
	} else if won[holds.Reject] != 8 {
		t.Errorf("winners: %v, want all eight of one kind", won)
	}
	r.ran("cancel_order", "", want)
	decided := 0
	for _, e := range r.journal(v.ID) {
		if e.Type == journal.HoldDecided {
			decided++
		}
	}
	if decided != 1 {
		t.Errorf("%d decisions in the journal", decided)
	}
}

// C15: a hold nobody decides ends as expired and never runs.
func TestExpiry(t *testing.T) {
	rule := func(onExpire string) string {
		return "      approve:\n        - {tool: cancel_order, expires: 1h, on_expire: " + onExpire + "}\n"
	}
	t.Run("reject", func(t *testing.T) {
		r := newRig(t, rule("reject"), sequence(twoCancels, says("ok"))).up()
		v := r.start("go")
		if _, err := r.post(v.Hold.ID, approve("call_1")); err != nil {
			t.Fatal(err)
		}
		r.clock.advance(time.Hour + time.Second)
		if _, err := r.post(v.Hold.ID, approve("call_2")); problem.CodeOf(err) != problem.HoldExpired {
			t.Errorf("a decision after the deadline: %v", err)
		}
		s := r.until(v.ID, func(s *journal.State) bool { return s.End != "" })
		if s.End != journal.RunCompleted || s.Calls[0].Finished.Outcome != journal.Success || s.Calls[1].Finished.Outcome != journal.Expired {
			t.Errorf("end %s, outcomes %s %s", s.End, s.Calls[0].Finished.Outcome, s.Calls[1].Finished.Outcome)
		}
		r.ran("cancel_order", "A-1", 1) // approved in time
		r.ran("cancel_order", "A-2", 0)
		h, err := r.store.Hold(r.ctx(), v.Hold.ID)
		if err != nil || h.Hold.Status != holds.Expired {
			t.Errorf("hold %s, %v", h.Hold.Status, err)
		}
	})
	t.Run("fail", func(t *testing.T) {
		r := newRig(t, rule("fail"), sequence(asks(call{"a", "cancel_order", `{"order_id":"A-1"}`}), says("ok"))).up()
		v := r.start("go")
		r.clock.advance(2 * time.Hour)
		s := r.until(v.ID, func(s *journal.State) bool { return s.End != "" })
		if s.Fault == nil || s.Fault.Code != problem.HoldExpired {
			t.Errorf("fault %+v", s.Fault)
		}
		r.ran("cancel_order", "", 0)
	})
}

// C25: a tool that changed while the run was held is not called on the old
// approval; one that is gone is not called at all.
func TestToolChangedWhileHeld(t *testing.T) {
	r := newRig(t, usual, sequence(asks(call{"a", "cancel_order", `{"order_id":"A-1"}`}), says("ok")))
	path := filepath.Join(r.dir, "schema.json")
	write := func(s string) {
		if err := os.WriteFile(path, []byte(s), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(`{"type":"object","properties":{"order_id":{"type":"string"}}}`)
	r.env = map[string]string{toolserver.EnvSchema: path}
	r.up()
	v := r.start("go")
	r.want(v, store.Held)
	write(`{"type":"object","properties":{"order_id":{"type":"string"},"all":{"type":"boolean","default":true}}}`)
	r.restart()
	v2 := r.decide(v, approve("call_1"))
	r.want(v2, store.Held)
	it := v2.Hold.Items[0]
	if v2.Hold.ID == v.Hold.ID || it.ID != "call_1" || it.Changed == nil || it.Changed.OldDigest == it.ToolDigest || it.Decision != nil ||
		!strings.Contains(string(it.Schema), "all") || strings.Contains(string(it.Changed.OldSchema), "all") {
		t.Fatalf("second hold %+v", v2.Hold)
	}
	r.ran("cancel_order", "", 0)
	r.want(r.decide(v2, approve("call_1")), store.Completed)
	r.ran("cancel_order", "A-1", 1)

	t.Run("gone", func(t *testing.T) {
		r := newRig(t, usual, sequence(asks(call{"a", "cancel_order", `{"order_id":"A-1"}`}), says("ok"))).up()
		v := r.start("go")
		r.stop()
		r.loop = "      tools: [orders/lookup_order]\n"
		r.up()
		v = r.decide(v, approve("call_1"))
		r.want(v, store.Completed)
		if o := r.state(v.ID).Calls[0].Finished.Outcome; o != journal.Invalid {
			t.Errorf("outcome %s", o)
		}
		r.ran("cancel_order", "", 0)
	})
}

// A manifest changed while a run is held never lowers the gate; a later deny
// wins.
func TestGateCannotBeLowered(t *testing.T) {
	r := newRig(t, usual, sequence(asks(call{"a", "cancel_order", `{"order_id":"A-1"}`}), says("ok"))).up()
	v := r.start("go")
	r.stop()
	r.loop = "      max_turns: 9\n"
	r.up()
	r.want(r.wait(v.ID), store.Held)
	r.ran("cancel_order", "", 0)
	r.stop()
	r.loop = "      deny: [cancel_order]\n"
	r.up()
	if _, err := r.post(v.Hold.ID, holds.ItemDecision{ID: "call_1", Action: holds.Edit, Data: json.RawMessage(`{"order_id":"A-2"}`)}); problem.CodeOf(err) != problem.EditDenied {
		t.Errorf("edit under deny: %v", err)
	}
	v = r.decide(v, approve("call_1"))
	r.want(v, store.Completed)
	if o := r.state(v.ID).Calls[0].Finished.Outcome; o != journal.Denied {
		t.Errorf("outcome %s", o)
	}
	r.ran("cancel_order", "", 0)
}

func TestDeny(t *testing.T) {
	r := newRig(t, "      deny: [\"cancel_*\"]\n", sequence(asks(call{"a", "cancel_order", `{"order_id":"A-1"}`}), says("ok"))).up()
	v := r.start("go")
	r.want(v, store.Completed)
	c := r.state(v.ID).Calls[0]
	if c.Finished.Outcome != journal.Denied || len(c.Verdict.Rules) == 0 || c.Started != nil {
		t.Errorf("call %+v", c)
	}
	r.ran("cancel_order", "", 0)
}

// Calls that must run one after another wait for the person in between.
func TestSequentialCalls(t *testing.T) {
	r := newRig(t, usual+"      parallel_calls: false\n", sequence(
		asks(call{"a", "ping", `{"n":1}`}, call{"b", "cancel_order", `{"order_id":"A-1"}`}, call{"c", "ping", `{"n":2}`}), says("ok"))).up()
	v := r.start("go")
	r.want(v, store.Held)
	r.ran("ping", `"n":1`, 1)
	r.ran("ping", `"n":2`, 0)
	r.want(r.decide(v, approve("call_2")), store.Completed)
	led := toolserver.Ledger(t, r.ledger)
	if len(led) != 3 || led[1].Tool != "cancel_order" || !strings.Contains(string(led[2].Arguments), `"n":2`) {
		t.Errorf("ledger %+v", led)
	}
}

func TestCancel(t *testing.T) {
	t.Run("held", func(t *testing.T) {
		r := newRig(t, usual, sequence(asks(call{"a", "cancel_order", `{"order_id":"A-1"}`}), says("ok"))).up()
		v := r.start("go")
		got, err := r.engine.Cancel(r.ctx(), "default", v.ID, "ann")
		if err != nil {
			t.Fatal(err)
		}
		r.want(got, store.Cancelled)
		if h, err := r.post(v.Hold.ID, approve("call_1")); problem.CodeOf(err) != problem.HoldCancelled || h.Status != holds.Cancelled {
			t.Errorf("a decision after the end: %v, %s", err, h.Status)
		}
		if again, err := r.engine.Cancel(r.ctx(), "default", v.ID, "bob"); err != nil || again.Status != store.Cancelled {
			t.Errorf("cancelling again: %v, %s", err, again.Status)
		}
		if s := r.state(v.ID); s.CancelledBy != "ann" {
			t.Errorf("cancelled by %q", s.CancelledBy)
		}
	})
	t.Run("during a call", func(t *testing.T) {
		r := newRig(t, usual, sequence(asks(call{"a", "wait", `{"ms":60000}`}), says("ok"))).up()
		v := r.begin("go")
		r.until(v.ID, func(s *journal.State) bool { return len(s.Calls) == 1 && s.Calls[0].Started != nil })
		if _, err := r.engine.Cancel(r.ctx(), "default", v.ID, "ann"); err != nil {
			t.Fatal(err)
		}
		s := r.until(v.ID, func(s *journal.State) bool { return s.End != "" })
		if s.End != journal.RunCancelled || s.Calls[0].Finished.Outcome != journal.Unknown {
			t.Errorf("end %s, call %+v", s.End, s.Calls[0].Finished)
		}
	})
}

// A person said what became of a call, and the run is cancelled before that is
// written down: the answer stands.
func TestCancelKeepsWhatWasSaid(t *testing.T) {
	for action, want := range map[holds.Action]journal.Outcome{holds.Ran: journal.Success, holds.Skip: journal.Unknown, holds.Retry: journal.Unknown} {
		t.Run(string(action), func(t *testing.T) {
			r := crash(t, "", crashPlan{Point: "before:call.finished", Scene: "once"})
			v := r.wait(r.crashed())
			r.want(v, store.Held)
			r.pause() // so that nobody goes on between the two
			d := holds.ItemDecision{ID: "call_1", Action: action}
			if action == holds.Ran {
				d.Data = json.RawMessage(`"it was done"`)
			}
			if _, err := r.post(v.Hold.ID, d); err != nil {
				t.Fatal(err)
			}
			r.parked(v.ID)
			if _, err := r.engine.Cancel(r.ctx(), "default", v.ID, "bob"); err != nil {
				t.Fatal(err)
			}
			s := r.until(v.ID, func(s *journal.State) bool { return s.End != "" })
			f := s.Calls[0].Finished
			if f == nil || f.Outcome != want {
				t.Fatalf("finished %+v, want %s", f, want)
			}
			if action == holds.Ran && (f.Text != "it was done" || f.By != "ann") {
				t.Errorf("finished %+v", f)
			}
			r.ran("ping", "", 1)
		})
	}
}

// C16, B60: whoever waits can go away; the run goes on.
func TestWaiterGoesAway(t *testing.T) {
	r := newRig(t, usual, sequence(asks(call{"a", "wait", `{"ms":700}`}), says("ok"))).up()
	v := r.begin("go")
	ctx, cancel := context.WithTimeout(r.ctx(), 50*time.Millisecond)
	defer cancel()
	got, err := r.engine.Wait(ctx, "default", v.ID)
	if err != nil || got.Status != store.Running {
		t.Errorf("wait that ended first: %v, %s", err, got.Status)
	}
	r.want(r.wait(v.ID), store.Completed)
	r.ran("wait", "", 1)
}

// B06: the approved tool ran, the model fails for a while: the run waits and the
// tool does not run again.
func TestModelFailsAfterApprovedCall(t *testing.T) {
	var healthy atomicBool
	r := newRig(t, usual, nil)
	r.model.reply = func(n int, _ json.RawMessage) (string, error) {
		switch {
		case n == 1:
			return asks(call{"a", "cancel_order", `{"order_id":"A-1"}`}), nil
		case healthy.get():
			return says("ok"), nil
		}
		p := problem.New(problem.ModelUnavailable, "503")
		p.RetryAfter = 300 * time.Millisecond
		return "", p
	}
	r.up()
	v := r.start("go")
	if _, err := r.post(v.Hold.ID, approve("call_1")); err != nil {
		t.Fatal(err)
	}
	r.until(v.ID, func(s *journal.State) bool { return s.Calls[0].Finished != nil })
	if _, err := r.post(v.Hold.ID, approve("call_1")); err != nil {
		t.Errorf("the repeat: %v", err)
	}
	if got, err := r.engine.View(r.ctx(), "default", v.ID); err != nil || got.Status != store.Running {
		t.Errorf("in backoff the run is %s, %v", got.Status, err)
	}
	healthy.set()
	r.want(r.wait(v.ID), store.Completed)
	r.ran("cancel_order", "", 1)
}

// A dropped connection in the middle of a call of class once is not repeated: the
// model is told that nobody knows.
func TestServerDiesDuringCall(t *testing.T) {
	r := newRig(t, "", sequence(asks(call{"a", "die", `{}`}), says("ok"))).up()
	v := r.start("go")
	r.want(v, store.Held)
	if v.Hold.Kind != holds.OutcomeUnknown {
		t.Fatalf("hold %+v", v.Hold)
	}
	r.want(r.decide(v, holds.ItemDecision{ID: "call_1", Action: holds.Ran, Data: json.RawMessage(`"it did"`)}), store.Completed)
	if text, _ := rawjson.Text(rawjson.Get(r.model.messages(t, 2)[2], "content")); text != "it did" {
		t.Errorf("the model is told %q", text)
	}
	r.ran("die", "", 1)
}

type atomicBool struct {
	mu sync.Mutex
	v  bool
}

func (b *atomicBool) get() bool { b.mu.Lock(); defer b.mu.Unlock(); return b.v }
func (b *atomicBool) set()      { b.mu.Lock(); defer b.mu.Unlock(); b.v = true }
