package main

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
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
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	ask := func(text string) string {
		body := strings.NewReader(`{"model":"m","messages":[{"role":"user","content":"` + text + `"}]}`)
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, m[1]+"/chat/completions", body)
		if err != nil {
			return err.Error()
		}
		res, err := (&http.Client{Transport: transport}).Do(req)
		if err != nil {
			return err.Error()
		}
		defer res.Body.Close()
		raw, err := io.ReadAll(res.Body)
		if err != nil {
			return err.Error()
		}
		return string(raw)
	}
	if got := ask("say:hello"); !strings.Contains(got, `"content":"hello"`) {
		t.Errorf("answer %s", got)
	}
	slow := make(chan string, 1)
	sent := make(chan struct{})
	go func() {
		close(sent)
		slow <- ask("slow:300ms say:late")
	}()
	<-sent
	// A request that is not there yet is refused; that is why it is asked until
	// one was under way.
	stop()
	answer := <-slow
	if !strings.Contains(answer, `"content":"late"`) && !strings.Contains(answer, "connection refused") && !strings.Contains(answer, "EOF") && !strings.Contains(answer, "reset") {
		t.Errorf("answer %s", answer)
	}
	if code := <-exited; code != exitOK {
		t.Errorf("exit %d", code)
	}
}

func TestMockModelNeedsAnAddress(t *testing.T) {
	t.Parallel()
	var errs strings.Builder
	code := execute(t.Context(), stdio{in: strings.NewReader(""), out: io.Discard, err: &errs}, noEnv, []string{"mock-model", "--addr", "nowhere:0:0"})
	if code != exitFailed || !strings.Contains(errs.String(), "cannot listen on nowhere:0:0") {
		t.Errorf("exit %d: %s", code, &errs)
	}
}
