package conformance

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"time"

	"agentos/api"
	"agentos/internal/problem"
	"agentos/internal/rawjson"
)

// puppet is an agent that keeps every promise except the one its mode names. It
// has one capability, "work", whose message says what the model does: "read" calls
// read, "write" calls write, which needs approval, "fail" fails; anything else is
// answered. A run makes at most one call.
type puppet struct {
	mode  string
	dir   Dir
	clock quick

	mu      sync.Mutex
	runs    []*puppetRun
	keys    map[string]*puppetRun
	offset  time.Duration
	version int // of the tool's definition
	exited  chan struct{}
	dead    bool
	crashes int
}

// stage is how far a run has come; each is reached by a commit.
type stage int

const (
	created stage = iota
	answered
	waiting // held
	decided
	started
	returned // the call has ended
	ended
)

type puppetRun struct {
	api.Run
	stage    stage
	message  string
	tool     string
	args     json.RawMessage
	entries  []api.Entry
	holds    []*api.Hold
	digest   string
	outcome  string
	startedN int
}

func newPuppet(mode string, dir Dir) *puppet {
	return &puppet{mode: mode, dir: dir, clock: newQuick(), keys: map[string]*puppetRun{}}
}

// start is Config.Start.
func (p *puppet) start(_ context.Context, l Launch) (Server, error) {
	p.mu.Lock()
	p.offset, p.dead, p.exited = l.Offset, false, make(chan struct{})
	for _, r := range p.runs {
		if r.Status == api.RunRunning {
			p.recoverRun(r)
		}
	}
	p.mu.Unlock()
	srv := httptest.NewServer(p)
	var once sync.Once
	return Server{URL: srv.URL, Exited: p.exited, Kill: func() {
		p.mu.Lock()
		p.die()
		p.mu.Unlock()
		once.Do(srv.Close)
	}}, nil
}

func (p *puppet) die() {
	if !p.dead {
		p.dead = true
		close(p.exited)
	}
}

// reach dies at a point when the kit wants it to.
func (p *puppet) reach(point string) {
	if p.mode == "hides points" {
		return
	}
	die, err := p.dir.Reached(point)
	if err != nil || die {
		p.die()
		panic(http.ErrAbortHandler)
	}
}

func (p *puppet) now() time.Time { return p.clock.Now().Add(p.offset) }

// commit makes entries and what do changes durable between two points.
func (p *puppet) commit(r *puppetRun, to stage, entries ...api.Entry) {
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Type
	}
	p.reach("before:" + strings.Join(names, "+"))
	for _, e := range entries {
		e.Seq, e.At = int64(len(r.entries)+1), api.Time{Time: p.now()}
		r.entries = append(r.entries, e)
		switch e.Type {
		case "run.completed":
			r.Status = api.RunCompleted
		case "run.failed":
			r.Status = api.RunFailed
		}
	}
	r.stage = to
	p.reach("after:" + strings.Join(names, "+"))
}

func entry(kind, format string, args ...any) api.Entry {
	return api.Entry{Type: kind, Data: json.RawMessage(fmt.Sprintf(format, args...))}
}

func (p *puppet) startedEntry(r *puppetRun) api.Entry {
	r.startedN++
	return entry("call.started", `{"call":"call_1","effect":%q,"idempotency_key":%q}`, effect(r.tool), p.key(r))
}

// key is the idempotency key of the run's call.
func (p *puppet) key(r *puppetRun) string {
	if p.mode == "new key after crash" && r.startedN > 1 {
		return r.RunID + "/again"
	}
	return r.RunID + "/call_1"
}

func effect(tool string) string {
	if tool == "read" {
		return "read"
	}
	return "once"
}

// model notes a request to the model.
func (p *puppet) model(r *puppetRun) {
	request := `{"messages":[{"role":"user","content":"x"}]}`
	if r.stage == returned {
		request = `{"messages":[{"role":"user","content":"x"},{"role":"assistant","tool_calls":[{"id":"a"}]},{"role":"tool","tool_call_id":"a","content":"y"}]}`
		if p.mode == "invalid history" {
			request = strings.Replace(request, `"tool_call_id":"a"`, `"tool_call_id":"b"`, 1)
		}
	}
	if err := p.dir.NoteModel(json.RawMessage(request)); err != nil {
		panic(err)
	}
	p.reach("during:model")
}

// drive takes a run as far as it goes.
func (p *puppet) drive(r *puppetRun) {
	for r.Status == api.RunRunning {
		switch r.stage {
		case created:
			p.model(r)
			p.answer(r)
		case answered:
			p.open(r, kindToolCall)
		case decided:
			p.commit(r, started, p.startedEntry(r))
		case started:
			p.call(r)
		case returned:
			p.model(r)
			p.finish(r)
		case waiting, ended:
			return
		}
	}
}

func (p *puppet) answer(r *puppetRun) {
	switch {
	case r.message == "fail":
		p.commit(r, ended, entry("run.failed", `{}`))
		r.Error = &api.Error{Code: problem.MCPUnavailable, Message: "no way to docs"}
		if p.mode == "no message" {
			r.Error.Message = ""
		}
		if p.mode == "other code" {
			r.Error.Code = problem.Internal
		}
	case r.message == "read":
		r.tool, r.args = "read", json.RawMessage(`{"n":1}`)
		p.commit(r, started, entry("model.answered", `{}`), p.startedEntry(r))
	case r.message == "write" && p.mode != "asks nobody":
		r.tool, r.args = "write", json.RawMessage(`{"n":12345678901234567890}`)
		p.commit(r, answered, entry("model.answered", `{}`))
	default:
		p.finish(r)
	}
}

func (p *puppet) finish(r *puppetRun) {
	r.Output = json.RawMessage(`{"answer":"done"}`)
	switch p.mode {
	case "bad output":
		r.Output = json.RawMessage(`{"answer":5}`)
	case "other output":
		r.Output = json.RawMessage(`{"answer":"what?"}`)
	case "fails after decision":
		p.commit(r, ended, entry("run.failed", `{}`))
		r.Error = &api.Error{Code: "model_error", Message: "no"}
		return
	}
	p.commit(r, ended, entry("model.answered", `{}`), entry("run.completed", `{}`))
}

// open suspends the run.
func (p *puppet) open(r *puppetRun, kind string) {
	r.digest = fmt.Sprint("sha256:", p.version)
	it := api.Item{ID: "call_1", Title: r.tool, Data: r.args, Server: "tools", Tool: r.tool, ToolDigest: r.digest}
	if len(r.holds) > 0 && kind == kindToolCall {
		it.Changed = &api.Change{OldDigest: r.holds[0].Items[0].ToolDigest}
	}
	h := &api.Hold{
		HoldID: fmt.Sprintf("h_%s_%d", r.RunID, len(r.holds)+1), RunID: r.RunID, Status: api.HoldPending, Kind: kind, Intent: "Run " + r.tool + "?",
		Items: []api.Item{it}, Actions: actionsOf(kind), Revision: int64(len(r.entries) + 1),
		CreatedAt: api.Time{Time: p.now()}, ExpiresAt: api.Time{Time: p.now().Add(time.Hour)},
	}
	if p.mode == "no intent" {
		h.Intent = ""
	}
	p.commit(r, waiting, entry("hold.opened", `{"hold":{"kind":%q,"items":[{"id":"call_1"}]}}`, kind))
	r.Status, r.Hold, r.holds = api.RunHeld, h, append(r.holds, h)
}

// call lets the tool run.
func (p *puppet) call(r *puppetRun) {
	e := Execution{Server: "tools", Tool: r.tool, Arguments: r.args, Key: p.key(r)}
	if p.mode == "other arguments" {
		e.Arguments = json.RawMessage(`{"n":12345678901234567000}`)
	}
	times := 1
	if p.mode == "runs twice" {
		times = 2
	}
	for range times {
		if err := p.dir.NoteCall(e); err != nil {
			panic(err)
		}
	}
	p.reach("during:call")
	r.outcome = "success"
	if a, ok, err := p.dir.armed(); err == nil && ok && a.Kind == FaultDrop {
		if mine, err := p.dir.take(); err == nil && mine && p.dir.NoteLost(e) == nil && p.mode != "calls it a success" {
			r.outcome = "unknown"
		}
	}
	p.commit(r, returned, entry("call.finished", `{"call":"call_1","outcome":%q}`, r.outcome))
}

// recoverRun goes on with a run whose server died.
func (p *puppet) recoverRun(r *puppetRun) {
	wasStarted := r.stage == started
	p.commit(r, r.stage, entry("run.recovered", `{}`))
	switch {
	case !wasStarted:
	case p.mode == "forgets the call":
		r.outcome = "success"
		p.commit(r, returned, entry("call.finished", `{"call":"call_1","outcome":"success"}`))
	case effect(r.tool) == "once" && p.mode != "reruns after crash":
		p.open(r, kindUnknown)
	default:
		p.commit(r, started, p.startedEntry(r))
	}
	p.drive(r)
}

// decide applies a decision to a hold and answers.
func (p *puppet) decide(r *puppetRun, h *api.Hold, body api.Decide) (api.Decided, *refused) {
	d := body.Decisions[0]
	if h.Status == api.HoldPending && !p.now().Before(h.ExpiresAt.Time) && p.mode != "decides too late" {
		p.expire(r)
		return api.Decided{}, refuse(409, problem.HoldExpired, h)
	}
	if h.Status != api.HoldPending {
		return p.decideAgain(r, h, d)
	}
	switch {
	case p.mode == "refuses decisions" && d.ID == "call_1" && d.Action == actionApprove:
		return api.Decided{}, refuse(422, problem.InvalidDecision, h)
	case d.ID != "call_1" && p.mode != "takes unknown items",
		d.Action != actionEdit && !slices.Contains(h.Actions, d.Action) && p.mode != "takes unknown actions",
		d.Action == actionEdit && d.Data == nil && p.mode != "takes edits without data":
		return api.Decided{}, refuse(422, problem.InvalidDecision, h)
	case d.ID != "call_1", !slices.Contains(h.Actions, d.Action), d.Action == actionEdit && d.Data == nil:
		return api.Decided{Hold: *h, Run: r.Run}, nil
	}
	p.commit(r, r.stage, entry("hold.decided", `{}`), entry("hold.closed", `{}`))
	p.apply(r, h, d)
	p.drive(r)
	return api.Decided{Hold: *h, Run: r.Run}, nil
}

func (p *puppet) decideAgain(r *puppetRun, h *api.Hold, d api.ItemDecision) (api.Decided, *refused) {
	if h.Status == api.HoldExpired {
		return api.Decided{}, refuse(409, problem.HoldExpired, h)
	}
	same := h.Items[0].Decision.Action == d.Action
	if same && p.mode == "refuses repeats" || !same && p.mode != "takes second decisions" {
		return api.Decided{}, refuse(409, problem.HoldDecided, h)
	}
	return api.Decided{Hold: *h, Run: r.Run}, nil
}

func (p *puppet) apply(r *puppetRun, h *api.Hold, d api.ItemDecision) {
	changed := h.Items[0].ToolDigest != fmt.Sprint("sha256:", p.version)
	h.Status, h.Items[0].Decision = api.HoldDecided, &api.Decision{Action: d.Action, Data: d.Data}
	r.Status, r.Hold = api.RunRunning, nil
	switch d.Action {
	case actionEdit:
		r.args = d.Data
		r.stage = decided
	case actionApprove:
		r.stage = decided
		if changed && p.mode != "uses old approvals" {
			p.open(r, kindToolCall)
		}
	case actionReject:
		r.stage, r.outcome = returned, "rejected"
		if p.mode == "runs what was rejected" {
			r.stage = decided
		}
	case actionRetry:
		r.stage = decided
	default:
		p.commit(r, returned, entry("call.finished", `{"call":"call_1","outcome":"unknown"}`))
		r.outcome = "unknown"
	}
}

// expire ends a hold whose time is over.
func (p *puppet) expire(r *puppetRun) {
	r.Hold.Status, r.Hold, r.Status = api.HoldExpired, nil, api.RunRunning
	p.commit(r, returned, entry("hold.closed", `{}`))
	r.outcome = "expired"
	if p.mode == "runs what expired" {
		r.stage = decided
	}
	p.drive(r)
}

// refused is an answer that is no success.
type refused struct {
	status int
	body   api.ErrorBody
}

func refuse(status int, code problem.Code, h *api.Hold) *refused {
	return &refused{status: status, body: api.ErrorBody{Error: api.Error{Code: code, Message: "no"}, Hold: h}}
}

// ServeHTTP implements http.Handler.
func (p *puppet) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.dead {
		panic(http.ErrAbortHandler)
	}
	parts := strings.Split(strings.Trim(req.URL.Path, "/"), "/")
	switch last := parts[len(parts)-1]; {
	case last == "health":
		send(w, 200, api.Health{Status: "ok"})
	case last == "ready":
		send(w, 200, api.Ready{Store: api.StoreReady{Reachable: p.mode != "no store"}})
	case last == "agents":
		send(w, 200, api.AgentList{Agents: []api.Agent{p.agent()}})
	case len(parts) == 5 && parts[3] == "agents":
		if a, ok, err := p.dir.armed(); err == nil && ok && a.Kind == FaultChangeTool {
			if mine, err := p.dir.take(); err == nil && mine {
				p.version++
			}
		}
		send(w, 200, p.agent())
	case last == "runs":
		p.create(w, req, parts[len(parts)-2])
	case parts[3] == "runs":
		p.show(w, p.run(parts[4]), last)
	default:
		p.holdRequest(w, req, parts[4])
	}
}

func (p *puppet) holdRequest(w http.ResponseWriter, req *http.Request, id string) {
	var r *puppetRun
	var h *api.Hold
	for _, run := range p.runs {
		for _, hold := range run.holds {
			if hold.HoldID == id {
				r, h = run, hold
			}
		}
	}
	if req.Method == http.MethodGet {
		send(w, 200, h)
		return
	}
	var body api.Decide
	if err := json.NewDecoder(req.Body).Decode(&body); err != nil {
		panic(err)
	}
	out, no := p.decide(r, h, body)
	if no != nil {
		send(w, no.status, no.body)
		return
	}
	send(w, 200, out)
}

func (p *puppet) agent() api.Agent {
	docs := api.MCPServer{Name: "docs", Transport: "http", Status: "failed", Error: "egress_denied"}
	if p.mode == "reaches the network" {
		docs.Status, docs.Error = "connected", ""
	}
	return api.Agent{
		Name: "puppet", Digest: "sha256:00",
		MCPServers: []api.MCPServer{{Name: "tools", Transport: stdio, Status: "connected"}, docs},
		Capabilities: []api.Capability{{
			Name:   "work",
			Input:  json.RawMessage(`{"type":"object","properties":{"message":{"type":"string"}},"required":["message"]}`),
			Output: json.RawMessage(`{"type":"object","properties":{"answer":{"type":"string"}},"required":["answer"]}`),
			Tools: []api.Tool{
				{Name: "write", Server: "tools", Tool: "write", Description: fmt.Sprint("version ", p.version)},
			},
		}},
	}
}

func (p *puppet) create(w http.ResponseWriter, req *http.Request, capability string) {
	var body api.CreateRun
	if err := json.NewDecoder(req.Body).Decode(&body); err != nil {
		panic(err)
	}
	message, ok := rawjson.Text(rawjson.Get(body.Input, "message"))
	var no *refused
	switch {
	case capability != "work" && p.mode != "has every capability":
		no = refuse(404, problem.CapabilityNotFound, nil)
	case capability == "work" && !ok && p.mode != "takes any input":
		no = refuse(422, problem.InvalidInput, nil)
	case ok && p.mode == "accepts no run":
		no = refuse(500, problem.Internal, nil)
	case ok && (p.mode == "hangs up" || p.mode == "crashes" && len(p.runs) == 0 && p.crashes == 0):
		if p.mode == "crashes" {
			p.crashes++
			p.die()
		}
		panic(http.ErrAbortHandler)
	}
	if no != nil {
		send(w, no.status, no.body)
		return
	}
	key := req.Header.Get("Idempotency-Key")
	r := p.keys[key]
	if r == nil || key == "" {
		r = &puppetRun{message: message, Run: api.Run{RunID: fmt.Sprintf("r_%d", len(p.runs)+1), Status: api.RunRunning}}
		p.reach("before:run.created")
		p.runs, p.keys[key] = append(p.runs, r), r
		r.entries = append(r.entries, api.Entry{Seq: 1, Type: "run.created", Data: json.RawMessage(`{}`)})
		p.reach("after:run.created")
		p.drive(r)
	}
	send(w, 200, r.Run)
}

func (p *puppet) run(id string) *puppetRun {
	for _, r := range p.runs {
		if r.RunID == id {
			return r
		}
	}
	return &puppetRun{}
}

func (p *puppet) show(w http.ResponseWriter, r *puppetRun, what string) {
	if r.Status == api.RunHeld && !p.now().Before(r.Hold.ExpiresAt.Time) {
		p.expire(r)
	}
	switch what {
	case "trajectory":
		t := api.Trajectory{Run: r.Run}
		if r.tool != "" {
			t.Turns = []api.Turn{{Calls: []api.Call{{
				ID: "call_1", Name: r.tool, Server: "tools", Tool: r.tool, Effect: effect(r.tool), ProposedArguments: r.args, Outcome: r.outcome,
			}}}}
		}
		send(w, 200, t)
	case "events":
		w.Header().Set("Content-Type", "text/event-stream")
		for _, e := range r.entries {
			raw, err := rawjson.Marshal(e)
			if err != nil {
				panic(err)
			}
			fmt.Fprintf(w, "data: %s\n\n", raw)
		}
	default:
		send(w, 200, r.Run)
	}
}

func send(w http.ResponseWriter, status int, body any) {
	raw, err := rawjson.Marshal(body)
	if err != nil {
		panic(err)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(raw)
}
