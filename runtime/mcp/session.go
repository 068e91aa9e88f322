package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"

	"github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/client/transport"
	mcpgo "github.com/mark3labs/mcp-go/mcp"

	"agentos/internal/problem"
	"agentos/internal/rawjson"
	"agentos/runtime/mcp/wire"
)

// session is one established connection.
type session struct {
	link    wire.Link
	info    *Info
	version string
	list    toolList
	changed chan struct{} // signalled when the server says that its tools changed

	mu      sync.Mutex
	said    int           // how often it said so
	read    int           // how many of these the list in use takes into account
	refresh chan struct{} // closed and replaced when read moves
}

func newSession() *session {
	return &session{changed: make(chan struct{}, 1), refresh: make(chan struct{})}
}

func (s *session) isLost() bool {
	select {
	case <-s.link.Lost():
		return true
	default:
		return false
	}
}

// notified is called on the reading goroutine: it only leaves a note, because a
// request from there would wait for itself.
func (s *session) notified(method string) {
	if method != "notifications/tools/list_changed" {
		return
	}
	s.mu.Lock()
	s.said++
	s.mu.Unlock()
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

func (s *session) announced() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.said
}

func (s *session) covered(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.read = n
	close(s.refresh)
	s.refresh = make(chan struct{})
}

// pending returns nil when every announced change is in the list in use, and
// otherwise a channel that closes with the next reading.
func (s *session) pending() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.read >= s.said {
		return nil
	}
	return s.refresh
}

// connect makes one attempt: transport, handshake and every page of the tool
// list, all within connect_timeout. A session that comes with an error can only
// be closed.
func (s *server) connect(life context.Context) (*session, error) {
	ctx, cancel := context.WithTimeoutCause(life, s.spec.ConnectTimeout,
		fmt.Errorf("connect_timeout of %s expired", s.spec.ConnectTimeout))
	defer cancel()
	ses := newSession()
	var err error
	if ses.link, err = s.open(life, wire.Handler{Notification: ses.notified, Request: answerServer}); err != nil {
		return nil, err
	}
	if err = s.establish(ctx, ses); err == nil {
		return ses, nil
	}
	if words, ok := ses.link.(interface{ LastWords() string }); ok && ctx.Err() != nil && words.LastWords() != "" {
		err = fmt.Errorf("%w; the last words of the process: %s", err, words.LastWords())
	}
	return ses, err
}

func (s *server) establish(ctx context.Context, ses *session) error {
	result, err := s.handshake(ctx, ses.link)
	if err != nil {
		return err
	}
	ses.version = result.ProtocolVersion
	ses.info = &Info{Name: s.metadata(result.ServerInfo.Name), Version: s.metadata(result.ServerInfo.Version)}
	ses.list, err = s.readTools(ctx, ses.link)
	if err != nil && result.Capabilities.Tools == nil && isMethodNotFound(err) {
		err = nil // a server of prompts or resources only
	}
	if err != nil {
		return fmt.Errorf("tools/list: %w", err)
	}
	if h, ok := ses.link.(*wire.HTTP); ok && result.Capabilities.Tools != nil && result.Capabilities.Tools.ListChanged {
		h.Listen()
	}
	return nil
}

// metadata makes what a server says of itself fit to be shown.
func (s *server) metadata(text string) string {
	return wire.Short(s.cfg.Redact(text), 64)
}

// answerServer answers the requests a server may make on its own. Nothing but
// ping is offered, and no capability that would invite others is declared.
func answerServer(method string) (json.RawMessage, *wire.RPCError) {
	if method == string(mcpgo.MethodPing) {
		return json.RawMessage(`{}`), nil
	}
	return nil, wire.Refuse(method)
}

// open creates the transport.
func (s *server) open(life context.Context, h wire.Handler) (wire.Link, error) {
	common := wire.Common{Handler: h, Clock: s.cfg.Clock, Log: s.cfg.Log}
	if s.spec.URL != "" {
		header := http.Header{}
		for name, template := range s.spec.Headers {
			value, err := s.cfg.Resolve(template)
			if err != nil {
				return nil, fmt.Errorf("header %s: %w", name, err)
			}
			if strings.ContainsAny(value, "\r\n\x00") {
				return nil, fmt.Errorf("header %s: its value holds a line break", name)
			}
			header.Set(name, value)
		}
		return wire.NewHTTP(life, wire.HTTPConfig{Common: common, URL: s.spec.URL, Header: header, Client: s.cfg.Egress.Client()}), nil
	}
	env, err := s.environment()
	if err != nil {
		return nil, err
	}
	return wire.NewStdio(life, wire.StdioConfig{Common: common, Command: s.spec.Argv(s.cfg.Binary), Env: env, Dir: s.spec.Cwd})
}

func (s *server) environment() ([]string, error) {
	env := append([]string(nil), s.cfg.BaseEnv...)
	for name, template := range s.spec.Env {
		value, err := s.cfg.Resolve(template)
		if err != nil {
			return nil, fmt.Errorf("env %s: %w", name, err)
		}
		env = append(env, name+"="+value)
	}
	return env, nil
}

// handshake runs initialize and notifications/initialized with the library,
// pinned to the revisions that have them: a server that ignores methods it does
// not know must not make connecting slow.
func (s *server) handshake(ctx context.Context, link wire.Link) (*mcpgo.InitializeResult, error) {
	version := s.spec.ProtocolVersion
	if version == "" {
		version = mcpgo.LATEST_LEGACY_PROTOCOL_VERSION
	}
	a := &adapter{link: link}
	c := client.NewClient(a, client.WithProtocolVersion(version))
	result, err := c.Initialize(ctx, mcpgo.InitializeRequest{Params: mcpgo.InitializeParams{
		ClientInfo: mcpgo.Implementation{Name: "agentos", Version: s.cfg.Version},
	}})
	var f *wire.RequestError
	switch {
	case a.refused != nil:
		return nil, fmt.Errorf("initialize: %w", a.refused)
	case errors.As(err, &f):
		return nil, fmt.Errorf("initialize: %w", f)
	case err != nil:
		return nil, fmt.Errorf("initialize: %w", err)
	case mcpgo.IsModernProtocol(result.ProtocolVersion):
		return nil, problem.New(problem.MCPUnavailable, "initialize: the server answered with revision %s, which has no such handshake", result.ProtocolVersion)
	}
	return result, nil
}

// adapter lets the library's client speak through a link.
type adapter struct {
	link    wire.Link
	refused *wire.RPCError // the library drops the codes it does not know
}

var _ transport.HTTPConnection = (*adapter)(nil)

// Start implements transport.Interface; links are started when made.
func (*adapter) Start(context.Context) error { return nil }

// Close implements transport.Interface; the session closes its link.
func (*adapter) Close() error { return nil }

// GetSessionId implements transport.Interface.
func (*adapter) GetSessionId() string { return "" }

// SetNotificationHandler implements transport.Interface; the session listens.
func (*adapter) SetNotificationHandler(func(mcpgo.JSONRPCNotification)) {}

// SetProtocolVersion implements transport.HTTPConnection.
func (a *adapter) SetProtocolVersion(version string) { a.link.Agreed(version) }

// SendRequest implements transport.Interface.
func (a *adapter) SendRequest(ctx context.Context, r transport.JSONRPCRequest) (*transport.JSONRPCResponse, error) {
	params, err := rawjson.Marshal(r.Params)
	if err != nil {
		return nil, err
	}
	reply, err := a.link.Request(ctx, r.Method, params)
	if err != nil {
		return nil, err
	}
	if e := reply.Err; e != nil {
		a.refused = e
		return nil, e
	}
	return &transport.JSONRPCResponse{JSONRPC: mcpgo.JSONRPC_VERSION, ID: r.ID, Result: reply.Result}, nil
}

// SendNotification implements transport.Interface.
func (a *adapter) SendNotification(ctx context.Context, n mcpgo.JSONRPCNotification) error {
	return a.link.Notify(ctx, n.Method, nil)
}
