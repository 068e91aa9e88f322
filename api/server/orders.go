package server

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"time"

	"agentos/api"
	"agentos/holds/policy"
	"agentos/runtime"
)

// switchTimeout bounds switching off: the order stands at once, but cancelling the
// holds that ask about the tools takes a few writes for each.
const switchTimeout = 10 * time.Minute

// envInput names an environment.
type envInput struct{ env string }

func readEnv(in *input) envInput { return envInput{env: in.env()} }

func (s *Server) getOrders(ctx context.Context, in envInput) (reply, error) {
	o, err := s.cfg.Engine.Orders(ctx, in.env)
	if err != nil {
		return reply{}, err
	}
	return reply{body: toOrders(o)}, nil
}

// agentOrder is an order about an agent.
type agentOrder struct {
	agentInput
	by, from string
	body     api.PauseAgent
}

func readPause(in *input) agentOrder {
	r := agentOrder{agentInput: readAgentName(in), by: in.principal(), from: from(in.c.Request())}
	in.body("PauseAgent", &r.body)
	return r
}

func readResume(in *input) agentOrder {
	r := agentOrder{agentInput: readAgentName(in), by: in.principal(), from: from(in.c.Request())}
	in.noBody()
	return r
}

func (s *Server) pauseAgent(ctx context.Context, in agentOrder) (reply, error) {
	ctx, cancel := change(ctx)
	defer cancel()
	o, err := s.cfg.Engine.PauseAgent(ctx, in.env, in.agent, runtime.Order{By: in.by, From: in.from, Reason: in.body.Reason})
	if err != nil {
		return reply{}, err
	}
	s.ordered(ctx, "pause", in.by, api.SwitchOn{Agent: in.agent}, o)
	return reply{body: toOrders(o)}, nil
}

func (s *Server) resumeAgent(ctx context.Context, in agentOrder) (reply, error) {
	ctx, cancel := change(ctx)
	defer cancel()
	o, err := s.cfg.Engine.ResumeAgent(ctx, in.env, in.agent, runtime.Order{By: in.by, From: in.from})
	if err != nil {
		return reply{}, err
	}
	s.ordered(ctx, "resume", in.by, api.SwitchOn{Agent: in.agent}, o)
	return reply{body: toOrders(o)}, nil
}

// switchOffInput forbids tools.
type switchOffInput struct {
	env, by, from string
	body          api.SwitchOff
}

func readSwitchOff(in *input) switchOffInput {
	r := switchOffInput{env: in.env(), by: in.principal(), from: from(in.c.Request())}
	in.body("SwitchOff", &r.body)
	return r
}

func (s *Server) switchOff(ctx context.Context, in switchOffInput) (reply, error) {
	// A caller that goes away does not leave it half done; the end of the server
	// can, and a repeat does the rest.
	ctx, cancel := s.wait(context.WithoutCancel(ctx), switchTimeout)
	defer cancel()
	o, n, err := s.cfg.Engine.SwitchOff(ctx, in.env, runtime.ToolOff{
		Agent: in.body.Agent, Tool: in.body.Tool, Order: runtime.Order{By: in.by, From: in.from, Reason: in.body.Reason},
	})
	if err != nil {
		return reply{}, err
	}
	s.ordered(ctx, "off", in.by, api.SwitchOn{Agent: in.body.Agent, Tool: in.body.Tool}, o)
	return reply{body: api.SwitchedOff{
		Orders: toOrders(o), CancelledHolds: n, Matches: s.matches(in.body.Agent, in.body.Tool),
	}}, nil
}

// switchOnInput takes an order about tools back.
type switchOnInput struct {
	env, by, from string
	body          api.SwitchOn
}

func readSwitchOn(in *input) switchOnInput {
	r := switchOnInput{env: in.env(), by: in.principal(), from: from(in.c.Request())}
	in.body("SwitchOn", &r.body)
	return r
}

func (s *Server) switchOn(ctx context.Context, in switchOnInput) (reply, error) {
	ctx, cancel := change(ctx)
	defer cancel()
	o, err := s.cfg.Engine.SwitchOn(ctx, in.env, in.body.Agent, in.body.Tool, runtime.Order{By: in.by, From: in.from})
	if err != nil {
		return reply{}, err
	}
	s.ordered(ctx, "on", in.by, in.body, o)
	return reply{body: toOrders(o)}, nil
}

// ordered logs who ordered what. What was taken back is nowhere else.
func (s *Server) ordered(ctx context.Context, order, by string, what api.SwitchOn, now runtime.Orders) {
	s.cfg.Log.InfoContext(ctx, "operator's order", slog.String("order", order), slog.String("by", by),
		slog.String("agent", what.Agent), slog.String("tool", what.Tool), slog.Int64("version", now.Version))
}

// matches are the tools that a pattern means of one agent, or of all when it is "".
func (s *Server) matches(agent, pattern string) []api.ToolName {
	out := []api.ToolName{}
	for _, a := range s.cfg.Engine.Agents() {
		if agent != "" && agent != a.Manifest.Name {
			continue
		}
		for _, c := range a.Manifest.Capabilities {
			for _, t := range a.Tools(c) {
				if policy.Match(pattern, t.Server, t.Tool) {
					out = append(out, api.ToolName{Agent: a.Manifest.Name, Server: t.Server, Tool: t.Tool})
				}
			}
		}
	}
	slices.SortFunc(out, func(a, b api.ToolName) int {
		return cmp.Or(cmp.Compare(a.Agent, b.Agent), cmp.Compare(a.Server, b.Server), cmp.Compare(a.Tool, b.Tool))
	})
	return slices.Compact(out) // capabilities share tools
}

func toOrders(o runtime.Orders) api.Orders {
	out := api.Orders{Version: o.Version, Paused: make([]api.Pause, len(o.Paused)), Off: make([]api.ToolOff, len(o.Off))}
	for i, p := range o.Paused {
		out.Paused[i] = api.Pause{Agent: p.Agent, Order: toOrder(p.Order)}
	}
	for i, t := range o.Off {
		out.Off[i] = api.ToolOff{Agent: t.Agent, Tool: t.Tool, Order: toOrder(t.Order)}
	}
	return out
}

func toOrder(o runtime.Order) api.Order {
	return api.Order{By: o.By, Reason: o.Reason, At: api.Time{Time: o.At}}
}

// paused is the order that keeps the agent's runs waiting, or nil.
func (s *Server) paused(agent string) *api.Order {
	p := s.cfg.Engine.Paused(agent)
	if p == nil {
		return nil
	}
	o := toOrder(p.Order)
	return &o
}
