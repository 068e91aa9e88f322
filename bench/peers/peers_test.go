package peers

import (
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The lock file says what is installed, not where it comes from: that is for the
// npm of the machine to know.
func TestLockNamesNoHost(t *testing.T) {
	t.Parallel()
	raw, err := files.ReadFile("package-lock.json")
	if err != nil {
		t.Fatal(err)
	}
	var lock struct {
		Packages map[string]struct {
			Version, Resolved, Integrity string
		}
	}
	if err := json.Unmarshal(raw, &lock); err != nil {
		t.Fatal(err)
	}
	if len(lock.Packages) < 50 {
		t.Fatalf("%d packages; nothing would be looked at", len(lock.Packages))
	}
	for name, p := range lock.Packages {
		if p.Resolved != "" {
			t.Errorf("%s comes from %s", name, p.Resolved)
		}
		if name != "" && (p.Version == "" || !strings.HasPrefix(p.Integrity, "sha512-")) {
			t.Errorf("%s is not pinned: %+v", name, p)
		}
	}
	// Pages that ask for money are the only addresses.
	for _, url := range regexp.MustCompile(`"(\w+)": "(?:git\+)?(?:https?|ssh|git)://[^"]*"`).FindAllStringSubmatch(string(raw), -1) {
		if url[1] != "url" {
			t.Errorf("the lock file has %s", url[0])
		}
	}
}

// Every version is exact, in both files, and is the one that the titles tell.
func TestVersions(t *testing.T) {
	t.Parallel()
	var wanted struct {
		Dependencies map[string]string
	}
	var locked struct {
		Packages map[string]struct{ Version string }
	}
	for name, into := range map[string]any{"package.json": &wanted, "package-lock.json": &locked} {
		raw, err := files.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(raw, into); err != nil {
			t.Fatal(err)
		}
	}
	for name, version := range wanted.Dependencies {
		if got := locked.Packages["node_modules/"+name].Version; got != version {
			t.Errorf("%s is %q in package.json and %q in the lock file", name, version, got)
		}
	}
	for name, title := range map[string]string{"ai": "AI SDK ", "@openai/agents": "OpenAI Agents ", "@langchain/langgraph": "LangGraph "} {
		found := false
		for _, p := range All() {
			version, ok := strings.CutPrefix(p.Title, title)
			if !ok {
				continue
			}
			version, _, _ = strings.Cut(version, ",")
			found = true
			if !strings.HasPrefix(wanted.Dependencies[name], version+".") {
				t.Errorf("%q is measured with %s %s", p.Title, name, wanted.Dependencies[name])
			}
		}
		if !found {
			t.Errorf("no peer is called %q", title)
		}
	}
}

// Every peer has its program, says how durable it is, and is told what it is to do.
func TestPeers(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := write(dir); err != nil {
		t.Fatal(err)
	}
	for _, p := range All() {
		if _, err := os.Stat(filepath.Join(dir, p.Name+".mjs")); err != nil {
			t.Error(err)
		}
		if p.Redis == (p.Durability != "") {
			t.Errorf("%s: in Redis %t, durability %q", p.Name, p.Redis, p.Durability)
		}
		cmd, err := p.Serve(dir, Settings{Capability: "approve", InFlight: 64})
		if err != nil {
			t.Fatal(err)
		}
		raw, err := io.ReadAll(cmd.Stdin)
		if err != nil {
			t.Fatal(err)
		}
		var got Settings
		if err := json.Unmarshal(raw, &got); err != nil || got.InFlight != 64 || got.Capability != "approve" {
			t.Errorf("%s is told %s: %v", p.Name, raw, err)
		}
		if want := "node main.mjs " + p.Name + " serve"; strings.Join(cmd.Args, " ") != want || cmd.Dir != dir {
			t.Errorf("%q in %s, want %q", cmd.Args, cmd.Dir, want)
		}
	}
}

// Installing is a matter of npm: it must not happen in the source tree, where the
// packages would be taken for ours.
func TestNothingInstalledHere(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("node_modules"); err == nil {
		t.Error("node_modules is in the source tree; the benchmark does not need it there")
	}
}
