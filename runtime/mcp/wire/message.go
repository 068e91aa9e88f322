// Package wire carries JSON-RPC messages to and from one MCP server: over the
// standard streams of a child process and over streamable HTTP (MCP revision
// 2025-11-25, "Transports"). It knows messages, ids, lines and event streams,
// bounds everything a server can send, and says of every request that failed
// whether the server can have seen it. It refuses to know what the messages
// mean; package mcp does.
package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"agentos/internal/rawjson"
)

// MaxMessage is the size in bytes up to which one message of a server is read.
const MaxMessage = 16 << 20

// Codes of JSON-RPC errors that this side sends.
const (
	codeMethodNotFound = -32601
)

type kind int

const (
	request kind = iota
	notification
	response
)

// message is one JSON-RPC message of a server.
type message struct {
	kind   kind
	id     json.RawMessage // as sent; "null" or empty when there is none
	method string
	params json.RawMessage
	result json.RawMessage
	err    *RPCError
}

// RPCError is a JSON-RPC error object.
type RPCError struct {
	Code    int             `json:"code"`
	Message string          `json:"message"`
	Data    json.RawMessage `json:"data,omitempty"`
}

// Error returns "MCP error <code>: <message>".
func (e *RPCError) Error() string { return fmt.Sprintf("MCP error %d: %s", e.Code, e.Message) }

// tolerant decodes what servers really send: whatever a result holds belongs to
// the result, not to the envelope.
func tolerant(b []byte) *jsontext.Decoder {
	return jsontext.NewDecoder(bytes.NewBuffer(b), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
}

// parse reads a line or an event: one message, or a batch of them (revision
// 2025-03-26). It fails for everything that is no JSON-RPC 2.0 message, such as
// the objects that structured loggers print.
func parse(line []byte) ([]message, error) {
	line = repairText(line)
	switch rawjson.Kind(line) {
	case "object":
		m, err := parseOne(line)
		if err != nil {
			return nil, err
		}
		return []message{m}, nil
	case "array":
		return parseBatch(line)
	}
	return nil, errors.New("no JSON-RPC message")
}

func parseBatch(line []byte) ([]message, error) {
	dec := tolerant(line)
	if _, err := dec.ReadToken(); err != nil {
		return nil, err
	}
	var out []message
	for dec.PeekKind() != ']' {
		v, err := dec.ReadValue()
		if err != nil {
			return nil, err
		}
		m, err := parseOne(bytes.Clone(v))
		if err != nil {
			return nil, err
		}
		out = append(out, m)
	}
	if len(out) == 0 {
		return nil, errors.New("an empty batch")
	}
	return out, nil
}

func parseOne(obj []byte) (message, error) {
	fields, err := Members(obj)
	if err != nil {
		return message{}, err
	}
	if string(fields["jsonrpc"]) != `"2.0"` {
		return message{}, errors.New(`no "jsonrpc": "2.0"`)
	}
	m := message{id: fields["id"], params: fields["params"], result: fields["result"]}
	hasID := len(m.id) > 0 && string(m.id) != "null"
	if raw, ok := fields["method"]; ok {
		if json.Unmarshal(raw, &m.method) != nil || m.method == "" {
			return message{}, errors.New("the method is no text")
		}
		m.kind = notification
		if hasID {
			m.kind = request
		}
		return m, nil
	}
	m.kind = response
	if raw, ok := fields["error"]; ok && string(raw) != "null" {
		m.err = parseError(raw)
		return m, nil
	}
	if m.result == nil || !hasID {
		return message{}, errors.New("neither a request nor an answer")
	}
	return m, nil
}

// Members returns the members of an object as servers really send them: of a
// name that is there twice the first counts. It fails for what is no object.
func Members(obj []byte) (map[string]json.RawMessage, error) {
	dec := tolerant(obj)
	if tok, err := dec.ReadToken(); err != nil || tok.Kind() != '{' {
		return nil, errors.New("no JSON object")
	}
	out := map[string]json.RawMessage{}
	for dec.PeekKind() != '}' {
		name, err := dec.ReadToken()
		if err != nil {
			return nil, err
		}
		key := name.String()
		v, err := dec.ReadValue()
		if err != nil {
			return nil, err
		}
		if _, seen := out[key]; !seen {
			out[key] = json.RawMessage(bytes.Clone(v))
		}
	}
	if _, err := dec.ReadToken(); err != nil {
		return nil, err
	}
	if rest := bytes.TrimSpace(obj[dec.InputOffset():]); len(rest) > 0 {
		return nil, errors.New("data after the JSON object")
	}
	return out, nil
}

// parseError reads an error object, and what some servers send in its place: a
// bare text, or a code that is no integer.
func parseError(raw json.RawMessage) *RPCError {
	fields, err := Members(raw)
	if err != nil {
		text := string(raw)
		_ = json.Unmarshal(raw, &text) //nolint:errcheck // the raw text stands if it is no string
		return &RPCError{Message: text}
	}
	e := &RPCError{Data: fields["data"]}
	e.Code, _ = strconv.Atoi(canonicalID(fields["code"])) //nolint:errcheck // 0 says that there was no usable code
	if json.Unmarshal(fields["message"], &e.Message) != nil {
		e.Message = string(fields["message"])
	}
	if string(e.Data) == "null" {
		e.Data = nil
	}
	return e
}

// canonicalID returns the one spelling of an id that is a whole number: 3, 3.0,
// "3" and "3.0" are the same id, since some servers change its type. Other ids
// keep their text, which no id of ours equals.
func canonicalID(raw json.RawMessage) string {
	text := string(raw)
	if rawjson.Kind(raw) == "string" {
		if json.Unmarshal(raw, &text) != nil {
			return string(raw)
		}
	}
	whole, frac, found := strings.Cut(text, ".")
	if found && strings.Trim(frac, "0") != "" {
		return text
	}
	return whole
}

func encodeRequest(id int64, method string, params json.RawMessage) []byte {
	return encode(rawjson.Field{Name: "id", Value: json.RawMessage(strconv.FormatInt(id, 10))},
		rawjson.Field{Name: "method", Value: rawjson.Quote(method)}, rawjson.Field{Name: "params", Value: params})
}

func encodeNotification(method string, params json.RawMessage) []byte {
	return encode(rawjson.Field{Name: "method", Value: rawjson.Quote(method)}, rawjson.Field{Name: "params", Value: params})
}

// encodeReply answers a server's request; its id goes back as it came.
func encodeReply(id, result json.RawMessage, fault *RPCError) []byte {
	if fault == nil {
		return encode(rawjson.Field{Name: "id", Value: id}, rawjson.Field{Name: "result", Value: result})
	}
	obj := rawjson.Object([]rawjson.Field{
		{Name: "code", Value: json.RawMessage(strconv.Itoa(fault.Code))},
		{Name: "message", Value: rawjson.Quote(fault.Message)},
	})
	return encode(rawjson.Field{Name: "id", Value: id}, rawjson.Field{Name: "error", Value: obj})
}

// encode returns a message as one line without its end. Line breaks can only be
// white space between tokens, so compacting makes any value fit one line.
func encode(fields ...rawjson.Field) []byte {
	all := []rawjson.Field{{Name: "jsonrpc", Value: json.RawMessage(`"2.0"`)}}
	for _, f := range fields {
		if f.Value == nil {
			continue
		}
		if bytes.ContainsAny(f.Value, "\r\n") {
			if c, err := rawjson.Compact(f.Value); err == nil {
				f.Value = c
			}
		}
		all = append(all, f)
	}
	return rawjson.Object(all)
}

// repairText makes the text of a message valid Unicode, visibly: bytes that are
// no UTF-8 and escapes of half a surrogate pair become U+FFFD. The byte order
// mark some servers start with goes.
func repairText(b []byte) []byte {
	b = bytes.TrimPrefix(b, []byte("\xef\xbb\xbf"))
	if !utf8.Valid(b) {
		b = bytes.ToValidUTF8(b, []byte("\uFFFD"))
	}
	if bytes.Contains(b, []byte(`\ud`)) || bytes.Contains(b, []byte(`\uD`)) {
		b = repairSurrogates(b)
	}
	return b
}

func repairSurrogates(b []byte) []byte {
	out := bytes.Clone(b)
	for i := 0; i < len(out); i++ {
		if out[i] != '\\' {
			continue
		}
		high := surrogate(out[i:])
		if high == 0 {
			i++ // skips the escaped character, so that \\ud800 is left alone
			continue
		}
		if high < 0xDC00 && i+12 <= len(out) && surrogate(out[i+6:]) >= 0xDC00 {
			i += 11
			continue
		}
		copy(out[i:], `\ufffd`)
		i += 5
	}
	return out
}

// surrogate returns the code unit of a \uD800 to \uDFFF escape at the start of
// b, or 0.
func surrogate(b []byte) uint64 {
	if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
		return 0
	}
	n, err := strconv.ParseUint(string(b[2:6]), 16, 16)
	if err != nil || n < 0xD800 || n > 0xDFFF {
		return 0
	}
	return n
}

// Short returns text for a message to a person: one line, without control
// characters, at most limit bytes.
func Short(text string, limit int) string {
	text = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || (r >= 0x80 && r < 0xa0) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, "\uFFFD"))
	text = strings.Join(strings.Fields(text), " ")
	if len(text) <= limit {
		return text
	}
	cut := limit
	for cut > 0 && !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut] + "…"
}
