package runtime

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"agentos/holds"
	"agentos/internal/problem"
	"agentos/runtime/journal"
	"agentos/runtime/store"
)

// maxRaces is how often a change is worked out again because somebody else's came
// first.
const maxRaces = 5

// Decide applies decisions to a hold of the environment and, when they complete
// it, goes on with the run. The hold as it stands comes back with any error that
// is about the hold.
func (e *Engine) Decide(ctx context.Context, env, holdID string, post holds.Post) (holds.Hold, error) {
	post, err := e.withoutSecrets(post)
	if err != nil {
		return holds.Hold{}, err
	}
	for range maxRaces {
		h, err := e.tryDecide(ctx, env, holdID, post)
		if !errors.Is(err, store.ErrConflict) {
			return h, err
		}
	}
	return holds.Hold{}, problem.New(problem.StoreUnavailable, "the hold kept changing; try again")
}

// withoutSecrets takes secrets out of reasons and refuses them in data: what runs
// must be what is recorded, and a secret must not be recorded.
func (e *Engine) withoutSecrets(post holds.Post) (holds.Post, error) {
	post.Decisions = slices.Clone(post.Decisions)
	for i, d := range post.Decisions {
		if e.cfg.Redact(string(d.Data)) != string(d.Data) {
			return post, problem.New(problem.InvalidDecision, "the decisions do not fit the hold; nothing was applied").With(problem.Detail{
				Path: "/decisions/" + strconv.Itoa(i) + "/data", Message: "holds the value of a secret, which would be recorded",
			})
		}
		post.Decisions[i].Reason = e.cfg.Redact(d.Reason)
	}
	return post, nil
}

func (e *Engine) tryDecide(ctx context.Context, env, holdID string, post holds.Post) (holds.Hold, error) {
	s, err := e.suspended(ctx, env, holdID)
	if err != nil {
		return holds.Hold{}, err
	}
	now := e.cfg.Clock.Now().Add(s.ahead)
	post, err = e.withVerdicts(s, post)
	if err != nil {
		return s.hold, err
	}
	next, changed, err := holds.Apply(s.hold, post, now.UTC().Truncate(time.Millisecond))
	if err != nil && s.state != nil {
		// The memory of the hold may be old; only what the store says goes out as
		// the hold as it stands. It is forgotten now, so the store is read next.
		return s.hold, fmt.Errorf("%w: %w", store.ErrConflict, err)
	}
	if err != nil || !changed {
		return s.hold, err
	}
	entries, err := decisionEntries(s.hold, next, post.By)
	if err != nil {
		return s.hold, err
	}
	next.Revision = s.record.Seq + int64(len(entries))
	d := store.Decide{Op: e.cfg.IDs.Token(), Hold: next, Seen: s.hold.Revision, Entries: entries, Summary: s.record.Summary}
	d.Notify = e.cfg.notifies(entries, true)
	slot := &slot{}
	if next.Status == holds.Decided {
		slot = e.acquire()
	}
	defer slot.release()
	if slot.held {
		d.Lease = e.cfg.Lease
	}
	asked := e.cfg.Clock.Now()
	res, err := e.cfg.Store.Decide(ctx, d)
	if errors.Is(err, store.ErrConflict) {
		return s.hold, err
	}
	if err != nil {
		return s.hold, e.storeError(err, "store the decision", holdID)
	}
	if slot.held {
		w := e.newRun(res.Record, res.Lease, asked)
		w.adopt(s, res.Entries)
		e.start(w, slot)
	}
	return next, nil
}

// suspended returns a held run: as this process remembers it, or from the store.
func (e *Engine) suspended(ctx context.Context, env, holdID string) (suspended, error) {
	s, ok := e.recent.take(holdID)
	if !ok {
		asked := e.cfg.Clock.Now()
		h, err := e.cfg.Store.Hold(ctx, holdID)
		if err != nil {
			return s, e.storeError(err, "read the hold", holdID)
		}
		s = suspended{hold: h.Hold, record: h.Record, ahead: h.Now.Sub(asked), entries: h.Journal}
		if err := agree(h); err != nil {
			return s, err
		}
	}
	if s.record.Env != env {
		return s, e.storeError(store.ErrNotFound, "read the hold", holdID)
	}
	return s, nil
}

// agree compares the hold a person was shown with the one in the journal, from
// which the run goes on: what was decided about one must not run as the other.
func agree(h store.HoldView) error {
	if h.Hold.Status != holds.Pending {
		return nil
	}
	damaged := problem.New(problem.JournalDamaged, "hold %s is damaged in the store: it is not what the journal of its run says, so it cannot be decided; cancel run %s", h.Hold.ID, h.Record.ID)
	state, err := journal.Fold(h.Journal)
	if err != nil || state.Hold == nil || holds.Difference(h.Hold, *state.Hold) != "" {
		return damaged
	}
	return nil
}

// decisionEntries are what a request changed: what each person said, and the end
// of the hold when that decides it.
func decisionEntries(before, after holds.Hold, by string) ([]journal.New, error) {
	d := journal.HoldDecision{HoldID: after.ID, By: by}
	for i, it := range after.Items {
		was := before.Items[i]
		entry := journal.DecidedItem{ID: it.ID, Proposed: was.Data, Open: it.Decision == nil}
		switch {
		case len(it.Votes) > len(was.Votes):
			entry.Decision = it.Votes[len(it.Votes)-1].Decision
		case it.Decision != nil && was.Decision == nil:
			entry.Decision = *it.Decision
		default:
			continue
		}
		if !it.Reviewers.Equal(was.Reviewers) {
			entry.Reviewers = &it.Reviewers
		}
		d.Items = append(d.Items, entry)
	}
	decided, err := journal.Encode(journal.HoldDecided, d)
	if err != nil || after.Status != holds.Decided {
		return []journal.New{decided}, err
	}
	closed, err := journal.Encode(journal.HoldClosed, journal.Closed{HoldID: after.ID, Why: holds.Decided})
	return []journal.New{decided, closed}, err
}

// Cancel ends a run of the environment, held or not. A run that is being worked
// on ends at its next step; cancelling a finished run changes nothing.
func (e *Engine) Cancel(ctx context.Context, env, runID, by string) (store.View, error) {
	for range maxRaces {
		v, err := e.View(ctx, env, runID)
		if err != nil || v.Status.Finished() {
			return v, err
		}
		requested, err := e.tryCancel(ctx, v, by)
		if errors.Is(err, store.ErrConflict) {
			continue
		}
		if err != nil {
			return v, e.storeError(err, "cancel the run", runID)
		}
		if requested {
			e.cancelHere(runID, by)
		}
		return e.View(ctx, env, runID)
	}
	return store.View{}, problem.New(problem.StoreUnavailable, "the run kept changing; try again")
}

func (e *Engine) tryCancel(ctx context.Context, v store.View, by string) (bool, error) {
	c := store.Cancel{Op: e.cfg.IDs.Token(), RunID: v.ID, By: by, Seen: v.Seq, Summary: v.Summary}
	var state *journal.State
	if v.Status != store.Running {
		entries, err := e.cfg.Store.Journal(ctx, v.ID, 0)
		if err != nil && !errors.Is(err, store.ErrDamaged) {
			return false, err
		}
		// A journal that cannot be read has no calls to end, and is no reason to
		// keep the run.
		if s, err := journal.Fold(entries); err == nil && len(entries) > 0 {
			state = s
		}
	}
	h := v.Hold
	if h == nil && v.HoldID != "" {
		h = lostHold(v.Record, state)
	}
	list, err := cancelEntries(state, h, by)
	if err != nil {
		return false, err
	}
	c.Entries, c.Notify = list, e.cfg.notifies(list, true)
	if h != nil {
		closed := h.Closed(holds.Cancelled, v.Seq+int64(len(list)))
		c.Hold = &closed
	}
	return e.cfg.Store.Cancel(ctx, c)
}

// lostHold is what stands for the pending hold of a run when the store has none that
// can be read, so that the run can end and nobody is asked any more: the hold as the
// journal has it, else little more than its name.
func lostHold(r store.Record, state *journal.State) *holds.Hold {
	if state != nil && state.Hold != nil && state.Hold.ID == r.HoldID {
		h := *state.Hold
		return &h
	}
	return &holds.Hold{
		ID: r.HoldID, RunID: r.ID, Env: r.Env, Agent: r.Agent, Capability: r.Capability,
		Kind: holds.ToolCall, Status: holds.Pending, Actions: holds.Actions(holds.ToolCall), Items: []holds.Item{},
		Intent: "What was asked here is lost: the hold was damaged in the store.", CreatedAt: r.UpdatedAt, ExpiresAt: r.UpdatedAt,
	}
}

// cancelEntries are what ends a run nobody works on. The store does not take them
// when somebody does. state is nil when there is none, or none that can be read.
func cancelEntries(state *journal.State, h *holds.Hold, by string) ([]journal.New, error) {
	var list []journal.New
	var failed error
	add := func(t journal.Type, data any) {
		n, err := journal.Encode(t, data)
		list, failed = append(list, n), errors.Join(failed, err)
	}
	if h != nil {
		add(journal.HoldClosed, journal.Closed{HoldID: h.ID, Why: holds.Cancelled})
	}
	if state != nil {
		for _, f := range lastWords(state) {
			add(journal.CallFinished, f)
		}
	}
	add(journal.RunCancelled, journal.Cancel{By: by})
	return list, failed
}

// cancelHere tells the goroutine that works on the run, if it is in this process.
func (e *Engine) cancelHere(runID, by string) {
	e.mu.Lock()
	w := e.active[runID]
	e.mu.Unlock()
	if w != nil {
		w.cancelRequested(by)
	}
}
