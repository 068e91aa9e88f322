package runtime

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"agentos/audit"
	"agentos/holds"
	"agentos/holds/policy"
	"agentos/internal/problem"
	"agentos/internal/rawjson"
	"agentos/runtime/journal"
	"agentos/runtime/mcp"
	"agentos/runtime/store"
)

// Limits of what an operator may order.
const (
	maxOrders    = 500
	maxOrderText = 1000
	maxPattern   = 256
)

// pausedDelay is when a run of a paused agent is looked at again.
const pausedDelay = 15 * time.Second

// followEvery is how often an engine looks for new orders. Until it has seen them
// the store refuses what it judged by the old ones.
const followEvery = time.Second

// Orders are what an operator has ordered for the environment.
type Orders struct {
	// Version grows with every change; 0 when none were ever given.
	Version int64 `json:"-"`
	// Paused are the agents whose runs wait.
	Paused []Pause `json:"paused,omitempty"`
	// Off are the tools that must not run.
	Off []ToolOff `json:"off,omitempty"`
}

// Order is who ordered something, when and why.
type Order struct {
	By     string    `json:"by"`
	Reason string    `json:"reason,omitempty"`
	At     time.Time `json:"at"`
	// From is the address the order came from, for the record only.
	From string `json:"from,omitempty"`
}

// Pause keeps the runs of an agent where they are.
type Pause struct {
	Agent string `json:"agent"`
	Order
}

// ToolOff forbids tools.
type ToolOff struct {
	// Agent is whose tools are meant, "" for every agent.
	Agent string `json:"agent,omitempty"`
	// Tool is a raw tool name or glob, or "server/tool" with globs in both parts,
	// as in the rules of a manifest.
	Tool string `json:"tool"`
	Order
}

func (o *Orders) paused(agent string) *Pause {
	for i := range o.Paused {
		if o.Paused[i].Agent == agent {
			return &o.Paused[i]
		}
	}
	return nil
}

// off returns the verdict about a tool that is switched off, or nil.
func (o *Orders) off(agent, server, tool string) *policy.Verdict {
	for _, t := range o.Off {
		if (t.Agent == "" || t.Agent == agent) && policy.Match(t.Tool, server, tool) {
			return &policy.Verdict{Effect: policy.Deny, Rules: []string{policy.OperatorOrder}, Reason: offText(t)}
		}
	}
	return nil
}

func offText(t ToolOff) string {
	if t.Reason == "" {
		return "an operator has switched this tool off"
	}
	return "an operator has switched this tool off: " + t.Reason
}

// Orders reads the operator's orders of the environment.
func (e *Engine) Orders(ctx context.Context, env string) (Orders, error) {
	if env != e.cfg.Env {
		return Orders{}, problem.New(problem.EnvNotFound, "no environment %q; this server has %q", env, e.cfg.Env)
	}
	o, err := e.readOrders(ctx)
	if err != nil {
		return Orders{}, e.storeError(err, "read the orders", "")
	}
	return *o, nil
}

// PauseAgent keeps every run of the agent from going on, on all servers of the
// store, until ResumeAgent. Calls that have started come to their end; holds can
// be decided; new runs are taken and wait.
func (e *Engine) PauseAgent(ctx context.Context, env, agent string, o Order) (Orders, error) {
	if _, err := e.Agent(env, agent); err != nil {
		return Orders{}, err
	}
	return e.order(ctx, env, audit.Entry{Event: audit.AgentPaused, Agent: agent}, o, func(all *Orders, o Order) bool {
		if all.paused(agent) != nil {
			return false
		}
		all.Paused = append(all.Paused, Pause{Agent: agent, Order: o})
		return true
	})
}

// ResumeAgent ends PauseAgent.
func (e *Engine) ResumeAgent(ctx context.Context, env, agent string, o Order) (Orders, error) {
	return e.order(ctx, env, audit.Entry{Event: audit.AgentResumed, Agent: agent}, o, func(all *Orders, _ Order) bool {
		before := len(all.Paused)
		all.Paused = slices.DeleteFunc(all.Paused, func(p Pause) bool { return p.Agent == agent })
		return len(all.Paused) != before
	})
}

// SwitchOff forbids tools, on all servers of the store: when it returns, no call
// of them starts any more, and the holds that ask about one are cancelled. It
// returns how many these were. An error with a count tells of holds that could not be
// cancelled; the tools are off then.
func (e *Engine) SwitchOff(ctx context.Context, env string, t ToolOff) (Orders, int, error) {
	if t.Agent != "" {
		if _, err := e.Agent(env, t.Agent); err != nil {
			return Orders{}, 0, err
		}
	}
	if t.Tool == "" || len(t.Tool) > maxPattern || strings.TrimSpace(t.Tool) != t.Tool {
		return Orders{}, 0, problem.New(problem.InvalidRequest, "tool must be a name or glob, or server/tool, of 1 to %d characters without spaces around it", maxPattern)
	}
	all, err := e.order(ctx, env, toolAct(audit.ToolOff, t.Agent, t.Tool), t.Order, func(all *Orders, o Order) bool {
		for _, was := range all.Off {
			if was.Agent == t.Agent && was.Tool == t.Tool {
				return false
			}
		}
		t.Order = o
		all.Off = append(all.Off, t)
		return true
	})
	if err != nil {
		return all, 0, err
	}
	n, err := e.cancelHolds(ctx, env, &all)
	return all, n, err
}

// SwitchOn takes back the SwitchOff of the same agent and pattern.
func (e *Engine) SwitchOn(ctx context.Context, env, agent, tool string, o Order) (Orders, error) {
	return e.order(ctx, env, toolAct(audit.ToolOn, agent, tool), o, func(all *Orders, _ Order) bool {
		before := len(all.Off)
		all.Off = slices.DeleteFunc(all.Off, func(t ToolOff) bool { return t.Agent == agent && t.Tool == tool })
		return len(all.Off) != before
	})
}

// toolAct is the record of an order about tools.
func toolAct(event audit.Event, agent, tool string) audit.Entry {
	return audit.Entry{Event: event, Agent: agent, Tool: tool}
}

// order changes the orders; change reports whether anything was to be done. act is
// what the record says of it, before it is done.
func (e *Engine) order(ctx context.Context, env string, act audit.Entry, o Order, change func(*Orders, Order) bool) (Orders, error) {
	o.Reason, o.At = e.cfg.Redact(o.Reason), e.cfg.Clock.Now().UTC().Truncate(time.Millisecond)
	if len(o.Reason) > maxOrderText {
		return Orders{}, problem.New(problem.InvalidRequest, "the reason is longer than %d bytes", maxOrderText)
	}
	act.At, act.Env, act.By, act.From, act.Reason = o.At, env, o.By, o.From, o.Reason
	key := "order/" + e.cfg.IDs.Token()
	for range maxRaces {
		all, err := e.Orders(ctx, env)
		if err != nil || !change(&all, o) {
			return all, err
		}
		if len(all.Paused)+len(all.Off) > maxOrders {
			return all, problem.New(problem.InvalidRequest, "there are %d orders already; take some back first", maxOrders)
		}
		all.Version++
		raw, err := rawjson.Marshal(all)
		if err != nil {
			return all, err
		}
		if err := e.record(ctx, audit.Keyed{Key: key, Entry: act}); err != nil {
			return all, err
		}
		err = e.cfg.Store.SetOrders(ctx, env, store.Orders{Version: all.Version, Text: raw})
		if errors.Is(err, store.ErrConflict) {
			continue
		}
		if err != nil {
			return all, e.storeError(err, "set the orders", "")
		}
		e.orders.Store(&all)
		return all, nil
	}
	return Orders{}, problem.New(problem.StoreUnavailable, "the orders kept changing; try again")
}

// record keeps what is about to be done.
func (e *Engine) record(ctx context.Context, act audit.Keyed) error {
	if e.cfg.Record == nil {
		return nil
	}
	if err := e.cfg.Record(ctx, act); err != nil {
		return e.storeError(err, "write the audit", "")
	}
	return nil
}

// cancelHolds closes the pending holds that ask about a tool that is off. Their
// runs go on: the calls of the tool are denied, others are asked about again.
// A hold that cannot be cancelled keeps no other open: the error names their runs at
// the end. Only a store that cannot be used ends this early.
func (e *Engine) cancelHolds(ctx context.Context, env string, all *Orders) (n int, err error) {
	var left leftOpen
	page := store.Page{Limit: 100}
	for {
		list, next, err := e.cfg.Store.Holds(ctx, store.HoldFilter{Env: env, Status: holds.Pending}, page)
		if err != nil {
			return n, e.storeError(err, "list the holds", "")
		}
		for _, h := range list {
			if h.Kind == "" { // unreadable: it may ask about the tool or not
				left.add(h.ID, nil)
				continue
			}
			reason := ""
			for _, it := range h.Pending() {
				if v := all.off(h.Agent, it.Server, it.Tool); v != nil {
					reason = v.Reason
				}
			}
			if reason == "" || h.Kind != holds.ToolCall {
				continue
			}
			cancelled, err := e.cancelHold(ctx, h.ID, reason)
			if ctx.Err() != nil || errors.Is(err, store.ErrUnavailable) {
				return n, err
			}
			if err != nil {
				left.add(h.ID, err)
			}
			if cancelled {
				n++
			}
		}
		if next == "" {
			return n, left.problem(n)
		}
		page.Cursor = next
	}
}

// leftOpen are the holds that could not be cancelled.
type leftOpen struct {
	runs  []string // a few of them
	count int
	// retry says that none of them is damaged, so that trying again can help.
	retry bool
	cause error
}

// add notes a hold; err is nil for one that cannot be read.
func (l *leftOpen) add(holdID string, err error) {
	const most = 10
	damaged := err == nil || problem.CodeOf(err) == problem.JournalDamaged
	l.retry = !damaged && (l.retry || l.count == 0)
	l.count++
	l.cause = errors.Join(l.cause, err)
	if len(l.runs) < most {
		l.runs = append(l.runs, store.RunOfHold(holdID))
	}
}

// problem tells of the holds after n others were cancelled; nil when there are none.
func (l *leftOpen) problem(n int) error {
	if l.count == 0 {
		return nil
	}
	runs := strings.Join(l.runs, ", ")
	if more := l.count - len(l.runs); more > 0 {
		runs += fmt.Sprintf(" and %d more", more)
	}
	if l.retry {
		return problem.Wrap(l.cause, problem.StoreUnavailable, "the tools are off (open holds cancelled: %d), but those of these runs kept changing: %s; try again", n, runs)
	}
	return problem.Wrap(l.cause, problem.JournalDamaged, "the tools are off (open holds cancelled: %d), but those of these runs could not be cancelled, because they are damaged in the store: %s; cancel these runs, and see agentos fsck about any that cannot be", n, runs)
}

// cancelHold closes a pending hold for a reason and sets its run going.
func (e *Engine) cancelHold(ctx context.Context, id, reason string) (bool, error) {
	for range maxRaces {
		v, err := e.cfg.Store.Hold(ctx, id)
		if errors.Is(err, store.ErrNotFound) {
			return false, nil
		}
		if err != nil {
			return false, e.storeError(err, "read the hold", id)
		}
		if v.Hold.Status != holds.Pending {
			return false, nil // somebody decided meanwhile; its calls are judged again
		}
		closed := v.Hold.Closed(holds.Cancelled, v.Record.Seq+1)
		closed.Reason = reason
		entry, err := journal.Encode(journal.HoldClosed, journal.Closed{HoldID: id, Why: holds.Cancelled, Reason: reason})
		if err != nil {
			return false, err
		}
		entries := []journal.New{entry}
		_, err = e.cfg.Store.Decide(ctx, store.Decide{
			Op: e.cfg.IDs.Token(), Hold: closed, Seen: v.Hold.Revision, Entries: entries, Notify: e.cfg.notifies(entries, true),
		})
		if err == nil {
			return true, nil
		}
		if !errors.Is(err, store.ErrConflict) {
			return false, e.storeError(err, "cancel the hold", id)
		}
	}
	return false, problem.New(problem.StoreUnavailable, "hold %s kept changing; try again", id)
}

func (e *Engine) readOrders(ctx context.Context) (*Orders, error) {
	raw, err := e.cfg.Store.Orders(ctx, e.cfg.Env)
	if err != nil {
		return nil, err
	}
	all := &Orders{}
	if len(raw.Text) > 0 {
		if err := json.Unmarshal(raw.Text, all); err != nil {
			return nil, problem.Wrap(err, problem.Internal, "the orders in the store cannot be read: %v", err)
		}
	}
	all.Version = raw.Version
	return all, nil
}

// followOrders keeps what this engine goes by up to date until ctx ends.
func (e *Engine) followOrders(ctx context.Context) {
	for {
		e.learnOrders(ctx)
		select {
		case <-ctx.Done():
			return
		case <-e.cfg.Clock.After(followEvery):
		}
	}
}

// learnOrders reads the orders; what cannot be read now is read next time.
func (e *Engine) learnOrders(ctx context.Context) {
	all, err := e.readOrders(ctx)
	if err != nil {
		if ctx.Err() == nil {
			e.cfg.Log.WarnContext(ctx, "could not read the operator's orders", slog.Any("error", err))
		}
		return
	}
	if was := e.orders.Load(); all.Version > was.Version {
		e.orders.CompareAndSwap(was, all)
	}
}

// verdict is what the operator's orders and policy say about a call of the tool
// with the arguments.
func (w *run) verdict(tools *toolSet, t mcp.Tool, args json.RawMessage) policy.Verdict {
	if off := w.orders.off(w.record.Agent, t.Server, t.Name); off != nil {
		return *off
	}
	return policy.Evaluate(tools.rules, inRun(asPolicy(t), w.record, w.state.Created, args))
}

// pausedNow parks the run when its agent is paused.
func (w *run) pausedNow() (Outcome, error) {
	p := w.orders.paused(w.record.Agent)
	if p == nil {
		return goOn, nil
	}
	w.waiting = "The agent is paused"
	if p.Reason != "" {
		w.waiting += ": " + p.Reason
	}
	return parked, w.flush(store.Tx{Status: store.Queued, Due: pausedDelay})
}

// judgeAgain gives the run back as it is in the store: what was worked out since
// went by orders that are old now.
func (w *run) judgeAgain() (Outcome, error) {
	ctx, stop := w.writeContext()
	defer stop()
	w.e.learnOrders(ctx)
	_, err := w.e.cfg.Store.Commit(ctx, w.lease.current(), store.Tx{Op: w.e.cfg.IDs.Token(), Status: store.Queued})
	return parked, err
}

// Paused returns the order that keeps the runs of an agent waiting, or nil, as this
// engine knows it: another server's order is known within about a second.
func (e *Engine) Paused(agent string) *Pause {
	return e.orders.Load().paused(agent)
}
