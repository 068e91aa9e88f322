package inbox

import (
	"bytes"
	"encoding/json"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"agentos/internal/problem"
	"agentos/internal/rawjson"
	"agentos/internal/visible"
)

// A form edits an object of which the schema is known. It is made by the server
// and read by the server: what a person did not touch keeps its bytes, and what
// they wrote goes in as the JSON they wrote. No number is ever decoded.

// kind is how a value is edited.
type kind string

// The kinds. What fits no other is edited as JSON.
const (
	kindText   kind = "text"
	kindNumber kind = "number"
	kindChoice kind = "choice"
	kindJSON   kind = "json"
	kindGroup  kind = "group"
)

// Limits of a form. What is larger is edited as JSON as a whole.
const (
	maxFields  = 200
	maxNesting = 4
	maxChoices = 100
	maxRefs    = 16
)

// field is one control, or a group of them for a nested object.
type field struct {
	// Control is the name of the control in the form.
	Control string
	// Name is the member of the object, Path its JSON pointer (RFC 6901).
	Name, Path string
	Kind       kind
	// Type and Help tell what is expected, from the schema.
	Type, Help string
	Required   bool
	// Text is what the control shows.
	Text    string
	Choices []choice
	Fields  []*field
	Fault   string
	// LeftOut says that the member is there and shall not be sent.
	LeftOut bool

	// was is the value the form was made for, nil when it had none, and shown the
	// text that the control had then.
	was   json.RawMessage
	shown string
}

// choice is one value of an enum.
type choice struct {
	// Value is the value as JSON, "" leaves the member out.
	Value    string
	Selected bool
}

// Present reports whether the value had the member when the form was made.
func (c *field) Present() bool { return c.was != nil }

// Rows is how high a text control is.
func (c *field) Rows() int {
	const width, most = 70, 16
	rows := 0
	for l := range strings.SplitSeq(c.Text, "\n") {
		rows += 1 + len(l)/width
	}
	return min(rows, most)
}

// form is a form for one object.
type form struct {
	Fields []*field
	// Digest ties what is posted to the schema and value the form was made for.
	Digest string
	value  json.RawMessage
	root   json.RawMessage
	count  int
}

// newForm makes a form for the object value, which may be empty, or nil when the
// schema does not describe an object or describes too large a one.
func newForm(schema, value json.RawMessage) *form {
	if len(value) == 0 {
		value = json.RawMessage("{}")
	}
	if rawjson.Check(value) != nil || rawjson.Kind(value) != "object" || len(schema) > 0 && rawjson.Check(schema) != nil {
		return nil
	}
	f := &form{value: value, root: schema, Digest: rawjson.Digest(schema, value)}
	f.Fields = f.fields(schema, value, "", "f", 0)
	if f.count == 0 || f.count > maxFields {
		return nil
	}
	return f
}

// fields makes the controls of an object: members it has in its order, then those
// that the schema knows besides.
func (f *form) fields(schema, value json.RawMessage, path, control string, depth int) []*field {
	schema = f.resolve(schema)
	properties, _ := rawjson.Fields(rawjson.Get(schema, "properties")) //nolint:errcheck // without any there are no controls for absent members
	members, err := rawjson.Fields(value)
	if err != nil && value != nil {
		return nil
	}
	required := texts(rawjson.Get(schema, "required"))
	var out []*field
	add := func(name string, sub, was json.RawMessage) {
		if f.count++; f.count > maxFields {
			return
		}
		c := &field{
			Control: control + "." + strconv.Itoa(len(out)), Name: name, Path: path + "/" + pointer(name),
			Required: slices.Contains(required, name), was: was,
		}
		f.fill(c, sub, depth)
		c.shown = c.Text
		out = append(out, c)
	}
	for _, m := range members {
		add(m.Name, rawjson.Get(rawjson.Get(schema, "properties"), m.Name), m.Value)
	}
	for _, p := range properties {
		if !slices.ContainsFunc(members, func(m rawjson.Field) bool { return m.Name == p.Name }) {
			add(p.Name, p.Value, nil)
		}
	}
	return out
}

// fill decides how a member is edited and what its control shows.
func (f *form) fill(c *field, schema json.RawMessage, depth int) {
	schema = f.resolve(schema)
	c.Type, c.Help = describe(schema)
	choices := enum(schema)
	typ, _ := rawjson.Text(rawjson.Get(schema, "type"))
	has := rawjson.Kind(c.was)
	plain, isText := rawjson.Text(c.was)
	switch {
	case len(choices) > 0 && len(choices) <= maxChoices && (c.was == nil || slices.Contains(choices, string(c.was))):
		c.Kind = kindChoice
		c.offer(choices)
	case (typ == "string" || typ == "" && isText) && (c.was == nil || isText && survives(plain)):
		c.Kind, c.Text = kindText, plain
	case (typ == "integer" || typ == "number" || typ == "" && has == "number") && (c.was == nil || has == "number"):
		c.Kind, c.Text = kindNumber, string(c.was)
	case typ == "object" && len(rawjson.Get(schema, "properties")) > 0 && depth < maxNesting && (c.was == nil || has == "object"):
		c.Kind = kindGroup
		c.Fields = f.fields(schema, c.was, c.Path, c.Control, depth+1)
	default:
		c.Kind = kindJSON
		if c.was != nil {
			c.Text = visible.JSON(c.was, "")
		}
	}
}

// offer fills the choices of an enum.
func (c *field) offer(values []string) {
	if c.was == nil {
		c.Choices = append(c.Choices, choice{Selected: true})
	}
	for _, v := range values {
		c.Choices = append(c.Choices, choice{Value: v, Selected: c.was != nil && v == string(c.was)})
	}
	c.Text = string(c.was)
}

// survives reports whether a text comes back from a browser as it was sent there:
// controls and carriage returns do not, and what cannot be seen cannot be edited.
func survives(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r != '\n' && visible.Hidden(r) })
}

// resolve follows references inside the schema.
func (f *form) resolve(schema json.RawMessage) json.RawMessage {
	for range maxRefs {
		ref, ok := rawjson.Text(rawjson.Get(schema, "$ref"))
		if !ok {
			return schema
		}
		path, ok := strings.CutPrefix(ref, "#")
		if !ok {
			return nil
		}
		schema = f.root
		for step := range strings.SplitSeq(strings.TrimPrefix(path, "/"), "/") {
			if path == "" {
				break
			}
			if plain, err := url.PathUnescape(step); err == nil {
				step = plain
			}
			schema = rawjson.Get(schema, strings.NewReplacer("~1", "/", "~0", "~").Replace(step))
		}
	}
	return nil
}

// describe tells what a schema expects, in a few words.
func describe(schema json.RawMessage) (typ, help string) {
	help, _ = rawjson.Text(rawjson.Get(schema, "description"))
	if help == "" {
		help, _ = rawjson.Text(rawjson.Get(schema, "title"))
	}
	raw := rawjson.Get(schema, "type")
	var words []string
	if t := strings.Join(texts(raw), " or "); t != "" {
		words = append(words, t)
	}
	if format, ok := rawjson.Text(rawjson.Get(schema, "format")); ok {
		words = append(words, format)
	}
	for _, limit := range []struct{ key, word string }{
		{"minimum", "at least "},
		{"exclusiveMinimum", "more than "},
		{"maximum", "at most "},
		{"exclusiveMaximum", "less than "},
		{"minLength", "length at least "},
		{"maxLength", "length at most "},
		{"pattern", "pattern "},
	} {
		if v := rawjson.Get(schema, limit.key); len(v) > 0 && rawjson.Kind(v) != "boolean" {
			words = append(words, limit.word+string(v))
		}
	}
	return strings.Join(words, ", "), help
}

// texts are the strings of raw, a list of strings or one.
func texts(raw json.RawMessage) []string {
	if s, ok := rawjson.Text(raw); ok {
		return []string{s}
	}
	elements, err := rawjson.Elements(raw)
	if err != nil {
		return nil
	}
	var out []string
	for _, e := range elements {
		if s, ok := rawjson.Text(e); ok {
			out = append(out, s)
		}
	}
	return out
}

// enum are the values a schema allows, as JSON, when it lists them.
func enum(schema json.RawMessage) []string {
	if typ, _ := rawjson.Text(rawjson.Get(schema, "type")); typ == "boolean" {
		return []string{"true", "false"}
	}
	elements, err := rawjson.Elements(rawjson.Get(schema, "enum"))
	if err != nil {
		return nil
	}
	out := make([]string, len(elements))
	for i, e := range elements {
		out[i] = string(bytes.TrimSpace(e))
	}
	return out
}

// pointer escapes a name for a JSON pointer.
func pointer(name string) string { return strings.NewReplacer("~", "~0", "/", "~1").Replace(name) }

// read takes what was posted, shows it in the controls, and returns the object as
// it is now: members that were not touched in their old bytes and order, then new
// ones. Faults point at what cannot be read; the schema is not looked at.
func (f *form) read(post url.Values) (json.RawMessage, []problem.Detail) {
	var faults []problem.Detail
	out := readFields(f.Fields, post, &faults)
	if len(faults) == 0 && !touched(f.Fields) {
		return f.value, nil
	}
	return rawjson.Object(out), faults
}

func readFields(fields []*field, post url.Values, faults *[]problem.Detail) []rawjson.Field {
	var out []rawjson.Field
	for _, c := range fields {
		value := c.read(post, faults)
		if c.Fault != "" {
			*faults = append(*faults, problem.Detail{Path: c.Path, Message: c.Fault})
		}
		if value != nil {
			out = append(out, rawjson.Field{Name: c.Name, Value: value})
		}
	}
	return out
}

// read returns the value of one member, nil to leave it out.
func (c *field) read(post url.Values, faults *[]problem.Detail) json.RawMessage {
	c.LeftOut = c.Present() && !c.Required && post.Get(c.Control+".out") != ""
	if c.Kind == kindGroup {
		return c.readGroup(post, faults)
	}
	if _, posted := post[c.Control]; posted {
		// Browsers send line breaks as CR LF (HTML, form submission).
		c.Text = strings.ReplaceAll(post.Get(c.Control), "\r\n", "\n")
	}
	for i := range c.Choices {
		c.Choices[i].Selected = c.Choices[i].Value == c.Text
	}
	switch {
	case c.LeftOut:
		return nil
	case c.Present() && c.Text == c.shown:
		return c.was
	case c.Text == "" && !c.Present():
		return nil // an empty text must be written as JSON: nothing is added unasked
	}
	return c.parse()
}

// parse makes JSON of what somebody wrote.
func (c *field) parse() json.RawMessage {
	word := strings.TrimSpace(c.Text)
	raw := json.RawMessage(word)
	switch c.Kind {
	case kindText:
		return rawjson.Quote(c.Text)
	case kindNumber:
		if rawjson.Check(raw) != nil || rawjson.Kind(raw) != "number" {
			c.Fault = "is not a number as JSON writes them, such as 12 or -0.5"
		}
	case kindChoice:
		if !slices.ContainsFunc(c.Choices, func(o choice) bool { return o.Value == c.Text }) {
			c.Fault = "is not one of the choices"
		}
	case kindJSON:
		if err := rawjson.Check(raw); err != nil {
			c.Fault = "is not JSON: " + err.Error()
		}
	case kindGroup:
	}
	if c.Fault != "" {
		return nil
	}
	compact, err := rawjson.Compact(raw)
	if err != nil {
		c.Fault = "is not JSON: " + err.Error()
	}
	return compact
}

func (c *field) readGroup(post url.Values, faults *[]problem.Detail) json.RawMessage {
	inner := readFields(c.Fields, post, faults)
	switch {
	case c.LeftOut:
		return nil
	case !touched(c.Fields):
		return c.was
	}
	return rawjson.Object(inner)
}

// touched reports whether any control says something other than when it was made.
func touched(fields []*field) bool {
	return slices.ContainsFunc(fields, func(c *field) bool {
		return c.LeftOut || c.Text != c.shown || c.Fault != "" || touched(c.Fields)
	})
}
