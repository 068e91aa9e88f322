package runtime_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"agentos/internal/problem"
	"agentos/internal/rawjson"
	"agentos/runtime/journal"
	"agentos/runtime/store"
)

// B16: an object sent as text inside the arguments is not repaired behind the
// reviewer's back; the model is told where, and recovers.
func TestNestedObjectAsText(t *testing.T) {
	r := newRig(t, usual, sequence(
		asks(call{"a", "search", `{"filter":"{\"status\":\"open\"}","note":"{\"a\":1}"}`}),
		asks(call{"b", "search", `{"filter":{"status":"open"},"note":"{\"a\":1}"}`}),
		says("found"))).up()
	v := r.start("go")
	r.want(v, store.Completed)
	s := r.state(v.ID)
	if f := s.Calls[0].Finished; s.Holds != 0 || f.Outcome != journal.Invalid || !strings.Contains(f.Text, "/filter") || !strings.Contains(f.Text, "object") {
		t.Errorf("first call: %+v", f)
	}
	if got := string(s.Calls[1].Started.Arguments); got != `{"filter":{"status":"open"},"note":"{\"a\":1}"}` {
		t.Errorf("the tool got %s", got)
	}
	r.ran("search", "", 1)
}

// B20: when an answer that says nothing is corrected, no empty assistant message
// is sent: strict servers refuse it.
func TestEmptyAnswerIsNotSentBack(t *testing.T) {
	r := newRig(t, "", sequence(`{"choices":[{"finish_reason":"stop","message":{"role":"assistant","content":""}}]}`, says(`{"n":1}`)))
	r.up()
	c := r.agent.Manifest.Capabilities["support"]
	c.Output = json.RawMessage(`{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}`)
	c.OutputSchema = compile(t, c.Output)
	v := r.start("go")
	r.want(v, store.Completed)
	for _, m := range r.model.messages(t, 2) {
		if role, _ := rawjson.Text(rawjson.Get(m, "role")); role == "assistant" {
			t.Errorf("sent %s", m)
		}
	}
}

// C09: a long wait asked for by the provider parks the run: no worker holds it,
// nobody polls it, and it can be cancelled meanwhile.
func TestLongRetryAfterParks(t *testing.T) {
	r := newRig(t, usual, func(int, json.RawMessage) (string, error) {
		p := problem.New(problem.ModelUnavailable, "HTTP 429: slow down")
		p.RetryAfter = time.Hour
		return "", p
	}).up()
	v := r.begin("go")
	ctx := r.ctx()
	news, err := r.store.Watch(ctx, v.ID)
	if err != nil {
		t.Fatal(err)
	}
	for {
		<-news
		got, err := r.engine.View(ctx, "default", v.ID)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(got.Summary), `"retries":1`) {
			r.want(got, store.Running)
			break
		}
	}
	if n := r.model.asked(); n != 1 {
		t.Errorf("the model was asked %d times before its hour was over", n)
	}
	if claimed, err := r.store.Claim(ctx, 10, time.Second); err != nil || len(claimed) != 0 {
		t.Errorf("claimed %v, %v", claimed, err)
	}
	if _, err := r.engine.Cancel(ctx, "default", v.ID, "ann"); err != nil {
		t.Fatal(err)
	}
	s := r.until(v.ID, func(s *journal.State) bool { return s.End != "" })
	if s.End != journal.RunCancelled {
		t.Errorf("end %s", s.End)
	}
}

// Errors of the model that waiting does not mend end the run at once, with the
// provider's words.
func TestModelErrorEndsTheRun(t *testing.T) {
	r := newRig(t, usual, func(int, json.RawMessage) (string, error) {
		return "", problem.New(problem.ModelError, "HTTP 400: context length exceeded")
	}).up()
	v := r.start("go")
	r.wantFault(v, problem.ModelError)
	if f := r.state(v.ID).Fault; !strings.Contains(f.Message, "context length") {
		t.Errorf("fault %+v", f)
	}
	if n := r.model.asked(); n != 1 {
		t.Errorf("asked %d times", n)
	}
}
