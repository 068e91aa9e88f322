package inbox

import (
	"context"
	"encoding/json"
	"net/url"
	"slices"

	"agentos/api"
	"agentos/internal/problem"
	"agentos/internal/visible"
)

// agentsPage is the data of the list of agents.
type agentsPage struct {
	Agents []api.Agent
	Off    []api.ToolOff
}

func (in *Inbox) showAgents(ctx context.Context, v *visit) (*page, error) {
	list, err := in.cfg.Backend.Agents(ctx, v.who)
	if err != nil {
		return nil, err
	}
	orders, err := in.cfg.Backend.Orders(ctx, v.who)
	if err != nil {
		return nil, err
	}
	return &page{name: "agents", title: "Agents", tab: "agents", data: agentsPage{Agents: list.Agents, Off: orders.Off}}, nil
}

// agentPage is the data of the page of one agent.
type agentPage struct {
	Agent api.Agent
	// Off are the orders that switch tools off, of this agent or of all.
	Off []api.ToolOff
}

func (in *Inbox) showAgent(ctx context.Context, v *visit) (*page, error) {
	a, err := in.cfg.Backend.Agent(ctx, v.who, v.args[0])
	if err != nil {
		return nil, err
	}
	orders, err := in.cfg.Backend.Orders(ctx, v.who)
	if err != nil {
		return nil, err
	}
	p := agentPage{Agent: a}
	for _, o := range orders.Off {
		if o.Agent == "" || o.Agent == a.Name {
			p.Off = append(p.Off, o)
		}
	}
	return &page{name: "agent", title: name(a), tab: "agents", data: p}, nil
}

func name(a api.Agent) string {
	if a.Title != "" {
		return visible.Text(a.Title)
	}
	return a.Name
}

// startPage is the data of the form that starts a run.
type startPage struct {
	Agent      api.Agent
	Capability api.Capability
	// Form is nil when the input can only be written as JSON.
	Form *form
	JSON string
	// Key is the idempotency key of the form: sent twice it starts one run.
	Key    string
	Faults []problem.Detail
	// ByJSON opens the JSON editor.
	ByJSON bool
}

// start reads what the form that starts a run shows.
func (in *Inbox) start(ctx context.Context, v *visit) (*startPage, error) {
	a, err := in.cfg.Backend.Agent(ctx, v.who, v.args[0])
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(a.Capabilities, func(c api.Capability) bool { return c.Name == v.args[1] })
	if i < 0 {
		return nil, problem.New(problem.CapabilityNotFound, "the agent has no such capability")
	}
	c := a.Capabilities[i]
	return &startPage{Agent: a, Capability: c, Form: newForm(c.Input, nil), JSON: "{}", Key: in.cfg.IDs.Token()}, nil
}

func (in *Inbox) startAnswer(p *startPage) *page {
	return &page{name: "start", title: "Start " + p.Agent.Name + "/" + p.Capability.Name, tab: "agents", data: p}
}

func (in *Inbox) showStart(ctx context.Context, v *visit) (*page, error) {
	p, err := in.start(ctx, v)
	if err != nil {
		return nil, err
	}
	return in.startAnswer(p), nil
}

func (in *Inbox) postStart(ctx context.Context, v *visit) (*page, error) {
	p, err := in.start(ctx, v)
	if err != nil {
		return nil, err
	}
	p.Key = v.r.PostForm.Get("key")
	if len(p.Key) < tokenLength || len(p.Key) > 64 {
		return nil, problem.New(problem.InvalidRequest, "the form has lost its key; reload the page")
	}
	input, faults := p.input(v.r.PostForm)
	if len(faults) == 0 {
		faults = checkSchema(p.Capability.Input, input)
	}
	if len(faults) > 0 {
		p.Faults = faults
		out := in.startAnswer(p)
		out.status = in.cfg.Status(problem.InvalidInput)
		return out, nil
	}
	r, err := in.cfg.Backend.Start(ctx, v.who, p.Agent.Name, p.Capability.Name, p.Key, api.CreateRun{Input: input})
	if fault := problem.From(err); err != nil && fault.Code == problem.InvalidInput {
		p.Faults = append([]problem.Detail{{Message: fault.Message}}, fault.Details...)
		out := in.startAnswer(p)
		out.status = in.cfg.Status(fault.Code)
		return out, nil
	}
	if err != nil {
		return nil, err
	}
	return &page{to: "/inbox/runs/" + url.PathEscape(r.RunID)}, nil
}

// input reads the input from the form or the JSON editor.
func (p *startPage) input(post url.Values) (json.RawMessage, []problem.Detail) {
	if post.Get("by") == "form" && p.Form != nil {
		if post.Get("digest") != p.Form.Digest {
			return nil, []problem.Detail{{Message: "the capability has changed since the page was loaded; reload it"}}
		}
		input, faults := p.Form.read(post)
		p.JSON = visible.JSON(input, "")
		return input, faults
	}
	p.ByJSON, p.JSON = true, unixLines(post.Get("json"))
	return written(p.JSON)
}
