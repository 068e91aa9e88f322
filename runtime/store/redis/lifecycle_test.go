package redis_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"agentos/holds"
	"agentos/runtime/store"
)

// A run from its creation over a hold to its end, read back at every step.
func TestLifecycle(t *testing.T) {
	t.Parallel()
	s := open(t, server(t).URL())
	ctx := t.Context()

	req := newRun(time.Minute)
	c, err := s.Create(ctx, req)
	if err != nil {
		t.Fatal(err)
	}
	if c.Existing || c.Lease.Epoch != 1 || c.Lease.Expires.Sub(c.Entry.At) != time.Minute {
		t.Errorf("created = %+v", c)
	}
	v, err := s.Run(ctx, req.RunID)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(c.Record, v.Record); diff != "" {
		t.Errorf("record read differs from the one created (-created +read):\n%s", diff)
	}
	if diff := cmp.Diff(c.Entry, v.First); diff != "" || !cmp.Equal(v.First, v.Last) {
		t.Errorf("first entry (-created +read):\n%s", diff)
	}

	h := newHold(c.Record, c.Entry.At)
	if _, err := s.Commit(ctx, c.Lease, opening(h)); err != nil {
		t.Fatal(err)
	}
	held, err := s.Hold(ctx, h.ID)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(h, held.Hold); diff != "" {
		t.Errorf("hold (-put +read):\n%s", diff)
	}
	if held.Record.Status != store.Held || held.Record.HoldID != h.ID || len(held.Journal) != 2 || held.Now.Before(c.Entry.At) {
		t.Errorf("held = %+v", held)
	}

	d, err := s.Decide(ctx, approval(h, "ann"))
	if err != nil {
		t.Fatal(err)
	}
	if d.Record.Status != store.Running || d.Record.Seq != 4 || d.Lease.Epoch != 2 || len(d.Entries) != 2 || d.Entries[0].Seq != 3 {
		t.Errorf("decided = %+v", d)
	}
	if _, err := s.Decide(ctx, approval(h, "bob")); !errors.Is(err, store.ErrConflict) {
		t.Errorf("second decision: %v, want ErrConflict", err)
	}

	tx := ending()
	tx.Summary = json.RawMessage(`{"turns":2}`)
	if _, err := s.Commit(ctx, d.Lease, tx); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Commit(ctx, d.Lease, ending()); !errors.Is(err, store.ErrLeaseLost) {
		t.Errorf("commit after the end: %v, want ErrLeaseLost", err)
	}
	v, err = s.Run(ctx, req.RunID)
	if err != nil || v.Status != store.Completed || v.Hold != nil || string(v.Summary) != `{"turns":2}` || v.Last.Seq != 5 {
		t.Errorf("finished run = %+v, %v", v, err)
	}
	all, err := s.Journal(ctx, req.RunID, 0)
	if err != nil || len(all) != 5 || string(all[0].Data) != string(req.Entry.Data) {
		t.Errorf("journal = %v, %v", all, err)
	}
	if due, err := s.Claim(ctx, 10, time.Minute); err != nil || len(due) != 0 {
		t.Errorf("claim after the end = %v, %v", due, err)
	}
}

func TestListsAcrossPartitions(t *testing.T) {
	t.Parallel()
	s := open(t, server(t).URL(), func(c *redisConfig) { c.Partitions = 4 })
	ctx := t.Context()
	var want []string
	for i := range 57 {
		req := newRun(0)
		if i%3 == 0 {
			req.Agent = "other"
		}
		if _, err := s.Create(ctx, req); err != nil {
			t.Fatal(err)
		}
		if req.Agent == "support" {
			want = append([]string{req.RunID}, want...)
		}
	}
	for _, f := range []store.RunFilter{
		{Agent: "support"},
		{Env: "default", Agent: "support"},
		{Env: "default", Agent: "support", Status: store.Queued},
		{Status: store.Queued, Agent: "support", Capability: "refund", SessionID: "s1"},
	} {
		for _, limit := range []int{1, 7, 200} {
			var got []string
			page := store.Page{Limit: limit}
			for {
				rows, next, err := s.Runs(ctx, f, page)
				if err != nil {
					t.Fatal(err)
				}
				if len(rows) > limit {
					t.Fatalf("%d rows, limit %d", len(rows), limit)
				}
				for _, r := range rows {
					got = append(got, r.ID)
				}
				if page.Cursor = next; next == "" {
					break
				}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("filter %+v, limit %d (-want +got):\n%s", f, limit, diff)
			}
		}
	}
	if _, _, err := s.Runs(ctx, store.RunFilter{}, store.Page{Limit: 1, Cursor: "x"}); err == nil {
		t.Error("a malformed cursor was accepted")
	}
	for _, f := range []store.RunFilter{{Env: "nope"}, {Status: store.Held}, {Agent: "nope"}} {
		if rows, next, err := s.Runs(ctx, f, store.Page{Limit: 5}); err != nil || len(rows) > 0 || next != "" {
			t.Errorf("filter %+v = %v, %q, %v", f, rows, next, err)
		}
	}
}

// Names are those of users: none may reach into another's index.
func TestNamesCannotBreakOutOfKeys(t *testing.T) {
	t.Parallel()
	r := server(t)
	s := open(t, r.URL())
	ctx := t.Context()
	envs := []string{"a", "a:completed", "a%3Acompleted", "{p1}", "ä b", "a:", "*"}
	for _, env := range envs {
		req := newRun(time.Minute)
		req.Env = env
		c, err := s.Create(ctx, req)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Commit(ctx, c.Lease, ending()); err != nil {
			t.Fatal(err)
		}
	}
	for _, env := range envs {
		for _, status := range []store.Status{"", store.Completed} {
			rows, _, err := s.Runs(ctx, store.RunFilter{Env: env, Status: status}, store.Page{Limit: 50})
			if err != nil || len(rows) != 1 || rows[0].Env != env {
				t.Errorf("runs of env %q, status %q = %v, %v", env, status, rows, err)
			}
		}
	}
	for _, id := range []string{"", "x}:r:y", "r_*", "runs", "\x00"} {
		if _, err := s.Run(ctx, id); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("Run(%q): %v", id, err)
		}
		if _, err := s.Hold(ctx, "h_"+id+"_1"); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("Hold(%q): %v", id, err)
		}
	}
	scopes := []string{"run/r_1", "session/a/b/c", "session/a/b:c/{d}"}
	for _, scope := range scopes {
		if err := s.PutState(ctx, scope, "k:{x}", json.RawMessage(`"`+scope+`"`)); err != nil {
			t.Fatal(err)
		}
	}
	for _, scope := range scopes {
		if v, err := s.GetState(ctx, scope, "k:{x}"); err != nil || string(v) != `"`+scope+`"` {
			t.Errorf("state of %q = %s, %v", scope, v, err)
		}
		if err := s.DeleteState(ctx, scope, "k:{x}"); err != nil {
			t.Error(err)
		}
		if _, err := s.GetState(ctx, scope, "k:{x}"); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("deleted state of %q: %v", scope, err)
		}
	}
	for _, key := range keysLike(r, "*") {
		if !strings.HasPrefix(key, "agentos:{p0}:") {
			t.Errorf("key %q is outside of the prefix", key)
		}
	}
}

// Each operation is one request, whatever it does.
func TestOneRoundTrip(t *testing.T) {
	t.Parallel()
	s := open(t, server(t).URL())
	ctx := t.Context()
	ops := func() []func() error {
		req := newRun(time.Minute)
		var c store.Created
		var d store.Decided
		var h holds.Hold
		return []func() error{
			func() (err error) { c, err = s.Create(ctx, req); return err },
			func() (err error) {
				h = newHold(c.Record, c.Entry.At)
				_, err = s.Commit(ctx, c.Lease, opening(h))
				return err
			},
			func() (err error) { _, err = s.Hold(ctx, h.ID); return err },
			func() (err error) {
				_, _, err = s.Holds(ctx, store.HoldFilter{Env: "default"}, store.Page{Limit: 5})
				return err
			},
			func() (err error) { d, err = s.Decide(ctx, approval(h, "ann")); return err },
			func() (err error) { _, err = s.Renew(ctx, []store.Lease{d.Lease, c.Lease}, time.Minute); return err },
			func() (err error) { _, err = s.Commit(ctx, d.Lease, ending()); return err },
			func() (err error) { _, err = s.Run(ctx, req.RunID); return err },
			func() (err error) { _, err = s.Journal(ctx, req.RunID, 1); return err },
			func() (err error) {
				_, _, err = s.Runs(ctx, store.RunFilter{Env: "default"}, store.Page{Limit: 5})
				return err
			},
			func() (err error) { _, err = s.Claim(ctx, 5, time.Minute); return err },
		}
	}
	for _, op := range ops() { // teaches the server its scripts
		if err := op(); err != nil {
			t.Fatal(err)
		}
	}
	for i, op := range ops() {
		before := s.RoundTrips()
		if err := op(); err != nil {
			t.Fatal(err)
		}
		if n := s.RoundTrips() - before; n != 1 {
			t.Errorf("operation %d took %d round trips", i, n)
		}
	}
}
