// Package archtest holds the rules of the house that a compiler does not know:
// who may import whom, what is documented, which habits stay out, how long things
// may get. It has nothing but tests. It reads the source with the standard parser,
// files of every operating system included, and needs no build.
package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// root is the top of the repository, seen from here.
const root = "../.."

// module begins the path of every package of ours.
const module = "agentos/"

// file is one Go file of the repository.
type file struct {
	// path is relative to the top, with slashes; pkg is its folder.
	path, pkg string
	test      bool
	syntax    *ast.File
	positions *token.FileSet
	lines     int
}

// at is the position of a node in messages.
func (f *file) at(n ast.Node) string {
	return f.path + ":" + strconv.Itoa(f.positions.Position(n.Pos()).Line)
}

// imports are the paths a file imports.
func (f *file) imports(t *testing.T) []string {
	t.Helper()
	var out []string
	for _, spec := range f.syntax.Imports {
		p, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			t.Fatalf("%s: %v", f.at(spec), err)
		}
		out = append(out, p)
	}
	return out
}

// source returns every Go file of the repository.
func source(t *testing.T) []*file {
	t.Helper()
	files, err := parsed()
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < 100 {
		t.Fatalf("found %d Go files; the rules would hold for nothing", len(files))
	}
	return files
}

// parsed reads the source once for all tests, which only look at it.
var parsed = sync.OnceValues(func() (files []*file, err error) {
	positions := token.NewFileSet()
	err = walk(func(name string, content []byte) error {
		if path.Ext(name) != ".go" {
			return nil
		}
		syntax, err := parser.ParseFile(positions, name, content, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		files = append(files, &file{
			path: name, pkg: path.Dir(name), test: strings.HasSuffix(name, "_test.go"), syntax: syntax,
			positions: positions, lines: positions.File(syntax.FileStart).LineCount(),
		})
		return nil
	})
	return files, err
})

// walk calls visit for every file of the repository that people write.
func walk(visit func(name string, content []byte) error) error {
	return filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		switch name := d.Name(); {
		case d.IsDir() && p != root && (strings.HasPrefix(name, ".") && name != ".ci" || name == "testdata" || name == "bin"):
			return fs.SkipDir
		case !d.Type().IsRegular():
			return nil
		}
		rel, err := filepath.Rel(root, p)
		if err != nil {
			return err
		}
		content, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		return visit(filepath.ToSlash(rel), content)
	})
}

// within reports whether pkg is the folder dir or lies below it.
func within(pkg, dir string) bool { return pkg == dir || strings.HasPrefix(pkg, dir+"/") }

// testSupport are folders whose files are test code although their names do not
// say so: the suite of the stores, the helpers of tests, and the measurements.
func testSupport(pkg string) bool {
	return within(pkg, "runtime/store/storetest") || within(pkg, "internal/testenv") || within(pkg, "bench")
}
