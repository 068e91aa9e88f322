package server_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"agentos/api"
	"agentos/api/auth"
	"agentos/api/client"
	"agentos/api/server"
	"agentos/internal/ids"
	"agentos/internal/problem"
	"agentos/runtime/journal"
)

// Every route that echo knows is an endpoint with a role, and the document tells
// the same.
func TestEveryRouteHasARole(t *testing.T) {
	r := newRig(t)
	roles := map[string]string{}
	for _, e := range r.server.Endpoints() {
		roles[e.Method+" "+e.Path] = e.Role
	}
	known := []string{"open", "guests", "run token", "viewer", "runner", "reviewer", "admin"}
	for _, route := range r.server.Routes() {
		key := route.Method + " " + route.Path
		if route.Method != "echo_route_not_found" && !slices.Contains(known, roles[key]) {
			t.Errorf("%s has the role %q", key, roles[key])
		}
	}
	documented := operations(loadDoc(t, r.server.Document()))
	for key, role := range roles {
		op := documented[pathParameter.ReplaceAllString(key, "{$1}")]
		if op == nil {
			if !strings.Contains(key, "/inbox") {
				t.Errorf("%s is not documented", key)
			}
			continue
		}
		if got, _ := op.Extensions["x-role"].(string); got != role {
			t.Errorf("%s takes %s, documented is %q", key, role, got)
		}
	}
	// What changes something takes more than looking does, but for pages, which
	// look at the role of each action themselves.
	for _, e := range r.server.Endpoints() {
		if e.Method != http.MethodGet && (e.Role == "viewer" || e.Role == "open" || e.Role == "guests") && !strings.HasPrefix(e.Path, "/inbox") {
			t.Errorf("%s %s takes only %s", e.Method, e.Path, e.Role)
		}
	}
}

// Each endpoint is tried with each role and without a key, with a request that
// would do nothing.
func TestWhoMayCallWhat(t *testing.T) {
	r := newRig(t)
	admin := r.as("ann")
	keys := map[string]string{
		"": "", "viewer": r.as("v", "viewer"), "runner": r.as("u", "runner"), "reviewer": r.as("w", "reviewer"), "admin": admin,
	}
	includes := map[string][]string{
		"viewer": {"viewer", "runner", "reviewer", "admin"}, "runner": {"runner", "admin"}, "reviewer": {"reviewer", "admin"}, "admin": {"admin"},
	}
	fill := strings.NewReplacer(":env", "default", ":agent", "nobody", ":capability", "nothing", ":run", "r_nothing", ":hold", "h_nothing_1", ":key", "k1", "/*", "/nothing", "*", "none")
	for _, e := range r.server.Endpoints() {
		for has, key := range keys {
			c := call{method: e.Method, path: fill.Replace(e.Path)}
			if key != "" {
				c.headers = []string{"Authorization: Bearer " + key}
			}
			if e.Path == "/v0/envs/:env/keys" && e.Method == http.MethodPost || strings.Contains(e.Path, "/tools/") {
				c.body = `{}`
			}
			var a answer
			if strings.HasPrefix(e.Path, "/inbox") {
				a = newPerson(r).send(c.method, c.path, nil, c.headers...) // pages are not in the document
			} else {
				a = r.send(c)
			}
			want := 0
			switch {
			case e.Role == "run token":
				want = http.StatusUnauthorized
			case e.Role == "open", e.Role == "guests":
			case has == "":
				want = http.StatusUnauthorized
			case !slices.Contains(includes[e.Role], has):
				want = http.StatusForbidden
			}
			refused := a.status == http.StatusUnauthorized || a.status == http.StatusForbidden && a.code() != "forbidden_origin"
			if strings.HasPrefix(e.Path, "/inbox") && e.Method == http.MethodPost && has != "" {
				refused = false // a form without a token is refused for that
			}
			if want != 0 && a.status != want || want == 0 && refused {
				t.Errorf("%s %s with %q: %d %.200s, want %d", e.Method, e.Path, has, a.status, a.body, want)
			}
			if want == http.StatusUnauthorized && a.header.Get("WWW-Authenticate") != "Bearer" {
				t.Errorf("%s %s: 401 without WWW-Authenticate", e.Method, e.Path)
			}
			if want == http.StatusForbidden && !strings.Contains(string(a.body), "takes the role "+e.Role) {
				t.Errorf("%s %s with %q: the role is not named: %.300s", e.Method, e.Path, has, a.body)
			}
		}
	}
	if o, err := r.client.Orders(r.ctx(), "default"); err == nil || problem.CodeOf(err) != problem.Unauthorized {
		t.Errorf("a client without a key: %v %+v", err, o)
	}
}

func TestCredentials(t *testing.T) {
	r := newRig(t)
	secret := r.as("ann")
	me := func(headers ...string) answer { return r.send(call{method: "GET", path: "/v0/me", headers: headers}) }
	for _, good := range []string{"Bearer " + secret, "bearer " + secret, "BEARER  " + secret} {
		if a := me("Authorization: " + good); a.status != http.StatusOK || !strings.Contains(string(a.body), `"name":"ann"`) {
			t.Errorf("%.10s…: %d %s", good, a.status, a.body)
		}
	}
	for _, bad := range []string{secret, "Basic " + secret, "Bearer", "Token " + secret, "Bearer " + secret + " x"} {
		if a := me("Authorization: " + bad); a.code() != string(problem.Unauthorized) || strings.Contains(string(a.body), secret) {
			t.Errorf("%.10s…: %d %s", bad, a.status, a.body)
		}
	}
	req, err := http.NewRequestWithContext(r.ctx(), http.MethodGet, r.http.URL+"/v0/me", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header["Authorization"] = []string{"Bearer " + secret, "Bearer " + secret}
	res, err := r.checked.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusUnauthorized {
		t.Errorf("two headers: %d", res.StatusCode)
	}
	// The key is nowhere but in its header, whatever goes wrong with it.
	a := me("Authorization: Bearer "+secret, "X-Api-Key: "+secret)
	id := strings.Split(secret, "_")[1]
	if a.status != http.StatusOK || !strings.Contains(string(a.body), id) {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := r.send(call{method: "GET", path: "/v0/me?access_token=" + secret}); a.status != http.StatusUnauthorized {
		t.Errorf("a key in the address: %d", a.status)
	}
	log := r.log.String()
	if strings.Contains(log, strings.Split(secret, "_")[2]) {
		t.Error("a secret is in the log")
	}
	if !strings.Contains(log, "by=ann key_id="+id) {
		t.Errorf("the log does not tell who: %s", log)
	}
}

// Failures are limited by address, and good keys are not refused for them.
func TestFailuresAreLimited(t *testing.T) {
	r := newRig(t)
	secret := r.as("ann")
	try := func(key string) answer {
		return r.send(call{method: "GET", path: home + "/runs", headers: []string{"Authorization: Bearer " + key}})
	}
	var last answer
	for range 20 {
		last = try("aos_k_wrong")
	}
	if last.status != http.StatusTooManyRequests || last.code() != string(problem.RateLimited) || last.header.Get("Retry-After") == "" {
		t.Errorf("%d %s %v", last.status, last.body, last.header)
	}
	if a := try(secret); a.status != http.StatusOK {
		t.Errorf("a good key: %d %s", a.status, a.body)
	}
}

// Who may not look learns of readiness whether, and nothing else.
func TestReadyForGuests(t *testing.T) {
	r := newRig(t)
	secret := r.as("ann")
	viewer := r.as("v", "viewer")
	get := func(path, key string) answer {
		c := call{method: "GET", path: path}
		if key != "" {
			c.headers = []string{"Authorization: Bearer " + key}
		}
		return r.send(c)
	}
	if a := get("/ready", ""); a.status != http.StatusOK || string(a.body) != `{"ready":true}` {
		t.Errorf("guest: %d %s", a.status, a.body)
	}
	if a := get("/ready", viewer); a.status != http.StatusOK || !strings.Contains(string(a.body), `"mcp_servers"`) {
		t.Errorf("viewer: %d %s", a.status, a.body)
	}
	if a := get("/ready", secret+"x"); a.status != http.StatusUnauthorized {
		t.Errorf("wrong key: %d %s", a.status, a.body)
	}
	r.store.set(problem.New(problem.StoreUnavailable, "away"))
	r.clock.off.Store(int64(time.Hour)) // what is known of the keys is old
	if a := get("/ready", ""); a.status != http.StatusServiceUnavailable || string(a.body) != `{"ready":false}` {
		t.Errorf("guest, store away: %d %s", a.status, a.body)
	}
	if a := get("/ready", viewer); a.status != http.StatusServiceUnavailable || !strings.Contains(string(a.body), `"reachable":false`) {
		t.Errorf("viewer, store away: %d %s", a.status, a.body)
	}
	if a := get("/ready", secret+"x"); a.status != http.StatusServiceUnavailable || string(a.body) != `{"ready":false}` {
		t.Errorf("wrong key, store away: %d %s", a.status, a.body)
	}
	if a := get("/metrics", viewer); a.status != http.StatusServiceUnavailable {
		t.Errorf("metrics, store away: %d", a.status)
	}
	if a := get("/health", ""); a.status != http.StatusOK {
		t.Errorf("health: %d", a.status)
	}
}

// The requester of a run, its groups, and the decider come from the key.
func TestWhoIsInTheJournal(t *testing.T) {
	r := newRig(t)
	before := r.held("A-0") // asked for by local
	r.key = r.as("ann")
	run := r.heldBy(r.as("ci", "runner", "night", "eu"))
	if run.Requester != "ci" || before.Requester != "local" {
		t.Errorf("requesters %q, %q", run.Requester, before.Requester)
	}
	created := func(run string) journal.Created {
		t.Helper()
		entries, err := r.store.Journal(r.ctx(), run, 0)
		if err != nil {
			t.Fatal(err)
		}
		var c journal.Created
		if err := json.Unmarshal(entries[0].Data, &c); err != nil {
			t.Fatal(err)
		}
		return c
	}
	if got := created(run.RunID).RequesterGroups; !slices.Equal(got, []string{"viewer", "runner", "eu", "night"}) {
		t.Errorf("groups of the requester: %q", got)
	}
	if got := created(before.RunID).RequesterGroups; !slices.Contains(got, "*") {
		t.Errorf("groups of local: %q", got)
	}
	done, err := r.decide(run.Hold.HoldID, 10*time.Second, item("approve"))
	if err != nil || done.Hold.Items[0].Decision.By != "ann" {
		t.Errorf("%v %+v", err, done.Hold.Items)
	}
}

// heldBy creates a held run with a key.
func (r *rig) heldBy(secret string) api.Run {
	r.t.Helper()
	was := r.key
	r.key = secret
	defer func() { r.key = was }()
	return r.held("A-1")
}

// reviewer=me gives the holds that the caller can decide now, and no others.
func TestHoldsOfAReviewer(t *testing.T) {
	r := newRig(t)
	r.stop()
	r.rule = `approve: [{id: other, tool: cancel_order, when: 'args.order_id != "A-1"', reviewers: {roles: [finance], require: 2, not_requester: true}}, {id: plain, tool: cancel_order, when: 'args.order_id == "A-1"'}]`
	r.up()
	r.key = r.as("req")
	keys := map[string]string{
		"req": r.key, "ann": r.as("ann", "reviewer", "finance"), "bob": r.as("bob", "reviewer", "finance"), "eve": r.as("eve", "reviewer"), "vic": r.as("vic", "viewer", "finance"),
	}
	plain, quorum := r.held("A-1"), r.held("A-2")
	mine := func(who string) []string {
		t.Helper()
		r.key = keys[who]
		list, err := r.client.Holds(r.ctx(), "default", client.HoldQuery{Mine: true})
		if err != nil {
			t.Fatalf("%s: %v", who, err)
		}
		var out []string
		for _, h := range list.Holds {
			out = append(out, h.HoldID)
		}
		return out
	}
	want := func(who string, holds ...string) {
		t.Helper()
		if got := mine(who); !slices.Equal(got, holds) {
			t.Errorf("%s is asked about %q, want %q", who, got, holds)
		}
	}
	want("req", plain.Hold.HoldID)
	want("ann", quorum.Hold.HoldID, plain.Hold.HoldID)
	want("eve", plain.Hold.HoldID)
	want("vic")
	r.key = keys["ann"]
	done, err := r.decide(quorum.Hold.HoldID, 0, item("approve"))
	if err != nil || done.Hold.Status != api.HoldPending {
		t.Fatalf("%v %+v", err, done)
	}
	want("ann", plain.Hold.HoldID) // ann has said what there is to say
	want("bob", quorum.Hold.HoldID, plain.Hold.HoldID)
	r.clock.off.Store(int64(8 * 24 * time.Hour)) // nobody decided in time
	want("bob")
}

// A page that only shows a few among many is short, and the next one goes on.
func TestHoldsOfAReviewerInPages(t *testing.T) {
	r := newRig(t)
	r.stop()
	r.rule = `approve: [{id: other, tool: cancel_order, when: 'args.order_id != "A-1"', reviewers: {roles: [finance]}}, {id: plain, tool: cancel_order, when: 'args.order_id == "A-1"'}]`
	r.up()
	r.key = r.as("req")
	mine := r.held("A-1").Hold.HoldID
	for i := range 12 {
		r.held("B-" + strconv.Itoa(i))
	}
	r.key = r.as("eve", "reviewer")
	q := client.HoldQuery{Mine: true, Limit: 1}
	var got []string
	for range 30 {
		list, err := r.client.Holds(r.ctx(), "default", q)
		if err != nil {
			t.Fatal(err)
		}
		for _, h := range list.Holds {
			got = append(got, h.HoldID)
		}
		if q.Cursor = list.NextCursor; q.Cursor == "" {
			break
		}
	}
	if q.Cursor != "" || !slices.Equal(got, []string{mine}) {
		t.Errorf("got %q, cursor %q", got, q.Cursor)
	}
}

// Browsers have no credential yet: they are told so on a page, and the files of
// the pages are there for it. With a key, each action takes its role.
func TestPagesNeedKeys(t *testing.T) {
	r := newRig(t)
	run := r.held("A-1")
	p := newPerson(r)
	if a := p.get("/"); a.status != http.StatusOK {
		t.Fatalf("without keys: %d", a.status)
	}
	token := p.token("/inbox/holds/" + run.Hold.HoldID)
	admin := r.as("ann")
	decide := url.Values{"form_token": {token}, "revision": {strconv.FormatInt(run.Hold.Revision, 10)}, "item": {"call_1"}, "action": {"approve"}}
	for _, a := range []answer{p.get("/"), p.get("/inbox"), p.get("/inbox/holds/" + run.Hold.HoldID), p.get("/inbox/live/holds"), p.send(http.MethodPost, "/inbox/holds/"+run.Hold.HoldID+"/decide", decide)} {
		if a.status != http.StatusUnauthorized || !strings.Contains(string(a.body), "This server needs an API key") || strings.Contains(string(a.body), run.Hold.HoldID) ||
			a.header.Get("Content-Security-Policy") != inboxPolicy || !strings.HasPrefix(a.header.Get("Content-Type"), "text/html") || a.header.Get("WWW-Authenticate") != "Bearer" {
			t.Errorf("with keys: %d %v %.300s", a.status, a.header, a.body)
		}
	}
	if a := p.get("/inbox/static/inbox.css"); a.status != http.StatusOK {
		t.Errorf("style: %d", a.status)
	}
	if a := r.send(call{method: "GET", path: "/"}); a.status != http.StatusUnauthorized || a.code() != "unauthorized" {
		t.Errorf("a program at /: %d %s", a.status, a.body)
	}
	r.ran("cancel_order", "", 0)

	keys := map[string]string{"viewer": r.as("v", "viewer"), "runner": r.as("u", "runner"), "reviewer": r.as("w", "reviewer"), "admin": admin}
	post := func(key, path string, form url.Values) answer {
		form.Set("form_token", token)
		return p.send(http.MethodPost, path, form, "Authorization: Bearer "+key)
	}
	for _, tc := range []struct {
		path string
		form url.Values
		may  []string
	}{
		{"/inbox/holds/" + run.Hold.HoldID + "/decide", url.Values{"revision": {"1"}, "item": {"call_1"}, "action": {"approve"}}, []string{"reviewer", "admin"}},
		{"/inbox/runs/r_none/cancel", url.Values{}, []string{"runner", "admin"}},
		{"/inbox/agents/shop/start/none", url.Values{"key": {strings.Repeat("k", 26)}}, []string{"viewer", "runner", "reviewer", "admin"}},
		{"/inbox/agents/shop/start/support", url.Values{"json": {`{"message":"say:x"}`}, "key": {strings.Repeat("k", 26)}}, []string{"runner", "admin"}},
	} {
		for has, key := range keys {
			a := post(key, tc.path, tc.form)
			if forbidden := a.status == http.StatusForbidden; forbidden == slices.Contains(tc.may, has) {
				t.Errorf("%s with %s: %d %.600s", tc.path, has, a.status, a.body)
			}
		}
	}
	if a := p.send(http.MethodGet, "/inbox/runs", nil, "Authorization: Bearer "+keys["viewer"]); a.status != http.StatusOK || !strings.Contains(string(a.body), "<b>v</b>") {
		t.Errorf("a viewer's page: %d", a.status)
	}
}

// A key that is revoked on one server ends on another within two seconds, with its
// streams and waits; requests of others go on meanwhile.
func TestRevokedOnAnotherServer(t *testing.T) {
	r := newRig(t)
	boss := r.as("ann")
	held := r.heldBy(boss)
	r.key = boss
	busy := r.busy()
	other, stop := r.another()
	defer stop()
	secret := r.as("bob", "viewer")
	id := strings.Split(secret, "_")[1]
	onOther := func(key string) *client.Client {
		c, err := client.New(client.Config{URL: other.URL, HTTP: other.Client(), Key: key})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	bob := onOther(secret)
	if me, err := bob.Me(r.ctx()); err != nil || me.Name != "bob" || me.KeyID != id {
		t.Fatalf("%v %+v", err, me)
	}
	streamed, waited := make(chan error, 1), make(chan error, 1)
	opened := make(chan struct{})
	go func() {
		first := true
		for _, err := range bob.Events(r.ctx(), "default", held.RunID, 0) {
			if first {
				close(opened)
				first = false
			}
			if err != nil {
				streamed <- err
				return
			}
		}
		streamed <- nil
	}()
	go func() {
		_, err := bob.Run(r.ctx(), "default", busy.RunID, time.Minute)
		waited <- err
	}()
	<-opened
	if _, err := r.client.RevokeKey(r.ctx(), "default", id, false); err != nil {
		t.Fatal(err)
	}
	deadline := time.After(2 * time.Second)
	for {
		_, err := bob.Me(r.ctx())
		if problem.CodeOf(err) == problem.Unauthorized {
			break
		}
		select {
		case <-deadline:
			t.Fatalf("the key counts after two seconds: %v", err)
		default:
		}
		if _, err := onOther(boss).Me(r.ctx()); err != nil {
			t.Fatalf("another key: %v", err)
		}
	}
	for what, ended := range map[string]chan error{"the stream": streamed, "the wait": waited} {
		select {
		case err := <-ended:
			if problem.CodeOf(err) != problem.Unauthorized {
				t.Errorf("%s ended with %v", what, err)
			}
		case <-time.After(3 * time.Second):
			t.Errorf("%s goes on", what)
		}
	}
	if log := r.log.String(); !strings.Contains(log, `msg="API key revoked"`) || strings.Contains(log, strings.Split(secret, "_")[2]) {
		t.Errorf("the log:\n%s", log)
	}
}

// another is a second server of the rig's store.
func (r *rig) another() (*httptest.Server, func()) {
	r.t.Helper()
	log := slog.New(slog.DiscardHandler)
	keys, err := auth.New(auth.Config{Store: r.store, Env: "default", Clock: r.clock, IDs: ids.Random{}, Log: log})
	if err != nil {
		r.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	s, err := server.New(ctx, server.Config{
		Engine: r.engine, Store: r.store, Gateway: newGateway(r.t), Keys: keys, Env: "default", Version: "test", Clock: r.clock, IDs: ids.Random{},
		Log: log, Metrics: prometheus.NewRegistry(), Tokens: server.NewRunTokens(ids.Random{}),
	})
	if err != nil {
		r.t.Fatal(err)
	}
	followed := make(chan struct{})
	go func() {
		defer close(followed)
		keys.Follow(ctx)
	}()
	srv := httptest.NewServer(s.Handler())
	return srv, func() {
		srv.CloseClientConnections()
		srv.Close()
		cancel()
		<-followed
	}
}
