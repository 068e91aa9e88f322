// Package secrets holds secret values by name and takes them out of everything
// that leaves the process. It replaces a value, and the forms in which other
// programs echo it (base64, URL- and JSON-escaped), by "[secret:name]". It never
// writes a value anywhere and refuses to know where values come from.
package secrets

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"maps"
	"net/url"
	"slices"
	"strings"

	"agentos/internal/rawjson"
)

// MinLength is the length in bytes below which a value is not redacted: shorter
// ones turn up in ordinary text by chance, and replacing them would make results
// unreadable and tell the value by its absence. Operators are warned at start.
const MinLength = 4

// minEncoded is the length from which the base64 forms inside a longer base64
// text are looked for; below it the fragments are too short to mean anything.
const minEncoded = 8

// Set is a read-only set of secret values. A nil *Set is an empty one.
type Set struct {
	values   map[string]string
	keys     map[string]string
	replacer *strings.Replacer
}

// New returns the set of the named values.
func New(values map[string]string) *Set {
	return build(values, nil)
}

// Guard returns a set that also redacts keys, such as the operator's model
// provider keys. Value does not know them, so no manifest can ask for them.
func (s *Set) Guard(keys map[string]string) *Set {
	if s == nil {
		return build(nil, keys)
	}
	all := map[string]string{}
	for _, m := range []map[string]string{s.keys, keys} {
		maps.Copy(all, m)
	}
	return build(s.values, all)
}

func build(values, keys map[string]string) *Set {
	s := &Set{values: maps.Clone(values), keys: maps.Clone(keys)}
	var pairs []pair
	for _, m := range []map[string]string{s.values, s.keys} {
		for name, value := range m {
			pairs = append(pairs, forms(name, value)...)
		}
	}
	// The replacer takes the first pair that fits, so the longest comes first: a
	// value that contains another one is replaced whole. Names break ties to
	// keep the outcome stable.
	slices.SortFunc(pairs, func(a, b pair) int {
		return cmp.Or(cmp.Compare(len(b.form), len(a.form)), cmp.Compare(a.form, b.form), cmp.Compare(a.mark, b.mark))
	})
	flat := make([]string, 0, 2*len(pairs))
	for _, p := range pairs {
		flat = append(flat, p.form, p.mark)
	}
	if len(flat) > 0 {
		s.replacer = strings.NewReplacer(flat...)
	}
	return s
}

// Value returns the value called name. Keys added with Guard are not found.
func (s *Set) Value(name string) (string, bool) {
	if s == nil {
		return "", false
	}
	v, ok := s.values[name]
	return v, ok
}

// Redact returns text without any value of the set.
func (s *Set) Redact(text string) string {
	if s == nil || s.replacer == nil {
		return text
	}
	return s.replacer.Replace(text)
}

// RedactBytes is Redact for bytes; the argument is not changed.
func (s *Set) RedactBytes(b []byte) []byte {
	if s == nil || s.replacer == nil {
		return b
	}
	return []byte(s.replacer.Replace(string(b)))
}

type pair struct{ form, mark string }

// forms returns the texts under which value may turn up.
func forms(name, value string) []pair {
	mark := "[secret:" + safeName(name) + "]"
	seen := map[string]bool{}
	var out []pair
	add := func(form string) {
		if len(form) >= MinLength && !seen[form] {
			seen[form] = true
			out = append(out, pair{form, mark})
		}
	}
	// A value read from a file often ends with a line break that is cut off
	// before use.
	for _, v := range []string{value, strings.TrimSpace(value)} {
		if len(v) < MinLength {
			continue
		}
		add(v)
		for _, escaped := range []string{url.QueryEscape(v), url.PathEscape(v)} {
			add(escaped)
			add(lowerHex(escaped))
		}
		for _, quoted := range [][]byte{rawjson.Quote(v), htmlSafe(v)} {
			add(string(quoted[1 : len(quoted)-1]))
		}
		for _, enc := range []*base64.Encoding{base64.StdEncoding, base64.URLEncoding} {
			add(enc.EncodeToString([]byte(v)))
			add(enc.WithPadding(base64.NoPadding).EncodeToString([]byte(v)))
			for _, inner := range innerBase64(enc, v) {
				add(inner)
			}
		}
	}
	return out
}

// innerBase64 returns what is always the same of value's base64 when it stands
// inside a longer text, as in an Authorization header with "user:password": one
// form for each of the three positions it can have.
func innerBase64(enc *base64.Encoding, value string) []string {
	if len(value) < minEncoded {
		return nil
	}
	var out []string
	for offset := range 3 {
		text := enc.WithPadding(base64.NoPadding).EncodeToString(append(make([]byte, offset), value...))
		// Characters that also hold bits of the neighbours are left out.
		start := (offset*8 + 5) / 6
		end := (offset + len(value)) * 8 / 6
		out = append(out, text[start:end])
	}
	return out
}

// htmlSafe quotes like encoding/json does by default, which escapes <, > and &.
func htmlSafe(v string) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		return []byte(`""`)
	}
	return b
}

// lowerHex writes the percent escapes of s with small letters.
func lowerHex(s string) string {
	b := []byte(s)
	for i := 0; i+2 < len(b); i++ {
		if b[i] == '%' {
			copy(b[i+1:i+3], strings.ToLower(string(b[i+1:i+3])))
		}
	}
	return string(b)
}

// safeName keeps the mark free of characters that would break the JSON or the
// log line it is put into.
func safeName(name string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '_', r == '-', r == '.':
			return r
		}
		return '_'
	}, name)
}
