package openai_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"agentos/gateway"
	"agentos/gateway/openai"
	"agentos/internal/problem"
)

const (
	key     = "sk-test-upstream"
	healthy = `{"choices":[{"message":{"role":"assistant","content":"hi"},"finish_reason":"stop"}]}`
)

// fixedClock stands at noon and passes pauses at once.
type fixedClock struct{}

var noon = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

func (fixedClock) Now() time.Time { return noon }

func (fixedClock) After(time.Duration) <-chan time.Time {
	ch := make(chan time.Time, 1)
	ch <- noon
	return ch
}

func newProvider(t *testing.T, baseURL string, client *http.Client) *openai.Provider {
	t.Helper()
	p, err := openai.New(openai.Config{BaseURL: baseURL, APIKey: key, Client: client, Clock: fixedClock{}})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func serve(t *testing.T, h http.HandlerFunc) *httptest.Server {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	return srv
}

func TestCompleteExchange(t *testing.T) {
	t.Parallel()
	var method, uri, auth, contentType, sent string
	srv := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		method, uri, auth, contentType, sent = r.Method, r.RequestURI, r.Header.Get("Authorization"), r.Header.Get("Content-Type"), string(body)
		_, _ = io.WriteString(w, " "+healthy+"\n")
	})
	for base, want := range map[string]string{
		srv.URL + "/v1":                   "/v1/chat/completions",
		srv.URL + "/v1/":                  "/v1/chat/completions",
		srv.URL:                           "/chat/completions",
		srv.URL + "/o/d?api-version=2026": "/o/d/chat/completions?api-version=2026",
	} {
		body := `{ "model":"m","n":12345678901234567890,"t":"<\u0061>"}`
		got, err := newProvider(t, base, srv.Client()).Complete(t.Context(), json.RawMessage(body))
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != " "+healthy+"\n" {
			t.Errorf("answer changed: %q", got)
		}
		if diff := cmp.Diff([]string{"POST", want, "Bearer " + key, "application/json", body}, []string{method, uri, auth, contentType, sent}); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}

func TestNoKeyNoHeader(t *testing.T) {
	t.Parallel()
	srv := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if _, ok := r.Header["Authorization"]; ok {
			w.WriteHeader(http.StatusTeapot)
		}
		_, _ = io.WriteString(w, healthy)
	})
	p, err := openai.New(openai.Config{BaseURL: srv.URL, Client: srv.Client(), Clock: fixedClock{}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Complete(t.Context(), json.RawMessage(`{}`)); err != nil {
		t.Error(err)
	}
}

func TestStatuses(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		status     int
		header     string
		body       string
		code       problem.Code
		retryAfter time.Duration
		says       string
	}{
		"429 seconds":        {429, "2", `{"error":{"message":"slow down"}}`, problem.ModelUnavailable, 2 * time.Second, "slow down"},
		"429 an hour":        {429, "3600", `{}`, problem.ModelUnavailable, time.Hour, "429"},
		"429 date":           {429, noon.Add(90 * time.Second).Format(http.TimeFormat), ``, problem.ModelUnavailable, 90 * time.Second, "429"},
		"429 past date":      {429, noon.Add(-time.Hour).Format(http.TimeFormat), ``, problem.ModelUnavailable, 0, "429"},
		"429 negative":       {429, "-5", ``, problem.ModelUnavailable, 0, "429"},
		"429 nonsense":       {429, "soon", ``, problem.ModelUnavailable, 0, "429"},
		"429 years":          {429, "99999999999999999999", ``, problem.ModelUnavailable, 24 * time.Hour, "429"},
		"429 far date":       {429, noon.AddDate(500, 0, 0).Format(http.TimeFormat), ``, problem.ModelUnavailable, 24 * time.Hour, "429"},
		"408":                {408, "", `timeout`, problem.ModelUnavailable, 0, "timeout"},
		"409":                {409, "", ``, problem.ModelUnavailable, 0, "409"},
		"500":                {500, "", `{"error":"down"}`, problem.ModelUnavailable, 0, "down"},
		"503":                {503, "7", `{"message":"busy"}`, problem.ModelUnavailable, 7 * time.Second, "busy"},
		"529":                {529, "", `{"detail":"overloaded"}`, problem.ModelUnavailable, 0, "overloaded"},
		"400":                {400, "", `{"error":{"message":"context length is 8192"}}`, problem.ModelError, 0, "context length is 8192"},
		"401":                {401, "9", `{"error":{"message":"no such key"}}`, problem.ModelError, 0, "no such key"},
		"403 text":           {403, "", `region not allowed`, problem.ModelError, 0, "region not allowed"},
		"404":                {404, "", `"no model"`, problem.ModelError, 0, "no model"},
		"422":                {422, "", `{"error":{"message":""},"detail":"bad tools"}`, problem.ModelError, 0, "bad tools"},
		"redirect elsewhere": {307, "", ``, problem.ModelError, 0, "redirect"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := serve(t, func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != "/chat/completions" {
					_, _ = io.WriteString(w, healthy) // where a redirect would lead
					return
				}
				if tt.header != "" {
					w.Header().Set("Retry-After", tt.header)
				}
				w.Header().Set("Location", "/elsewhere")
				w.WriteHeader(tt.status)
				_, _ = io.WriteString(w, tt.body)
			})
			_, err := newProvider(t, srv.URL, srv.Client()).Complete(t.Context(), json.RawMessage(`{}`))
			p := problem.From(err)
			if p == nil || p.Code != tt.code || p.RetryAfter != tt.retryAfter || !strings.Contains(p.Message, tt.says) {
				t.Errorf("got %+v", p)
			}
		})
	}
}

func TestBrokenConnections(t *testing.T) {
	t.Parallel()
	tests := map[string]http.HandlerFunc{
		"before the answer": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"within the answer": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "1000")
			_, _ = io.WriteString(w, healthy[:20])
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		},
		"within an answer without length": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, healthy)
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		},
	}
	for name, h := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := serve(t, h)
			got, err := newProvider(t, srv.URL, srv.Client()).Complete(t.Context(), json.RawMessage(`{}`))
			if problem.CodeOf(err) != problem.ModelUnavailable {
				t.Errorf("got %s, %v", got, err)
			}
		})
	}
}

func TestStatusSurvivesBrokenBody(t *testing.T) {
	t.Parallel()
	srv := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "1000")
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = io.WriteString(w, "bad credentials")
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	})
	_, err := newProvider(t, srv.URL, srv.Client()).Complete(t.Context(), json.RawMessage(`{}`))
	if problem.CodeOf(err) != problem.ModelError || !strings.Contains(err.Error(), "401") {
		t.Errorf("got %v", err)
	}
}

func TestTimeoutOfOneAttempt(t *testing.T) {
	t.Parallel()
	over := make(chan struct{})
	srv := serve(t, func(http.ResponseWriter, *http.Request) { <-over })
	defer close(over)
	client := *srv.Client()
	client.Timeout = 10 * time.Millisecond
	_, err := newProvider(t, srv.URL, &client).Complete(t.Context(), json.RawMessage(`{}`))
	if problem.CodeOf(err) != problem.ModelUnavailable || !strings.Contains(err.Error(), "timed out") {
		t.Errorf("got %v", err)
	}
}

func TestContextEndsCall(t *testing.T) {
	t.Parallel()
	cause := errors.New("lease lost")
	for name, status := range map[string]int{"before the status": 0, "within the body": 200, "within an error": 500} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancelCause(t.Context())
			over := make(chan struct{})
			srv := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				if status != 0 {
					w.WriteHeader(status)
					_ = http.NewResponseController(w).Flush()
				}
				cancel(cause)
				<-over
			})
			defer close(over)
			if _, err := newProvider(t, srv.URL, srv.Client()).Complete(ctx, json.RawMessage(`{}`)); !errors.Is(err, cause) {
				t.Errorf("got %v, want %v", err, cause)
			}
		})
	}
}

func TestAnswerTooLong(t *testing.T) {
	t.Parallel()
	srv := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		chunk := strings.Repeat(" ", 1<<20)
		for range gateway.MaxBody>>20 + 1 {
			if _, err := io.WriteString(w, chunk); err != nil {
				return
			}
		}
	})
	_, err := newProvider(t, srv.URL, srv.Client()).Complete(t.Context(), json.RawMessage(`{}`))
	if problem.CodeOf(err) != problem.ModelError {
		t.Errorf("got %v", err)
	}
}

// TestKeyNeverShown goes through the gateway, which redacts for all providers.
func TestKeyNeverShown(t *testing.T) {
	t.Parallel()
	encoded := base64.StdEncoding.EncodeToString([]byte(key))
	redact := strings.NewReplacer(key, "[secret:openai]", encoded, "[secret:openai]").Replace
	closed := httptest.NewServer(http.NotFoundHandler())
	closed.Close()
	echo := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/401/chat/completions":
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = io.WriteString(w, `{"error":{"message":"bad key `+key+`"}}`)
		case "/400/chat/completions":
			w.WriteHeader(http.StatusBadRequest)
			_, _ = io.WriteString(w, "<html>bad request: ")
			_ = r.Header.Write(w)
		case "/200/chat/completions":
			_, _ = io.WriteString(w, "<html>bad gateway: ")
			_ = r.Header.Write(w)
		case "/500/chat/completions":
			w.WriteHeader(http.StatusInternalServerError)
			_, _ = io.WriteString(w, "bad luck "+encoded)
		}
	})
	for base, says := range map[string]string{
		echo.URL + "/401":         "bad key",
		echo.URL + "/400":         "bad request",
		echo.URL + "/200":         "bad gateway",
		echo.URL + "/500":         "bad luck",
		closed.URL + "/?k=" + key: "refused",
	} {
		g, err := gateway.New(gateway.Config{
			Providers: map[string]gateway.Provider{"openai": newProvider(t, base, echo.Client())},
			Clock:     fixedClock{}, Rand: func(int64) int64 { return 0 }, Redact: redact,
		})
		if err != nil {
			t.Fatal(err)
		}
		_, err = g.Complete(t.Context(), gateway.Request{Model: "openai/m"})
		if err == nil {
			t.Fatalf("%s: no error", base)
		}
		if text := err.Error(); strings.Contains(text, key) || strings.Contains(text, encoded) || !strings.Contains(text, says) {
			t.Errorf("%s: got %q", base, text)
		}
	}
}

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	ok := openai.Config{BaseURL: "https://api.example.com/v1", APIKey: key, Client: &http.Client{}, Clock: fixedClock{}}
	for name, change := range map[string]func(*openai.Config){
		"no client":    func(c *openai.Config) { c.Client = nil },
		"no clock":     func(c *openai.Config) { c.Clock = nil },
		"no URL":       func(c *openai.Config) { c.BaseURL = "" },
		"no scheme":    func(c *openai.Config) { c.BaseURL = "api.example.com/v1?k=" + key },
		"other scheme": func(c *openai.Config) { c.BaseURL = "ftp://api.example.com/?k=" + key },
		"bad URL":      func(c *openai.Config) { c.BaseURL = "https://api.example.com/%zz" + key },
		"user name":    func(c *openai.Config) { c.BaseURL = "https://" + key + "@api.example.com" },
		"line end":     func(c *openai.Config) { c.APIKey = key + "\n" },
	} {
		cfg := ok
		change(&cfg)
		_, err := openai.New(cfg)
		if err == nil || strings.Contains(err.Error(), key) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	client := &http.Client{}
	cfg := ok
	cfg.Client = client
	if _, err := openai.New(cfg); err != nil || client.CheckRedirect != nil {
		t.Errorf("got %v; the client given was changed: %v", err, client.CheckRedirect != nil)
	}
}
