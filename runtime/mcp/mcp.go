// Package mcp owns the MCP servers of an agent: connections, names, calls and
// what the model sees of their results. It is the only importer of mcp-go, which
// it uses for the handshake and the protocol's types; tool lists and results are
// taken as raw bytes, because the library's typed structs lose parts of schemas,
// round large integers and fail on a single unknown block. Messages travel
// through runtime/mcp/wire.
//
// The configured alias is a server's identity everywhere; what a server says of
// itself is metadata. Nothing that leaves the package holds a secret, a command,
// an environment, a URL or a header.
package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	mcpgo "github.com/mark3labs/mcp-go/mcp"

	"agentos/capabilities"
	"agentos/internal/clock"
	"agentos/internal/egress"
	"agentos/internal/problem"
	"agentos/internal/schema"
)

// Config describes the servers of one agent. All fields are needed, but Egress
// (nil: nothing can be reached), BaseEnv and Version.
type Config struct {
	// Servers by alias.
	Servers map[string]*capabilities.Server
	// Resolve puts secrets into the template of a header or of an environment
	// variable.
	Resolve func(template string) (string, error)
	// Redact takes secrets out of a text. Everything that leaves the package
	// goes through it.
	Redact func(string) string
	// Egress is the only way to an HTTP server.
	Egress *egress.Policy
	// Binary is what "${agentos}" in a command stands for.
	Binary string
	// BaseEnv ("NAME=value") is what children are given beside their own
	// variables. They inherit nothing else.
	BaseEnv []string
	// Version is this product's version, told to servers.
	Version string
	Clock   clock.Clock
	// Log must redact by itself (secrets.Set.Handler): it is given lines that
	// children print.
	Log *slog.Logger
}

// Effect says what a second execution of a call would do.
type Effect string

// The effect classes; Once is the default.
const (
	Read       Effect = "read"
	Idempotent Effect = "idempotent"
	Once       Effect = "once"
)

// Tool is a tool as its server describes it now.
type Tool struct {
	// Server is the alias, Name the raw name at the server.
	Server, Name string
	// Shown is the configured rename, or else Name.
	Shown       string
	Description string
	// InputSchema and OutputSchema are exactly the server's bytes. An input
	// schema that says nothing (absent, null or true) reads {}.
	InputSchema  json.RawMessage
	OutputSchema json.RawMessage
	// Schema is InputSchema compiled leniently; nil when that is not possible,
	// and then arguments cannot be checked.
	Schema *schema.Schema
	Effect Effect
	// Destructive is the server's destructiveHint: true.
	Destructive bool
	// Digest binds an approval to what was shown: server, name, description and
	// input schema.
	Digest string

	output *schema.Schema // OutputSchema compiled; nil when there is none to use
	wraps  bool           // OutputSchema describes {"result": value} and nothing else
}

// State says how it stands with a server.
type State string

// The states of a server. NotConnected: its first attempt has not ended.
// Failed: it was never connected. Disconnected: it was, and is being connected
// again.
const (
	Connected    State = "connected"
	Disconnected State = "disconnected"
	Failed       State = "failed"
	NotConnected State = "not_connected"
)

// Transports.
const (
	stdioTransport = "stdio"
	httpTransport  = "streamable_http"
)

// Info is what a server says of itself; escaped and shortened.
type Info struct {
	Name    string `json:"name"`
	Version string `json:"version"`
}

// Status describes one server for readiness and the run header.
type Status struct {
	Name            string `json:"name"`
	Transport       string `json:"transport_type"`
	Status          State  `json:"status"`
	ServerInfo      *Info  `json:"server_info"`
	ProtocolVersion string `json:"protocol_version,omitempty"`
	// ToolCount counts the tools after the configured subset.
	ToolCount int `json:"tool_count"`
	// Reconnects counts the connections after the first.
	Reconnects int `json:"reconnects"`
	// Error is the last cause of a failed or lost connection; empty while
	// connected.
	Error    string `json:"error,omitempty"`
	Required bool   `json:"required"`
	// Excluded are tools that were left out, with the reason.
	Excluded []string `json:"excluded,omitempty"`
	// Warnings are faults that left a tool usable.
	Warnings []string `json:"warnings,omitempty"`
}

// Set is all MCP servers of one agent, shared by its runs. It is safe for
// concurrent use.
type Set struct {
	servers map[string]*server
	aliases []string        // sorted
	life    context.Context //nolint:containedctx // ends with Close and bounds the calls of every caller
	end     context.CancelCauseFunc
	hurry   context.CancelFunc
	// revision counts the changes of all servers.
	revision atomic.Int64
	wg       sync.WaitGroup
}

// errShutdown is the cause of calls that Close ends.
var errShutdown = errors.New("the servers are being shut down")

// Open begins to connect every server at once and returns without waiting. Its
// errors are faults of the configuration only, with code invalid_manifest. The
// end of ctx does not end the servers; Close does.
func Open(ctx context.Context, cfg Config) (*Set, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	life, end := context.WithCancelCause(context.WithoutCancel(ctx))
	closing, hurry := context.WithCancel(context.WithoutCancel(ctx))
	s := &Set{servers: map[string]*server{}, life: life, end: end, hurry: hurry}
	for alias, spec := range cfg.Servers {
		srv := newServer(alias, spec, cfg)
		srv.revision = &s.revision
		s.servers[alias] = srv
		s.aliases = append(s.aliases, alias)
	}
	sort.Strings(s.aliases)
	for _, srv := range s.servers {
		s.wg.Go(func() { srv.run(life, closing) })
	}
	return s, nil
}

// check refuses what no attempt to connect could repair.
func (c *Config) check() error {
	if c.Clock == nil || c.Log == nil || c.Resolve == nil || c.Redact == nil {
		return errors.New("mcp: Clock, Log, Resolve and Redact must be set")
	}
	var faults []problem.Detail
	for alias, spec := range c.Servers {
		path := "mcp_servers." + alias
		if (len(spec.Command) == 0) == (spec.URL == "") {
			faults = append(faults, problem.Detail{Path: path, Message: "set either command or url"})
		}
		if spec.ConnectTimeout <= 0 || spec.CallTimeout <= 0 {
			faults = append(faults, problem.Detail{Path: path, Message: "connect_timeout and call_timeout must be more than 0"})
		}
		if v := spec.ProtocolVersion; v != "" && !slices.Contains(mcpgo.LegacyProtocolVersions(), v) {
			faults = append(faults, problem.Detail{Path: path + ".protocol_version", Message: fmt.Sprintf(
				"%q is not spoken here; leave it out or use one of %s", v, strings.Join(mcpgo.LegacyProtocolVersions(), ", "))})
		}
		for name := range spec.Headers {
			if why := reservedHeader(name); why != "" {
				faults = append(faults, problem.Detail{Path: path + ".headers." + name, Message: why})
			}
		}
	}
	if len(faults) == 0 {
		return nil
	}
	sort.Slice(faults, func(i, j int) bool { return faults[i].Path < faults[j].Path })
	return problem.New(problem.InvalidManifest, "%s: %s", faults[0].Path, faults[0].Message).With(faults...)
}

// reservedHeader tells why a header cannot be configured.
func reservedHeader(name string) string {
	switch http.CanonicalHeaderKey(name) {
	case "Idempotency-Key", "X-Idempotency-Key":
		// net/http takes them as leave to send a POST again by itself.
		return "this header would make the HTTP client repeat calls; every call carries its own key in _meta"
	case "Accept", "Content-Type", "Content-Length", "Transfer-Encoding", "Connection", "Host", "Last-Event-Id", "Mcp-Session-Id", "Mcp-Protocol-Version":
		return "the protocol sets this header itself"
	}
	return ""
}

// Revision is a number that changes whenever the state or the tools of a server
// do: what was worked out at one revision holds until it is another.
func (s *Set) Revision() int64 { return s.revision.Load() }

// Wait returns when the first attempt to connect each of the servers (all of them
// when none is named) has ended, or ctx has.
func (s *Set) Wait(ctx context.Context, aliases ...string) {
	if len(aliases) == 0 {
		aliases = s.aliases
	}
	for _, alias := range aliases {
		srv := s.servers[alias]
		if srv == nil {
			continue
		}
		select {
		case <-srv.first:
		case <-ctx.Done():
			return
		}
	}
}

// Status returns the state of every server, sorted by alias.
func (s *Set) Status() []Status {
	out := make([]Status, 0, len(s.aliases))
	for _, alias := range s.aliases {
		out = append(out, s.servers[alias].status())
	}
	return out
}

// Tools returns the tools of the servers, after the configured subsets, sorted
// by server and tool. A server that lost its connection keeps its last list.
func (s *Set) Tools() []Tool {
	var out []Tool
	for _, alias := range s.aliases {
		out = append(out, s.servers[alias].currentTools()...)
	}
	return out
}

// Close ends calls, closes every connection and stops every child: input
// closed, then SIGTERM, then SIGKILL, at once when ctx ends. It returns when
// nothing is left. Closing again does nothing.
func (s *Set) Close(ctx context.Context) error {
	s.end(errShutdown)
	stop := context.AfterFunc(ctx, s.hurry)
	defer stop()
	s.wg.Wait()
	s.hurry()
	return nil
}

// Limits of time between attempts.
const (
	firstBackoff = 500 * time.Millisecond
	maxBackoff   = 30 * time.Second
	// settledAfter is how long a connection must have lived for the backoff to start
	// anew.
	settledAfter = 10 * time.Second
)
