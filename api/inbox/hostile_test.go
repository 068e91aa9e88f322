package inbox_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"strings"
	"testing"
	"time"

	"agentos/api"
	"agentos/api/inbox"
	"agentos/internal/clock"
	"agentos/internal/ids"
	"agentos/internal/problem"
	"agentos/internal/rawjson"
	"agentos/internal/testenv/browser"
)

// hostile would run, break out of an attribute or a control, or mislead.
const hostile = `x'"><script>alert(1)</script></textarea></title></option></pre><img src=x onerror=alert(2)>` +
	`<div hx-get="/inbox/runs" hx-trigger="load">` + "\u202e" + `javascript:alert(3)`

// fill puts hostile texts into every text of a value, and JSON with such texts
// into everything raw.
func fill(v reflect.Value) {
	switch {
	case v.Type() == reflect.TypeFor[api.Time]():
		v.Set(reflect.ValueOf(api.Time{Time: time.Now()}))
	case v.Type() == reflect.TypeFor[json.RawMessage]():
		v.SetBytes(rawjson.Object([]rawjson.Field{
			{Name: hostile, Value: rawjson.Quote(hostile)},
			{Name: "content", Value: rawjson.Quote(hostile + "\n")},
			{Name: "properties", Value: rawjson.Object([]rawjson.Field{{Name: hostile, Value: rawjson.Object([]rawjson.Field{
				{Name: "description", Value: rawjson.Quote(hostile)},
				{Name: "pattern", Value: rawjson.Quote(hostile)},
				{Name: "enum", Value: json.RawMessage("[" + string(rawjson.Quote(hostile)) + "]")},
			})}})},
		}))
	case v.Kind() == reflect.String:
		v.SetString(hostile)
	case v.Kind() == reflect.Int64 || v.Kind() == reflect.Int:
		v.SetInt(7)
	case v.Kind() == reflect.Bool:
		v.SetBool(true)
	case v.Kind() == reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem())
	case v.Kind() == reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		for i := range v.Len() {
			fill(v.Index(i))
		}
	case v.Kind() == reflect.Struct:
		for _, f := range v.Fields() {
			fill(f)
		}
	}
}

func filled[T any]() T {
	var v T
	fill(reflect.ValueOf(&v).Elem())
	return v
}

// enemy is a backend in which everything is hostile, but for the words that say
// which parts of a page are shown.
type enemy struct{ status, kind string }

func (e enemy) hold() api.Hold {
	h := filled[api.Hold]()
	if e.status != "" {
		h.Status, h.Kind, h.Actions = api.HoldStatus(e.status), e.kind, []string{"approve", "edit", "reject"}
		h.Items[0].Decision = nil
	}
	return h
}

func (e enemy) trajectory() api.Trajectory {
	t := filled[api.Trajectory]()
	if e.status != "" {
		t.Run.Status = map[string]api.RunStatus{"pending": api.RunHeld, "decided": api.RunCompleted, "expired": api.RunFailed, "cancelled": api.RunCancelled}[e.status]
	}
	return t
}

func (e enemy) Holds(context.Context, inbox.Principal, inbox.HoldQuery) (api.HoldList, error) {
	return api.HoldList{Holds: []api.Hold{e.hold(), e.hold()}, NextCursor: hostile}, nil
}

func (e enemy) Hold(context.Context, inbox.Principal, string) (api.Hold, error) { return e.hold(), nil }

func (e enemy) Decide(context.Context, inbox.Principal, string, api.Decide) (api.Hold, error) {
	return e.hold(), problem.New(problem.HoldStale, "%s", hostile).With(problem.Detail{Path: hostile, Message: hostile})
}

func (e enemy) Runs(context.Context, inbox.Principal, inbox.RunQuery) (api.RunList, error) {
	return api.RunList{Runs: []api.Run{e.trajectory().Run}, NextCursor: hostile}, nil
}

func (e enemy) Trajectory(context.Context, inbox.Principal, string) (api.Trajectory, error) {
	return e.trajectory(), nil
}

func (e enemy) Watch(context.Context, inbox.Principal, string) (<-chan struct{}, error) {
	return make(chan struct{}), nil
}

func (e enemy) Cancel(context.Context, inbox.Principal, string) (api.Run, error) {
	return api.Run{}, problem.New(problem.RunNotFound, "%s", hostile)
}

func (e enemy) Start(context.Context, inbox.Principal, string, string, string, api.CreateRun) (api.Run, error) {
	return api.Run{}, problem.New(problem.InvalidInput, "%s", hostile).With(problem.Detail{Path: hostile, Message: hostile})
}

func (e enemy) Agents(context.Context, inbox.Principal) (api.AgentList, error) {
	return filled[api.AgentList](), nil
}

func (e enemy) Agent(context.Context, inbox.Principal, string) (api.Agent, error) {
	return filled[api.Agent](), nil
}

func (e enemy) Orders(context.Context, inbox.Principal) (api.Orders, error) {
	return filled[api.Orders](), nil
}

// TestNothingHostileRuns covers every text of the API's structs, whoever writes it:
// tools' names and descriptions, errors of servers, reasons, requesters.
func TestNothingHostileRuns(t *testing.T) {
	tab := browser.Open(t)
	id := url.PathEscape(hostile)
	pages := []string{
		"/", "/inbox/holds/" + id, "/inbox/review?hold=h@7&hold=h@6", "/inbox/runs", "/inbox/runs/" + id, "/inbox/agents", "/inbox/agents/" + id, "/inbox/agents/" + id + "/start/" + id,
	}
	for _, e := range []enemy{{}, {"pending", "tool_call"}, {"pending", "outcome_unknown"}, {"decided", "tool_call"}, {"expired", "tool_call"}, {"cancelled", "tool_call"}} {
		in, err := inbox.New(inbox.Config{
			Backend: e, Clock: clock.System{}, IDs: ids.Random{}, Log: slog.New(slog.DiscardHandler), Env: hostile,
			Status: func(problem.Code) int { return http.StatusConflict },
		})
		if err != nil {
			t.Fatal(err)
		}
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			in.ServeHTTP(w, r, inbox.Principal{Name: hostile})
		}))
		look := func(page string) {
			t.Helper()
			planted := browser.Eval[[]string](tab, `[...document.querySelectorAll("script,iframe,style,base,img,[onerror],[hx-get]")].filter(e =>
				!(e.tagName === "SCRIPT" && e.src.startsWith(location.origin + "/inbox/static/")) && !(e.id === "live" || e.className === "filters")).map(e => e.outerHTML)`)
			if len(planted) > 0 {
				t.Errorf("%+v %s holds %q", e, page, planted)
			}
			text := tab.Text()
			if !strings.Contains(text, "<script>alert(1)</script>") {
				t.Errorf("%+v %s shows nothing hostile: %q", e, page, text)
			}
			if before, after, found := strings.Cut(text, "\u202e"); found {
				t.Errorf("%+v %s turns the text around between %q and %q", e, page, before[max(0, len(before)-250):], after[:min(len(after), 60)])
			}
			if f := tab.Faults(); len(f) > 0 {
				t.Errorf("%+v %s: %q", e, page, f)
			}
		}
		for _, page := range pages {
			tab.Go(srv.URL + page)
			browser.Eval[bool](tab, "document.querySelectorAll('details').forEach(d => d.open = true), true")
			look(page)
		}
		if e.status == "pending" {
			// What comes back from forms is shown as well.
			tab.Go(srv.URL + pages[1])
			tab.Click("form[action$='/decide'] button")
			tab.WaitText("nothing was recorded")
			look("a refused decision")
			tab.Accessible()
		}
		tab.Go("about:blank")
		srv.CloseClientConnections()
		srv.Close()
	}
}

// The data of the pages cannot be reached by addresses of another form.
func TestAddresses(t *testing.T) {
	in, err := inbox.New(inbox.Config{
		Backend: enemy{}, Clock: clock.System{}, IDs: ids.Random{}, Log: slog.New(slog.DiscardHandler), Env: "default",
		Status: func(c problem.Code) int {
			return map[problem.Code]int{problem.RouteNotFound: 404, problem.MethodNotAllowed: 405, problem.ForbiddenOrigin: 403, problem.InvalidRequest: 400}[c]
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	for request, want := range map[string]int{
		"GET /inbox/holds": 404, "GET /inbox/holds/": 404, "GET /inbox/holds/a/b": 404, "GET /inbox/holds//decide": 404, "GET /inbox//runs": 404,
		"DELETE /inbox/runs/r_1": 405, "PUT /": 405, "POST /": 405, "GET /inbox/holds/h/decide": 405, "POST /inbox/holds/h/decide": 403, "HEAD /": 200,
		"GET /inbox/static/": 404, "GET /inbox/static/inbox.css": 200, "POST /inbox/static/inbox.css": 404, "GET /inbox/live/holds?status=x": 400,
	} {
		method, path, _ := strings.Cut(request, " ")
		w := httptest.NewRecorder()
		in.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, path, nil), inbox.Principal{Name: "local"})
		if w.Code != want {
			t.Errorf("%s: %d, want %d", request, w.Code, want)
		}
	}
	if _, err := inbox.New(inbox.Config{}); problem.CodeOf(err) != problem.InvalidSettings {
		t.Errorf("%v", err)
	}
}
