package mcp

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// B29: the same questions over an event stream.
func TestServerAsksOverHTTP(t *testing.T) {
	t.Parallel()
	replies := make(chan msg, 20)
	var executed atomic.Int32
	r, _ := openWeb(t, func(w http.ResponseWriter, req *http.Request, m msg) bool {
		switch {
		case m.Method == "" && m.ID != nil:
			replies <- m
			w.WriteHeader(http.StatusAccepted)
			return true
		case m.Method != "tools/call":
			return false
		}
		executed.Add(1)
		for range 500 {
			stream(w, `data: {"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"unknown","progress":1}}`+"\n\n")
		}
		var told []string
		for _, id := range []string{string(m.ID), `"s-1"`} {
			for _, method := range []string{"ping", "roots/list", "sampling/createMessage", "foo/bar", "elicitation/create"} {
				stream(w, fmt.Sprintf("event: message\ndata: {\"jsonrpc\":\"2.0\",\"id\":%s,\"method\":%q}\n\n", id, method))
				select {
				case reply := <-replies:
					if string(reply.ID) != id {
						told = append(told, "wrong id "+string(reply.ID))
					}
					told = append(told, method+" "+string(reply.Result)+string(reply.Error))
				case <-req.Context().Done():
					return true
				}
			}
		}
		stream(w, "data: "+answer(m, text(strings.Join(told, "\n")))+"\n\n")
		return true
	})
	if got := r.mustConnect().call("s", "echo", `{}`); got.Text != wantTold() || executed.Load() != 1 {
		t.Errorf("told = %s\nwant %s", got.Text, wantTold())
	}
}

// B34: a stream that stays open after the answer.
func TestStreamStaysOpen(t *testing.T) {
	t.Parallel()
	r, s := openWeb(t, func(w http.ResponseWriter, req *http.Request, m msg) bool {
		if m.Method != "tools/call" {
			return false
		}
		_, args, _ := m.call()
		stream(w, "id: 1\ndata: "+answer(m, text(string(args)))+"\n\n")
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				stream(w, ": keep-alive\n\n")
			case <-req.Context().Done():
				return true
			}
		}
	})
	r.mustConnect()
	began := time.Now()
	for i := range 200 {
		args := fmt.Sprintf(`{"i":%d}`, i)
		if got := r.call("s", "echo", args); got.Text != args {
			t.Fatalf("call = %+v", got)
		}
	}
	if per := time.Since(began) / 200; per > 100*time.Millisecond {
		t.Errorf("%s for each call", per)
	}
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			if got := r.call("s", "echo", `{}`); got.Text != "{}" {
				t.Errorf("call = %+v", got)
			}
		})
	}
	wg.Wait()
	eventually(t, "the sockets level off", func() bool { return s.sockets() < 10 })
}

// B38: the grammar of event streams, over a real connection.
func TestEventStreamAnswers(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		parts func(ans string) []string
	}{
		{"LF", func(a string) []string { return []string{"data: " + a + "\n\n"} }},
		{"CRLF", func(a string) []string { return []string{"event: message\r\ndata: " + a + "\r\n\r\n"} }},
		{"CR", func(a string) []string { return []string{"data: " + a + "\r\r"} }},
		{"comments", func(a string) []string { return []string{": ping\n\n:\n\ndata: " + a + "\n: ping\n\n"} }},
		{"three data lines", func(a string) []string {
			i := strings.Index(a, `"result"`)
			return []string{"data: " + a[:1] + "\ndata: " + a[1:i] + "\ndata: " + a[i:] + "\n\n"}
		}},
		{"no space", func(a string) []string { return []string{"data:" + a + "\n\n"} }},
		{"byte order mark", func(a string) []string { return []string{"\xef\xbb\xbfdata: " + a + "\n\n"} }},
		{"unknown event", func(a string) []string {
			return []string{"event: weird\ndata: hello\n\nevent: message\ndata: " + a + "\n\n"}
		}},
		{"unknown event name on the answer", func(a string) []string { return []string{"event: weird\ndata: " + a + "\n\n"} }},
		{"id only", func(a string) []string { return []string{"id: 7\n\nid: 8\ndata: " + a + "\n\n"} }},
		{"empty data first", func(a string) []string { return []string{"id: 0\nretry: 10\ndata: " + a + "\n\n"} }},
		{"a byte at a time", func(a string) []string { return strings.Split("data: "+a+"\r\n\r\n", "") }},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r, _ := openWeb(t, func(w http.ResponseWriter, _ *http.Request, m msg) bool {
				if m.Method != "tools/call" {
					return false
				}
				a := answer(m, text("é😀"))
				if c.name == "a byte at a time" {
					for i := range len(a) + 9 {
						stream(w, ("data: " + a + "\r\n\r\n")[i:i+1])
						if i == len(a)+8 {
							break
						}
					}
					stream(w, "\n")
					return true
				}
				stream(w, c.parts(a)...)
				return true
			})
			if got := r.mustConnect().call("s", "echo", `{}`); got.Text != "é😀" {
				t.Errorf("call = %+v", got)
			}
		})
	}
	t.Run("3 MB in one line", func(t *testing.T) {
		t.Parallel()
		big := strings.Repeat("b", 3<<20)
		r, _ := openWeb(t, func(w http.ResponseWriter, _ *http.Request, m msg) bool {
			if m.Method != "tools/call" {
				return false
			}
			stream(w, "data: "+answer(m, text(big))+"\n\n")
			return true
		})
		if got := r.mustConnect().call("s", "echo", `{}`); got.Outcome != Success || !strings.Contains(got.Text, fmt.Sprintf("it has %d bytes", len(big))) {
			t.Errorf("%s %d", got.Outcome, len(got.Text))
		}
	})
}

// A stream that breaks is asked for again where it stopped, if it can be.
func TestStreamIsResumed(t *testing.T) {
	t.Parallel()
	var pending atomic.Pointer[msg]
	r, s := openWeb(t, func(w http.ResponseWriter, req *http.Request, m msg) bool {
		switch {
		case m.Method == "tools/call":
			pending.Store(&m)
			stream(w, "id: e-1\nretry: 5\ndata:\n\n")
			return true
		case req.Method == http.MethodGet && req.Header.Get("Last-Event-Id") == "e-1":
			stream(w, "id: e-2\ndata: "+answer(*pending.Load(), text("resumed"))+"\n\n")
			return true
		}
		return false
	})
	if got := r.mustConnect().call("s", "write", `{}`); got.Text != "resumed" || s.count("POST tools/call") != 1 {
		t.Errorf("call = %+v", got)
	}
}

// C24: an answer to 202 comes over the listening stream.
func TestAcceptedThenAnswered(t *testing.T) {
	t.Parallel()
	events := make(chan string, 1)
	r, _ := openWeb(t, func(w http.ResponseWriter, req *http.Request, m msg) bool {
		switch {
		case m.Method == "tools/call":
			events <- "data: " + answer(m, text("later")) + "\n\n"
			w.WriteHeader(http.StatusAccepted)
			return true
		case req.Method == http.MethodGet:
			stream(w, ": open\n\n")
			for {
				select {
				case e := <-events:
					stream(w, e)
				case <-req.Context().Done():
					return true
				}
			}
		}
		return false
	})
	if got := r.mustConnect().call("s", "write", `{}`); got.Text != "later" {
		t.Errorf("call = %+v", got)
	}
}

// B46 over HTTP: the listening stream tells of a changed list.
func TestListChangesOverHTTP(t *testing.T) {
	t.Parallel()
	tell := make(chan struct{})
	var mu sync.Mutex
	tools := standardTools
	r, _ := openWeb(t, func(w http.ResponseWriter, req *http.Request, m msg) bool {
		switch {
		case m.Method == "tools/list":
			mu.Lock()
			defer mu.Unlock()
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, answer(m, `{"tools":`+tools+`}`))
			return true
		case req.Method == http.MethodGet:
			stream(w, ": open\n\n")
			select {
			case <-tell:
				stream(w, `data: {"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`+"\n\n")
			case <-req.Context().Done():
			}
			return true
		}
		return false
	})
	r.mustConnect()
	mu.Lock()
	tools = "[" + toolJSON("only") + "]"
	mu.Unlock()
	close(tell)
	eventually(t, "the new list is there", func() bool { return slices.Equal(r.names(), []string{"s/only"}) })
}
