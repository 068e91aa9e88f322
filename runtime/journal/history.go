package journal

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	"agentos/internal/rawjson"
)

// history is the conversation as far as it has been derived and proven. Entries
// are never changed, so what it holds stays as it is.
type history struct {
	messages []json.RawMessage
	// answers and calls count what the messages cover.
	answers, calls int
	ids            wireIDs
	proof          proof
}

// History returns the messages a model sees next: system, prompt, and each
// answer with the results of its calls in the model's order. Answers go back as
// they were received; only call ids that are missing or repeated are replaced,
// always by the same ones, so that a provider's prompt cache holds. A call costs
// no more than what is new since the one before.
//
// It fails when the history would not be valid: see Prove.
func (s *State) History() ([]json.RawMessage, error) {
	if open := s.Open(); len(open) > 0 {
		return nil, fmt.Errorf("call %s has no result", open[0].ID)
	}
	h := s.history
	if h == nil {
		h = &history{ids: wireIDs{}, proof: proof{seen: map[string]bool{}}}
		if s.Created.System != "" {
			h.messages = append(h.messages, message("system", s.Created.System))
		}
		h.messages = append(h.messages, message("user", s.Created.Text()))
	}
	for _, a := range s.Answers[h.answers:] {
		msgs, err := answerMessages(a, s.Calls[h.calls:h.calls+len(a.Calls)], h.ids)
		if err != nil {
			return nil, fmt.Errorf("turn %d: %w", a.Turn, err)
		}
		if err := h.proof.check(msgs); err != nil {
			return nil, fmt.Errorf("turn %d: %w", a.Turn, err)
		}
		h.messages = append(h.messages, msgs...)
		h.answers++
		h.calls += len(a.Calls)
	}
	s.history = h
	return slices.Clone(h.messages), nil
}

func answerMessages(a Answered, calls []*Call, ids wireIDs) ([]json.RawMessage, error) {
	var out []json.RawMessage
	fields, err := rawjson.Fields(a.Message)
	if err != nil {
		return nil, err
	}
	list := member(fields, "tool_calls")
	legacy := len(calls) == 1 && rawjson.Kind(member(fields, "function_call")) == "object" &&
		(rawjson.Kind(list) != "array" || string(list) == "[]")
	wire := make([]string, len(calls))
	for i, c := range calls {
		wire[i] = ids.take(c.ProviderID, c.ID)
	}
	if !empty(fields) {
		msg, err := withIDs(a.Message, fields, calls, wire, legacy)
		if err != nil {
			return nil, err
		}
		out = append(out, msg)
	}
	for i, c := range calls {
		if c.Finished == nil {
			return nil, fmt.Errorf("call %s has no result", c.ID)
		}
		if legacy {
			out = append(out, rawjson.Object([]rawjson.Field{
				{Name: "role", Value: rawjson.Quote("function")},
				{Name: "name", Value: rawjson.Quote(c.Name)},
				{Name: "content", Value: rawjson.Quote(c.Finished.Text)},
			}))
			continue
		}
		out = append(out, rawjson.Object([]rawjson.Field{
			{Name: "role", Value: rawjson.Quote("tool")},
			{Name: "tool_call_id", Value: rawjson.Quote(wire[i])},
			{Name: "content", Value: rawjson.Quote(c.Finished.Text)},
		}))
	}
	if a.Correction != "" {
		out = append(out, message("user", a.Correction))
	}
	return out, nil
}

// withIDs returns the raw message with the wire ids; the very same bytes when it
// has them already.
func withIDs(raw json.RawMessage, fields []rawjson.Field, calls []*Call, wire []string, legacy bool) (json.RawMessage, error) {
	changed := false
	if len(member(fields, "role")) == 0 {
		fields = append([]rawjson.Field{{Name: "role", Value: rawjson.Quote("assistant")}}, fields...)
		changed = true
	}
	if i := index(fields, "tool_calls"); i >= 0 && len(calls) > 0 && !legacy {
		elements, renamed, err := withCallIDs(fields[i].Value, calls, wire)
		if err != nil {
			return nil, err
		}
		changed = changed || renamed
		if changed {
			fields[i].Value = array(elements)
		}
	}
	if !changed {
		return raw, nil
	}
	return rawjson.Object(fields), nil
}

// withCallIDs returns the tool calls with the wire ids, and whether that changed any.
func withCallIDs(toolCalls json.RawMessage, calls []*Call, wire []string) ([]json.RawMessage, bool, error) {
	elements, err := rawjson.Elements(toolCalls)
	if err != nil {
		return nil, false, fmt.Errorf("tool_calls: %w", err)
	}
	if len(elements) != len(calls) {
		return nil, false, fmt.Errorf("%d tool_calls for %d calls", len(elements), len(calls))
	}
	changed := false
	for i, el := range elements {
		if calls[i].ProviderID == wire[i] {
			continue
		}
		if elements[i], err = withID(el, wire[i]); err != nil {
			return nil, false, err
		}
		changed = true
	}
	return elements, changed, nil
}

func withID(call json.RawMessage, id string) (json.RawMessage, error) {
	fields, err := rawjson.Fields(call)
	if err != nil {
		return nil, fmt.Errorf("tool call: %w", err)
	}
	if i := index(fields, "id"); i >= 0 {
		fields[i].Value = rawjson.Quote(id)
	} else {
		fields = append([]rawjson.Field{{Name: "id", Value: rawjson.Quote(id)}}, fields...)
	}
	return rawjson.Object(fields), nil
}

// empty reports whether an assistant message says nothing: strict providers
// refuse one that has neither content nor calls, so it is left out.
func empty(fields []rawjson.Field) bool {
	for _, f := range fields {
		switch f.Name {
		case "content", "tool_calls", "function_call", "refusal":
			if v := string(f.Value); v != "null" && v != `""` && v != "[]" {
				return false
			}
		}
	}
	return true
}

// wireIDs are the call ids used so far in one request.
type wireIDs map[string]bool

// take returns the provider's id when it is usable, else one made from ours.
func (w wireIDs) take(provider, ours string) string {
	id := provider
	for n := 1; id == "" || w[id]; n++ {
		id = ours
		if n > 1 {
			id = ours + "_" + strconv.Itoa(n)
		}
	}
	w[id] = true
	return id
}

// Prove reports how messages are not a history a provider accepts: every call of
// every assistant message has a non-empty id of its own and exactly one tool
// message, in the model's order, directly after it, and there are no others.
func Prove(messages []json.RawMessage) error {
	p := proof{seen: map[string]bool{}}
	return p.check(messages)
}

// proof goes through a history in parts, each of which ends with no call open.
type proof struct {
	seen map[string]bool // the call ids so far
}

func (p *proof) check(messages []json.RawMessage) error {
	var open []string
	for i, m := range messages {
		fields, err := rawjson.Fields(m)
		if err != nil {
			return fmt.Errorf("message %d: %w", i, err)
		}
		role, _ := rawjson.Text(member(fields, "role"))
		if role == "tool" {
			id, _ := rawjson.Text(member(fields, "tool_call_id"))
			if len(open) == 0 || open[0] != id {
				return fmt.Errorf("message %d: tool message for %q, expected %q", i, id, open)
			}
			open = open[1:]
			continue
		}
		if len(open) > 0 {
			return fmt.Errorf("message %d: %s message while %q have no result", i, role, open)
		}
		if role != "assistant" {
			continue
		}
		if open, err = callIDs(fields, p.seen); err != nil {
			return fmt.Errorf("message %d: %w", i, err)
		}
	}
	if len(open) > 0 {
		return fmt.Errorf("calls %q have no result", open)
	}
	return nil
}

func callIDs(fields []rawjson.Field, seen map[string]bool) ([]string, error) {
	raw := member(fields, "tool_calls")
	if len(raw) == 0 || rawjson.Kind(raw) == "null" {
		return nil, nil
	}
	elements, err := rawjson.Elements(raw)
	if err != nil {
		return nil, fmt.Errorf("tool_calls: %w", err)
	}
	ids := make([]string, 0, len(elements))
	for _, el := range elements {
		id, _ := rawjson.Text(rawjson.Get(el, "id"))
		if id == "" || seen[id] {
			return nil, fmt.Errorf("call id %q is empty or repeated", id)
		}
		seen[id] = true
		ids = append(ids, id)
	}
	return ids, nil
}

func message(role, text string) json.RawMessage {
	return rawjson.Object([]rawjson.Field{
		{Name: "role", Value: rawjson.Quote(role)}, {Name: "content", Value: rawjson.Quote(text)},
	})
}

func array(elements []json.RawMessage) json.RawMessage {
	out := []byte{'['}
	for i, el := range elements {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, el...)
	}
	return append(out, ']')
}

func index(fields []rawjson.Field, name string) int {
	return slices.IndexFunc(fields, func(f rawjson.Field) bool { return f.Name == name })
}

func member(fields []rawjson.Field, name string) json.RawMessage {
	if i := index(fields, name); i >= 0 {
		return fields[i].Value
	}
	return nil
}
