package mock

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"

	"agentos/internal/rawjson"
)

var (
	word       = regexp.MustCompile(`[a-z0-9]+`)
	identifier = regexp.MustCompile(`\b[A-Z]+-[0-9]+\b`)
)

// understand finds the tool call that a plain sentence asks for, so that a first
// try without a model and without directives shows a call. It does not pretend to
// understand language. These are all its rules:
//
//   - Every word of the tool's name occurs in the sentence, in any case and with any
//     ending ("orders", "cancelled"); two neighbouring words may make up one of the
//     name ("look up"). Of several such tools the one with most words wins, then the
//     one offered first.
//   - Each required property is a plain string. "id" and "…_id" take the identifiers
//     of the sentence, such as A-1002, in their order.
//   - At most one more may be required: it takes what follows the first comma, or the
//     whole sentence, without the full stop.
//
// A tool that does not fit is not called. It is never asked after a tool's result.
func understand(sentence string, tools []json.RawMessage) (call, bool) {
	words := word.FindAllString(strings.ToLower(sentence), -1)
	for i := len(words) - 1; i > 0; i-- {
		words = append(words, words[i-1]+words[i])
	}
	var best call
	most := 0
	for _, tool := range tools {
		name, _ := rawjson.Text(rawjson.Get(tool, "name"))
		parts := word.FindAllString(strings.ToLower(name), -1)
		if len(parts) <= most || !mentions(words, parts) {
			continue
		}
		if arguments, ok := fill(rawjson.Get(tool, "parameters"), sentence); ok {
			best, most = call{name: name, arguments: arguments}, len(parts)
		}
	}
	return best, most > 0
}

func mentions(words, parts []string) bool {
	for _, part := range parts {
		stem := strings.TrimSuffix(part, "s")
		if len(stem) < 3 || !slices.ContainsFunc(words, func(w string) bool { return strings.HasPrefix(w, stem) }) {
			return false
		}
	}
	return true
}

// fill makes the required arguments of a tool with these parameters.
func fill(parameters json.RawMessage, sentence string) (json.RawMessage, bool) {
	properties := rawjson.Get(parameters, "properties")
	required, err := rawjson.Elements(rawjson.Get(parameters, "required"))
	if err != nil {
		required = nil // nothing is required
	}
	ids := identifier.FindAllString(sentence, -1)
	free := true
	var arguments []rawjson.Field
	for _, r := range required {
		name, _ := rawjson.Text(r)
		property := rawjson.Get(properties, name)
		kind, _ := rawjson.Text(rawjson.Get(property, "type"))
		if kind != "string" || rawjson.Get(property, "enum") != nil || rawjson.Get(property, "const") != nil {
			return nil, false
		}
		var value string
		switch isID := name == "id" || strings.HasSuffix(name, "_id"); {
		case isID && len(ids) > 0:
			value, ids = ids[0], ids[1:]
		case !isID && free:
			value, free = remark(sentence), false
		default:
			return nil, false
		}
		arguments = append(arguments, rawjson.Field{Name: name, Value: rawjson.Quote(value)})
	}
	return rawjson.Object(arguments), true
}

func remark(sentence string) string {
	if _, after, ok := strings.Cut(sentence, ","); ok {
		sentence = after
	}
	return strings.TrimRight(strings.TrimSpace(sentence), ".")
}
