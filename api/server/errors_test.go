package server_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"agentos/api"
	"agentos/internal/problem"
	"agentos/runtime/store"
)

const (
	ok        = `{"input":{"message":"say:x"}}`
	okOff     = `{"tool":"ping","reason":"x"}`
	okOn      = `{"tool":"ping"}`
	okKey     = `{"name":"ann","roles":["admin"]}`
	okDecide  = `{"decisions":[{"id":"call_1","action":"approve"}]}`
	elsewhere = "/v0/envs/other"
	home      = "/v0/envs/default"
)

// documentedErrors provokes the errors that need no special state. %RUN and %HOLD
// stand for a held run and its hold.
var documentedErrors = []struct {
	code problem.Code
	call
}{
	{"env_not_found", call{method: "GET", path: elsewhere + "/agents"}},
	{"env_not_found", call{method: "GET", path: elsewhere + "/agents/shop"}},
	{"env_not_found", call{method: "POST", path: elsewhere + "/agents/shop/capabilities/support/runs", body: ok}},
	{"env_not_found", call{method: "GET", path: elsewhere + "/runs"}},
	{"env_not_found", call{method: "GET", path: elsewhere + "/runs/%RUN"}},
	{"env_not_found", call{method: "POST", path: elsewhere + "/runs/%RUN/cancel"}},
	{"env_not_found", call{method: "GET", path: elsewhere + "/runs/%RUN/events"}},
	{"env_not_found", call{method: "GET", path: elsewhere + "/runs/%RUN/trajectory"}},
	{"env_not_found", call{method: "GET", path: elsewhere + "/holds"}},
	{"env_not_found", call{method: "GET", path: elsewhere + "/holds/%HOLD"}},
	{"env_not_found", call{method: "POST", path: elsewhere + "/holds/%HOLD/decisions", body: okDecide}},
	{"env_not_found", call{method: "GET", path: elsewhere + "/orders"}},
	{"env_not_found", call{method: "GET", path: elsewhere + "/audit"}},
	{"env_not_found", call{method: "POST", path: elsewhere + "/agents/shop/pause", body: `{"reason":"x"}`}},
	{"env_not_found", call{method: "POST", path: elsewhere + "/agents/shop/resume"}},
	{"env_not_found", call{method: "POST", path: elsewhere + "/tools/off", body: okOff}},
	{"env_not_found", call{method: "POST", path: elsewhere + "/tools/on", body: okOn}},
	{"agent_not_found", call{method: "GET", path: home + "/agents/nobody"}},
	{"agent_not_found", call{method: "POST", path: home + "/agents/nobody/pause", body: `{"reason":"x"}`}},
	{"agent_not_found", call{method: "POST", path: home + "/tools/off", body: `{"tool":"ping","agent":"nobody","reason":"x"}`}},
	{"agent_not_found", call{method: "POST", path: home + "/agents/nobody/capabilities/support/runs", body: ok}},
	{"capability_not_found", call{method: "POST", path: home + "/agents/shop/capabilities/nothing/runs", body: ok}},
	{"run_not_found", call{method: "GET", path: home + "/runs/r_nothing"}},
	{"run_not_found", call{method: "POST", path: home + "/runs/r_nothing/cancel"}},
	{"run_not_found", call{method: "GET", path: home + "/runs/r_nothing/events"}},
	{"run_not_found", call{method: "GET", path: home + "/runs/r_nothing/trajectory"}},
	{"hold_not_found", call{method: "GET", path: home + "/holds/h_nothing_1"}},
	{"hold_not_found", call{method: "GET", path: home + "/holds/%RUN"}},
	{"run_not_found", call{method: "GET", path: home + "/runs/%HOLD"}},
	{"run_not_found", call{method: "GET", path: home + "/runs/%HOLD/events"}},
	{"hold_not_found", call{method: "POST", path: home + "/holds/%RUN/decisions", body: okDecide}},
	{"hold_not_found", call{method: "POST", path: home + "/holds/h_nothing_1/decisions", body: okDecide}},

	{"unsupported_media_type", call{method: "POST", path: runsPath, body: ok, headers: []string{"Content-Type: text/plain"}}},
	{"unsupported_media_type", call{method: "POST", path: runsPath, body: ok, headers: []string{"Content-Type:"}}},
	{"unsupported_media_type", call{method: "POST", path: runsPath, body: ok, headers: []string{"Content-Type: application/json; charset=utf-16"}}},
	{"unsupported_media_type", call{method: "POST", path: runsPath, body: ok, headers: []string{"Content-Encoding: gzip"}}},
	{"unsupported_media_type", call{method: "POST", path: home + "/holds/%HOLD/decisions", body: okDecide, headers: []string{"Content-Type: application/x-www-form-urlencoded"}}},
	{"body_too_large", call{method: "POST", path: runsPath, body: `{"input":"` + strings.Repeat("x", 1<<20) + `"}`}},
	{"body_too_large", call{method: "POST", path: home + "/holds/%HOLD/decisions", body: strings.Repeat(" ", 1<<20+1)}},
	{"invalid_json", call{method: "POST", path: runsPath, body: `{"input":`}},
	{"invalid_json", call{method: "POST", path: runsPath, body: `{"input":1,"input":2}`}},
	{"invalid_json", call{method: "POST", path: runsPath, body: `{"input":1e5000000}`}},
	{"invalid_json", call{method: "POST", path: runsPath, body: `{"input":` + strings.Repeat("[", 10_000) + strings.Repeat("]", 10_000) + `}`}},
	{"invalid_json", call{method: "POST", path: home + "/holds/%HOLD/decisions", body: okDecide + okDecide}},
	{"invalid_body", call{method: "POST", path: runsPath, body: `[]`}},
	{"invalid_body", call{method: "POST", path: runsPath, body: `{}`}},
	{"invalid_body", call{method: "POST", path: runsPath, body: `{"input":{"message":"x"},"Input":{}}`}},
	{"invalid_body", call{method: "POST", path: runsPath, body: `{"input":{},"session_id":""}`}},
	{"invalid_body", call{method: "POST", path: runsPath, body: `{"input":{},"session_id":"a b"}`}},
	{"invalid_body", call{method: "POST", path: runsPath, body: `{"input":{},"metadata":[]}`}},
	{"invalid_body", call{method: "POST", path: runsPath, body: `{"input":{},"requester":"eve"}`}},
	{"invalid_input", call{method: "POST", path: runsPath, body: `{"input":{"message":7}}`}},
	{"invalid_input", call{method: "POST", path: runsPath, body: `{"input":null}`}},

	// C12: a body cannot name the tool, the arguments or the person.
	{"invalid_body", call{method: "POST", path: home + "/holds/%HOLD/decisions", body: `{"decisions":[{"tool":"cancel_order","action":"approve"}]}`}},
	{"invalid_body", call{method: "POST", path: home + "/holds/%HOLD/decisions", body: `{"decisions":[{"id":"call_1","action":"approve","decided_by":"boss"}]}`}},
	{"invalid_body", call{method: "POST", path: home + "/holds/%HOLD/decisions", body: `{"decisions":[{"id":"call_1","action":"approve"}],"decided_by":"boss"}`}},
	{"invalid_body", call{method: "POST", path: home + "/holds/%HOLD/decisions", body: `{"decisions":[]}`}},
	{"invalid_body", call{method: "POST", path: home + "/holds/%HOLD/decisions", body: `{"decisions":[{"id":"call_1","action":"approve"}],"revision":1.0}`}},
	{"invalid_body", call{method: "POST", path: home + "/holds/%HOLD/decisions", body: `{"decisions":[{"id":"call_1","action":"approve"}],"revision":0}`}},
	{"invalid_decision", call{method: "POST", path: home + "/holds/%HOLD/decisions", body: `{"decisions":[{"id":"call_1","action":"approve"},{"id":"call_9","action":"approve"}]}`}},
	{"invalid_decision", call{method: "POST", path: home + "/holds/%HOLD/decisions", body: `{"decisions":[{"id":"call_1","action":"ran"}]}`}},
	{"invalid_decision", call{method: "POST", path: home + "/holds/%HOLD/decisions", body: `{"decisions":[{"id":"call_1","action":"edit"}]}`}},
	{"invalid_decision", call{method: "POST", path: home + "/holds/%HOLD/decisions", body: `{"decisions":[{"id":"call_1","action":"edit","data":null}]}`}},
	{"invalid_decision", call{method: "POST", path: home + "/holds/%HOLD/decisions", body: `{"decisions":[{"id":"call_1","action":"approve","data":{"order_id":"A-2"}}]}`}},
	{"invalid_edit", call{method: "POST", path: home + "/holds/%HOLD/decisions", body: `{"decisions":[{"id":"call_1","action":"edit","data":{}}]}`}},
	{"hold_stale", call{method: "POST", path: home + "/holds/%HOLD/decisions", body: `{"decisions":[{"id":"call_1","action":"approve"}],"revision":1}`}},

	{"unsupported_media_type", call{method: "POST", path: home + "/agents/shop/pause", body: `{"reason":"x"}`, headers: []string{"Content-Type: text/plain"}}},
	{"unsupported_media_type", call{method: "POST", path: home + "/tools/off", body: okOff, headers: []string{"Content-Type: text/plain"}}},
	{"unsupported_media_type", call{method: "POST", path: home + "/tools/on", body: okOn, headers: []string{"Content-Type: text/plain"}}},
	{"body_too_large", call{method: "POST", path: home + "/agents/shop/pause", body: strings.Repeat(" ", 1<<20+1)}},
	{"body_too_large", call{method: "POST", path: home + "/tools/off", body: strings.Repeat(" ", 1<<20+1)}},
	{"body_too_large", call{method: "POST", path: home + "/tools/on", body: strings.Repeat(" ", 1<<20+1)}},
	{"invalid_json", call{method: "POST", path: home + "/agents/shop/pause", body: `{"reason":"x","reason":"y"}`}},
	{"invalid_json", call{method: "POST", path: home + "/tools/off", body: `{"tool":"ping","tool":"pong","reason":"x"}`}},
	{"invalid_json", call{method: "POST", path: home + "/tools/on", body: `{`}},
	{"invalid_body", call{method: "POST", path: home + "/agents/shop/pause", body: `{}`}},
	{"invalid_body", call{method: "POST", path: home + "/agents/shop/pause", body: `{"reason":" "}`}},
	{"invalid_body", call{method: "POST", path: home + "/agents/shop/pause", body: `{"reason":"` + strings.Repeat("x", 1001) + `"}`}},
	{"invalid_body", call{method: "POST", path: home + "/agents/shop/pause", body: `{"reason":"x","by":"boss"}`}},
	{"invalid_body", call{method: "POST", path: home + "/tools/off", body: `{"tool":"ping"}`}},
	{"invalid_body", call{method: "POST", path: home + "/tools/off", body: `{"tool":"","reason":"x"}`}},
	{"invalid_body", call{method: "POST", path: home + "/tools/off", body: `{"tool":"ping","agent":"","reason":"x"}`}},
	{"invalid_body", call{method: "POST", path: home + "/tools/off", body: `{"tool":"` + strings.Repeat("x", 257) + `","reason":"x"}`}},
	{"invalid_body", call{method: "POST", path: home + "/tools/off", body: `{"tool":"ping","reason":"x","by":"boss"}`}},
	{"invalid_body", call{method: "POST", path: home + "/tools/on", body: `{"tool":"ping","reason":"x"}`}},
	{"invalid_request", call{method: "POST", path: home + "/agents/shop/pause", body: `{"reason":"` + strings.Repeat("é", 501) + `"}`}},
	{"invalid_request", call{method: "POST", path: home + "/agents/shop/resume", body: `{}`}},
	{"invalid_request", call{method: "POST", path: home + "/tools/off", body: `{"tool":" ping","reason":"x"}`}},
	{"invalid_request", call{method: "POST", path: home + "/tools/off", body: `{"tool":"` + strings.Repeat("é", 129) + `","reason":"x"}`}},
	{"invalid_request", call{method: "GET", path: home + "/orders?x=1"}},
	{"invalid_request", call{method: "GET", path: home + "/audit?after=-1"}},

	{"unauthorized", call{method: "GET", path: "/v0/gateway/v1/models"}},
	{"unauthorized", call{method: "GET", path: "/v0/gateway/v1/models", headers: []string{"Authorization: Bearer rt1.r_x.1.AAAA"}}},
	{"unauthorized", call{method: "POST", path: "/v0/gateway/v1/chat/completions", body: `{}`, headers: []string{"Authorization: Basic YTpi"}}},

	{"env_not_found", call{method: "GET", path: elsewhere + "/keys"}},
	{"env_not_found", call{method: "POST", path: elsewhere + "/keys", body: okKey}},
	{"env_not_found", call{method: "DELETE", path: elsewhere + "/keys/k1"}},
	{"key_not_found", call{method: "DELETE", path: home + "/keys/k1"}},
	{"no_admin_key", call{method: "POST", path: home + "/keys", body: `{"name":"ann","roles":["viewer","runner","reviewer"]}`}},
	{"unsupported_media_type", call{method: "POST", path: home + "/keys", body: okKey, headers: []string{"Content-Type: text/plain"}}},
	{"body_too_large", call{method: "POST", path: home + "/keys", body: strings.Repeat(" ", 1<<20+1)}},
	{"invalid_json", call{method: "POST", path: home + "/keys", body: `{"name":"ann","name":"bob","roles":["admin"]}`}},
	{"invalid_body", call{method: "POST", path: home + "/keys", body: `{"name":"ann"}`}},
	{"invalid_body", call{method: "POST", path: home + "/keys", body: `{"name":"ann","roles":[]}`}},
	{"invalid_body", call{method: "POST", path: home + "/keys", body: `{"name":"ann","roles":["*"]}`}},
	{"invalid_body", call{method: "POST", path: home + "/keys", body: `{"name":"ann","roles":["admin"],"id":"k1"}`}},
	{"invalid_request", call{method: "POST", path: home + "/keys", body: `{"name":"ann","roles":["admin"],"groups":["*"]}`}},
	{"invalid_request", call{method: "POST", path: home + "/keys", body: `{"name":"local","roles":["admin"]}`}},
	{"invalid_request", call{method: "DELETE", path: home + "/keys/k1?force=1"}},
	// No key was ever made: one that somebody brings is not of this server.
	{"unauthorized", call{method: "GET", path: "/v0/me", headers: []string{"Authorization: Bearer aos_k_x"}}},

	{"route_not_found", call{method: "GET", path: "/v0"}},
	{"route_not_found", call{method: "GET", path: home + "/runs/"}},
	{"route_not_found", call{method: "GET", path: "/.env"}},
	{"method_not_allowed", call{method: "DELETE", path: home + "/runs/%RUN"}},
	{"method_not_allowed", call{method: "POST", path: "/health"}},
}

func (r *rig) fill(c call, run api.Run) call {
	c.path = strings.NewReplacer("%RUN", run.RunID, "%HOLD", run.Hold.HoldID).Replace(c.path)
	return c
}

// Every error that the document tells of an operation is provoked here, and each
// comes with its status; see checked for what else is looked at.
func TestEveryDocumentedError(t *testing.T) {
	r := newRig(t)
	held := r.held("A-1")
	for _, tc := range documentedErrors {
		a := r.send(r.fill(tc.call, held))
		if a.code() != string(tc.code) {
			t.Errorf("%s %s %.80s: %d %s, want %s", tc.method, tc.path, tc.body, a.status, a.body, tc.code)
		}
	}
	if h, err := r.client.Hold(r.ctx(), "default", held.Hold.HoldID); err != nil || h.Status != api.HoldPending || h.Revision != held.Hold.Revision {
		t.Errorf("the hold after all that: %v %+v", err, h)
	}
	r.ran("cancel_order", "", 0)
	if o, err := r.client.Orders(r.ctx(), "default"); err != nil || o.Version != 0 {
		t.Errorf("the orders after all that: %v %+v", err, o)
	}
	r.provokeGateway()
	r.provokeConflicts()
	r.provokeStore(held)
	r.provokeEditDenied(r.held("A-1"))
	r.provokeReviewers()
	r.provokeLastAdmin()
	r.fullQueue()
	r.want(call{method: "POST", path: runsPath, body: ok}, problem.QueueFull)
	for _, key := range r.checked.missing(r.checked.doc) {
		t.Errorf("documented and not provoked: %s", key)
	}
}

func (r *rig) want(c call, code problem.Code) answer {
	r.t.Helper()
	a := r.send(c)
	if a.code() != string(code) {
		r.t.Errorf("%s %s: %d %s, want %s", c.method, c.path, a.status, a.body, code)
	}
	return a
}

func (r *rig) provokeConflicts() {
	decisions := func(run api.Run) string { return home + "/holds/" + run.Hold.HoldID + "/decisions" }
	hold := func(a answer, want api.HoldStatus) {
		r.t.Helper()
		var body api.ErrorBody
		if err := json.Unmarshal(a.body, &body); err != nil || body.Hold == nil || body.Hold.Status != want {
			r.t.Errorf("409 without the hold as it stands (%s): %s", want, a.body)
		}
	}
	decided := r.held("A-1")
	if _, err := r.decide(decided.Hold.HoldID, 10*time.Second, item("reject")); err != nil {
		r.t.Fatal(err)
	}
	hold(r.want(call{method: "POST", path: decisions(decided), body: okDecide}, problem.HoldDecided), api.HoldDecided)

	cancelled := r.held("A-1")
	if _, err := r.client.Cancel(r.ctx(), "default", cancelled.RunID); err != nil {
		r.t.Fatal(err)
	}
	hold(r.want(call{method: "POST", path: decisions(cancelled), body: okDecide}, problem.HoldCancelled), api.HoldCancelled)

	key := "Idempotency-Key: k1"
	two := r.create(`call:cancel_order {"order_id":"A-1"} call:cancel_order {"order_id":"A-2"} then say:ok`, 10*time.Second)
	r.send(call{method: "POST", path: decisions(two), body: okDecide, headers: []string{key}})
	hold(r.want(call{method: "POST", path: decisions(two), body: `{"decisions":[{"id":"call_2","action":"approve"}]}`, headers: []string{key}}, problem.IdempotencyConflict), api.HoldPending)
	r.send(call{method: "POST", path: runsPath, body: ok, headers: []string{key}})
	r.want(call{method: "POST", path: runsPath, body: `{"input":{"message":"say:y"}}`, headers: []string{key}}, problem.IdempotencyConflict)

	// C15: after the deadline on the store's clock, whether or not somebody has
	// already closed the hold.
	expired := r.held("A-1")
	r.clock.off.Store(int64(8 * 24 * time.Hour))
	r.want(call{method: "POST", path: decisions(expired), body: okDecide}, problem.HoldExpired)
	final, err := r.client.Run(r.ctx(), "default", expired.RunID, 10*time.Second)
	for err == nil && final.Status == api.RunHeld { // the worker has not looked yet
		final, err = r.client.Run(r.ctx(), "default", expired.RunID, 10*time.Second)
	}
	if err != nil || final.Status != api.RunCompleted {
		r.t.Errorf("expired: %v %s", err, final.Status)
	}
	hold(r.want(call{method: "POST", path: decisions(expired), body: okDecide}, problem.HoldExpired), api.HoldExpired)
	r.clock.off.Store(0)
}

func (r *rig) provokeGateway() {
	busy := r.busy()
	v, err := r.store.Run(r.ctx(), busy.RunID)
	if err != nil {
		r.t.Fatal(err)
	}
	bearer := "Authorization: Bearer " + r.tokens.Issue(busy.RunID, v.Epoch)
	chat := func(body string, headers ...string) call {
		return call{method: "POST", path: "/v0/gateway/v1/chat/completions", body: body, headers: append([]string{bearer}, headers...)}
	}
	say := func(text string) call {
		return chat(`{"model":"mock/m","messages":[{"role":"user","content":"` + text + `"}]}`)
	}
	if a := r.send(say("say:hi <b>")); a.status != http.StatusOK || !strings.Contains(string(a.body), `hi <b>`) {
		r.t.Errorf("chat: %d %s", a.status, a.body)
	}
	if a := r.send(call{method: "GET", path: "/v0/gateway/v1/models", headers: []string{bearer}}); a.status != http.StatusOK || !strings.Contains(string(a.body), `"id":"mock/m"`) {
		r.t.Errorf("models: %d %s", a.status, a.body)
	}
	r.want(say("fail:400"), problem.ModelError)
	if a := r.want(say("fail:503"), problem.ModelUnavailable); a.header.Get("Retry-After") != "1" {
		r.t.Errorf("Retry-After = %q, want whole seconds", a.header.Get("Retry-After"))
	}
	r.want(chat(`{"model":"openai/expensive","messages":[]}`), problem.InvalidRequest)
	r.want(chat(`{"model":"mock/m","messages":[],"stream":true}`), problem.InvalidRequest)
	r.want(chat(`{"model":`), problem.InvalidJSON)
	r.want(chat(`{}`, "Content-Type: text/plain"), problem.UnsupportedMedia)
	r.want(chat(strings.Repeat(" ", 1<<20+1)), problem.BodyTooLarge)
	r.store.set(store.ErrUnavailable)
	r.want(say("say:x"), problem.StoreUnavailable)
	r.want(call{method: "GET", path: "/v0/gateway/v1/models", headers: []string{bearer}}, problem.StoreUnavailable)
	r.store.set(nil)

	// The token is bound to its lease, and worth nothing after the run.
	old := "Authorization: Bearer " + r.tokens.Issue(busy.RunID, v.Epoch+1)
	r.want(call{method: "GET", path: "/v0/gateway/v1/models", headers: []string{old}}, problem.Unauthorized)
	if _, err := r.client.Cancel(r.ctx(), "default", busy.RunID); err != nil {
		r.t.Fatal(err)
	}
	if _, err := r.client.Run(r.ctx(), "default", busy.RunID, 10*time.Second); err != nil {
		r.t.Fatal(err)
	}
	a := r.want(call{method: "GET", path: "/v0/gateway/v1/models", headers: []string{bearer}}, problem.Unauthorized)
	if a.header.Get("WWW-Authenticate") != "Bearer" {
		r.t.Errorf("401 without WWW-Authenticate")
	}
}

// provokeStore asks for everything while the store is away, damaged and broken.
func (r *rig) provokeStore(held api.Run) {
	reads := []call{
		{method: "GET", path: home + "/runs"},
		{method: "GET", path: home + "/runs/%RUN"},
		{method: "GET", path: home + "/runs/%RUN/events"},
		{method: "GET", path: home + "/runs/%RUN/trajectory"},
		{method: "GET", path: home + "/holds"},
		{method: "GET", path: home + "/holds/%HOLD"},
		{method: "POST", path: home + "/holds/%HOLD/decisions", body: okDecide},
		{method: "POST", path: home + "/runs/%RUN/cancel"},
		{method: "POST", path: runsPath, body: ok},
	}
	r.store.set(fmt.Errorf("dial redis.internal:6379: %w", store.ErrUnavailable))
	for _, c := range slices.Concat(reads, []call{
		{method: "GET", path: home + "/orders"},
		{method: "GET", path: home + "/audit"},
		{method: "POST", path: home + "/agents/shop/pause", body: `{"reason":"x"}`},
		{method: "POST", path: home + "/agents/shop/resume"},
		{method: "POST", path: home + "/tools/off", body: okOff},
		{method: "POST", path: home + "/tools/on", body: okOn},
		{method: "GET", path: home + "/keys"},
		{method: "POST", path: home + "/keys", body: okKey},
		{method: "DELETE", path: home + "/keys/k1"},
	}) {
		a := r.want(r.fill(c, held), problem.StoreUnavailable)
		if a.header.Get("Retry-After") == "" || strings.Contains(string(a.body), "redis.internal") {
			r.t.Errorf("%s %s: Retry-After %q, body %s", c.method, c.path, a.header.Get("Retry-After"), a.body)
		}
	}
	for what, headers := range map[string][]string{"with an Idempotency-Key, which": nil, "the store could not create the run; try again": {"Idempotency-Key: later"}} {
		if a := r.send(call{method: "POST", path: runsPath, body: ok, headers: headers}); !strings.Contains(string(a.body), what) {
			r.t.Errorf("%v: %s", headers, a.body)
		}
	}
	r.store.set(errPanic)
	for _, c := range reads[:len(reads)-1] { // creating a run takes a slot of the engine first
		if a := r.want(r.fill(c, held), problem.Internal); strings.Contains(string(a.body), "secret-cause") {
			r.t.Errorf("%s %s shows the cause: %s", c.method, c.path, a.body)
		}
	}
	r.store.set(errors.New("secret-cause"))
	if a := r.want(call{method: "GET", path: home + "/runs"}, problem.Internal); strings.Contains(string(a.body), "secret-cause") {
		r.t.Errorf("the cause is shown: %s", a.body)
	}
	r.store.set(nil)
	if !strings.Contains(r.log.String(), "secret-cause") {
		r.t.Error("the log does not have the cause")
	}
	pending := r.held("A-1")
	r.store.damaged.Store(true)
	for _, path := range []string{"/runs/%RUN", "/runs/%RUN/events", "/runs/%RUN/trajectory", "/holds/%HOLD"} {
		r.want(r.fill(call{method: "GET", path: home + path}, held), problem.JournalDamaged)
	}
	r.want(r.fill(call{method: "POST", path: home + "/holds/%HOLD/decisions", body: okDecide}, held), problem.JournalDamaged)
	r.want(r.fill(call{method: "POST", path: home + "/runs/%RUN/cancel"}, held), problem.JournalDamaged)
	if a := r.send(r.fill(call{method: "GET", path: home + "/holds/%HOLD"}, pending)); !strings.Contains(string(a.body), "cancel run "+pending.RunID) || strings.Contains(string(a.body), "run h_") {
		r.t.Errorf("it does not tell what to do: %s", a.body)
	}
	r.want(call{method: "POST", path: runsPath, body: ok}, problem.JournalDamaged)
	off := `{"tool":"cancel_order","reason":"x"}`
	if a := r.want(call{method: "POST", path: home + "/tools/off", body: off}, problem.JournalDamaged); !strings.Contains(string(a.body), pending.RunID) {
		r.t.Errorf("the run is not named: %s", a.body)
	}
	r.store.damaged.Store(false)
	r.send(call{method: "POST", path: home + "/tools/on", body: `{"tool":"cancel_order"}`})
}

// provokeEditDenied restarts with a manifest that denies what is held.
func (r *rig) provokeEditDenied(held api.Run) {
	r.stop()
	r.rule = "deny: [cancel_order]"
	r.up()
	a := r.want(call{
		method: "POST", path: home + "/holds/" + held.Hold.HoldID + "/decisions",
		body: `{"decisions":[{"id":"call_1","action":"edit","data":{"order_id":"A-3"}}]}`,
	}, problem.EditDenied)
	if !strings.Contains(string(a.body), `"hold":{`) {
		r.t.Errorf("no hold in %s", a.body)
	}
}

func TestParametersAreReadStrictly(t *testing.T) {
	r := newRig(t)
	held := r.held("A-1")
	for _, tc := range []struct{ query, want string }{
		{"/runs?statsu=held", `did you mean \"status\"?`},
		{"/runs?status=suspended", "choose one of"},
		{"/runs?status=held&status=failed", "2 times"},
		{"/runs?status=", "is empty"},
		{"/runs?limit=0", "from 1 to 200"},
		{"/runs?limit=201", "from 1 to 200"},
		{"/runs?limit=+5", "from 1 to 200"},
		{"/runs?limit=99999999999999999999", "from 1 to 200"},
		{"/runs?cursor=made-up", "cursor"},
		{"/runs?a=%zz", "malformed"},
		{"/holds?older_than=yesterday", "write a duration"},
		{"/holds?older_than=-5m", "write a duration"},
		{"/holds?reviewer=ann", "choose one of me"},
		{"/holds?reviewer=me&status=decided", "pending holds only"},
		{"/runs/%RUN?wait=1", "choose one of true, false"},
		{"/runs/%RUN?wait_timeout=5s", "needs wait=true"},
		{"/runs/%RUN?wait=true&wait_timeout=5", "write a duration"},
		{"/runs/%RUN?wait=true&wait_timeout=0s", "from 1ms to 10m"},
		{"/runs/%RUN?wait=true&wait_timeout=11m", "from 1ms to 10m"},
		{"/runs/%RUN/events?after=-1", "whole number"},
		{"/agents?x=1", "takes none"},
	} {
		a := r.send(r.fill(call{method: "GET", path: home + tc.query}, held))
		if a.status != http.StatusBadRequest || a.code() != "invalid_request" || !strings.Contains(string(a.body), tc.want) {
			t.Errorf("%s: %d %s, want 400 with %q", tc.query, a.status, a.body, tc.want)
		}
	}
	for _, key := range []string{"a b", "é", strings.Repeat("k", 256)} {
		if a := r.send(call{method: "POST", path: runsPath, body: ok, headers: []string{"Idempotency-Key: " + key}}); a.status != http.StatusBadRequest {
			t.Errorf("Idempotency-Key %q: %d %s", key, a.status, a.body)
		}
	}
	if a := r.send(call{method: "POST", path: runsPath + "?wait=true", body: ok, headers: []string{"Idempotency-Key: " + strings.Repeat("k", 255), "Content-Type: application/json;charset=UTF-8"}}); a.status != http.StatusOK {
		t.Errorf("the longest key: %d %s", a.status, a.body)
	}
	for _, path := range []string{"/metrics?x=1", "/health?x=1", "/?x=1", "/ready?x=1", "/openapi.json?x=1", "/v0/gateway/v1/models?x=1"} {
		if a := r.send(call{method: "GET", path: path}); a.status != http.StatusBadRequest {
			t.Errorf("%s: %d %s", path, a.status, a.body)
		}
	}
}

// A caller learns of all faults at once.
func TestAllParameterFaultsTogether(t *testing.T) {
	r := newRig(t)
	a := r.send(call{method: "GET", path: home + "/runs?limit=x&status=y&z=1"})
	var body api.ErrorBody
	if err := json.Unmarshal(a.body, &body); err != nil || len(body.Error.Details) != 3 {
		t.Errorf("%s", a.body)
	}
}

func TestPathSegmentsAreDecoded(t *testing.T) {
	r := newRig(t)
	for _, name := range []string{"a%2Fb", "..%2f..%2fetc", "%C3%A9%2F", "shop%2F"} {
		if a := r.send(call{method: "GET", path: home + "/agents/" + name}); a.code() != "agent_not_found" {
			t.Errorf("%s: %d %s", name, a.status, a.body)
		}
	}
}

// provokeReviewers restarts with a manifest that names reviewers.
func (r *rig) provokeReviewers() {
	r.stop()
	r.rule = "approve: [{tool: cancel_order, reviewers: {roles: [finance], require: 2, not_requester: true}}]"
	r.up()
	r.key = r.as("req")
	people := map[string]string{"req": r.key, "ann support": r.as("ann", "reviewer", "support"), "ann finance": r.as("ann", "reviewer", "finance"), "bob finance": r.as("bob", "reviewer", "finance")}
	held := r.held("A-1")
	decide := func(person, body string) call {
		return call{method: "POST", path: home + "/holds/" + held.Hold.HoldID + "/decisions", body: body, headers: []string{"Authorization: Bearer " + people[person]}}
	}
	approve, reject := okDecide, `{"decisions":[{"id":"call_1","action":"reject"}]}`
	r.want(decide("req", approve), problem.RequesterMayNotDecide)
	r.want(decide("ann support", approve), problem.NotReviewer)
	first := r.send(decide("ann finance", approve))
	var done api.Decided
	if err := json.Unmarshal(first.body, &done); err != nil || first.status != http.StatusOK {
		r.t.Fatalf("the first vote: %d %s", first.status, first.body)
	}
	it := done.Hold.Items[0]
	if it.Approvals != 1 || it.Reviewers.Require != 2 || it.Decision != nil || len(it.Votes) != 1 || it.Votes[0].By != "ann" ||
		done.Hold.Status != api.HoldPending || done.Hold.Requester != "req" {
		r.t.Errorf("the hold after one vote: %s", first.body)
	}
	r.want(decide("ann finance", reject), problem.AlreadyVoted)
	r.want(decide("bob finance", approve), problem.InvalidDecision) // without the revision that bob saw
	r.want(decide("bob finance", strings.Replace(approve, "{", `{"revision":1,`, 1)), problem.HoldStale)
	second := r.send(decide("bob finance", strings.Replace(approve, "{", fmt.Sprintf(`{"revision":%d,`, done.Hold.Revision), 1)))
	if err := json.Unmarshal(second.body, &done); err != nil || done.Hold.Status != api.HoldDecided || done.Hold.Items[0].Approvals != 2 {
		r.t.Errorf("the second vote: %d %s", second.status, second.body)
	}
}

// provokeLastAdmin tries to revoke the only admin, whose key the rig has.
func (r *rig) provokeLastAdmin() {
	me, err := r.client.Me(r.ctx())
	if err != nil {
		r.t.Fatal(err)
	}
	r.want(call{method: "DELETE", path: home + "/keys/" + me.KeyID}, problem.NoAdminKey)
}
