package runtime

import (
	"context"
	"log/slog"
	goruntime "runtime"
	"runtime/debug"
	"time"

	"agentos/runtime/store"
)

// pollEvery is the backstop for a wake-up that got lost.
const pollEvery = time.Second

// Work claims runs that are due until ctx ends. It does not wait for the runs it
// took: see Drain.
func (e *Engine) Work(ctx context.Context) error {
	wake, err := e.cfg.Store.Wake(ctx)
	if err != nil {
		e.cfg.Log.WarnContext(ctx, "wake-ups are not available; polling", slog.Any("error", err))
	}
	for {
		more := e.claim(ctx)
		if more {
			continue
		}
		select {
		case <-ctx.Done():
			return nil
		case <-wake:
		case <-e.cfg.Clock.After(pollEvery):
		}
	}
}

// claim takes as many due runs as there are free slots, a batch at a time, and
// reports whether there may be more.
func (e *Engine) claim(ctx context.Context) bool {
	const batch = 16
	var slots []*slot
	defer func() {
		for _, s := range slots {
			s.release()
		}
	}()
	for len(slots) < batch {
		s := e.acquire()
		if !s.held {
			break
		}
		slots = append(slots, s)
	}
	if len(slots) == 0 || ctx.Err() != nil {
		return false
	}
	asked := e.cfg.Clock.Now()
	claimed, err := e.cfg.Store.Claim(ctx, len(slots), e.cfg.Lease)
	if err != nil {
		if ctx.Err() == nil {
			e.cfg.Log.WarnContext(ctx, "could not claim runs", slog.Any("error", err))
		}
		return false
	}
	for i, c := range claimed {
		w := e.newRun(c.Record, c.Lease, asked)
		w.lapsed, w.expired, w.entries = c.Lapsed, c.Hold, c.Journal
		e.start(w, slots[i])
	}
	return len(claimed) == len(slots)
}

// renewLeases pushes the leases of all active runs, three times in the life of a
// lease, until the engine ends.
func (e *Engine) renewLeases(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-e.cfg.Clock.After(e.cfg.Lease / 3):
			e.renew(ctx)
		}
	}
}

func (e *Engine) renew(ctx context.Context) {
	e.mu.Lock()
	runs := make([]*run, 0, len(e.active))
	leases := make([]store.Lease, 0, len(e.active))
	for _, w := range e.active {
		runs = append(runs, w)
		leases = append(leases, w.lease.current())
	}
	e.mu.Unlock()
	if len(runs) == 0 {
		return
	}
	asked := e.cfg.Clock.Now()
	callCtx, stop := context.WithTimeout(ctx, e.cfg.Lease/3)
	defer stop()
	renewals, err := e.cfg.Store.Renew(callCtx, leases, e.cfg.Lease)
	if err != nil {
		e.cfg.Log.WarnContext(ctx, "could not renew leases", slog.Any("error", err))
		for _, w := range runs {
			if e.cfg.Clock.Now().After(w.lease.deadline().Add(-e.cfg.Lease / 3)) {
				w.cancel(errLeaseLost)
			}
		}
		return
	}
	for i, r := range renewals {
		switch {
		case r.Lost:
			runs[i].leaseGone(leases[i])
		case r.CancelBy != "":
			runs[i].lease.set(r.Lease, asked)
			runs[i].cancelRequested(r.CancelBy)
		default:
			runs[i].lease.set(r.Lease, asked)
		}
	}
}

// Drain ends the engine: it stops taking runs, waits up to grace (or until ctx
// ends) for the active ones, then hands the rest back so that another worker can
// go on at once. It returns when nothing of the engine runs any more.
func (e *Engine) Drain(ctx context.Context, grace time.Duration) {
	e.mu.Lock()
	e.draining = true
	e.mu.Unlock()
	idle := make(chan struct{})
	go func() {
		defer close(idle)
		e.wg.Wait()
	}()
	select {
	case <-idle:
	case <-e.cfg.Clock.After(grace):
	case <-ctx.Done():
	}
	e.cancel(errShutdown)
	<-idle
	e.tending.Wait()
}

// start works on a leased run in a goroutine that Drain waits for. It takes over
// the slot.
func (e *Engine) start(w *run, s *slot) {
	mine := s.take()
	e.mu.Lock()
	e.active[w.record.ID] = w
	e.mu.Unlock()
	go func() {
		defer e.wg.Done()
		defer func() {
			// Whoever waits for the run may start the next one at once.
			mine.free()
			e.mu.Lock()
			if e.active[w.record.ID] == w {
				delete(e.active, w.record.ID)
			}
			e.mu.Unlock()
			close(w.done)
			w.cancel(nil)
		}()
		// A run that makes the engine panic must not take the others down. It is
		// left to its lease: whoever claims it next may do better, and gives up on
		// it after a few times.
		defer func() {
			if p := recover(); p != nil {
				w.log.ErrorContext(w.ctx, "the engine panicked on the run", slog.Any("panic", p), slog.String("stack", string(debug.Stack())))
			}
		}()
		roomy()
		w.drive()
	}()
}

// roomy makes the stack of this goroutine as large as a run needs, while there is
// nothing on it: growing step by step copies what is there each time.
//
//go:noinline
func roomy() {
	var room [24 << 10]byte
	goruntime.KeepAlive(&room)
}
