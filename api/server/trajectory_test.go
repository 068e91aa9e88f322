package server

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"agentos/api"
	"agentos/holds"
	"agentos/holds/policy"
	"agentos/internal/ids"
	"agentos/internal/problem"
	"agentos/internal/rawjson"
	"agentos/runtime/journal"
	"agentos/runtime/mcp"
	"agentos/runtime/store"
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

// written makes a journal; entry n is stamped n seconds past noon.
type written struct {
	t       *testing.T
	entries []journal.Entry
}

func (w *written) add(kind journal.Type, data any) *written {
	w.t.Helper()
	n, err := journal.Encode(kind, data)
	if err != nil {
		w.t.Fatal(err)
	}
	seq := int64(len(w.entries) + 1)
	w.entries = append(w.entries, journal.Entry{Seq: seq, At: noon.Add(time.Duration(seq) * time.Second), Type: kind, Data: n.Data})
	return w
}

func at(seq int) api.Time { return api.Time{Time: noon.Add(time.Duration(seq) * time.Second)} }

// crashed is a run whose gated call was approved, started, lost with its worker,
// asked about, tried again and lost again for good.
func crashed(t *testing.T) []journal.Entry {
	t.Helper()
	args := json.RawMessage(`{"id":12345678901234567890}`)
	servers, err := rawjson.Marshal([]mcp.Status{{Name: "orders", Transport: "stdio", Status: mcp.Connected, ServerInfo: &mcp.Info{Name: "o", Version: "1"}, ToolCount: 2}})
	if err != nil {
		t.Fatal(err)
	}
	hold := func(id string, kind holds.Kind) holds.Hold {
		return holds.Hold{
			ID: id, RunID: "r_1", Kind: kind, Status: holds.Pending, Intent: "Run it.", Actions: holds.Actions(kind),
			Items: []holds.Item{{ID: "call_1", Data: args, Server: "orders", Tool: "cancel"}},
		}
	}
	decided := func(hold string, action holds.Action, by string) journal.HoldDecision {
		return journal.HoldDecision{HoldID: hold, By: by, Items: []journal.DecidedItem{{ID: "call_1", Proposed: args, Decision: holds.Decision{Action: action, By: by, At: noon}}}}
	}
	started := journal.Started{Call: "call_1", Server: "orders", Tool: "cancel", Arguments: args, Effect: "once", IdempotencyKey: "r_1/call_1"}
	w := &written{t: t}
	w.add(journal.RunCreated, journal.Created{Agent: "shop", AgentDigest: "sha256:x", Capability: "support", Input: json.RawMessage(`{}`), Requester: "ann", Prompt: "go"})
	w.add(journal.ModelAnswered, journal.Answered{
		Turn: 1, Message: json.RawMessage(`{"role":"assistant"}`), Asked: "p/m", Model: "p/m2", LatencyMS: 30, Attempts: 2, ActiveMS: 40,
		Usage: &journal.Usage{InputTokens: 3, OutputTokens: 4, TotalTokens: 7}, Servers: servers,
		Calls: []journal.Asked{
			{ID: "call_1", ProviderID: "p1", Name: "cancel", Server: "orders", Tool: "cancel", Arguments: args, Verdict: policy.Verdict{Effect: policy.Ask, Rules: []string{"r1"}}},
			{ID: "call_2", Name: "nothing"},
		},
	})
	w.add(journal.CallFinished, journal.Finished{Call: "call_2", Outcome: journal.Invalid, Text: "There is no such tool."})
	w.add(journal.HoldOpened, journal.Opened{Hold: hold("h_1_1", holds.ToolCall)})
	w.add(journal.HoldDecided, decided("h_1_1", holds.Approve, "bob"))
	w.add(journal.HoldClosed, journal.Closed{HoldID: "h_1_1", Why: holds.Decided})
	w.add(journal.CallStarted, started)
	w.add(journal.RunRecovered, journal.Recovered{Worker: "w2", Epoch: 3, Unfinished: []string{"call_1"}})
	w.add(journal.HoldOpened, journal.Opened{Hold: hold("h_1_2", holds.OutcomeUnknown)})
	w.add(journal.HoldDecided, decided("h_1_2", holds.Retry, "eve"))
	w.add(journal.HoldClosed, journal.Closed{HoldID: "h_1_2", Why: holds.Decided})
	w.add(journal.CallStarted, started)
	w.add(journal.CallFinished, journal.Finished{Call: "call_1", Outcome: journal.Error, Text: "gone", ErrorCode: "mcp_error", MCPError: -32001, DurationMS: 12, Reconnects: 1, ActiveMS: 90})
	w.add(journal.RunFailed, journal.Failed{Error: journal.Fault{Code: problem.TooManyTurns, Message: "enough"}, ActiveMS: 95})
	return w.entries
}

func TestTrajectoryOfACrash(t *testing.T) {
	entries := crashed(t)
	v := store.View{Record: store.Record{ID: "r_1", Status: store.Failed}, First: entries[0], Last: entries[len(entries)-1]}
	got, err := trajectory(v, entries)
	if err != nil {
		t.Fatal(err)
	}
	args := json.RawMessage(`{"id":12345678901234567890}`)
	started, finished, refused := at(12), at(13), at(3)
	want := api.Trajectory{
		Run:        toRun(v),
		MCPServers: []api.MCPServer{{Name: "orders", Transport: "stdio", Status: "connected", ServerInfo: &api.ServerInfo{Name: "o", Version: "1"}, ToolCount: 2}},
		Turns: []api.Turn{{
			Turn: 1, At: at(2), ModelAsked: "p/m", ModelUsed: "p/m2", LatencyMS: 30, Attempts: 2,
			Usage: &api.Usage{InputTokens: 3, OutputTokens: 4, TotalTokens: 7}, Message: json.RawMessage(`{"role":"assistant"}`),
			Calls: []api.Call{{
				ID: "call_1", ProviderID: "p1", Provider: "mcp", Name: "cancel", Server: "orders", Tool: "cancel", Effect: "once",
				Verdict:           api.Verdict{Effect: "ask", Rules: []string{"r1"}},
				ProposedArguments: args, DecidedArguments: args, ExecutedArguments: args,
				Decisions: []api.CallDecision{
					{HoldID: "h_1_1", Decision: api.Decision{Action: "approve", By: "bob", At: at(0)}},
					{HoldID: "h_1_2", Decision: api.Decision{Action: "retry", By: "eve", At: at(0)}},
				},
				Executions: 2, StartedAt: &started, FinishedAt: &finished, Outcome: "error", Text: "gone", ErrorCode: "mcp_error",
				MCPError: -32001, DurationMS: 12, Reconnects: 1,
			}, {
				ID: "call_2", Provider: "mcp", Name: "nothing", FinishedAt: &refused, Outcome: "invalid", Text: "There is no such tool.",
			}},
		}},
		Holds: []api.HoldEvent{
			{HoldID: "h_1_1", Kind: "tool_call", Intent: "Run it.", Items: []string{"call_1"}, OpenedAt: at(4), ClosedAt: new(at(6)), Why: "decided"},
			{HoldID: "h_1_2", Kind: "outcome_unknown", Intent: "Run it.", Items: []string{"call_1"}, OpenedAt: at(9), ClosedAt: new(at(11)), Why: "decided"},
		},
		Recoveries: []api.Recovery{{At: at(8), Worker: "w2", Epoch: 3, Unfinished: []string{"call_1"}}},
		Totals: api.Totals{
			Turns: 1, Calls: 2, Executions: 2, Holds: 2, Reconnects: 1, Recoveries: 1,
			Usage: api.Usage{InputTokens: 3, OutputTokens: 4, TotalTokens: 7}, ModelMS: 30, ActiveMS: 95,
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("trajectory (-want +got):\n%s", diff)
	}
	if got.Run.Error == nil || got.Run.Error.Code != problem.TooManyTurns || got.Run.Requester != "ann" {
		t.Errorf("run %+v", got.Run)
	}
}

// Every prefix of a journal has a trajectory: it is asked for while a run goes on.
func TestTrajectoryOfEveryPrefix(t *testing.T) {
	entries := crashed(t)
	for n := 1; n <= len(entries); n++ {
		tr, err := trajectory(store.View{First: entries[0], Last: entries[n-1]}, entries[:n])
		if err != nil {
			t.Fatalf("%d entries: %v", n, err)
		}
		raw, err := rawjson.Marshal(tr)
		if err != nil || bytes.Contains(raw, []byte(":null")) && n > 1 {
			t.Errorf("%d entries: %v %s", n, err, raw)
		}
	}
	if _, err := trajectory(store.View{}, entries[1:]); err == nil {
		t.Error("a journal without its beginning: no error")
	}
}

// A run whose entries are lost is still shown in lists.
func TestRunOfADamagedRecord(t *testing.T) {
	run := toRun(store.View{Record: store.Record{ID: "r_1", Status: store.Completed, Summary: json.RawMessage(`"x"`)}})
	if run.RunID != "r_1" || run.Status != api.RunCompleted || run.Output != nil || run.Turns != 0 {
		t.Errorf("run %+v", run)
	}
	run = toRun(store.View{First: journal.Entry{Type: journal.RunCreated, Data: json.RawMessage(`[]`)}})
	if run.Requester != "" || run.Input != nil {
		t.Errorf("run %+v", run)
	}
}

func TestHoldShowsAChangedTool(t *testing.T) {
	h := toHold(holds.Hold{Items: []holds.Item{{ID: "call_1", Changed: &holds.Change{OldDigest: "sha256:a", OldSchema: json.RawMessage(`{}`), OldDecision: &holds.Decision{Action: holds.Approve, By: "ann"}}}}})
	ch := h.Items[0].Changed
	if ch == nil || ch.OldDigest != "sha256:a" || ch.OldDecision.By != "ann" || h.AlreadyRan != nil {
		t.Errorf("hold %+v", h)
	}
}

func TestRunTokens(t *testing.T) {
	tokens := NewRunTokens(ids.Random{})
	token := tokens.Issue("r_01abc", 7)
	if run, epoch, err := tokens.Verify(token); err != nil || run != "r_01abc" || epoch != 7 {
		t.Errorf("Verify(%q) = %q, %d, %v", token, run, epoch, err)
	}
	mac := token[strings.LastIndexByte(token, '.'):]
	for name, bad := range map[string]string{
		"empty": "", "a dot": ".", "no mac": strings.TrimSuffix(token, mac), "empty mac": strings.TrimSuffix(token, mac) + ".",
		"another epoch": "rt1.r_01abc.8" + mac, "another run": "rt1.r_01abd.7" + mac, "cut off": token[:len(token)-1], "longer": token + "A",
		"another key": NewRunTokens(ids.Random{}).Issue("r_01abc", 7), "a run id with a dot": tokens.Issue("r_1.2", 7),
	} {
		if _, _, err := tokens.Verify(bad); err == nil {
			t.Errorf("%s: Verify(%q) succeeded", name, bad)
		}
	}
}

// Whatever the body of a decision is, reading it gives an error or exactly the
// members it has.
func FuzzDecideBody(f *testing.F) {
	d, err := loadDocument()
	if err != nil {
		f.Fatal(err)
	}
	for _, seed := range []string{
		`{"decisions":[{"id":"call_1","action":"approve"}]}`,
		`{"decisions":[{"id":"call_1","action":"edit","data":{"n":1e400,"a":[]},"reason":"r"}],"revision":9007199254740991}`,
		`{"decisions":[{"id":"call_1","action":"approve","Action":"reject"}]}`,
		`{"decisions":[{"id":"a","action":"edit","data":null}],"revision":1e3}`,
		`{"decisions":[{"id":"\ud800","action":"x"}]}`, `[]`, `{`, `{"decisions":{}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		if rawjson.Check(raw) != nil || len(d.schemas["Decide"].Validate(raw)) > 0 {
			return
		}
		var body api.Decide
		if rawjson.Decode(raw, &body) != nil {
			return
		}
		again, err := rawjson.Marshal(body)
		if err != nil {
			t.Fatal(err)
		}
		if len(d.schemas["Decide"].Validate(again)) > 0 {
			t.Fatalf("%s became %s", raw, again)
		}
		for i, it := range body.Decisions {
			if it.ID == "" || it.Action == "" {
				t.Fatalf("item %d of %s lost its id or action", i, raw)
			}
		}
	})
}
