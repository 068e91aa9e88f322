// Package runtime is the engine: it starts runs, drives the model/tool loop one
// step at a time, suspends runs in holds, applies decisions, and recovers what a
// dead worker left. What a run is lives in its journal; the engine keeps a run in
// memory only while it holds its lease. The rules it follows are pure packages
// (journal, holds, policy); the engine talks to the store, the gateway and MCP.
package runtime

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"agentos/audit"
	"agentos/capabilities"
	"agentos/gateway"
	"agentos/internal/clock"
	"agentos/internal/ids"
	"agentos/internal/problem"
	"agentos/internal/rawjson"
	"agentos/runtime/journal"
	"agentos/runtime/store"
)

// Config is what an engine needs. Every field without a default is required.
type Config struct {
	Store   store.Store
	Gateway *gateway.Gateway
	// Agents are served by this engine; names are unique.
	Agents []*Agent
	Clock  clock.Clock
	IDs    ids.Source
	Log    *slog.Logger
	// Redact takes secrets out of what a model says before it is recorded.
	Redact func(string) string
	// Env is the one environment served.
	Env string
	// Worker names this process in journals and logs.
	Worker string
	// Concurrency is how many runs this process works on at once; 64 by default.
	Concurrency int
	// MaxQueued is how many runs may be queued before more are refused; 0 sets no
	// bound. Each partition of the store counts against its part of it.
	MaxQueued int
	// Lease is how long a run stays ours without a sign of life; 15 s by default.
	// It is renewed three times as often.
	Lease time.Duration
	// Notify reports whether others are to be told of a run that gets an entry of
	// the type; asked says that the run has ever waited on a person. Nobody is told
	// of anything when it is nil.
	Notify func(t journal.Type, asked bool) bool
	// Record keeps what an operator does before it is done; an error keeps it from
	// being done. It may be called again with the same key. Nothing is kept when it
	// is nil.
	Record func(ctx context.Context, acts ...audit.Keyed) error
}

// notifies reports whether others are to be told of a run that gets the entries.
func (c *Config) notifies(entries []journal.New, asked bool) bool {
	return c.Notify != nil && slices.ContainsFunc(entries, func(e journal.New) bool { return c.Notify(e.Type, asked) })
}

// Engine works on runs. It is safe for concurrent use.
type Engine struct {
	cfg    Config
	agents map[string]*Agent
	// base is the parent of every run's context.
	base   context.Context //nolint:containedctx // the engine's own lifetime, not a request's
	cancel context.CancelCauseFunc
	// tending are the goroutines that renew leases and follow orders.
	tending sync.WaitGroup
	slots   chan struct{}
	recent  recent
	// orders are the newest this engine knows.
	orders atomic.Pointer[Orders]
	texts  texts
	wg     sync.WaitGroup

	mu       sync.Mutex // guards the fields below
	active   map[string]*run
	draining bool
}

// queueRetry is when a caller who found the queue full may try again.
const queueRetry = 5 * time.Second

// Causes for which the engine ends the context of a run.
var (
	errLeaseLost = errors.New("the lease was lost")
	errShutdown  = errors.New("the server is shutting down")
	errCancelled = errors.New("the run was cancelled")
	errTimeout   = errors.New("the run used up its active time")
)

// New returns an engine whose runs live no longer than ctx. Call Work to claim
// runs; Drain must be called to end it.
func New(ctx context.Context, cfg Config) (*Engine, error) {
	if cfg.Store == nil || cfg.Gateway == nil || cfg.Clock == nil || cfg.IDs == nil || cfg.Log == nil || cfg.Redact == nil || cfg.Worker == "" || cfg.Env == "" {
		return nil, problem.New(problem.InvalidSettings, "the engine needs store, gateway, clock, ids, log, redaction, environment and worker name")
	}
	if cfg.Concurrency <= 0 {
		cfg.Concurrency = 64
	}
	if cfg.Lease <= 0 {
		cfg.Lease = 15 * time.Second
	}
	e := &Engine{
		cfg: cfg, agents: make(map[string]*Agent, len(cfg.Agents)),
		slots: make(chan struct{}, cfg.Concurrency), active: map[string]*run{},
	}
	for _, a := range cfg.Agents {
		if e.agents[a.Manifest.Name] != nil {
			return nil, problem.New(problem.InvalidSettings, "two manifests are named %q; names are used in URLs and must differ", a.Manifest.Name)
		}
		e.agents[a.Manifest.Name] = a
	}
	e.base, e.cancel = context.WithCancelCause(ctx)
	e.orders.Store(&Orders{})
	e.tending.Go(func() { e.renewLeases(e.base) })
	e.tending.Go(func() { e.followOrders(e.base) })
	return e, nil
}

// Agents returns the agents served, by name.
func (e *Engine) Agents() []*Agent {
	out := make([]*Agent, 0, len(e.agents))
	for _, a := range e.agents {
		out = append(out, a)
	}
	slices.SortFunc(out, func(a, b *Agent) int { return strings.Compare(a.Manifest.Name, b.Manifest.Name) })
	return out
}

// Agent returns the agent called name, or agent_not_found listing what exists.
func (e *Engine) Agent(env, name string) (*Agent, error) {
	if env != e.cfg.Env {
		return nil, problem.New(problem.EnvNotFound, "no environment %q; this server has %q", env, e.cfg.Env)
	}
	a := e.agents[name]
	if a == nil {
		names := make([]string, 0, len(e.agents))
		for _, a := range e.Agents() {
			names = append(names, a.Manifest.Name)
		}
		return nil, problem.New(problem.AgentNotFound, "no agent %q; this server has: %s", name, strings.Join(names, ", "))
	}
	return a, nil
}

// StartRequest asks for a run.
type StartRequest struct {
	Env, Agent, Capability string
	Input                  json.RawMessage
	SessionID              string
	Metadata               json.RawMessage
	// Requester is the identity from the credential.
	Requester string
	// Groups are the requester's groups, also from the credential.
	Groups []string
	// Key is the idempotency key, or "".
	Key string
}

// Start creates a run, or finds the one its idempotency key created before, and
// begins to work on it unless the engine is full: then the run stays due for any
// worker. It does not wait for the run.
func (e *Engine) Start(ctx context.Context, r StartRequest) (store.View, error) {
	// Whatever a caller pastes, the value of a secret does not get into a journal.
	r.Input, r.Metadata, r.SessionID = e.redact(r.Input), e.redact(r.Metadata), e.cfg.Redact(r.SessionID)
	a, c, err := e.resolve(r)
	if err != nil {
		return store.View{}, err
	}
	created, err := e.createdEntry(ctx, a, c, r)
	if err != nil {
		return store.View{}, err
	}
	entry, err := journal.Encode(journal.RunCreated, created)
	if err != nil {
		return store.View{}, err
	}
	req := store.Create{
		Op: e.cfg.IDs.Token(), RunID: e.cfg.IDs.Run(), Request: requestDigest(r),
		Env: r.Env, Agent: r.Agent, Capability: r.Capability, SessionID: r.SessionID,
		Entry: entry, Summary: summary(&journal.State{}, 0, ""), MaxQueued: e.cfg.MaxQueued,
	}
	if r.Key != "" {
		req.Key = ids.Key(r.Env, r.Key)
		req.RunID = e.cfg.IDs.Keyed(req.Key)
	}
	slot := &slot{}
	if e.orders.Load().paused(r.Agent) == nil {
		slot = e.acquire()
	}
	defer slot.release()
	if slot.held {
		req.Lease = e.cfg.Lease
	}
	asked := e.cfg.Clock.Now()
	res, err := e.cfg.Store.Create(ctx, req)
	if err != nil {
		return store.View{}, e.createError(err, req)
	}
	if res.Existing {
		return e.View(ctx, r.Env, res.Record.ID)
	}
	if slot.held {
		w := e.newRun(res.Record, res.Lease, asked)
		w.entries = []journal.Entry{res.Entry}
		e.start(w, slot)
	}
	return store.View{Record: res.Record, First: res.Entry, Last: res.Entry}, nil
}

// createError is storeError for a run that was not created, or may have been.
func (e *Engine) createError(err error, c store.Create) error {
	if errors.Is(err, store.ErrDamaged) {
		return problem.Wrap(err, problem.JournalDamaged, "the run that this request has created before is damaged in the store; for new work use a new Idempotency-Key")
	}
	err = e.storeError(err, "create the run", c.RunID)
	if p := problem.From(err); c.Key == "" && problem.CodeOf(err) == problem.StoreUnavailable {
		p.Message = "the store did not answer, and may have created the run all the same; look for it before you send this again, or send it with an Idempotency-Key, which makes a repeat safe"
		return p
	}
	return err
}

// redact takes secrets out of the strings of a JSON text. One without any keeps
// every byte.
func (e *Engine) redact(raw json.RawMessage) json.RawMessage {
	if e.cfg.Redact(string(raw)) == string(raw) {
		return raw
	}
	return rawjson.MapStrings(raw, e.cfg.Redact)
}

func (e *Engine) resolve(r StartRequest) (*Agent, *capabilities.Capability, error) {
	a, err := e.Agent(r.Env, r.Agent)
	if err != nil {
		return nil, nil, err
	}
	c := a.Manifest.Capabilities[r.Capability]
	if c == nil {
		names := make([]string, 0, len(a.Manifest.Capabilities))
		for name := range a.Manifest.Capabilities {
			names = append(names, name)
		}
		slices.Sort(names)
		return nil, nil, problem.New(problem.CapabilityNotFound, "agent %q has no capability %q; it has: %s",
			r.Agent, r.Capability, strings.Join(names, ", "))
	}
	if faults := c.InputSchema.Validate(r.Input); len(faults) > 0 {
		return nil, nil, problem.New(problem.InvalidInput, "the input does not fit the schema of %s", r.Capability).With(faults...)
	}
	if c.Loop == nil {
		return nil, nil, problem.New(problem.CapabilityNotFound,
			"capability %q has no loop in its manifest; agent code in containers is not supported yet", r.Capability)
	}
	return a, c, nil
}

func (e *Engine) createdEntry(ctx context.Context, a *Agent, c *capabilities.Capability, r StartRequest) (journal.Created, error) {
	out := journal.Created{
		Agent: r.Agent, AgentDigest: a.Manifest.Digest, PolicyDigest: a.Operator.Digest, Capability: r.Capability, Input: r.Input,
		Requester: r.Requester, RequesterGroups: r.Groups, SessionID: r.SessionID, Metadata: r.Metadata, System: c.Loop.System,
	}
	var err error
	if len(c.Loop.System) > maxInline {
		out.System = ""
		if out.SystemDigest, err = e.keepText(ctx, c.Loop.System); err != nil {
			return out, err
		}
	}
	out.Prompt = c.DefaultPrompt(r.Input)
	if c.Loop.Prompt != "" {
		if out.Prompt, err = capabilities.RenderPrompt(c.Loop, r.Input); err != nil {
			return out, problem.Wrap(err, problem.InvalidInput, "the prompt of %s cannot be made from this input: %v", c.Name, err)
		}
	}
	if members, err := rawjson.Fields(r.Input); err == nil && len(members) == 1 {
		if text, ok := rawjson.Text(members[0].Value); ok && text == out.Prompt {
			out.Prompt, out.PromptFrom = "", members[0].Name
		}
	}
	return out, nil
}

func requestDigest(r StartRequest) string {
	input, err := rawjson.Canonical(r.Input)
	if err != nil {
		input = r.Input
	}
	return rawjson.Digest([]byte(r.Agent), []byte(r.Capability), input, []byte(r.SessionID), r.Metadata, []byte(r.Requester))
}

// View reads a run of the environment.
func (e *Engine) View(ctx context.Context, env, runID string) (store.View, error) {
	v, err := e.cfg.Store.Run(ctx, runID)
	if err == nil && v.Env != env {
		err = store.ErrNotFound
	}
	if err != nil {
		return store.View{}, e.storeError(err, "read the run", runID)
	}
	return v, nil
}

// Wait returns the run once it is held or finished, or as it stands when ctx
// ends. A caller that goes away changes nothing about the run.
func (e *Engine) Wait(ctx context.Context, env, runID string) (store.View, error) {
	if v, ok := e.waitHere(ctx, runID); ok && v.Env == env && settled(v.Status) {
		return v, nil
	}
	if v, err := e.View(context.WithoutCancel(ctx), env, runID); err != nil || settled(v.Status) {
		return v, err
	}
	watchCtx, stop := context.WithCancel(ctx)
	defer stop()
	news, err := e.cfg.Store.Watch(watchCtx, runID)
	if err != nil {
		return store.View{}, e.storeError(err, "watch the run", runID)
	}
	for {
		v, err := e.View(context.WithoutCancel(ctx), env, runID)
		if err != nil || settled(v.Status) || ctx.Err() != nil {
			return v, err
		}
		select {
		case <-news:
		case <-ctx.Done():
		}
	}
}

func settled(s store.Status) bool { return s == store.Held || s.Finished() }

// waitHere waits for a run this process works on, without asking the store.
func (e *Engine) waitHere(ctx context.Context, runID string) (store.View, bool) {
	e.mu.Lock()
	w := e.active[runID]
	e.mu.Unlock()
	if w == nil {
		return store.View{}, false
	}
	select {
	case <-w.done:
		return w.view, true
	case <-ctx.Done():
		return store.View{}, false
	}
}

// storeError turns an error of the store into one for people.
func (e *Engine) storeError(err error, doing, id string) error {
	switch {
	case errors.Is(err, store.ErrNotFound) && strings.HasPrefix(id, "h_"):
		return problem.Wrap(err, problem.HoldNotFound, "no hold %q in this environment", id)
	case errors.Is(err, store.ErrNotFound):
		return problem.Wrap(err, problem.RunNotFound, "no run %q in this environment", id)
	case errors.Is(err, store.ErrIdempotencyConflict):
		return problem.Wrap(err, problem.IdempotencyConflict, "the Idempotency-Key was used for another request; use a new key")
	case errors.Is(err, store.ErrQueueFull):
		p := problem.Wrap(err, problem.QueueFull, "as many runs are waiting as this environment allows; try again later")
		p.RetryAfter = queueRetry
		return p
	case errors.Is(err, store.ErrDamaged) && strings.HasPrefix(id, "h_"):
		return problem.Wrap(err, problem.JournalDamaged, "hold %s cannot be decided: its run is damaged in the store, parts are missing or unreadable; cancel run %s", id, store.RunOfHold(id))
	case errors.Is(err, store.ErrDamaged):
		return problem.Wrap(err, problem.JournalDamaged, "run %s is damaged in the store: parts are missing or unreadable", id)
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	}
	p := problem.Wrap(err, problem.StoreUnavailable, "the store could not %s; try again", doing)
	p.RetryAfter = time.Second
	return p
}

// slot is the right to work on one run. Whoever acquired it releases it, unless
// start has taken it over.
type slot struct {
	e    *Engine
	held bool
}

// acquire takes a slot if there is one and the engine is not stopping; held says
// whether there was.
func (e *Engine) acquire() *slot {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.draining {
		return &slot{}
	}
	select {
	case e.slots <- struct{}{}:
		e.wg.Add(1)
		return &slot{e: e, held: true}
	default:
		return &slot{}
	}
}

// release gives a held slot back; it may be called again.
func (s *slot) release() {
	if s.held {
		s.free()
		s.e.wg.Done()
	}
}

// free lets another run have the slot; Drain goes on waiting for this one.
func (s *slot) free() {
	s.held = false
	<-s.e.slots
}

// take moves the slot to a new owner.
func (s *slot) take() *slot {
	taken := *s
	s.held = false
	return &taken
}
