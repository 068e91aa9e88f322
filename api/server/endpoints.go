package server

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/labstack/echo/v4"

	"agentos/api/auth"
	"agentos/api/inbox"
	"agentos/internal/problem"
)

// The roles that things take, for the API and for the pages alike.
const (
	mayLook   = auth.Viewer
	mayRun    = auth.Runner
	mayDecide = auth.Reviewer
	mayOrder  = auth.Admin
	mayManage = auth.Admin
)

// What stands in the place of a role where none is needed.
const (
	// open is for everybody; nobody looks who it is.
	open auth.Role = "open"
	// guests are answered too, with less: the handler looks who it is.
	guests auth.Role = "guests"
	// ofRun takes the token of a run, which the handler checks.
	ofRun auth.Role = "run token"
)

// endpoint is one route.
type endpoint struct {
	method, path string
	// role is what it takes.
	role auth.Role
	// page says that people see the answer.
	page bool
	do   echo.HandlerFunc
}

// endpoints is the whole API; tests compare it with the document and want a role
// of each.
func (s *Server) endpoints() []endpoint {
	const env = "/v0/envs/:env"
	list := []endpoint{
		{method: http.MethodGet, path: "/", role: mayLook, page: true, do: s.showRoot},
		{method: http.MethodGet, path: "/health", role: open, do: handle(s, noInput, s.health)},
		{method: http.MethodGet, path: "/ready", role: guests, do: handle(s, noInput, s.ready)},
		{method: http.MethodGet, path: "/metrics", role: mayLook, do: s.showMetrics()},
		{method: http.MethodGet, path: "/openapi.json", role: open, do: handle(s, noInput, s.openAPI)},
		{method: http.MethodGet, path: "/v0/me", role: mayLook, do: handle(s, noInput, s.me)},

		{method: http.MethodGet, path: env + "/agents", role: mayLook, do: handle(s, noInput, s.listAgents)},
		{method: http.MethodGet, path: env + "/agents/:agent", role: mayLook, do: handle(s, readAgentName, s.getAgent)},
		{method: http.MethodPost, path: env + "/agents/:agent/pause", role: mayOrder, do: handle(s, readPause, s.pauseAgent)},
		{method: http.MethodPost, path: env + "/agents/:agent/resume", role: mayOrder, do: handle(s, readResume, s.resumeAgent)},
		{method: http.MethodPost, path: env + "/agents/:agent/capabilities/:capability/runs", role: mayRun, do: handle(s, readCreateRun, s.createRun)},
		{method: http.MethodGet, path: env + "/runs", role: mayLook, do: handle(s, readRunList, s.listRuns)},
		{method: http.MethodGet, path: env + "/runs/:run", role: mayLook, do: handle(s, readGetRun, s.getRun)},
		{method: http.MethodPost, path: env + "/runs/:run/cancel", role: mayRun, do: handle(s, readRunChange, s.cancelRun)},
		{method: http.MethodGet, path: env + "/runs/:run/events", role: mayLook, do: s.streamEvents},
		{method: http.MethodGet, path: env + "/runs/:run/trajectory", role: mayLook, do: handle(s, readRunID, s.getTrajectory)},
		{method: http.MethodGet, path: env + "/holds", role: mayLook, do: handle(s, readHoldList, s.listHolds)},
		{method: http.MethodGet, path: env + "/holds/:hold", role: mayLook, do: handle(s, readHoldID, s.getHold)},
		{method: http.MethodPost, path: env + "/holds/:hold/decisions", role: mayDecide, do: handle(s, readDecide, s.decide)},
		{method: http.MethodGet, path: env + "/audit", role: mayLook, do: s.exportAudit},
		{method: http.MethodGet, path: env + "/orders", role: mayLook, do: handle(s, readEnv, s.getOrders)},
		{method: http.MethodPost, path: env + "/tools/off", role: mayOrder, do: handle(s, readSwitchOff, s.switchOff)},
		{method: http.MethodPost, path: env + "/tools/on", role: mayOrder, do: handle(s, readSwitchOn, s.switchOn)},
		{method: http.MethodGet, path: env + "/keys", role: mayManage, do: handle(s, noInput, s.listKeys)},
		{method: http.MethodPost, path: env + "/keys", role: mayManage, do: handle(s, readCreateKey, s.createKey)},
		{method: http.MethodDelete, path: env + "/keys/:key", role: mayManage, do: handle(s, readRevokeKey, s.revokeKey)},

		{method: http.MethodPost, path: "/v0/gateway/v1/chat/completions", role: ofRun, do: handle(s, readChat, s.chat)},
		{method: http.MethodGet, path: "/v0/gateway/v1/models", role: ofRun, do: handle(s, readRunToken, s.listModels)},

		// Style and scripts, the same for everybody.
		{method: http.MethodGet, path: inbox.StaticPath + "*", role: open, page: true, do: s.showPage},
	}
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		for _, path := range []string{inboxPath, inboxPath + "/*"} {
			// What a page does takes its role in pages.
			list = append(list, endpoint{method: method, path: path, role: mayLook, page: true, do: s.showPage})
		}
	}
	return list
}

// admit finds out who makes a request, holds them to the endpoint's role, and
// leaves them in the context of the request. Nobody else looks at credentials of
// people.
func (s *Server) admit(e endpoint) echo.HandlerFunc {
	if e.role == open || e.role == ofRun {
		return e.do
	}
	return func(c echo.Context) error {
		r := c.Request()
		sent, err := credential(r)
		var who auth.Principal
		if err == nil {
			who, err = s.cfg.Keys.Authenticate(r.Context(), sent, from(r))
		}
		switch {
		case e.role == guests && (sent == "" || problem.CodeOf(err) == problem.StoreUnavailable):
			err = nil // nobody in particular, or whoever it was lately
		case err == nil && e.role != guests:
			err = allowed(who, e.role)
		}
		if problem.CodeOf(err) == problem.StoreUnavailable {
			who = auth.Principal{} // as nobody can tell
		}
		c.SetRequest(r.WithContext(auth.With(r.Context(), who)))
		if err != nil && e.page && wantsPage(r) {
			return s.refusePage(c, err)
		}
		if err != nil {
			return err
		}
		return e.do(c)
	}
}

// allowed returns the error of a principal who lacks a role.
func allowed(who auth.Principal, role auth.Role) error {
	if who.Can(role) {
		return nil
	}
	var has []string
	for _, r := range who.Effective() {
		has = append(has, string(r))
	}
	return problem.New(problem.Forbidden, "this takes the role %s; the key %s of %s has %s", role, who.KeyID, who.Name, strings.Join(has, ", "))
}

// credential returns the API key that a request carries, or "". Two of them are
// none: which one counts would be a guess.
func credential(r *http.Request) (string, error) {
	if n := len(r.Header.Values(echo.HeaderAuthorization)); n > 1 {
		return "", problem.New(problem.Unauthorized, "the Authorization header is given %d times", n)
	}
	return bearer(r), nil
}

// bearer returns the credential of an Authorization header (RFC 6750 section 2.1).
func bearer(r *http.Request) string {
	scheme, token, _ := strings.Cut(r.Header.Get(echo.HeaderAuthorization), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}

// while returns a context for something long that a request does, which ends when
// its key does.
func (s *Server) while(ctx context.Context) (context.Context, context.CancelFunc) {
	return s.cfg.Keys.While(ctx, auth.From(ctx))
}

// ended returns the error of a request whose key has ended meanwhile, or nil.
func ended(ctx context.Context) error {
	if cause := context.Cause(ctx); errors.Is(cause, auth.ErrEnded) {
		return problem.Wrap(cause, problem.Unauthorized, "the API key ended while this request waited")
	}
	return nil
}

// refusePage answers a browser. It has no way to bring a key yet.
func (s *Server) refusePage(c echo.Context, err error) error {
	p := problem.From(err)
	if p.Code == problem.Unauthorized {
		p = problem.New(p.Code, "This server needs an API key, and a browser cannot bring one yet. Use the agentos command with AGENTOS_API_KEY, or the API.")
	}
	c.Response().Header().Set(echo.HeaderCacheControl, "no-store")
	s.explain(c, p)
	s.inbox.Refuse(c.Response(), c.Request(), p)
	return nil
}

// me answers who makes the request.
func (*Server) me(ctx context.Context, _ nothing) (reply, error) {
	return reply{body: toMe(auth.From(ctx))}, nil
}
