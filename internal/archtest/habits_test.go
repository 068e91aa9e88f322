package archtest

import (
	"bytes"
	"go/ast"
	"strings"
	"testing"
)

// Longest file and function of shipped code, in lines.
const (
	maxFile     = 800
	maxFunction = 80
)

// exactJSON are the folders in which JSON stays bytes: a number that becomes a
// float64, or an object that becomes a map, is not what was approved any more.
var exactJSON = []string{"runtime", "holds", "capabilities", "gateway", "conformance", "api", "internal/rawjson"}

// inexact are the places in them where the words are about something else.
var inexact = map[string]string{
	"api/server/observe.go float64":              "bounds of a histogram, as the metrics library takes them",
	"conformance/report.go float64":              "seconds of a JUnit report",
	"runtime/store/redis/cost_test.go float64":   "an average in a log line",
	"holds/policy/facts.go map[string]any":       "what rawjson.Parse gives; numbers are made int64, uint64 or refused",
	"internal/rawjson/rawjson.go map[string]any": "Parse, for the schema library; numbers stay text",
	"runtime/mcp/main_test.go map[string]any":    "the _meta a test server got, looked at and dropped",
	"api/server/openapi_test.go map[string]any":  "extensions as the OpenAPI library gives them",
	"api/api_test.go map[string]any":             "a table of structs by name",
}

func TestJSONStaysExact(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, f := range source(t) {
		for _, dir := range exactJSON {
			if within(f.pkg, dir) {
				inexactWords(t, f, seen)
			}
		}
	}
	for place := range inexact {
		if !seen[place] {
			t.Errorf("the exception %q is not needed any more", place)
		}
	}
}

func inexactWords(t *testing.T, f *file, seen map[string]bool) {
	t.Helper()
	ast.Inspect(f.syntax, func(n ast.Node) bool {
		word := ""
		switch n := n.(type) {
		case *ast.Ident:
			if n.Name == "float64" || n.Name == "float32" {
				word = n.Name
			}
		case *ast.MapType:
			if isName(n.Key, "string") && isAny(n.Value) {
				word = "map[string]any"
			}
		}
		if word == "" {
			return true
		}
		place := f.path + " " + word
		seen[place] = true
		if inexact[place] == "" {
			t.Errorf("%s: %s; keep JSON as json.RawMessage (see internal/rawjson)", f.at(n), word)
		}
		return true
	})
}

func isName(e ast.Expr, name string) bool {
	id, ok := e.(*ast.Ident)
	return ok && id.Name == name
}

func isAny(e ast.Expr) bool {
	i, ok := e.(*ast.InterfaceType)
	return isName(e, "any") || ok && len(i.Methods.List) == 0
}

// TestNoSleep includes tests: one that sleeps is slow when it passes and wrong
// when the machine is busy. Wait for what is expected instead.
func TestNoSleep(t *testing.T) {
	t.Parallel()
	for _, f := range source(t) {
		for _, use := range uses(f) {
			if use.name == "time.Sleep" {
				t.Errorf("%s: time.Sleep", f.at(use.node))
			}
		}
	}
}

// world are the functions by which shipped code would reach around its arguments.
var world = map[string]string{
	"time.Now": "take a clock", "time.After": "take a clock", "time.Since": "take a clock", "time.Until": "take a clock",
	"time.NewTimer": "take a clock", "time.NewTicker": "take a clock", "time.Tick": "take a clock", "time.AfterFunc": "take a clock",
	"os.Exit": "return an error", "os.Getenv": "take a value", "os.LookupEnv": "take a value", "os.Environ": "take a value",
	"context.Background": "take a context", "context.TODO": "take a context",
	"fmt.Print": "take a writer", "fmt.Printf": "take a writer", "fmt.Println": "take a writer",
	"http.DefaultClient": "go through internal/egress", "http.DefaultTransport": "go through internal/egress",
	"http.Get": "go through internal/egress", "http.Post": "go through internal/egress",
}

// opensWorld are the packages that hand the world to the others: the clock, and
// the command with environment, exit code and root context.
var opensWorld = map[string][]string{
	"internal/clock": {"time.Now", "time.After"},
	"cmd/agentos":    {"os.Exit", "os.LookupEnv", "os.Environ", "context.Background"},
}

func TestShippedCodeTakesTheWorldAsArgument(t *testing.T) {
	t.Parallel()
	for _, f := range source(t) {
		if f.test || testSupport(f.pkg) {
			continue
		}
		for _, use := range uses(f) {
			advice := world[use.name]
			for _, allowed := range opensWorld[f.pkg] {
				if allowed == use.name {
					advice = ""
				}
			}
			if advice != "" {
				t.Errorf("%s: %s; %s", f.at(use.node), use.name, advice)
			}
		}
		for _, d := range f.syntax.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && fn.Name.Name == "init" {
				t.Errorf("%s: init; make it an explicit step", f.at(fn))
			}
		}
	}
}

// use is a qualified name such as time.Now, with the package as it is imported.
type use struct {
	name string
	node ast.Node
}

func uses(f *file) []use {
	local := map[string]string{} // name in the file → last part of the path
	for _, spec := range f.syntax.Imports {
		p := strings.Trim(spec.Path.Value, `"`)
		last := p[strings.LastIndex(p, "/")+1:]
		name := last
		if spec.Name != nil {
			name = spec.Name.Name
		}
		switch p {
		case "time", "os", "context", "fmt", "net/http":
			local[name] = last
		}
	}
	var out []use
	ast.Inspect(f.syntax, func(n ast.Node) bool {
		if sel, ok := n.(*ast.SelectorExpr); ok {
			if id, ok := sel.X.(*ast.Ident); ok && local[id.Name] != "" {
				out = append(out, use{local[id.Name] + "." + sel.Sel.Name, sel})
			}
		}
		return true
	})
	return out
}

func TestSizes(t *testing.T) {
	t.Parallel()
	for _, f := range source(t) {
		if f.lines > maxFile {
			t.Errorf("%s has %d lines, more than %d", f.path, f.lines, maxFile)
		}
		if f.test || testSupport(f.pkg) {
			continue
		}
		for _, d := range f.syntax.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			if n := f.positions.Position(fn.End()).Line - f.positions.Position(fn.Pos()).Line + 1; n > maxFunction {
				t.Errorf("%s: %s has %d lines, more than %d", f.at(fn), fn.Name.Name, n, maxFunction)
			}
		}
	}
}

// TestNothingLeftToDo: what is missing stands in docs/rough-edges.md, where users
// see it.
func TestNothingLeftToDo(t *testing.T) {
	t.Parallel()
	words := [][]byte{[]byte("TO" + "DO"), []byte("FIX" + "ME")}
	err := walk(func(name string, content []byte) error {
		// The function of package context is named where it is forbidden.
		content = bytes.ReplaceAll(content, []byte("context."+string(words[0])), nil)
		content = bytes.ReplaceAll(content, []byte("(Background|"+string(words[0])+")"), nil)
		for _, w := range words {
			if i := bytes.Index(content, w); i >= 0 {
				t.Errorf("%s:%d: %s", name, 1+bytes.Count(content[:i], []byte("\n")), w)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
