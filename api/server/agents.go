package server

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"time"

	"agentos/api"
	"agentos/api/auth"
	"agentos/capabilities"
	"agentos/runtime"
	"agentos/runtime/mcp"
)

// healthTimeout is how long /ready waits for the store.
const healthTimeout = 2 * time.Second

func (s *Server) index(context.Context, nothing) (reply, error) {
	return reply{body: api.Index{
		Name: "agentos", Version: s.cfg.Version, OpenAPI: "/openapi.json", Agents: "/v0/envs/" + s.cfg.Env + "/agents",
		Health: "/health", Ready: "/ready", Metrics: "/metrics",
	}}, nil
}

func (*Server) health(context.Context, nothing) (reply, error) {
	return reply{body: api.Health{Status: "ok"}}, nil
}

func (s *Server) openAPI(context.Context, nothing) (reply, error) {
	return reply{body: s.spec.json}, nil
}

// ready looks at what is known already, besides one question to the store. The
// details are for those who may look.
func (s *Server) ready(ctx context.Context, _ nothing) (reply, error) {
	out := s.readiness(ctx)
	r := reply{body: out}
	if !auth.From(ctx).Can(mayLook) {
		r.body = api.Readiness{Ready: out.Ready}
	}
	if !out.Ready {
		r.status = http.StatusServiceUnavailable
	}
	return r, nil
}

func (s *Server) readiness(ctx context.Context) api.Ready {
	out := api.Ready{MCPConnected: true, MockModel: s.cfg.MockModel, Agents: []api.AgentReady{}, Warnings: []string{}}
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	health, err := s.cfg.Store.Health(ctx)
	if err != nil {
		s.cfg.Log.WarnContext(ctx, "the store is not reachable", slog.Any("error", err))
		out.Warnings = append(out.Warnings, storeWarning(err))
	}
	out.Store = api.StoreReady{Reachable: err == nil, Driver: health.Driver, Durable: health.Durable}
	out.Warnings = append(out.Warnings, health.Warnings...)
	out.Warnings = append(out.Warnings, s.cfg.Warnings()...)
	for _, a := range s.cfg.Engine.Agents() {
		servers := a.MCP.Status()
		for _, m := range servers {
			if m.Required && m.Status != mcp.Connected {
				out.MCPConnected = false
			}
		}
		out.Agents = append(out.Agents, api.AgentReady{
			Agent: a.Manifest.Name, MCPServers: toServers(servers), Paused: s.paused(a.Manifest.Name),
		})
	}
	out.Ready = out.Store.Reachable && out.MCPConnected
	return out
}

// storeWarning says why the store cannot be used, where the driver has words for
// it that tell nothing about the machine.
func storeWarning(err error) string {
	known := interface{ Reason() string }(nil)
	if errors.As(err, &known) && known.Reason() != "" {
		return "The store cannot be used: " + known.Reason() + "."
	}
	return "The store cannot be reached; the server's log says why."
}

func (s *Server) listAgents(context.Context, nothing) (reply, error) {
	agents := s.cfg.Engine.Agents()
	out := api.AgentList{Agents: make([]api.Agent, len(agents))}
	for i, a := range agents {
		out.Agents[i] = s.toAgent(a)
	}
	return reply{body: out}, nil
}

// agentInput names an agent.
type agentInput struct{ env, agent string }

func readAgentName(in *input) agentInput {
	return agentInput{env: in.env(), agent: in.param("agent")}
}

func (s *Server) getAgent(_ context.Context, in agentInput) (reply, error) {
	a, err := s.cfg.Engine.Agent(in.env, in.agent)
	if err != nil {
		return reply{}, err
	}
	return reply{body: s.toAgent(a)}, nil
}

func (s *Server) toAgent(a *runtime.Agent) api.Agent {
	m := a.Manifest
	out := api.Agent{
		Name: m.Name, Title: m.Title, Description: m.Description, Version: m.Version, Digest: m.Digest,
		Capabilities: []api.Capability{}, MCPServers: toServers(a.MCP.Status()), Paused: s.paused(m.Name),
	}
	for _, name := range slices.Sorted(maps.Keys(m.Capabilities)) {
		out.Capabilities = append(out.Capabilities, toCapability(a, m.Capabilities[name]))
	}
	return out
}

func toCapability(a *runtime.Agent, c *capabilities.Capability) api.Capability {
	out := api.Capability{
		Name: c.Name, Description: c.Description, Input: schemaOf(c.Input), Output: schemaOf(c.Output),
		TimeoutMS: c.Timeout.Milliseconds(), Tools: []api.Tool{},
	}
	if c.Loop != nil {
		out.Model = a.Manifest.Models[c.Loop.Model].Use
	}
	for _, t := range a.Tools(c) {
		out.Tools = append(out.Tools, api.Tool{
			Name: t.Provider, Server: t.Server, Tool: t.Tool, Description: t.Description,
			InputSchema: schemaOf(t.InputSchema), Effect: t.Effect, Verdict: toVerdict(t.Verdict),
		})
	}
	return out
}

// schemaOf shows a schema that was not given as the one that allows everything.
func schemaOf(raw json.RawMessage) json.RawMessage {
	if len(raw) == 0 {
		return json.RawMessage("true")
	}
	return raw
}
