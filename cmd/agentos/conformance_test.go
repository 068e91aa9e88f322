package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"agentos/conformance"
	"agentos/runtime/journal"
)

// kit runs the command as a process of its own, whose servers are processes too,
// and returns its output and exit code. It must leave no file behind.
func kit(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	temp := t.TempDir()
	cmd := exec.CommandContext(t.Context(), "agentos", append([]string{"conformance"}, args...)...)
	cmd.Env = append(os.Environ(), "TMPDIR="+temp, "GORACE=atexit_sleep_ms=0", "NO_PROXY=*")
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(temp); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// The example agent passes its own cases.
func TestConformanceOfTheExample(t *testing.T) {
	t.Parallel()
	junit := filepath.Join(t.TempDir(), "report.xml")
	out, errs, code := kit(t, "--file", "../../conformance.yaml", "--agent", "../../agentos.yaml", "--junit", junit)
	if code != exitOK || errs != "" || !strings.HasSuffix(out, "\n59 checks passed\n") || strings.Contains(out, "FAIL") {
		t.Errorf("exit %d\n%s%s", code, out, errs)
	}
	if raw, err := os.ReadFile(junit); err != nil || !bytes.Contains(raw, []byte(`tests="59" failures="0"`)) {
		t.Errorf("JUnit: %v\n%s", err, raw)
	}
}

// The example agent under every fault: its server is killed at every boundary,
// loses its tools, meets changed tools, racing reviewers and expired holds.
func TestConformanceUnderFaults(t *testing.T) {
	t.Parallel()
	out, errs, code := kit(t, "--file", "../../conformance/testdata/faults.yaml", "--agent", "../../agentos.yaml", "--json")
	var report conformance.Report
	if err := json.Unmarshal([]byte(out), &report); err != nil {
		t.Fatalf("exit %d: %v\n%s", code, err, errs)
	}
	kills := 0
	for _, r := range report.Results {
		if strings.HasPrefix(r.Fault, "kill ") {
			kills++
		}
		for _, c := range r.Checks {
			if !c.OK {
				t.Errorf("%s: %s: expected %s; got %s", r.Title(), c.Name, c.Expected, c.Seen)
			}
		}
	}
	if code != exitOK || kills < 30 {
		t.Errorf("exit %d, killed %d times; want 0 and at least 30", code, kills)
	}
}

// An agent whose gate is missing does not pass: the cases say that it has one.
func TestConformanceFindsAMissingGate(t *testing.T) {
	t.Parallel()
	manifest, err := os.ReadFile("../../agentos.yaml")
	if err != nil {
		t.Fatal(err)
	}
	open := filepath.Join(t.TempDir(), "agentos.yaml")
	if err := os.WriteFile(open, bytes.Replace(manifest, []byte("approve: [cancel_order]"), nil, 1), 0o600); err != nil {
		t.Fatal(err)
	}
	out, errs, code := kit(t, "--file", "../../conformance.yaml", "--agent", open, "--case", "cancel-approved", "--case", "lookup")
	if code != exitFailed || !strings.Contains(out, "  FAIL  status as expected: expected held; got completed") || !strings.Contains(out, "support/lookup: 6 of 6") {
		t.Errorf("exit %d\n%s%s", code, out, errs)
	}
	if strings.Contains(out, "cancel-edited") {
		t.Errorf("a case ran that was not asked for:\n%s", out)
	}
}

// A manifest with faults fails the check that is there for it.
func TestConformanceOfABadManifest(t *testing.T) {
	t.Parallel()
	bad := filepath.Join(t.TempDir(), "agentos.yaml")
	if err := os.WriteFile(bad, []byte("name: x\ncapabilitys: {}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	out, errs, code := kit(t, "--file", "../../conformance.yaml", "--agent", bad)
	if code != exitFailed || !strings.Contains(out, "FAIL  manifest valid") || !strings.Contains(out, `did you mean "capabilities"`) {
		t.Errorf("exit %d\n%s%s", code, out, errs)
	}
}

func TestConformanceUsage(t *testing.T) {
	t.Parallel()
	cases := filepath.Join(t.TempDir(), "conformance.yaml")
	if err := os.WriteFile(cases, []byte("cases:\n  - {capability: c, name: n, input: 1, expcet: failed}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		args []string
		want string
	}{
		"faulty cases":  {[]string{"--file", cases}, cases + `:2:40: cases[0].expcet: unknown key; did you mean "expect"?`},
		"no file":       {[]string{"--file", "nowhere.yaml"}, "the case file cannot be read"},
		"unknown case":  {[]string{"--file", "../../conformance.yaml", "--case", "x"}, `no case "x" in ../../conformance.yaml; it has: lookup, cancel-approved`},
		"two targets":   {[]string{"--agent", "a.yaml", "--url", "http://127.0.0.1:1"}, "give --agent or --url, not both"},
		"argument":      {[]string{"x"}, `unexpected argument "x"`},
		"no server":     {[]string{"--url", "http://127.0.0.1:1", "--file", "../../conformance.yaml"}, "list the agents"},
		"no server URL": {[]string{"--url", "nowhere", "--file", "../../conformance.yaml"}, "is no address of a server"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out, errs bytes.Buffer
			code := execute(t.Context(), stdio{in: strings.NewReader(""), out: &out, err: &errs}, noEnv, append([]string{"conformance"}, test.args...))
			want := exitUsage
			if name == "no server" {
				want = exitFailed
			}
			if code != want || !strings.Contains(errs.String(), test.want) || out.Len() > 0 {
				t.Errorf("exit %d, want %d\n%s%s", code, want, &out, &errs)
			}
		})
	}
}

// The kit names the entries of the journal without importing it.
func TestConformanceKnowsEveryEntry(t *testing.T) {
	t.Parallel()
	want := []journal.Type{
		journal.RunCreated, journal.ModelAnswered, journal.CallStarted, journal.CallFinished, journal.HoldOpened, journal.HoldDecided,
		journal.HoldClosed, journal.RunRecovered, journal.RunCompleted, journal.RunFailed, journal.RunCancelled,
	}
	var got []journal.Type
	for _, e := range conformance.Entries() {
		got = append(got, journal.Type(e))
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
