package main

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"net/http/httptrace"
	"regexp"
	"strings"
	"testing"
	"time"
)

// The mock model is an OpenAI server, and an answer under way when it is told to
// stop is still given.
func TestMockModel(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	errsIn, errs := io.Pipe()
	exited := make(chan int, 1)
	go func() {
		exited <- execute(ctx, stdio{in: strings.NewReader(""), out: io.Discard, err: errs}, noEnv, []string{"mock-model", "--addr", "127.0.0.1:0"})
		_ = errs.Close()
	}()
	lines := bufio.NewReader(errsIn)
	line, err := lines.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`^agentos: mock model on (http://127\.0\.0\.1:\d+/v1)\n$`).FindStringSubmatch(line)
	if m == nil {
		t.Fatalf("said %q", line)
	}
	// The server asks for the body when it works on the request: then it is told
	// to stop.
	trace := &httptrace.ClientTrace{Got100Continue: stop}
	body := strings.NewReader(`{"model":"m","messages":[{"role":"user","content":"slow:50ms say:late"}]}`)
	req, err := http.NewRequestWithContext(httptrace.WithClientTrace(t.Context(), trace), http.MethodPost, m[1]+"/chat/completions", body)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Expect", "100-continue")
	transport := &http.Transport{ExpectContinueTimeout: time.Minute}
	defer transport.CloseIdleConnections()
	res, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	if err != nil || !strings.Contains(string(answer), `"content":"late"`) {
		t.Errorf("answer %s, %v", answer, err)
	}
	if code := <-exited; code != exitOK {
		t.Errorf("exit %d", code)
	}
}

func TestMockModelNeedsAnAddress(t *testing.T) {
	t.Parallel()
	var errs strings.Builder
	code := execute(t.Context(), stdio{in: strings.NewReader(""), out: io.Discard, err: &errs}, noEnv, []string{"mock-model", "--addr", "nowhere:0:0"})
	if code != exitUsage || !strings.Contains(errs.String(), "--addr nowhere:0:0: must be host:port") {
		t.Errorf("exit %d: %s", code, &errs)
	}
}
