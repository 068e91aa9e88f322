package archtest

import (
	"slices"
	"strings"
	"testing"
)

// everything marks a package at the top: it may import whatever stands below it.
const everything = "*"

// table says who may import whom among the packages of this module, in shipped
// code. Packages stand from the bottom to the top, and each may import only what
// stands above its own line, so arrows go one way. The test also fails on a
// permission that nobody uses: the table is what is, not what might be.
//
// CONTRIBUTING.md tells the same in prose.
var table = []struct {
	pkg string
	may string
}{
	// Values and bytes. Nothing here knows the network, a store or a run.
	{"internal/clock", ""},
	{"internal/ids", ""},
	{"internal/problem", ""},
	{"internal/rawjson", ""},
	{"internal/visible", ""},
	{"internal/secrets", "internal/rawjson"},
	{"internal/schema", "internal/problem internal/rawjson"},
	{"internal/strictyaml", "internal/rawjson"},
	{"internal/egress", "internal/problem"},

	// The rules, pure.
	{"holds/policy", "internal/rawjson"},
	{"holds", "holds/policy internal/problem internal/rawjson internal/schema"},
	{"holds/policyfile", "holds/policy internal/strictyaml"},
	{"capabilities", "holds/policy holds/policyfile internal/rawjson internal/schema internal/strictyaml"},
	{"platform", "holds/policy holds/policyfile internal/rawjson internal/strictyaml"},
	{"runtime/journal", "holds holds/policy internal/problem internal/rawjson"},

	// The edges: models, tools, stores. None knows another.
	{"gateway", "internal/clock internal/problem internal/rawjson"},
	{"gateway/mock", "gateway internal/clock internal/problem internal/rawjson"},
	{"gateway/openai", "gateway internal/clock internal/problem"},
	{"runtime/mcp/wire", "internal/clock internal/rawjson"},
	{"runtime/mcp", "capabilities holds/policy internal/clock internal/egress internal/problem internal/rawjson internal/schema runtime/mcp/wire"},
	{"runtime/store", "holds internal/problem runtime/journal"},
	{"runtime/store/file", "holds internal/clock internal/problem internal/rawjson runtime/journal runtime/store"},
	{"runtime/store/redis", "holds internal/clock internal/ids internal/problem internal/rawjson runtime/journal runtime/store"},
	{"runtime/store/storetest", "holds internal/problem runtime/journal runtime/store"},

	// What others are told: the audit, and whoever listens.
	{"audit", "holds internal/rawjson runtime/journal runtime/store"},
	{"notify", "audit internal/clock internal/rawjson runtime/journal runtime/store"},

	// The engine.
	{"runtime", "audit capabilities gateway holds holds/policy internal/clock internal/ids internal/problem internal/rawjson internal/schema platform runtime/journal runtime/mcp runtime/store"},

	{"runtime/fsck", "holds internal/clock internal/rawjson runtime/journal runtime/store"},

	// The API: its words, the client, and the server that has the engine behind it.
	{"api", "internal/problem"},
	{"api/client", "api internal/problem internal/rawjson"},
	{"api/auth", "api audit holds/policy internal/clock internal/ids internal/problem internal/rawjson internal/visible runtime/store"},
	{"api/inbox", "api internal/clock internal/ids internal/problem internal/rawjson internal/schema internal/visible"},
	{"api/server", "api api/auth api/inbox capabilities gateway holds holds/policy internal/clock internal/ids internal/problem internal/rawjson internal/schema internal/strictyaml runtime runtime/journal runtime/mcp runtime/store"},

	// The kit speaks HTTP and shares no code with the engine.
	{"conformance", "api api/client internal/clock internal/problem internal/rawjson internal/schema internal/strictyaml"},

	// Programs.
	{"examples/orders", ""},
	{"internal/testenv", ""},
	{"internal/testenv/toolserver", ""},
	{"internal/testenv/browser", ""},
	{"cmd/agentos", everything},
	{"bench/scenario", "internal/clock internal/rawjson"},
	{"bench/floor", "bench/scenario internal/ids internal/rawjson"},
	{"bench/peers", ""},
	{"bench/plot", ""},
	{"bench/chaos", everything},
	{"bench", everything},
}

func TestImportTable(t *testing.T) {
	t.Parallel()
	rank, used := map[string]int{}, map[string]map[string]bool{}
	for i, row := range table {
		rank[row.pkg], used[row.pkg] = i, map[string]bool{}
	}
	for _, f := range source(t) {
		if f.test {
			continue
		}
		if used[f.pkg] == nil {
			t.Errorf("%s: package %s is not in the import table", f.path, f.pkg)
			continue
		}
		for _, p := range f.imports(t) {
			if name, ours := strings.CutPrefix(p, module); ours {
				used[f.pkg][name] = true
			}
		}
	}
	for i, row := range table {
		may := strings.Fields(row.may)
		for name := range used[row.pkg] {
			switch at, known := rank[name]; {
			case !known:
				t.Errorf("%s imports %s, which is not in the import table", row.pkg, name)
			case at >= i:
				t.Errorf("%s imports %s, which stands above it", row.pkg, name)
			case row.may != everything && !slices.Contains(may, name):
				t.Errorf("%s must not import %s", row.pkg, name)
			}
		}
		for _, name := range may {
			if name != everything && !used[row.pkg][name] {
				t.Errorf("%s may import %s and does not; take it out of the table", row.pkg, name)
			}
		}
	}
}

// TestKitIsIndependent includes the tests of the kit: a test that takes a short
// cut through the engine would prove less than it says.
func TestKitIsIndependent(t *testing.T) {
	t.Parallel()
	for _, f := range source(t) {
		if !within(f.pkg, "conformance") {
			continue
		}
		for _, p := range f.imports(t) {
			name, ours := strings.CutPrefix(p, module)
			if ours && (within(name, "runtime") || within(name, "holds") || within(name, "gateway") || name == "api/server") {
				t.Errorf("%s imports %s; the kit shares no code with what it checks", f.path, name)
			}
		}
	}
}

// Pure packages decide from values: they take no context and reach for no world.
func TestPurePackages(t *testing.T) {
	t.Parallel()
	pure := []string{"internal/problem", "internal/rawjson", "internal/schema", "internal/strictyaml", "holds/policy", "holds", "holds/policyfile", "runtime/journal", "capabilities", "platform"}
	world := []string{"context", "crypto/rand", "database/sql", "io/fs", "math/rand", "math/rand/v2", "net", "net/http", "os", "os/exec", "syscall", "agentos/internal/clock", "agentos/internal/ids", "agentos/runtime/store"}
	exceptions := map[string]string{
		"internal/strictyaml os":    "ReadFile reads what Parse is given",
		"internal/strictyaml io/fs": "as for os",
		"capabilities os":           "the digest reads the files it covers",
		"capabilities io/fs":        "as for os",
		"capabilities net":          "ParseIP and SplitHostPort, which open nothing",
	}
	needed := map[string]bool{}
	for _, f := range source(t) {
		if f.test || !slices.Contains(pure, f.pkg) {
			continue
		}
		for _, p := range f.imports(t) {
			if !slices.Contains(world, p) {
				continue
			}
			key := f.pkg + " " + p
			needed[key] = true
			if exceptions[key] == "" {
				t.Errorf("%s imports %s; %s is pure", f.path, p, f.pkg)
			}
		}
	}
	for key := range exceptions {
		if !needed[key] {
			t.Errorf("the exception %q is not needed any more", key)
		}
	}
}

// libraries are the modules of others and the packages that may import them in
// shipped code. Everyone else speaks our types. A module that is not here is not
// used: adding one is a decision, see docs/decisions.
var libraries = []struct {
	path string
	may  string
}{
	{"cel.dev/cel-go", "holds/policy"},
	{"code.dny.dev/ssrf", "internal/egress"},
	{"github.com/chromedp/cdproto", "internal/testenv/browser"},
	{"github.com/chromedp/chromedp", "internal/testenv/browser"},
	{"github.com/go-json-experiment/json", "internal/rawjson runtime/mcp runtime/mcp/wire"}, // the MCP packages rewrite messages token by token
	{"github.com/google/go-cmp", "runtime/store/storetest"},
	{"github.com/labstack/echo", "api/server"},
	{"github.com/mark3labs/mcp-go", "runtime/mcp examples/orders internal/testenv/toolserver"}, // the last two are MCP servers
	{"github.com/oklog/ulid", "internal/ids"},
	{"github.com/prometheus/client_golang", "api/server cmd/agentos bench"}, // they make the registry
	{"github.com/redis/go-redis", "runtime/store/redis bench bench/floor"},  // bench measures the bare library
	{"github.com/santhosh-tekuri/jsonschema", "internal/schema"},
	{"github.com/spf13/cobra", "cmd/agentos"},
	{"golang.org/x/sys", "runtime/mcp/wire"},
	{"golang.org/x/term", "cmd/agentos"},
	{"gopkg.in/yaml.v3", "internal/strictyaml"},
	{"modernc.org/sqlite", "runtime/store/file"},
}

func TestOneImporterPerLibrary(t *testing.T) {
	t.Parallel()
	used := map[string]bool{}
	for _, f := range source(t) {
		if f.test {
			continue
		}
		for _, p := range f.imports(t) {
			if first, _, _ := strings.Cut(p, "/"); !strings.Contains(first, ".") {
				continue // standard library or ours
			}
			i := slices.IndexFunc(libraries, func(l struct{ path, may string }) bool { return within(p, l.path) })
			if i < 0 {
				t.Errorf("%s imports %s, which is in no list of libraries", f.path, p)
				continue
			}
			if !slices.Contains(strings.Fields(libraries[i].may), f.pkg) {
				t.Errorf("%s must not import %s; only %s may", f.path, p, libraries[i].may)
			}
			used[libraries[i].path+" "+f.pkg] = true
		}
	}
	for _, l := range libraries {
		for pkg := range strings.FieldsSeq(l.may) {
			if !used[l.path+" "+pkg] {
				t.Errorf("%s may import %s and does not", pkg, l.path)
			}
		}
	}
}

func TestNoTestLibraryInShippedCode(t *testing.T) {
	t.Parallel()
	for _, f := range source(t) {
		for _, p := range f.imports(t) {
			if strings.HasPrefix(p, "github.com/stretchr/testify") {
				t.Errorf("%s imports testify; use testing and go-cmp", f.path)
			}
			if p == "testing" && !f.test && !testSupport(f.pkg) {
				t.Errorf("%s imports testing", f.path)
			}
		}
	}
}
