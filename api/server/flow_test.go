package server_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"agentos/api"
	"agentos/api/client"
	"agentos/internal/problem"
	"agentos/internal/rawjson"
)

const runsPath = "/v0/envs/default/agents/shop/capabilities/support/runs"

func TestRunCompletes(t *testing.T) {
	r := newRig(t)
	run := r.create("say:hello", 10*time.Second)
	if run.Status != api.RunCompleted || string(run.Output) != `{"answer":"hello"}` {
		t.Fatalf("run %s, output %s", run.Status, run.Output)
	}
	if run.Requester != "local" || run.Turns != 1 || run.Usage.TotalTokens == 0 || run.AgentDigest == "" {
		t.Errorf("run = %+v", run)
	}
	again, err := r.client.Run(r.ctx(), "default", run.RunID, 0)
	if err != nil || again.Status != api.RunCompleted || !again.UpdatedAt.Equal(run.UpdatedAt.Time) {
		t.Errorf("read again: %v %+v", err, again)
	}
}

// C05: numbers, order, escapes and markup of values reach the journal and come
// back as they were sent.
func TestValuesKeepTheirBytes(t *testing.T) {
	r := newRig(t)
	input := `{"message":"say:<b>&amp;</b> 😀 \u0001","z":12345678901234567890,"a":1.0,"b":9007199254740993}`
	a := r.send(call{method: "POST", path: runsPath + "?wait=true", body: `{"input":` + input + `,"metadata":{"n":10000000000000000000001,"h":"<&>"}}`})
	if a.status != http.StatusOK {
		t.Fatalf("%d %s", a.status, a.body)
	}
	for _, part := range []string{`"input":` + input, `"metadata":{"n":10000000000000000000001,"h":"<&>"}`} {
		if !bytes.Contains(a.body, []byte(part)) {
			t.Errorf("%s is not in %s", part, a.body)
		}
	}
	if got := string(rawjson.Get(a.body, "created_at")); len(got) != len(`"2026-01-02T03:04:05.678Z"`) || !strings.HasSuffix(got, `Z"`) {
		t.Errorf("created_at = %s, want UTC with milliseconds", got)
	}
}

// C16: the wait ends before the run; the run does not notice and can be waited for
// again.
func TestWaitEndsFirst(t *testing.T) {
	r := newRig(t)
	a := r.send(call{method: "POST", path: runsPath + "?wait=true&wait_timeout=50ms", body: `{"input":{"message":"slow:600ms say:done"}}`})
	var run api.Run
	if err := json.Unmarshal(a.body, &run); err != nil || a.status != http.StatusAccepted || run.Status != api.RunRunning {
		t.Fatalf("%d %s", a.status, a.body)
	}
	if got, want := a.header.Get("Location"), "/v0/envs/default/runs/"+run.RunID; got != want {
		t.Errorf("Location = %q, want %q", got, want)
	}
	if a := r.send(call{method: "GET", path: a.header.Get("Location") + "?wait=true&wait_timeout=10ms"}); a.status != http.StatusAccepted {
		t.Errorf("waiting again, too short: %d %s", a.status, a.body)
	}
	if run, err := r.client.Run(r.ctx(), "default", run.RunID, 10*time.Second); err != nil || run.Status != api.RunCompleted {
		t.Errorf("waiting again: %v, %s", err, run.Status)
	}
}

// C16: a caller that goes away changes nothing.
func TestCallerGoesAway(t *testing.T) {
	r := newRig(t)
	ctx, cancel := context.WithTimeout(r.ctx(), 200*time.Millisecond)
	defer cancel()
	_, err := r.client.CreateRun(ctx, client.CreateRun{
		Env: "default", Agent: "shop", Capability: "support", Body: message(`slow:700ms say:done`), Key: "k", Wait: 10 * time.Second,
	})
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("the impatient caller got %v", err)
	}
	run, err := r.client.CreateRun(r.ctx(), client.CreateRun{
		Env: "default", Agent: "shop", Capability: "support", Body: message(`slow:700ms say:done`), Key: "k", Wait: 10 * time.Second,
	})
	if err != nil || run.Status != api.RunCompleted || run.Turns != 1 {
		t.Errorf("the same request again: %v %+v", err, run)
	}
}

// C20: one key, one run.
func TestIdempotencyKey(t *testing.T) {
	r := newRig(t)
	var wg sync.WaitGroup
	runIDs := make([]string, 20)
	for i := range runIDs {
		wg.Go(func() {
			run, err := r.client.CreateRun(r.ctx(), client.CreateRun{
				Env: "default", Agent: "shop", Capability: "support", Body: message(`call:ping {} then say:ok`), Key: "one", Wait: 10 * time.Second,
			})
			if err != nil || run.Status != api.RunCompleted {
				t.Errorf("%v %s", err, run.Status)
			}
			runIDs[i] = run.RunID
		})
	}
	wg.Wait()
	for _, id := range runIDs {
		if id != runIDs[0] {
			t.Fatalf("two runs: %s and %s", id, runIDs[0])
		}
	}
	r.ran("ping", "", 1)
	a := r.send(call{method: "POST", path: runsPath, body: `{"input":{"message":"call:ping {} then say:ok"}}`, headers: []string{"Idempotency-Key: one"}})
	if a.status != http.StatusOK {
		t.Errorf("a repeat without wait answers %d %s, want 200: the run is finished", a.status, a.body)
	}
	a = r.send(call{method: "POST", path: runsPath, body: `{"input":{"message":"say:other"}}`, headers: []string{"Idempotency-Key: one"}})
	if a.status != http.StatusConflict || a.code() != "idempotency_conflict" {
		t.Errorf("other body: %d %s", a.status, a.body)
	}
}

func TestHoldIsShownAndApproved(t *testing.T) {
	r := newRig(t)
	run := r.create(`call:lookup_order {"order_id":"A-1"} then call:cancel_order {"order_id":"A-2","n":12345678901234567890} then say:done`, 10*time.Second)
	if run.Status != api.RunHeld || run.Hold == nil {
		t.Fatalf("run %+v", run)
	}
	h, err := r.client.Hold(r.ctx(), "default", run.Hold.HoldID)
	if err != nil {
		t.Fatal(err)
	}
	if len(h.Items) != 1 || string(h.Items[0].Data) != `{"order_id":"A-2","n":12345678901234567890}` || h.Items[0].Tool != "cancel_order" ||
		h.Items[0].Server != "orders" || len(h.Items[0].Rules) != 1 || len(h.Items[0].Schema) == 0 || h.Status != api.HoldPending {
		t.Errorf("hold = %+v", h)
	}
	if len(h.AlreadyRan) != 1 || h.AlreadyRan[0].Tool != "lookup_order" || h.AlreadyRan[0].Outcome != "success" || string(h.AlreadyRan[0].Arguments) != `{"order_id":"A-1"}` {
		t.Errorf("already ran: %+v", h.AlreadyRan)
	}
	r.ran("cancel_order", "", 0)
	d, err := r.decide(h.HoldID, 10*time.Second, api.ItemDecision{ID: h.Items[0].ID, Action: "approve"})
	if err != nil || d.Run.Status != api.RunCompleted || d.Hold.Status != api.HoldDecided || d.Hold.Items[0].Decision.By != "local" {
		t.Fatalf("decide: %v %+v", err, d)
	}
	r.ran("cancel_order", "12345678901234567890", 1)
}

// C14, and the three sets of arguments in the trajectory.
func TestEditRunsExactlyThoseBytes(t *testing.T) {
	r := newRig(t)
	run := r.held("A-1")
	edit := func(data string) (api.Decided, error) {
		return r.decide(run.Hold.HoldID, 10*time.Second, api.ItemDecision{ID: "call_1", Action: "edit", Data: json.RawMessage(data), Reason: "wrong order"})
	}
	_, err := edit(`{"order_id":7}`)
	var ce *client.Error
	if !errors.As(err, &ce) || ce.Problem.Code != problem.InvalidEdit || ce.Status != http.StatusUnprocessableEntity ||
		ce.Hold == nil || ce.Hold.Status != api.HoldPending || ce.Problem.Details[0].Path != "/decisions/0/data/order_id" {
		t.Fatalf("a number for a string: %v", err)
	}
	d, err := edit(`{"reason":"<typo>","order_id":"A-9"}`)
	if err != nil || d.Run.Status != api.RunCompleted {
		t.Fatalf("edit: %v %+v", err, d)
	}
	r.ran("cancel_order", "A-9", 1)
	tr, err := r.client.Trajectory(r.ctx(), "default", run.RunID)
	if err != nil {
		t.Fatal(err)
	}
	c := tr.Turns[0].Calls[0]
	if string(c.ProposedArguments) != `{"order_id":"A-1"}` || string(c.DecidedArguments) != `{"reason":"<typo>","order_id":"A-9"}` ||
		string(c.ExecutedArguments) != string(c.DecidedArguments) {
		t.Errorf("arguments: %s, %s, %s", c.ProposedArguments, c.DecidedArguments, c.ExecutedArguments)
	}
	if !strings.Contains(c.Text, `cancelled {"reason":"<typo>","order_id":"A-9"}`) {
		t.Errorf("the tool saw other bytes: %s", c.Text)
	}
	if len(c.Decisions) != 1 || c.Decisions[0].By != "local" || c.Decisions[0].HoldID != run.Hold.HoldID || c.Decisions[0].Reason != "wrong order" {
		t.Errorf("decisions: %+v", c.Decisions)
	}
	if c.Verdict.Effect != "ask" || len(c.Verdict.Rules) != 1 || c.Outcome != "success" || c.Effect != "once" || c.Executions != 1 {
		t.Errorf("call = %+v", c)
	}
	if len(tr.MCPServers) != 1 || tr.MCPServers[0].Status != "connected" || tr.MCPServers[0].ServerInfo == nil {
		t.Errorf("mcp servers: %+v", tr.MCPServers)
	}
	if tr.Totals.Turns != 2 || tr.Totals.Calls != 1 || tr.Totals.Executions != 1 || tr.Totals.Holds != 1 || tr.Totals.Usage != tr.Run.Usage {
		t.Errorf("totals: %+v, run usage %+v", tr.Totals, tr.Run.Usage)
	}
	if len(tr.Holds) != 1 || tr.Holds[0].Why != "decided" || tr.Holds[0].ClosedAt == nil {
		t.Errorf("holds: %+v", tr.Holds)
	}
}

// C10: eight clients race; each loser sees the winner, and the tool runs at most
// once.
func TestRacingDecisions(t *testing.T) {
	r := newRig(t)
	run := r.held("A-1")
	var wg sync.WaitGroup
	var mu sync.Mutex
	won := map[string]int{}
	for i := range 8 {
		wg.Go(func() {
			action := []string{"approve", "reject"}[i%2]
			_, err := r.decide(run.Hold.HoldID, 0, item(action))
			var ce *client.Error
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				won[action]++
			case !errors.As(err, &ce) || ce.Status != http.StatusConflict || ce.Hold == nil || ce.Hold.Items[0].Decision == nil:
				t.Errorf("loser: %v", err)
			case ce.Hold.Items[0].Decision.Action == action:
				t.Errorf("the winner did the same and is a conflict")
			}
		})
	}
	wg.Wait()
	if len(won) != 1 {
		t.Fatalf("winners: %v", won)
	}
	final, err := r.client.Run(r.ctx(), "default", run.RunID, 10*time.Second)
	if err != nil || final.Status != api.RunCompleted {
		t.Fatalf("%v %s", err, final.Status)
	}
	r.ran("cancel_order", "", won["approve"]/4)
}

// B05: a part of the decisions keeps the hold pending; repeats change nothing.
func TestPartialDecision(t *testing.T) {
	r := newRig(t)
	run := r.create(`call:cancel_order {"order_id":"A-1"} call:cancel_order {"order_id":"A-2"} then say:ok`, 10*time.Second)
	for range 2 {
		d, err := r.decide(run.Hold.HoldID, 2*time.Second, item("approve"))
		if err != nil || d.Hold.Status != api.HoldPending || d.Hold.Items[0].Decision == nil || d.Run.Status != api.RunHeld {
			t.Fatalf("first item: %v %+v", err, d)
		}
	}
	r.ran("cancel_order", "", 0)
	d, err := r.decide(run.Hold.HoldID, 10*time.Second, api.ItemDecision{ID: "call_2", Action: "approve"})
	if err != nil || d.Run.Status != api.RunCompleted {
		t.Fatalf("second item: %v %+v", err, d)
	}
	if d, err := r.decide(run.Hold.HoldID, 10*time.Second, item("approve")); err != nil || d.Hold.Status != api.HoldDecided {
		t.Errorf("first body a third time: %v %s", err, d.Hold.Status)
	}
	r.ran("cancel_order", "A-1", 1)
	r.ran("cancel_order", "A-2", 1)
}

// B03: what was said about one hold never decides another.
func TestDecisionOfAnEarlierHold(t *testing.T) {
	r := newRig(t)
	run := r.create(`call:cancel_order {"order_id":"A-1"} then call:cancel_order {"order_id":"A-2"} then say:ok`, 10*time.Second)
	first := run.Hold
	d, err := r.decide(first.HoldID, 10*time.Second, item("approve"))
	if err != nil || d.Run.Status != api.RunHeld || d.Run.Hold.HoldID == first.HoldID {
		t.Fatalf("%v %+v", err, d.Run)
	}
	second := d.Run.Hold
	if d, err := r.decide(first.HoldID, 0, item("approve")); err != nil || d.Hold.Status != api.HoldDecided {
		t.Errorf("identical repeat: %v", err)
	}
	for name, body := range map[string]struct {
		hold string
		body api.Decide
		want problem.Code
	}{
		"old item, new hold":     {second.HoldID, api.Decide{Decisions: []api.ItemDecision{item("approve")}}, problem.InvalidDecision},
		"new item, old hold":     {first.HoldID, api.Decide{Decisions: []api.ItemDecision{{ID: second.Items[0].ID, Action: "approve"}}}, problem.HoldDecided},
		"old revision, new hold": {second.HoldID, api.Decide{Decisions: []api.ItemDecision{{ID: second.Items[0].ID, Action: "approve"}}, Revision: first.Revision}, problem.HoldStale},
	} {
		_, err := r.client.Decide(r.ctx(), client.Decide{Env: "default", Hold: body.hold, Body: body.body})
		if problem.CodeOf(err) != body.want {
			t.Errorf("%s: %v, want %s", name, err, body.want)
		}
	}
	if h, err := r.client.Hold(r.ctx(), "default", second.HoldID); err != nil || h.Status != api.HoldPending {
		t.Errorf("second hold: %v %s", err, h.Status)
	}
	r.ran("cancel_order", "", 1)
}

// B60: the caller of a decision goes away, or sends half of it.
func TestDeciderGoesAway(t *testing.T) {
	r := newRig(t)
	run := r.create(`call:cancel_order {"order_id":"A-1"} then call:wait {"ms":600} then say:ok`, 10*time.Second)
	r.halfBody(run.Hold.HoldID)
	if h, err := r.client.Hold(r.ctx(), "default", run.Hold.HoldID); err != nil || h.Status != api.HoldPending {
		t.Fatalf("after half a body: %v %s", err, h.Status)
	}
	ctx, cancel := context.WithTimeout(r.ctx(), 150*time.Millisecond)
	defer cancel()
	_, err := r.client.Decide(ctx, client.Decide{Env: "default", Hold: run.Hold.HoldID, Body: api.Decide{Decisions: []api.ItemDecision{item("approve")}}, Wait: 10 * time.Second})
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("the impatient caller got %v", err)
	}
	a := r.send(call{method: "POST", path: "/v0/envs/default/holds/" + run.Hold.HoldID + "/decisions?wait=true&wait_timeout=20ms", body: `{"decisions":[{"id":"call_1","action":"approve"}]}`})
	var d api.Decided
	if err := json.Unmarshal(a.body, &d); err != nil || a.status != http.StatusAccepted || d.Run.Status != api.RunRunning || d.Hold.Status != api.HoldDecided {
		t.Errorf("a wait that ends first: %d %s", a.status, a.body)
	}
	if d, err := r.decide(run.Hold.HoldID, 10*time.Second, item("approve")); err != nil || d.Run.Status != api.RunCompleted {
		t.Errorf("identical repeat: %v %s", err, d.Run.Status)
	}
	r.ran("cancel_order", "", 1)
	r.ran("wait", "", 1)
}

func TestCancel(t *testing.T) {
	r := newRig(t)
	held := r.held("A-1")
	run, err := r.client.Cancel(r.ctx(), "default", held.RunID)
	if err != nil || run.Status != api.RunCancelled || run.CancelledBy != "local" || run.Hold != nil {
		t.Fatalf("held: %v %+v", err, run)
	}
	if again, err := r.client.Cancel(r.ctx(), "default", held.RunID); err != nil || again.Status != api.RunCancelled {
		t.Errorf("again: %v %s", err, again.Status)
	}
	busy := r.busy()
	if _, err := r.client.Cancel(r.ctx(), "default", busy.RunID); err != nil {
		t.Errorf("busy: %v", err)
	}
	if run, err := r.client.Run(r.ctx(), "default", busy.RunID, 10*time.Second); err != nil || run.Status != api.RunCancelled {
		t.Errorf("busy, later: %v %s", err, run.Status)
	}
	if a := r.send(call{method: "POST", path: "/v0/envs/default/runs/" + held.RunID + "/cancel", body: `{"by":"eve"}`}); a.status != http.StatusBadRequest {
		t.Errorf("with a body: %d %s", a.status, a.body)
	}
}

func TestLists(t *testing.T) {
	r := newRig(t)
	var made []string
	for range 3 {
		made = append(made, r.create("say:x", 10*time.Second).RunID)
	}
	held := r.held("A-1")
	var got []string
	cursor := ""
	for {
		page, err := r.client.Runs(r.ctx(), "default", client.RunQuery{Status: api.RunCompleted, Agent: "shop", Limit: 2, Cursor: cursor})
		if err != nil {
			t.Fatal(err)
		}
		for _, run := range page.Runs {
			got = append([]string{run.RunID}, got...)
		}
		if cursor = page.NextCursor; cursor == "" {
			break
		}
	}
	if strings.Join(got, " ") != strings.Join(made, " ") {
		t.Errorf("runs oldest first: %v, want %v", got, made)
	}
	list, err := r.client.Holds(r.ctx(), "default", client.HoldQuery{Status: api.HoldPending, Agent: "shop"})
	if err != nil || len(list.Holds) != 1 || list.Holds[0].RunID != held.RunID || list.Holds[0].AlreadyRan != nil {
		t.Errorf("holds: %v %+v", err, list)
	}
	if list, err = r.client.Holds(r.ctx(), "default", client.HoldQuery{OlderThan: time.Hour}); err != nil || len(list.Holds) != 0 {
		t.Errorf("older than an hour: %v %+v", err, list)
	}
	r.clock.off.Store(int64(2 * time.Hour))
	if list, err = r.client.Holds(r.ctx(), "default", client.HoldQuery{OlderThan: time.Hour}); err != nil || len(list.Holds) != 1 {
		t.Errorf("two hours later: %v %+v", err, list)
	}
}

// halfBody sends the beginning of a decision that its Content-Length promises more
// of, and hangs up.
func (r *rig) halfBody(hold string) {
	r.t.Helper()
	address := strings.TrimPrefix(r.http.URL, "http://")
	conn, err := (&net.Dialer{}).DialContext(r.ctx(), "tcp", address)
	if err != nil {
		r.t.Fatal(err)
	}
	body := `{"decisions":[{"id":"call_1","action":"approve"}]}`
	fmt.Fprintf(conn, "POST /v0/envs/default/holds/%s/decisions HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
		hold, address, len(body)+1, body)
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
		r.t.Fatal(err)
	}
	answer, err := io.ReadAll(conn)
	if err != nil || !bytes.HasPrefix(answer, []byte("HTTP/1.1 400 ")) {
		r.t.Errorf("half a body: %v %q", err, answer)
	}
	conn.Close()
}
