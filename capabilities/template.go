package capabilities

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"agentos/internal/rawjson"
)

// part is a piece of a template: literal text, or a reference such as
// "params.region" when ref is set.
type part struct {
	text string
	ref  string
}

var reference = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_-]*(\.[A-Za-z0-9_-]+)*$`)

// parseTemplate splits s at "${…}"; "$${" stands for a literal "${".
func parseTemplate(s string) ([]part, error) {
	var parts []part
	for {
		i := strings.Index(s, "${")
		if i < 0 {
			return append(parts, part{text: s}), nil
		}
		if i > 0 && s[i-1] == '$' {
			parts = append(parts, part{text: s[:i-1] + "${"})
			s = s[i+2:]
			continue
		}
		end := strings.IndexByte(s[i:], '}')
		if end < 0 {
			return nil, fmt.Errorf("%q is not closed; write $${ for a literal ${", clip(s[i:]))
		}
		ref := s[i+2 : i+end]
		if !reference.MatchString(ref) {
			return nil, fmt.Errorf("%q is no reference; write $${ for a literal ${", clip(s[i:i+end+1]))
		}
		parts = append(parts, part{text: s[:i]}, part{ref: ref})
		s = s[i+end+1:]
	}
}

// literal escapes text so that it stands for itself in a template.
func literal(s string) string { return strings.ReplaceAll(s, "${", "$${") }

// expand replaces every reference. Templates of a loaded agent always parse; one
// that does not is returned as it is.
func expand(template string, value func(ref string) string) string {
	parts, err := parseTemplate(template)
	if err != nil {
		return template
	}
	var b strings.Builder
	for _, p := range parts {
		b.WriteString(p.text)
		if p.ref != "" {
			b.WriteString(value(p.ref))
		}
	}
	return b.String()
}

// Resolve returns a template of Server.Headers or Server.Env with its secrets
// put in. secret returns the value of a name and whether there is one; a name
// without value is an error that shows the name only.
func Resolve(template string, secret func(name string) (string, bool)) (string, error) {
	if _, err := parseTemplate(template); err != nil {
		return "", err
	}
	var missing error
	s := expand(template, func(ref string) string {
		name, ok := strings.CutPrefix(ref, "secrets.")
		if !ok {
			missing = fmt.Errorf("${%s} has no value here", ref)
			return ""
		}
		value, ok := secret(name)
		if !ok {
			missing = fmt.Errorf("the secret %q has no value; the operator sets it", name)
		}
		return value
	})
	if missing != nil {
		return "", missing
	}
	return s, nil
}

// RenderPrompt returns the user message of the loop's prompt for an input. Text
// is put in as it is, every other value as compact JSON, and a property that the
// input lacks as nothing. What is put in is never read as a template again.
func RenderPrompt(loop *Loop, input json.RawMessage) (string, error) {
	if _, err := parseTemplate(loop.Prompt); err != nil {
		return "", err
	}
	var fault error
	s := expand(loop.Prompt, func(ref string) string {
		value := input
		for _, name := range strings.Split(ref, ".")[1:] {
			value = rawjson.Get(value, name)
		}
		text, err := promptText(value)
		if err != nil {
			fault = fmt.Errorf("${%s}: %w", ref, err)
		}
		return text
	})
	return s, fault
}

// DefaultPrompt returns the user message when the loop has no prompt: the value
// of the schema's only string property when the input holds nothing else, or else
// the whole input as compact JSON, so that nothing a caller said is dropped.
func (c *Capability) DefaultPrompt(input json.RawMessage) string {
	members, err := rawjson.Fields(input)
	if c.textInput != nil && err == nil && len(members) == 1 && members[0].Name == *c.textInput {
		if text, ok := rawjson.Text(members[0].Value); ok {
			return text
		}
	}
	compact, err := rawjson.Compact(input)
	if err != nil {
		return string(input)
	}
	return string(compact)
}

func promptText(value json.RawMessage) (string, error) {
	switch rawjson.Kind(value) {
	case "":
		return "", nil
	case "string":
		var s string
		err := json.Unmarshal(value, &s)
		return s, err
	}
	compact, err := rawjson.Compact(value)
	return string(compact), err
}

// onlyString finds the one property of an object schema that holds text, or nil.
func onlyString(inputSchema json.RawMessage) *string {
	fields, err := rawjson.Fields(rawjson.Get(inputSchema, "properties"))
	if err != nil {
		return nil
	}
	found, count := "", 0
	for _, f := range fields {
		if holdsText(rawjson.Get(f.Value, "type")) {
			found, count = f.Name, count+1
		}
	}
	if count != 1 {
		return nil
	}
	return &found
}

func holdsText(types json.RawMessage) bool {
	var one string
	if json.Unmarshal(types, &one) == nil {
		return one == "string"
	}
	var many []string
	if json.Unmarshal(types, &many) != nil {
		return false
	}
	return slices.Contains(many, "string")
}

// clip bounds what a message repeats of the file.
func clip(s string) string {
	if r := []rune(s); len(r) > 60 {
		return string(r[:60]) + "…"
	}
	return s
}
