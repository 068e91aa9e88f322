package main

import (
	"bytes"
	"context"
	"encoding/xml"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"agentos/bench/floor"
	"agentos/bench/scenario"
	"agentos/internal/rawjson"
)

func TestMain(m *testing.M) {
	if os.Getenv(envParent) != "" {
		parent()
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	if child, err := childCommand(ctx, os.Args[1:], os.Stdin, os.Stdout); child {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	stop()
	goleak.VerifyTestMain(m)
}

// newBench is a measurement of a test's own; it ends with the test.
func newBench(tb testing.TB) *bench {
	tb.Helper()
	dir := tb.TempDir()
	a, err := openAgent(tb.Context(), dir)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := a.MCP.Close(context.WithoutCancel(tb.Context())); err != nil {
			tb.Error(err)
		}
	})
	s := settings{rounds: 1, runs: 5, length: 100 * time.Millisecond, parked: 300, fsync: "everysec"}
	return &bench{settings: s, dir: dir, agent: a, out: &report{}, errs: io.Discard, talk: newTalker()}
}

// What a run asks of the store does not depend on the machine, so it is held here:
// a change that needs one round trip more has to say so.
func TestRoundTrips(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	if err := b.trips(t.Context()); err != nil {
		t.Fatal(err)
	}
	most := map[string]int64{lookup: 4, approve: 6, elsewhere: 7}
	if len(b.out.Trips) != 2*len(most) {
		t.Fatalf("%d rows, want %d", len(b.out.Trips), 2*len(most))
	}
	for _, row := range b.out.Trips {
		t.Logf("%s, %s: %d operations, %d requests to Redis, %d commands", row.Store, row.Scenario, row.Operations, row.Requests, row.Commands)
		if row.Operations > most[row.Scenario] || row.Operations < 1 {
			t.Errorf("%s, %s: %d operations, want at most %d", row.Store, row.Scenario, row.Operations, most[row.Scenario])
		}
		if row.Store == redisStore && (row.Requests != row.Operations || row.Scripts != row.Operations) {
			t.Errorf("%s, %s: %d operations took %d requests and %d scripts, want one each",
				row.Store, row.Scenario, row.Operations, row.Requests, row.Scripts)
		}
	}
}

// maxHeldBytes bounds what one held run takes with a conversation of 4 KB. A file
// grows by pages, which so few runs do not fill.
func maxHeldBytes(store string) int64 {
	if store == redisStore {
		return 8 << 10
	}
	return 12 << 10
}

// A held run is small, and nothing of it stays in the process. The test is not
// parallel: it counts goroutines.
func TestHeldRuns(t *testing.T) {
	b := newBench(t)
	if err := b.held(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(b.out.Held) != 2 {
		t.Fatalf("%d rows, want 2", len(b.out.Held))
	}
	for _, row := range b.out.Held {
		t.Logf("%s: %d bytes, %.2f keys; %d goroutines before, %d with %d held runs", row.Store, row.Bytes, row.Keys,
			row.GoroutinesBefore, row.GoroutinesAfter, b.parked)
		if row.Bytes < scenario.UserChars || row.Bytes > maxHeldBytes(row.Store) || row.Keys > 3 {
			t.Errorf("%s: a held run takes %d bytes and %.2f keys, want at most %d and 3", row.Store, row.Bytes, row.Keys, maxHeldBytes(row.Store))
		}
		// What ends by itself may still be there; a goroutine for each run would be seen.
		if row.GoroutinesAfter > row.GoroutinesBefore+b.parked/2 {
			t.Errorf("%s: %d held runs took the process from %d to %d goroutines", row.Store, b.parked, row.GoroutinesBefore, row.GoroutinesAfter)
		}
		if row.DecideNone.P50 == 0 || row.DecideParked.P50 == 0 {
			t.Errorf("%s: no decision was timed: %+v", row.Store, row)
		}
	}
}

// What a turn writes does not grow with the conversation.
func TestTurnsWriteTheSame(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	err := b.on(t.Context(), redisStore, func(back *backing, p *process) error { return b.longRun(t.Context(), back, p, 80) })
	if err != nil {
		t.Fatal(err)
	}
	early, late := b.out.Turns[0], b.out.Turns[1]
	t.Logf("turn %d: %d bytes of journal, %d written; turn %d: %d and %d",
		early.Turn, early.Journal, early.Written, late.Turn, late.Journal, late.Written)
	if early.Journal < 100 || late.Journal > early.Journal*12/10 || late.Written > early.Written*12/10 {
		t.Errorf("turn %d wrote %+v, turn %d %+v", early.Turn, early, late.Turn, late)
	}
}

// Every system is measured at both levels, and every number of the report is filled
// in. Over HTTP the servers are real processes.
func TestSpeed(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	if err := errors.Join(b.tool(t.Context()), b.speed(t.Context())); err != nil {
		t.Fatal(err)
	}
	if b.out.Tool.P50 == 0 {
		t.Errorf("tool %+v", b.out.Tool)
	}
	for _, level := range []string{inProcess, overHTTP} {
		for _, capability := range []string{lookup, approve} {
			for _, system := range []string{floor.Min, floor.Full, redisStore, fileStore} {
				row := b.out.find(system, level, capability)
				if row.P50 <= 0 || row.P99 < row.P50 || row.Rate <= 0 || row.Low > row.Rate || row.High < row.Rate || row.P50Low > row.P50 || row.P50High < row.P50 || row.Durability == "" {
					t.Errorf("%s of %s %s: row %+v", capability, system, level, row)
				}
				// A child of the floor can be done before the system has counted anything.
				if level == inProcess && (row.CPU <= 0 || (row.ServerCPU > 0) != (system != fileStore)) {
					t.Errorf("%s of %s %s: processor time %+v", capability, system, level, row)
				}
			}
		}
	}
	if len(b.out.Speed) != 16 {
		t.Errorf("%d rows, want 16", len(b.out.Speed))
	}
	b.written(t)
}

// written looks at what the report of a measurement is written as.
func (b *bench) written(t *testing.T) {
	t.Helper()
	b.out.Targets = judge(b.out)
	var text, raw bytes.Buffer
	if err := errors.Join(b.out.writeTable(&text), b.out.writeJSON(&raw)); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"approve, over HTTP", "agentos, redis", "floor-full", "the MCP call alone", "fsync before each answer", "not judged: "} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the table lacks %q:\n%s", want, text.String())
		}
	}
	var back report
	if err := rawjson.Decode(raw.Bytes(), &back); err != nil || len(back.Speed) != len(b.out.Speed) {
		t.Errorf("the JSON has %d rows: %v", len(back.Speed), err)
	}
	path := filepath.Join(t.TempDir(), "speed.svg")
	if err := draw(b.out, path); err != nil {
		t.Fatal(err)
	}
	svg, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := xml.Unmarshal(svg, new(struct{})); err != nil || !bytes.Contains(svg, []byte("agentos, file")) {
		t.Errorf("the picture: %v\n%s", err, svg)
	}
}

// A decision is followed by its call, and the tool's own clock tells when.
func TestReactions(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	if err := b.react(t.Context()); err != nil {
		t.Fatal(err)
	}
	if r := b.out.React; r.Decisions < 1 || r.P50 <= 0 || r.P99 < r.P50 {
		t.Errorf("reaction %+v", r)
	}
}

// A killed process loses its run to the other one, and not before its lease has
// ended: the last renewal is at most a third of it old.
func TestTakeOver(t *testing.T) {
	t.Parallel()
	back, err := newBacking(t.Context(), redisStore, t.TempDir(), "everysec")
	if err != nil {
		t.Fatal(err)
	}
	const lease = 3 * time.Second
	took, err := takeOver(t.Context(), back, lease, 0)
	if err := errors.Join(err, back.close()); err != nil {
		t.Fatal(err)
	}
	// The bound is generous: other tests run beside this one.
	if took < lease/2 || took > 3*lease {
		t.Errorf("the run was taken over after %s; its lease is %s", took, lease)
	}
}

// The product starts on an empty store and on one with held runs.
func TestStarts(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	binary, err := b.binary(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	back, err := newBacking(t.Context(), redisStore, b.dir, "everysec")
	if err != nil {
		t.Fatal(err)
	}
	took, err := firstRun(t.Context(), binary, back)
	if err := errors.Join(err, back.close()); err != nil || took <= 0 {
		t.Errorf("the first run took %s: %v", took, err)
	}
}

// A child that cannot start says why.
func TestChildFails(t *testing.T) {
	t.Parallel()
	cmd, err := self(serveCommand, "-store", "redis://127.0.0.1:1")
	if err != nil {
		t.Fatal(err)
	}
	if _, err = startChild(t.Context(), cmd); err == nil || !strings.Contains(err.Error(), "127.0.0.1:1") {
		t.Errorf("the child failed with: %v", err)
	}
}

func TestParse(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"-rounds", "0"}, "at least 1"},
		{[]string{"-appendfsync", "no"}, "everysec or always"},
		{[]string{"redis"}, "unknown argument"},
		{[]string{"-help"}, flag.ErrHelp.Error()},
	} {
		var errs bytes.Buffer
		if _, err := parse(c.args, &errs); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v, want %q", c.args, err, c.want)
		}
	}
	s, err := parse([]string{"-json", "-for", "2s", "-peers", "-svg", "x.svg"}, io.Discard)
	if want := (settings{rounds: 3, runs: 300, length: 2 * time.Second, parked: 10000, fsync: "everysec", peers: true, svg: "x.svg", asJSON: true}); err != nil || s != want {
		t.Errorf("settings %+v, %v; want %+v", s, err, want)
	}
}
