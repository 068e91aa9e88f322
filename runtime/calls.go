package runtime

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"agentos/holds"
	"agentos/holds/policy"
	"agentos/internal/problem"
	"agentos/runtime/journal"
	"agentos/runtime/mcp"
	"agentos/runtime/store"
)

// maxParallel bounds the calls of one run that are under way at once.
const maxParallel = 8

// execute does what the plan says.
func (w *run) execute(ctx context.Context, p plan) (Outcome, error) {
	if p.fail != nil {
		return w.fail(p.fail)
	}
	for _, f := range p.finish {
		f.ActiveMS = w.activeMS()
		if err := w.add(journal.CallFinished, f); err != nil {
			return abandoned, err
		}
	}
	switch {
	case len(p.start) > 0:
		return w.runCalls(ctx, p.start)
	case len(p.ask) > 0:
		return w.openHold(p)
	}
	return goOn, nil
}

// openHold suspends the run: after this commit nothing of it is left here.
func (w *run) openHold(p plan) (Outcome, error) {
	now := w.storeNow().UTC().Truncate(time.Millisecond)
	h := holds.Hold{
		ID: store.HoldID(w.record.ID, w.state.Holds+1), RunID: w.record.ID, Env: w.record.Env,
		Agent: w.record.Agent, Capability: w.record.Capability,
		Kind: p.kind, Status: holds.Pending, Intent: intent(p.kind, p.ask), Items: p.ask, Actions: holds.Actions(p.kind),
		Requester: w.state.Created.Requester, Revision: w.state.Seq + 1, CreatedAt: now, ExpiresAt: now.Add(p.expires), OnExpire: p.onFail,
	}
	if h.OnExpire == "" {
		h.OnExpire = policy.RejectOnExpire
	}
	if err := w.add(journal.HoldOpened, journal.Opened{Hold: h, ActiveMS: w.activeMS()}); err != nil {
		return abandoned, err
	}
	err := w.flush(store.Tx{Status: store.Held, Hold: &h, Orders: &w.orders.Version})
	if errors.Is(err, store.ErrOrders) {
		return w.judgeAgain()
	}
	if err != nil {
		return abandoned, err
	}
	w.e.recent.put(suspended{
		hold: h, record: w.record, state: w.state, first: w.first, ahead: w.storeNow().Sub(w.e.cfg.Clock.Now()), size: w.size,
	})
	return held, nil
}

// ended is a call that has come back.
type ended struct {
	call   *journal.Call
	result mcp.Result
	took   time.Duration
}

// runCalls records that the calls start, runs them, and records each end as it
// comes. The last end stays buffered: what follows it is written with it.
func (w *run) runCalls(ctx context.Context, calls []ready) (Outcome, error) {
	for _, r := range calls {
		err := w.add(journal.CallStarted, journal.Started{
			Call: r.call.ID, Server: r.tool.Server, Tool: r.tool.Name, ToolDigest: r.tool.Digest,
			Arguments: r.call.Effective(), Effect: string(r.tool.Effect), IdempotencyKey: w.record.ID + "/" + r.call.ID,
		})
		if err != nil {
			return abandoned, err
		}
	}
	err := w.flush(store.Tx{Status: store.Running, Orders: &w.orders.Version})
	if errors.Is(err, store.ErrOrders) {
		return w.judgeAgain()
	}
	if err != nil {
		return abandoned, err
	}
	return w.collect(ctx, w.launch(ctx, calls), len(calls))
}

// launch runs the calls, a few at a time, and returns where their ends arrive.
// The channel is closed when all have ended.
func (w *run) launch(ctx context.Context, calls []ready) <-chan ended {
	ends := make(chan ended, len(calls))
	if len(calls) == 1 {
		ends <- w.call(ctx, calls[0])
		close(ends)
		return ends
	}
	slots := make(chan struct{}, maxParallel)
	var wg sync.WaitGroup
	for _, r := range calls {
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			ends <- w.call(ctx, r)
		})
	}
	go func() {
		wg.Wait()
		close(ends)
	}()
	return ends
}

// call runs one call to its end.
func (w *run) call(ctx context.Context, r ready) ended {
	began := w.e.cfg.Clock.Now()
	res := w.agent.MCP.Call(ctx, mcp.CallRequest{
		Server: r.tool.Server, Tool: r.tool.Name, Arguments: r.call.Started.Arguments,
		IdempotencyKey: r.call.Started.IdempotencyKey, Effect: r.tool.Effect,
		Digest: r.tool.Digest, Fresh: r.call.Approved(), Earlier: r.call.Starts > 1, Before: w.mayStillSend,
	})
	return ended{call: r.call, result: res, took: w.e.cfg.Clock.Now().Sub(began)}
}

// mayStillSend is asked directly before a call leaves: a commit, a queue for a slot
// or a connection may have taken long, or this process was stopped meanwhile. A
// call whose lease is over belongs to whoever has taken the run since.
func (w *run) mayStillSend() error {
	if w.ctx.Err() == nil && !w.e.cfg.Clock.Now().Before(w.lease.deadline()) {
		w.cancel(errLeaseLost)
	}
	return context.Cause(w.ctx)
}

func (w *run) collect(ctx context.Context, ends <-chan ended, n int) (Outcome, error) {
	var failed error
	for end := range ends { // to the end always: no goroutine may outlive the step
		n--
		if failed != nil || w.leaveOpen(ctx, end) {
			continue
		}
		w.log.InfoContext(ctx, "call finished", slog.String("call", end.call.ID), slog.String("server", end.call.Server),
			slog.String("tool", end.call.Tool), slog.String("outcome", string(end.result.Outcome)), slog.Duration("took", end.took))
		failed = w.add(journal.CallFinished, w.finished(end))
		if failed == nil && n > 0 {
			failed = w.flush(store.Tx{Status: store.Running})
		}
	}
	if failed != nil {
		return abandoned, failed
	}
	return goOn, nil
}

// leaveOpen reports whether the record of a call stays open: because this process
// lets go of the run, for the next worker to judge by its effect class; or
// because nobody saw the end of a call that must not run twice, for a person to
// judge.
func (w *run) leaveOpen(ctx context.Context, end ended) bool {
	cause := context.Cause(ctx)
	if end.result.ErrorCode == mcp.CodeWithdrawn {
		return errors.Is(cause, errShutdown) || errors.Is(cause, errLeaseLost)
	}
	switch end.result.Outcome {
	case mcp.Unknown:
		return errors.Is(cause, errShutdown) || errors.Is(cause, errLeaseLost) ||
			cause == nil && mcp.Effect(end.call.Started.Effect) == mcp.Once
	case mcp.Timeout:
		return errors.Is(cause, errShutdown) || errors.Is(cause, errLeaseLost)
	case mcp.Success, mcp.Error:
	}
	return false
}

func (w *run) finished(end ended) journal.Finished {
	r := end.result
	f := journal.Finished{
		Call: end.call.ID, Outcome: journal.Outcome(r.Outcome), Text: r.Text, ErrorCode: r.ErrorCode, MCPError: r.MCPError,
		DurationMS: end.took.Milliseconds(), Reconnects: r.Reconnects, Truncated: r.Truncated, ActiveMS: w.activeMS(),
	}
	if string(r.Structured) != r.Text {
		f.Structured = r.Structured
	}
	if r.ErrorCode == mcp.CodeToolChanged {
		f.Outcome = journal.Invalid
	}
	notSent := []string{mcp.CodeToolChanged, mcp.CodeToolGone, mcp.CodeWithdrawn, string(problem.MCPUnavailable), string(problem.EgressDenied)}
	if ran := end.call.Started.Arguments; !bytes.Equal(ran, end.call.Arguments) && !slices.Contains(notSent, r.ErrorCode) {
		f.Text = editedText(end.call, ran, f.Text)
	}
	return f
}

// editedText makes the model believe what ran: its own message still shows the
// arguments it proposed.
func editedText(c *journal.Call, ran json.RawMessage, text string) string {
	note := "A reviewer changed the arguments of this call before it ran. Proposed: " + string(c.Arguments) + ". It ran with: " + string(ran) + "."
	if reason := editReason(c); reason != "" {
		note += " Their reason: " + reason
	}
	return note + "\nResult: " + text
}

// editReason is why the arguments were changed: what the editor said, who of
// several people need not be the one whose approval let the call run.
func editReason(c *journal.Call) string {
	reason := ""
	if c.Decision != nil {
		reason = c.Decision.Reason
	}
	if c.Item != nil {
		for _, v := range c.Item.Votes {
			if !v.Void && v.Action == holds.Edit {
				reason = v.Reason
			}
		}
	}
	return reason
}
