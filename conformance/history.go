package conformance

import (
	"encoding/json"
	"errors"
	"fmt"

	"agentos/internal/rawjson"
)

// CheckHistory reports what a provider would refuse in the messages of a
// chat-completions request: after an assistant message with tool calls comes
// exactly one tool message for each, in the order of the calls, before anything
// else; ids are there and differ; a tool message answers nothing else; the
// conversation has begun with a user. It shares nothing with the engine's own
// proof.
func CheckHistory(request json.RawMessage) error {
	if err := rawjson.Check(request); err != nil {
		return fmt.Errorf("the request is no valid JSON: %w", err)
	}
	messages, err := rawjson.Elements(rawjson.Get(request, "messages"))
	if err != nil {
		return fmt.Errorf("messages: %w", err)
	}
	var h history
	for i, m := range messages {
		if err := h.take(m); err != nil {
			return fmt.Errorf("message %d: %w", i+1, err)
		}
	}
	switch {
	case len(h.open) > 0:
		return fmt.Errorf("the call %q has no result", h.open[0])
	case !h.asked:
		return errors.New("no user message")
	}
	return nil
}

// history is what is known after some of the messages.
type history struct {
	// open are the calls that wait for a result, in their order.
	open []string
	// function says that the open call is of the older kind, answered by name.
	function bool
	asked    bool
}

func (h *history) take(m json.RawMessage) error {
	role, _ := rawjson.Text(rawjson.Get(m, "role"))
	if len(h.open) > 0 {
		return h.answer(role, m)
	}
	switch role {
	case "system", "developer":
		return nil
	case "user":
		h.asked = true
		return nil
	case "assistant":
		return h.ask(m)
	case "tool", "function":
		return fmt.Errorf("a %s message that answers no call", role)
	}
	return fmt.Errorf("role %q", role)
}

// answer takes a message while calls are open.
func (h *history) answer(role string, m json.RawMessage) error {
	want, field := "tool", "tool_call_id"
	if h.function {
		want, field = "function", "name"
	}
	if role != want {
		return fmt.Errorf("a %s message before the result of the call %q", role, h.open[0])
	}
	id, _ := rawjson.Text(rawjson.Get(m, field))
	if id != h.open[0] {
		return fmt.Errorf("a result for %q where that of %q belongs", id, h.open[0])
	}
	if k := rawjson.Kind(rawjson.Get(m, "content")); k != "string" && k != "array" {
		return fmt.Errorf("the result of %q has no content", id)
	}
	h.open = h.open[1:]
	return nil
}

// ask takes an assistant message and opens its calls.
func (h *history) ask(m json.RawMessage) error {
	h.function = false
	if f := rawjson.Get(m, "function_call"); rawjson.Kind(f) == "object" {
		name, _ := rawjson.Text(rawjson.Get(f, "name"))
		h.open, h.function = []string{name}, true
		return nil
	}
	raw := rawjson.Get(m, "tool_calls")
	if k := rawjson.Kind(raw); k == "" || k == "null" {
		return nil
	}
	calls, err := rawjson.Elements(raw)
	if err != nil {
		return fmt.Errorf("tool_calls: %w", err)
	}
	seen := map[string]bool{}
	for _, c := range calls {
		id, _ := rawjson.Text(rawjson.Get(c, "id"))
		if id == "" || seen[id] {
			return fmt.Errorf("a tool call with a missing or repeated id %q", id)
		}
		seen[id] = true
		h.open = append(h.open, id)
	}
	return nil
}
