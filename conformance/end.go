package conformance

import (
	"context"
	"fmt"
	"strings"

	"agentos/api"
	"agentos/internal/problem"
	"agentos/internal/schema"
)

// end looks at the run after its last decision.
func (a *attempt) end(ctx context.Context) error {
	a.ended()
	if a.c.Expect == Held && a.v.title == "" {
		a.again(ctx)
	}
	if a.run.Status == api.RunCompleted {
		a.output()
	}
	if a.run.Status == api.RunFailed {
		a.failure(ctx)
	}
	if a.ordered(FaultKill) {
		if err := a.check(CheckFault, a.fired, a.v.title, "the run never came to that point"); err != nil {
			return err
		}
	}
	if err := a.counts(ctx); err != nil {
		return err
	}
	return a.histories()
}

// ended checks the final status.
func (a *attempt) ended() {
	switch {
	case a.c.Expect != Held:
		if a.c.Fails() != (a.run.Status == api.RunFailed) {
			a.result.check(CheckStatus, false, string(a.c.Expect), a.status())
		}
	case a.c.Fails() && !a.turned:
		a.result.check(CheckFails, a.run.Status == api.RunFailed, "failed", a.status())
	default:
		a.result.check(CheckCompletes, a.run.Status == api.RunCompleted, "completed", a.status())
	}
}

// output checks the output of a completed run.
func (a *attempt) output() {
	fault := "no such capability"
	if c := capability(a.k.agent, a.c.Capability); c != nil {
		fault = schemaFault(*c, a.run)
	}
	a.result.check(CheckSchema, fault == "", "an output that fits the capability's schema", fault)
	if a.turned {
		return
	}
	switch {
	case a.c.OutputSchema != nil:
		fault := detailText(a.c.OutputSchema.Validate(a.run.Output))
		a.result.check(CheckOutput, fault == "", "an output that fits the case's schema", fault)
	case a.c.Output != nil:
		fault := subset(a.c.Output, a.run.Output)
		a.result.check(CheckOutput, fault == "", string(a.c.Output), fault)
	}
}

func schemaFault(c api.Capability, run api.Run) string {
	s, err := schema.Compile(c.Output, schema.Options{})
	if err != nil {
		return err.Error()
	}
	return detailText(s.Validate(run.Output))
}

func detailText(details []problem.Detail) string {
	out := ""
	for _, d := range details {
		if out != "" {
			out += "; "
		}
		out += d.Path + " " + d.Message
	}
	return out
}

// failure checks the error of a failed run.
func (a *attempt) failure(ctx context.Context) {
	e := a.run.Error
	if !a.result.check(CheckFailure, e != nil && e.Code != "" && e.Message != "", "an error with code and message", a.status()) {
		return
	}
	if a.c.ErrorCode != "" {
		a.result.check(CheckError, string(e.Code) == a.c.ErrorCode, a.c.ErrorCode, fmt.Sprintf("%s: %s", e.Code, e.Message))
	}
	if e.Code == problem.MCPUnavailable || e.Code == problem.EgressDenied {
		a.network(ctx)
	}
}

// network checks that a run which failed for want of a remote server did so
// because the network is closed.
func (a *attempt) network(ctx context.Context) {
	agent, err := a.k.client.Agent(ctx, env, a.k.agent.Name)
	if err != nil {
		a.result.check(CheckNetwork, false, "the agent's servers", answer(err))
		return
	}
	var seen []string
	for _, s := range agent.MCPServers {
		if s.Transport == stdio {
			continue
		}
		if s.Status != "connected" && s.Error != "" {
			a.result.check(CheckNetwork, true, "", "")
			return
		}
		seen = append(seen, fmt.Sprintf("%s is %s", s.Name, s.Status))
	}
	if len(seen) > 0 {
		a.result.check(CheckNetwork, false, "a remote server that cannot be reached, and why", strings.Join(seen, "; "))
	}
}

// histories checks what the model was sent.
func (a *attempt) histories() error {
	if !a.k.own() {
		return nil
	}
	models, err := a.k.cfg.Dir.Models()
	if err != nil {
		return err
	}
	for i, m := range models[min(a.mark.models, len(models)):] {
		if m.Fault != "" {
			a.result.check(CheckHistories, false, "a history that a provider takes", fmt.Sprintf("model call %d: %s", i+1, m.Fault))
			return nil
		}
	}
	if len(models) > a.mark.models {
		a.result.check(CheckHistories, true, "", "")
	}
	return nil
}
