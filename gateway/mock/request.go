package mock

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"

	"agentos/gateway"
	"agentos/internal/rawjson"
)

// request is what the mock model reads of a chat-completions request.
type request struct {
	model    string
	messages []message
	tools    []json.RawMessage // the "function" objects
	// callsSoFar counts the calls asked for since the user message that holds the
	// script, or since the beginning when there is none.
	callsSoFar int
}

// message is one message of the history.
type message struct {
	role  string
	text  string
	calls []string // ids, of an assistant message
	id    string   // of a tool message
}

func readRequest(body json.RawMessage) (request, *refusal) {
	if len(body) > gateway.MaxBody {
		return request{}, refuse(http.StatusRequestEntityTooLarge, "the request is too long")
	}
	if err := rawjson.Check(body); err != nil {
		return request{}, refuse(http.StatusBadRequest, "the request is no valid JSON: %v", err)
	}
	if string(rawjson.Get(body, "stream")) == "true" {
		return request{}, refuse(http.StatusBadRequest, "the mock model does not stream")
	}
	model, ok := rawjson.Text(rawjson.Get(body, "model"))
	if !ok || model == "" {
		return request{}, refuse(http.StatusBadRequest, "model must be a text")
	}
	r := request{model: model}
	raw, err := rawjson.Elements(rawjson.Get(body, "messages"))
	if err != nil || len(raw) == 0 {
		return request{}, refuse(http.StatusBadRequest, "messages must be a list with at least one message")
	}
	for i, m := range raw {
		read, fault := readMessage(m)
		if fault != "" {
			return request{}, refuse(http.StatusBadRequest, "messages[%d]: %s", i, fault)
		}
		r.messages = append(r.messages, read)
	}
	if refused := checkHistory(r.messages); refused != nil {
		return request{}, refused
	}
	return r, r.readTools(rawjson.Get(body, "tools"))
}

func (r *request) readTools(raw json.RawMessage) *refusal {
	if len(raw) == 0 {
		return nil
	}
	tools, err := rawjson.Elements(raw)
	if err != nil || len(tools) == 0 {
		return refuse(http.StatusBadRequest, "tools must be a list with at least one tool, or absent")
	}
	seen := map[string]bool{}
	for i, t := range tools {
		function := rawjson.Get(t, "function")
		name, _ := rawjson.Text(rawjson.Get(function, "name"))
		if name == "" || seen[name] {
			return refuse(http.StatusBadRequest, "tools[%d].function.name is missing or repeats", i)
		}
		seen[name] = true
		r.tools = append(r.tools, function)
	}
	return nil
}

// readMessage returns a fault for people when raw is no message.
func readMessage(raw json.RawMessage) (m message, fault string) {
	m.role, _ = rawjson.Text(rawjson.Get(raw, "role"))
	switch m.role {
	case "system", "developer", "user", "assistant", "tool", "function":
	default:
		return m, "role must be one of system, developer, user, assistant, tool"
	}
	m.text = textOf(rawjson.Get(raw, "content"))
	m.id, _ = rawjson.Text(rawjson.Get(raw, "tool_call_id"))
	calls := rawjson.Get(raw, "tool_calls")
	if k := rawjson.Kind(calls); k == "" || k == "null" {
		return m, ""
	}
	list, err := rawjson.Elements(calls)
	if err != nil {
		return m, "tool_calls must be a list"
	}
	for _, c := range list {
		id, _ := rawjson.Text(rawjson.Get(c, "id"))
		m.calls = append(m.calls, id)
	}
	return m, ""
}

// textOf is a content that is a text, or the text parts of one that is a list.
func textOf(content json.RawMessage) string {
	if text, ok := rawjson.Text(content); ok {
		return text
	}
	parts, err := rawjson.Elements(content)
	if err != nil {
		return ""
	}
	var all strings.Builder
	for _, part := range parts {
		text, _ := rawjson.Text(rawjson.Get(part, "text"))
		all.WriteString(text)
	}
	return all.String()
}

// checkHistory refuses what OpenAI refuses: each assistant message with calls must
// be followed directly by exactly one tool message per call, and there may be no
// other tool message.
func checkHistory(messages []message) *refusal {
	open := map[string]bool{} // calls of the last assistant message without an answer
	for i, m := range messages {
		if m.role == "tool" {
			if !open[m.id] {
				return refuse(http.StatusBadRequest, "messages[%d]: no call %q waits for a tool message", i, m.id)
			}
			delete(open, m.id)
			continue
		}
		if refused := allAnswered(open); refused != nil {
			return refused
		}
		for _, id := range m.calls {
			if id == "" || open[id] {
				return refuse(http.StatusBadRequest, "messages[%d]: the call id %q is empty or repeats", i, id)
			}
			open[id] = true
		}
	}
	return allAnswered(open)
}

func allAnswered(open map[string]bool) *refusal {
	if len(open) == 0 {
		return nil
	}
	return refuse(http.StatusBadRequest, "calls without a tool message: %s",
		strings.Join(slices.Sorted(maps.Keys(open)), ", "))
}

// results are the texts of the tool messages at the end of the history.
func (r *request) results() []string {
	i := len(r.messages)
	for i > 0 && (r.messages[i-1].role == "tool" || r.messages[i-1].role == "function") {
		i--
	}
	var out []string
	for _, m := range r.messages[i:] {
		out = append(out, m.text)
	}
	return out
}

// lastUser is the text of the last user message, or "".
func (r *request) lastUser() string {
	for _, v := range slices.Backward(r.messages) {
		if v.role == "user" {
			return v.text
		}
	}
	return ""
}
