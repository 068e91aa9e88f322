package runtime_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"agentos/holds"
	"agentos/internal/testenv"
	"agentos/runtime/journal"
	"agentos/runtime/store"
)

// C19: a worker is stopped for longer than its lease, another takes over, the
// first goes on. What it writes then is refused and what it was about to do is
// not done.
func TestStoppedWorker(t *testing.T) {
	for name, c := range map[string]struct {
		point string
		runs  int // executions, for ever
	}{
		"before the call":   {"after:model.answered+call.started", 0},
		"after the effect":  {"before:call.finished", 1},
		"before the answer": {"before:model.answered+call.started", 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := testenv.StartRedis(t).URL()
			p := crashPlan{Store: url, Dir: t.TempDir(), Point: c.point, Scene: "once", Stop: true}
			raw, err := json.Marshal(p)
			if err != nil {
				t.Fatal(err)
			}
			self, err := os.Executable()
			if err != nil {
				t.Fatal(err)
			}
			first := exec.CommandContext(t.Context(), self)
			first.Env = append(os.Environ(), envCrash+"="+string(raw))
			if err := first.Start(); err != nil {
				t.Fatal(err)
			}
			var ws syscall.WaitStatus
			if _, err := syscall.Wait4(first.Process.Pid, &ws, syscall.WUNTRACED, nil); err != nil || !ws.Stopped() {
				t.Fatalf("the first worker did not stop: %v, status %v", err, ws)
			}
			second := newRig(t, "", crashModel("once"))
			second.dir, second.ledger, second.lease, second.url = p.Dir, filepath.Join(p.Dir, "ledger"), 10*time.Second, url
			second.up()
			v := second.wait(second.crashed())
			epoch := v.Epoch
			if c.point != "before:model.answered+call.started" {
				second.want(v, store.Held)
				if v.Hold.Kind != holds.OutcomeUnknown {
					t.Fatalf("hold of kind %s", v.Hold.Kind)
				}
			} else {
				second.want(v, store.Completed)
			}
			taken := second.journal(v.ID)
			if err := syscall.Kill(first.Process.Pid, syscall.SIGCONT); err != nil {
				t.Fatal(err)
			}
			// The first worker reports what it sees, which is what the second one did,
			// and ends.
			_ = first.Wait()
			if after := second.journal(v.ID); len(after) != len(taken) {
				t.Errorf("the first worker wrote after it was replaced: %v", after[len(taken):])
			}
			if got := second.wait(v.ID); got.Epoch != epoch {
				t.Errorf("epoch %d, then %d", epoch, got.Epoch)
			}
			second.ran("ping", "", c.runs)
			if v.Status == store.Held {
				second.want(second.decide(v, holds.ItemDecision{ID: "call_1", Action: holds.Skip}), store.Completed)
				second.ran("ping", "", c.runs)
			}
		})
	}
}

// A run that is taken over again and again without getting any further fails by
// name, whatever kills its workers.
func TestRecoveryExhausted(t *testing.T) {
	p := crashPlan{Store: testenv.StartRedis(t).URL(), Dir: t.TempDir(), Point: "during:model", Scene: "once"}
	for range 4 {
		die(t, p)
	}
	r := newRig(t, "", crashModel("once"))
	r.dir, r.ledger, r.lease, r.url = p.Dir, filepath.Join(p.Dir, "ledger"), 10*time.Second, p.Store
	r.up()
	v := r.wait(r.crashed())
	r.want(v, store.Failed)
	if !strings.Contains(string(v.Last.Data), "recovery_exhausted") || v.Last.Type != journal.RunFailed {
		t.Errorf("last entry %s %s", v.Last.Type, v.Last.Data)
	}
	if r.model.asked() != 0 {
		t.Error("the model was asked by the process that gave up")
	}
}
