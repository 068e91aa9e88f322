package mcp

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	mcpserver "github.com/mark3labs/mcp-go/server"

	"agentos/capabilities"
	"agentos/internal/egress"
)

// web is a scripted HTTP server. Its standard behaviour is that of a server with
// sessions that answers in JSON.
type web struct {
	*httptest.Server
	// over handles a request instead of the standard; m is empty unless POST.
	over func(w http.ResponseWriter, r *http.Request, m msg) bool

	mu       sync.Mutex
	session  int // the session that is alive
	executed []string
	seen     []string // method and MCP method of every request
	headers  []http.Header
	conns    map[net.Conn]bool
}

func newWeb(t *testing.T, over func(w http.ResponseWriter, r *http.Request, m msg) bool) *web {
	t.Helper()
	s := &web{over: over, conns: map[net.Conn]bool{}}
	s.Server = httptest.NewUnstartedServer(s)
	s.Config.ConnState = func(c net.Conn, state http.ConnState) {
		s.mu.Lock()
		defer s.mu.Unlock()
		switch state { //nolint:exhaustive // the others change no count
		case http.StateNew:
			s.conns[c] = true
		case http.StateClosed, http.StateHijacked:
			delete(s.conns, c)
		}
	}
	s.Start()
	t.Cleanup(s.CloseClientConnections)
	t.Cleanup(s.Close)
	return s
}

func (s *web) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var m msg
	if r.Method == http.MethodPost {
		body, _ := io.ReadAll(r.Body)
		_ = json.Unmarshal(body, &m)
	}
	s.mu.Lock()
	s.seen = append(s.seen, r.Method+" "+m.Method)
	s.headers = append(s.headers, r.Header.Clone())
	s.mu.Unlock()
	if s.over != nil && s.over(w, r, m) {
		return
	}
	s.standard(w, r, m)
}

func (s *web) standard(w http.ResponseWriter, r *http.Request, m msg) {
	switch {
	case r.Method == http.MethodGet:
		w.WriteHeader(http.StatusMethodNotAllowed)
	case r.Method == http.MethodDelete:
		w.WriteHeader(http.StatusNoContent)
	case m.Method == "initialize":
		s.mu.Lock()
		s.session++
		w.Header().Set("Mcp-Session-Id", fmt.Sprintf("session-%d", s.session))
		s.mu.Unlock()
		s.json(w, m, standard(m, standardTools))
	case r.Header.Get("Mcp-Session-Id") != s.current():
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprint(w, `{"jsonrpc":"2.0","error":{"code":-32001,"message":"Session not found"}}`)
	case m.ID == nil || m.Method == "":
		w.WriteHeader(http.StatusAccepted)
	default:
		if m.Method == "tools/call" {
			s.execute(m)
		}
		s.json(w, m, standard(m, standardTools))
	}
}

func (s *web) execute(m msg) {
	_, args, key := m.call()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.executed = append(s.executed, key+" "+string(args))
}

func (s *web) executions() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.executed)
}

func (s *web) count(what string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, x := range s.seen {
		if x == what {
			n++
		}
	}
	return n
}

// lastPost returns the headers of the last POST.
func (s *web) lastPost() http.Header {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, what := range slices.Backward(s.seen) {
		if strings.HasPrefix(what, "POST ") {
			return s.headers[i]
		}
	}
	return nil
}

func (s *web) sockets() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.conns)
}

func (s *web) current() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return fmt.Sprintf("session-%d", s.session)
}

func (s *web) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.session++
}

func (s *web) json(w http.ResponseWriter, m msg, result string) {
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, result)
}

func answer(m msg, result string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, result)
}

// stream writes an event stream and flushes.
func stream(w http.ResponseWriter, parts ...string) {
	w.Header().Set("Content-Type", "text/event-stream")
	for _, p := range parts {
		fmt.Fprint(w, p)
		w.(http.Flusher).Flush()
	}
}

// remote adds an HTTP server called "s".
func (r *rig) remote(url string) *capabilities.Server {
	s := &capabilities.Server{Alias: "s", URL: url, Required: true, ConnectTimeout: 10 * time.Second, CallTimeout: 10 * time.Second}
	r.cfg.Servers["s"] = s
	return s
}

// allow sets the hosts that can be reached.
func (r *rig) allow(urls ...string) *rig {
	r.t.Helper()
	var hosts []string
	for _, raw := range urls {
		u, err := url.Parse(raw)
		if err != nil {
			r.t.Fatal(err)
		}
		hosts = append(hosts, u.Host)
	}
	p, err := egress.New(egress.Config{Allow: hosts, URLs: urls})
	if err != nil {
		r.t.Fatal(err)
	}
	r.cfg.Egress = p
	return r
}

// web opens a set with one scripted HTTP server called "s".
func openWeb(t *testing.T, over func(w http.ResponseWriter, r *http.Request, m msg) bool) (*rig, *web) {
	t.Helper()
	s := newWeb(t, over)
	r := newRig(t).allow(s.URL)
	r.remote(s.URL + "/mcp").Headers = map[string]string{"Authorization": "Bearer token-1", "X-Api-Key": "key-1"}
	return r.open(), s
}

func TestHTTPConnectAndCall(t *testing.T) {
	t.Parallel()
	r, s := openWeb(t, nil)
	r.mustConnect()
	args := `{"z":12345678901234567890,"a":"<&> é"}`
	if got := r.call("s", "echo", args); got.Text != args {
		t.Errorf("call = %+v", got)
	}
	if err := r.Close(r.ctx()); err != nil {
		t.Fatal(err)
	}
	want := []string{"POST initialize", "POST notifications/initialized", "POST tools/list", "POST tools/call", "DELETE "}
	got := slices.DeleteFunc(slices.Clone(s.seen), func(s string) bool { return s == "GET " }) // opened beside
	if !slices.Equal(got, want) {
		t.Errorf("server saw %q, want %q", got, want)
	}
	for i, h := range s.headers {
		if h.Get("Authorization") != "Bearer token-1" || h.Get("X-Api-Key") != "key-1" {
			t.Errorf("request %d lacks the configured headers", i)
		}
		if i > 0 && (h.Get("Mcp-Protocol-Version") != "2025-11-25" || h.Get("Mcp-Session-Id") != "session-1") {
			t.Errorf("request %d: version %q session %q", i, h.Get("Mcp-Protocol-Version"), h.Get("Mcp-Session-Id"))
		}
	}
}

// C24: a session forgotten before a call is refused by the server: connected
// again, sent once more, executed once.
func TestSessionGone(t *testing.T) {
	t.Parallel()
	t.Run("404", func(t *testing.T) {
		t.Parallel()
		r, s := openWeb(t, nil)
		r.mustConnect()
		s.forget()
		got := r.call("s", "write", `{}`)
		if got.Outcome != Success || got.Reconnects != 1 || s.executions() != 1 || r.Status()[0].Reconnects != 1 {
			t.Errorf("call = %+v, %d executions, %+v", got, s.executions(), r.Status())
		}
		if n := s.count("DELETE "); n != 0 {
			t.Errorf("a session that is gone was ended %d times", n)
		}
	})
	t.Run("400 that speaks of the session", func(t *testing.T) {
		t.Parallel()
		var refused atomic.Bool
		r, s := openWeb(t, func(w http.ResponseWriter, _ *http.Request, m msg) bool {
			if m.Method != "tools/call" || refused.Swap(true) {
				return false
			}
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprint(w, `{"jsonrpc":"2.0","error":{"code":-32000,"message":"Bad Request: No valid session ID provided"},"id":null}`)
			return true
		})
		if got := r.mustConnect().call("s", "write", `{}`); got.Outcome != Success || got.Reconnects != 1 || s.executions() != 1 {
			t.Errorf("call = %+v", got)
		}
	})
	t.Run("for ever", func(t *testing.T) {
		t.Parallel()
		var calls atomic.Int32
		r, _ := openWeb(t, func(w http.ResponseWriter, _ *http.Request, m msg) bool {
			if m.Method == "tools/call" {
				calls.Add(1)
				w.WriteHeader(http.StatusNotFound)
				return true
			}
			return false
		})
		if got := r.mustConnect().call("s", "write", `{}`); got.Outcome != Error || got.ErrorCode != CodeRefused || calls.Load() != 2 {
			t.Errorf("call = %+v after %d sendings", got, calls.Load())
		}
	})
}

// C24, B40: statuses and other answers to a call.
func TestCallStatuses(t *testing.T) {
	t.Parallel()
	cut := func(w http.ResponseWriter) {
		c, _, _ := w.(http.Hijacker).Hijack()
		_ = c.Close()
	}
	for _, c := range []struct {
		name    string
		effect  Effect
		reply   func(w http.ResponseWriter, m msg)
		outcome Outcome
		code    string
		text    string
		sent    int
	}{
		{"401", Once, func(w http.ResponseWriter, _ msg) {
			w.Header().Set("WWW-Authenticate", `Bearer realm="mcp"`)
			w.WriteHeader(http.StatusUnauthorized)
			fmt.Fprint(w, "expired")
		}, Error, CodeRefused, `HTTP 401, the server wants other credentials (WWW-Authenticate: Bearer realm="mcp"): expired`, 1},
		{
			"403", Once, func(w http.ResponseWriter, _ msg) {
				w.WriteHeader(http.StatusForbidden)
				fmt.Fprint(w, `{"error":"token lacks scope"}`)
			},
			Error, CodeRefused, `HTTP 403: {"error":"token lacks scope"}`, 1,
		},
		{
			"429", Once, func(w http.ResponseWriter, _ msg) {
				w.Header().Set("Retry-After", "7")
				w.WriteHeader(http.StatusTooManyRequests)
			},
			Error, CodeRefused, "HTTP 429: (no body) (it asks to wait 7s)", 1,
		},
		{"500 once", Once, func(w http.ResponseWriter, _ msg) {
			w.WriteHeader(http.StatusInternalServerError)
			fmt.Fprint(w, "oops")
		}, Unknown, CodeOutcomeUnknown, "HTTP 500: oops", 1},
		{"502 read", Read, func(w http.ResponseWriter, _ msg) { w.WriteHeader(http.StatusBadGateway) }, Unknown, CodeOutcomeUnknown, "HTTP 502", 3},
		{"cut once", Once, func(w http.ResponseWriter, _ msg) { cut(w) }, Unknown, CodeOutcomeUnknown, "the connection broke", 1},
		{"cut idempotent", Idempotent, func(w http.ResponseWriter, _ msg) { cut(w) }, Unknown, CodeOutcomeUnknown, "the connection broke", 3},
		{"html", Once, func(w http.ResponseWriter, _ msg) {
			w.Header().Set("Content-Type", "text/html")
			fmt.Fprint(w, "<html>\n<b>login</b>")
		}, Unknown, CodeOutcomeUnknown, `HTTP 200 with content type "text/html" instead of JSON or an event stream: <html> <b>login</b>`, 1},
		{"empty body", Once, func(w http.ResponseWriter, _ msg) { w.Header().Set("Content-Type", "application/json") }, Unknown, CodeOutcomeUnknown, "empty body", 1},
		{"broken json", Once, func(w http.ResponseWriter, _ msg) {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, `{"jsonrpc":`)
		}, Unknown, CodeOutcomeUnknown, "no answer", 1},
		{"wrong id", Once, func(w http.ResponseWriter, _ msg) {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, `{"jsonrpc":"2.0","id":4711,"result":{"content":"x"}}`)
		}, Unknown, CodeOutcomeUnknown, "answered another request: id 4711", 1},
		{"wrong id in a stream that stays", Once, func(w http.ResponseWriter, _ msg) {
			stream(w, `data: {"jsonrpc":"2.0","id":4711,"result":{"content":"x"}}`+"\n\n", ": stay\n\n")
		}, Unknown, CodeOutcomeUnknown, "answered another request", 1},
		{"id as text", Once, func(w http.ResponseWriter, m msg) {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":"%s","result":{"content":"x"}}`, m.ID)
		}, Success, "", "x", 1},
		{"id as float, stream", Once, func(w http.ResponseWriter, m msg) {
			stream(w, fmt.Sprintf("data: {\"jsonrpc\":\"2.0\",\"id\":%s.0,\"result\":{\"content\":\"x\"}}\n\n", m.ID))
		}, Success, "", "x", 1},
		{"null id", Once, func(w http.ResponseWriter, _ msg) {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, `{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"no"}}`)
		}, Error, CodeMCPError, "MCP error -32600: no", 1},
		{"stream without the answer", Once, func(w http.ResponseWriter, _ msg) { stream(w, ": nothing\n\n") }, Unknown, CodeOutcomeUnknown, "the event stream ended before the answer", 1},
		{"stream whose answer is not closed", Once, func(w http.ResponseWriter, m msg) { stream(w, "data: "+answer(m, text("x"))+"\n") }, Unknown, CodeOutcomeUnknown, "ended before the answer", 1},
		{"too large", Read, func(w http.ResponseWriter, _ msg) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.CopyN(w, strings.NewReader(strings.Repeat(" ", 17<<20)), 17<<20)
		}, Error, CodeInvalidResult, "over the limit", 1},
		{"event too large", Read, func(w http.ResponseWriter, _ msg) {
			stream(w, "data: ")
			_, _ = io.Copy(w, strings.NewReader(strings.Repeat("x", 17<<20)))
		}, Error, CodeInvalidResult, "over the size limit", 1},
		{"upper case type", Once, func(w http.ResponseWriter, m msg) {
			w.Header().Set("Content-Type", "Application/JSON; charset=UTF-8")
			fmt.Fprint(w, answer(m, text("x")))
		}, Success, "", "x", 1},
		{"gzip", Once, func(w http.ResponseWriter, m msg) {
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Content-Encoding", "gzip")
			z := gzip.NewWriter(w)
			fmt.Fprint(z, answer(m, text("x")))
			_ = z.Close()
		}, Success, "", "x", 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var sent atomic.Int32
			done := make(chan struct{})
			t.Cleanup(func() { close(done) })
			r, _ := openWeb(t, func(w http.ResponseWriter, req *http.Request, m msg) bool {
				if m.Method != "tools/call" {
					return false
				}
				sent.Add(1)
				c.reply(w, m)
				if strings.HasSuffix(c.name, "that stays") {
					select {
					case <-done:
					case <-req.Context().Done():
					}
				}
				return true
			})
			began := time.Now()
			got := r.mustConnect().callAs(c.effect, "s", "echo", `{}`)
			if got.Outcome != c.outcome || got.ErrorCode != c.code || !strings.Contains(got.Text, c.text) || int(sent.Load()) != c.sent {
				t.Errorf("sent %d times: %+v", sent.Load(), got)
			}
			if took := time.Since(began); took > 8*time.Second { // far below call_timeout
				t.Errorf("took %s", took)
			}
		})
	}
}

// B32, B40, B33: answers to the handshake.
func TestHandshakeAnswers(t *testing.T) {
	t.Parallel()
	write := func(status int, contentType, body string) func(http.ResponseWriter, *http.Request, msg) {
		return func(w http.ResponseWriter, _ *http.Request, m msg) {
			if contentType != "" {
				w.Header().Set("Content-Type", contentType)
			} else {
				w.Header()["Content-Type"] = nil
			}
			if status == 429 {
				w.Header().Set("Retry-After", "3600")
			}
			w.Header().Set("Mcp-Session-Id", "session-0")
			w.WriteHeader(status)
			fmt.Fprint(w, strings.ReplaceAll(body, "ANSWER", answer(m, standard(m, ""))))
		}
	}
	for _, c := range []struct {
		name   string
		method string
		reply  func(http.ResponseWriter, *http.Request, msg)
		err    string // "" means that it connects
	}{
		{"text/plain", "initialize", write(200, "text/plain", "ANSWER"), `initialize: HTTP 200 with content type "text/plain" instead of JSON or an event stream: {"jsonrpc"`},
		{"login page", "initialize", write(200, "text/html", "<html><title>Log in</title>"), `content type "text/html" instead of JSON or an event stream: <html><title>Log in`},
		{"no type", "initialize", write(200, "", "ANSWER"), `HTTP 200 with content type ""`},
		{"upper case", "initialize", write(200, "Application/JSON; charset=UTF-8", "ANSWER"), ""},
		{"empty", "initialize", write(200, "application/json", ""), "HTTP 200 with an empty body"},
		{"empty stream", "initialize", write(200, "text/event-stream", ""), "the event stream ended before the answer"},
		{"400", "initialize", write(400, "text/plain", "only 2025-03-26 spoken here"), "initialize: HTTP 400: only 2025-03-26 spoken here"},
		{"403", "initialize", write(403, "application/json", `{"error":"caller address refused"}`), `initialize: HTTP 403: {"error":"caller address refused"}`},
		{"404", "initialize", write(404, "", ""), "initialize: HTTP 404: (no body)"},
		{"405", "initialize", write(405, "", "POST not here"), "initialize: HTTP 405: POST not here"},
		{"429", "initialize", write(429, "", "slow down"), "initialize: HTTP 429: slow down"},
		{"rpc error", "initialize", write(200, "application/json", `{"jsonrpc":"2.0","id":1,"error":{"code":-31999,"message":"no room"}}`), "initialize: MCP error -31999: no room"},
		{"unknown revision", "initialize", write(200, "application/json", `{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"1999-01-01","capabilities":{},"serverInfo":{"name":"x","version":"1"}}}`), "1999-01-01"},
		{"revision without handshake", "initialize", write(200, "application/json", `{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2026-07-28","capabilities":{},"serverInfo":{"name":"x","version":"1"}}}`), "2026-07-28"},
		{"notification 200", "notifications/initialized", write(200, "", ""), ""},
		{"notification 200 text", "notifications/initialized", write(200, "text/plain", "thanks"), ""},
		{"notification 202 body", "notifications/initialized", write(202, "application/json", "{}"), ""},
		{"notification 204", "notifications/initialized", write(204, "", ""), ""},
		{"notification 500", "notifications/initialized", write(500, "", "not today"), "initialize: HTTP 500: not today"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			began := time.Now()
			r, s := openWeb(t, func(w http.ResponseWriter, req *http.Request, m msg) bool {
				if m.Method != c.method {
					return false
				}
				c.reply(w, req, m)
				return true
			})
			st := r.Status()[0]
			if took := time.Since(began); took > 2*time.Second {
				t.Errorf("took %s", took)
			}
			if c.err == "" {
				r.mustConnect()
				return
			}
			if st.Status != Failed || !strings.Contains(st.Error, c.err) || strings.Contains(st.Error, "SSE") || strings.Contains(st.Error, s.URL) {
				t.Errorf("%s: %q, want %q", st.Status, st.Error, c.err)
			}
			if c.name == "429" {
				if got := r.call("s", "echo", `{}`); got.Outcome != Error || s.count("POST initialize") != 1 {
					t.Errorf("the server asked to wait, but got %d requests", s.count("POST initialize"))
				}
			}
		})
	}
}

// B40 (d): the revision agreed on is the one that is sent.
func TestAgreedRevisionIsSent(t *testing.T) {
	t.Parallel()
	r, _ := openWeb(t, func(w http.ResponseWriter, req *http.Request, m msg) bool {
		if m.Method == "initialize" {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, answer(m, `{"protocolVersion":"2025-03-26","capabilities":{"tools":{}},"serverInfo":{"name":"x","version":"1"}}`))
			return true
		}
		if req.Header.Get("Mcp-Protocol-Version") != "2025-03-26" {
			w.WriteHeader(http.StatusBadRequest)
			return true
		}
		w.Header().Set("Content-Type", "application/json")
		if m.ID != nil {
			fmt.Fprint(w, answer(m, standard(m, standardTools)))
		}
		return true
	})
	if st := r.mustConnect().Status()[0]; st.ProtocolVersion != "2025-03-26" {
		t.Errorf("status = %+v", st)
	}
	if got := r.call("s", "echo", `{}`); got.Text != "{}" {
		t.Errorf("call = %+v", got)
	}
}

// B36: redirects.
func TestRedirects(t *testing.T) {
	t.Parallel()
	elsewhere := newWeb(t, func(w http.ResponseWriter, _ *http.Request, _ msg) bool {
		w.WriteHeader(http.StatusInternalServerError)
		return true
	})
	for _, c := range []struct {
		name   string
		status int
		to     string // relative to the same origin, or absolute
		listed bool
		err    string
	}{
		{"307 same origin", 307, "/mcp/", false, ""},
		{"308 same origin", 308, "/mcp/", false, ""},
		{"301", 301, "/mcp/", false, `HTTP 301 redirects to "http://HOST/mcp/"`},
		{"302", 302, "/mcp/", false, `HTTP 302 redirects to "http://HOST/mcp/"`},
		{"303", 303, "/mcp/", false, `HTTP 303 redirects to "http://HOST/mcp/"`},
		{"other origin, listed", 307, elsewhere.URL + "/mcp", true, "HTTP 307 redirects to \"" + elsewhere.URL + "/mcp\": another origin"},
		{"other origin, not listed", 307, elsewhere.URL + "/mcp", false, "network.allow"},
		{"to https", 308, "https://127.0.0.1:1/mcp", false, "network.allow"},
		{"metadata address", 307, "http://169.254.169.254/latest", false, `"169.254.169.254" is not allowed`},
		{"loop", 307, "/mcp", false, "more than 5 redirects"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newWeb(t, nil)
			s.over = func(w http.ResponseWriter, req *http.Request, _ msg) bool {
				if req.URL.Path != "/mcp" {
					return false
				}
				w.Header().Set("Location", c.to)
				w.WriteHeader(c.status)
				return true
			}
			r := newRig(t).allow(s.URL)
			if c.listed {
				r.allow(s.URL, elsewhere.URL)
			}
			r.remote(s.URL + "/mcp").Headers = map[string]string{"Authorization": "Bearer token-1", "X-Api-Key": "key-1"}
			r.open()
			st := r.Status()[0]
			if c.err == "" {
				args := `{"kept":12345678901234567890}`
				if got := r.mustConnect().call("s", "echo", args); got.Text != args {
					t.Errorf("call = %+v", got)
				}
				if h := s.lastPost(); h.Get("X-Api-Key") != "key-1" || h.Get("Mcp-Session-Id") != "session-1" {
					t.Errorf("headers after the redirect = %v", h)
				}
				return
			}
			want := strings.ReplaceAll(c.err, "HOST", strings.TrimPrefix(s.URL, "http://"))
			if st.Status != Failed || !strings.Contains(st.Error, want) {
				t.Errorf("%s %q, want %q", st.Status, st.Error, want)
			}
		})
	}
	t.Cleanup(func() {
		if len(elsewhere.headers) > 0 {
			t.Errorf("the other origin got %d requests", len(elsewhere.headers))
		}
	})
}

// B33: what servers answer to the end of a session.
func TestEndOfSession(t *testing.T) {
	t.Parallel()
	for _, status := range []int{200, 404, 405, 501, 307, 0} {
		t.Run(strconv.Itoa(status), func(t *testing.T) {
			t.Parallel()
			release := make(chan struct{})
			r, s := openWeb(t, func(w http.ResponseWriter, req *http.Request, _ msg) bool {
				if req.Method != http.MethodDelete {
					return false
				}
				if status == 0 {
					select {
					case <-release:
					case <-req.Context().Done():
					}
					return true
				}
				w.Header().Set("Location", "/elsewhere")
				w.WriteHeader(status)
				return true
			})
			defer close(release)
			r.mustConnect()
			began := time.Now()
			if err := r.Close(r.ctx()); err != nil || time.Since(began) > 4*time.Second {
				t.Errorf("Close = %v after %s", err, time.Since(began))
			}
			if s.count("DELETE ") == 0 || strings.Contains(r.log.String(), "level=WARN") || strings.Contains(r.log.String(), "level=ERROR") {
				t.Error("the session was not ended quietly")
			}
		})
	}
}

// A server that is down: nothing is sent, the call says so, and it comes back.
func TestServerDownAndUpAgain(t *testing.T) {
	t.Parallel()
	s := newWeb(t, nil)
	host := strings.TrimPrefix(s.URL, "http://")
	r := newRig(t).allow(s.URL)
	r.remote(s.URL + "/mcp")
	r.open().mustConnect()
	s.CloseClientConnections()
	s.Close()
	r.cfg.Egress.Close() // so that no connection is used whose end was not noticed yet
	got := r.call("s", "write", `{}`)
	if got.Outcome != Error || got.ErrorCode != "mcp_unavailable" || !strings.Contains(got.Text, "nothing was sent") {
		t.Errorf("while down: %+v", got)
	}
	if st := r.Status()[0]; st.Status != Disconnected || !strings.Contains(st.Error, "not reachable") || strings.Contains(st.Error, "/mcp") {
		t.Errorf("status = %+v", st)
	}
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", host)
	if err != nil {
		t.Fatal(err)
	}
	again := &web{conns: map[net.Conn]bool{}}
	srv := &http.Server{Handler: again, ReadHeaderTimeout: time.Second}
	var wg sync.WaitGroup
	wg.Go(func() { _ = srv.Serve(l) })
	t.Cleanup(func() { _ = srv.Close(); wg.Wait() })
	eventually(t, "it is connected again", func() bool { return r.Status()[0].Status == Connected })
	if got := r.call("s", "write", `{}`); got.Outcome != Success || again.executions() != 1 {
		t.Errorf("after: %+v", got)
	}
}

func TestEgressDenied(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.remote("http://mcp.example.test:8765/mcp")
	r.open()
	if st := r.Status()[0]; st.Status != Failed || !strings.Contains(st.Error, "network.allow: [mcp.example.test]") {
		t.Errorf("status = %+v", st)
	}
	if got := r.call("s", "x", `{}`); got.ErrorCode != "egress_denied" || !strings.Contains(got.Text, "network.allow") {
		t.Errorf("call = %+v", got)
	}
}

// The call's timeout and the caller's end over HTTP: the server is told.
func TestCancelOverHTTP(t *testing.T) {
	t.Parallel()
	cancelled := make(chan string, 2)
	started := make(chan struct{}, 2)
	r, _ := openWeb(t, func(_ http.ResponseWriter, req *http.Request, m msg) bool {
		switch m.Method {
		case "tools/call":
			started <- struct{}{}
			<-req.Context().Done()
			return true
		case "notifications/cancelled":
			cancelled <- string(m.Params)
		}
		return false
	})
	r.mustConnect()
	r.cfg.Servers["s"].CallTimeout = 200 * time.Millisecond
	if got := r.call("s", "echo", `{}`); got.Outcome != Timeout || got.MCPError != -32001 {
		t.Errorf("timeout = %+v", got)
	}
	if got := <-cancelled; got != `{"requestId":3,"reason":"call_timeout expired"}` {
		t.Errorf("cancelled %s", got)
	}
	<-started
	r.cfg.Servers["s"].CallTimeout = time.Minute
	ctx, cancel := context.WithCancel(r.ctx())
	go func() { <-started; cancel() }()
	if got := r.Call(ctx, CallRequest{Server: "s", Tool: "echo"}); got.Outcome != Unknown {
		t.Errorf("cancelled = %+v", got)
	}
	<-cancelled
}

// Close ends calls that are open.
func TestCloseEndsOpenCalls(t *testing.T) {
	t.Parallel()
	started := make(chan struct{})
	r, _ := openWeb(t, func(_ http.ResponseWriter, req *http.Request, m msg) bool {
		if m.Method != "tools/call" {
			return false
		}
		close(started)
		<-req.Context().Done()
		return true
	})
	r.mustConnect()
	done := make(chan Result)
	go func() { done <- r.call("s", "echo", `{}`) }()
	<-started
	if err := r.Close(r.ctx()); err != nil {
		t.Fatal(err)
	}
	if got := <-done; got.Outcome != Unknown || !strings.Contains(got.Text, "shut down") {
		t.Errorf("call = %+v", got)
	}
}

// The other side of the library over HTTP.
func TestLibraryServerOverHTTP(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(mcpserver.NewStreamableHTTPServer(libraryServer()))
	t.Cleanup(s.Close)
	r := newRig(t).allow(s.URL)
	r.remote(s.URL)
	r.open().mustConnect()
	if got := r.call("s", "e", `{"n":9007199254740993}`); got.Text != `e{"n":9007199254740993}` || len(r.Tools()) != 5 {
		t.Errorf("call = %+v", got)
	}
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			if got := r.call("s", "a", `{}`); got.Text != "a{}" {
				t.Errorf("call = %+v", got)
			}
		})
	}
	wg.Wait()
}

// C36: a secret in the error of a server.
func TestSecretInHTTPError(t *testing.T) {
	t.Parallel()
	s := newWeb(t, func(w http.ResponseWriter, req *http.Request, _ msg) bool {
		w.WriteHeader(http.StatusForbidden)
		var all bytes.Buffer
		_ = req.Header.Write(&all)
		_, _ = w.Write(all.Bytes())
		return true
	})
	r := newRig(t).allow(s.URL)
	r.cfg.Redact = redactor("token", "token-of-the-docs")
	r.cfg.Resolve = func(s string) (string, error) {
		return strings.ReplaceAll(s, "${secrets.token}", "token-of-the-docs"), nil
	}
	r.remote(s.URL).Headers = map[string]string{"Authorization": "Bearer ${secrets.token}"}
	r.open()
	if st := r.Status()[0]; !strings.Contains(st.Error, "Bearer [secret:token]") || strings.Contains(st.Error, "token-of") {
		t.Errorf("error = %q", st.Error)
	}
	if strings.Contains(r.log.String(), "token-of") {
		t.Error("the secret is in the log")
	}
}
