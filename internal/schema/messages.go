package schema

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	jsonschema "github.com/santhosh-tekuri/jsonschema/v5"

	"agentos/internal/problem"
	"agentos/internal/rawjson"
)

// MaxDetails bounds what one validation reports.
const MaxDetails = 20

// Bounds of one message.
const (
	maxName    = 100
	maxChoices = 10
	maxBranch  = 4
)

// collector turns the library's tree of errors into flat details with messages
// of our own. schema is nil where the failing schema is not ours (the meta-schema).
type collector struct {
	schema   any
	base     string
	instance any
	details  []problem.Detail
}

func (c *collector) collect(e *jsonschema.ValidationError) {
	keyword := lastToken(e.KeywordLocation)
	if keyword == "anyOf" || keyword == "oneOf" {
		c.add(e, c.alternatives(e))
		return
	}
	// A contains error carries one cause per item; the count is what matters.
	if len(e.Causes) == 0 || keyword == "minContains" {
		for _, m := range c.messages(e, keyword) {
			c.add(e, m)
		}
		return
	}
	for _, cause := range e.Causes {
		c.collect(cause)
	}
}

func (c *collector) add(e *jsonschema.ValidationError, message string) {
	c.details = append(c.details, problem.Detail{Path: pointer(e.InstanceLocation), Message: message})
}

// done sorts, since the library walks maps, and bounds.
func (c *collector) done() []problem.Detail {
	slices.SortFunc(c.details, func(a, b problem.Detail) int {
		return cmp.Or(cmp.Compare(a.Path, b.Path), cmp.Compare(a.Message, b.Message))
	})
	out := slices.Compact(c.details)
	if len(out) > MaxDetails {
		rest := len(out) - MaxDetails + 1
		out = append(out[:MaxDetails-1:MaxDetails-1], problem.Detail{Message: fmt.Sprintf("and %d more", rest)})
	}
	return out
}

// alternatives explains a failed anyOf or oneOf by the first fault of each branch.
func (c *collector) alternatives(e *jsonschema.ValidationError) string {
	if len(e.Causes) == 0 {
		return "matches more than one of the alternatives, exactly one is allowed"
	}
	var parts []string
	for i, cause := range e.Causes {
		if i == maxBranch {
			parts = append(parts, "…")
			break
		}
		branch := collector{schema: c.schema, base: c.base, instance: c.instance}
		branch.collect(cause)
		d := branch.done()
		if len(d) == 0 {
			continue
		}
		text := d[0].Message
		if rel := strings.TrimPrefix(d[0].Path, pointer(e.InstanceLocation)); rel != "" {
			text = rel + " " + text
		}
		parts = append(parts, fmt.Sprintf("(%d) %s", i+1, clip(text, 200)))
	}
	return fmt.Sprintf("matches none of the %d alternatives: %s", len(e.Causes), strings.Join(parts, "; "))
}

// messages words one leaf error.
func (c *collector) messages(e *jsonschema.ValidationError, keyword string) []string {
	value, known := c.keywordValue(e)
	instance, _ := lookup(c.instance, pointer(e.InstanceLocation))
	if e.Message == "not allowed" {
		return []string{"is not allowed"}
	}
	if !known {
		return []string{clip(strings.ReplaceAll(e.Message, root, ""), 300)}
	}
	switch keyword {
	case "type":
		return []string{fmt.Sprintf("must be %s, not %s", types(value), kind(instance))}
	case "required":
		return missing(value, instance)
	case "additionalProperties":
		return c.forbidden(e, instance)
	case "enum":
		return []string{"must be one of " + choices(value)}
	case "const":
		return []string{"must be " + text(value)}
	case "not":
		return []string{`must not match the schema under "not"`}
	case "uniqueItems":
		return []string{"must not hold the same item twice"}
	}
	if format, ok := boundFormat(keyword); ok {
		return []string{fmt.Sprintf(format, text(value))}
	}
	return []string{clip(e.Message, 300)}
}

// boundFormat words the keywords whose message is one exact bound.
func boundFormat(keyword string) (string, bool) {
	switch keyword {
	case "minimum":
		return "must be >= %s", true
	case "maximum":
		return "must be <= %s", true
	case "exclusiveMinimum":
		return "must be > %s", true
	case "exclusiveMaximum":
		return "must be < %s", true
	case "multipleOf":
		return "must be a multiple of %s", true
	case "minLength":
		return "must have at least %s characters", true
	case "maxLength":
		return "must have at most %s characters", true
	case "minItems":
		return "must have at least %s items", true
	case "maxItems":
		return "must have at most %s items", true
	case "minProperties":
		return "must have at least %s properties", true
	case "maxProperties":
		return "must have at most %s properties", true
	case "minContains":
		return "must have at least %s items of the kind under \"contains\"", true
	case "maxContains":
		return "must have at most %s items of the kind under \"contains\"", true
	case "pattern":
		return "must match the pattern %s", true
	}
	return "", false
}

// keywordValue returns the value of the failing keyword in our own document.
func (c *collector) keywordValue(e *jsonschema.ValidationError) (any, bool) {
	at, ok := c.ownLocation(e)
	if !ok {
		return nil, false
	}
	v, ok := lookup(c.schema, at)
	// Draft 4: "exclusiveMinimum": true modifies "minimum".
	if _, isBool := v.(bool); ok && isBool && strings.HasPrefix(lastToken(at), "exclusiveM") {
		v, ok = lookup(c.schema, strings.Replace(at, "exclusiveM", "m", 1))
	}
	return v, ok
}

func (c *collector) ownLocation(e *jsonschema.ValidationError) (string, bool) {
	base, fragment, ok := strings.Cut(e.AbsoluteKeywordLocation, "#")
	if c.schema == nil || !ok || base != c.base {
		return "", false
	}
	return pointer(fragment), true
}

func missing(value, instance any) []string {
	names := list(value)
	members := object(instance)
	var out []string
	for _, n := range names {
		name := word(n)
		if _, ok := members[name]; !ok {
			out = append(out, fmt.Sprintf("the required property %q is missing", clip(name, maxName)))
		}
	}
	return out
}

// forbidden names the properties that "additionalProperties": false refuses, and
// those that exist, for whoever has to correct the value.
func (c *collector) forbidden(e *jsonschema.ValidationError, instance any) []string {
	at, _ := c.ownLocation(e)
	parent, _ := lookup(c.schema, strings.TrimSuffix(at, "/additionalProperties"))
	s := object(parent)
	properties := object(s["properties"])
	patterns := object(s["patternProperties"])
	members := object(instance)
	var known []string
	for name := range properties {
		known = append(known, clip(name, maxName))
	}
	slices.Sort(known)
	hint := ""
	if len(known) > 0 && len(known) <= maxChoices && len(patterns) == 0 {
		hint = "; allowed are " + strings.Join(known, ", ")
	}
	var out []string
	for name := range members {
		if _, ok := properties[name]; !ok && !matchesAny(patterns, name) {
			out = append(out, fmt.Sprintf("the property %q is not allowed%s", clip(name, maxName), hint))
		}
	}
	return out
}

func matchesAny(patterns map[string]any, name string) bool {
	for p := range patterns {
		if matched(p, name) {
			return true
		}
	}
	return false
}

func types(v any) string {
	if s := word(v); s != "" {
		return s
	}
	var names []string
	for _, t := range list(v) {
		names = append(names, word(t))
	}
	return strings.Join(names, " or ")
}

func choices(v any) string {
	all := list(v)
	var parts []string
	for i, item := range all {
		if i == maxChoices {
			parts = append(parts, fmt.Sprintf("… (%d more)", len(all)-i))
			break
		}
		parts = append(parts, text(item))
	}
	return strings.Join(parts, ", ")
}

// object, list and word are v as what its keyword allows, empty when a schema of
// another draft has something else there.
func object(v any) map[string]any {
	m, ok := v.(map[string]any)
	if !ok {
		return nil
	}
	return m
}

func list(v any) []any {
	l, ok := v.([]any)
	if !ok {
		return nil
	}
	return l
}

func word(v any) string {
	s, ok := v.(string)
	if !ok {
		return ""
	}
	return s
}

// text is a value as JSON, numbers as their author wrote them.
func text(v any) string {
	b, err := rawjson.Marshal(v)
	if err != nil {
		return "?"
	}
	return clip(string(b), maxName)
}

func kind(v any) string {
	switch v.(type) {
	case nil:
		return "null"
	case bool:
		return "boolean"
	case json.Number:
		return "number"
	case string:
		return "string"
	case []any:
		return "array"
	}
	return "object"
}

// pointer turns a location of the library, whose tokens are URL-escaped on top,
// into an RFC 6901 pointer.
func pointer(location string) string {
	if !strings.Contains(location, "%") {
		return location
	}
	tokens := strings.Split(location, "/")
	for i, t := range tokens {
		if u, err := url.PathUnescape(t); err == nil {
			tokens[i] = u
		}
	}
	return strings.Join(tokens, "/")
}

func lastToken(location string) string {
	return pointer(location[strings.LastIndexByte(location, '/')+1:])
}

// lookup follows an RFC 6901 pointer through decoded JSON.
func lookup(v any, ptr string) (any, bool) {
	if ptr == "" {
		return v, true
	}
	for token := range strings.SplitSeq(strings.TrimPrefix(ptr, "/"), "/") {
		switch d := v.(type) {
		case map[string]any:
			next, ok := d[unescapeToken(token)]
			if !ok {
				return nil, false
			}
			v = next
		case []any:
			i, err := strconv.Atoi(token)
			if err != nil || i < 0 || i >= len(d) {
				return nil, false
			}
			v = d[i]
		default:
			return nil, false
		}
	}
	return v, true
}
