package archtest

import (
	"go/ast"
	"strings"
	"testing"
)

func TestEveryPackageHasAComment(t *testing.T) {
	t.Parallel()
	comments := map[string]int{}
	for _, f := range source(t) {
		if f.test {
			continue
		}
		comments[f.pkg] += 0
		if f.syntax.Doc == nil {
			continue
		}
		comments[f.pkg]++
		want := "Package " + f.syntax.Name.Name + " "
		if f.syntax.Name.Name == "main" {
			want = "Command "
		}
		if text := f.syntax.Doc.Text(); !strings.HasPrefix(text, want) {
			t.Errorf("%s: the package comment does not begin with %q", f.path, want)
		}
	}
	for pkg, n := range comments {
		if n != 1 {
			t.Errorf("package %s has %d package comments, want 1", pkg, n)
		}
	}
}

func TestEveryExportedNameIsDocumented(t *testing.T) {
	t.Parallel()
	for _, f := range source(t) {
		if f.test {
			continue
		}
		for _, d := range f.syntax.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Name.IsExported() && d.Doc == nil && exportedReceiver(d) {
					t.Errorf("%s: %s has no comment", f.at(d), d.Name.Name)
				}
			case *ast.GenDecl:
				documentedSpecs(t, f, d)
			}
		}
	}
}

// exportedReceiver reports whether fn is a function or the method of an exported
// type.
func exportedReceiver(fn *ast.FuncDecl) bool {
	if fn.Recv == nil {
		return true
	}
	typ := fn.Recv.List[0].Type
	if star, ok := typ.(*ast.StarExpr); ok {
		typ = star.X
	}
	switch x := typ.(type) {
	case *ast.IndexExpr:
		typ = x.X
	case *ast.IndexListExpr:
		typ = x.X
	}
	id, ok := typ.(*ast.Ident)
	return !ok || id.IsExported()
}

// documentedSpecs wants a comment on each exported type, and on constants and
// variables or the group they stand in.
func documentedSpecs(t *testing.T, f *file, d *ast.GenDecl) {
	t.Helper()
	for _, spec := range d.Specs {
		switch s := spec.(type) {
		case *ast.TypeSpec:
			if s.Name.IsExported() && s.Doc == nil && (d.Doc == nil || d.Lparen.IsValid()) {
				t.Errorf("%s: type %s has no comment", f.at(s), s.Name.Name)
			}
		case *ast.ValueSpec:
			for _, name := range s.Names {
				if name.IsExported() && d.Doc == nil && s.Doc == nil && s.Comment == nil {
					t.Errorf("%s: %s %s has no comment", f.at(s), d.Tok, name.Name)
				}
			}
		}
	}
}
