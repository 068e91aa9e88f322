package runtime

import (
	"encoding/json"
	"slices"
	"strings"

	"agentos/capabilities"
	"agentos/gateway"
	"agentos/internal/problem"
	"agentos/internal/rawjson"
)

// maxCorrections is how often a model may correct its output.
const maxCorrections = 2

// conclude turns a reply without calls into the output of the run, a correction
// the model is asked for, or the fault that ends the run.
func (w *run) conclude(reply gateway.Reply, cut bool, tools *toolSet) (output json.RawMessage, correction string, fault *problem.Error) {
	if reply.Refusal != "" && reply.Content == "" {
		return nil, "", problem.New(problem.ModelError, "the model refused: %s", w.e.cfg.Redact(reply.Refusal))
	}
	if cut {
		if w.wasCut() {
			return nil, "", problem.New(problem.ModelError, "the model's replies were cut off twice (%s)", reply.FinishReason)
		}
		return nil, "Your reply was cut off (" + reply.FinishReason + "). Answer again, shorter.", nil
	}
	text := w.e.cfg.Redact(reply.Content)
	output, faults := tools.shape(w.capability, text)
	if len(faults) == 0 {
		return output, "", nil
	}
	if w.corrections() >= maxCorrections {
		return nil, "", problem.New(problem.InvalidOutput,
			"the model's answer does not fit the output schema of %s after %d corrections", w.capability.Name, maxCorrections).With(faults...)
	}
	return nil, "Your answer does not fit the required output: " + faultText(faults) +
		". Answer again with only the corrected JSON.", nil
}

// corrections counts how often the model was asked to correct its output.
func (w *run) corrections() int {
	n := 0
	for _, a := range w.state.Answers {
		if a.Correction != "" && a.FinishReason != "length" && a.FinishReason != "content_filter" {
			n++
		}
	}
	return n
}

// shape makes the output of a capability from the model's final text: the text
// itself where the schema has one required string property, else the JSON the
// text holds.
func (s *toolSet) shape(c *capabilities.Capability, text string) (json.RawMessage, []problem.Detail) {
	if s.text != "" {
		out := rawjson.Object([]rawjson.Field{{Name: s.text, Value: rawjson.Quote(text)}})
		return out, c.OutputSchema.Validate(out)
	}
	raw := []byte(strings.TrimSpace(unfence(text)))
	if err := rawjson.Check(raw); err != nil {
		return nil, []problem.Detail{{Message: "is not JSON: " + err.Error()}}
	}
	return raw, c.OutputSchema.Validate(raw)
}

// unfence returns what stands inside a Markdown code fence around the whole text.
func unfence(text string) string {
	t := strings.TrimSpace(text)
	if !strings.HasPrefix(t, "```") || !strings.HasSuffix(t, "```") || len(t) < 6 {
		return text
	}
	t = t[3 : len(t)-3]
	if i := strings.IndexByte(t, '\n'); i >= 0 && !strings.ContainsAny(t[:i], "{[\"") {
		t = t[i+1:]
	}
	return t
}

// textProperty returns the only required property of an output schema when it is
// a string, else "".
func textProperty(output json.RawMessage) string {
	var s struct {
		Required   []string                   `json:"required"`
		Properties map[string]json.RawMessage `json:"properties"`
	}
	if json.Unmarshal(output, &s) != nil || len(s.Required) != 1 {
		return ""
	}
	kind, _ := rawjson.Text(rawjson.Get(s.Properties[s.Required[0]], "type"))
	if kind != "string" {
		return ""
	}
	return s.Required[0]
}

// responseFormat asks the provider for JSON of the output schema, unless plain
// text is wanted.
func responseFormat(c *capabilities.Capability) []rawjson.Field {
	if textProperty(c.Output) != "" {
		return nil
	}
	schema := rawjson.Object([]rawjson.Field{
		{Name: "name", Value: rawjson.Quote(strings.Map(nameRune, c.Name))},
		{Name: "schema", Value: slices.Clone(c.Output)},
	})
	return []rawjson.Field{{Name: "response_format", Value: rawjson.Object([]rawjson.Field{
		{Name: "type", Value: rawjson.Quote("json_schema")},
		{Name: "json_schema", Value: schema},
	})}}
}

func nameRune(r rune) rune {
	if r == '_' || r == '-' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' {
		return r
	}
	return '_'
}
