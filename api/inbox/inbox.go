// Package inbox owns the pages for people: pending holds and their decisions, runs
// as they happen, agents and what they may do. Pages are made by the server and
// work without a script; a small one makes them live.
//
// Everything that a model, a tool or a caller wrote is data on these pages: it is
// escaped by html/template, characters that cannot be seen are shown, and the
// content security policy allows no script and no style but the embedded files.
// Arguments stay raw JSON: what an edit does not touch keeps every byte.
//
// The package decides nothing about runs and holds and knows no store, engine or
// router. What it needs stands in Backend, which api/server implements and which
// checks what a principal may do.
package inbox

import (
	"bytes"
	"context"
	"embed"
	"fmt"
	"html/template"
	"io/fs"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	"agentos/api"
	"agentos/internal/clock"
	"agentos/internal/ids"
	"agentos/internal/problem"
)

// Principal is who looks at a page, from the credential of the request.
type Principal struct {
	Name string
	// Roles are the roles and groups of the person.
	Roles []string
	// From is the address the request came from.
	From string
}

// HoldQuery chooses holds; empty members choose all.
type HoldQuery struct {
	Status, Agent string
	// OlderThan leaves out holds opened more recently.
	OlderThan time.Duration
	Cursor    string
	Limit     int
}

// RunQuery chooses runs; empty members choose all.
type RunQuery struct {
	Status, Agent, Cursor string
	Limit                 int
}

// Reviews is what the inbox reads and writes of holds.
type Reviews interface {
	Holds(ctx context.Context, who Principal, q HoldQuery) (api.HoldList, error)
	Hold(ctx context.Context, who Principal, hold string) (api.Hold, error)
	// Decide posts decisions. With an error about the hold, the hold as it stands
	// comes back.
	Decide(ctx context.Context, who Principal, hold string, d api.Decide) (api.Hold, error)
}

// Runs is what the inbox reads and writes of runs.
type Runs interface {
	Runs(ctx context.Context, who Principal, q RunQuery) (api.RunList, error)
	Trajectory(ctx context.Context, who Principal, run string) (api.Trajectory, error)
	// Watch returns a channel that gets a value at once and whenever the run may
	// have changed, until ctx ends.
	Watch(ctx context.Context, who Principal, run string) (<-chan struct{}, error)
	Cancel(ctx context.Context, who Principal, run string) (api.Run, error)
	// Start creates a run; the same key gives the same run.
	Start(ctx context.Context, who Principal, agent, capability, key string, body api.CreateRun) (api.Run, error)
}

// Agents is what the inbox reads of agents.
type Agents interface {
	Agents(ctx context.Context, who Principal) (api.AgentList, error)
	Agent(ctx context.Context, who Principal, agent string) (api.Agent, error)
	Orders(ctx context.Context, who Principal) (api.Orders, error)
}

// Backend is the rest of the product as the inbox sees it. Errors are those of the
// API.
type Backend interface {
	Reviews
	Runs
	Agents
}

// Config is what New needs; every field is required.
type Config struct {
	Backend Backend
	Clock   clock.Clock
	IDs     ids.Source
	Log     *slog.Logger
	// Status is the table from error code to HTTP status.
	Status func(problem.Code) int
	// Env is the environment that is served, shown on every page.
	Env string
}

// Inbox serves the pages. It is safe for concurrent use.
type Inbox struct {
	cfg    Config
	pages  map[string]*template.Template
	static map[string]asset
	routes []route
}

//go:embed templates static
var files embed.FS

// New reads the embedded pages.
func New(cfg Config) (*Inbox, error) {
	if cfg.Backend == nil || cfg.Clock == nil || cfg.IDs == nil || cfg.Log == nil || cfg.Status == nil || cfg.Env == "" {
		return nil, problem.New(problem.InvalidSettings, "the inbox needs backend, clock, ids, log, statuses and environment")
	}
	in := &Inbox{cfg: cfg, pages: map[string]*template.Template{}}
	var err error
	if in.static, err = loadStatic(); err != nil {
		return nil, err
	}
	base, err := template.New("layout.html").Funcs(in.functions()).ParseFS(files, "templates/layout.html", "templates/parts.html")
	if err != nil {
		return nil, fmt.Errorf("read the templates: %w", err)
	}
	names, err := fs.Glob(files, "templates/*.html")
	if err != nil {
		return nil, fmt.Errorf("read the templates: %w", err)
	}
	for _, name := range names {
		page := strings.TrimSuffix(strings.TrimPrefix(name, "templates/"), ".html")
		if page == "layout" || page == "parts" {
			continue
		}
		t, err := base.Clone()
		if err == nil {
			t, err = t.ParseFS(files, name)
		}
		if err != nil {
			return nil, fmt.Errorf("read the page %s: %w", page, err)
		}
		in.pages[page] = t
	}
	in.routes = in.table()
	return in, nil
}

// route is one address of the inbox: segments of its path, of which "*" fits any.
type route struct {
	method string
	path   []string
	do     func(context.Context, *visit) (*page, error)
}

// table is the whole inbox.
func (in *Inbox) table() []route {
	r := func(method, path string, do func(context.Context, *visit) (*page, error)) route {
		return route{method: method, path: strings.Split(strings.Trim(path, "/"), "/"), do: do}
	}
	return []route{
		r(http.MethodGet, "/", in.showHolds),
		r(http.MethodGet, "/inbox", in.showHolds),
		r(http.MethodGet, "/inbox/holds/*", in.showHold),
		r(http.MethodPost, "/inbox/holds/*/edit", in.previewEdit),
		r(http.MethodPost, "/inbox/holds/*/decide", in.postDecision),
		r(http.MethodGet, "/inbox/review", in.showReview),
		r(http.MethodPost, "/inbox/review", in.postReview),
		r(http.MethodGet, "/inbox/runs", in.showRuns),
		r(http.MethodGet, "/inbox/runs/*", in.showRun),
		r(http.MethodPost, "/inbox/runs/*/cancel", in.postCancel),
		r(http.MethodGet, "/inbox/agents", in.showAgents),
		r(http.MethodGet, "/inbox/agents/*", in.showAgent),
		r(http.MethodGet, "/inbox/agents/*/start/*", in.showStart),
		r(http.MethodPost, "/inbox/agents/*/start/*", in.postStart),
		r(http.MethodGet, "/inbox/live/holds", in.liveHolds),
		r(http.MethodGet, "/inbox/live/holds/*", in.liveHold),
		r(http.MethodGet, "/inbox/live/runs", in.liveRuns),
		r(http.MethodGet, "/inbox/live/runs/*", in.liveRun),
	}
}

// visit is one request for a page.
type visit struct {
	w   http.ResponseWriter
	r   *http.Request
	who Principal
	// args are the segments of the path that the route left open.
	args []string
	// token is what forms of the answer carry, see csrf.go.
	token string
}

// fits returns the open segments of the path, and whether the route is meant.
func (r route) fits(segments []string) ([]string, bool) {
	if len(segments) != len(r.path) {
		return nil, false
	}
	var args []string
	for i, s := range r.path {
		switch {
		case s == "*" && segments[i] != "":
			args = append(args, segments[i])
		case s != segments[i]:
			return nil, false
		}
	}
	return args, true
}

// ServeHTTP answers a request for a page, a static file or a stream of changes.
// Who asks was worked out before, from the credential.
func (in *Inbox) ServeHTTP(w http.ResponseWriter, r *http.Request, who Principal) {
	secure(w.Header())
	if name, ok := strings.CutPrefix(r.URL.Path, StaticPath); ok {
		in.serveStatic(w, r, name)
		return
	}
	v := &visit{w: w, r: r, who: who}
	p, err := in.visit(r.Context(), v)
	if err != nil {
		p = in.failed(r.Context(), err)
	}
	if p == nil {
		return // a stream has answered itself
	}
	in.answer(r.Context(), v, p)
}

// Refuse answers a request that was refused before it came here, with the page of
// the error.
func (in *Inbox) Refuse(w http.ResponseWriter, r *http.Request, err error) {
	secure(w.Header())
	in.answer(r.Context(), &visit{w: w, r: r}, in.failed(r.Context(), err))
}

// visit finds the route, checks a form, and calls it.
func (in *Inbox) visit(ctx context.Context, v *visit) (*page, error) {
	segments := strings.Split(strings.Trim(v.r.URL.EscapedPath(), "/"), "/")
	for i, s := range segments {
		plain, err := url.PathUnescape(s)
		if err != nil {
			return nil, problem.New(problem.InvalidRequest, "the address is malformed")
		}
		segments[i] = plain
	}
	known := false
	for _, r := range in.routes {
		args, ok := r.fits(segments)
		if !ok {
			continue
		}
		known = true
		if r.method != v.r.Method && (r.method != http.MethodGet || v.r.Method != http.MethodHead) {
			continue
		}
		v.args = args
		if err := in.admit(v); err != nil {
			return nil, err
		}
		return r.do(ctx, v)
	}
	if known {
		return nil, problem.New(problem.MethodNotAllowed, "%s is not allowed here", v.r.Method)
	}
	return nil, problem.New(problem.RouteNotFound, "there is no such page")
}

// page is an answer: a template with its data, or another address to go to.
type page struct {
	// status is 200 when zero.
	status int
	name   string
	title  string
	// tab is the entry of the navigation that is marked.
	tab  string
	data any
	// to is where the browser is sent with 303; the other fields are unused then.
	to string
}

// frame is what a template gets.
type frame struct {
	Title, Tab, Who, Env, Token string
	Data                        any
}

func (in *Inbox) answer(ctx context.Context, v *visit, p *page) {
	if p.to != "" {
		http.Redirect(v.w, v.r, p.to, http.StatusSeeOther)
		return
	}
	body, err := in.render(p.name, "layout.html", frame{
		Title: p.title, Tab: p.tab, Who: v.who.Name, Env: in.cfg.Env, Token: v.token, Data: p.data,
	})
	if err != nil {
		in.cfg.Log.ErrorContext(ctx, "could not make a page", slog.String("page", p.name), slog.Any("error", err))
		http.Error(v.w, "The page could not be made; the server's log says why.", http.StatusInternalServerError)
		return
	}
	v.w.Header().Set("Content-Type", "text/html; charset=utf-8")
	if p.status == 0 {
		p.status = http.StatusOK
	}
	v.w.WriteHeader(p.status)
	_, _ = v.w.Write(body) //nolint:errcheck // a reader who has left cannot be told
}

// render executes one template of a page.
func (in *Inbox) render(name, part string, data any) ([]byte, error) {
	t := in.pages[name]
	if t == nil {
		return nil, fmt.Errorf("no page %q", name)
	}
	var buf bytes.Buffer
	if err := t.ExecuteTemplate(&buf, part, data); err != nil {
		return nil, err
	}
	return buf.Bytes(), nil
}

// failure is the data of the page that tells about an error.
type failure struct {
	Status  int
	Code    problem.Code
	Message string
	Details []problem.Detail
}

// failed makes a page of an error; what is internal stays in the log.
func (in *Inbox) failed(ctx context.Context, err error) *page {
	p := problem.From(err)
	status := in.cfg.Status(p.Code)
	if status >= http.StatusInternalServerError {
		in.cfg.Log.ErrorContext(ctx, "a page failed", slog.Any("error", err))
	}
	return &page{status: status, name: "failure", title: http.StatusText(status), data: failure{
		Status: status, Code: p.Code, Message: p.Message, Details: p.Details,
	}}
}
