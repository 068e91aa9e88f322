package gateway_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"agentos/gateway"
	"agentos/gateway/mock"
	"agentos/internal/clock"
	"agentos/internal/problem"
	"agentos/internal/rawjson"
)

const healthy = `{"choices":[{"message":{"role":"assistant","content":"hi"},"finish_reason":"stop"}]}`

// script is a Provider that gives its answers in order, the last one for ever.
type script struct {
	mu      sync.Mutex
	answers []answer
	bodies  []string
}

type answer struct {
	body string
	err  error
}

func (s *script) Complete(ctx context.Context, body json.RawMessage) (json.RawMessage, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	s.bodies = append(s.bodies, string(body))
	a := s.answers[0]
	if len(s.answers) > 1 {
		s.answers = s.answers[1:]
	}
	return json.RawMessage(a.body), a.err
}

func status(code int, body string, after time.Duration) answer {
	return answer{err: gateway.StatusError(code, []byte(body), after)}
}

// jumpClock passes every pause at once and records it.
type jumpClock struct {
	mu     sync.Mutex
	now    time.Time
	pauses []time.Duration
}

func (c *jumpClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *jumpClock) After(d time.Duration) <-chan time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
	c.pauses = append(c.pauses, d)
	ch := make(chan time.Time, 1)
	ch <- c.now
	return ch
}

// stuckClock never passes a pause; it calls waiting when one begins.
type stuckClock struct{ waiting func() }

func (stuckClock) Now() time.Time { return time.Unix(0, 0) }

func (c stuckClock) After(time.Duration) <-chan time.Time {
	c.waiting()
	return nil
}

func noJitter(int64) int64 { return 0 }

func newGateway(t *testing.T, c clock.Clock, providers map[string]gateway.Provider) *gateway.Gateway {
	t.Helper()
	g, err := gateway.New(gateway.Config{
		Providers: providers, Clock: c, Rand: noJitter,
		Redact: func(s string) string { return strings.ReplaceAll(s, "sk-test-upstream", "[secret:openai]") },
	})
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func TestCompleteSendsExactBytes(t *testing.T) {
	t.Parallel()
	p := &script{answers: []answer{{body: healthy}}}
	g := newGateway(t, &jumpClock{}, map[string]gateway.Provider{"router": p})
	for _, tools := range [][]json.RawMessage{nil, {json.RawMessage(`{"type":"function","function":{"name":"f"}}`), json.RawMessage(`{"b":1.0,"a":"<&>"}`)}} {
		_, err := g.Complete(t.Context(), gateway.Request{
			Model:    "router/vendor/model-1",
			Messages: []json.RawMessage{json.RawMessage(`{ "role":"user","content":"\u0061<"}`), json.RawMessage(`{"role":"assistant","content":null,"x":12345678901234567890}`)},
			Tools:    tools,
			Extra:    []rawjson.Field{{Name: "response_format", Value: json.RawMessage(`{"type":"json_object"}`)}},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	messages := `"messages":[{ "role":"user","content":"\u0061<"},{"role":"assistant","content":null,"x":12345678901234567890}]`
	want := []string{
		`{"model":"vendor/model-1",` + messages + `,"response_format":{"type":"json_object"}}`,
		`{"model":"vendor/model-1",` + messages + `,"tools":[{"type":"function","function":{"name":"f"}},{"b":1.0,"a":"<&>"}],"response_format":{"type":"json_object"}}`,
	}
	if diff := cmp.Diff(want, p.bodies); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestCompleteRetries(t *testing.T) {
	t.Parallel()
	down := status(500, `{"error":{"message":"down"}}`, 0)
	ms := func(n ...int64) []time.Duration {
		out := make([]time.Duration, len(n))
		for i, v := range n {
			out[i] = time.Duration(v) * time.Millisecond
		}
		return out
	}
	tests := map[string]struct {
		answers    []answer
		pauses     []time.Duration
		code       problem.Code // "" when answered
		retryAfter time.Duration
		says       string
	}{
		"healthy":              {answers: []answer{{body: healthy}}},
		"500 then 200":         {answers: []answer{down, {body: healthy}}, pauses: ms(250)},
		"doubling":             {answers: []answer{down, down, down, {body: healthy}}, pauses: ms(250, 500, 1000)},
		"given up":             {answers: []answer{down}, pauses: ms(250, 500, 1000), code: problem.ModelUnavailable, retryAfter: 2 * time.Second, says: "p/m: HTTP 500 Internal Server Error: down (attempt 4)"},
		"429 asks for 2s":      {answers: []answer{status(429, "", 2*time.Second), {body: healthy}}, pauses: ms(2000)},
		"short is lengthened":  {answers: []answer{status(429, "", time.Millisecond), {body: healthy}}, pauses: ms(250)},
		"429 asks for an hour": {answers: []answer{status(429, "slow", time.Hour)}, code: problem.ModelUnavailable, retryAfter: time.Hour, says: "429"},
		"401":                  {answers: []answer{status(401, `{"error":{"message":"no key"}}`, 0)}, code: problem.ModelError, says: "no key"},
		"400":                  {answers: []answer{status(400, `{"error":{"message":"context length"}}`, time.Hour)}, code: problem.ModelError, says: "context length"},
		"connection":           {answers: []answer{{err: gateway.ConnectionError("cut")}, {body: healthy}}, pauses: ms(250)},
		"200 with 502 inside":  {answers: []answer{{body: `{"error":{"message":"overloaded","code":502},"choices":null}`}, {body: healthy}}, pauses: ms(250)},
		"429 in the choice":    {answers: []answer{{body: `{"choices":[{"error":{"code":429,"message":"slow"},"finish_reason":"error","message":{"role":"assistant","content":""}}]}`}}, pauses: ms(250, 500, 1000), code: problem.ModelUnavailable, retryAfter: 2 * time.Second, says: "slow"},
		"choices empty":        {answers: []answer{{body: `{"choices":[]}`}, {body: healthy}}, code: problem.ModelError, says: "no choices"},
		"null":                 {answers: []answer{{body: `null`}, {body: healthy}}, code: problem.ModelError, says: "null"},
		"odd error":            {answers: []answer{{err: errors.New("oops")}}, code: problem.Internal, says: "internal"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := &jumpClock{}
			attempts := len(tt.pauses) + 1
			p := &script{answers: tt.answers}
			g := newGateway(t, c, map[string]gateway.Provider{"p": p})
			reply, err := g.Complete(t.Context(), gateway.Request{Model: "p/m"})
			if diff := cmp.Diff(tt.pauses, c.pauses); diff != "" {
				t.Errorf("pauses (-want +got):\n%s", diff)
			}
			if len(p.bodies) != attempts {
				t.Errorf("%d attempts, want %d", len(p.bodies), attempts)
			}
			if tt.code != "" {
				got := problem.From(err)
				if got == nil || got.Code != tt.code || got.RetryAfter != tt.retryAfter || !strings.Contains(got.Message, tt.says) {
					t.Fatalf("got %+v; want %s after %s saying %q", got, tt.code, tt.retryAfter, tt.says)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var waited time.Duration
			for _, d := range tt.pauses {
				waited += d
			}
			if reply.Content != "hi" || reply.Model != "p/m" || reply.Attempts != attempts || reply.Latency != waited || reply.Mock {
				t.Errorf("got %+v", reply)
			}
		})
	}
}

func TestCompleteJitterAndLimits(t *testing.T) {
	t.Parallel()
	c := &jumpClock{}
	g, err := gateway.New(gateway.Config{
		Providers: map[string]gateway.Provider{"p": &script{answers: []answer{status(503, "", 0)}}},
		Clock:     c, Rand: func(n int64) int64 { return n - 1 }, Redact: strings.Clone,
		MaxWait: 400 * time.Millisecond, Attempts: 40,
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err = g.Complete(t.Context(), gateway.Request{Model: "p/m"}); problem.CodeOf(err) != problem.ModelUnavailable {
		t.Fatal(err)
	}
	if len(c.pauses) != 39 || c.pauses[0] != 312500*time.Microsecond || c.pauses[1] != 500*time.Millisecond || c.pauses[38] != 500*time.Millisecond {
		t.Errorf("pauses %v", c.pauses)
	}
}

func TestCompleteFallback(t *testing.T) {
	t.Parallel()
	down := []answer{status(503, "down", 0)}
	hour := []answer{status(429, "slow", time.Hour)}
	refused := []answer{status(401, "no key", 0)}
	tests := map[string]struct {
		model      string
		fallback   []string
		a, b       []answer
		want       string // model that answers
		attempts   int
		code       problem.Code
		retryAfter time.Duration
		says       []string
	}{
		"first answers":          {"a/m", []string{"b/n"}, []answer{{body: healthy}}, down, "a/m", 1, "", 0, nil},
		"second answers":         {"a/m", []string{"b/n"}, down, []answer{{body: healthy}}, "b/n", 5, "", 0, nil},
		"no waiting for an hour": {"a/m", []string{"b/n"}, hour, []answer{{body: healthy}}, "b/n", 2, "", 0, nil},
		"first not configured":   {"x/m", []string{"b/n"}, down, []answer{{body: healthy}}, "b/n", 1, "", 0, nil},
		"a refusal is final":     {"a/m", []string{"b/n"}, refused, []answer{{body: healthy}}, "", 0, problem.ModelError, 0, []string{"a/m", "no key"}},
		"soonest counts":         {"a/m", []string{"b/n"}, hour, down, "", 0, problem.ModelUnavailable, 2 * time.Second, []string{"a/m", "slow", "b/n", "down"}},
		"refused fallback":       {"a/m", []string{"b/n"}, hour, refused, "", 0, problem.ModelUnavailable, time.Hour, []string{"slow", "no key"}},
		"none configured":        {"x/m", []string{"nonsense"}, down, down, "", 0, problem.ModelUnavailable, 0, []string{`"x"`, "a, b", "provider/model"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGateway(t, &jumpClock{}, map[string]gateway.Provider{"a": &script{answers: tt.a}, "b": &script{answers: tt.b}})
			reply, err := g.Complete(t.Context(), gateway.Request{Model: tt.model, Fallback: tt.fallback})
			if tt.code == "" {
				if err != nil || reply.Model != tt.want || reply.Attempts != tt.attempts {
					t.Errorf("got %+v, %v", reply, err)
				}
				return
			}
			p := problem.From(err)
			if p == nil || p.Code != tt.code || p.RetryAfter != tt.retryAfter {
				t.Fatalf("got %+v", p)
			}
			for _, s := range tt.says {
				if !strings.Contains(p.Message, s) {
					t.Errorf("%q does not say %q", p.Message, s)
				}
			}
		})
	}
}

func TestCompleteEndsWithContext(t *testing.T) {
	t.Parallel()
	cause := errors.New("lease lost")
	ctx, cancel := context.WithCancelCause(t.Context())
	p := &script{answers: []answer{status(500, "", 0)}}
	g := newGateway(t, stuckClock{waiting: func() { cancel(cause) }}, map[string]gateway.Provider{"p": p})
	for range 2 { // within a pause, then before the call
		_, err := g.Complete(ctx, gateway.Request{Model: "p/m", Fallback: []string{"p/n"}})
		if !errors.Is(err, cause) {
			t.Errorf("got %v, want %v", err, cause)
		}
	}
	if len(p.bodies) != 1 {
		t.Errorf("%d attempts, want 1", len(p.bodies))
	}
}

func TestErrorsAreRedactedAndShort(t *testing.T) {
	t.Parallel()
	tests := map[string]answer{
		"message":        status(401, `{"error":{"message":"bad key sk-test-upstream for org-1"}}`, 0),
		"escaped":        status(400, `{"error":{"message":"bad key \u0073k-test-upstream for org-1"}}`, 0),
		"HTML":           status(400, "<html>\n<p>bad key sk-test-upstream for org-1</p>"+strings.Repeat("<p>é</p>", 9000), 0),
		"HTML with 200":  {body: "<html>bad key sk-test-upstream for org-1" + strings.Repeat("<p>", 9000)},
		"error with 200": {body: `{"error":{"message":"bad key sk-test-upstream for org-1","code":400}}`},
		"at the cut":     status(400, "bad key for org-1"+strings.Repeat("x", 450)+"sk-test-upstream", 0),
		"with a cause":   {err: problem.Wrap(errors.New("sk-test-upstream"), problem.ModelError, "bad key for org-1")},
	}
	for name, a := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGateway(t, &jumpClock{}, map[string]gateway.Provider{"p": &script{answers: []answer{a}}})
			_, err := g.Complete(t.Context(), gateway.Request{Model: "p/m"})
			text := err.Error()
			if strings.Contains(text, "sk-") || !strings.Contains(text, "bad key") || !strings.Contains(text, "org-1") {
				t.Errorf("got %q", text)
			}
			if len(text) > 600 || strings.ContainsAny(text, "\n\uFFFD") {
				t.Errorf("not one short line: %q", text)
			}
		})
	}
}

func TestStandIn(t *testing.T) {
	t.Parallel()
	m, err := mock.New(mock.Config{Clock: &jumpClock{}})
	if err != nil {
		t.Fatal(err)
	}
	g, err := gateway.New(gateway.Config{
		Providers: map[string]gateway.Provider{"mock": m, "p": &script{answers: []answer{{body: healthy}}}},
		StandIn:   m, Clock: &jumpClock{}, Rand: noJitter, Redact: strings.Clone,
	})
	if err != nil {
		t.Fatal(err)
	}
	for model, want := range map[string]struct {
		standsIn, mock bool
		answers        string
	}{
		"openai/gpt": {true, true, "mock/gpt"},
		"mock/m":     {false, true, "mock/m"},
		"p/m":        {false, false, "p/m"},
	} {
		reply, err := g.Complete(t.Context(), gateway.Request{Model: model, Messages: []json.RawMessage{json.RawMessage(`{"role":"user","content":"hi"}`)}})
		if err != nil || reply.Content != "hi" || reply.Mock != want.mock || reply.Model != want.answers || g.StandsIn(model) != want.standsIn {
			t.Errorf("%s: got %+v, %v, stands in %v", model, reply, err, g.StandsIn(model))
		}
	}
	if g.StandsIn("nonsense") {
		t.Error("stands in for a model without a provider")
	}
	if diff := cmp.Diff([]string{"mock", "p"}, g.Providers()); diff != "" {
		t.Error(diff)
	}
}

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	ok := gateway.Config{Clock: &jumpClock{}, Rand: noJitter, Redact: strings.Clone}
	for name, change := range map[string]func(*gateway.Config){
		"no clock":     func(c *gateway.Config) { c.Clock = nil },
		"no rand":      func(c *gateway.Config) { c.Rand = nil },
		"no redact":    func(c *gateway.Config) { c.Redact = nil },
		"nil provider": func(c *gateway.Config) { c.Providers = map[string]gateway.Provider{"p": nil} },
		"slash":        func(c *gateway.Config) { c.Providers = map[string]gateway.Provider{"p/q": &script{}} },
	} {
		cfg := ok
		change(&cfg)
		if _, err := gateway.New(cfg); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if _, err := gateway.New(ok); err != nil {
		t.Error(err)
	}
}
