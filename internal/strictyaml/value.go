package strictyaml

import (
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Value is one place of a document: a node and the path to it. The value of an
// absent key has no node; its readers return zero values and report nothing, so
// that optional keys need no if.
type Value struct {
	doc  *Document
	node *node
	path string
	key  string
	// holder is the node that lacks this key, for a position.
	holder *node
}

// Present reports whether the place has a node. An empty value (null) is present.
func (v Value) Present() bool { return v.node != nil }

// IsMapping reports whether the place holds a mapping.
func (v Value) IsMapping() bool { return v.node != nil && v.node.kind == mapping }

// IsList reports whether the place holds a list.
func (v Value) IsList() bool { return v.node != nil && v.node.kind == sequence }

// IsText reports whether the place holds a scalar that String reads.
func (v Value) IsText() bool { return v.node != nil && v.node.kind == scalar && !v.node.isNull() }

// Text returns the text of a scalar, "" for everything else; nothing is reported.
func (v Value) Text() string {
	if !v.IsText() {
		return ""
	}
	return v.node.text
}

// Len returns the number of entries of a mapping or a list.
func (v Value) Len() int {
	if v.node == nil {
		return 0
	}
	return len(v.node.fields) + len(v.node.items)
}

// Key returns the last key of the path.
func (v Value) Key() string { return v.key }

// Children returns the values of a mapping or a list, whatever their number.
func (v Value) Children() []Value {
	if v.node == nil {
		return nil
	}
	out := make([]Value, 0, v.Len())
	for _, f := range v.node.fields {
		out = append(out, v.field(f))
	}
	for i := range v.node.items {
		out = append(out, v.item(i))
	}
	return out
}

func (v Value) field(f field) Value {
	return Value{doc: v.doc, node: f.value, path: join(v.path, f.key.text), key: f.key.text}
}

func (v Value) item(i int) Value {
	return Value{doc: v.doc, node: v.node.items[i], path: v.path + "[" + strconv.Itoa(i) + "]"}
}

// Path returns the path, such as "mcp_servers.orders.url".
func (v Value) Path() string { return v.path }

// Problem reports a fault at this place; an absent value points at the mapping
// that lacks it.
func (v Value) Problem(format string, args ...any) {
	n := v.node
	if n == nil {
		n = v.holder
	}
	v.doc.report(n, v.path, format, args...)
}

// Required reports an absent value and returns whether it is present.
func (v Value) Required() bool {
	if v.node == nil {
		v.Problem("is required")
	}
	return v.node != nil
}

// isNull reports whether the author wrote no value, null or ~.
func (n *node) isNull() bool { return n.kind == scalar && n.plain && n.resolved == "!!null" }

// describe names what the author wrote, for "must be …, not …".
func (n *node) describe() string {
	switch {
	case n.kind == mapping:
		return "a mapping"
	case n.kind == sequence:
		return "a list"
	case n.isNull():
		return "empty"
	}
	return quote(n.text)
}

// wrong reports a value of the wrong type.
func (v Value) wrong(want string) {
	if v.node.isNull() {
		v.Problem("has no value; write %s or remove the key", want)
		return
	}
	v.Problem("must be %s, not %s", want, v.node.describe())
}

// String returns the text of a scalar exactly as written.
func (v Value) String() string {
	if v.node == nil {
		return ""
	}
	if !v.IsText() {
		v.wrong("text")
		return ""
	}
	return v.node.text
}

// Matching returns the text of a scalar that the pattern must match as a whole;
// want says in words what is allowed. A text that does not match is reported and
// "" returned.
func (v Value) Matching(pattern *regexp.Regexp, want string) string {
	s := v.String()
	if !v.IsText() {
		return ""
	}
	if loc := pattern.FindStringIndex(s); loc == nil || loc[0] != 0 || loc[1] != len(s) {
		v.Problem("must be %s, not %s", want, quote(s))
		return ""
	}
	return s
}

// OneOf returns a text that must be one of choices, "" when absent or wrong.
func (v Value) OneOf(choices ...string) string {
	s := v.String()
	if !v.IsText() || slices.Contains(choices, s) {
		return s
	}
	if near := Nearest(s, choices); near != "" {
		v.Problem("must be %s, not %s; did you mean %s?", strings.Join(choices, " or "), quote(s), quote(near))
	} else {
		v.Problem("must be %s, not %s", strings.Join(choices, " or "), quote(s))
	}
	return ""
}

// Bool returns true or false as written, and otherwise when absent.
func (v Value) Bool(otherwise bool) bool {
	if v.node == nil {
		return otherwise
	}
	if v.node.kind == scalar && v.node.plain && v.node.resolved == "!!bool" {
		return strings.EqualFold(v.node.text, "true")
	}
	v.wrong("true or false")
	return otherwise
}

// Int returns a whole number between low and high, and otherwise when absent.
func (v Value) Int(low, high, otherwise int64) int64 {
	if v.node == nil {
		return otherwise
	}
	if v.node.kind != scalar || !v.node.plain || !isInteger(v.node.text) {
		v.wrong("a whole number")
		return otherwise
	}
	n, err := strconv.ParseInt(v.node.text, 10, 64)
	if err != nil || n < low || n > high {
		v.Problem("must be between %d and %d, not %s", low, high, quote(v.node.text))
		return otherwise
	}
	return n
}

// isInteger refuses what YAML 1.1 reads in other bases: 012, 0x1F, 1_000.
func isInteger(s string) bool {
	digits := strings.TrimPrefix(s, "-")
	if digits == "" || len(digits) > 1 && digits[0] == '0' {
		return false
	}
	return strings.Trim(digits, "0123456789") == ""
}

// Duration returns a positive duration written like 30s, 5m or 72h that is at
// most limit, and otherwise when absent.
func (v Value) Duration(limit, otherwise time.Duration) time.Duration {
	if v.node == nil {
		return otherwise
	}
	if !v.IsText() {
		v.wrong("a duration such as 30s, 5m or 72h")
		return otherwise
	}
	d, err := time.ParseDuration(v.node.text)
	switch {
	case err != nil:
		v.Problem("must be a duration such as 30s, 5m or 72h, not %s", v.node.describe())
	case d <= 0:
		v.Problem("must be more than zero, not %s", v.node.describe())
	case d > limit:
		v.Problem("must be at most %s, not %s", limit, v.node.describe())
	default:
		return d
	}
	return otherwise
}

// List returns the elements of a sequence of at most limit.
func (v Value) List(limit int) []Value {
	if v.node == nil {
		return nil
	}
	if v.node.kind != sequence {
		v.wrong("a list")
		return nil
	}
	if len(v.node.items) > limit {
		v.Problem("has %d entries, at most %d are allowed", len(v.node.items), limit)
		return nil
	}
	out := make([]Value, len(v.node.items))
	for i := range v.node.items {
		out[i] = v.item(i)
	}
	return out
}

// Entry is one key of a mapping whose keys are names chosen by the author.
type Entry struct {
	Name  string
	Key   Value
	Value Value
}

// Entries returns the entries of a mapping of at most limit in their order.
func (v Value) Entries(limit int) []Entry {
	if v.node == nil {
		return nil
	}
	if v.node.kind != mapping {
		v.wrong("a mapping")
		return nil
	}
	if len(v.node.fields) > limit {
		v.Problem("has %d entries, at most %d are allowed", len(v.node.fields), limit)
		return nil
	}
	out := make([]Entry, len(v.node.fields))
	for i, f := range v.node.fields {
		value := v.field(f)
		key := value
		key.node = f.key
		out[i] = Entry{Name: f.key.text, Key: key, Value: value}
	}
	return out
}

var simpleKey = regexp.MustCompile(`^[A-Za-z0-9_$*?/-]{1,60}$`)

func join(path, key string) string {
	if !simpleKey.MatchString(key) {
		return path + "[" + quote(key) + "]"
	}
	if path == "" {
		return key
	}
	return path + "." + key
}

// Object reads a mapping with fixed keys. Every key that is asked for is known;
// Close reports the rest.
type Object struct {
	v      Value
	fields map[string]field
	known  map[string]bool
	hidden map[string]bool
}

// Object starts reading v as a mapping with fixed keys. A value of another kind
// is reported; the object is then empty and silent.
func (v Value) Object() *Object {
	o := &Object{v: v, fields: map[string]field{}, known: map[string]bool{}, hidden: map[string]bool{}}
	if v.node == nil {
		return o
	}
	if v.node.kind != mapping {
		v.wrong("a mapping")
		o.v.node = nil
		return o
	}
	for _, f := range v.node.fields {
		o.fields[f.key.text] = f
	}
	return o
}

// Get returns the value of key, absent when the mapping lacks it.
func (o *Object) Get(key string) Value {
	o.known[key] = true
	v := Value{doc: o.v.doc, path: join(o.v.path, key), key: key, holder: o.v.node}
	if f, ok := o.fields[key]; ok {
		v.node = f.value
	}
	return v
}

// Valid reports whether there is a mapping to read.
func (o *Object) Valid() bool { return o.v.node != nil }

// Refuse reports key with the message when it is present; it never appears among
// the known keys.
func (o *Object) Refuse(key, message string) {
	o.hidden[key] = true
	if f, ok := o.fields[key]; ok {
		o.v.doc.report(f.key, join(o.v.path, key), "%s", message)
	}
}

// Close reports every key that was neither asked for nor refused.
func (o *Object) Close() {
	if o.v.node == nil {
		return
	}
	known := slices.Sorted(maps.Keys(o.known))
	for _, f := range o.v.node.fields {
		key := f.key.text
		if o.known[key] || o.hidden[key] {
			continue
		}
		path := join(o.v.path, key)
		if near := Nearest(key, known); near != "" {
			o.v.doc.report(f.key, path, "unknown key; did you mean %s?", quote(near))
		} else {
			o.v.doc.report(f.key, path, "unknown key; known keys are %s", strings.Join(known, ", "))
		}
	}
}
