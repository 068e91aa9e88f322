// Package capabilities owns agentos.yaml: it reads the file strictly, checks it
// and reports every fault with its position, fills in defaults, interpolates,
// and computes the digest that a run records. It opens no connection and knows
// no store.
package capabilities

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	"agentos/holds/policy"
	"agentos/internal/schema"
)

// Agent is a checked manifest with its defaults filled in. It is read-only once
// loaded and safe for concurrent use.
type Agent struct {
	Name        string
	Title       string
	Description string
	Version     string
	// Port is the port a container of this agent listens on; 8080 by default.
	Port int
	// Digest identifies the manifest and its bundle: "sha256:<hex>" over the
	// bytes of the manifest and of the regular files in the working directories
	// of its stdio servers that their commands name by a relative path.
	Digest string
	// Dir is the absolute folder of the manifest; relative commands and working
	// directories start there.
	Dir string
	// Servers are the MCP servers by alias.
	Servers map[string]*Server
	// Capabilities are the operations by name.
	Capabilities map[string]*Capability
	// Models are the models by their name in the manifest.
	Models map[string]Model
	// Params are the values of config.params.
	Params map[string]string
	// Secrets are the names the manifest may use; values come from the operator.
	Secrets []string
	// NetworkAllow lists "host", "host:port" or "*.host".
	NetworkAllow []string
	// Rules are the rules of policy.rules, which apply to every capability.
	Rules []policy.Rule
}

// Server is one MCP server of an agent. Exactly one of Command and URL is set.
type Server struct {
	Alias string
	// Command is executed directly, never by a shell. It is a template that may
	// hold "${agentos}"; Argv returns what to execute.
	Command []string
	// Env is added to the safe baseline. Values are templates for Resolve.
	Env map[string]string
	// Cwd is absolute; the manifest's folder by default.
	Cwd string
	// URL is the endpoint of a streamable HTTP server. It holds no secret.
	URL string
	// Headers are templates that may hold "${secrets.name}"; Resolve them when
	// connecting.
	Headers map[string]string
	// Tools are the raw names or globs that may enter the tool set; nil means all.
	Tools []string
	// Rename maps raw names to the names the model sees.
	Rename map[string]string
	// Required says that a run fails with mcp_unavailable while the server is
	// not connected. False: the run goes on without its tools.
	Required bool
	// ConnectTimeout bounds the handshake and every page of tools/list; 30 s by
	// default.
	ConnectTimeout time.Duration
	// CallTimeout bounds one call; 60 s by default.
	CallTimeout time.Duration
	// ReadTools and IdempotentTools are raw names or globs of tools that may run
	// again after a crash; every other tool is of class once.
	ReadTools       []string
	IdempotentTools []string
	// TrustHints lets readOnlyHint and idempotentHint of the server decide the
	// effect class where no list names the tool.
	TrustHints bool
	// ProtocolVersion pins the MCP revision; empty negotiates.
	ProtocolVersion string
}

// Capability is a named operation.
type Capability struct {
	Name        string
	Description string
	// Input and Output are the schemas of the manifest as JSON.
	Input  json.RawMessage
	Output json.RawMessage
	// InputSchema and OutputSchema are the compiled forms.
	InputSchema  *schema.Schema
	OutputSchema *schema.Schema
	// Timeout bounds the active time of a run: time spent held or queued does
	// not count. 5 minutes by default.
	Timeout time.Duration
	// Loop is nil when the agent's own code serves the capability.
	Loop *Loop

	// textInput is the only property of Input that holds text, nil when there is
	// none or more than one.
	textInput *string
}

// Loop declares how the model/tool loop answers a capability.
type Loop struct {
	// Model is a key of Agent.Models.
	Model  string
	System string
	// Prompt is the template of the user message, for RenderPrompt; empty means
	// DefaultPrompt.
	Prompt string
	// Tools are servers ("orders") or "server/tool" globs; nil means every server.
	// See Offers.
	Tools []string
	// Rules are approve and deny of this capability, as rules. Those of
	// Agent.Rules apply beside them.
	Rules []policy.Rule
	// MaxTurns bounds the model calls over the whole run; 10 by default.
	MaxTurns int
	// MaxTokens bounds the tokens over the whole run; 0 means no bound.
	MaxTokens int64
	// ParallelCalls is true by default; false runs the calls of one message one
	// after another in the model's order.
	ParallelCalls bool
	// Namespaced makes every tool appear as mcp__<server>__<tool>.
	Namespaced bool
}

// Model is a model by "provider/model" with its fallbacks in order.
type Model struct {
	Use      string
	Fallback []string
}

// RulesOf are the rules of the manifest that apply to a capability.
func (a *Agent) RulesOf(c *Capability) []policy.Rule {
	if c == nil || c.Loop == nil {
		return a.Rules
	}
	return slices.Concat(a.Rules, c.Loop.Rules)
}

// Argv returns what to execute: Command with "${agentos}" replaced by the path
// of the running binary. It is nil for a url server.
func (s *Server) Argv(agentos string) []string {
	var argv []string
	for _, arg := range s.Command {
		argv = append(argv, expand(arg, func(string) string { return agentos }))
	}
	return argv
}

// Offers reports whether the loop may use this tool of this server.
func (l *Loop) Offers(server, tool string) bool {
	if l.Tools == nil {
		return true
	}
	for _, pattern := range l.Tools {
		if !strings.Contains(pattern, "/") {
			pattern += "/*"
		}
		if policy.MatchServerTool(pattern, server, tool) {
			return true
		}
	}
	return false
}
