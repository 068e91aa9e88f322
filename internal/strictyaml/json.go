package strictyaml

import (
	"encoding/json"
	"regexp"
	"strconv"
	"strings"

	"agentos/internal/rawjson"
)

// jsonNumber is the number of RFC 8259 section 6.
var jsonNumber = regexp.MustCompile(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?$`)

// JSON returns the value as compact JSON: keys in their order, numbers as
// written, and no guess anywhere. A plain scalar is null, true, false or a number
// when JSON spells it so, and otherwise text: 2020-01-01 and no are strings.
// What YAML reads as a number but JSON cannot spell (012, 0x1F, +1, .inf) and
// keys that are no text are reported, and nil returned.
func (v Value) JSON() json.RawMessage {
	if v.node == nil {
		return nil
	}
	before := len(v.doc.problems)
	var b []byte
	b = v.appendJSON(b)
	if len(v.doc.problems) > before {
		return nil
	}
	if err := rawjson.Check(b); err != nil {
		v.Problem("%s", err)
		return nil
	}
	return b
}

func (v Value) appendJSON(b []byte) []byte {
	switch v.node.kind {
	case mapping:
		b = append(b, '{')
		for i, f := range v.node.fields {
			child := v.field(f)
			if !isText(f.key) {
				v.doc.report(f.key, child.path, "a key must be text here; quote it")
			}
			if i > 0 {
				b = append(b, ',')
			}
			b = append(b, rawjson.Quote(f.key.text)...)
			b = append(b, ':')
			b = child.appendJSON(b)
		}
		return append(b, '}')
	case sequence:
		b = append(b, '[')
		for i := range v.node.items {
			if i > 0 {
				b = append(b, ',')
			}
			b = v.item(i).appendJSON(b)
		}
		return append(b, ']')
	case scalar:
	}
	return v.appendScalar(b)
}

func (v Value) appendScalar(b []byte) []byte {
	n := v.node
	switch {
	case isText(n):
		return append(b, rawjson.Quote(n.text)...)
	case n.resolved == "!!null":
		return append(b, "null"...)
	case n.resolved == "!!bool":
		return append(b, strings.ToLower(n.text)...)
	}
	if !jsonNumber.MatchString(n.text) {
		v.Problem("%s is a number in YAML but not in JSON; write it in decimal, or quote it if you mean text", quote(n.text))
		return append(b, "null"...)
	}
	if err := rawjson.Check([]byte(n.text)); err != nil {
		what, _, _ := strings.Cut(err.Error(), " at byte")
		v.Problem("%s", what)
	}
	return append(b, n.text...)
}

// isText reports whether a scalar means its text.
func isText(n *node) bool {
	if !n.plain {
		return true
	}
	// The library takes a number beyond its own range for text.
	if jsonNumber.MatchString(n.text) {
		return false
	}
	switch n.resolved {
	case "!!null", "!!bool", "!!int", "!!float":
		return false
	}
	return true
}

// At follows an RFC 6901 pointer from v as far as it leads, so that a fault in
// the JSON of a value can be shown at its line.
func (v Value) At(pointer string) Value {
	for token := range strings.SplitSeq(strings.TrimPrefix(pointer, "/"), "/") {
		token = strings.ReplaceAll(strings.ReplaceAll(token, "~1", "/"), "~0", "~")
		next, ok := v.child(token)
		if !ok {
			return v
		}
		v = next
	}
	return v
}

func (v Value) child(token string) (Value, bool) {
	if v.node == nil {
		return v, false
	}
	for _, f := range v.node.fields {
		if f.key.text == token {
			return v.field(f), true
		}
	}
	if i, err := strconv.Atoi(token); err == nil && i >= 0 && i < len(v.node.items) {
		return v.item(i), true
	}
	return v, false
}
