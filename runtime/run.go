package runtime

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"sync"
	"time"

	"agentos/capabilities"
	"agentos/holds"
	"agentos/internal/problem"
	"agentos/internal/rawjson"
	"agentos/runtime/journal"
	"agentos/runtime/store"
)

// run is one run while this process holds its lease. Its goroutine (drive) owns
// every field; only lease, cancelBy and cancel are touched by others.
type run struct {
	e     *Engine
	log   *slog.Logger
	lease leaseBox
	// ctx ends when the work on the run must stop; its cause says why.
	ctx    context.Context //nolint:containedctx // the run's own lifetime
	cancel context.CancelCauseFunc

	record store.Record
	first  journal.Entry
	last   journal.Entry
	state  *journal.State
	// entries is the journal as it was read, until it is folded into state.
	entries []journal.Entry
	// size is the length of the journal in bytes.
	size int
	// buffer holds entries that are folded into state and not yet written.
	buffer []journal.New

	agent      *Agent
	capability *capabilities.Capability

	// orders are what the operator had ordered when the step began.
	orders *Orders

	// retries counts how often the run was parked since the model last answered.
	retries int
	// waiting is why the run is parked; it goes with the next commit.
	waiting string

	// lapsed says that another worker's lease ran out; expired is the pending
	// hold whose time is over.
	lapsed  bool
	expired *holds.Hold

	// activeFrom is when this process began to work on the run.
	activeFrom time.Time
	activeBase time.Duration

	// done is closed after the last write; view is then the run as it stands.
	done chan struct{}
	view store.View
}

// leaseBox is a lease and when it ends on the local clock. A renewal and the
// run's own commits both set it.
type leaseBox struct {
	mu       sync.Mutex
	lease    store.Lease
	until    time.Time
	ttl      time.Duration
	cancelBy string
}

func (b *leaseBox) current() store.Lease {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.lease
}

// set stores a renewed lease. asked is when the request was sent: counted from
// there the local deadline is never later than the store's.
func (b *leaseBox) set(l store.Lease, asked time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if l.Epoch == b.lease.Epoch && asked.Add(b.ttl).After(b.until) {
		b.lease, b.until = l, asked.Add(b.ttl)
	}
}

func (b *leaseBox) deadline() time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.until
}

func (e *Engine) newRun(rec store.Record, l store.Lease, asked time.Time) *run {
	w := &run{
		e: e, record: rec, done: make(chan struct{}), activeFrom: e.cfg.Clock.Now(),
		log: e.cfg.Log.With(slog.String("run_id", rec.ID), slog.Int64("epoch", l.Epoch)),
	}
	w.lease = leaseBox{lease: l, until: asked.Add(e.cfg.Lease), ttl: e.cfg.Lease, cancelBy: rec.CancelBy}
	w.ctx, w.cancel = context.WithCancelCause(e.base)
	return w
}

// load folds the journal, unless the state is known, and finds the agent.
func (w *run) load() error {
	if w.state == nil {
		if int64(len(w.entries)) != w.record.Seq {
			return problem.New(problem.JournalDamaged, "the journal has %d entries, the record counts %d", len(w.entries), w.record.Seq)
		}
		for _, e := range w.entries {
			w.size += len(e.Data)
		}
		state, err := journal.Fold(w.entries)
		if err != nil {
			return problem.Wrap(err, problem.JournalDamaged, "the journal cannot be read: %v", err)
		}
		w.state, w.first, w.last = state, w.entries[0], w.entries[len(w.entries)-1]
		w.entries = nil
	}
	if pending := w.state.Hold != nil; pending != (w.record.Status == store.Held) {
		return problem.New(problem.JournalDamaged, "the run is %s and its journal says something else about its hold", w.record.Status)
	}
	if d := w.state.Created.SystemDigest; d != "" && w.state.Created.System == "" {
		text, err := w.e.text(w.ctx, d)
		if err != nil {
			return err
		}
		w.state.Created.System = text
	}
	sum, err := readSummary(w.record.Summary)
	if err != nil {
		return problem.Wrap(err, problem.JournalDamaged, "the summary cannot be read: %v", err)
	}
	w.retries = sum.Retries
	w.activeBase = time.Duration(w.state.ActiveMS) * time.Millisecond
	w.agent = w.e.agents[w.record.Agent]
	if w.agent != nil {
		w.capability = w.agent.Manifest.Capabilities[w.record.Capability]
	}
	return nil
}

// adopt takes over a suspended run with the entries of its decision.
func (w *run) adopt(s suspended, decided []journal.Entry) {
	w.entries = append(s.entries, decided...)
	if s.state == nil {
		return
	}
	w.state, w.first, w.last, w.size = s.state, s.first, decided[len(decided)-1], s.size
	for _, e := range decided {
		if w.state.Add(e) != nil {
			w.state = nil // load reports what is wrong
			return
		}
	}
}

// add folds one more entry and keeps it for the next flush.
func (w *run) add(t journal.Type, v any) error {
	n, err := journal.Encode(t, v)
	if err != nil {
		return err
	}
	e := journal.Entry{Seq: w.state.Seq + 1, Type: t, Data: n.Data}
	if err := w.state.Add(e); err != nil {
		return err
	}
	w.buffer = append(w.buffer, n)
	w.size += len(n.Data)
	return nil
}

// flush writes what is buffered and moves the run on. While the store cannot be
// reached it tries again for as long as the lease lasts.
func (w *run) flush(tx store.Tx) error {
	if len(w.buffer) == 0 && tx.Status == store.Running && tx.Due == 0 {
		return nil
	}
	tx.Op, tx.Entries, tx.Summary = w.e.cfg.IDs.Token(), w.buffer, summary(w.state, w.retries, w.waiting)
	tx.Notify = w.e.cfg.notifies(tx.Entries, w.state != nil && w.state.Holds > 0)
	if tx.Status == store.Running && tx.Due == 0 {
		tx.Lease = w.e.cfg.Lease
	}
	ctx, stop := w.writeContext()
	defer stop()
	pause := 50 * time.Millisecond
	for {
		asked := w.e.cfg.Clock.Now()
		res, err := w.e.cfg.Store.Commit(ctx, w.lease.current(), tx)
		if err == nil {
			w.committed(tx, res, asked)
			return nil
		}
		if !errors.Is(err, store.ErrUnavailable) {
			return err
		}
		w.log.WarnContext(ctx, "could not write to the store; trying again", slog.Any("error", err))
		select {
		case <-ctx.Done():
			return err
		case <-w.e.cfg.Clock.After(pause):
			pause = min(2*pause, time.Second)
		}
	}
}

// writeContext outlives the run's own context, since a run that is cancelled or
// handed back still writes, but not its lease.
func (w *run) writeContext() (context.Context, context.CancelFunc) {
	left := w.lease.deadline().Sub(w.e.cfg.Clock.Now())
	return context.WithTimeout(context.WithoutCancel(w.ctx), left)
}

func (w *run) committed(tx store.Tx, res store.Committed, asked time.Time) {
	w.buffer = nil
	w.lease.set(res.Lease, asked)
	if res.CancelBy != "" {
		w.cancelRequested(res.CancelBy)
	}
	if n := len(res.Entries); n > 0 {
		w.last = res.Entries[n-1]
		w.record.Seq = w.last.Seq
		w.record.UpdatedAt = w.last.At
	}
	w.record.Status, w.record.HoldID, w.record.Summary = tx.Status, "", tx.Summary
	w.view = store.View{Record: w.record, First: w.first, Last: w.last}
	if tx.Status == store.Held {
		w.view.HoldID, w.view.Hold = tx.Hold.ID, tx.Hold
	}
}

// cancelRequested ends the run's context so that the run ends itself.
func (w *run) cancelRequested(by string) {
	w.lease.mu.Lock()
	w.lease.cancelBy = by
	w.lease.mu.Unlock()
	w.cancel(errCancelled)
}

func (w *run) cancelBy() string {
	w.lease.mu.Lock()
	defer w.lease.mu.Unlock()
	return w.lease.cancelBy
}

// leaseGone ends the work if the lease the store refused is still the one we use.
func (w *run) leaseGone(refused store.Lease) {
	if w.lease.current().Epoch == refused.Epoch {
		w.cancel(errLeaseLost)
	}
}

// active is the active time of the run so far: the time in earlier processes and
// what has passed in this one.
func (w *run) active() time.Duration {
	return w.activeBase + w.e.cfg.Clock.Now().Sub(w.activeFrom)
}

func (w *run) activeMS() int64 { return w.active().Milliseconds() }

// storeNow is the store's clock, told from the lease: the store set its end.
func (w *run) storeNow() time.Time {
	w.lease.mu.Lock()
	defer w.lease.mu.Unlock()
	return w.lease.lease.Expires.Add(w.e.cfg.Clock.Now().Sub(w.lease.until))
}

// summaryData is what lists show of a run without its journal.
type summaryData struct {
	Turns int           `json:"turns"`
	Usage journal.Usage `json:"usage"`
	// Retries counts how often the run was parked since the model last answered.
	Retries int `json:"retries,omitempty"`
	// Waiting is why the run is parked.
	Waiting string `json:"waiting,omitempty"`
}

// Summary reads the summary of a record.
func Summary(raw json.RawMessage) (turns int, usage journal.Usage, err error) {
	s, err := readSummary(raw)
	return s.Turns, s.Usage, err
}

// Waiting returns why a run is parked, or "".
func Waiting(raw json.RawMessage) string {
	s, err := readSummary(raw)
	if err != nil {
		return ""
	}
	return s.Waiting
}

func readSummary(raw json.RawMessage) (s summaryData, err error) {
	if len(raw) > 0 {
		err = json.Unmarshal(raw, &s)
	}
	return s, err
}

func summary(s *journal.State, retries int, waiting string) json.RawMessage {
	if s == nil {
		return nil
	}
	raw, err := rawjson.Marshal(summaryData{Turns: len(s.Answers), Usage: s.Usage, Retries: retries, Waiting: waiting})
	if err != nil {
		return nil // a struct of numbers always encodes
	}
	return raw
}
