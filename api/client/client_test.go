package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"agentos/api"
	"agentos/api/client"
	"agentos/internal/problem"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serve starts a server with one handler and returns a client of it.
func serve(t *testing.T, h http.HandlerFunc) *client.Client {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	c, err := client.New(client.Config{URL: s.URL + "/base/", HTTP: s.Client()})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestNewRefuses(t *testing.T) {
	for _, address := range []string{"", "127.0.0.1:8080", "ftp://h", "http://", "http://u:p@h", "http://h/?q", "http://h/#f", "http://h\n"} {
		if _, err := client.New(client.Config{URL: address, HTTP: http.DefaultClient}); problem.CodeOf(err) != problem.InvalidSettings {
			t.Errorf("%q: %v", address, err)
		}
	}
	if _, err := client.New(client.Config{URL: "http://h"}); err == nil {
		t.Error("no HTTP client: no error")
	}
}

func TestRequests(t *testing.T) {
	var got string
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		got = r.Method + " " + r.URL.RequestURI() + " key=" + r.Header.Get("Idempotency-Key") + " type=" + r.Header.Get("Content-Type") + " " + string(body)
		fmt.Fprint(w, `{"run_id":"r_1","a_field_of_tomorrow":1}`)
	})
	ctx := t.Context()
	for _, tc := range []struct {
		name string
		call func() error
		want string
	}{
		{"create", func() error {
			_, err := c.CreateRun(ctx, client.CreateRun{
				Env: "default", Agent: "a/b", Capability: "c d", Key: "k", Wait: 1500 * time.Millisecond,
				Body: api.CreateRun{Input: json.RawMessage(`{"n":12345678901234567890,"h":"<&>"}`), SessionID: "s"},
			})
			return err
		}, `POST /base/v0/envs/default/agents/a%2Fb/capabilities/c%20d/runs?wait=true&wait_timeout=1.5s key=k type=application/json {"input":{"n":12345678901234567890,"h":"<&>"},"session_id":"s"}`},
		{"get", func() error { _, err := c.Run(ctx, "default", "r_1", 0); return err }, "GET /base/v0/envs/default/runs/r_1 key= type= "},
		{"get, dots", func() error { _, err := c.Run(ctx, "default", "../x?y", 0); return err }, "GET /base/v0/envs/default/runs/..%2Fx%3Fy key= type= "},
		{"cancel", func() error { _, err := c.Cancel(ctx, "default", "r_1"); return err }, "POST /base/v0/envs/default/runs/r_1/cancel key= type= "},
		{"list", func() error {
			_, err := c.Runs(ctx, "default", client.RunQuery{Status: api.RunHeld, Session: "s&t", Limit: 5})
			return err
		}, "GET /base/v0/envs/default/runs?limit=5&session=s%26t&status=held key= type= "},
		{"holds", func() error {
			_, err := c.Holds(ctx, "default", client.HoldQuery{OlderThan: time.Hour, Cursor: "c"})
			return err
		}, "GET /base/v0/envs/default/holds?cursor=c&older_than=1h0m0s key= type= "},
		{"decide", func() error {
			_, err := c.Decide(ctx, client.Decide{Env: "default", Hold: "h_1", Body: api.Decide{
				Decisions: []api.ItemDecision{{ID: "call_1", Action: "edit", Data: json.RawMessage(`{"b":1.0,"a":2}`)}}, Revision: 3,
			}})
			return err
		}, `POST /base/v0/envs/default/holds/h_1/decisions key= type=application/json {"decisions":[{"id":"call_1","action":"edit","data":{"b":1.0,"a":2}}],"revision":3}`},
		{"orders", func() error { _, err := c.Orders(ctx, "default"); return err }, "GET /base/v0/envs/default/orders key= type= "},
		{"pause", func() error {
			_, err := c.PauseAgent(ctx, "default", "a/b", api.PauseAgent{Reason: "<r>"})
			return err
		}, `POST /base/v0/envs/default/agents/a%2Fb/pause key= type=application/json {"reason":"<r>"}`},
		{"resume", func() error { _, err := c.ResumeAgent(ctx, "default", "a"); return err }, "POST /base/v0/envs/default/agents/a/resume key= type= "},
		{"off", func() error {
			_, err := c.SwitchOff(ctx, "default", api.SwitchOff{Tool: "orders/*", Reason: "r"})
			return err
		}, `POST /base/v0/envs/default/tools/off key= type=application/json {"tool":"orders/*","reason":"r"}`},
		{"on", func() error {
			_, err := c.SwitchOn(ctx, "default", api.SwitchOn{Tool: "orders/*", Agent: "a"})
			return err
		}, `POST /base/v0/envs/default/tools/on key= type=application/json {"tool":"orders/*","agent":"a"}`},
	} {
		if err := tc.call(); err != nil {
			t.Errorf("%s: %v", tc.name, err)
		}
		if got != tc.want {
			t.Errorf("%s:\n got %s\nwant %s", tc.name, got, tc.want)
		}
	}
}

func TestErrors(t *testing.T) {
	answer := func(status int, body string) *client.Client {
		return serve(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "7")
			w.WriteHeader(status)
			fmt.Fprint(w, body)
		})
	}
	_, err := answer(409, `{"error":{"code":"hold_decided","message":"too late","details":[{"path":"/a","message":"b"}]},"request_id":"q","hold":{"hold_id":"h_1","status":"decided"}}`).Hold(t.Context(), "default", "h_1")
	var ce *client.Error
	if !errors.As(err, &ce) || ce.Status != 409 || ce.RequestID != "q" || ce.Hold == nil || ce.Hold.Status != api.HoldDecided ||
		ce.Problem.RetryAfter != 7*time.Second || len(ce.Problem.Details) != 1 || !errors.Is(err, &problem.Error{Code: problem.HoldDecided}) {
		t.Errorf("%+v", err)
	}
	if text := err.Error(); !strings.Contains(text, "too late") || !strings.Contains(text, "/a b") {
		t.Errorf("text %q", text)
	}
	for status, body := range map[int]string{502: "<html>bad gateway</html>", 500: `{"error":"text"}`, 404: "", 302: `{}`} {
		_, err := answer(status, body).Run(t.Context(), "default", "r_1", 0)
		if !errors.As(err, &ce) || ce.Status != status || ce.Problem.Code != problem.Internal {
			t.Errorf("%d %q: %v", status, body, err)
		}
	}
	if _, err := answer(200, `{"run_id":7}`).Run(t.Context(), "default", "r_1", 0); err == nil {
		t.Error("an answer of another shape: no error")
	}
}

func entry(seq int, kind string) string {
	return fmt.Sprintf(": beat\nid: %d\nevent: %s\ndata: {\"seq\":%d,\"at\":\"2026-01-02T03:04:05.678Z\",\"type\":%q,\"data\":{}}\n\n", seq, kind, seq, kind)
}

// streams answers the n-th request, counting from 1, with the n-th text, and the
// last for ever; it counts requests and remembers what they resumed from.
func streams(t *testing.T, texts ...string) (*client.Client, *atomic.Int64, *[]string) {
	t.Helper()
	var n atomic.Int64
	var lastIDs []string
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		i := int(n.Add(1))
		lastIDs = append(lastIDs, r.Header.Get("Last-Event-ID"))
		text := texts[min(i, len(texts))-1]
		if text == "204" {
			w.WriteHeader(http.StatusNoContent)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, text)
	})
	return c, &n, &lastIDs
}

func TestEventsResumeABrokenStream(t *testing.T) {
	c, n, lastIDs := streams(t,
		entry(3, "model.answered")+"id: 4\ndata: {\"seq\":4", // cut off in the middle of an event
		entry(4, "call.started")+entry(5, "call.finished"),
		entry(6, "run.completed")+entry(7, "nothing follows"),
	)
	var seqs []int64
	for e, err := range c.Events(t.Context(), "default", "r_1", 2) {
		if err != nil {
			t.Fatal(err)
		}
		seqs = append(seqs, e.Seq)
	}
	if fmt.Sprint(seqs) != "[3 4 5 6]" || n.Load() != 3 || strings.Join(*lastIDs, ",") != "2,3,5" {
		t.Errorf("entries %v over %d connections that resumed from %v", seqs, n.Load(), *lastIDs)
	}
}

func TestEventsEnd(t *testing.T) {
	for name, tc := range map[string]struct {
		texts   []string
		entries int
		fails   bool
	}{
		"everything was sent":            {[]string{"204"}, 0, false},
		"everything, after a reconnect":  {[]string{entry(1, "run.created"), "204"}, 1, false},
		"connections that bring nothing": {[]string{entry(1, "run.created"), ": beat\n\n"}, 1, true},
		"an entry again":                 {[]string{entry(1, "run.created") + entry(1, "run.created")}, 1, true},
		"no JSON":                        {[]string{"data: {\n\n"}, 0, true},
		"a line without end":             {[]string{"data: " + strings.Repeat("x", 33<<20)}, 0, true},
	} {
		c, _, _ := streams(t, tc.texts...)
		entries, failed := 0, false
		for _, err := range c.Events(t.Context(), "default", "r_1", 0) {
			if err != nil {
				failed = true
				continue
			}
			entries++
		}
		if entries != tc.entries || failed != tc.fails {
			t.Errorf("%s: %d entries, failed %v; want %d, %v", name, entries, failed, tc.entries, tc.fails)
		}
	}
}

func TestEventsOfANonStream(t *testing.T) {
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "hello") })
	for _, err := range c.Events(t.Context(), "default", "r_1", 0) {
		if err == nil || !strings.Contains(err.Error(), "no event stream") {
			t.Errorf("error %v", err)
		}
	}
}

func TestEventsReaderStops(t *testing.T) {
	c, n, _ := streams(t, entry(1, "run.created")+entry(2, "model.answered"))
	for range c.Events(t.Context(), "default", "r_1", 0) {
		break
	}
	if n.Load() != 1 {
		t.Errorf("%d connections", n.Load())
	}
}

func TestReadyIsReadFrom503(t *testing.T) {
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusServiceUnavailable)
		fmt.Fprint(w, `{"ready":false,"store":{"reachable":false}}`)
	})
	if ready, err := c.Ready(t.Context()); err != nil || ready.Ready {
		t.Errorf("%v %+v", err, ready)
	}
	if err := c.Health(t.Context()); err == nil {
		t.Error("health of a 503: no error")
	}
}

func TestContextEndsARequest(t *testing.T) {
	release := make(chan struct{})
	c := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-r.Context().Done():
		case <-release:
		}
	})
	defer close(release)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := c.Run(ctx, "default", "r_1", time.Minute); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v", err)
	}
}
