package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"agentos/holds/policy"
	"agentos/internal/rawjson"
	"agentos/internal/schema"
	"agentos/runtime/mcp/wire"
)

// Limits of a tool list. Beyond them the server counts as failed: half a tool
// set would be worse than none.
const (
	maxPages     = 1000
	maxTools     = 5000
	maxListBytes = 64 << 20
)

// toolList is what tools/list gave, in order of name, after the subset.
type toolList struct {
	tools    []Tool
	excluded []string
	warnings []string
}

// readTools reads every page of tools/list.
func (s *server) readTools(ctx context.Context, link wire.Link) (toolList, error) {
	var raw []json.RawMessage
	seen := map[string]bool{}
	params := json.RawMessage(`{}`)
	size := 0
	for page := 1; ; page++ {
		tools, cursor, err := readPage(ctx, link, params)
		if err != nil {
			return toolList{}, fmt.Errorf("page %d: %w", page, err)
		}
		for _, t := range tools {
			size += len(t)
		}
		raw = append(raw, tools...)
		switch {
		case len(raw) > maxTools:
			return toolList{}, fmt.Errorf("more than %d tools", maxTools)
		case size > maxListBytes:
			return toolList{}, fmt.Errorf("more than %d MiB of tools", maxListBytes>>20)
		case cursor == "":
			return s.buildTools(raw), nil
		case seen[cursor]:
			return toolList{}, fmt.Errorf("page %d: the cursor %q came before; the list would never end", page, wire.Short(cursor, 80))
		case page >= maxPages:
			return toolList{}, fmt.Errorf("more than %d pages", maxPages)
		}
		seen[cursor] = true
		params = rawjson.Object([]rawjson.Field{{Name: "cursor", Value: rawjson.Quote(cursor)}})
	}
}

func readPage(ctx context.Context, link wire.Link, params json.RawMessage) (tools []json.RawMessage, cursor string, err error) {
	reply, err := link.Request(ctx, "tools/list", params)
	if err != nil {
		return nil, "", err
	}
	if reply.Err != nil {
		return nil, "", reply.Err
	}
	result, err := wire.Members(reply.Result)
	if err != nil {
		return nil, "", fmt.Errorf("the result cannot be read: %w", err)
	}
	// null is how some servers write an empty list.
	if tools, err = rawjson.Elements(result["tools"]); err != nil && string(result["tools"]) != "null" {
		return nil, "", fmt.Errorf("the tools of the result cannot be read: %w", err)
	}
	cursor, _ = rawjson.Text(result["nextCursor"]) // null ends the list like absence
	return tools, cursor, nil
}

func isMethodNotFound(err error) bool {
	var e *wire.RPCError
	return errors.As(err, &e) && e.Code == -32601
}

// buildTools reads each tool on its own, so that a bad one does not take the
// others with it.
func (s *server) buildTools(raw []json.RawMessage) toolList {
	var l toolList
	seen := map[string]bool{}
	for i, r := range raw {
		t, warnings, err := s.buildTool(r)
		label := fmt.Sprintf("tool %q", wire.Short(t.Name, 100))
		if t.Name == "" {
			label = fmt.Sprintf("tool number %d", i+1)
		}
		switch {
		case err != nil:
			l.excluded = append(l.excluded, label+": "+err.Error())
			continue
		case seen[t.Name]:
			l.warnings = append(l.warnings, label+": listed twice; the first counts")
			continue
		}
		seen[t.Name] = true
		if !s.wanted(t.Name) {
			continue
		}
		for _, w := range warnings {
			l.warnings = append(l.warnings, label+": "+w)
		}
		l.tools = append(l.tools, t)
	}
	slices.SortFunc(l.tools, func(a, b Tool) int { return strings.Compare(a.Name, b.Name) })
	l.warnings = append(l.warnings, s.idle(seen)...)
	return l
}

// idle names the entries of the configuration that mean no tool of the server:
// a misspelt one would do nothing, silently.
func (s *server) idle(offered map[string]bool) []string {
	var out []string
	report := func(key string, patterns []string) {
		for _, p := range patterns {
			used := false
			for name := range offered {
				used = used || s.matches([]string{p}, name)
			}
			if !used {
				out = append(out, fmt.Sprintf("%s: %q means no tool that the server offers", key, p))
			}
		}
	}
	report("tools", s.spec.Tools)
	report("effects.read", s.spec.ReadTools)
	report("effects.idempotent", s.spec.IdempotentTools)
	for _, name := range slices.Sorted(maps.Keys(s.spec.Rename)) {
		if !offered[name] {
			out = append(out, fmt.Sprintf("rename: %q is no tool that the server offers", name))
		}
	}
	return out
}

// wanted reports whether the configured subset lets a tool in.
func (s *server) wanted(name string) bool {
	if s.spec.Tools == nil {
		return true
	}
	return s.matches(s.spec.Tools, name)
}

func (s *server) matches(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return policy.Match(p, s.alias, name) })
}

func (s *server) buildTool(raw json.RawMessage) (t Tool, warnings []string, err error) {
	fields, err := rawjson.Fields(raw)
	if err != nil {
		return t, nil, fmt.Errorf("its definition cannot be read: %w", err)
	}
	def := map[string]json.RawMessage{}
	for _, f := range fields {
		def[f.Name] = f.Value
	}
	name, ok := rawjson.Text(def["name"])
	if !ok || name == "" {
		return t, nil, errors.New("it has no name")
	}
	t = Tool{Server: s.alias, Name: name, Shown: name}
	if shown, ok := s.spec.Rename[name]; ok {
		t.Shown = shown
	}
	if d, ok := rawjson.Text(def["description"]); ok {
		t.Description = s.cfg.Redact(d)
	} else if len(def["description"]) > 0 && string(def["description"]) != "null" {
		warnings = append(warnings, "its description is no text and is left out")
	}
	if t.InputSchema, err = inputSchema(def["inputSchema"]); err != nil {
		return t, nil, err
	}
	t.InputSchema = s.withoutSecrets(t.InputSchema)
	t.Schema, warnings = compile(t.InputSchema, "arguments are not checked", warnings)
	if out := def["outputSchema"]; rawjson.Kind(out) == "object" {
		t.OutputSchema = out
		t.output, warnings = compile(out, "results are not checked", warnings)
		t.wraps = isWrapper(out)
	}
	t.Destructive = hint(def["annotations"], "destructiveHint")
	t.Effect = s.effect(t, def["annotations"])
	t.Digest = rawjson.Digest([]byte(t.Server), []byte(t.Name), []byte(t.Description), t.InputSchema)
	return t, warnings, nil
}

// withoutSecrets keeps every byte of raw unless a secret stands in it.
func (s *server) withoutSecrets(raw json.RawMessage) json.RawMessage {
	if s.cfg.Redact(string(raw)) == string(raw) {
		return raw
	}
	clean, err := rewrite(raw, func(_, text string) string { return s.cfg.Redact(text) })
	if err != nil {
		return json.RawMessage(`{}`)
	}
	return clean
}

// inputSchema returns the schema of the arguments. One that says nothing is {},
// one that no object can satisfy makes the tool unusable.
func inputSchema(raw json.RawMessage) (json.RawMessage, error) {
	switch rawjson.Kind(raw) {
	case "object":
	case "", "null":
		return json.RawMessage(`{}`), nil
	case "boolean":
		if string(raw) == "true" {
			return json.RawMessage(`{}`), nil
		}
		return nil, errors.New("its input schema is false, so nothing can be its arguments")
	default:
		return nil, errors.New("its input schema is no schema")
	}
	types := rawjson.Get(raw, "type")
	if name, ok := rawjson.Text(types); ok && name != "object" {
		return nil, fmt.Errorf("its arguments would have to be of type %s, and arguments are objects", wire.Short(name, 40))
	}
	if list, err := rawjson.Elements(types); err == nil && !slices.ContainsFunc(list, func(r json.RawMessage) bool { return string(r) == `"object"` }) {
		return nil, errors.New("its arguments may be of no type that is an object")
	}
	return raw, nil
}

// compile compiles a schema made by others. What cannot be used is a warning.
func compile(raw json.RawMessage, otherwise string, warnings []string) (*schema.Schema, []string) {
	compiled, err := schema.Compile(raw, schema.Options{Lenient: true})
	if err != nil {
		return nil, append(warnings, otherwise+": "+wire.Short(err.Error(), 300))
	}
	return compiled, append(warnings, compiled.Warnings()...)
}

// isWrapper reports whether a schema describes objects whose only property is
// "result", which is how servers wrap values that are no objects.
func isWrapper(raw json.RawMessage) bool {
	props, err := rawjson.Fields(rawjson.Get(raw, "properties"))
	return err == nil && len(props) == 1 && props[0].Name == "result"
}

// hint reads a boolean annotation; anything but true is false.
func hint(annotations json.RawMessage, name string) bool {
	return string(rawjson.Get(annotations, name)) == "true"
}

// effect is the class of a tool: what the manifest says, then what the server
// says where it is trusted, then once.
func (s *server) effect(t Tool, annotations json.RawMessage) Effect {
	switch {
	case s.matches(s.spec.ReadTools, t.Name):
		return Read
	case s.matches(s.spec.IdempotentTools, t.Name):
		return Idempotent
	case s.spec.TrustHints && hint(annotations, "readOnlyHint") && !t.Destructive:
		return Read
	case s.spec.TrustHints && hint(annotations, "idempotentHint"):
		return Idempotent
	}
	return Once
}
