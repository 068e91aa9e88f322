// Package server serves the HTTP API of package api. It owns routes, decoding,
// the table from error code to status, event streams and the life of the
// listener. It refuses to decide anything about runs and holds: a handler reads a
// request, calls the engine (writes) or the store (reads), and encodes the answer.
//
// Identity is taken from a request in one place, Server.identify. Until keys can
// be configured everybody who reaches the server is "local"; guard.go keeps web
// pages from being that.
package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/prometheus/client_golang/prometheus"

	"agentos/api/inbox"
	"agentos/gateway"
	"agentos/internal/clock"
	"agentos/internal/ids"
	"agentos/internal/problem"
	"agentos/runtime"
	"agentos/runtime/store"
)

// Timeouts of a connection. There is none for a whole answer: waits and event
// streams are long, and each write has its own.
const (
	headerTimeout = 10 * time.Second
	idleTimeout   = 2 * time.Minute
	bodyTimeout   = 30 * time.Second
	answerTimeout = 30 * time.Second
	// changeTimeout bounds a change that goes on after its caller has left.
	changeTimeout = 30 * time.Second
	// closeTimeout is how long answers under way may take when the server stops.
	closeTimeout = 5 * time.Second
	maxHeader    = 64 << 10
)

// defaultMaxBody is the longest request body in bytes unless configured.
const defaultMaxBody = 1 << 20

// Config is what a Server needs. Every field without a default is required.
type Config struct {
	Engine  *runtime.Engine
	Store   store.Store
	Gateway *gateway.Gateway
	Audit   Audit
	// Env is the one environment served, the same as the engine's.
	Env string
	// Version is shown at "/".
	Version string
	Clock   clock.Clock
	IDs     ids.Source
	Log     *slog.Logger
	// Metrics is where the server registers its metrics and what /metrics shows.
	Metrics *prometheus.Registry
	// Tokens checks the run tokens of the gateway route.
	Tokens *RunTokens
	// AllowedHosts are the host names, without port, that requests may be for. nil
	// means this machine only: localhost, 127.0.0.1 and [::1].
	AllowedHosts []string
	// MaxBody is the longest request body in bytes; 1 MiB by default.
	MaxBody int64
	// MockModel says which models the mock model answers for, for /ready; "" when
	// none.
	MockModel string
	// Warnings returns what /ready tells about settings and policy; nil none.
	Warnings func() []string
}

// Server answers requests. It is safe for concurrent use.
type Server struct {
	cfg     Config
	echo    *echo.Echo
	spec    document
	metrics metrics
	inbox   *inbox.Inbox
	// identify tells who makes a request, with roles and groups.
	identify func(*http.Request) (name string, roles []string)
	// stopping ends when waits and event streams must end.
	stopping context.Context //nolint:containedctx // the server's own lifetime, not a request's
	stop     context.CancelFunc
}

// New returns a server whose waits and event streams live no longer than ctx, or
// an error that names what cfg lacks.
func New(ctx context.Context, cfg Config) (*Server, error) {
	if cfg.Engine == nil || cfg.Store == nil || cfg.Gateway == nil || cfg.Env == "" || cfg.Clock == nil ||
		cfg.IDs == nil || cfg.Log == nil || cfg.Metrics == nil || cfg.Tokens == nil {
		return nil, problem.New(problem.InvalidSettings,
			"the server needs engine, store, gateway, environment, clock, ids, log, metrics and run tokens")
	}
	if cfg.MaxBody <= 0 {
		cfg.MaxBody = defaultMaxBody
	}
	if cfg.Warnings == nil {
		cfg.Warnings = func() []string { return nil }
	}
	s := &Server{cfg: cfg, echo: echo.New(), identify: everybody}
	var err error
	if s.spec, err = loadDocument(); err != nil {
		return nil, err
	}
	if s.metrics, err = newMetrics(cfg.Metrics); err != nil {
		return nil, err
	}
	if s.inbox, err = newInbox(s); err != nil {
		return nil, err
	}
	s.stopping, s.stop = context.WithCancel(ctx)
	s.echo.HTTPErrorHandler = s.fail
	s.echo.Use(s.observe, s.guard)
	s.routes() //nolint:contextcheck // a handler takes the context of its request
	return s, nil
}

// routes is the whole API; a test compares it with the document.
func (s *Server) routes() {
	e := s.echo
	e.GET("/", s.showRoot)
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		e.Add(method, inboxPath, s.showPage)
		e.Add(method, inboxPath+"/*", s.showPage)
	}
	e.GET("/health", handle(s, noInput, s.health))
	e.GET("/ready", handle(s, noInput, s.ready))
	e.GET("/metrics", s.showMetrics())
	e.GET("/openapi.json", handle(s, noInput, s.openAPI))

	env := e.Group("/v0/envs/:env")
	env.GET("/agents", handle(s, noInput, s.listAgents))
	env.GET("/agents/:agent", handle(s, readAgentName, s.getAgent))
	env.POST("/agents/:agent/pause", handle(s, readPause, s.pauseAgent))
	env.POST("/agents/:agent/resume", handle(s, readResume, s.resumeAgent))
	env.POST("/agents/:agent/capabilities/:capability/runs", handle(s, readCreateRun, s.createRun))
	env.GET("/runs", handle(s, readRunList, s.listRuns))
	env.GET("/runs/:run", handle(s, readGetRun, s.getRun))
	env.POST("/runs/:run/cancel", handle(s, readRunChange, s.cancelRun))
	env.GET("/runs/:run/events", s.streamEvents)
	env.GET("/runs/:run/trajectory", handle(s, readRunID, s.getTrajectory))
	env.GET("/holds", handle(s, readHoldList, s.listHolds))
	env.GET("/holds/:hold", handle(s, readHoldID, s.getHold))
	env.POST("/holds/:hold/decisions", handle(s, readDecide, s.decide))
	env.GET("/audit", s.exportAudit)
	env.GET("/orders", handle(s, readEnv, s.getOrders))
	env.POST("/tools/off", handle(s, readSwitchOff, s.switchOff))
	env.POST("/tools/on", handle(s, readSwitchOn, s.switchOn))

	e.POST("/v0/gateway/v1/chat/completions", handle(s, readChat, s.chat))
	e.GET("/v0/gateway/v1/models", handle(s, readRunToken, s.listModels))
}

// Handler returns the handler of all routes, for servers of the caller's own.
func (s *Server) Handler() http.Handler { return s.echo }

// Serve answers requests on l until ctx ends, then stops: waits are answered with
// where their run stands, event streams end, and answers under way get a few
// seconds. It closes l and returns nil after a clean stop.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	srv := &http.Server{
		Handler: s.echo, ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeader,
		BaseContext: func(net.Listener) context.Context { return context.WithoutCancel(ctx) },
		ErrorLog:    slog.NewLogLogger(s.cfg.Log.Handler(), slog.LevelDebug),
	}
	ended := make(chan error, 1)
	go func() { ended <- srv.Serve(l) }()
	select {
	case err := <-ended:
		s.stop()
		return fmt.Errorf("serve %s: %w", l.Addr(), err)
	case <-ctx.Done():
	}
	s.stop()
	closeCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	err := srv.Shutdown(closeCtx)
	if errors.Is(err, context.DeadlineExceeded) {
		err = srv.Close() // whoever is left does not read its answer
	}
	<-ended //nolint:errcheck // http.ErrServerClosed
	return err
}

// wait returns a context for waiting on behalf of a request: it ends after d, when
// the caller goes away, or when the server stops.
func (s *Server) wait(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(ctx, d)
	unhook := context.AfterFunc(s.stopping, cancel)
	return ctx, func() {
		unhook()
		cancel()
	}
}

// change returns a context for a change that a request has asked for: once it is
// under way, a caller that goes away does not leave it half done.
func change(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), changeTimeout)
}
