package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"agentos/internal/problem"
	"agentos/internal/rawjson"
	"agentos/runtime/mcp/wire"
)

// CallRequest is one call of a tool.
type CallRequest struct {
	// Server is the alias, Tool the raw name.
	Server, Tool string
	// Arguments go to the server byte for byte; nil means {}.
	Arguments json.RawMessage
	// IdempotencyKey is sent as _meta {"agentos/idempotency_key": …}, the same
	// however often the call is sent.
	IdempotencyKey string
	// Effect decides whether a call that may have been executed is sent again.
	Effect Effect
	// Digest is the definition the call may run on. It is compared directly before
	// each sending: with any other definition the call is not sent.
	Digest string
	// Fresh reads the tools of an HTTP server again before: one without sessions
	// can be replaced without a sign.
	Fresh bool
	// Earlier says that an earlier attempt may have been executed, so that "nothing
	// was sent" is no certain end.
	Earlier bool
	// Before is asked directly before each sending; an error withdraws the call.
	// nil allows it.
	Before func() error
}

// Outcome says how a call ended.
type Outcome string

// The outcomes. Error: the tool or the protocol said no, or nothing was sent.
// Timeout: call_timeout expired and the server was told to stop. Unknown: the
// server may have executed the call and nobody knows.
const (
	Success Outcome = "success"
	Error   Outcome = "error"
	Timeout Outcome = "timeout"
	Unknown Outcome = "unknown"
)

// Values of Result.ErrorCode beside mcp_unavailable, egress_denied and timeout.
const (
	CodeToolError      = "tool_error"      // isError: true
	CodeMCPError       = "mcp_error"       // a JSON-RPC error; Result.MCPError has its number
	CodeRefused        = "mcp_refused"     // an HTTP status that says it was not executed
	CodeInvalidResult  = "invalid_result"  // executed, and the answer could not be used
	CodeInputRequired  = "input_required"  // the server wants to ask a person first
	CodeToolGone       = "tool_gone"       // no longer offered; nothing was sent
	CodeToolChanged    = "tool_changed"    // another definition; nothing was sent
	CodeWithdrawn      = "withdrawn"       // Before said no; nothing was sent
	CodeOutcomeUnknown = "outcome_unknown" // with outcome unknown
	CodeCancelled      = "cancelled"       // the caller gave up before anything was sent
)

// timeoutCode is the JSON-RPC code under which an expired call_timeout reads.
const timeoutCode = -32001

// Result is how a call ended.
type Result struct {
	Outcome Outcome
	// Text is exactly what the model will see: without secrets, bounded, valid
	// UTF-8.
	Text string
	// Structured is the structured content, without secrets; nil when there is
	// none or it is over the bound.
	Structured json.RawMessage
	ErrorCode  string
	// MCPError is the code of a protocol error; 0 if there was none.
	MCPError int
	// Reconnects counts the connections that were opened again for this call.
	Reconnects int
	// Truncated says that Text or Structured lack something.
	Truncated bool
	// Notes are oddities of the result that nobody has to act on.
	Notes []string
}

// maxSends bounds how often one call is sent.
const maxSends = 3

// Call runs one tool call. It never fails: whatever happens is in the Result. A
// request that may have reached the server is sent again only if its effect
// class is read or idempotent; one that certainly was not executed is sent once
// more after connecting again.
func (s *Set) Call(ctx context.Context, r CallRequest) Result {
	srv, ok := s.servers[r.Server]
	if !ok {
		return Result{Outcome: Error, ErrorCode: CodeToolGone, Text: fmt.Sprintf("There is no MCP server %q; nothing ran.", r.Server)}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(s.life, func() { cancel(errShutdown) })() //nolint:contextcheck // the second parent of the call
	c := call{srv: srv, req: r, params: callParams(r), maybeSent: r.Earlier}
	res := c.run(ctx)
	res.Reconnects = c.reconnects
	return res
}

func callParams(r CallRequest) json.RawMessage {
	args := r.Arguments
	if args == nil {
		args = json.RawMessage(`{}`)
	}
	fields := []rawjson.Field{{Name: "name", Value: rawjson.Quote(r.Tool)}, {Name: "arguments", Value: args}}
	if r.IdempotencyKey != "" {
		meta := rawjson.Object([]rawjson.Field{{Name: "agentos/idempotency_key", Value: rawjson.Quote(r.IdempotencyKey)}})
		fields = append(fields, rawjson.Field{Name: "_meta", Value: meta})
	}
	return rawjson.Object(fields)
}

// call is a call on its way.
type call struct {
	srv        *server
	req        CallRequest
	params     json.RawMessage
	reconnects int
	maybeSent  bool // an earlier sending may have been executed
}

func (c *call) run(ctx context.Context) Result {
	for sends := 1; ; sends++ {
		ses, again, err := c.srv.ready(ctx)
		if again {
			c.reconnects++
		}
		if err != nil {
			return c.notReached(ctx, err)
		}
		if c.req.Fresh && sends == 1 && c.srv.spec.URL != "" {
			c.srv.refresh(ctx, ses)
		}
		tool, refused := c.mayRun()
		if refused != nil {
			return c.unlessSent(*refused)
		}
		reply, f := c.send(ctx, ses)
		if f == nil {
			c.srv.settle(ctx, ses)
			return c.srv.shape(reply, tool)
		}
		c.maybeSent = c.maybeSent || f.Reach == wire.MaybeSent
		if sends >= maxSends || !c.again(ctx, ses, f, sends) {
			return c.failed(ctx, f)
		}
		c.srv.cfg.Log.LogAttrs(ctx, slog.LevelInfo, "mcp_call_sent_again",
			slog.String("tool", c.req.Tool), slog.String("cause", c.srv.redact(f.Error())))
	}
}

// mayRun returns the tool the call is about, or why the call is not sent.
func (c *call) mayRun() (Tool, *Result) {
	tool, ok := c.srv.tool(c.req.Tool)
	if !ok {
		return tool, &Result{
			Outcome: Error, ErrorCode: CodeToolGone,
			Text: fmt.Sprintf("The server %q no longer offers the tool %q; nothing ran.", c.req.Server, c.req.Tool),
		}
	}
	if c.req.Digest != "" && c.req.Digest != tool.Digest {
		return tool, &Result{
			Outcome: Error, ErrorCode: CodeToolChanged,
			Text: fmt.Sprintf("The definition of %q changed before the call was sent; nothing ran. Call it again if it is still wanted.", c.req.Tool),
		}
	}
	if c.req.Before != nil {
		if err := c.req.Before(); err != nil {
			return tool, &Result{Outcome: Error, ErrorCode: CodeWithdrawn, Text: "The call was withdrawn before it was sent; nothing ran."}
		}
	}
	return tool, nil
}

// errCallTimeout is the cause of a call that took longer than call_timeout.
var errCallTimeout = errors.New("call_timeout expired")

func (c *call) send(ctx context.Context, ses *session) (wire.Reply, *wire.RequestError) {
	ctx, cancel := context.WithTimeoutCause(ctx, c.srv.spec.CallTimeout, errCallTimeout)
	defer cancel()
	reply, err := ses.link.Request(ctx, "tools/call", c.params)
	if err == nil {
		return reply, nil
	}
	var f *wire.RequestError
	if !errors.As(err, &f) {
		f = &wire.RequestError{Reach: wire.MaybeSent, Err: err}
	}
	return wire.Reply{}, f
}

// again decides whether a call that failed is sent once more, and waits a little
// where a server is still there but not well.
func (c *call) again(ctx context.Context, ses *session, f *wire.RequestError, sends int) bool {
	if ctx.Err() != nil || errors.Is(f, errCallTimeout) {
		return false
	}
	switch f.Reach {
	case wire.NotSent:
		return ses.isLost() && sends == 1
	case wire.Refused:
		return f.SessionGone && sends == 1
	case wire.Answered:
		return false
	case wire.MaybeSent:
	}
	if c.req.Effect != Read && c.req.Effect != Idempotent {
		return false
	}
	if !ses.isLost() {
		select {
		case <-c.srv.cfg.Clock.After(time.Duration(sends) * firstBackoff / 2):
		case <-ctx.Done():
			return false
		}
	}
	return true
}

// notReached is the result of a call for which there is no connection.
func (c *call) notReached(ctx context.Context, err error) Result {
	code := string(problem.MCPUnavailable)
	switch {
	case ctx.Err() != nil:
		code = CodeCancelled
	case problem.CodeOf(err) == problem.EgressDenied:
		code = string(problem.EgressDenied)
	}
	return c.unlessSent(Result{
		Outcome: Error, ErrorCode: code,
		Text: fmt.Sprintf("The MCP server %q is not available, nothing was sent: %s", c.req.Server, c.srv.redact(message(err))),
	})
}

// message prefers the public half of an error.
func message(err error) string {
	if p, ok := errors.AsType[*problem.Error](err); ok {
		return p.Message
	}
	return err.Error()
}

// unlessSent turns a result that says that nothing ran into unknown when an
// earlier sending of the same call may have run.
func (c *call) unlessSent(r Result) Result {
	if !c.maybeSent {
		return r
	}
	return c.unknown(errors.New("it was sent before the connection was lost, and could not be sent again"))
}

func (c *call) unknown(cause error) Result {
	return Result{Outcome: Unknown, ErrorCode: CodeOutcomeUnknown, Text: fmt.Sprintf(
		"Nobody knows whether this call of %q had its effect; its answer was lost: %s", c.req.Tool, c.srv.redact(message(cause)))}
}

// failed is the result of a call that got no usable answer.
func (c *call) failed(ctx context.Context, f *wire.RequestError) Result {
	if errors.Is(f, errCallTimeout) {
		text := fmt.Sprintf("MCP error %d: call_timeout of %s expired", timeoutCode, c.srv.spec.CallTimeout)
		if f.Reach == wire.NotSent && !c.maybeSent {
			text += "; the server did not take the request"
		} else {
			text += "; the server was told to stop, but may have executed the call"
		}
		return Result{Outcome: Timeout, ErrorCode: string(problem.Timeout), MCPError: timeoutCode, Text: text, Structured: mcpError(timeoutCode, nil)}
	}
	switch f.Reach {
	case wire.NotSent:
		return c.notReached(ctx, f.Err)
	case wire.Refused:
		text := fmt.Sprintf("The MCP server %q refused the call: %s", c.req.Server, c.srv.redact(message(f.Err)))
		if f.RetryAfter > 0 {
			text += fmt.Sprintf(" (it asks to wait %s)", f.RetryAfter)
		}
		code := CodeRefused
		if problem.CodeOf(f.Err) == problem.EgressDenied {
			code = string(problem.EgressDenied)
		}
		return c.unlessSent(Result{Outcome: Error, ErrorCode: code, Text: text})
	case wire.Answered:
		return Result{
			Outcome: Error, ErrorCode: CodeInvalidResult,
			Text: "The tool ran, but its result cannot be used: " + c.srv.redact(message(f.Err)) + ". Ask for less.", Truncated: true,
		}
	case wire.MaybeSent:
	}
	return c.unknown(f.Err)
}

// settleTime bounds the wait for a tool list that changed during a call.
const settleTime = time.Second

// settle waits until a change of the tool list that was announced before the
// answer is read, so that whoever asks for the tools next sees it.
func (s *server) settle(ctx context.Context, ses *session) {
	limit := s.cfg.Clock.After(settleTime)
	for {
		changed := ses.pending()
		if changed == nil {
			return
		}
		select {
		case <-changed:
		case <-limit:
			return
		case <-ses.link.Lost():
			return
		case <-ctx.Done():
			return
		}
	}
}
