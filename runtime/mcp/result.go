package mcp

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"unicode/utf8"

	"agentos/internal/rawjson"
	"agentos/runtime/mcp/wire"
)

// Bounds of what the model is shown of one result.
const (
	// MaxText is the size of a result's text in bytes.
	MaxText = 256 << 10
	// MaxBlocks is how many content blocks are kept.
	MaxBlocks = 64
	// MaxData is the length up to which base64 data stays in a result.
	MaxData = 1 << 10
)

// shape maps an answer to what the model sees (docs: "Results").
func (s *server) shape(reply wire.Reply, tool Tool) Result {
	var res Result
	if reply.Err != nil {
		res = s.protocolError(reply.Err)
	} else {
		res = s.toolResult(reply.Result, tool)
	}
	if len(res.Structured) > MaxText {
		res.Structured, res.Truncated = nil, true
	}
	if len(res.Structured) > 0 && rawjson.Check(res.Structured) != nil {
		// Duplicate names or absurd numbers: shown as text, not as data.
		res.Structured = nil
	}
	if len(res.Text) > MaxText {
		res.Text, res.Truncated = cutText(res.Text), true
	}
	for _, n := range res.Notes {
		s.cfg.Log.Warn("mcp_result_note", slog.String("tool", tool.Name), slog.String("note", n))
	}
	return res
}

func (s *server) protocolError(e *wire.RPCError) Result {
	text := strings.ToValidUTF8(s.cfg.Redact(e.Error()), "\uFFFD")
	data := e.Data
	if data != nil {
		clean, err := rewrite(data, s.cleaner(nil))
		if err != nil {
			clean = nil
		}
		if data = clean; data != nil {
			text += "\n" + string(data)
		}
	}
	return Result{Outcome: Error, ErrorCode: CodeMCPError, MCPError: e.Code, Text: text, Structured: mcpError(e.Code, data)}
}

func mcpError(code int, data json.RawMessage) json.RawMessage {
	fields := []rawjson.Field{{Name: "mcp_error", Value: json.RawMessage(strconv.Itoa(code))}}
	if data != nil {
		fields = append(fields, rawjson.Field{Name: "data", Value: data})
	}
	return rawjson.Object(fields)
}

// content is a tools/call result, read leniently and cleaned.
type content struct {
	structured    json.RawMessage // nil when absent or null
	blocks        []json.RawMessage
	failed        bool
	inputRequired bool
}

func (s *server) toolResult(raw json.RawMessage, tool Tool) Result {
	c := s.readContent(raw)
	if c.inputRequired {
		return Result{
			Outcome: Error, ErrorCode: CodeInputRequired,
			Text: "The server asks for input before it runs the tool, which is not offered here; the tool did not run.",
		}
	}
	res := Result{Outcome: Success}
	if c.failed {
		res.Outcome, res.ErrorCode = Error, CodeToolError
	}
	if c.structured != nil && tool.output != nil && !c.failed {
		if faults := tool.output.Validate(c.structured); len(faults) > 0 {
			res.Notes = append(res.Notes, s.redact(fmt.Sprintf("the structured content does not fit the output schema: %s: %s", faults[0].Path, faults[0].Message)))
		}
	}
	if len(c.blocks) > MaxBlocks {
		left := len(c.blocks) - MaxBlocks
		c.blocks = append(c.blocks[:MaxBlocks:MaxBlocks], textBlock(fmt.Sprintf("[%d more content blocks are left out. Ask for less.]", left)))
		res.Truncated = true
	}
	res.Text, res.Structured = compose(c, tool.wraps)
	switch {
	case res.Text != "":
	case c.failed:
		res.Text = "The tool failed and did not say why."
	default:
		res.Text = "The tool returned no content."
	}
	return res
}

func (s *server) readContent(raw json.RawMessage) content {
	result, err := wire.Members(raw)
	if err != nil {
		// No object: a bare text or list is taken for the content, null for none.
		result = map[string]json.RawMessage{"content": raw}
	}
	c := content{
		blocks:        looseBlocks(result["content"]),
		failed:        string(result["isError"]) == "true" || string(result["isError"]) == `"true"`,
		inputRequired: string(result["resultType"]) == `"input_required"`,
	}
	structured := result["structuredContent"]
	if string(structured) == "null" {
		structured = nil
	}
	withheld := map[string]bool{}
	for i, b := range c.blocks {
		c.blocks[i] = s.clean(b, withheld)
	}
	if structured != nil {
		c.structured = s.clean(structured, withheld)
	}
	return c
}

// looseBlocks reads content as the list it should be, or as the one block or the
// text that some servers send.
func looseBlocks(raw json.RawMessage) []json.RawMessage {
	switch rawjson.Kind(raw) {
	case "array":
		blocks, err := rawjson.Elements(raw)
		if err != nil {
			return nil
		}
		return blocks
	case "string":
		text, _ := rawjson.Text(raw)
		return []json.RawMessage{textBlock(text)}
	case "", "null":
		return nil
	}
	return []json.RawMessage{raw}
}

func textBlock(text string) json.RawMessage {
	return rawjson.Object([]rawjson.Field{{Name: "type", Value: json.RawMessage(`"text"`)}, {Name: "text", Value: rawjson.Quote(text)}})
}

// clean takes secrets and long data out of a value. What cannot even be walked
// is withheld whole.
func (s *server) clean(raw json.RawMessage, withheld map[string]bool) json.RawMessage {
	out, err := rewrite(raw, s.cleaner(withheld))
	if err != nil {
		return rawjson.Quote("[withheld: a value that is no valid JSON]")
	}
	return out
}

// cleaner returns the function that cleans one string. Data that is withheld is
// noted in withheld and then also withheld where it stands under another name.
func (s *server) cleaner(withheld map[string]bool) func(name, text string) string {
	return func(name, text string) string {
		if len(text) > MaxData {
			if withheld[text] || dataName(name) && isBase64(text) {
				if withheld != nil {
					withheld[text] = true
				}
				return withheldNotice(len(text))
			}
			text = withoutDataURIs(text)
		}
		return s.cfg.Redact(text)
	}
}

// dataName reports whether a member of this name holds encoded bytes: "data" of
// image and audio blocks, "blob" of resources, and their usual copies.
func dataName(name string) bool {
	switch strings.ToLower(name) {
	case "data", "blob", "base64", "b64", "b64_json", "image", "audio", "bytes":
		return true
	}
	return false
}

func isBase64(text string) bool {
	for i := range len(text) {
		if !base64Byte(text[i]) && text[i] != '\n' && text[i] != '\r' {
			return false
		}
	}
	return true
}

func base64Byte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' ||
		c == '+' || c == '/' || c == '=' || c == '-' || c == '_'
}

func withheldNotice(encoded int) string {
	return fmt.Sprintf("[withheld: %d bytes of data]", base64.StdEncoding.DecodedLen(encoded))
}

// withoutDataURIs replaces the payload of long "data:…;base64,…" URIs in a text.
func withoutDataURIs(text string) string {
	const mark = ";base64,"
	var out strings.Builder
	for {
		at := strings.Index(text, mark)
		if at < 0 {
			out.WriteString(text)
			return out.String()
		}
		start := at + len(mark)
		end := start
		for end < len(text) && base64Byte(text[end]) {
			end++
		}
		out.WriteString(text[:start])
		if end-start > MaxData {
			out.WriteString(withheldNotice(end - start))
		} else {
			out.WriteString(text[start:end])
		}
		text = text[end:]
	}
}

// compose makes the text and the structured value of a result. Structured
// content is the result; blocks that do not repeat it are kept beside it.
func compose(c content, wraps bool) (string, json.RawMessage) {
	if c.structured == nil {
		return composeBlocks(c.blocks), nil
	}
	value, inner := c.structured, unwrap(c.structured)
	if inner != nil && wraps {
		value = inner
	}
	others := withoutRepeats(c.blocks, c.structured, inner)
	if len(others) == 0 {
		return plainText(value), value
	}
	return string(rawjson.Object([]rawjson.Field{
		{Name: "structuredContent", Value: value}, {Name: "content", Value: list(others)},
	})), value
}

func composeBlocks(blocks []json.RawMessage) string {
	switch len(blocks) {
	case 0:
		return ""
	case 1:
		if text, ok := blockText(blocks[0]); ok {
			return text
		}
	}
	return string(list(blocks))
}

// blockText returns the text of a text block, also of one that forgot its type.
func blockText(block json.RawMessage) (string, bool) {
	kind := rawjson.Get(block, "type")
	if kind != nil && string(kind) != `"text"` {
		return "", false
	}
	return rawjson.Text(rawjson.Get(block, "text"))
}

// unwrap returns v of {"result": v}, and nil for anything else.
func unwrap(structured json.RawMessage) json.RawMessage {
	fields, err := rawjson.Fields(structured)
	if err != nil || len(fields) != 1 || fields[0].Name != "result" {
		return nil
	}
	return fields[0].Value
}

// withoutRepeats drops the text blocks that only repeat the structured content:
// its JSON, the wrapped value, or, for a wrapped list, one block for each
// element.
func withoutRepeats(blocks []json.RawMessage, structured, inner json.RawMessage) []json.RawMessage {
	if elements, err := rawjson.Elements(inner); err == nil && len(elements) == len(blocks) {
		all := true
		for i, b := range blocks {
			text, ok := blockText(b)
			all = all && ok && repeats(text, elements[i])
		}
		if all {
			return nil
		}
	}
	var others []json.RawMessage
	for _, b := range blocks {
		text, ok := blockText(b)
		if ok && (repeats(text, structured) || inner != nil && repeats(text, inner)) {
			continue
		}
		others = append(others, b)
	}
	return others
}

// repeats reports whether a text says the same as a value.
func repeats(text string, value json.RawMessage) bool {
	if s, ok := rawjson.Text(value); ok && s == text {
		return true
	}
	return rawjson.Equal([]byte(text), value)
}

// plainText is how a value reads as a result: a string as itself.
func plainText(value json.RawMessage) string {
	if s, ok := rawjson.Text(value); ok {
		return s
	}
	return string(value)
}

func list(items []json.RawMessage) json.RawMessage {
	out := []byte{'['}
	for i, item := range items {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, item...)
	}
	return append(out, ']')
}

// cutText shortens a text to MaxText and says so, in a way the model can act on.
func cutText(text string) string {
	cut := MaxText
	for cut > 0 && !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut] + fmt.Sprintf(
		"\n[The result was cut: it has %d bytes and the first %d are shown. Ask for less: a filter, a smaller range, the next page.]", len(text), cut)
}
