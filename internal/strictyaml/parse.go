// Package strictyaml reads YAML the way a file that guards something must be
// read: nothing is guessed, nothing is ignored, and every fault is reported at
// once with file, line, column, path and advice. It is the only importer of the
// YAML library.
//
// A text field gets the text that its author wrote: no, on, 012, 1.0 and
// 2020-01-01 stay as they are. Unknown keys, duplicate keys, tags and merge keys
// (<<) are refused; merge keys because what wins is easily misread, and here it
// may be a gate. Anchors and aliases share a whole value and are bounded by what
// they expand to.
//
// Reading is two steps: Parse makes a Document, then the caller walks it with
// Value, Object and the typed readers, which collect problems in the Document,
// and asks Err at the end.
package strictyaml

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"gopkg.in/yaml.v3"
)

// Limits of one file.
const (
	// MaxBytes is the largest file read.
	MaxBytes = 1 << 20
	// maxDepth bounds nesting, aliases followed.
	maxDepth = 100
	// maxNodes bounds the values after all aliases are expanded.
	maxNodes = 100_000
)

type kind int

const (
	scalar kind = iota
	mapping
	sequence
)

// node is one value of the file. Aliases are already followed: an anchored value
// is one node that is reachable in several places.
type node struct {
	kind   kind
	line   int
	column int
	// text is a scalar as its author wrote it, without quotes.
	text string
	// plain says that the scalar was written without quotes.
	plain bool
	// resolved is the library's idea of a plain scalar's type, such as "!!int".
	resolved string
	// fields are the entries of a mapping in their order.
	fields []field
	// items are the elements of a sequence.
	items []*node

	// size is the number of nodes and depth their nesting, aliases expanded.
	size  int
	depth int
}

type field struct {
	key   *node
	value *node
}

// Document is a parsed file and the problems found in it so far. It is not safe
// for concurrent use.
type Document struct {
	File     string
	root     *node
	problems Errors
}

// Parse reads one YAML document. The error is of type Errors and means that
// nothing can be read; lesser faults, such as a duplicate key, wait in the
// document for Err, so that they are reported with all others.
func Parse(file string, data []byte) (*Document, error) {
	if p := precheck(data); p != nil {
		p.File = file
		return nil, Errors{*p}
	}
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	tree, p := load(data)
	if p != nil {
		p.File = file
		return nil, Errors{*p}
	}
	d := &Document{File: file}
	c := converter{doc: d, done: map[*yaml.Node]*node{}, open: map[*yaml.Node]bool{}}
	d.root = c.node(tree, 0)
	if c.fatal {
		return nil, d.problems.sorted()
	}
	return d, nil
}

// Err returns all problems as Errors in the order of the file, or nil.
func (d *Document) Err() error {
	if len(d.problems) == 0 {
		return nil
	}
	return d.problems.sorted()
}

// Root is the value of the whole file.
func (d *Document) Root() Value { return Value{doc: d, node: d.root} }

func (d *Document) report(n *node, path, format string, args ...any) {
	p := Problem{File: d.File, Path: path, Message: fmt.Sprintf(format, args...)}
	if n != nil {
		p.Line, p.Column = n.line, n.column
	}
	d.problems = append(d.problems, p)
}

// precheck refuses what the library would report without a position or handle
// slowly.
func precheck(data []byte) *Problem {
	if len(data) > MaxBytes {
		return &Problem{Message: fmt.Sprintf("the file is larger than %d KiB", MaxBytes>>10)}
	}
	line, column := 1, 1
	for i := 0; i < len(data); {
		r, size := utf8.DecodeRune(data[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			return &Problem{Line: line, Column: column, Message: "the file is not valid UTF-8 here; save it as UTF-8"}
		case r == '\n':
			line, column = line+1, 0
		case r < 0x20 && r != '\t' && r != '\r', r == 0x7f:
			return &Problem{Line: line, Column: column, Message: fmt.Sprintf("control character U+%04X is not allowed", r)}
		case r == '\ufeff' && i == 0:
			column = 0
		}
		i += size
		column++
	}
	return nil
}

// load runs the library, which reports faults by panics of its own kind inside
// and errors outside; a panic that escapes it becomes a problem too.
func load(data []byte) (tree *yaml.Node, p *Problem) {
	defer func() {
		if r := recover(); r != nil {
			tree, p = nil, &Problem{Message: "the file is not valid YAML"}
		}
	}()
	dec := yaml.NewDecoder(bytes.NewReader(data))
	var doc yaml.Node
	if err := dec.Decode(&doc); errors.Is(err, io.EOF) {
		return nil, &Problem{Line: 1, Column: 1, Message: "the file is empty"}
	} else if err != nil {
		return nil, syntaxProblem(err, data)
	}
	var second yaml.Node
	switch err := dec.Decode(&second); {
	case err == nil:
		return nil, &Problem{Line: second.Line, Column: 1, Message: "a second YAML document begins here; one file holds one document"}
	case !errors.Is(err, io.EOF):
		return nil, syntaxProblem(err, data)
	}
	if doc.Kind != yaml.DocumentNode || len(doc.Content) != 1 {
		return nil, &Problem{Line: 1, Column: 1, Message: "the file is empty"}
	}
	return doc.Content[0], nil
}

var libraryLine = regexp.MustCompile(`^line (\d+): (.*)`)

// syntaxProblem finds the position that the library's text gives, and a better
// one when a tab is to blame.
func syntaxProblem(err error, data []byte) *Problem {
	text := strings.TrimPrefix(err.Error(), "yaml: ")
	p := &Problem{Line: 1, Column: 1, Message: text}
	if m := libraryLine.FindStringSubmatch(text); m != nil {
		if n, err := strconv.Atoi(m[1]); err == nil {
			p.Line = n
		}
		p.Message = m[2]
	}
	if strings.Contains(p.Message, "cannot start any token") || strings.Contains(p.Message, "tab character") {
		if line, column, ok := tabIndent(data); ok {
			return &Problem{Line: line, Column: column, Message: "a tab is used to indent; YAML allows only spaces there"}
		}
	}
	p.Message = "invalid YAML: " + p.Message
	return p
}

// tabIndent finds the first line that has a tab before its first character.
func tabIndent(data []byte) (line, column int, ok bool) {
	for i, l := range strings.Split(string(data), "\n") {
		indent := l[:len(l)-len(strings.TrimLeft(l, " \t"))]
		if at := strings.IndexByte(indent, '\t'); at >= 0 && strings.TrimSpace(l) != "" {
			return i + 1, at + 1, true
		}
	}
	return 0, 0, false
}
