package runtime

import (
	"encoding/json"
	"slices"
	"strings"
	"sync"

	"agentos/capabilities"
	"agentos/holds/policy"
	"agentos/internal/problem"
	"agentos/internal/rawjson"
	"agentos/internal/schema"
	"agentos/platform"
	"agentos/runtime/journal"
	"agentos/runtime/mcp"
	"agentos/runtime/store"
)

// Agent is a loaded agent with its connections. It must not be copied.
type Agent struct {
	Manifest *capabilities.Agent
	MCP      *mcp.Set
	// Operator is the operator's policy, which applies beside the manifest's; the
	// same for every agent of a server.
	Operator platform.Policy

	mu      sync.Mutex
	current *view // guarded by mu
}

// view is what an agent's servers offer, worked out once for each state they are
// in. It is read-only.
type view struct {
	revision int64
	// sets are the tools of each capability that has a loop.
	sets map[string]*toolSet
	// misleading is what Misleading returns.
	misleading *problem.Error
	// header is every configured server as it is, for the run.
	header json.RawMessage
}

// toolSet is what a capability asks its model with: the tools it offers and the
// form of the answer.
type toolSet struct {
	named  []mcp.Named
	byName map[string]mcp.Tool
	// definitions are the tools as a provider takes them, in a stable order.
	definitions []json.RawMessage
	// rules are the policy rules of the capability; see Agent.rules.
	rules []policy.Rule
	// text is the property the model's text becomes, or "" when the answer is
	// JSON; format asks the provider for that.
	text   string
	format []rawjson.Field
}

// view returns what the servers offer now.
func (a *Agent) view() *view {
	a.mu.Lock()
	defer a.mu.Unlock()
	revision := a.MCP.Revision() // read first: a change meanwhile makes the view old
	if a.current == nil || a.current.revision != revision {
		a.current = a.look(revision)
	}
	return a.current
}

func (a *Agent) look(revision int64) *view {
	v := &view{revision: revision, sets: map[string]*toolSet{}}
	tools := a.MCP.Tools()
	for name, c := range a.Manifest.Capabilities {
		if c.Loop != nil {
			v.sets[name] = a.newToolSet(c, tools)
		}
	}
	v.misleading = a.findMisleading(v)
	if header, err := rawjson.Marshal(a.MCP.Status()); err == nil { // plain structs always encode
		v.header = header
	}
	return v
}

func (a *Agent) newToolSet(c *capabilities.Capability, all []mcp.Tool) *toolSet {
	l := c.Loop
	var mine []mcp.Tool
	for _, t := range all {
		if l.Offers(t.Server, t.Name) {
			mine = append(mine, t)
		}
	}
	named, _ := mcp.Names(mine, l.Namespaced)
	s := &toolSet{named: named, byName: make(map[string]mcp.Tool, len(named)), rules: a.rules(c)}
	s.text, s.format = textProperty(c.Output), responseFormat(c)
	for _, n := range named {
		s.byName[n.Provider] = n.Tool
		s.definitions = append(s.definitions, definition(n))
	}
	return s
}

// rules are the rules that apply to a capability: the operator's first, whose
// reason is the one shown, then the manifest's. Their order decides nothing else.
func (a *Agent) rules(c *capabilities.Capability) []policy.Rule {
	return slices.Concat(a.Operator.Rules, a.Manifest.RulesOf(c))
}

// definition is a tool as a provider takes it.
func definition(n mcp.Named) json.RawMessage {
	function := []rawjson.Field{{Name: "name", Value: rawjson.Quote(n.Provider)}}
	if n.Tool.Description != "" {
		function = append(function, rawjson.Field{Name: "description", Value: rawjson.Quote(n.Tool.Description)})
	}
	function = append(function, rawjson.Field{Name: "parameters", Value: schema.FunctionParameters(n.Tool.InputSchema)})
	return rawjson.Object([]rawjson.Field{
		{Name: "type", Value: rawjson.Quote("function")},
		{Name: "function", Value: rawjson.Object(function)},
	})
}

// asPolicy is a tool as policy sees it.
func asPolicy(t mcp.Tool) policy.Call {
	return policy.Call{Server: t.Server, Tool: t.Name, Destructive: t.Destructive}
}

// inRun completes a call with what conditions may look at.
func inRun(c policy.Call, r store.Record, created journal.Created, args json.RawMessage) policy.Call {
	c.Args, c.Input = args, created.Input
	c.Requester = policy.Requester{Name: created.Requester, Groups: created.RequesterGroups}
	c.Run = policy.Run{ID: r.ID, Agent: r.Agent, Capability: r.Capability, SessionID: r.SessionID, Env: r.Env}
	return c
}

func (s *toolSet) names() []string {
	out := make([]string, len(s.named))
	for i, n := range s.named {
		out[i] = n.Provider
	}
	return out
}

// OfferedTool is a tool of a capability with what policy says about it.
type OfferedTool struct {
	// Provider is the name the model sees; Server and Tool are the alias and the
	// raw name, which policy goes by.
	Provider, Server, Tool string
	Description            string
	InputSchema            json.RawMessage
	Effect                 string
	// Verdict is what is known before there is a call; see policy.Static.
	Verdict policy.Verdict
}

// Tools returns what a capability of the agent offers its model now.
func (a *Agent) Tools(c *capabilities.Capability) []OfferedTool {
	set := a.view().sets[c.Name]
	if set == nil {
		return nil
	}
	var out []OfferedTool
	for _, n := range set.named {
		t := n.Tool
		out = append(out, OfferedTool{
			Provider: n.Provider, Server: t.Server, Tool: t.Name, Description: t.Description,
			InputSchema: t.InputSchema, Effect: string(t.Effect), Verdict: policy.Static(set.rules, asPolicy(t)),
		})
	}
	return out
}

// toolSet returns what the run's capability offers now.
func (w *run) toolSet() *toolSet { return w.agent.view().sets[w.capability.Name] }

// aliases are the servers the run's capability uses.
func (w *run) aliases() []string {
	var out []string
	for alias := range w.agent.Manifest.Servers {
		list := w.capability.Loop.Tools
		used := list == nil || slices.ContainsFunc(list, func(entry string) bool {
			server, _, _ := strings.Cut(entry, "/")
			return policy.Match(server, alias, alias)
		})
		if used {
			out = append(out, alias)
		}
	}
	return out
}

// tool finds a tool of the capability by alias and raw name.
func (w *run) tool(server, name string) (mcp.Tool, bool) {
	w.agent.MCP.Wait(w.ctx, server)
	for _, n := range w.toolSet().named {
		if n.Tool.Server == server && n.Tool.Name == name {
			return n.Tool, true
		}
	}
	return mcp.Tool{}, false
}
