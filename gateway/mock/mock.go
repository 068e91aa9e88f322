// Package mock is the conformance kit's model: an OpenAI-compatible provider that
// needs no network and no key and always answers the same request the same way. It
// owns the directives (script.go) and keeps no state: what it says next follows
// from the messages it is sent.
//
// Like a real provider it refuses a history in which a tool call has no answer or
// an answer has no call, so a test against it proves histories valid.
package mock

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"agentos/gateway"
	"agentos/internal/clock"
	"agentos/internal/problem"
	"agentos/internal/rawjson"
)

// Config is what a Provider needs.
type Config struct {
	// Clock measures the pauses of slow:. Required.
	Clock clock.Clock
}

// Provider answers as the directives say. It is safe for concurrent use.
type Provider struct {
	clock clock.Clock
}

// New returns a Provider, or an error when cfg has no clock.
func New(cfg Config) (*Provider, error) {
	if cfg.Clock == nil {
		return nil, problem.New(problem.Internal, "the mock model needs a Clock")
	}
	return &Provider{clock: cfg.Clock}, nil
}

// refusal is an answer with an HTTP status other than 200.
type refusal struct {
	status  int
	message string
}

func refuse(status int, format string, args ...any) *refusal {
	return &refusal{status: status, message: fmt.Sprintf(format, args...)}
}

// body is the refusal in the shape that OpenAI clients read.
func (r *refusal) body() json.RawMessage {
	return rawjson.Object([]rawjson.Field{{Name: "error", Value: rawjson.Object([]rawjson.Field{
		{Name: "message", Value: rawjson.Quote(r.message)},
		{Name: "type", Value: rawjson.Quote("mock_error")},
		{Name: "code", Value: json.RawMessage(strconv.Itoa(r.status))},
	})}})
}

// Complete implements gateway.Provider.
func (p *Provider) Complete(ctx context.Context, body json.RawMessage) (json.RawMessage, error) {
	answer, refused, err := p.respond(ctx, body)
	switch {
	case err != nil:
		return nil, fmt.Errorf("mock model: %w", err)
	case refused != nil:
		return nil, gateway.StatusError(refused.status, refused.body(), 0)
	}
	return answer, nil
}

// respond returns a response body or a refusal; the error is the cause of ctx.
func (p *Provider) respond(ctx context.Context, body json.RawMessage) (json.RawMessage, *refusal, error) {
	if ctx.Err() != nil {
		return nil, nil, context.Cause(ctx)
	}
	req, refused := readRequest(body)
	if refused != nil {
		return nil, refused, nil
	}
	s, refused := req.next()
	if refused != nil {
		return nil, refused, nil
	}
	if s.pause > 0 {
		select {
		case <-ctx.Done():
			return nil, nil, context.Cause(ctx)
		case <-p.clock.After(s.pause):
		}
	}
	if s.fail != 0 {
		return nil, refuse(s.fail, "fail:%d was asked for", s.fail), nil
	}
	return envelope(req, s.message(req.callsSoFar), len(body)), nil, nil
}

// next is the step to take now: the one of the script that the conversation has
// come to, a call that a plain sentence asks for, the results of tools, or an echo.
func (r *request) next() (step, *refusal) {
	steps, done, refused := r.script()
	if refused != nil {
		return step{}, refused
	}
	var s step
	if done < len(steps) {
		s = steps[done]
	}
	if s.answers() {
		return s, nil
	}
	if results := r.results(); len(results) > 0 {
		s.say = strings.Join(results, "\n")
		return s, nil
	}
	text := r.lastUser()
	if len(steps) == 0 && r.messages[len(r.messages)-1].role == "user" {
		if c, ok := understand(text, r.tools); ok {
			s.calls = []call{c}
			return s, nil
		}
	}
	s.say = text
	return s, nil
}

// message is the assistant message of the step; callsSoFar calls came before it.
func (s *step) message(callsSoFar int) json.RawMessage {
	if s.raw != nil {
		return s.raw
	}
	fields := []rawjson.Field{{Name: "role", Value: rawjson.Quote("assistant")}}
	if len(s.calls) == 0 {
		return rawjson.Object(append(fields, rawjson.Field{Name: "content", Value: rawjson.Quote(s.say)}))
	}
	content := json.RawMessage("null")
	if s.said {
		content = rawjson.Quote(s.say)
	}
	calls := make([]string, len(s.calls))
	for i, c := range s.calls {
		calls[i] = string(rawjson.Object([]rawjson.Field{
			{Name: "id", Value: rawjson.Quote("call_" + strconv.Itoa(callsSoFar+i+1))},
			{Name: "type", Value: rawjson.Quote("function")},
			{Name: "function", Value: rawjson.Object([]rawjson.Field{
				{Name: "name", Value: rawjson.Quote(c.name)},
				{Name: "arguments", Value: rawjson.Quote(string(c.arguments))},
			})},
		}))
	}
	return rawjson.Object(append(fields,
		rawjson.Field{Name: "content", Value: content},
		rawjson.Field{Name: "tool_calls", Value: json.RawMessage("[" + strings.Join(calls, ",") + "]")}))
}

// envelope puts message into a response body. Tokens are counted as a quarter of
// the bytes, so that budgets can be tested.
func envelope(r request, message json.RawMessage, requestBytes int) json.RawMessage {
	reason := "stop"
	if calls, err := rawjson.Elements(rawjson.Get(message, "tool_calls")); err == nil && len(calls) > 0 {
		reason = "tool_calls"
	}
	in, out := requestBytes/4+1, len(message)/4+1
	return rawjson.Object([]rawjson.Field{
		{Name: "id", Value: rawjson.Quote("chatcmpl-mock")},
		{Name: "object", Value: rawjson.Quote("chat.completion")},
		{Name: "created", Value: json.RawMessage("0")},
		{Name: "model", Value: rawjson.Quote(r.model)},
		{Name: "choices", Value: json.RawMessage(fmt.Sprintf(
			`[{"index":0,"message":%s,"finish_reason":"%s"}]`, message, reason))},
		{Name: "usage", Value: json.RawMessage(fmt.Sprintf(
			`{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d}`, in, out, in+out))},
	})
}
