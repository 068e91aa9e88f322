package runtime

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"agentos/gateway"
	"agentos/holds/policy"
	"agentos/internal/problem"
	"agentos/runtime/journal"
	"agentos/runtime/mcp"
	"agentos/runtime/store"
)

// maxParks is how often in a row a run waits for its model before it fails; the
// pauses grow to a minute, so an outage of some twenty minutes is survived.
const maxParks = 24

// turn calls the model once and records its answer with a verdict on every call
// it asks for. What was buffered is written first: a tool's result is durable
// before the model is asked about it.
func (w *run) turn(ctx context.Context) (Outcome, error) {
	if w.progressed() {
		if err := w.flush(store.Tx{Status: store.Running}); err != nil {
			return abandoned, err
		}
	}
	loop := w.capability.Loop
	if len(w.state.Answers) >= loop.MaxTurns {
		return w.fail(problem.New(problem.TooManyTurns, "no answer after %d model turns", loop.MaxTurns))
	}
	if loop.MaxTokens > 0 && w.state.Usage.TotalTokens >= loop.MaxTokens {
		return w.fail(problem.New(problem.TokenBudgetExceeded, "the run used %d of its %d tokens", w.state.Usage.TotalTokens, loop.MaxTokens))
	}
	w.agent.MCP.Wait(ctx, w.aliases()...)
	if p := w.missingServer(); p != nil {
		return w.fail(p)
	}
	if p := w.agent.Misleading(); p != nil {
		return w.fail(p)
	}
	history, err := w.state.History()
	if err != nil {
		return w.fail(problem.Wrap(err, problem.InvalidHistory, "the conversation is not one a provider accepts: %v", err))
	}
	tools := w.toolSet()
	model := w.agent.Manifest.Models[loop.Model]
	reply, err := w.e.cfg.Gateway.Complete(ctx, gateway.Request{
		Model: model.Use, Fallback: model.Fallback, Messages: history,
		Tools: tools.definitions, Extra: tools.format,
	})
	if err != nil {
		return w.modelFailed(ctx, err)
	}
	return w.answered(reply, tools)
}

// progressed reports whether anything is buffered but the mark of a recovery. That
// mark alone is not written before the model is called: it would count as
// progress, and a run whose model call kills its workers would be taken over for
// ever.
func (w *run) progressed() bool {
	return slices.ContainsFunc(w.buffer, func(n journal.New) bool { return n.Type != journal.RunRecovered })
}

// modelFailed decides what an error of the gateway means for the run.
func (w *run) modelFailed(ctx context.Context, err error) (Outcome, error) {
	if ctx.Err() != nil {
		if errors.Is(context.Cause(ctx), errTimeout) {
			return w.fail(problem.New(problem.Timeout, "the run used up its active time of %s", w.capability.Timeout))
		}
		return w.interrupted()
	}
	p := problem.From(err)
	if p.Code != problem.ModelUnavailable || p.RetryAfter <= 0 || w.retries >= maxParks {
		return w.fail(p)
	}
	pause := max(p.RetryAfter, min(time.Second<<min(w.retries, 6), time.Minute))
	w.retries++
	w.waiting = w.e.cfg.Redact(p.Message)
	w.log.WarnContext(ctx, "the model is not available; the run is parked", slog.Duration("pause", pause), slog.Any("error", err))
	return parked, w.flush(store.Tx{Status: store.Running, Due: pause})
}

// missingServer returns the error of a required server that is not connected.
func (w *run) missingServer() *problem.Error {
	mine := w.aliases()
	for _, s := range w.agent.MCP.Status() {
		if !s.Required || !slices.Contains(mine, s.Name) {
			continue
		}
		if s.Status == mcp.Connected || s.Status == mcp.Disconnected && s.ToolCount > 0 {
			continue
		}
		return problem.New(problem.MCPUnavailable, "the MCP server %q is not available: %s", s.Name, s.Error)
	}
	return nil
}

// answered records a reply.
func (w *run) answered(reply gateway.Reply, tools *toolSet) (Outcome, error) {
	message := w.e.redact(reply.Message)
	a := journal.Answered{
		Turn: len(w.state.Answers) + 1, Message: message, FinishReason: reply.FinishReason,
		Asked: w.agent.Manifest.Models[w.capability.Loop.Model].Use, Model: reply.Model, Mock: reply.Mock,
		LatencyMS: reply.Latency.Milliseconds(), Attempts: reply.Attempts, ActiveMS: w.activeMS(),
	}
	if reply.Usage != nil {
		a.Usage = &journal.Usage{InputTokens: reply.Usage.InputTokens, OutputTokens: reply.Usage.OutputTokens, TotalTokens: reply.Usage.TotalTokens}
	}
	if servers := w.agent.view().header; !bytes.Equal(servers, w.state.Servers) {
		a.Servers = servers
	}
	if d := w.agent.Operator.Digest; d != w.state.PolicyDigest {
		a.PolicyDigest = cmp.Or(d, journal.NoPolicy)
	}
	cut := reply.Cut()
	var refused []journal.Finished
	for i, tc := range reply.Calls {
		tc.Arguments = w.e.redact(tc.Arguments)
		asked, f := w.check(tc, tools, fmt.Sprintf("call_%d", len(w.state.Calls)+i+1))
		if cut {
			f = &journal.Finished{Outcome: journal.Invalid, Text: cutText(reply.FinishReason)}
		}
		if f != nil {
			f.Call = asked.ID
			refused = append(refused, *f)
		}
		a.Calls = append(a.Calls, asked)
	}
	var output json.RawMessage
	var fault *problem.Error
	if len(reply.Calls) == 0 {
		output, a.Correction, fault = w.conclude(reply, cut, tools)
	} else if cut && w.wasCut() {
		fault = problem.New(problem.ModelError, "the model's replies were cut off twice (%s)", reply.FinishReason)
	}
	w.retries, w.waiting = 0, ""
	if err := w.add(journal.ModelAnswered, a); err != nil {
		return abandoned, err
	}
	return w.afterAnswer(refused, output, fault)
}

// afterAnswer writes what follows from the answer: the refused calls, or the end
// of the run.
func (w *run) afterAnswer(refused []journal.Finished, output json.RawMessage, fault *problem.Error) (Outcome, error) {
	switch {
	case fault != nil:
		return w.fail(fault)
	case output != nil:
		if err := w.add(journal.RunCompleted, journal.Completed{Output: output, ActiveMS: w.activeMS()}); err != nil {
			return abandoned, err
		}
		return finished, w.flush(store.Tx{Status: store.Completed})
	case len(w.state.Answers) >= w.capability.Loop.MaxTurns:
		return w.fail(problem.New(problem.TooManyTurns, "no answer after %d model turns", w.capability.Loop.MaxTurns))
	}
	for _, f := range refused {
		f.ActiveMS = w.activeMS()
		if err := w.add(journal.CallFinished, f); err != nil {
			return abandoned, err
		}
	}
	return goOn, nil
}

// check makes a call of ours from one of the model's. A call that fails a check
// comes with its end: it never reaches a tool or a person.
func (w *run) check(tc gateway.ToolCall, tools *toolSet, id string) (journal.Asked, *journal.Finished) {
	a := journal.Asked{ID: id, ProviderID: tc.ID, Name: tc.Name}
	refuse := func(format string, args ...any) (journal.Asked, *journal.Finished) {
		return a, &journal.Finished{Outcome: journal.Invalid, Text: fmt.Sprintf(format, args...)}
	}
	tool, known := tools.byName[tc.Name]
	if known {
		a.Server, a.Tool, a.ToolDigest, a.Destructive = tool.Server, tool.Name, tool.Digest, tool.Destructive
	}
	args, err := gateway.ParseArguments(tc.Arguments)
	if err != nil {
		return refuse("%s", err.Error())
	}
	a.Arguments = args
	if !known {
		return refuse("There is no tool called %q. The tools are: %s.", tc.Name, strings.Join(tools.names(), ", "))
	}
	if tool.Schema != nil {
		if faults := tool.Schema.Validate(args); len(faults) > 0 {
			return refuse("The arguments of %s do not fit its schema, so it did not run: %s. Call it again with arguments that fit.", tc.Name, faultText(faults))
		}
	}
	a.Verdict = w.verdict(tools, tool, args)
	if a.Verdict.Effect == policy.Deny {
		return a, &journal.Finished{Outcome: journal.Denied, Text: deniedText(a.Verdict)}
	}
	return a, nil
}

func faultText(faults []problem.Detail) string {
	parts := make([]string, len(faults))
	for i, f := range faults {
		path := f.Path
		if path == "" {
			path = "/"
		}
		parts[i] = path + " " + f.Message
	}
	return strings.Join(parts, "; ")
}

func cutText(reason string) string {
	return "The reply was cut off (" + reason + "), so this call did not run. Ask for it again, in a shorter reply."
}

// wasCut reports whether the answer before was cut off too.
func (w *run) wasCut() bool {
	if len(w.state.Answers) == 0 {
		return false
	}
	r := w.state.Answers[len(w.state.Answers)-1].FinishReason
	return r == "length" || r == "content_filter"
}
