package archtest

import (
	"flag"
	"fmt"
	"go/ast"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write docs/errors.md anew")

// errorsHead begins docs/errors.md.
const errorsHead = `# Error codes

<!-- Made from internal/problem/codes.go and api/server/status.go by
     go test ./internal/archtest -run TestErrorsDocument -update -->

Every failure has a stable code. A failed request answers
` + "`{\"error\": {\"code\", \"message\", \"details\"?}, \"request_id\", \"hold\"?}`" + `; a failed run has the
same ` + "`error`" + ` object. Programs go by the code; the message says what to change, and may change
itself. A status of — means that the code does not answer requests.
`

// TestErrorsDocument keeps docs/errors.md equal to the codes, their comments and
// their statuses.
func TestErrorsDocument(t *testing.T) {
	t.Parallel()
	var doc strings.Builder
	doc.WriteString(errorsHead)
	var codes, table *file
	for _, f := range source(t) {
		switch f.path {
		case "internal/problem/codes.go":
			codes = f
		case "api/server/status.go":
			table = f
		}
	}
	if codes == nil || table == nil {
		t.Fatal("the codes or the table of statuses are not where they were")
	}
	statuses := statusesOf(t, table)
	for _, d := range codes.syntax.Decls {
		group, ok := d.(*ast.GenDecl)
		if !ok {
			continue
		}
		title, _, _ := strings.Cut(group.Doc.Text(), ".") // the first sentence
		doc.WriteString("\n## " + title + "\n\n| code | status | meaning |\n| --- | --- | --- |\n")
		for _, spec := range group.Specs {
			doc.WriteString(codeRow(t, codes, spec, statuses))
		}
	}
	want := doc.String()
	path := filepath.Join(root, "docs", "errors.md")
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Error("docs/errors.md is not what the codes say; run go test ./internal/archtest -run TestErrorsDocument -update")
	}
}

// codeRow is the line of one constant: Name Code = "code", with the comment
// "Name: meaning."
func codeRow(t *testing.T, f *file, spec ast.Spec, statuses map[string]int) string {
	t.Helper()
	s, ok := spec.(*ast.ValueSpec)
	if !ok || len(s.Names) != 1 || len(s.Values) != 1 {
		t.Fatalf("%s: not one code", f.at(spec))
	}
	name := s.Names[0].Name
	meaning, ok := strings.CutPrefix(strings.TrimSpace(strings.ReplaceAll(s.Doc.Text(), "\n", " ")), name+": ")
	if !ok {
		t.Errorf("%s: the comment of %s does not begin with %q", f.at(spec), name, name+": ")
	}
	literal, ok := s.Values[0].(*ast.BasicLit)
	if !ok {
		t.Fatalf("%s: not a literal", f.at(spec))
	}
	code, err := strconv.Unquote(literal.Value)
	if err != nil {
		t.Fatal(err)
	}
	status := "—"
	if n := statuses[name]; n != 0 {
		status = strconv.Itoa(n)
	}
	return fmt.Sprintf("| `%s` | %s | %s |\n", code, status, meaning)
}

// statusesOf reads the switch of api/server.status: the name of each code and
// what it answers.
func statusesOf(t *testing.T, f *file) map[string]int {
	t.Helper()
	numbers := map[string]int{}
	for n := 100; n < 600; n++ {
		numbers["Status"+strings.NewReplacer(" ", "", "-", "").Replace(http.StatusText(n))] = n
	}
	out := map[string]int{}
	ast.Inspect(f.syntax, func(n ast.Node) bool {
		c, ok := n.(*ast.CaseClause)
		if !ok || len(c.Body) == 0 {
			return true
		}
		ret, ok := c.Body[0].(*ast.ReturnStmt)
		if !ok || len(ret.Results) != 1 {
			t.Fatalf("%s: the case does not return one status", f.at(c))
		}
		status := numbers[selected(ret.Results[0])]
		if status == 0 {
			t.Errorf("%s: not a status of net/http", f.at(ret))
		}
		for _, code := range c.List {
			out[selected(code)] = status
		}
		return true
	})
	if len(out) < 20 {
		t.Fatalf("%s has a table of %d codes", f.path, len(out))
	}
	return out
}

// selected is Name of package.Name.
func selected(e ast.Expr) string {
	if sel, ok := e.(*ast.SelectorExpr); ok {
		return sel.Sel.Name
	}
	return ""
}
