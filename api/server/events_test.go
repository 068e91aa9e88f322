package server_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"agentos/api"
	"agentos/api/client"
	"agentos/runtime/store"
)

// lines opens the event stream of a run and returns its status and its lines.
func (r *rig) lines(ctx context.Context, run, query, lastID string) (int, *bufio.Scanner) {
	r.t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.http.URL+home+"/runs/"+run+"/events"+query, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	if lastID != "" {
		req.Header.Set("Last-Event-ID", lastID)
	}
	res, err := r.checked.RoundTrip(req)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { res.Body.Close() })
	return res.StatusCode, bufio.NewScanner(res.Body)
}

// idsOf reads a stream to its end and returns the ids of its events.
func idsOf(t *testing.T, lines *bufio.Scanner) []string {
	t.Helper()
	var out []string
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if id, ok := strings.CutPrefix(lines.Text(), "id: "); ok {
			out = append(out, id)
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return out
}

// C33: exactly the missing entries, once; the stream ends.
func TestEventsResume(t *testing.T) {
	r := newRig(t)
	run := r.create(`call:ping {} then say:ok`, 10*time.Second)
	v, err := r.store.Run(r.ctx(), run.RunID)
	if err != nil {
		t.Fatal(err)
	}
	n := int(v.Seq)
	from := func(first int) string {
		var out []string
		for i := first; i <= n; i++ {
			out = append(out, strconv.Itoa(i))
		}
		return strings.Join(out, " ")
	}
	for _, tc := range []struct {
		name, query, lastID string
		first               int
	}{
		{"all", "", "", 1},
		{"from the middle", "", "2", 3},
		{"after", "?after=2", "", 3},
		{"the header is newer", "?after=1", "3", 4},
		{"before the first", "", "0", 1},
		{"one is missing", "", strconv.Itoa(n - 1), n},
	} {
		status, lines := r.lines(r.ctx(), run.RunID, tc.query, tc.lastID)
		if got := strings.Join(idsOf(t, lines), " "); status != http.StatusOK || got != from(tc.first) {
			t.Errorf("%s: %d, events %s, want %s", tc.name, status, got, from(tc.first))
		}
	}
	for _, lastID := range []string{strconv.Itoa(n), "9999"} {
		if status, _ := r.lines(r.ctx(), run.RunID, "", lastID); status != http.StatusNoContent {
			t.Errorf("Last-Event-ID %s of a finished run: %d, want 204", lastID, status)
		}
	}
	for _, lastID := range []string{"x", "-1", "1.5", " 1 2", "99999999999999999999"} {
		if status, _ := r.lines(r.ctx(), run.RunID, "", lastID); status != http.StatusBadRequest {
			t.Errorf("Last-Event-ID %q: %d, want 400", lastID, status)
		}
	}
}

// Events are the entries, as they happen, across a hold.
func TestEventsAsTheyHappen(t *testing.T) {
	r := newRig(t)
	run := r.held("A-1")
	var types []string
	for e, err := range r.client.Events(r.ctx(), "default", run.RunID, 0) {
		if err != nil {
			t.Fatal(err)
		}
		types = append(types, e.Type)
		if e.Seq != int64(len(types)) || len(e.Data) == 0 || e.At.IsZero() {
			t.Errorf("entry %+v", e)
		}
		if e.Type == "hold.opened" {
			if _, err := r.decide(run.Hold.HoldID, 0, item("approve")); err != nil {
				t.Fatal(err)
			}
		}
	}
	want := "run.created model.answered hold.opened hold.decided hold.closed call.started call.finished model.answered run.completed"
	if got := strings.Join(types, " "); got != want {
		t.Errorf("types %s, want %s", got, want)
	}
}

func TestHeartbeatAndFutureID(t *testing.T) {
	r := newRig(t)
	run := r.held("A-1")
	ctx, cancel := context.WithCancel(r.ctx())
	defer cancel()
	_, lines := r.lines(ctx, run.RunID, "", "9999")
	comments := 0
	for comments < 3 && lines.Scan() {
		switch line := lines.Text(); line {
		case ":":
			comments++
			if comments < 3 {
				r.clock.beats <- time.Time{}
			}
		case "":
		default:
			t.Fatalf("line %q after an id from the future", line)
		}
	}
	if comments != 3 {
		t.Errorf("%d comments: %v", comments, lines.Err())
	}
}

// A stream ends with the caller, and nothing of it is left.
func TestStreamOfCallerThatLeft(t *testing.T) {
	r := newRig(t)
	run := r.held("A-1")
	ctx, cancel := context.WithCancel(r.ctx())
	defer cancel()
	var err error
	for _, err = range r.client.Events(ctx, "default", run.RunID, 0) {
		cancel()
	}
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	news := time.After(10 * time.Second)
	for !strings.Contains(string(r.send(call{method: "GET", path: "/metrics"}).body), "agentos_event_streams 0") {
		select {
		case <-news:
			t.Fatal("the stream is still counted as open")
		default:
		}
	}
}

// B60: on shutdown waiters get an honest answer at once, streams end, and Serve
// returns.
func TestServeStops(t *testing.T) {
	r := newRig(t)
	held, busy := r.held("A-1"), r.busy()
	l, err := (&net.ListenConfig{}).Listen(r.ctx(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(r.ctx())
	served := make(chan error, 1)
	go func() { served <- r.server.Serve(ctx, l) }()
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	c, err := client.New(client.Config{URL: "http://" + l.Addr().String(), HTTP: &http.Client{Transport: transport}})
	if err != nil {
		t.Fatal(err)
	}
	var waiters sync.WaitGroup
	for range 20 {
		waiters.Go(func() {
			run, err := c.Run(r.ctx(), "default", busy.RunID, 5*time.Minute)
			var refused *net.OpError
			if err == nil && run.Status != api.RunRunning || err != nil && !errors.As(err, &refused) && !errors.Is(err, io.EOF) {
				t.Errorf("waiter: %v %s", err, run.Status)
			}
		})
	}
	streaming := make(chan struct{})
	waiters.Go(func() {
		var last error
		for e, err := range c.Events(r.ctx(), "default", held.RunID, 0) {
			if last = err; err == nil && e.Type == "hold.opened" {
				close(streaming)
			}
		}
		if last == nil {
			t.Error("a stream that was cut off looks like one that ended")
		}
	})
	<-streaming
	began := time.Now()
	stop()
	if err := <-served; err != nil {
		t.Errorf("serve: %v", err)
	}
	waiters.Wait()
	// net/http waits up to five seconds for a connection on which nothing was asked
	// yet, such as a spare one of the client's; nobody waits for the five minutes.
	if took := time.Since(began); took > 15*time.Second {
		t.Errorf("stopping took %s", took)
	}
	if v, err := r.store.Run(r.ctx(), busy.RunID); err != nil || v.Status != store.Running {
		t.Errorf("the run that was waited for: %v %s", err, v.Status)
	}
}

func TestServeReportsALostListener(t *testing.T) {
	r := newRig(t)
	l, err := (&net.ListenConfig{}).Listen(r.ctx(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	if err := r.server.Serve(r.ctx(), l); err == nil {
		t.Error("Serve on a closed listener returned nil")
	}
}
