// Package schema validates JSON against JSON Schema. It is the only importer of
// the schema library and guards its sharp edges: nothing is ever fetched or read
// from disk, sizes are bounded, a panic in the library becomes an error, and
// messages are our own, so that they show exact bounds and never dump a schema.
//
// Validation follows the schema as its author gave it. FunctionParameters, which
// adapts a schema for model providers, is for the wire only.
package schema

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"

	jsonschema "github.com/santhosh-tekuri/jsonschema/v5"

	"agentos/internal/problem"
	"agentos/internal/rawjson"
)

// Limits of one schema. The library resolves references without remembering
// results, so a small schema with many of them can take for ever.
const (
	MaxBytes = 64 << 10
	MaxRefs  = 200
)

const (
	draft2020 = "https://json-schema.org/draft/2020-12/schema"
	draft7    = "http://json-schema.org/draft-07/schema#"
	// root is the address a schema without its own $id gets; nothing is there.
	root = "mem://schema/root.json"
)

// Options say how forgiving Compile is.
type Options struct {
	// Lenient is for schemas written by others, such as those of MCP tools: a
	// regular expression that Go cannot compile (look-ahead, for one) disables
	// only its own keyword and is reported by Warnings.
	Lenient bool
}

// Schema is a compiled JSON Schema, safe for concurrent use.
type Schema struct {
	// mu guards steps, which belongs to compiled and counts one validation.
	mu       sync.Mutex
	steps    *budget
	compiled *jsonschema.Schema
	// doc is the schema as compiled and base its address; messages take exact
	// bounds from it.
	doc      any
	base     string
	warnings []string
}

// Warnings tells what Compile left out of a lenient schema, one sentence each.
func (s *Schema) Warnings() []string { return s.warnings }

// CompileError says why a schema cannot be used.
type CompileError struct {
	// Details point into the schema by JSON pointer (RFC 6901).
	Details []problem.Detail
}

// Error returns all details on one line.
func (e *CompileError) Error() string {
	parts := make([]string, len(e.Details))
	for i, d := range e.Details {
		parts[i] = d.Message
		if d.Path != "" {
			parts[i] = d.Path + ": " + d.Message
		}
	}
	return "invalid JSON Schema: " + strings.Join(parts, "; ")
}

func compileError(format string, args ...any) *CompileError {
	return &CompileError{Details: []problem.Detail{{Message: fmt.Sprintf(format, args...)}}}
}

// Compile reads the schema raw: JSON Schema 2020-12 unless its "$schema" names
// draft 4, 6, 7 or 2019-09. "format" is never asserted from 2019-09 on. Errors
// are of type *CompileError.
func Compile(raw json.RawMessage, o Options) (s *Schema, err error) {
	defer func() {
		if r := recover(); r != nil {
			s, err = nil, compileError("the schema cannot be compiled: %s", clip(fmt.Sprint(r), 200))
		}
	}()
	if len(raw) > MaxBytes {
		return nil, compileError("larger than %d KiB", MaxBytes>>10)
	}
	doc, err := rawjson.Parse(raw)
	if err != nil {
		return nil, compileError("%s", err)
	}
	p := prepare(doc, o)
	if len(p.refs) > MaxRefs {
		return nil, compileError("more than %d references", MaxRefs)
	}
	s = &Schema{steps: &budget{}, doc: doc, warnings: p.warnings}
	s.compiled, err = compile(doc, s.steps)
	if err != nil && o.Lenient && p.assumedDraft {
		// Tuples as draft 7 writes them ("items" with a list), without saying so.
		object(doc)["$schema"] = draft7
		var again error
		if s.compiled, again = compile(doc, s.steps); again == nil {
			err = nil
		}
	}
	if err != nil {
		p.faults = append(p.faults, describeCompile(err, doc)...)
	}
	if len(p.faults) > 0 {
		return nil, &CompileError{Details: p.faults}
	}
	s.base, _, _ = strings.Cut(s.compiled.Location, "#")
	return s, nil
}

func compile(doc any, steps *budget) (*jsonschema.Schema, error) {
	data, err := json.Marshal(doc)
	if err != nil {
		return nil, err
	}
	c := jsonschema.NewCompiler()
	c.RegisterExtension("budget", nil, steps)
	c.LoadURL = func(url string) (io.ReadCloser, error) {
		return nil, &refusedError{url: url}
	}
	if err := c.AddResource(root, bytes.NewReader(data)); err != nil {
		return nil, err
	}
	return c.Compile(root)
}

// refusedError stops every attempt of the library to load a document.
type refusedError struct{ url string }

func (e *refusedError) Error() string {
	return fmt.Sprintf("%q is outside this schema; references are never fetched, copy the definition into $defs", clip(e.url, 200))
}

func describeCompile(err error, doc any) []problem.Detail {
	if refused := (*refusedError)(nil); errors.As(err, &refused) {
		return []problem.Detail{{Message: refused.Error()}}
	}
	if ve := (*jsonschema.ValidationError)(nil); errors.As(err, &ve) {
		c := collector{instance: doc}
		c.collect(ve)
		return c.done()
	}
	text := err.Error()
	if se := (*jsonschema.SchemaError)(nil); errors.As(err, &se) && se.Err != nil {
		text = se.Err.Error()
	}
	text = strings.ReplaceAll(strings.TrimPrefix(text, "jsonschema: "), root, "")
	return []problem.Detail{{Message: clip(text, 300)}}
}

// Validate returns what is wrong with instance, nil when it is valid: at most
// MaxDetails, sorted by path. Paths are JSON pointers (RFC 6901) into the
// instance; for a missing or a forbidden property they point at its object and
// the message names it.
func (s *Schema) Validate(instance json.RawMessage) (details []problem.Detail) {
	defer func() {
		switch recover().(type) {
		case nil:
		case exhausted:
			details = []problem.Detail{{Message: "cannot be validated: the schema asks for too many steps"}}
		default:
			details = []problem.Detail{{Message: "cannot be validated: the schema or the value defeats the validator"}}
		}
	}()
	v, err := rawjson.Parse(instance)
	if err != nil {
		return []problem.Detail{{Message: "invalid JSON: " + err.Error()}}
	}
	err = s.validate(v, baseSteps+stepsPerByte*len(instance))
	if err == nil {
		return nil
	}
	ve := (*jsonschema.ValidationError)(nil)
	if !errors.As(err, &ve) {
		return []problem.Detail{{Message: "cannot be validated: the schema refers to itself without end"}}
	}
	c := collector{schema: s.doc, base: s.base, instance: v}
	c.collect(ve)
	return c.done()
}

func (s *Schema) validate(v any, steps int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.steps.left = steps
	return s.compiled.Validate(v)
}

func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "") + "…"
}
