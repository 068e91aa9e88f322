package mcp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"agentos/capabilities"
	"agentos/runtime/mcp/wire"
)

// server keeps one server connected. Its goroutine (run) makes every attempt;
// calls only ask for one and wait.
type server struct {
	alias string
	spec  *capabilities.Server
	cfg   Config
	wake  chan struct{} // asks for an attempt before the backoff is over
	first chan struct{} // closed when the first attempt has ended

	firstOnce sync.Once

	revision *atomic.Int64 // of the whole Set; counted up with mu held

	mu          sync.Mutex
	state       State
	fault       error // why it is not connected
	session     *session
	next        *attempt // the attempt being made, or the next one
	notBefore   time.Time
	connections int
	info        *Info
	version     string
	list        toolList
	stale       string // why the list could not be read again
}

// attempt is one try to connect, for those who wait for it.
type attempt struct {
	done    chan struct{}
	session *session // nil when it failed
	err     error
}

func newServer(alias string, spec *capabilities.Server, cfg Config) *server {
	cfg.Log = cfg.Log.With(slog.String("mcp_server", alias))
	return &server{
		alias: alias, spec: spec, cfg: cfg, state: NotConnected, revision: new(atomic.Int64),
		wake: make(chan struct{}, 1), first: make(chan struct{}), next: &attempt{done: make(chan struct{})},
	}
}

// run connects, watches the connection and connects again, until life ends.
// Then it closes the connection, with patience until closing ends.
func (s *server) run(life, closing context.Context) {
	backoff := firstBackoff
	for life.Err() == nil {
		began := s.cfg.Clock.Now()
		ses, err := s.connect(life)
		s.ended(ses, err)
		if err == nil {
			s.watch(life, ses)
			if life.Err() == nil {
				s.dropped(ses.link.Cause())
			}
		}
		if ses != nil {
			// A second process beside one that is still ending could harm what the
			// two share, so the old one goes first.
			ses.link.Close(closing)
		}
		if err == nil && s.cfg.Clock.Now().Sub(began) >= settledAfter {
			backoff = firstBackoff
		}
		s.rest(life, max(backoff, retryAfter(err)))
		backoff = min(2*backoff, maxBackoff)
	}
}

func retryAfter(err error) time.Duration {
	if f, ok := errors.AsType[*wire.RequestError](err); ok {
		return min(f.RetryAfter, 10*maxBackoff)
	}
	return 0
}

// rest waits until the next attempt is due or asked for.
func (s *server) rest(life context.Context, d time.Duration) {
	select {
	case <-life.Done():
	case <-s.wake:
	case <-s.cfg.Clock.After(d):
	}
}

// ended publishes the outcome of an attempt.
func (s *server) ended(ses *session, err error) {
	s.mu.Lock()
	a := s.next
	if a.err = err; err == nil {
		a.session = ses
	}
	s.next = &attempt{done: make(chan struct{})}
	if err == nil {
		s.state, s.fault, s.session, s.stale = Connected, nil, ses, ""
		s.info, s.version, s.list = ses.info, ses.version, ses.list
		s.connections++
	} else {
		if s.state == NotConnected {
			s.state = Failed
		}
		s.fault = err
		// A server that just failed is not asked again by every call, nor before
		// the time it named.
		s.notBefore = s.cfg.Clock.Now().Add(max(firstBackoff, retryAfter(err)))
	}
	s.revision.Add(1)
	select {
	case <-s.wake: // the attempt it asked for has been made
	default:
	}
	s.mu.Unlock()
	s.firstOnce.Do(func() { close(s.first) })
	close(a.done)
	if err != nil {
		s.cfg.Log.Warn("mcp_connect_failed", slog.String("error", s.redact(err.Error())))
		return
	}
	s.cfg.Log.Info("mcp_connected", slog.Int("tools", len(ses.list.tools)), slog.Int("excluded", len(ses.list.excluded)))
}

func (s *server) dropped(cause error) {
	s.mu.Lock()
	s.session = nil
	s.state = Disconnected
	s.fault = cause
	s.revision.Add(1)
	s.mu.Unlock()
	s.cfg.Log.Info("mcp_disconnected", slog.String("cause", s.redact(cause.Error())))
}

// refreshPause is the shortest time between two readings of a changed tool
// list, however often the server says that it changed.
const refreshPause = 500 * time.Millisecond

// watch reads the tool list again when the server says so, until the link is
// lost.
func (s *server) watch(life context.Context, ses *session) {
	for {
		select {
		case <-ses.link.Lost():
			return
		case <-life.Done():
			return
		case <-ses.changed:
		}
		s.refresh(life, ses)
		select {
		case <-ses.link.Lost():
			return
		case <-life.Done():
			return
		case <-s.cfg.Clock.After(refreshPause):
		}
	}
}

// refresh reads the tool list again. A list that cannot be read changes nothing
// but the warning.
func (s *server) refresh(life context.Context, ses *session) {
	ctx, cancel := context.WithTimeoutCause(life, s.spec.ConnectTimeout, errors.New("connect_timeout expired"))
	defer cancel()
	seen := ses.announced()
	list, err := s.readTools(ctx, ses.link)
	s.mu.Lock()
	if err == nil {
		s.list, s.stale = list, ""
	} else {
		s.stale = "the tool list changed but could not be read again: " + err.Error()
	}
	s.revision.Add(1)
	s.mu.Unlock()
	ses.covered(seen)
	if err != nil {
		s.cfg.Log.LogAttrs(ctx, slog.LevelWarn, "mcp_refresh_failed", slog.String("error", s.redact(err.Error())))
		return
	}
	s.cfg.Log.LogAttrs(ctx, slog.LevelInfo, "mcp_tools_changed", slog.Int("tools", len(list.tools)))
}

// ready returns a session that can carry a call. Without one it asks for an
// attempt to connect and waits for it, once; again says that it connected anew.
func (s *server) ready(ctx context.Context) (ses *session, again bool, err error) {
	s.mu.Lock()
	if ses := s.session; ses != nil && !ses.isLost() {
		s.mu.Unlock()
		return ses, false, nil
	}
	a, err, before := s.next, s.fault, s.connections
	if s.state != NotConnected && s.session == nil && s.cfg.Clock.Now().Before(s.notBefore) {
		s.mu.Unlock()
		return nil, false, err
	}
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default: // somebody asked already
	}
	select {
	case <-a.done:
		return a.session, a.err == nil && before > 0, a.err
	case <-ctx.Done():
		return nil, false, context.Cause(ctx)
	case <-s.cfg.Clock.After(s.spec.ConnectTimeout + firstBackoff):
		return nil, false, fmt.Errorf("connect_timeout of %s expired", s.spec.ConnectTimeout)
	}
}

// tool returns the tool called name as the server describes it now.
func (s *server) tool(name string) (Tool, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.list.tools {
		if t.Name == name {
			return t, true
		}
	}
	return Tool{}, false
}

func (s *server) currentTools() []Tool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Tool(nil), s.list.tools...)
}

func (s *server) status() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := Status{
		Name: s.alias, Transport: stdioTransport, Status: s.state, ServerInfo: s.info, ProtocolVersion: s.version,
		ToolCount: len(s.list.tools), Reconnects: max(0, s.connections-1), Required: s.spec.Required,
	}
	if s.spec.URL != "" {
		st.Transport = httpTransport
	}
	if s.state != Connected && s.fault != nil {
		st.Error = s.redact(s.fault.Error())
	}
	st.Excluded = s.shown(s.list.excluded)
	warnings := s.list.warnings
	if s.stale != "" {
		warnings = append([]string{s.stale}, warnings...)
	}
	st.Warnings = s.shown(warnings)
	return st
}

// maxShown is how many reports of one kind a status carries.
const maxShown = 50

func (s *server) shown(reports []string) []string {
	var out []string
	for i, r := range reports {
		if i == maxShown {
			return append(out, fmt.Sprintf("and %d more", len(reports)-maxShown))
		}
		out = append(out, s.redact(r))
	}
	return out
}

// redact takes secrets out of a text and makes one short line of it.
func (s *server) redact(text string) string {
	return wire.Short(s.cfg.Redact(text), 1500)
}
