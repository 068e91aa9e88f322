package server_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"agentos/api"
	"agentos/api/client"
	"agentos/internal/testenv/toolserver"
	"agentos/runtime/store"
)

// person is a browser without a screen: it keeps cookies and follows redirects.
type person struct {
	r    *rig
	http *http.Client
}

func newPerson(r *rig) *person {
	jar, err := cookiejar.New(nil)
	if err != nil {
		r.t.Fatal(err)
	}
	return &person{r: r, http: &http.Client{Jar: jar, Transport: r.http.Client().Transport}}
}

// send sends a request and returns the answer; headers are "Name: value".
func (p *person) send(method, path string, form url.Values, headers ...string) answer {
	p.r.t.Helper()
	var body io.Reader
	if form != nil {
		body = strings.NewReader(form.Encode())
	}
	req, err := http.NewRequestWithContext(p.r.ctx(), method, p.r.http.URL+path, body)
	if err != nil {
		p.r.t.Fatal(err)
	}
	req.Header.Set("Accept", "text/html,application/xhtml+xml")
	if p.r.key != "" {
		req.Header.Set("Authorization", "Bearer "+p.r.key)
	}
	if form != nil {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		req.Header.Set("Origin", p.r.http.URL)
		req.Header.Set("Sec-Fetch-Site", "same-origin")
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Del(name)
		if value != "" {
			req.Header.Set(name, value)
		}
	}
	res, err := p.http.Do(req)
	if err != nil {
		p.r.t.Fatalf("%s %s: %v", method, path, err)
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	if err != nil {
		p.r.t.Fatalf("%s %s: %v", method, path, err)
	}
	return answer{status: res.StatusCode, header: res.Header, body: raw}
}

func (p *person) get(path string) answer { p.r.t.Helper(); return p.send(http.MethodGet, path, nil) }

var hiddenToken = regexp.MustCompile(`name="form_token" value="([^"]+)"`)

// token is what the forms of a page carry.
func (p *person) token(path string) string {
	p.r.t.Helper()
	m := hiddenToken.FindSubmatch(p.get(path).body)
	if m == nil {
		p.r.t.Fatalf("%s has no form", path)
	}
	return string(m[1])
}

const inboxPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; " +
	"form-action 'self'; frame-ancestors 'none'; base-uri 'none'"

// Every answer of the inbox carries the policy, errors, files and streams included,
// and no page has anything inline.
func TestInboxSecurityHeaders(t *testing.T) {
	r := newRig(t)
	p, run := newPerson(r), r.held("A-1")
	inline := regexp.MustCompile(`(?i)<script(?:[^>]*>[^<]|[^>]*[^r]>\s*[^<\s])|<style|\sstyle=|\son[a-z]+=|javascript:`)
	for path, status := range map[string]int{
		"/": 200, "/inbox": 200, "/inbox/": 200, "/?status=nope": 400, "/?age=x": 400, "/inbox/nothing": 404, "/inbox/holds/h_x_1": 404, "/inbox/holds/x": 404,
		"/inbox/holds/" + run.Hold.HoldID: 200, "/inbox/holds/" + run.Hold.HoldID + "/decide": 405, "/inbox/runs/" + run.RunID: 200, "/inbox/runs/r_none": 404,
		"/inbox/review": 400, "/inbox/review?hold=" + run.Hold.HoldID: 400, "/inbox/agents/none": 404, "/inbox/agents/shop/start/none": 404,
		"/inbox/static/inbox.css": 200, "/inbox/static/none.css": 404, "/inbox/static/../inbox.go": 404, "/inbox/%zz": 400,
	} {
		if path == "/inbox/%zz" {
			continue // Go's client refuses to send it
		}
		a := p.get(path)
		if a.status != status {
			t.Errorf("%s: %d, want %d: %.300s", path, a.status, status, a.body)
		}
		h := a.header
		if h.Get("Content-Security-Policy") != inboxPolicy || h.Get("X-Content-Type-Options") != "nosniff" || h.Get("Referrer-Policy") != "same-origin" || h.Get("X-Frame-Options") != "DENY" {
			t.Errorf("%s: headers %v", path, h)
		}
		if strings.HasPrefix(h.Get("Content-Type"), "text/html") {
			if found := inline.Find(a.body); found != nil {
				t.Errorf("%s has %q inline", path, found)
			}
			if h.Get("Cache-Control") != "no-store" {
				t.Errorf("%s may be stored: %q", path, h.Get("Cache-Control"))
			}
		}
	}
}

// The root answers programs as before.
func TestRootForProgramsAndPeople(t *testing.T) {
	r := newRig(t)
	for accept, want := range map[string]string{"": "application/json", "*/*": "application/json", "application/json": "application/json", "text/html,*/*;q=0.8": "text/html; charset=utf-8"} {
		a := newPerson(r).send(http.MethodGet, "/", nil, "Accept: "+accept)
		if got := a.header.Get("Content-Type"); got != want || a.status != http.StatusOK {
			t.Errorf("Accept %q: %d %s, want %s", accept, a.status, got, want)
		}
	}
}

// A form decides only when it was made for this browser by this server.
func TestInboxFormsAreTied(t *testing.T) {
	r := newRig(t)
	run := r.held("A-1")
	p, hold := newPerson(r), "/inbox/holds/"+run.Hold.HoldID
	token := p.token(hold)
	form := func(change ...string) url.Values {
		f := url.Values{"form_token": {token}, "revision": {strconv.FormatInt(run.Hold.Revision, 10)}, "item": {"call_1"}, "action": {"approve"}}
		for i := 0; i < len(change); i += 2 {
			f.Del(change[i])
			if change[i+1] != "" {
				f.Set(change[i], change[i+1])
			}
		}
		return f
	}
	stranger := newPerson(r)
	other := stranger.token(hold)
	for name, c := range map[string]struct {
		who     *person
		form    url.Values
		headers []string
		status  int
	}{
		"no token":            {p, form("form_token", ""), nil, 403},
		"another's token":     {p, form("form_token", other), nil, 403},
		"no cookie":           {newPerson(r), form(), nil, 403},
		"another origin":      {p, form(), []string{"Origin: https://evil.example"}, 403},
		"a frame":             {p, form(), []string{"Origin: null"}, 403},
		"cross-site":          {p, form(), []string{"Origin: ", "Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: document"}, 403},
		"no revision":         {p, form("revision", ""), nil, 400},
		"malformed revision":  {p, form("revision", "0x2"), nil, 400},
		"old revision":        {p, form("revision", "1"), nil, 409},
		"no item":             {p, form("item", ""), nil, 422},
		"unknown item":        {p, form("item", "call_9"), nil, 422},
		"unknown action":      {p, form("action", "destroy"), nil, 422},
		"edit without data":   {p, form("action", "edit"), nil, 422},
		"edit that is broken": {p, form("action", "edit", "data", "{"), nil, 422},
		"edit out of schema":  {p, form("action", "edit", "data", `{"order_id":7}`), nil, 422},
		"not UTF-8":           {p, form("reason", "\xff"), nil, 400},
		"too long":            {p, form("reason", strings.Repeat("x", 5<<20)), nil, 413},
		"JSON is no form":     {p, form(), []string{"Content-Type: application/json"}, 403},
	} {
		if a := c.who.send(http.MethodPost, hold+"/decide", c.form, c.headers...); a.status != c.status {
			t.Errorf("%s: %d, want %d: %.600s", name, a.status, c.status, a.body)
		}
	}
	if h, err := r.client.Hold(r.ctx(), "default", run.Hold.HoldID); err != nil || h.Status != api.HoldPending {
		t.Fatalf("%s %v", h.Status, err)
	}
	for range 2 { // a repeat counts once
		if a := p.send(http.MethodPost, hold+"/decide", form()); a.status != http.StatusOK || !strings.Contains(string(a.body), "Everything here is decided") {
			t.Fatalf("%d %.600s", a.status, a.body)
		}
	}
	r.completed(run.RunID)
	r.ran("cancel_order", "A-1", 1)
	if a := p.send(http.MethodPost, hold+"/decide", form("action", "reject")); a.status != http.StatusConflict || !strings.Contains(string(a.body), "Approved</b> by") {
		t.Errorf("%d %.900s", a.status, a.body)
	}
}

// A link in a message opens a page; nothing else of another origin reaches one.
func TestInboxLinksFromElsewhere(t *testing.T) {
	r := newRig(t)
	run := r.held("A-1")
	link := []string{"Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: document"}
	for name, c := range map[string]struct {
		path    string
		headers []string
		status  int
	}{
		"a link to a hold":   {"/inbox/holds/" + run.Hold.HoldID, link, 200},
		"a link to the root": {"/", link, 200},
		"a frame":            {"/", []string{link[0], link[1], "Sec-Fetch-Dest: iframe"}, 403},
		"a script":           {"/inbox/runs", []string{link[0], "Sec-Fetch-Mode: no-cors", "Sec-Fetch-Dest: script"}, 403},
		"fetch":              {"/inbox/runs", []string{link[0], "Sec-Fetch-Mode: cors", "Sec-Fetch-Dest: empty", "Origin: https://evil.example"}, 403},
		"the API":            {"/v0/envs/default/holds", link, 403},
		"a name like ours":   {"/inboxes", link, 403},
	} {
		if a := newPerson(r).send(http.MethodGet, c.path, nil, c.headers...); a.status != c.status {
			t.Errorf("%s: %d, want %d", name, a.status, c.status)
		}
	}
}

// A call that may have run is answered with what a person found out.
func TestInboxOutcomeUnknown(t *testing.T) {
	for name, c := range map[string]struct {
		form url.Values
		want string
	}{
		"text": {url.Values{"action": {"ran"}, "result": {"it was\r\ncancelled"}, "form": {"text"}}, `"it was\ncancelled"`},
		"JSON": {url.Values{"action": {"ran"}, "result": {` {"id": 9007199254740993}`}, "form": {"json"}}, `{"id":9007199254740993}`},
		"skip": {url.Values{"action": {"skip"}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			run := r.create("call:die then say:done", 10*time.Second)
			if run.Status != api.RunHeld || run.Hold.Kind != "outcome_unknown" {
				t.Fatalf("%s %+v", run.Status, run.Hold)
			}
			p, hold := newPerson(r), "/inbox/holds/"+run.Hold.HoldID
			if body := string(p.get(hold).body); !strings.Contains(body, "This call may have run") || strings.Contains(body, `value="approve"`) {
				t.Errorf("%s", body)
			}
			if body := string(p.get("/").body); !strings.Contains(body, "may have run") || strings.Contains(body, `name="hold"`) {
				t.Errorf("%s", body)
			}
			c.form.Set("form_token", p.token(hold))
			c.form.Set("revision", strconv.FormatInt(run.Hold.Revision, 10))
			c.form.Set("item", "call_1")
			bad := url.Values{"form": {"json"}, "result": {"{"}, "action": {"ran"}}
			for k, v := range c.form {
				if !bad.Has(k) {
					bad[k] = v
				}
			}
			if a := p.send(http.MethodPost, hold+"/decide", bad); a.status != http.StatusUnprocessableEntity {
				t.Errorf("%d %s", a.status, a.body)
			}
			if a := p.send(http.MethodPost, hold+"/decide", c.form); a.status != http.StatusOK {
				t.Fatalf("%d %s", a.status, a.body)
			}
			r.completed(run.RunID)
			h, err := r.client.Hold(r.ctx(), "default", run.Hold.HoldID)
			if err != nil || h.Items[0].Decision == nil || string(h.Items[0].Decision.Data) != c.want {
				t.Errorf("%+v %v, want %s", h.Items[0].Decision, err, c.want)
			}
			if n := toolserver.Count(t, r.ledger, "die", ""); n != 1 {
				t.Errorf("it ran %d times", n)
			}
		})
	}
}

// The same form sent twice starts one run.
func TestInboxStartsOnce(t *testing.T) {
	r := newRig(t)
	p, start := newPerson(r), "/inbox/agents/shop/start/support"
	page := p.get(start)
	form := url.Values{"by": {"json"}, "json": {`{"message": "say:hi", "n": 1.0}`}}
	for _, name := range []string{"form_token", "key"} {
		m := regexp.MustCompile(`name="` + name + `" value="([^"]+)"`).FindSubmatch(page.body)
		if m == nil {
			t.Fatalf("no %s in %s", name, page.body)
		}
		form.Set(name, string(m[1]))
	}
	for range 2 {
		if a := p.send(http.MethodPost, start, form); a.status != http.StatusOK || !strings.Contains(string(a.body), "shop / support") {
			t.Fatalf("%d %s", a.status, a.body)
		}
	}
	list, err := r.client.Runs(r.ctx(), "default", client.RunQuery{})
	if err != nil || len(list.Runs) != 1 || string(list.Runs[0].Input) != `{"message":"say:hi","n":1.0}` {
		t.Errorf("%+v %v", list.Runs, err)
	}
	for _, change := range [][2]string{{"json", "{"}, {"json", "7"}, {"json", `{"message":7}`}} {
		form.Set(change[0], change[1])
		if a := p.send(http.MethodPost, start, form); a.status != http.StatusUnprocessableEntity || !strings.Contains(string(a.body), "The input does not fit") {
			t.Errorf("%v: %d", change, a.status)
		}
	}
	form.Del("key")
	if a := p.send(http.MethodPost, start, form); a.status != http.StatusBadRequest {
		t.Errorf("%d", a.status)
	}
}

// A stream ends with its run, and with the server.
func TestInboxStreams(t *testing.T) {
	r := newRig(t)
	run := r.held("A-1")
	for path, status := range map[string]int{"/inbox/live/runs/r_none": 404, "/inbox/live/holds/h_none_1": 404, "/inbox/live/holds?status=x": 400} {
		if a := newPerson(r).get(path); a.status != status {
			t.Errorf("%s: %d", path, a.status)
		}
	}
	// open opens a stream and returns what reads it to its end.
	open := func(path string) (rest func() string) {
		t.Helper()
		req, err := http.NewRequestWithContext(r.ctx(), http.MethodGet, r.http.URL+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := r.http.Client().Do(req) //nolint:bodyclose // rest closes it
		if err != nil {
			t.Fatal(err)
		}
		if res.StatusCode != http.StatusOK || res.Header.Get("Content-Type") != "text/event-stream" || res.Header.Get("Content-Security-Policy") == "" {
			t.Fatalf("%s: %d %v", path, res.StatusCode, res.Header)
		}
		return func() string {
			defer res.Body.Close()
			raw, err := io.ReadAll(res.Body)
			if err != nil {
				t.Errorf("%s: %v", path, err)
			}
			return string(raw)
		}
	}
	one, hold := open("/inbox/live/runs/"+run.RunID), open("/inbox/live/holds/"+run.Hold.HoldID+"?seen="+strconv.FormatInt(run.Hold.Revision, 10))
	holds, runs := open("/inbox/live/holds"), open("/inbox/live/runs")
	if _, err := r.decide(run.Hold.HoldID, 10*time.Second, item("approve")); err != nil {
		t.Fatal(err)
	}
	for name, rest := range map[string]func() string{"run": one, "hold": hold} {
		if raw := rest(); strings.Count(raw, "event: changed") < 2 || !strings.Contains(raw, "event: end") {
			t.Errorf("%s: %q", name, raw)
		}
	}
	r.server.Stop()
	for name, rest := range map[string]func() string{"holds": holds, "runs": runs} {
		if raw := rest(); !strings.Contains(raw, "event: changed") {
			t.Errorf("%s: %q", name, raw)
		}
	}
}

// A store that cannot be read is told on a page, without its secrets.
func TestInboxErrors(t *testing.T) {
	r := newRig(t)
	run := r.held("A-1")
	r.store.set(errPanic)
	for _, path := range []string{"/", "/inbox/runs"} {
		if a := newPerson(r).get(path); a.status != http.StatusInternalServerError || strings.Contains(string(a.body), "secret-cause") {
			t.Errorf("%s: %d %s", path, a.status, a.body)
		}
	}
	r.store.set(fmt.Errorf("secret-cause: %w", store.ErrUnavailable))
	for _, path := range []string{"/", "/inbox/runs", "/inbox/holds/" + run.Hold.HoldID} {
		if a := newPerson(r).get(path); a.status != http.StatusServiceUnavailable || strings.Contains(string(a.body), "secret-cause") {
			t.Errorf("%s: %d %s", path, a.status, a.body)
		}
	}
}

// The page of a hold tells who may decide it and how far the votes have come; a
// person who may not decide is told so, and the second person's vote decides.
func TestInboxQuorum(t *testing.T) {
	r := newRig(t)
	r.stop()
	r.rule = "approve: [{id: fin, tool: cancel_order, reviewers: {roles: [finance], require: 2, not_requester: true}}]"
	r.up()
	r.key = r.as("req")
	people := map[string]string{"req": r.key, "ann": r.as("ann", "reviewer", "finance"), "bob": r.as("bob", "reviewer", "finance")}
	run := r.held("A-1")
	hold := "/inbox/holds/" + run.Hold.HoldID
	p := newPerson(r)
	shows := func(words ...string) {
		t.Helper()
		page := string(p.get(hold).body)
		for _, want := range words {
			if !strings.Contains(page, want) {
				t.Errorf("the page lacks %q", want)
			}
		}
	}
	revision := run.Hold.Revision
	decide := func(who, action string) answer {
		t.Helper()
		return p.send(http.MethodPost, hold+"/decide", url.Values{
			"form_token": {p.token(hold)}, "revision": {strconv.FormatInt(revision, 10)}, "item": {"call_1"}, "action": {action},
		}, "Authorization: Bearer "+people[who])
	}
	shows("May be decided by the role finance (rule fin).", "Not by the person who asked for the run.", "<b>0 of 2</b> approvals")
	if a := decide("req", "approve"); a.status != http.StatusForbidden || !strings.Contains(string(a.body), "nothing was recorded") {
		t.Errorf("the requester: %d", a.status)
	}
	if a := decide("ann", "approve"); a.status != http.StatusOK {
		t.Errorf("the first vote: %d", a.status)
	}
	shows("<b>1 of 2</b> approvals", "Approved by ann, ")
	if a := decide("bob", "approve"); a.status != http.StatusConflict {
		t.Errorf("a vote without having seen the first: %d", a.status)
	}
	revision++
	if a := decide("bob", "approve"); a.status != http.StatusOK {
		t.Errorf("the second vote: %d", a.status)
	}
	shows("<b>2 of 2</b> approvals", "Everything here is decided.")
	r.entry(run.RunID, "run.completed")
	r.ran("cancel_order", "A-1", 1)
}
