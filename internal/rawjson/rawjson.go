// Package rawjson handles JSON as exact bytes. Arguments, inputs and model
// messages pass through the product as json.RawMessage; this package checks
// them once (strictly, RFC 8259 with unique names as RFC 7493 asks), looks into
// them without decoding numbers, and encodes without changing a byte. It never
// repairs: what it does not accept it refuses with the byte offset.
package rawjson

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sort"
	"strconv"
	"strings"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Limits of one JSON text. Numbers outside them crash or stall common decoders.
const (
	MaxDepth        = 200
	maxNumberLength = 256
	maxExponent     = 400
)

// Check reports whether data is exactly one JSON value: valid UTF-8 without
// lone surrogates, no duplicate names in an object, at most MaxDepth deep, no
// absurd numbers, nothing after the value. The error names the fault and its
// byte offset.
func Check(data []byte) error {
	dec := jsontext.NewDecoder(bytes.NewBuffer(data)) // a Buffer is read in place
	for first := true; first || dec.StackDepth() > 0; first = false {
		kind := dec.PeekKind()
		if kind == '0' {
			v, err := dec.ReadValue()
			if err != nil {
				return describe(err)
			}
			if err := checkNumber(v); err != nil {
				return fmt.Errorf("%w at byte %d", err, dec.InputOffset())
			}
			continue
		}
		if _, err := dec.ReadToken(); err != nil {
			return describe(err)
		}
		if dec.StackDepth() > MaxDepth {
			return fmt.Errorf("nested deeper than %d levels at byte %d", MaxDepth, dec.InputOffset())
		}
	}
	if _, err := dec.ReadToken(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("data after the JSON value at byte %d", dec.InputOffset())
	}
	return nil
}

func describe(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("the JSON text is empty or ends too early")
	}
	if se := (*jsontext.SyntacticError)(nil); errors.As(err, &se) {
		if errors.Is(err, jsontext.ErrDuplicateName) {
			return fmt.Errorf("duplicate name %q in an object at byte %d", se.JSONPointer.LastToken(), se.ByteOffset)
		}
		return fmt.Errorf("%s at byte %d", strings.TrimPrefix(se.Err.Error(), "jsontext: "), se.ByteOffset)
	}
	return err
}

func checkNumber(v []byte) error {
	if len(v) > maxNumberLength {
		return fmt.Errorf("number longer than %d characters", maxNumberLength)
	}
	if i := bytes.IndexAny(v, "eE"); i >= 0 {
		exp, err := strconv.Atoi(strings.TrimPrefix(string(v[i+1:]), "+"))
		if err != nil || exp > maxExponent || exp < -maxExponent {
			return fmt.Errorf("number with an exponent beyond ±%d", maxExponent)
		}
	}
	return nil
}

// Parse checks data as Check does and returns what it holds, for a library that
// wants values: map[string]any, []any, string, json.Number, bool and nil.
func Parse(data []byte) (any, error) {
	if err := Check(data); err != nil {
		return nil, err
	}
	v, err := value(jsontext.NewDecoder(bytes.NewBuffer(data), jsontext.AllowDuplicateNames(true))) // Check found none
	if err != nil {
		return nil, describe(err)
	}
	return v, nil
}

func value(dec *jsontext.Decoder) (any, error) {
	tok, err := dec.ReadToken()
	if err != nil {
		return nil, err
	}
	switch tok.Kind() {
	case '{':
		out := map[string]any{}
		for dec.PeekKind() != '}' {
			name, err := dec.ReadToken()
			if err != nil {
				return nil, err
			}
			key := name.String() // the token is gone after the next
			if out[key], err = value(dec); err != nil {
				return nil, err
			}
		}
		_, err = dec.ReadToken()
		return out, err
	case '[':
		out := []any{}
		for dec.PeekKind() != ']' {
			v, err := value(dec)
			if err != nil {
				return nil, err
			}
			out = append(out, v)
		}
		_, err = dec.ReadToken()
		return out, err
	case '"':
		return tok.String(), nil
	case '0':
		return json.Number(tok.String()), nil
	case 't', 'f':
		return tok.Bool(), nil
	case 'n', '}', ']', jsontext.KindInvalid:
	}
	return nil, nil
}

// Decode checks data and decodes it into v. Names match exactly, including
// case; unknown names are refused.
func Decode(data []byte, v any) error {
	if err := Check(data); err != nil {
		return err
	}
	err := jsonv2.Unmarshal(data, v, jsonv2.RejectUnknownMembers(true))
	if se := (*jsonv2.SemanticError)(nil); errors.As(err, &se) {
		where := string(se.JSONPointer)
		if where == "" {
			where = "/"
		}
		if errors.Is(err, jsonv2.ErrUnknownName) {
			return fmt.Errorf("%s: unknown field", where)
		}
		return fmt.Errorf("%s: a JSON %s does not fit here", where, kindName(se.JSONKind))
	}
	return err
}

// Unmarshal decodes what this program wrote: names match exactly, including case,
// and none may stand twice, so that a text has one reading only. Unknown names
// are passed over: a newer version may have written them.
func Unmarshal(data []byte, v any) error { return jsonv2.Unmarshal(data, v) }

// Marshal encodes v as compact JSON. Unlike json.Marshal it leaves <, > and &
// alone, so embedded raw values keep every byte but white space.
func Marshal(v any) ([]byte, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(buf.Bytes(), []byte("\n")), nil
}

// Compact returns raw without insignificant white space; every other byte
// stays. raw must be valid JSON.
func Compact(raw []byte) (json.RawMessage, error) {
	var buf bytes.Buffer
	if err := json.Compact(&buf, raw); err != nil {
		return nil, err
	}
	return buf.Bytes(), nil
}

// Kind names the JSON type of raw: object, array, string, number, boolean, null,
// or "" for an empty text. Only the first byte is looked at.
func Kind(raw []byte) string {
	raw = bytes.TrimLeft(raw, " \t\r\n")
	if len(raw) == 0 {
		return ""
	}
	c := raw[0]
	if c == '-' || (c >= '0' && c <= '9') {
		c = '0'
	}
	return kindName(jsontext.Kind(c))
}

// Field is one member of an object, in the order of the text.
type Field struct {
	Name  string
	Value json.RawMessage
}

// Fields returns the members of the object raw in their order; the values are
// parts of raw. It fails when raw is no object or has duplicate names.
func Fields(raw []byte) ([]Field, error) {
	var out []Field
	err := members(raw, func(f Field) bool {
		out = append(out, f)
		return true
	})
	return out, err
}

// Get returns the member called name of the object raw, a part of raw, or nil when
// raw is no object or has none. raw must have passed Check: of duplicate names
// the first would win.
func Get(raw []byte, name string) json.RawMessage {
	var found json.RawMessage
	err := members(raw, func(f Field) bool {
		if f.Name == name {
			found = f.Value
		}
		return found == nil
	}, jsontext.AllowDuplicateNames(true))
	if err != nil {
		return nil
	}
	return found
}

// members calls visit with each member of the object raw until it returns false.
func members(raw []byte, visit func(Field) bool, opts ...jsontext.Options) error {
	dec := jsontext.NewDecoder(bytes.NewBuffer(raw), opts...)
	tok, err := dec.ReadToken()
	if err != nil {
		return describe(err)
	}
	if tok.Kind() != '{' {
		return fmt.Errorf("expected an object, got %s", kindName(tok.Kind()))
	}
	for dec.PeekKind() != '}' {
		name, err := dec.ReadToken()
		if err != nil {
			return describe(err)
		}
		f := Field{Name: name.String()}
		v, err := dec.ReadValue()
		if err != nil {
			return describe(err)
		}
		end := dec.InputOffset()
		f.Value = json.RawMessage(raw[end-int64(len(v)) : end : end])
		if !visit(f) {
			return nil
		}
	}
	if _, err := dec.ReadToken(); err != nil {
		return describe(err)
	}
	return nil
}

// Object encodes fields in the order given.
func Object(fields []Field) json.RawMessage {
	size := 2
	for _, f := range fields {
		size += len(f.Name) + len(f.Value) + 4
	}
	out := append(make([]byte, 0, size), '{')
	for i, f := range fields {
		if i > 0 {
			out = append(out, ',')
		}
		out = appendQuote(out, f.Name)
		out = append(out, ':')
		out = append(out, f.Value...)
	}
	return append(out, '}')
}

// Quote encodes s as a JSON string. Invalid UTF-8 becomes U+FFFD.
func Quote(s string) json.RawMessage {
	return appendQuote(make([]byte, 0, len(s)+len(s)/8+2), s)
}

func appendQuote(to []byte, s string) []byte {
	to, _ = jsontext.AppendQuote(to, strings.ToValidUTF8(s, "\uFFFD")) //nolint:errcheck // cannot fail on valid UTF-8
	return to
}

// Canonical returns raw with the members of every object sorted by name, white
// space removed and strings in their shortest form. Numbers keep their text: 1
// and 1.0 stay different, since a tool may tell them apart.
func Canonical(raw []byte) (json.RawMessage, error) {
	dec := jsontext.NewDecoder(bytes.NewBuffer(raw))
	var buf bytes.Buffer
	if err := canonical(dec, &buf); err != nil {
		return nil, describe(err)
	}
	return buf.Bytes(), nil
}

func canonical(dec *jsontext.Decoder, buf *bytes.Buffer) error {
	switch dec.PeekKind() {
	case '{':
		return canonicalObject(dec, buf)
	case '[':
		if _, err := dec.ReadToken(); err != nil {
			return err
		}
		buf.WriteByte('[')
		for i := 0; dec.PeekKind() != ']'; i++ {
			if i > 0 {
				buf.WriteByte(',')
			}
			if err := canonical(dec, buf); err != nil {
				return err
			}
		}
		buf.WriteByte(']')
		_, err := dec.ReadToken()
		return err
	case '"':
		tok, err := dec.ReadToken()
		if err != nil {
			return err
		}
		buf.Write(Quote(tok.String()))
		return nil
	case 'n', 'f', 't', '0', '}', ']', jsontext.KindInvalid:
	}
	v, err := dec.ReadValue()
	buf.Write(v)
	return err
}

func canonicalObject(dec *jsontext.Decoder, buf *bytes.Buffer) error {
	if _, err := dec.ReadToken(); err != nil {
		return err
	}
	var fields []Field
	for dec.PeekKind() != '}' {
		name, err := dec.ReadToken()
		if err != nil {
			return err
		}
		f := Field{Name: name.String()}
		var value bytes.Buffer
		if err := canonical(dec, &value); err != nil {
			return err
		}
		f.Value = value.Bytes()
		fields = append(fields, f)
	}
	sort.Slice(fields, func(i, j int) bool { return fields[i].Name < fields[j].Name })
	buf.Write(Object(fields))
	_, err := dec.ReadToken()
	return err
}

// Equal reports whether a and b hold the same JSON value, whatever the order of
// names and the white space. Texts that are no JSON are never equal.
func Equal(a, b []byte) bool {
	if bytes.Equal(a, b) {
		return true
	}
	ca, err := Canonical(a)
	if err != nil {
		return false
	}
	cb, err := Canonical(b)
	return err == nil && bytes.Equal(ca, cb)
}

// Digest returns the SHA-256 of the parts as "sha256:<hex>". Each part is hashed
// with its length, so that moving a byte from one part to the next changes it.
func Digest(parts ...[]byte) string {
	h := sha256.New()
	for _, p := range parts {
		fmt.Fprintf(h, "%d:", len(p))
		h.Write(p)
	}
	return "sha256:" + hex.EncodeToString(h.Sum(nil))
}

func kindName(k jsontext.Kind) string {
	switch k {
	case '{', '}':
		return "object"
	case '[', ']':
		return "array"
	case '"':
		return "string"
	case '0':
		return "number"
	case 't', 'f':
		return "boolean"
	case 'n':
		return "null"
	case jsontext.KindInvalid:
	}
	return "value"
}

// MapStrings returns raw with every string, names included, passed through f.
// Everything else keeps its bytes; a text that is no JSON is returned as it is.
func MapStrings(raw []byte, f func(string) string) json.RawMessage {
	switch Kind(raw) {
	case "string":
		if text, ok := Text(raw); ok {
			if mapped := f(text); mapped != text {
				return Quote(mapped)
			}
		}
	case "object":
		fields, err := Fields(raw)
		if err != nil {
			return raw
		}
		for i := range fields {
			fields[i].Name, fields[i].Value = f(fields[i].Name), MapStrings(fields[i].Value, f)
		}
		return Object(fields)
	case "array":
		elements, err := Elements(raw)
		if err != nil {
			return raw
		}
		out := []byte{'['}
		for i, el := range elements {
			if i > 0 {
				out = append(out, ',')
			}
			out = append(out, MapStrings(el, f)...)
		}
		return append(out, ']')
	}
	return raw
}

// Elements returns the elements of the array raw. It fails when raw is no array.
func Elements(raw []byte) ([]json.RawMessage, error) {
	if k := Kind(raw); k != "array" {
		return nil, fmt.Errorf("expected an array, got %s", k)
	}
	var out []json.RawMessage
	if err := json.Unmarshal(raw, &out); err != nil {
		return nil, err
	}
	return out, nil
}

// Text returns the string raw holds, and whether raw is a string.
func Text(raw []byte) (string, bool) {
	if Kind(raw) != "string" {
		return "", false
	}
	b, err := jsontext.AppendUnquote(nil, bytes.TrimSpace(raw))
	if err != nil {
		return "", false
	}
	return string(b), true
}
