package runtime

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"agentos/holds"
	"agentos/internal/problem"
	"agentos/runtime/journal"
	"agentos/runtime/store"
)

// Outcome is how far a step brought a run.
type Outcome string

// The outcomes. A hold is an outcome and never an error: nothing that wraps or
// retries errors can mistake a run that waits for one that failed.
const (
	// goOn: there is a next step.
	goOn Outcome = "go_on"
	// finished: the last entry is written.
	finished Outcome = "finished"
	// held: a hold is open and everything else of the run is released.
	held Outcome = "held"
	// parked: the run is due again later, or handed to another worker.
	parked Outcome = "parked"
	// abandoned: the lease is gone or the store cannot be reached; whoever
	// claims the run next goes on.
	abandoned Outcome = "abandoned"
)

// maxIdle is how often in a row a run may be taken over from a worker that died
// without having written anything.
const maxIdle = 3

// handBackDelay keeps a run that this process cannot serve from spinning.
const handBackDelay = 5 * time.Second

// drive works on the run until there is nothing more to do for this process.
func (w *run) drive() {
	w.view = store.View{Record: w.record}
	if err := w.load(); err != nil {
		if problem.CodeOf(err) == problem.JournalDamaged {
			w.report(w.failDamaged(err))
			return
		}
		w.report(abandoned, err)
		return
	}
	w.view.First, w.view.Last = w.first, w.last
	outcome, err := w.resume()
	for outcome == goOn && err == nil {
		outcome, err = w.step()
	}
	w.report(outcome, err)
}

// report logs how the work on the run ended.
func (w *run) report(outcome Outcome, err error) {
	switch {
	case errors.Is(err, store.ErrLeaseLost) || errors.Is(context.Cause(w.ctx), errLeaseLost):
		w.log.InfoContext(w.ctx, "another worker has the run")
	case err != nil:
		w.log.ErrorContext(w.ctx, "stopped working on the run; it will be claimed again", slog.Any("error", err))
	default:
		w.log.DebugContext(w.ctx, "worked on the run", slog.String("outcome", string(outcome)), slog.String("status", string(w.record.Status)))
	}
}

// resume does what has to happen before the first step.
func (w *run) resume() (Outcome, error) {
	tx := store.Tx{Status: store.Running}
	if w.expired != nil {
		if err := w.add(journal.HoldClosed, journal.Closed{HoldID: w.expired.ID, Why: holds.Expired}); err != nil {
			return abandoned, err
		}
		closed := w.expired.Closed(holds.Expired, w.state.Seq)
		tx.Hold = &closed
	}
	if w.capability == nil || w.capability.Loop == nil {
		w.log.WarnContext(w.ctx, "this server does not serve the run's capability; handing it back",
			slog.String("agent", w.record.Agent), slog.String("capability", w.record.Capability))
		tx.Status, tx.Due = store.Queued, handBackDelay
		return parked, w.flush(tx)
	}
	if w.expired != nil {
		return goOn, w.flush(tx)
	}
	if !w.lapsed {
		return goOn, nil
	}
	if w.record.Idle > maxIdle {
		return w.fail(problem.New(problem.RecoveryExhausted, "the run was taken over %d times without getting any further", maxIdle))
	}
	r := journal.Recovered{Worker: w.e.cfg.Worker, Epoch: w.lease.current().Epoch}
	for _, c := range w.state.Open() {
		if c.Started != nil {
			r.Unfinished = append(r.Unfinished, c.ID)
		}
	}
	return goOn, w.add(journal.RunRecovered, r)
}

// step takes the run one step further: it ends it, calls the model, runs calls,
// or opens a hold.
func (w *run) step() (Outcome, error) {
	if w.state.End != "" {
		return finished, nil
	}
	if outcome, err := w.interrupted(); outcome != goOn || err != nil {
		return outcome, err
	}
	w.orders = w.e.orders.Load()
	if outcome, err := w.pausedNow(); outcome != goOn || err != nil {
		return outcome, err
	}
	left := w.capability.Timeout - w.active()
	if left <= 0 {
		return w.fail(problem.New(problem.Timeout, "the run used up its active time of %s", w.capability.Timeout))
	}
	ctx, stop := context.WithTimeoutCause(w.ctx, left, errTimeout)
	defer stop()
	open := w.state.Open()
	if len(open) == 0 {
		return w.turn(ctx)
	}
	p := w.plan(open)
	return w.execute(ctx, p)
}

// interrupted ends the work when somebody wants it to end.
func (w *run) interrupted() (Outcome, error) {
	if by := w.cancelBy(); by != "" {
		return w.finishCancelled(by)
	}
	if w.ctx.Err() == nil {
		return goOn, nil
	}
	switch cause := context.Cause(w.ctx); {
	case errors.Is(cause, errLeaseLost):
		return abandoned, errLeaseLost
	default:
		// The server stops: whoever claims the run goes on at once.
		return parked, w.flush(store.Tx{Status: store.Queued})
	}
}

func (w *run) finishCancelled(by string) (Outcome, error) {
	if err := w.endStarted(); err != nil {
		return abandoned, err
	}
	if err := w.add(journal.RunCancelled, journal.Cancel{By: by}); err != nil {
		return abandoned, err
	}
	return finished, w.flush(store.Tx{Status: store.Cancelled})
}

// endStarted ends the calls that were started, because the run ends.
func (w *run) endStarted() error {
	for _, f := range lastWords(w.state) {
		if err := w.add(journal.CallFinished, f); err != nil {
			return err
		}
	}
	return nil
}

// fail ends the run with an error.
func (w *run) fail(p *problem.Error) (Outcome, error) {
	if err := w.endStarted(); err != nil {
		return abandoned, err
	}
	fault := journal.Fault{Code: p.Code, Message: w.e.cfg.Redact(p.Message), Details: p.Details}
	if err := w.add(journal.RunFailed, journal.Failed{Error: fault, ActiveMS: w.activeMS()}); err != nil {
		return abandoned, err
	}
	w.log.InfoContext(w.ctx, "run failed", slog.String("code", string(p.Code)), slog.Any("error", p))
	return finished, w.flush(store.Tx{Status: store.Failed})
}

// failDamaged ends a run whose journal cannot be folded: nothing is called from
// half a state.
func (w *run) failDamaged(cause error) (Outcome, error) {
	p := problem.From(cause)
	n, err := journal.Encode(journal.RunFailed, journal.Failed{Error: journal.Fault{Code: p.Code, Message: p.Message}})
	if err != nil {
		return abandoned, err
	}
	w.log.ErrorContext(w.ctx, "the run is damaged", slog.Any("error", cause))
	w.buffer = []journal.New{n}
	tx := store.Tx{Status: store.Failed}
	if w.expired == nil && w.record.HoldID != "" {
		w.expired = lostHold(w.record, w.state)
	}
	if w.expired != nil {
		closed := w.expired.Closed(holds.Expired, w.record.Seq+1)
		tx.Hold = &closed
	}
	w.state = nil
	return finished, w.flush(tx)
}
