package storetest

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"agentos/runtime/journal"
	"agentos/runtime/store"
)

func createCases() []Case {
	return []Case{
		{"Create/queued_is_due_now", createQueued},
		{"Create/leased_is_due_when_the_lease_ends", createLeased},
		{"Create/same_request_gives_the_existing_run", createExisting},
		{"Create/other_request_conflicts", createConflict},
		{"Create/of_a_finished_run_gives_it", createFinished},
		{"Create/twenty_at_once_make_one", createTwenty},
		{"Create/two_requests_at_once_have_one_winner", createTwoRequests},
		{"Create/same_key_gives_the_existing_run", createKey},
		{"Create/same_key_at_once_makes_one", createKeyRace},
		{"Create/queues_no_more_than_may_be", createFull},
		{"Create/keeps_every_byte", createBytes},
		{"Create/refuses_bad_arguments", createRefuses},
	}
}

func createQueued(k *kit) {
	c := k.creation(runID(1), 0)
	got := k.createAs(c)
	want := store.Record{
		ID: c.RunID, Env: c.Env, Agent: c.Agent, Capability: c.Capability, SessionID: c.SessionID,
		Status: store.Queued, Seq: 1, Summary: c.Summary, CreatedAt: got.Entry.At, UpdatedAt: got.Entry.At,
	}
	k.equal("record", got.Record, want)
	k.equal("lease", got.Lease, store.Lease{})
	k.equal("entry", got.Entry, journal.Entry{Seq: 1, At: got.Entry.At, Type: journal.RunCreated, Data: c.Entry.Data})
	if got.Existing || got.Entry.At.IsZero() {
		k.Fatalf("existing %t, at %v", got.Existing, got.Entry.At)
	}
	k.equal("view", k.view(c.RunID), store.View{Record: want, First: got.Entry, Last: got.Entry})

	claimed := k.claimOnly(c.RunID)
	if claimed.Lapsed || claimed.Record.Status != store.Running || claimed.Lease.Epoch != 1 || claimed.Hold != nil {
		k.Fatalf("claimed %+v", claimed)
	}
	k.equal("journal", claimed.Journal, []journal.Entry{got.Entry})
}

func createLeased(k *kit) {
	got := k.create(runID(1), ttl)
	if got.Record.Status != store.Running || got.Record.Epoch != 1 || got.Record.Idle != 0 {
		k.Fatalf("record %+v", got.Record)
	}
	k.equal("lease", got.Lease, store.Lease{RunID: runID(1), Epoch: 1, Expires: got.Entry.At.Add(ttl)})
	k.claimNone("while leased")
	k.h.Advance(ttl - k.nearly())
	k.claimNone("before the lease ends")
	k.h.Advance(k.nearly())
	if c := k.claimOnly(runID(1)); !c.Lapsed || c.Lease.Epoch != 2 {
		k.Fatalf("claimed %+v", c)
	}
}

func createExisting(k *kit) {
	first := k.create(runID(1), ttl)
	k.commit(first.Lease, running(2))
	again := k.create(runID(1), ttl)
	if !again.Existing || again.Record.Seq != 3 {
		k.Fatalf("created again: %+v", again)
	}
	k.equal("lease", again.Lease, store.Lease{})
	k.equal("entry", again.Entry, first.Entry)
	k.commit(first.Lease, running(1)) // the first lease is still good
}

func createConflict(k *kit) {
	c := k.creation(runID(1), 0)
	k.createAs(c)
	for _, op := range []string{c.Op, k.op()} {
		other := c
		other.Op, other.Request = op, "sha256:other"
		_, err := k.s.Create(k.ctx, other)
		k.refused(err, store.ErrIdempotencyConflict)
	}
	k.types(runID(1), journal.RunCreated)
}

func createFinished(k *kit) {
	k.finish(k.create(runID(1), ttl).Lease)
	again := k.create(runID(1), ttl)
	if !again.Existing || again.Record.Status != store.Completed {
		k.Fatalf("created again: %+v", again)
	}
	k.claimNone("finished")
}

func createTwenty(k *kit) {
	var made atomic.Int64
	handles := k.handles()
	together(20, func(i int) {
		got, err := handles[i%2].Create(k.ctx, k.creation(runID(1), ttl))
		if err != nil {
			k.Errorf("create %d: %v", i, err)
			return
		}
		if !got.Existing {
			made.Add(1)
		}
		if got.Existing != (got.Lease == store.Lease{}) {
			k.Errorf("existing %t, lease %+v", got.Existing, got.Lease)
		}
	})
	if made.Load() != 1 {
		k.Fatalf("%d were made, want 1", made.Load())
	}
	k.types(runID(1), journal.RunCreated)
}

func createTwoRequests(k *kit) {
	var made, conflicts atomic.Int64
	together(8, func(i int) {
		c := k.creation(runID(1), 0)
		c.Request = []string{"a", "b", "c", "d"}[i%4]
		got, err := k.s.Create(k.ctx, c)
		switch {
		case errors.Is(err, store.ErrIdempotencyConflict):
			conflicts.Add(1)
		case err != nil:
			k.Errorf("create: %v", err)
		case !got.Existing:
			made.Add(1)
		}
	})
	if made.Load() != 1 || conflicts.Load() != 6 {
		k.Fatalf("%d made and %d conflicts, want 1 and 6", made.Load(), conflicts.Load())
	}
}

// keyed is the n-th attempt to create the run of a key.
func (k *kit) keyed(n int, lease time.Duration) store.Create {
	const key = "00000000000000aa"
	c := k.creation(fmt.Sprintf("r_%010d%s", n, key), lease)
	c.Key, c.Request = key, "sha256:keyed"
	return c
}

func createKey(k *kit) {
	one := k.keyed(1, ttl)
	first := k.createAs(one)
	k.equal("repeat", k.createAs(one), first)
	again := k.createAs(k.keyed(2, ttl))
	if !again.Existing || again.Record.ID != first.Record.ID || again.Lease.Epoch != 0 {
		k.Fatalf("created again: %+v", again)
	}
	k.equal("entry", again.Entry, first.Entry)
	other := k.keyed(3, ttl)
	other.Request = "sha256:other"
	_, err := k.s.Create(k.ctx, other)
	k.refused(err, store.ErrIdempotencyConflict)
	_, err = k.s.Run(k.ctx, k.keyed(2, 0).RunID)
	k.refused(err, store.ErrNotFound)
	k.restart()
	if again = k.createAs(k.keyed(4, 0)); !again.Existing || again.Record.ID != first.Record.ID {
		k.Fatalf("created after a restart: %+v", again)
	}
	k.finish(first.Lease)
	if again = k.createAs(k.keyed(5, 0)); !again.Existing || again.Record.Status != store.Completed {
		k.Fatalf("created after the end: %+v", again)
	}
	k.equal("runs", len(k.allRuns(store.RunFilter{}, 10)), 1)
}

func createKeyRace(k *kit) {
	var made atomic.Int64
	handles := k.handles()
	together(20, func(i int) {
		got, err := handles[i%2].Create(k.ctx, k.keyed(i, ttl))
		if err != nil {
			k.Errorf("create %d: %v", i, err)
			return
		}
		if !got.Existing {
			made.Add(1)
		}
	})
	if made.Load() != 1 {
		k.Fatalf("%d were made, want 1", made.Load())
	}
}

func createFull(k *kit) {
	// All these runs are in one partition, whose part of the bound is the whole or,
	// of three, a third.
	limited := func(n int, lease time.Duration) store.Create {
		c := k.creation(fmt.Sprintf("r_%010d%016d", n, 0), lease)
		c.MaxQueued = 6
		return c
	}
	n := 0
	for ; n < 10; n++ {
		_, err := k.s.Create(k.ctx, limited(n, 0))
		if errors.Is(err, store.ErrQueueFull) {
			break
		}
		k.ok(err)
	}
	if n != 6 && n != 2 {
		k.Fatalf("%d were queued", n)
	}
	_, err := k.s.Run(k.ctx, limited(n, 0).RunID)
	k.refused(err, store.ErrNotFound)
	if again := k.createAs(limited(0, 0)); !again.Existing {
		k.Fatalf("created again: %+v", again)
	}
	k.createAs(limited(n+1, ttl)) // needs no place in the queue
	elsewhere := limited(n+2, 0)
	elsewhere.Env = "test"
	k.createAs(elsewhere)
	unbounded := limited(n+3, 0)
	unbounded.MaxQueued = 0
	k.createAs(unbounded)
	k.claim(20)
	k.createAs(limited(n, 0)) // there is room again
}

func createBytes(k *kit) {
	c := k.creation(runID(1), 0)
	c.Entry.Data = json.RawMessage(`{"big":"` + strings.Repeat("x", 1<<20) + `","is":` + awkward + `}`)
	c.Summary = json.RawMessage(awkward)
	c.Agent, c.SessionID = "clerk 🦊", `s/é"'\ {}`
	got := k.createAs(c)
	k.sameBytes("stamped entry", got.Entry.Data, c.Entry.Data)
	k.restart()
	v := k.view(c.RunID)
	k.sameBytes("first entry", v.First.Data, c.Entry.Data)
	k.sameBytes("summary", v.Summary, c.Summary)
	k.equal("agent", v.Agent, c.Agent)
	k.equal("session", v.SessionID, c.SessionID)
	k.sameBytes("journal", k.journal(c.RunID)[0].Data, c.Entry.Data)
	k.sameBytes("claimed", k.claimOnly(c.RunID).Journal[0].Data, c.Entry.Data)
}

func createRefuses(k *kit) {
	for name, edit := range map[string]func(*store.Create){
		"no id":          func(c *store.Create) { c.RunID = "" },
		"odd id":         func(c *store.Create) { c.RunID = "r_a_b" },
		"no entry":       func(c *store.Create) { c.Entry = journal.New{} },
		"other entry":    func(c *store.Create) { c.Entry.Type = journal.ModelAnswered },
		"negative lease": func(c *store.Create) { c.Lease = -time.Second },
		"negative bound": func(c *store.Create) { c.MaxQueued = -1 },
		"foreign key":    func(c *store.Create) { c.Key = "0000000000000009" },
	} {
		c := k.creation(runID(1), 0)
		edit(&c)
		_, err := k.s.Create(k.ctx, c)
		k.invalid(name, err)
	}
	_, err := k.s.Run(k.ctx, runID(1))
	k.refused(err, store.ErrNotFound)
}
