package main

import (
	"database/sql"
	"encoding/json"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"agentos/internal/clock"
	"agentos/internal/testenv"
	"agentos/runtime/fsck"
	"agentos/runtime/journal"
	"agentos/runtime/store"
	"agentos/runtime/store/file"
)

// addRun puts a queued run into a store.
func addRun(t *testing.T, s store.Store, id string) {
	t.Helper()
	created, err := journal.Encode(journal.RunCreated, journal.Created{Agent: "a", Capability: "c", Input: json.RawMessage(`{}`), Prompt: "go"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Create(t.Context(), store.Create{RunID: id, Request: "r", Env: "default", Agent: "a", Capability: "c", Entry: created}); err != nil {
		t.Fatal(err)
	}
}

const (
	lostRun   = "r_00000000000000000000000001"
	brokenRun = "r_00000000000000000000000002"
)

// damagedFile is a store file with an index that can be repaired and a journal
// that cannot.
func damagedFile(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "runs.db")
	s, err := file.Open(t.Context(), file.Config{Path: path, Clock: clock.System{}})
	if err != nil {
		t.Fatal(err)
	}
	addRun(t, s, lostRun)
	addRun(t, s, brokenRun)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for _, q := range []string{
		"UPDATE runs SET due = NULL WHERE id = '" + lostRun + "'",
		"UPDATE entries SET type = 'run.\x1b[2Jbogus' WHERE id >> 20 = (SELECT n FROM runs WHERE id = '" + brokenRun + "')",
	} {
		if _, err := db.ExecContext(t.Context(), q); err != nil {
			t.Fatal(err)
		}
	}
	return path
}

func TestFsckReportsAndRepairs(t *testing.T) {
	t.Parallel()
	path := damagedFile(t)
	code, out, errs := call(t, nil, "fsck", "--store", "file:"+path)
	if code != exitFailed || errs != "" {
		t.Errorf("exit %d, %q", code, errs)
	}
	for _, want := range []string{
		"due_missing " + lostRun + ": an unfinished run is not in the due index, so no worker will ever look at it: it is queued\n",
		"journal_invalid " + brokenRun + ": ", "\n2 runs checked, 2 findings, 0 repaired\n",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("the output lacks %q:\n%s", want, out)
		}
	}
	if strings.Contains(out, "\x1b") {
		t.Errorf("the output moves the cursor: %q", out)
	}

	code, out, _ = call(t, map[string]string{"AGENTOS_STORE": "file:" + path}, "fsck", "--repair", "--json")
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if code != exitFailed || len(lines) != 3 {
		t.Fatalf("exit %d, %d lines:\n%s", code, len(lines), out)
	}
	var f store.Finding
	var sum fsck.Summary
	if err := json.Unmarshal([]byte(lines[0]), &f); err != nil || f.Code != store.DueMissing || f.RunID != lostRun || !f.Repaired {
		t.Errorf("the first finding is %s (%v)", lines[0], err)
	}
	if err := json.Unmarshal([]byte(lines[2]), &sum); err != nil || sum != (fsck.Summary{Runs: 2, Findings: 2, Repaired: 1}) {
		t.Errorf("the summary is %s (%v)", lines[2], err)
	}
	code, out, _ = call(t, nil, "fsck", "--store", "file:"+path)
	if code != exitFailed || strings.Contains(out, "due_missing") {
		t.Errorf("after the repair: exit %d:\n%s", code, out)
	}
}

// Runs whose retention is over are not removed by looking.
func TestFsckRemovesNothing(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "runs.db")
	s, err := file.Open(t.Context(), file.Config{Path: path, Clock: clock.System{}})
	if err != nil {
		t.Fatal(err)
	}
	addRun(t, s, lostRun)
	claimed, err := s.Claim(t.Context(), 1, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	failed, err := journal.Encode(journal.RunFailed, journal.Failed{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Commit(t.Context(), claimed[0].Lease, store.Tx{Status: store.Failed, Entries: []journal.New{failed}}); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		code, out, errs := call(t, nil, "fsck", "--store", "file:"+path, "--retention", "1ms", "--repair")
		if code != exitOK || !strings.HasPrefix(out, "1 runs checked, 0 findings") {
			t.Errorf("exit %d: %s%s", code, out, errs)
		}
	}
}

func TestFsckOfRedis(t *testing.T) {
	t.Parallel()
	r := testenv.StartRedis(t)
	s, err := openStore(t.Context(), settings{store: r.URL(), partitions: 1}, slog.New(slog.DiscardHandler), clock.System{})
	if err != nil {
		t.Fatal(err)
	}
	addRun(t, s, lostRun)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	r.Command("ZREM", "agentos:{p0}:due", lostRun)
	for _, step := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{}, exitFailed, "due_missing " + lostRun},
		{[]string{"--repair"}, exitOK, "[repaired]"},
		{[]string{}, exitOK, "1 runs checked, 0 findings, 0 repaired\n"},
		{[]string{"--partitions", "3"}, exitUsage, ""},
	} {
		code, out, errs := call(t, nil, append([]string{"fsck", "--store", r.URL()}, step.args...)...)
		if code != step.code || !strings.Contains(out, step.want) {
			t.Errorf("fsck %q: exit %d, %q, %q", step.args, code, out, errs)
		}
	}
}

func TestFsckProgressIsForTerminals(t *testing.T) {
	t.Parallel()
	var seen fakeTerminal
	p := &fsckPrinter{stdio: stdio{out: &strings.Builder{}, err: &seen}, terminal: isTerminal(&seen)}
	for runs := 0; runs <= 2500; runs += 500 {
		p.progress(fsck.Summary{Runs: runs})
	}
	p.clear()
	if got, want := seen.String(), "\ragentos: 1000 runs, 0 findings\ragentos: 2000 runs, 0 findings\r\x1b[K"; got != want {
		t.Errorf("progress is %q, want %q", got, want)
	}
	var quiet strings.Builder
	p = &fsckPrinter{stdio: stdio{out: &strings.Builder{}, err: &quiet}, terminal: isTerminal(&quiet)}
	p.progress(fsck.Summary{Runs: 5000})
	p.clear()
	if quiet.Len() > 0 {
		t.Errorf("progress where there is no terminal: %q", quiet.String())
	}
}
