package storetest

import (
	"context"
	"errors"
	"sync"
	"time"

	"agentos/holds"
	"agentos/runtime/store"
)

// patience is how long a case waits for a fact before it fails.
const patience = 20 * time.Second

func watchCases() []Case {
	return []Case{
		{"Watch/tells_once_at_the_beginning", watchFirst},
		{"Watch/misses_nothing", watchAll},
		{"Watch/sees_decisions_and_cancellations", watchKinds},
		{"Watch/ends_with_its_context", watchEnds},
		{"Wake/tells_that_a_run_is_due", wakeDue},
	}
}

// told wants a value.
func (k *kit) told(ch <-chan struct{}, what string) {
	k.Helper()
	if err := wait(k.ctx, ch); err != nil {
		k.Fatalf("%s: %v", what, err)
	}
}

// wait waits for a value.
func wait(ctx context.Context, ch <-chan struct{}) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	select {
	case _, open := <-ch:
		if !open {
			return errors.New("the channel was closed")
		}
		return nil
	case <-ctx.Done():
		return errors.New("nothing was told")
	}
}

func watchFirst(k *kit) {
	k.create(runID(1), 0)
	ctx, cancel := context.WithCancel(k.ctx)
	defer cancel()
	for range 3 {
		ch, err := k.s.Watch(ctx, runID(1))
		k.ok(err)
		k.told(ch, "at the beginning")
	}
}

// watchAll follows a run as an event stream does: read what is new after each
// value, until the last entry. Writing begins when all have read the first, so
// that the value at the beginning is not enough.
func watchAll(k *kit) {
	const watchers = 4
	ctx, cancel := context.WithCancel(k.ctx)
	defer cancel()
	c := k.create(runID(1), ttl)
	handles := k.handles()
	var ready sync.WaitGroup
	ready.Add(watchers)
	together(watchers+1, func(i int) {
		if i == watchers {
			ready.Wait()
			for range 60 {
				if _, err := k.s.Commit(ctx, c.Lease, running(2)); err != nil {
					k.Errorf("commit: %v", err)
				}
			}
			if _, err := k.s.Commit(ctx, c.Lease, completed()); err != nil {
				k.Errorf("commit: %v", err)
			}
			return
		}
		k.follow(ctx, handles[i%2], sync.OnceFunc(ready.Done), 122)
	})
}

// follow reads the entries of the first run as they are told, and wants exactly
// as many. begun is called when it has read for the first time, or given up.
func (k *kit) follow(ctx context.Context, s store.Store, begun func(), want int64) {
	defer begun()
	ch, err := s.Watch(ctx, runID(1))
	if err != nil {
		k.Errorf("watch: %v", err)
		return
	}
	for last := int64(0); last < want; {
		if err := wait(ctx, ch); err != nil {
			k.Errorf("after entry %d: %v", last, err)
			return
		}
		list, err := s.Journal(ctx, runID(1), last)
		if err != nil {
			k.Errorf("journal: %v", err)
			return
		}
		for _, e := range list {
			if last++; e.Seq != last {
				k.Errorf("entry %d came at place %d", e.Seq, last)
			}
		}
		begun()
	}
}

func watchKinds(k *kit) {
	ctx, cancel := context.WithCancel(k.ctx)
	defer cancel()
	h := k.held(runID(1), time.Hour)
	other := k.held(runID(2), time.Hour)
	for _, s := range k.handles() {
		ch, err := s.Watch(ctx, h.RunID)
		k.ok(err)
		k.told(ch, "at the beginning")
		part := k.decision(h, false, 0)
		k.decide(part)
		k.told(ch, "after a decision")
		h = part.Hold
		h.Items[0].Decision = nil // to be decided again through the next handle
	}
	ch, err := k.s.Watch(ctx, other.RunID)
	k.ok(err)
	k.told(ch, "at the beginning")
	k.cancel(k.cancellation(other.RunID, 2, &other))
	k.told(ch, "after a cancellation")
	k.equal("hold", k.holdOf(other.ID).Status, holds.Cancelled)
}

func watchEnds(k *kit) {
	l := k.create(runID(1), ttl).Lease
	ctx, cancel := context.WithCancel(k.ctx)
	ch, err := k.s.Watch(ctx, runID(1))
	k.ok(err)
	k.told(ch, "at the beginning")
	cancel()
	other, err := k.s.Watch(k.ctx, runID(1))
	k.ok(err)
	k.told(other, "at the beginning")
	k.commit(l, running(1))
	k.told(other, "the one that stays")
	select {
	case _, open := <-ch: // a value on its way is no harm
		if !open {
			k.Errorf("the channel was closed")
		}
	default:
	}
}

func wakeDue(k *kit) {
	ctx, cancel := context.WithCancel(k.ctx)
	defer cancel()
	h := k.held(runID(9), time.Hour)
	l := k.create(runID(8), ttl).Lease
	for n, s := range k.handles() {
		ch, err := s.Wake(ctx)
		k.ok(err)
		drain(ch)
		k.create(runID(n), 0)
		k.told(ch, "a run was created")
		k.claim(5)
		if n > 0 {
			continue
		}
		drain(ch)
		k.decide(k.decision(h, true, 0))
		k.told(ch, "a run was decided")
		drain(ch)
		k.commit(l, store.Tx{Status: store.Queued})
		k.told(ch, "a run was handed back")
	}
}

func drain(ch <-chan struct{}) {
	select {
	case <-ch:
	default:
	}
}
