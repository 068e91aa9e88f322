package strictyaml

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Problem is one fault at one place of a file.
type Problem struct {
	File string
	// Line and Column count from 1, columns in characters; zero when unknown.
	Line   int
	Column int
	// Path leads to the value, such as "mcp_servers.orders.call_timeout" or
	// "policy.rules[0].effect"; empty for the file as a whole.
	Path    string
	Message string
}

// String returns "file:line:column: path: message" without the unknown parts.
func (p Problem) String() string {
	var b strings.Builder
	b.WriteString(p.File)
	if p.Line > 0 {
		fmt.Fprintf(&b, ":%d", p.Line)
		if p.Column > 0 {
			fmt.Fprintf(&b, ":%d", p.Column)
		}
	}
	if p.File != "" {
		b.WriteString(": ")
	}
	if p.Path != "" {
		b.WriteString(p.Path + ": ")
	}
	b.WriteString(p.Message)
	return b.String()
}

// maxProblems bounds what one file can report.
const maxProblems = 100

// Errors are all problems of a file, in the order of the file.
type Errors []Problem

// Error returns one line per problem.
func (e Errors) Error() string {
	lines := make([]string, len(e))
	for i, p := range e {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

// sorted returns the problems by position, each once, and at most maxProblems.
func (e Errors) sorted() Errors {
	out := slices.Clone(e)
	slices.SortStableFunc(out, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	out = slices.Compact(out)
	if len(out) > maxProblems {
		rest := len(out) - maxProblems
		out = append(out[:maxProblems:maxProblems], Problem{File: out[0].File, Message: fmt.Sprintf("and %d more problems", rest)})
	}
	return out
}
