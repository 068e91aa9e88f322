package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"agentos/api"
)

// CreateRun asks for a run.
type CreateRun struct {
	Env, Agent, Capability string
	Body                   api.CreateRun
	// Key is the idempotency key; with one, repeating the request is safe.
	Key string
	// Wait is how long the server may wait for the run to be held or finished, 1 ms
	// to 10 min; 0 does not wait.
	Wait time.Duration
}

// CreateRun creates a run, or finds the one its Key created before.
func (c *Client) CreateRun(ctx context.Context, r CreateRun) (api.Run, error) {
	var out api.Run
	return out, c.call(ctx, request{
		method: http.MethodPost, path: path(r.Env, "agents", r.Agent, "capabilities", r.Capability, "runs"),
		query: waiting(r.Wait), header: keyed(r.Key), body: r.Body,
	}, &out)
}

// Run reads a run; wait is as in CreateRun.
func (c *Client) Run(ctx context.Context, env, run string, wait time.Duration) (api.Run, error) {
	var out api.Run
	return out, c.call(ctx, request{method: http.MethodGet, path: path(env, "runs", run), query: waiting(wait)}, &out)
}

// RunQuery chooses runs; empty fields choose all.
type RunQuery struct {
	Status                     api.RunStatus
	Agent, Capability, Session string
	// Limit is the length of a page, 1 to 200; 0 leaves it to the server.
	Limit int
	// Cursor is NextCursor of the page before.
	Cursor string
}

// Runs lists runs, newest first, one page.
func (c *Client) Runs(ctx context.Context, env string, q RunQuery) (api.RunList, error) {
	var out api.RunList
	return out, c.call(ctx, request{method: http.MethodGet, path: path(env, "runs"), query: given(map[string]string{
		"status": string(q.Status), "agent": q.Agent, "capability": q.Capability, "session": q.Session,
		"limit": number(q.Limit), "cursor": q.Cursor,
	})}, &out)
}

// Cancel cancels a run. Its status tells whether it has ended already or is still
// to stop.
func (c *Client) Cancel(ctx context.Context, env, run string) (api.Run, error) {
	var out api.Run
	return out, c.call(ctx, request{method: http.MethodPost, path: path(env, "runs", run, "cancel")}, &out)
}

// Trajectory reads what happened in a run.
func (c *Client) Trajectory(ctx context.Context, env, run string) (api.Trajectory, error) {
	var out api.Trajectory
	return out, c.call(ctx, request{method: http.MethodGet, path: path(env, "runs", run, "trajectory")}, &out)
}

// HoldQuery chooses holds; empty fields choose all.
type HoldQuery struct {
	Status api.HoldStatus
	Agent  string
	// OlderThan chooses holds that were opened at least this long ago.
	OlderThan time.Duration
	// Mine chooses the pending holds that the caller may decide now.
	Mine bool
	// Limit and Cursor are as in RunQuery.
	Limit  int
	Cursor string
}

// Holds lists holds, newest first, one page.
func (c *Client) Holds(ctx context.Context, env string, q HoldQuery) (api.HoldList, error) {
	older, reviewer := "", ""
	if q.Mine {
		reviewer = "me"
	}
	if q.OlderThan > 0 {
		older = q.OlderThan.String()
	}
	var out api.HoldList
	return out, c.call(ctx, request{method: http.MethodGet, path: path(env, "holds"), query: given(map[string]string{
		"status": string(q.Status), "agent": q.Agent, "older_than": older, "reviewer": reviewer, "limit": number(q.Limit), "cursor": q.Cursor,
	})}, &out)
}

// Hold reads one hold with all that is needed to decide it.
func (c *Client) Hold(ctx context.Context, env, hold string) (api.Hold, error) {
	var out api.Hold
	return out, c.call(ctx, request{method: http.MethodGet, path: path(env, "holds", hold)}, &out)
}

// Decide decides items of a hold.
type Decide struct {
	Env, Hold string
	Body      api.Decide
	// Key and Wait are as in CreateRun.
	Key  string
	Wait time.Duration
}

// Decide posts decisions. An error about the hold is an *Error with Hold set.
func (c *Client) Decide(ctx context.Context, d Decide) (api.Decided, error) {
	var out api.Decided
	return out, c.call(ctx, request{
		method: http.MethodPost, path: path(d.Env, "holds", d.Hold, "decisions"),
		query: waiting(d.Wait), header: keyed(d.Key), body: d.Body,
	}, &out)
}

func waiting(wait time.Duration) url.Values {
	if wait <= 0 {
		return nil
	}
	return url.Values{"wait": {"true"}, "wait_timeout": {wait.String()}}
}

func keyed(key string) http.Header {
	if key == "" {
		return nil
	}
	return http.Header{"Idempotency-Key": {key}}
}

// given leaves out what is empty.
func given(all map[string]string) url.Values {
	out := url.Values{}
	for name, value := range all {
		if value != "" {
			out.Set(name, value)
		}
	}
	return out
}

func number(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}
