package main

import (
	"bufio"
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestSequential(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ runs, calls int }{{5, 10}, {300, 300 + warmUp}} {
		calls := 0
		l, err := sequential(t.Context(), c.runs, func(context.Context) error { calls++; return nil })
		if err != nil || calls != c.calls || l.P50 > l.P99 {
			t.Errorf("%d runs: %d calls, %+v, %v", c.runs, calls, l, err)
		}
	}
	broken := errors.New("broken")
	if _, err := sequential(t.Context(), 1, func(context.Context) error { return broken }); !errors.Is(err, broken) {
		t.Errorf("error %v", err)
	}
}

// Every loop counts, the warm-up does not, and processor time is that of one run.
func TestConcurrent(t *testing.T) {
	t.Parallel()
	var calls, most, now atomic.Int64
	var reads int64
	used := func(context.Context) (throughput, error) {
		reads++
		return throughput{cpu: reads * 1_000_000_000, server: calls.Load()}, nil
	}
	got, err := concurrent(t.Context(), 100*time.Millisecond, used, func(context.Context) error {
		n := now.Add(1)
		for {
			was := most.Load()
			if n <= was || most.CompareAndSwap(was, n) {
				break
			}
		}
		calls.Add(1)
		<-time.After(time.Millisecond)
		now.Add(-1)
		return nil
	})
	if err != nil || most.Load() > inFlight || most.Load() < inFlight/2 {
		t.Errorf("at most %d at once, want %d: %v", most.Load(), inFlight, err)
	}
	// used was asked after the warm-up and at the end; one call is one of calls.
	if got.rate <= 0 || got.server != 1 || got.cpu <= 0 || got.cpu > 1_000_000_000 || reads != 2 {
		t.Errorf("got %+v after %d reads", got, reads)
	}
	broken := errors.New("broken")
	if _, err := concurrent(t.Context(), time.Second, used, func(context.Context) error { return broken }); !errors.Is(err, broken) {
		t.Errorf("error %v", err)
	}
}

func TestSpread(t *testing.T) {
	t.Parallel()
	took := make([]int64, 100)
	for i := range took {
		took[i] = int64(100 - i)
	}
	if diff := cmp.Diff(latency{P50: 51, P99: 100}, spread(took)); diff != "" {
		t.Error(diff)
	}
	for want, of := range map[int64][]int64{5: {9, 1, 5}, 7: {7}, 3: {3, 2}} {
		if got := median(of); got != want {
			t.Errorf("median of %v is %d, want %d", of, got, want)
		}
	}
}

func TestRow(t *testing.T) {
	t.Parallel()
	s := &subject{system: "x", title: "X", level: inProcess, durability: "none"}
	got := s.row(lookup, []sample{
		{latency{P50: 3, P99: 30}, throughput{rate: 100, cpu: 1, server: 7}},
		{latency{P50: 1, P99: 10}, throughput{rate: 300, cpu: 3, server: 9}},
		{latency{P50: 2, P99: 90}, throughput{rate: 200, cpu: 2, server: 8}},
	})
	want := speed{
		System: "x", Title: "X", Level: inProcess, Durability: "none", Scenario: lookup,
		latency: latency{P50: 2, P99: 30}, P50Low: 1, P50High: 3, Rate: 200, Low: 100, High: 300, CPU: 2, ServerCPU: 8,
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(speed{})); diff != "" {
		t.Error(diff)
	}
}

// The first URL of this machine is where a child serves; the rest is only kept.
func TestListen(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ said, url string }{
		"agentos serve": {"agentos: serving on http://127.0.0.1:81\nagentos: POST http://127.0.0.1:81/v0/x\n", "http://127.0.0.1:81"},
		"a warning":     {"see http://example.com\nserving on http://127.0.0.1:9 now\n", "http://127.0.0.1:9"},
		"nothing":       {"it does not work\n", ""},
	} {
		urls := make(chan string, 1)
		told := listen(bufio.NewScanner(strings.NewReader(c.said)), urls)
		close(urls)
		if got := <-urls; got != c.url || told != c.said {
			t.Errorf("%s: url %q, told %q", name, got, told)
		}
	}
	urls := make(chan string, 1)
	if told := listen(bufio.NewScanner(strings.NewReader(strings.Repeat("many words\n", 1000))), urls); len(told) > maxTold+11 {
		t.Errorf("%d bytes were kept", len(told))
	}
}
