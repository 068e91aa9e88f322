package server

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"agentos/api"
	"agentos/runtime"
	"agentos/runtime/store"
)

// createRunInput is a request for a run.
type createRunInput struct {
	env, agent, capability string
	wait                   time.Duration
	key, by                string
	groups                 []string
	body                   api.CreateRun
}

func readCreateRun(in *input) createRunInput {
	r := createRunInput{
		env: in.env(), agent: in.param("agent"), capability: in.param("capability"),
		wait: in.wait(), key: in.key(), by: in.principal(), groups: in.words(),
	}
	in.body("CreateRun", &r.body)
	return r
}

func (s *Server) createRun(ctx context.Context, in createRunInput) (reply, error) {
	starting, cancel := change(ctx)
	defer cancel()
	v, err := s.cfg.Engine.Start(starting, runtime.StartRequest{
		Env: in.env, Agent: in.agent, Capability: in.capability, Input: in.body.Input,
		SessionID: in.body.SessionID, Metadata: in.body.Metadata, Requester: in.by, Groups: in.groups, Key: in.key,
	})
	if err != nil {
		return reply{}, err
	}
	s.metrics.runs.WithLabelValues(in.agent, in.capability).Inc()
	if in.wait > 0 && !settled(v.Status) {
		if v, err = s.await(ctx, in.env, v.ID, in.wait); err != nil {
			return reply{}, err
		}
	}
	return runReply(v), nil
}

// await waits for a run to be held or finished, and returns it as it stands when
// the wait ends first.
func (s *Server) await(ctx context.Context, env, run string, d time.Duration) (store.View, error) {
	ctx, cancel := s.wait(ctx, d)
	defer cancel()
	ctx, end := s.while(ctx)
	defer end()
	v, err := s.cfg.Engine.Wait(ctx, env, run)
	if late := ended(ctx); late != nil {
		return store.View{}, late
	}
	return v, err
}

// settled reports whether nothing happens to a run until somebody decides.
func settled(status store.Status) bool { return status == store.Held || status.Finished() }

// runReply answers with a run: 200 when it is settled, else 202 with where to look
// again.
func runReply(v store.View) reply {
	out := reply{status: http.StatusOK, run: v.ID, body: toRun(v)}
	if !settled(v.Status) {
		out.status = http.StatusAccepted
		out.location = "/v0/envs/" + url.PathEscape(v.Env) + "/runs/" + url.PathEscape(v.ID)
	}
	return out
}

// runInput names a run.
type runInput struct {
	env, run string
	wait     time.Duration
	by       string
}

func readRunID(in *input) runInput {
	return runInput{env: in.env(), run: in.run()}
}

func readGetRun(in *input) runInput {
	r := readRunID(in)
	r.wait = in.wait()
	return r
}

func readRunChange(in *input) runInput {
	r := readRunID(in)
	r.by = in.principal()
	in.noBody()
	return r
}

func (s *Server) getRun(ctx context.Context, in runInput) (reply, error) {
	v, err := s.cfg.Engine.View(ctx, in.env, in.run)
	if err != nil {
		return reply{}, err
	}
	if in.wait == 0 {
		return reply{body: toRun(v)}, nil
	}
	if !settled(v.Status) {
		if v, err = s.await(ctx, in.env, in.run, in.wait); err != nil {
			return reply{}, err
		}
	}
	return runReply(v), nil
}

func (s *Server) cancelRun(ctx context.Context, in runInput) (reply, error) {
	ctx, cancel := change(ctx)
	defer cancel()
	v, err := s.cfg.Engine.Cancel(ctx, in.env, in.run, in.by)
	if err != nil {
		return reply{}, err
	}
	out := runReply(v)
	if !v.Status.Finished() {
		out.status = http.StatusAccepted
	}
	return out, nil
}

func (s *Server) getTrajectory(ctx context.Context, in runInput) (reply, error) {
	v, err := s.cfg.Engine.View(ctx, in.env, in.run)
	if err != nil {
		return reply{}, err
	}
	entries, err := s.cfg.Store.Journal(ctx, in.run, 0)
	if err != nil {
		return reply{}, storeError(err, in.run)
	}
	t, err := trajectory(v, entries)
	if err != nil {
		return reply{}, damaged(err, in.run)
	}
	return reply{body: t}, nil
}

// runListInput chooses runs.
type runListInput struct {
	filter store.RunFilter
	page   store.Page
}

func readRunList(in *input) runListInput {
	return runListInput{
		filter: store.RunFilter{
			Env: in.env(), Agent: in.text("agent"), Capability: in.text("capability"), SessionID: in.text("session"),
			Status: store.Status(in.oneOf("status", "queued", "running", "held", "completed", "failed", "cancelled")),
		},
		page: in.page(),
	}
}

func (s *Server) listRuns(ctx context.Context, in runListInput) (reply, error) {
	out := api.RunList{Runs: []api.Run{}}
	next, err := inChunks(in.page, func(p store.Page) (n, size int, next string, err error) {
		views, next, err := s.cfg.Store.Runs(ctx, in.filter, p)
		for _, v := range views {
			out.Runs = append(out.Runs, toRun(v))
			size += len(v.First.Data) + len(v.Last.Data)
		}
		return len(views), size, next, err
	})
	out.NextCursor = next
	if err != nil {
		return reply{}, storeError(err, "")
	}
	return reply{body: out}, nil
}

// Limits of what one list holds in memory: rows are read a few at a time until
// they are this many bytes. A page may be short and still have a next.
const (
	chunkRows = 10
	maxList   = 4 << 20
)

// inChunks reads a page a few rows at a time with read, which returns how many
// rows it got and their bytes, and ends it early when it has become large.
func inChunks(p store.Page, read func(store.Page) (n, size int, next string, err error)) (next string, err error) {
	next = p.Cursor
	for rows, bytes := 0, 0; rows < p.Limit && bytes < maxList; {
		n, size, after, err := read(store.Page{Limit: min(chunkRows, p.Limit-rows), Cursor: next})
		if err != nil || after == "" {
			return "", err
		}
		rows, bytes, next = rows+n, bytes+size, after
	}
	return next, nil
}
