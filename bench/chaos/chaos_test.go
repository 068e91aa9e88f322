package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if served, code := serveHidden(os.Args); served {
		os.Exit(code)
	}
	goleak.VerifyTestMain(m)
}

// The short version of what the program is for.
func TestNothingLostNothingTwice(t *testing.T) {
	dir := t.TempDir()
	s := settings{runs: 150, seed: 11, workers: 3, clients: 32, faults: 2, lease: time.Second, fsync: "always"}
	r, err := torment(t.Context(), s, dir, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	if err := r.writeText(&text); err != nil {
		t.Fatal(err)
	}
	t.Log(text.String())
	for _, v := range r.Violations {
		t.Errorf("%s %s: %s", v.Check, v.Run, v.Text)
	}
	for _, f := range []fault{killWorker, stopWorker, termWorker, killRedis, killShared, killChild} {
		if r.Faults[f] == 0 {
			t.Errorf("%s never happened", f)
		}
	}
	if r.Effects["once"] == 0 || r.Decisions["tool_call approve"] == 0 || r.ModelCalls < s.runs {
		t.Errorf("nothing much happened: effects %v, decisions %v, model calls %d", r.Effects, r.Decisions, r.ModelCalls)
	}
	if r.Fsck != "clean" {
		t.Errorf("fsck is %q", r.Fsck)
	}
}

// An interrupted program leaves no process behind and says so.
func TestInterrupted(t *testing.T) {
	ctx, stop := context.WithCancelCause(t.Context())
	defer stop(nil)
	dir := t.TempDir()
	s := settings{runs: 1000, seed: 12, workers: 2, clients: 8, faults: 2, lease: time.Second, fsync: "everysec"}
	// The first word of progress comes when everything runs.
	_, err := torment(ctx, s, dir, onWrite(func() { stop(errors.New("enough")) }))
	if !errors.Is(err, context.Canceled) {
		t.Errorf("torment returned %v", err)
	}
	if pid := childOf(os.Getpid(), dir); pid != 0 {
		t.Errorf("process %d is left", pid)
	}
}

type onWrite func()

func (f onWrite) Write(p []byte) (int, error) {
	f()
	return len(p), nil
}

func TestParse(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"":                               "",
		"-runs 10000 -seed 7 -json":      "",
		"-workers 1":                     "workers must be at least 2",
		"-runs 0":                        "at least 1",
		"-lease 10ms":                    "lease",
		"-appendfsync no":                "appendfsync",
		"more":                           "unknown argument",
		"-faults -1":                     "not negative",
		"-appendfsync everysec -keep":    "",
		"-clients 1 -workers 9 -runs 50": "",
	} {
		_, err := parse(strings.Fields(args), io.Discard)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", args, err, want)
		}
	}
	if _, err := parse([]string{"-h"}, io.Discard); !errors.Is(err, flag.ErrHelp) {
		t.Errorf("-h: %v", err)
	}
	if s, err := parse([]string{"-runs", "10000"}, io.Discard); err != nil || s.faults != 40 {
		t.Errorf("10000 runs have %d faults of each kind, %v", s.faults, err)
	}
}

func TestReport(t *testing.T) {
	t.Parallel()
	r := report{Runs: 3, Violations: []violation{{checkOnce, "r_1", "ran twice"}}, Lost: []violation{{checkExists, "r_2", "gone"}}, Directory: "/d"}
	var text, raw bytes.Buffer
	if err := errors.Join(r.writeText(&text), r.writeJSON(&raw)); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"VIOLATION: once_at_most_once r_1: ran twice", "lost: accepted_run_exists r_2: gone", "files: /d", "violations"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the text lacks %q:\n%s", want, text.String())
		}
	}
	var back report
	if err := json.Unmarshal(raw.Bytes(), &back); err != nil || len(back.Violations) != 1 || back.Violations[0].Check != checkOnce {
		t.Errorf("the JSON reads as %+v, %v", back, err)
	}
}
