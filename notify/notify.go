// Package notify tells others of what happened in runs. It claims the notices that
// transitions have left in the store, gives the journal of the run to each target,
// and keeps how far each has come. Whoever dies while telling is followed by
// another process once its claim has lapsed, so a target may be told twice, and
// never not at all while the run is kept.
package notify

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"agentos/internal/clock"
	"agentos/internal/rawjson"
	"agentos/runtime/journal"
	"agentos/runtime/store"
)

// Store is what telling needs of the store.
type Store interface {
	Notices(ctx context.Context, n int, ttl time.Duration) ([]store.Notice, error)
	Settle(ctx context.Context, s store.Settled) error
	Journal(ctx context.Context, runID string, after int64) ([]journal.Entry, error)
}

// Run is a run of which others are told.
type Run struct {
	ID, Env string
	// Journal has all entries.
	Journal []journal.Entry
}

// Target is somebody who is told of runs. It is safe for concurrent use.
type Target interface {
	// Name tells the target from others, now and in later processes.
	Name() string
	// Tell tells of what is new in a run. state is what the last Tell has returned
	// for the run, nil when it is the first.
	Tell(ctx context.Context, r Run, state json.RawMessage) Told
}

// Told is what came of telling.
type Told struct {
	// State is kept for the next time.
	State json.RawMessage
	// Again asks for another time after Due, even when nothing happens in the run
	// until then.
	Again bool
	Due   time.Duration
}

// Times of a teller.
const (
	// every is how often it looks for notices.
	every = 500 * time.Millisecond
	// claim is how long a notice is one process's. Telling ends well before.
	claim     = 30 * time.Second
	tellLimit = 20 * time.Second
	// settleLimit bounds keeping what came of it, also when the server stops.
	settleLimit = 5 * time.Second
	// retry is when a run is tried again whose journal could not be read.
	retry = 5 * time.Second
)

// atOnce is how many runs are told of at the same time.
const atOnce = 16

// Config is what a teller needs; every field is required.
type Config struct {
	Store   Store
	Targets []Target
	Clock   clock.Clock
	Log     *slog.Logger
}

// Teller tells targets of runs.
type Teller struct{ cfg Config }

// New returns a teller. Names of targets must differ.
func New(cfg Config) (*Teller, error) {
	seen := map[string]bool{}
	for _, t := range cfg.Targets {
		if seen[t.Name()] {
			return nil, fmt.Errorf("two targets are named %q", t.Name())
		}
		seen[t.Name()] = true
	}
	return &Teller{cfg: cfg}, nil
}

// Work tells until ctx ends, and returns once what it has begun has ended.
func (t *Teller) Work(ctx context.Context) {
	var busy sync.WaitGroup
	defer busy.Wait()
	slots := make(chan struct{}, atOnce)
	for ctx.Err() == nil {
		if t.claim(ctx, slots, &busy) {
			continue
		}
		select {
		case <-ctx.Done():
		case <-t.cfg.Clock.After(every):
		}
	}
}

// claim claims as many notices as there are free slots and begins to tell of each.
// It reports whether there may be more to claim at once.
func (t *Teller) claim(ctx context.Context, slots chan struct{}, busy *sync.WaitGroup) bool {
	free := cap(slots) - len(slots)
	if free == 0 {
		return false
	}
	list, err := t.cfg.Store.Notices(ctx, free, claim)
	if err != nil {
		if ctx.Err() == nil {
			t.cfg.Log.WarnContext(ctx, "could not look for notices", slog.Any("error", err))
		}
		return false
	}
	for _, n := range list {
		slots <- struct{}{}
		busy.Go(func() {
			defer func() { <-slots }()
			t.tell(ctx, n)
		})
	}
	return len(list) == free
}

// tell tells every target of a run and settles its notice. What fails is told of
// again when the claim has lapsed.
func (t *Teller) tell(ctx context.Context, n store.Notice) {
	log := t.cfg.Log.With(slog.String("run_id", n.RunID))
	settled := store.Settled{RunID: n.RunID, Claim: n.Claim, Seq: n.Seq, Told: n.Told}
	told, err := t.tellAll(ctx, n)
	switch {
	case ctx.Err() != nil:
		// The server stops, and some may not have been told to the end: others go on.
		settled.Again = true
	case errors.Is(err, store.ErrNotFound): // its retention is over; the notice goes with it
	case errors.Is(err, store.ErrDamaged):
		log.ErrorContext(ctx, "nobody can be told of the run: it is damaged in the store", slog.Any("error", err))
	case err != nil:
		log.WarnContext(ctx, "could not tell of the run; trying again", slog.Any("error", err))
		settled.Again, settled.Due = true, retry
	default:
		settled.Told, settled.Again, settled.Due = told.State, told.Again, told.Due
	}
	write, stop := context.WithTimeout(context.WithoutCancel(ctx), settleLimit)
	defer stop()
	err = t.cfg.Store.Settle(write, settled)
	if err != nil && !errors.Is(err, store.ErrLeaseLost) {
		log.WarnContext(ctx, "could not keep who was told of the run; some are told again", slog.Any("error", err))
	}
}

// tellAll tells every target. The state that is kept has a member for each.
func (t *Teller) tellAll(ctx context.Context, n store.Notice) (Told, error) {
	states := map[string]json.RawMessage{}
	if n.Told != nil {
		if err := rawjson.Unmarshal(n.Told, &states); err != nil {
			return Told{}, fmt.Errorf("read who was told: %w", err)
		}
	}
	entries, err := t.cfg.Store.Journal(ctx, n.RunID, 0)
	if err != nil {
		return Told{}, fmt.Errorf("read the journal: %w", err)
	}
	ctx, stop := context.WithTimeout(ctx, tellLimit)
	defer stop()
	results := make([]Told, len(t.cfg.Targets))
	var all sync.WaitGroup
	for i, target := range t.cfg.Targets {
		all.Go(func() {
			results[i] = target.Tell(ctx, Run{ID: n.RunID, Env: n.Env, Journal: entries}, states[target.Name()])
		})
	}
	all.Wait()
	var out Told
	for i, r := range results {
		if states[t.cfg.Targets[i].Name()] = r.State; r.State == nil {
			delete(states, t.cfg.Targets[i].Name())
		}
		if r.Again && (!out.Again || r.Due < out.Due) {
			out.Again, out.Due = true, max(r.Due, 0)
		}
	}
	out.State, err = rawjson.Marshal(states)
	return out, err
}
