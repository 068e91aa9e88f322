package runtime_test

import (
	"database/sql"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"agentos/holds"
	"agentos/internal/problem"
	"agentos/internal/testenv"
	"agentos/runtime"
	"agentos/runtime/store"
)

// sql changes the store file of a rig that is down.
func (r *rig) sql(statement string, args ...any) {
	r.t.Helper()
	db, err := sql.Open("sqlite", filepath.Join(r.dir, "agentos.db"))
	if err != nil {
		r.t.Fatal(err)
	}
	if _, err := db.ExecContext(r.t.Context(), statement, args...); err != nil {
		r.t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		r.t.Fatal(err)
	}
}

// harms are ways to damage a held run, by the driver.
var harms = map[string]map[string]func(r *rig, redis *testenv.Redis, run string){
	"file": {
		"an entry is missing": func(r *rig, _ *testenv.Redis, run string) { r.sql(harmEntry("DELETE FROM entries"), run) },
		"an entry is garbage": func(r *rig, _ *testenv.Redis, run string) { r.sql(harmEntry("UPDATE entries SET data = x'00'"), run) },
		"the hold is missing": func(r *rig, _ *testenv.Redis, run string) {
			r.sql("DELETE FROM holds WHERE id = ?", store.HoldID(run, 1))
		},
		"the hold cannot be read": func(r *rig, _ *testenv.Redis, run string) {
			r.sql("UPDATE holds SET body = x'00' WHERE id = ?", store.HoldID(run, 1))
		},
	},
	"redis": {
		"an entry is missing":     func(_ *rig, s *testenv.Redis, run string) { s.Command("HDEL", "agentos:{p0}:r:"+run, "2") },
		"an entry is garbage":     func(_ *rig, s *testenv.Redis, run string) { s.Command("HSET", "agentos:{p0}:r:"+run, "2", "garbage") },
		"the hold is missing":     func(_ *rig, s *testenv.Redis, run string) { s.Command("HDEL", "agentos:{p0}:r:"+run, "h1") },
		"the hold cannot be read": func(_ *rig, s *testenv.Redis, run string) { s.Command("HSET", "agentos:{p0}:r:"+run, "h1", "garbage") },
		"the hold is cut off": func(_ *rig, s *testenv.Redis, run string) {
			s.Command("EVAL", "return redis.call('HSET', KEYS[1], 'h1', string.sub(redis.call('HGET', KEYS[1], 'h1'), 1, 99))", "1", "agentos:{p0}:r:"+run)
		},
	},
}

func harmEntry(statement string) string {
	return statement + " WHERE id = (SELECT n << 20 | 2 FROM runs WHERE id = ?)"
}

// eachHarm runs do with a held run that was damaged while nobody had it in mind.
func eachHarm(t *testing.T, do func(r *rig, v store.View)) {
	t.Helper()
	for driver, ways := range harms {
		for name, harm := range ways {
			t.Run(driver+"/"+name, func(t *testing.T) {
				r := newRig(t, usual, sequence(asks(call{"a", "cancel_order", `{"order_id":"A-1"}`}), says("ok")))
				var s *testenv.Redis
				if driver == "redis" {
					s = testenv.StartRedis(t)
					r.url = s.URL()
				}
				r.up()
				v := r.start("go")
				r.want(v, store.Held)
				r.stop()
				harm(r, s, v.ID)
				r.up()
				do(r, v)
				r.ran("cancel_order", "", 0)
			})
		}
	}
}

// A held run that is damaged cannot be decided, and says what to do: it can be
// cancelled, whatever is damaged.
func TestDamagedHeldRunIsCancelled(t *testing.T) {
	eachHarm(t, func(r *rig, v store.View) {
		t := r.t
		_, err := r.post(v.HoldID, approve("call_1"))
		switch {
		case problem.CodeOf(err) == problem.HoldNotFound: // only the file cannot tell that it was there
		case problem.CodeOf(err) != problem.JournalDamaged:
			t.Errorf("decide: %v", err)
		case strings.Contains(err.Error(), "run h_") || !strings.Contains(err.Error(), "cancel run "+v.ID):
			t.Errorf("decide does not tell what to do: %v", err)
		}
		after, err := r.engine.Cancel(r.ctx(), "default", v.ID, "ann")
		if err != nil || after.Status != store.Cancelled {
			t.Fatalf("cancel: %v, %s", err, after.Status)
		}
		r.nobodyIsAsked(holds.Cancelled, v.HoldID)
		if again, err := r.engine.Cancel(r.ctx(), "default", v.ID, "ann"); err != nil || again.Status != store.Cancelled {
			t.Errorf("cancel again: %v, %s", err, again.Status)
		}
	})
}

// Nor does it stand for ever when nobody cancels it.
func TestDamagedHeldRunFailsWhenDue(t *testing.T) {
	eachHarm(t, func(r *rig, v store.View) {
		r.clock.advance(8 * 24 * time.Hour)
		after, deadline := r.wait(v.ID), r.ctx()
		for after.Status == store.Held && deadline.Err() == nil {
			after = r.wait(v.ID)
		}
		r.want(after, store.Failed)
		r.nobodyIsAsked(holds.Expired, v.HoldID)
	})
}

// nobodyIsAsked wants the hold to be closed, in the lists too.
func (r *rig) nobodyIsAsked(status holds.Status, id string) {
	r.t.Helper()
	pending, _, err := r.store.Holds(r.ctx(), store.HoldFilter{Env: "default", Status: holds.Pending}, store.Page{Limit: 10})
	if err != nil || len(pending) != 0 {
		r.t.Errorf("pending: %+v, %v", pending, err)
	}
	closed, _, err := r.store.Holds(r.ctx(), store.HoldFilter{Env: "default", Status: status}, store.Page{Limit: 10})
	if err != nil || len(closed) != 1 || closed[0].ID != id {
		r.t.Errorf("%s: %+v, %v", status, closed, err)
	}
}

// A run that is damaged keeps no other from being stopped.
func TestSwitchOffPassesDamage(t *testing.T) {
	eachHarm(t, func(r *rig, v store.View) {
		t := r.t
		r.model.mu.Lock()
		asked := len(r.model.requests)
		r.model.reply = func(n int, _ json.RawMessage) (string, error) {
			if n == asked+1 {
				return asks(call{"a", "cancel_order", `{"order_id":"A-2"}`}), nil
			}
			return says("ok"), nil
		}
		r.model.mu.Unlock()
		healthy := r.start("go")
		r.want(healthy, store.Held)
		hurt, _, err := r.store.Holds(r.ctx(), store.HoldFilter{Env: "default", Status: holds.Pending}, store.Page{Limit: 10})
		if err != nil {
			t.Fatal(err)
		}
		_, n, err := r.engine.SwitchOff(r.ctx(), "default", runtime.ToolOff{Tool: "cancel_order", Order: incident})
		r.want(r.wait(healthy.ID), store.Completed)
		if n == len(hurt) && err == nil {
			return // it could be closed, or is in no list any more
		}
		if n != 1 {
			t.Errorf("%d holds were cancelled, want that of the healthy run: %v", n, err)
		}
		if problem.CodeOf(err) != problem.JournalDamaged || !strings.Contains(err.Error(), v.ID) {
			t.Errorf("the error does not tell of %s: %v", v.ID, err)
		}
	})
}
