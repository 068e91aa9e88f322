package runtime_test

import (
	"database/sql"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"agentos/holds"
	"agentos/internal/problem"
	"agentos/internal/testenv/toolserver"
	"agentos/runtime/journal"
	"agentos/runtime/store"
)

// A server that is away when its call is approved, and comes back with another
// tool under the same name, does not get the call on the old approval.
func TestToolChangedWhileServerIsAway(t *testing.T) {
	r := newRig(t, usual, func(_ int, body json.RawMessage) (string, error) {
		switch text := string(body); {
		case strings.Contains(text, `"role":"tool"`):
			return says("ok"), nil
		case strings.Contains(text, "kill the server"):
			return asks(call{"a", "die", `{}`}), nil
		}
		return asks(call{"a", "cancel_order", `{"order_id":"A-1"}`}), nil
	})
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
	write(`{"type":"object","properties":{"order_id":{"type":"string"},"all":{"type":"boolean"}}}`)
	r.want(r.start("kill the server"), store.Held) // what became of the call is a question
	v2 := r.decide(v, approve("call_1"))
	r.ran("cancel_order", "", 0)
	switch v2.Status {
	case store.Held: // the server was back when the call was judged
		if v2.Hold.Items[0].Changed == nil {
			t.Errorf("hold %+v", v2.Hold.Items[0])
		}
	case store.Completed: // it came back when the call was about to be sent
		if f := r.state(v.ID).Calls[0].Finished; f.Outcome != journal.Invalid || f.ErrorCode != "tool_changed" {
			t.Errorf("finished %+v", f)
		}
	case store.Queued, store.Running, store.Failed, store.Cancelled:
		t.Errorf("the run is %s: %s", v2.Status, v2.Last.Data)
	}
}

// What a person answers with retry, and what runs again by its effect class after
// a crash, passes the same gates as the first time.
func TestRunningAgainPassesTheGates(t *testing.T) {
	lost := func(t *testing.T, scene, loop string) *rig {
		t.Helper()
		r := crash(t, "", crashPlan{Point: "before:call.finished", Scene: scene})
		r.stop()
		r.loop = loop
		return r.up()
	}
	t.Run("retry of what is denied now", func(t *testing.T) {
		r := lost(t, "once", "      deny: [ping]\n")
		v := r.wait(r.crashed())
		r.want(v, store.Held)
		r.want(r.decide(v, holds.ItemDecision{ID: "call_1", Action: holds.Retry}), store.Completed)
		if o := r.state(v.ID).Calls[0].Finished.Outcome; o != journal.Unknown {
			t.Errorf("outcome %s: the first attempt may have had its effect", o)
		}
		r.ran("ping", "", 1)
	})
	t.Run("retry of what has changed", func(t *testing.T) {
		r := crash(t, "", crashPlan{Point: "before:call.finished", Scene: "gated", Loop: usual})
		v := r.wait(r.crashed())
		r.want(v, store.Held)
		r.stop()
		path := filepath.Join(r.dir, "schema.json")
		if err := os.WriteFile(path, []byte(`{"type":"object","properties":{"order_id":{"type":"string"},"all":{"type":"boolean"}}}`), 0o600); err != nil {
			t.Fatal(err)
		}
		r.env = map[string]string{toolserver.EnvSchema: path}
		r.up()
		retry := holds.ItemDecision{ID: "call_1", Action: holds.Retry}
		v = r.decide(v, retry) // was given for the old definition
		r.want(v, store.Held)
		if v.Hold.Kind != holds.OutcomeUnknown || v.Hold.Items[0].Changed == nil {
			t.Errorf("hold %+v", v.Hold)
		}
		r.ran("cancel_order", "", 1)
		r.want(r.decide(v, retry), store.Completed)
		r.ran("cancel_order", "", 2)
	})
	t.Run("read tool that is denied now", func(t *testing.T) {
		r := lost(t, "read", "      deny: [lookup_order]\n")
		v := r.wait(r.crashed())
		r.want(v, store.Completed)
		if o := r.state(v.ID).Calls[0].Finished.Outcome; o != journal.Unknown {
			t.Errorf("outcome %s", o)
		}
		r.ran("lookup_order", "", 1)
	})
	t.Run("read tool that is asked about now", func(t *testing.T) {
		r := lost(t, "read", "      approve: [lookup_order]\n")
		r.want(r.wait(r.crashed()), store.Held)
		r.ran("lookup_order", "", 1)
	})
}

// A hold changed behind the product's back is refused: nobody approves one thing
// while another runs.
func TestTamperedHold(t *testing.T) {
	for name, statement := range map[string]string{
		"the hold that is shown": `UPDATE holds SET body = CAST(replace(CAST(body AS TEXT), 'A-1', 'B-2') AS BLOB)`,
		"the journal":            `UPDATE entries SET data = CAST(replace(CAST(data AS TEXT), 'A-1', 'B-2') AS BLOB) WHERE type = 'hold.opened'`,
		"a second reading":       `UPDATE entries SET data = CAST(replace(CAST(data AS TEXT), '"data":{', '"Data":{"order_id":"B-2"},"data":{') AS BLOB) WHERE type = 'hold.opened'`,
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, usual, sequence(asks(call{"a", "cancel_order", `{"order_id":"A-1"}`}), says("ok"))).up()
			v := r.start("go")
			r.stop()
			db, err := sql.Open("sqlite", filepath.Join(r.dir, "agentos.db"))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := db.ExecContext(t.Context(), statement); err != nil {
				t.Fatal(err)
			}
			if err := db.Close(); err != nil {
				t.Fatal(err)
			}
			r.up()
			_, err = r.post(v.Hold.ID, approve("call_1"))
			if name == "a second reading" {
				// The name in another case is no second reading: A-1 is shown and runs.
				if err != nil {
					t.Fatal(err)
				}
				r.want(r.wait(v.ID), store.Completed)
				r.ran("cancel_order", "A-1", 1)
			} else if problem.CodeOf(err) != problem.JournalDamaged {
				t.Errorf("approve: %v", err)
			}
			r.ran("cancel_order", "B-2", 0)
		})
	}
}
