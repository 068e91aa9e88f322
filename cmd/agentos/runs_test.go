package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"agentos/api"
	"agentos/holds"
	"agentos/runtime/journal"
)

// call runs the command line against a server and returns the exit code and both
// outputs.
func call(t *testing.T, vars map[string]string, args ...string) (code int, out, errs string) {
	t.Helper()
	var o, e bytes.Buffer
	env := func(name string) (string, bool) { v, ok := vars[name]; return v, ok }
	code = execute(t.Context(), stdio{in: strings.NewReader(""), out: &o, err: &e}, env, args)
	return code, o.String(), e.String()
}

func TestDescribe(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		entry journal.Type
		data  any
		want  string
	}{
		{journal.RunCreated, journal.Created{Agent: "shop", Capability: "support"}, "run.created shop/support"},
		{journal.ModelAnswered, journal.Answered{Turn: 2, Model: "mock/m"}, "model.answered turn 2: mock/m answers"},
		{journal.ModelAnswered, journal.Answered{Turn: 1, Model: "m", Calls: []journal.Asked{{Name: "a"}, {Name: "b"}}}, "model.answered turn 1: m asks for a, b"},
		{journal.CallStarted, journal.Started{Call: "call_1", Server: "s", Tool: "t", Arguments: json.RawMessage(`{"a":"\u200b"}`)}, `call.started call_1 s/t {"a":"\u200b"}`},
		{journal.CallFinished, journal.Finished{Call: "call_1", Outcome: journal.Success, Text: "a\x1b[2K\nb"}, `call.finished call_1 success: a\u001b[2K\u000ab`},
		{journal.HoldOpened, journal.Opened{Hold: holds.Hold{ID: "h_1", Intent: "Run t?"}}, "hold.opened h_1 Run t?"},
		{journal.HoldDecided, journal.HoldDecision{By: "ann", Items: []journal.DecidedItem{{ID: "call_1", Decision: holds.Decision{Action: holds.Reject}}}}, "hold.decided call_1 reject by ann"},
		{journal.HoldClosed, journal.Closed{HoldID: "h_1", Why: holds.Expired}, "hold.closed h_1 expired"},
		{journal.HoldClosed, journal.Closed{HoldID: "h_1", Why: holds.Cancelled, Reason: "incident 7"}, "hold.closed h_1 cancelled: incident 7"},
		{journal.RunRecovered, journal.Recovered{Worker: "w", Unfinished: []string{"call_1"}}, "run.recovered by w; unfinished calls: call_1"},
		{journal.RunCompleted, journal.Completed{Output: json.RawMessage(`{"answer":1}`)}, `run.completed {"answer":1}`},
		{journal.RunFailed, journal.Failed{Error: journal.Fault{Code: "timeout", Message: "too long"}}, "run.failed too long (timeout)"},
		{journal.RunCancelled, journal.Cancel{By: "ann"}, "run.cancelled by ann"},
		{"run.praised", map[string]string{"by": "a newer server"}, `run.praised {"by":"a newer server"}`},
		{journal.RunCompleted, []int{1}, "run.completed [1]"},
	} {
		raw, err := json.Marshal(c.data)
		if err != nil {
			t.Fatal(err)
		}
		if got := describe(api.Entry{Type: string(c.entry), Data: raw}); got != c.want {
			t.Errorf("describe(%s %s) = %q, want %q", c.entry, raw, got, c.want)
		}
	}
}

func TestTheKeyGoesToItsServerOnly(t *testing.T) {
	t.Parallel()
	var leaked atomic.Value
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		leaked.Store(r.Header.Get("Authorization"))
	}))
	defer other.Close()
	var got atomic.Value
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got.Store(r.Header.Get("Authorization"))
		http.Redirect(w, r, other.URL, http.StatusTemporaryRedirect)
	}))
	defer srv.Close()
	code, _, errs := call(t, map[string]string{"AGENTOS_URL": srv.URL, "AGENTOS_API_KEY": "k-1"}, "runs", "list")
	if code != exitFailed || !strings.Contains(errs, "status 307") {
		t.Errorf("exit %d, %s", code, errs)
	}
	if got.Load() != "Bearer k-1" {
		t.Errorf("the server got %q", got.Load())
	}
	if leaked.Load() != nil {
		t.Errorf("the redirect was followed with %q", leaked.Load())
	}
}

// Between looking and deciding somebody else may decide: the revision that was
// looked at travels with the decision, and what stands is shown.
func TestADecisionNamesTheRevisionAndShowsWhatStands(t *testing.T) {
	t.Parallel()
	var sent api.Decide
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		hold := api.Hold{HoldID: "h_1_1", Status: api.HoldPending, Revision: 3, Items: []api.Item{{ID: "call_1"}, {ID: "call_2"}}}
		w.Header().Set("Content-Type", "application/json")
		if r.Method == http.MethodGet {
			_ = json.NewEncoder(w).Encode(hold)
			return
		}
		_ = json.NewDecoder(r.Body).Decode(&sent)
		hold.Revision, hold.Items[0].Decision = 4, &api.Decision{Action: "reject", By: "eve"}
		w.WriteHeader(http.StatusConflict)
		_ = json.NewEncoder(w).Encode(api.ErrorBody{Error: api.Error{Code: "hold_stale", Message: "look again"}, Hold: &hold})
	}))
	defer srv.Close()
	code, out, errs := call(t, map[string]string{"AGENTOS_URL": srv.URL}, "holds", "approve", "h_1_1", "--reason", "fine")
	if code != exitFailed || !strings.Contains(errs, "look again (hold_stale)") {
		t.Errorf("exit %d, %s", code, errs)
	}
	if !strings.Contains(out, "revision:  4") || !strings.Contains(out, "reject by eve") {
		t.Errorf("the hold as it stands is not shown:\n%s", out)
	}
	want := api.Decide{Revision: 3, Decisions: []api.ItemDecision{
		{ID: "call_1", Action: "approve", Reason: "fine"}, {ID: "call_2", Action: "approve", Reason: "fine"},
	}}
	if diff := cmp.Diff(want, sent); diff != "" {
		t.Errorf("(-want +sent)\n%s", diff)
	}
}

func TestItemsOfADecision(t *testing.T) {
	t.Parallel()
	decided := &api.Decision{Action: "approve"}
	half := api.Hold{Items: []api.Item{{ID: "call_1", Decision: decided}, {ID: "call_2"}}}
	whole := api.Hold{Items: []api.Item{{ID: "call_1", Decision: decided}, {ID: "call_2", Decision: decided}}}
	for _, c := range []struct {
		name  string
		hold  api.Hold
		one   bool
		named []string
		want  []string
	}{
		{"pending ones", half, false, nil, []string{"call_2"}},
		{"named ones, whatever they are", half, false, []string{"call_1", "x"}, []string{"call_1", "x"}},
		{"none is pending: a repeat of all", whole, false, nil, []string{"call_1", "call_2"}},
		{"data for the only pending one", half, true, nil, []string{"call_2"}},
		{"data for two", whole, true, nil, nil},
		{"data for two named", half, true, []string{"call_1", "call_2"}, nil},
	} {
		got, err := (&decision{one: c.one}).items(c.hold, c.named)
		if diff := cmp.Diff(c.want, got); diff != "" || (err == nil) != (c.want != nil) {
			t.Errorf("%s: error %v (-want +got)\n%s", c.name, err, diff)
		}
	}
}

// Output that cannot be written is a failure: a script must not take half a list
// for the whole.
func TestOutputThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	var errs bytes.Buffer
	code := execute(t.Context(), stdio{in: strings.NewReader(""), out: brokenPipe{}, err: &errs}, noEnv, []string{"schema"})
	if code != exitFailed || !strings.Contains(errs.String(), "the pipe is broken") {
		t.Errorf("exit %d, %s", code, &errs)
	}
}

type brokenPipe struct{}

func (brokenPipe) Write([]byte) (int, error) { return 0, errors.New("the pipe is broken") }

// A stream that breaks off is resumed; when that fails, the way to go on is told.
func TestEventsTellHowToGoOn(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if asked.Add(1) > 1 {
			if got := r.Header.Get("Last-Event-ID"); got != "3" {
				t.Errorf("resumed after %q", got)
			}
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = w.Write([]byte(`{"error":{"code":"store_unavailable","message":"the store did not answer"},"request_id":"x"}`))
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = w.Write([]byte("data: {\"seq\":3,\"at\":\"2026-01-02T03:04:05.000Z\",\"type\":\"run.recovered\",\"data\":{}}\n\n"))
	}))
	t.Cleanup(srv.Close)
	code, out, errs := call(t, map[string]string{"AGENTOS_URL": srv.URL}, "runs", "events", "r_1", "--after", "2")
	if code != exitFailed || !strings.HasPrefix(out, "3 ") || !strings.Contains(errs, "agentos runs events r_1 --after 3\n") || !strings.Contains(errs, "store_unavailable") {
		t.Errorf("exit %d\n%s%s", code, out, errs)
	}
}
