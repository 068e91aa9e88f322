package redis_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"agentos/holds"
	"agentos/internal/testenv"
	"agentos/runtime/journal"
	"agentos/runtime/store"
	"agentos/runtime/store/redis"
)

// behind opens a store whose connections pass through a proxy.
func behind(t *testing.T, r *testenv.Redis) (*redis.Store, *testenv.Proxy) {
	t.Helper()
	p := testenv.StartProxy(t, r.Addr)
	return open(t, "redis://"+p.Addr), p
}

// The server has executed the script, the answer is lost: the repeat is the same
// transition, and the caller never meets its own first attempt as a conflict.
func TestLostAnswerIsAppliedOnce(t *testing.T) {
	t.Parallel()
	r := server(t)
	direct := open(t, r.URL())
	s, proxy := behind(t, r)
	ctx := t.Context()
	// lose runs f while the next answer is lost.
	lose := func(t *testing.T, f func() error) {
		t.Helper()
		lost := proxy.CutReplies(1)
		if err := f(); err != nil {
			t.Fatal(err)
		}
		<-lost
	}
	entries := func(t *testing.T, run string, want int) {
		t.Helper()
		got, err := direct.Journal(ctx, run, 0)
		if err != nil || len(got) != want {
			t.Errorf("journal of %s has %d entries, want %d (%v)", run, len(got), want, err)
		}
	}
	t.Run("create", func(t *testing.T) {
		req := newRun(time.Minute)
		lose(t, func() error {
			c, err := s.Create(ctx, req)
			if err == nil && (c.Existing || c.Lease.Epoch != 1 || c.Record.Seq != 1) {
				err = fmt.Errorf("created = %+v", c)
			}
			return err
		})
		entries(t, req.RunID, 1)
	})
	t.Run("commit", func(t *testing.T) {
		c, err := direct.Create(ctx, newRun(time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		tx := store.Tx{Op: token(), Status: store.Running, Lease: time.Minute, Entries: []journal.New{entry(journal.ModelAnswered, `{}`)}}
		lose(t, func() error { _, err := s.Commit(ctx, c.Lease, tx); return err })
		entries(t, c.Record.ID, 2)
		lose(t, func() error { _, err := s.Commit(ctx, c.Lease, ending()); return err })
		entries(t, c.Record.ID, 3)
	})
	t.Run("decide", func(t *testing.T) {
		run, h := hang(t, direct)
		lose(t, func() error {
			d, err := s.Decide(ctx, approval(h, "ann"))
			if err == nil && (d.Lease.Epoch != 2 || d.Record.Status != store.Running) {
				err = fmt.Errorf("decided = %+v", d)
			}
			return err
		})
		entries(t, run.ID, 4)
	})
	t.Run("cancel", func(t *testing.T) {
		run, h := hang(t, direct)
		closed := h.Closed(holds.Cancelled, run.Seq+1)
		c := store.Cancel{
			Op: token(), RunID: run.ID, By: "ann", Seen: run.Seq, Hold: &closed,
			Entries: []journal.New{entry(journal.RunCancelled, `{"by":"ann"}`)},
		}
		lose(t, func() error { _, err := s.Cancel(ctx, c); return err })
		entries(t, run.ID, 3)
	})
	t.Run("cancel of a leased run", func(t *testing.T) {
		c, err := direct.Create(ctx, newRun(time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		req := store.Cancel{Op: token(), RunID: c.Record.ID, By: "ann", Seen: 1, Entries: []journal.New{entry(journal.RunCancelled, `{}`)}}
		lose(t, func() error {
			requested, err := s.Cancel(ctx, req)
			if err == nil && !requested {
				err = errors.New("not requested")
			}
			return err
		})
		// The worker has ended the run meanwhile: the request is still the same one.
		end := store.Tx{Op: token(), Status: store.Cancelled, Entries: []journal.New{entry(journal.RunCancelled, `{}`)}}
		if _, err := direct.Commit(ctx, c.Lease, end); err != nil {
			t.Fatal(err)
		}
		if requested, err := s.Cancel(ctx, req); err != nil || !requested {
			t.Errorf("repeat = %t, %v", requested, err)
		}
	})
}

// Answers lost at random under many runs at once: every transition happened once.
func TestLostAnswerStorm(t *testing.T) {
	t.Parallel()
	r := server(t)
	s, proxy := behind(t, r)
	proxy.CutEvery(7)
	var runs sync.WaitGroup
	ids := make([]string, 40)
	for i := range ids {
		runs.Go(func() {
			id, err := throughHold(t.Context(), s)
			if err != nil {
				t.Error(err)
			}
			ids[i] = id
		})
	}
	runs.Wait()
	direct := open(t, r.URL())
	for _, id := range ids {
		var got []journal.Type
		all, err := direct.Journal(t.Context(), id, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range all {
			got = append(got, e.Type)
		}
		if fmt.Sprint(got) != "[run.created hold.opened hold.decided hold.closed run.completed]" {
			t.Errorf("journal of %s: %v", id, got)
		}
	}
}

// throughHold takes a run from creation over a hold to its end, repeating each
// step with the same token while the store is unavailable.
func throughHold(ctx context.Context, s *redis.Store) (string, error) {
	req := newRun(time.Minute)
	c, err := insist(func() (store.Created, error) { return s.Create(ctx, req) })
	if err != nil || c.Existing {
		return req.RunID, fmt.Errorf("create: %+v, %w", c, err)
	}
	h := newHold(c.Record, c.Entry.At)
	tx := opening(h)
	if _, err := insist(func() (store.Committed, error) { return s.Commit(ctx, c.Lease, tx) }); err != nil {
		return req.RunID, err
	}
	decision := approval(h, "ann")
	d, err := insist(func() (store.Decided, error) { return s.Decide(ctx, decision) })
	if err != nil {
		return req.RunID, err
	}
	end := ending()
	_, err = insist(func() (store.Committed, error) { return s.Commit(ctx, d.Lease, end) })
	return req.RunID, err
}

func insist[T any](f func() (T, error)) (T, error) {
	for {
		v, err := f()
		if !errors.Is(err, store.ErrUnavailable) || errors.Is(err, context.Canceled) {
			return v, err // done, or the test is over
		}
		<-time.After(5 * time.Millisecond)
	}
}

func TestScriptsForgotten(t *testing.T) {
	t.Parallel()
	r := server(t)
	s := open(t, r.URL())
	flush := func() { r.Command("SCRIPT", "FLUSH") }
	ctx := t.Context()
	flush()
	c, err := s.Create(ctx, newRun(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	flush()
	h := newHold(c.Record, c.Entry.At)
	if _, err := s.Commit(ctx, c.Lease, opening(h)); err != nil {
		t.Error(err)
	}
	flush()
	if _, err := s.Hold(ctx, h.ID); err != nil {
		t.Error(err)
	}
	flush()
	if _, err := s.Decide(ctx, approval(h, "ann")); err != nil {
		t.Error(err)
	}
	flush()
	if all, err := s.Journal(ctx, c.Record.ID, 0); err != nil || len(all) != 4 {
		t.Errorf("journal = %v, %v", all, err)
	}
}

// A server that is away, or refuses, gives ErrUnavailable with its reason, writes
// nothing, and is usable again afterwards.
func TestServerRefuses(t *testing.T) {
	t.Parallel()
	r := server(t)
	s := open(t, r.URL())
	ctx := t.Context()
	run, h := hang(t, s)
	refused := func(t *testing.T, reason string) {
		t.Helper()
		decision := approval(h, "ann")
		_, err := s.Decide(ctx, decision)
		if !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), reason) {
			t.Errorf("decide: %v, want ErrUnavailable with %q", err, reason)
		}
		if _, err := s.Health(ctx); !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), reason) {
			t.Errorf("health: %v, want ErrUnavailable with %q", err, reason)
		}
	}
	intact := func(t *testing.T) {
		t.Helper()
		got, err := s.Hold(ctx, h.ID)
		if err != nil || got.Hold.Status != holds.Pending || len(got.Journal) != int(run.Seq) {
			t.Errorf("hold = %+v, %v", got, err)
		}
	}
	t.Run("maxmemory", func(t *testing.T) {
		r.Command("CONFIG", "SET", "maxmemory", "1")
		refused(t, "maxmemory is reached")
		intact(t)
		r.Command("CONFIG", "SET", "maxmemory", "0")
	})
	t.Run("read-only replica", func(t *testing.T) {
		r.Command("REPLICAOF", "127.0.0.1", "1")
		refused(t, "read-only replica")
		intact(t)
		r.Command("REPLICAOF", "NO", "ONE")
	})
	t.Run("too few replicas", func(t *testing.T) {
		r.Command("CONFIG", "SET", "min-replicas-to-write", "1")
		refused(t, "too few replicas")
		intact(t)
		r.Command("CONFIG", "SET", "min-replicas-to-write", "0")
	})
	t.Run("away", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		down := open(t, r.URL(), prefix("other"))
		r.Kill()
		if _, err := down.Run(ctx, run.ID); !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("run: %v", err)
		}
		if ctx.Err() != nil {
			t.Error("a server that is away took all the time there was")
		}
	})
	t.Run("never there", func(t *testing.T) {
		if _, err := redis.Open(ctx, redis.Config{URL: r.URL(), Log: discard()}); !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("open: %v", err)
		}
	})
}

func TestContextBoundsOperations(t *testing.T) {
	t.Parallel()
	s, proxy := behind(t, server(t))
	proxy.Delay(time.Minute)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := s.Run(ctx, "r_1"); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("run: %v, want the deadline and ErrUnavailable", err)
	}
	proxy.CutAll()
}

func TestClosedStoreRefuses(t *testing.T) {
	t.Parallel()
	s := open(t, server(t).URL())
	if _, err := s.Watch(t.Context(), "r_1"); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Create(t.Context(), newRun(0)); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("create: %v", err)
	}
	if _, err := s.Watch(t.Context(), "r_1"); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("watch: %v", err)
	}
	if err := s.PutState(t.Context(), "run/r_1", "k", json.RawMessage(`1`)); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("put: %v", err)
	}
}

// Watchers learn of what happened while their connection was away.
func TestWatchSurvivesReconnect(t *testing.T) {
	t.Parallel()
	r := server(t)
	direct := open(t, r.URL())
	s, proxy := behind(t, r)
	ctx := t.Context()
	c, err := direct.Create(ctx, newRun(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	watch, err := s.Watch(ctx, c.Record.ID)
	if err != nil {
		t.Fatal(err)
	}
	wake, err := s.Wake(ctx)
	if err != nil {
		t.Fatal(err)
	}
	<-watch
	<-wake
	for n := range 3 {
		proxy.Down()
		tx := store.Tx{Op: token(), Status: store.Running, Lease: time.Minute, Entries: []journal.New{entry(journal.ModelAnswered, `{}`)}}
		if _, err := direct.Commit(ctx, c.Lease, tx); err != nil {
			t.Fatal(err)
		}
		proxy.Up()
		for seen := 0; seen < n+2; {
			<-watch
			all, err := s.Journal(ctx, c.Record.ID, 0)
			if err != nil {
				t.Fatal(err)
			}
			seen = len(all)
		}
		<-wake
	}
}
