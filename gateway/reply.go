package gateway

import (
	"encoding/json"
	"math"
	"strconv"
	"strings"
	"time"

	"agentos/internal/problem"
	"agentos/internal/rawjson"
)

// maxCalls is how many tool calls one message may hold.
const maxCalls = 1000

// Reply is a model's answer.
type Reply struct { //nolint:recvcheck // the finished answer is a value; only reading it takes a pointer
	// Message is the assistant message exactly as received, unknown members
	// included. It goes back to the provider unchanged.
	Message json.RawMessage
	// Content is the text: string content, or the text parts joined.
	Content string
	// Refusal is the provider's text when the model declined to answer.
	Refusal string
	// Calls are in the model's order. FinishReason does not say whether there are
	// any: providers end messages with calls by "stop" or nothing at all.
	Calls []ToolCall
	// FinishReason is as received, "" when absent or null. After "length" and
	// "content_filter" the message is cut, and a call may be half a call even if
	// its arguments parse: see Cut.
	FinishReason string
	// Model is the "provider/model" that answered.
	Model string
	// Usage is nil when the provider gave none that makes sense.
	Usage *Usage
	// Latency is the time the caller waited, pauses between attempts included.
	Latency time.Duration
	// Attempts counts the attempts over all models, the answer included.
	Attempts int
	// Mock is set when the mock model answered.
	Mock bool
}

// Cut reports whether the provider ended the message before the model did. Calls
// of such a message must not run.
func (r Reply) Cut() bool {
	return r.FinishReason == "length" || r.FinishReason == "content_filter"
}

// ToolCall is one call the model asks for.
type ToolCall struct {
	// ID is the provider's; it may be empty or repeat.
	ID string
	// Name is empty when the call names no function.
	Name string
	// Arguments is the value of function.arguments as received, normally a JSON
	// string; nil when absent. ParseArguments makes an object of it.
	Arguments json.RawMessage
}

// Usage counts the tokens of one model call.
type Usage struct {
	InputTokens  int64 `json:"input_tokens"`
	OutputTokens int64 `json:"output_tokens"`
	TotalTokens  int64 `json:"total_tokens"`
}

// ParseReply reads a chat-completions response body. Model, Latency, Attempts and
// Mock are left zero.
//
// It accepts what is clear: calls whatever the finish reason, null or absent
// content beside them, parts instead of text, missing ids, and the older
// function_call, which becomes one call without id. A message with function_call
// goes back unchanged like any other and its result follows it as
// {"role":"function","name":…}; there is no id that a tool message could bear.
//
// Everything else is a *problem.Error whose message holds the provider's words in
// full, not yet redacted: model_unavailable for an embedded error that passes
// (429, 5xx, …), model_error for any other and for a body that is no reply,
// repeats a member name or has no message. No reply is ever an empty answer by
// default: an empty one has to say "content" itself.
func ParseReply(body json.RawMessage) (Reply, error) {
	if len(body) > MaxBody {
		return Reply{}, badReply("it is longer than %d bytes", MaxBody)
	}
	if err := rawjson.Check(body); err != nil {
		return Reply{}, badReply("%v: %s", err, body[:min(len(body), maxKept)])
	}
	if k := rawjson.Kind(body); k != "object" {
		return Reply{}, badReply("it is a JSON %s instead of an object", k)
	}
	all := objectOf(body)
	choice, err := findChoice(body, all)
	if err != nil {
		return Reply{}, err
	}
	reply := Reply{Message: choice["message"], Usage: parseUsage(all["usage"])}
	reply.FinishReason, _ = rawjson.Text(choice["finish_reason"])
	if err := reply.readMessage(); err != nil {
		return Reply{}, err
	}
	if reply.FinishReason == "error" {
		return Reply{}, badReply("the provider ended the message with an error and does not say which")
	}
	return reply, nil
}

// badReply is the model_error of a body that cannot be used.
func badReply(format string, args ...any) *problem.Error {
	return problem.New(problem.ModelError, "the reply cannot be used: "+format, args...)
}

// findChoice returns the members of the first choice, which has a message.
func findChoice(body json.RawMessage, all map[string]json.RawMessage) (map[string]json.RawMessage, error) {
	if e := all["error"]; present(e) {
		return nil, embeddedError(e)
	}
	choices, err := rawjson.Elements(all["choices"])
	if err != nil || len(choices) == 0 {
		return nil, badReply("it has no choices: %s", messageOf(body))
	}
	choice := objectOf(choices[0])
	if e := choice["error"]; present(e) {
		return nil, embeddedError(e)
	}
	if rawjson.Kind(choice["message"]) != "object" {
		return nil, badReply("its first choice has no message: %s", messageOf(choices[0]))
	}
	return choice, nil
}

// objectOf returns the members of the checked object raw by name; nil when it is
// none.
func objectOf(raw json.RawMessage) map[string]json.RawMessage {
	fields, err := rawjson.Fields(raw)
	if err != nil {
		return nil
	}
	member := make(map[string]json.RawMessage, len(fields))
	for _, f := range fields {
		member[f.Name] = f.Value
	}
	return member
}

// present reports whether an optional member is there and not null.
func present(raw json.RawMessage) bool {
	k := rawjson.Kind(raw)
	return k != "" && k != "null"
}

// readMessage fills Content, Refusal and Calls from Message.
func (r *Reply) readMessage() error {
	member := objectOf(r.Message)
	if role := member["role"]; role != nil && string(role) != `"assistant"` {
		return badReply("its message has the role %s", role)
	}
	answers, err := r.readContent(member["content"])
	if err != nil {
		return err
	}
	if refusal := member["refusal"]; present(refusal) {
		text, ok := rawjson.Text(refusal)
		if !ok {
			return badReply("refusal is a JSON %s", rawjson.Kind(refusal))
		}
		r.Refusal += text
	}
	if err := r.readCalls(member["tool_calls"], member["function_call"]); err != nil {
		return err
	}
	if !answers && r.Refusal == "" && len(r.Calls) == 0 {
		return badReply("its message has neither text nor calls")
	}
	return nil
}

// readContent reports whether content is an answer, if only an empty one: null
// and an empty text or list are, an absent one and a list without text are not.
func (r *Reply) readContent(content json.RawMessage) (bool, error) {
	switch rawjson.Kind(content) {
	case "":
		return false, nil
	case "null":
		return true, nil
	case "string":
		r.Content, _ = rawjson.Text(content)
		return true, nil
	case "array":
	default:
		return false, badReply("content is a JSON %s", rawjson.Kind(content))
	}
	parts, err := rawjson.Elements(content)
	if err != nil {
		return false, badReply("content: %v", err)
	}
	answers := len(parts) == 0
	var all, refusal strings.Builder
	for _, part := range parts {
		// Parts of other types (images, reasoning) stay in Message only.
		switch kind, _ := rawjson.Text(rawjson.Get(part, "type")); kind {
		case "text", "output_text":
			text, ok := rawjson.Text(rawjson.Get(part, "text"))
			all.WriteString(text)
			answers = answers || ok
		case "refusal":
			text, _ := rawjson.Text(rawjson.Get(part, "refusal"))
			refusal.WriteString(text)
		}
	}
	r.Content, r.Refusal = all.String(), refusal.String()
	return answers, nil
}

// readCalls reads tool_calls, or function_call where there are none: some servers
// repeat the first call there.
func (r *Reply) readCalls(toolCalls, functionCall json.RawMessage) error {
	if present(toolCalls) {
		calls, err := rawjson.Elements(toolCalls)
		if err != nil {
			return badReply("tool_calls: %v", err)
		}
		if len(calls) > maxCalls {
			return badReply("it asks for %d calls; at most %d are accepted", len(calls), maxCalls)
		}
		for i, c := range calls {
			if k := rawjson.Kind(c); k != "object" {
				return badReply("tool_calls[%d] is a JSON %s", i, k)
			}
			member := objectOf(c)
			call := readFunction(member["function"])
			call.ID, _ = rawjson.Text(member["id"])
			r.Calls = append(r.Calls, call)
		}
	}
	if len(r.Calls) > 0 || !present(functionCall) {
		return nil
	}
	if k := rawjson.Kind(functionCall); k != "object" {
		return badReply("function_call is a JSON %s", k)
	}
	r.Calls = []ToolCall{readFunction(functionCall)}
	return nil
}

func readFunction(function json.RawMessage) ToolCall {
	member := objectOf(function)
	name, _ := rawjson.Text(member["name"])
	return ToolCall{Name: name, Arguments: member["arguments"]}
}

// parseUsage returns nil for anything but whole, non-negative counts: a count made
// up here would be taken for a measured one by budgets and totals.
func parseUsage(raw json.RawMessage) *Usage {
	member := objectOf(raw)
	in, okIn := count(member["prompt_tokens"])
	out, okOut := count(member["completion_tokens"])
	if !okIn || !okOut || in > math.MaxInt64-out {
		return nil
	}
	u := &Usage{InputTokens: in, OutputTokens: out, TotalTokens: in + out}
	if total, ok := count(member["total_tokens"]); ok && total > u.TotalTokens {
		u.TotalTokens = total // some providers count reasoning only here
	}
	return u
}

func count(raw json.RawMessage) (int64, bool) {
	n, err := strconv.ParseInt(string(raw), 10, 64)
	return n, err == nil && n >= 0
}
