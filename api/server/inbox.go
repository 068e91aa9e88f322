package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/labstack/echo/v4"

	"agentos/api"
	"agentos/api/auth"
	"agentos/api/inbox"
	"agentos/holds"
	"agentos/runtime/store"
)

// inboxPath is where the pages for people are, beside "/".
const inboxPath = "/inbox"

// newInbox makes the pages on top of the functions that answer the API.
func newInbox(s *Server) (*inbox.Inbox, error) {
	return inbox.New(inbox.Config{
		Backend: pages{s}, Clock: s.cfg.Clock, IDs: s.cfg.IDs, Log: s.cfg.Log, Status: status, Env: s.cfg.Env,
	})
}

// showPage answers with a page. Its streams end when the server stops.
func (s *Server) showPage(c echo.Context) error {
	ctx, cancel := s.while(c.Request().Context())
	defer cancel()
	defer context.AfterFunc(s.stopping, cancel)()
	who := auth.From(ctx)
	s.inbox.ServeHTTP(c.Response(), c.Request().WithContext(ctx), inbox.Principal{Name: who.Name, Roles: who.Words(), From: from(c.Request())})
	return nil
}

// showRoot answers browsers with the inbox and programs with the index.
func (s *Server) showRoot(c echo.Context) error {
	if wantsPage(c.Request()) {
		return s.showPage(c)
	}
	return handle(s, noInput, s.index)(c)
}

// wantsPage reports whether r is answered with a page: at "/" programs are not.
func wantsPage(r *http.Request) bool {
	return r.URL.Path != "/" || strings.Contains(r.Header.Get(echo.HeaderAccept), "text/html")
}

// visits reports whether r opens a page of the inbox by a link, which may stand in
// a message or on a page of another origin. Reading a page changes nothing, and no
// other page can look into it.
func visits(r *http.Request) bool {
	page := r.URL.Path == "/" || r.URL.Path == inboxPath || strings.HasPrefix(r.URL.Path, inboxPath+"/")
	return page && r.Method == http.MethodGet && r.Header.Get("Sec-Fetch-Mode") == "navigate" &&
		r.Header.Get("Sec-Fetch-Dest") == "document" && r.Header.Get("Origin") == ""
}

// pages is what the inbox sees of the server: the functions that answer the API,
// with their bodies. Each holds the principal to the role that the API takes for
// the same; a request for a page was admitted with the least.
type pages struct{ s *Server }

// may returns the error of a visitor who lacks a role.
func (pages) may(ctx context.Context, role auth.Role) error { return allowed(auth.From(ctx), role) }

var _ inbox.Backend = pages{}

// body takes the body out of a reply.
func body[T any](r reply, err error) (T, error) {
	var none T
	if err != nil {
		return none, err
	}
	b, ok := r.body.(T)
	if !ok {
		return none, fmt.Errorf("the reply holds a %T, not a %T", r.body, none)
	}
	return b, nil
}

// Holds implements inbox.Reviews.
func (p pages) Holds(ctx context.Context, _ inbox.Principal, q inbox.HoldQuery) (api.HoldList, error) {
	if err := p.may(ctx, mayLook); err != nil {
		return api.HoldList{}, err
	}
	return body[api.HoldList](p.s.listHolds(ctx, holdListInput{
		filter: store.HoldFilter{Env: p.s.cfg.Env, Agent: q.Agent, Status: holds.Status(q.Status)},
		older:  q.OlderThan, page: store.Page{Limit: q.Limit, Cursor: q.Cursor},
	}))
}

// Hold implements inbox.Reviews.
func (p pages) Hold(ctx context.Context, _ inbox.Principal, id string) (api.Hold, error) {
	if err := p.may(ctx, mayLook); err != nil {
		return api.Hold{}, err
	}
	if store.RunOfHold(id) == "" {
		return api.Hold{}, noHold(store.ErrNotFound, id)
	}
	return body[api.Hold](p.s.getHold(ctx, holdInput{env: p.s.cfg.Env, hold: id}))
}

// Decide implements inbox.Reviews.
func (p pages) Decide(ctx context.Context, who inbox.Principal, id string, d api.Decide) (api.Hold, error) {
	if err := p.may(ctx, mayDecide); err != nil {
		return api.Hold{}, err
	}
	if store.RunOfHold(id) == "" {
		return api.Hold{}, noHold(store.ErrNotFound, id)
	}
	out, err := body[api.Decided](p.s.decide(ctx, decideInput{
		holdInput: holdInput{env: p.s.cfg.Env, hold: id}, by: who.Name, roles: who.Roles, from: who.From, body: d,
	}))
	if known := (*holdError)(nil); errors.As(err, &known) {
		return known.hold, err
	}
	return out.Hold, err
}

// Runs implements inbox.Runs.
func (p pages) Runs(ctx context.Context, _ inbox.Principal, q inbox.RunQuery) (api.RunList, error) {
	if err := p.may(ctx, mayLook); err != nil {
		return api.RunList{}, err
	}
	return body[api.RunList](p.s.listRuns(ctx, runListInput{
		filter: store.RunFilter{Env: p.s.cfg.Env, Agent: q.Agent, Status: store.Status(q.Status)},
		page:   store.Page{Limit: q.Limit, Cursor: q.Cursor},
	}))
}

// run names a run; ids of another form are not looked up.
func (p pages) run(who inbox.Principal, id string) (runInput, error) {
	if !strings.HasPrefix(id, "r_") {
		return runInput{}, noRun(store.ErrNotFound, id)
	}
	return runInput{env: p.s.cfg.Env, run: id, by: who.Name}, nil
}

// Trajectory implements inbox.Runs.
func (p pages) Trajectory(ctx context.Context, who inbox.Principal, id string) (api.Trajectory, error) {
	if err := p.may(ctx, mayLook); err != nil {
		return api.Trajectory{}, err
	}
	in, err := p.run(who, id)
	if err != nil {
		return api.Trajectory{}, err
	}
	return body[api.Trajectory](p.s.getTrajectory(ctx, in))
}

// Watch implements inbox.Runs.
func (p pages) Watch(ctx context.Context, who inbox.Principal, id string) (<-chan struct{}, error) {
	if err := p.may(ctx, mayLook); err != nil {
		return nil, err
	}
	in, err := p.run(who, id)
	if err != nil {
		return nil, err
	}
	if _, err := p.s.cfg.Engine.View(ctx, in.env, id); err != nil {
		return nil, err
	}
	news, err := p.s.cfg.Store.Watch(ctx, id)
	if err != nil {
		return nil, storeError(err, id)
	}
	return news, nil
}

// Cancel implements inbox.Runs.
func (p pages) Cancel(ctx context.Context, who inbox.Principal, id string) (api.Run, error) {
	if err := p.may(ctx, mayRun); err != nil {
		return api.Run{}, err
	}
	in, err := p.run(who, id)
	if err != nil {
		return api.Run{}, err
	}
	return body[api.Run](p.s.cancelRun(ctx, in))
}

// Start implements inbox.Runs.
func (p pages) Start(ctx context.Context, who inbox.Principal, agent, capability, key string, b api.CreateRun) (api.Run, error) {
	if err := p.may(ctx, mayRun); err != nil {
		return api.Run{}, err
	}
	return body[api.Run](p.s.createRun(ctx, createRunInput{
		env: p.s.cfg.Env, agent: agent, capability: capability, key: key, by: who.Name, groups: who.Roles, body: b,
	}))
}

// Agents implements inbox.Agents.
func (p pages) Agents(ctx context.Context, _ inbox.Principal) (api.AgentList, error) {
	if err := p.may(ctx, mayLook); err != nil {
		return api.AgentList{}, err
	}
	return body[api.AgentList](p.s.listAgents(ctx, nothing{}))
}

// Agent implements inbox.Agents.
func (p pages) Agent(ctx context.Context, _ inbox.Principal, agent string) (api.Agent, error) {
	if err := p.may(ctx, mayLook); err != nil {
		return api.Agent{}, err
	}
	return body[api.Agent](p.s.getAgent(ctx, agentInput{env: p.s.cfg.Env, agent: agent}))
}

// Orders implements inbox.Agents.
func (p pages) Orders(ctx context.Context, _ inbox.Principal) (api.Orders, error) {
	if err := p.may(ctx, mayLook); err != nil {
		return api.Orders{}, err
	}
	return body[api.Orders](p.s.getOrders(ctx, envInput{env: p.s.cfg.Env}))
}
