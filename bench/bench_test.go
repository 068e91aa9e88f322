package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"agentos/internal/rawjson"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == toolCommand {
		if err := serveTool(os.Stdin, os.Stdout); err != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
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
	return &bench{settings: s, dir: dir, agent: a, out: &report{}, talk: &talker{call: asks(freeTool), answer: says("Done.")}}
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

// The conversation is the one of docs/performance.md, and real text: it does not
// shrink to nothing.
func TestConversation(t *testing.T) {
	t.Parallel()
	if n := len(words(1, systemChars)); n != systemChars {
		t.Errorf("%d characters, want %d", n, systemChars)
	}
	first, again := words(1, 500), words(1, 500)
	if first != again || first == words(2, 500) {
		t.Error("the words must follow from the seed")
	}
}

// maxHeldBytes bounds what one held run takes in Redis with a conversation of 4 KB.
const maxHeldBytes = 8 << 10

// A held run is small, and nothing of it stays in the process.
func TestHeldRuns(t *testing.T) {
	t.Parallel()
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
		if row.Bytes < userChars || row.Bytes > maxHeldBytes || row.Keys > 3 {
			t.Errorf("%s: a held run takes %d bytes and %.2f keys, want at most %d and 3", row.Store, row.Bytes, row.Keys, maxHeldBytes)
		}
		// Other tests have goroutines too; a goroutine for each run would be seen.
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

// Every number of the report is filled in.
func TestSpeed(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	if err := errors.Join(b.tool(t.Context()), b.speed(t.Context())); err != nil {
		t.Fatal(err)
	}
	if len(b.out.Speed) != 6 || b.out.Tool.P50 == 0 {
		t.Fatalf("%d rows, tool %+v", len(b.out.Speed), b.out.Tool)
	}
	for _, row := range b.out.Speed {
		if row.P50 <= 0 || row.P99 < row.P50 || row.Rate <= 0 || row.CPU <= 0 || (row.ServerCPU > 0) != (row.System != fileStore) || row.Low > row.Rate || row.High < row.Rate {
			t.Errorf("row %+v", row)
		}
	}
	var text, raw bytes.Buffer
	if err := errors.Join(b.out.writeTable(&text), b.out.writeJSON(&raw)); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"approve, redis", "lookup, floor-full", "the MCP call alone"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the table lacks %q:\n%s", want, text.String())
		}
	}
	var back report
	if err := rawjson.Decode(raw.Bytes(), &back); err != nil || len(back.Speed) != 6 {
		t.Errorf("the JSON has %d rows: %v", len(back.Speed), err)
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
	s, err := parse([]string{"-json", "-for", "2s"}, io.Discard)
	if want := (settings{rounds: 3, runs: 300, length: 2 * time.Second, parked: 10000, fsync: "everysec", asJSON: true}); err != nil || s != want {
		t.Errorf("settings %+v, %v; want %+v", s, err, want)
	}
}

func TestSpread(t *testing.T) {
	t.Parallel()
	took := make([]int64, 100)
	for i := range took {
		took[i] = int64(100 - i)
	}
	if got := spread(took); got != (latency{P50: 51, P99: 100}) {
		t.Errorf("spread %+v", got)
	}
	if got := median([]int64{9, 1, 5}); got != 5 {
		t.Errorf("median %d", got)
	}
}
