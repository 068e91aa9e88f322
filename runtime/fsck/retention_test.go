package fsck_test

import (
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"agentos/holds"
	"agentos/internal/ids"
	"agentos/internal/testenv"
	"agentos/runtime/store"
	"agentos/runtime/store/file"
	"agentos/runtime/store/redis"
	"agentos/runtime/store/storetest"
)

// ended is a finished run that had an idempotency key.
var (
	ended    = runID(9)
	endedKey = ended[len(ended)-ids.KeyLength:]
)

// unfinished are the runs of a world that retention must never touch.
func unfinished() []string { return []string{queued, running, held, parked, keyed} }

// over are the runs of a world whose retention ends.
func over() []string { return []string{completed, cancelled, failed, ended} }

// retain fills a store and has pass end the retention of what has finished. pass
// returns once the store says that they are gone.
func retain(t *testing.T, s checkable, pass func(*author)) {
	t.Helper()
	world(t, s)
	a := newAuthor(t, s)
	a.createWith(ended, endedKey, ttl)
	a.complete(ended)
	a.ok(s.PutState(t.Context(), "run/"+ended, "k", []byte(`1`)))
	var before []store.View
	for _, id := range unfinished() {
		v, err := s.Run(t.Context(), id)
		a.ok(err)
		before = append(before, v)
	}
	pass(a)

	for i, id := range unfinished() {
		v, err := s.Run(t.Context(), id)
		if err != nil || v.Status != before[i].Status || v.Seq != before[i].Seq || v.First.Type != before[i].First.Type {
			t.Errorf("unfinished run %s: %v, %s with %d entries; it was %s with %d", id, err, v.Status, v.Seq, before[i].Status, before[i].Seq)
		}
		if list, err := s.Journal(t.Context(), id, 0); err != nil || int64(len(list)) != before[i].Seq {
			t.Errorf("unfinished run %s has %d entries of %d: %v", id, len(list), before[i].Seq, err)
		}
	}
	if h, err := s.Hold(t.Context(), holdOf(held)); err != nil || h.Hold.Status != holds.Pending {
		t.Errorf("the pending hold: %v, %s", err, h.Hold.Status)
	}
	if _, err := s.GetState(t.Context(), "run/"+held, "k"); err != nil {
		t.Errorf("state of a held run: %v", err)
	}
	a.goneEverywhere()
	same(t, "afterwards", check(t, s, false), nil)

	// The key of an unfinished run holds, that of a run that is gone is free.
	c, err := s.Create(t.Context(), store.Create{Op: a.op(), RunID: "r_other" + theKey, Key: theKey, Request: "sha256:" + keyed, Env: "prod", Agent: "clerk", Capability: "answer", Entry: created(t)})
	if err != nil || !c.Existing || c.Record.ID != keyed {
		t.Errorf("a repeat with the key of an unfinished run: %v, existing %t, %s", err, c.Existing, c.Record.ID)
	}
	c, err = s.Create(t.Context(), store.Create{Op: a.op(), RunID: "r_other" + endedKey, Key: endedKey, Request: "another", Env: "prod", Agent: "clerk", Capability: "answer", Entry: created(t)})
	if err != nil || c.Existing {
		t.Errorf("a request with the key of a run that is gone: %v, existing %t", err, c.Existing)
	}
	same(t, "at the end", check(t, s, false), nil)
}

// goneEverywhere wants nothing to be left of the runs whose retention is over.
func (a *author) goneEverywhere() {
	a.t.Helper()
	ctx := a.t.Context()
	for _, id := range over() {
		if _, err := a.s.Run(ctx, id); !errors.Is(err, store.ErrNotFound) {
			a.t.Errorf("run %s: %v", id, err)
		}
		if _, err := a.s.Journal(ctx, id, 0); !errors.Is(err, store.ErrNotFound) {
			a.t.Errorf("journal of %s: %v", id, err)
		}
		if _, err := a.s.Hold(ctx, holdOf(id)); !errors.Is(err, store.ErrNotFound) {
			a.t.Errorf("hold of %s: %v", id, err)
		}
		if _, err := a.s.GetState(ctx, "run/"+id, "k"); !errors.Is(err, store.ErrNotFound) {
			a.t.Errorf("state of %s: %v", id, err)
		}
	}
	for _, status := range []store.Status{"", store.Completed, store.Failed, store.Cancelled} {
		rows, _, err := a.s.Runs(ctx, store.RunFilter{Env: "prod", Status: status}, store.Page{Limit: 200})
		a.ok(err)
		for _, v := range rows {
			if slices.Contains(over(), v.ID) {
				a.t.Errorf("the list of %q has %s", status, v.ID)
			}
		}
	}
	list, _, err := a.s.Holds(ctx, store.HoldFilter{Env: "prod"}, store.Page{Limit: 200})
	a.ok(err)
	for _, h := range list {
		if h.ID != holdOf(held) {
			a.t.Errorf("the list of holds has %s", h.ID)
		}
	}
}

func TestFileRetention(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"", filepath.Join(t.TempDir(), "runs.db")} {
		c := storetest.NewClock()
		s, err := file.Open(t.Context(), file.Config{Path: path, Clock: c, Retention: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		retain(t, s, func(a *author) {
			c.Advance(2 * time.Hour)
			for range 3 { // a batch goes after each write
				a.ok(s.PutState(t.Context(), "session/x", "k", []byte(`1`)))
			}
		})
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestRedisRetention(t *testing.T) {
	t.Parallel()
	for _, partitions := range []int{1, 3} {
		t.Run(strconv.Itoa(partitions), func(t *testing.T) {
			t.Parallel()
			r := testenv.StartRedis(t)
			s, err := redis.Open(t.Context(), redis.Config{URL: r.URL(), Partitions: partitions, Retention: 200 * time.Millisecond, Log: slog.New(slog.DiscardHandler)})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			retain(t, s, func(*author) {
				for _, id := range over() {
					for {
						if _, err := s.Run(t.Context(), id); errors.Is(err, store.ErrNotFound) {
							break
						} else if err != nil {
							t.Fatal(err)
						}
					}
				}
			})
			// The next runs that end take out what is left in the indexes.
			a := newAuthor(t, s)
			for n := range 20 {
				a.create(runID(20+n), ttl)
				a.complete(runID(20 + n))
			}
			for p := range partitions {
				for _, list := range []string{"runs:prod", "runs:prod:completed", "runs:prod:failed", "runs:prod:cancelled", "holds:prod", "holds:prod:decided", "holds:prod:cancelled", "due"} {
					for _, id := range over() {
						for _, member := range []string{id, holdOf(id)} {
							if got := r.Command("ZSCORE", fmt.Sprintf("agentos:{p%d}:%s", p, list), member); got != "$-1" {
								t.Errorf("%s is left in %s", member, list)
							}
						}
					}
				}
			}
		})
	}
}
