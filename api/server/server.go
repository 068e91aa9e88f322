// Package server serves the HTTP API of package api. It owns routes, decoding,
// the table from error code to status, event streams and the life of the
// listener. It refuses to decide anything about runs and holds: a handler reads a
// request, calls the engine (writes) or the store (reads), and encodes the answer.
//
// Who makes a request is found out in one place, Server.admit, which also holds it
// to the role that the table of endpoints asks for. While there are no keys everybody
// who reaches the server is "local"; guard.go keeps web pages from being that.
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

	"agentos/api/auth"
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
	// Keys tell who makes a request. Serve follows them.
	Keys *auth.Keyring
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
	// stopping ends when waits and event streams must end.
	stopping context.Context //nolint:containedctx // the server's own lifetime, not a request's
	stop     context.CancelFunc
}

// New returns a server whose waits and event streams live no longer than ctx, or
// an error that names what cfg lacks.
func New(ctx context.Context, cfg Config) (*Server, error) {
	if cfg.Engine == nil || cfg.Store == nil || cfg.Gateway == nil || cfg.Keys == nil || cfg.Env == "" || cfg.Clock == nil ||
		cfg.IDs == nil || cfg.Log == nil || cfg.Metrics == nil || cfg.Tokens == nil {
		return nil, problem.New(problem.InvalidSettings,
			"the server needs engine, store, gateway, keys, environment, clock, ids, log, metrics and run tokens")
	}
	if cfg.MaxBody <= 0 {
		cfg.MaxBody = defaultMaxBody
	}
	if cfg.Warnings == nil {
		cfg.Warnings = func() []string { return nil }
	}
	s := &Server{cfg: cfg, echo: echo.New()}
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
	for _, e := range s.endpoints() { //nolint:contextcheck // a handler takes the context of its request
		s.echo.Add(e.method, e.path, s.admit(e)) //nolint:contextcheck // as above
	}
	return s, nil
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
	following, unfollow := context.WithCancel(ctx)
	followed := make(chan struct{})
	go func() {
		defer close(followed)
		s.cfg.Keys.Follow(following)
	}()
	defer func() {
		unfollow()
		<-followed
	}()
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
