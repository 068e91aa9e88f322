package conformance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"agentos/api"
	"agentos/api/client"
	"agentos/internal/problem"
	"agentos/internal/schema"
)

// probe looks at the server and the agent before any case runs.
func (k *kit) probe(ctx context.Context, r *Result) {
	if !k.own() {
		r.check(CheckManifest, k.agentFault() == "", "an agent with a digest and schemas that compile", k.agentFault())
	}
	seen := k.awaitReady(ctx)
	r.check(CheckReady, seen == "", "healthy, store reachable, stdio MCP servers connected", seen)
	_, err := k.client.CreateRun(ctx, client.CreateRun{
		Env: env, Agent: k.agent.Name, Capability: "no_such_capability", Body: api.CreateRun{Input: json.RawMessage(`{}`)},
	})
	r.check(CheckNoSuch, refusedWith(err, http.StatusNotFound, problem.CapabilityNotFound), "404 capability_not_found", answer(err))
	for _, c := range k.agent.Capabilities {
		input, ok := invalidInput(c)
		if !ok || !k.used(c.Name) {
			continue
		}
		_, err := k.client.CreateRun(ctx, client.CreateRun{
			Env: env, Agent: k.agent.Name, Capability: c.Name, Body: api.CreateRun{Input: input},
		})
		r.check(CheckInput, refusedWith(err, http.StatusUnprocessableEntity, problem.InvalidInput),
			fmt.Sprintf("422 invalid_input for %s with input %s", c.Name, input), answer(err))
	}
}

func (k *kit) used(capability string) bool {
	for _, c := range k.cfg.Cases {
		if c.Capability == capability {
			return true
		}
	}
	return false
}

// agentFault says what is wrong with the agent as the server shows it, or "".
func (k *kit) agentFault() string {
	if !strings.HasPrefix(k.agent.Digest, "sha256:") {
		return fmt.Sprintf("digest %q", k.agent.Digest)
	}
	for _, c := range k.agent.Capabilities {
		for _, raw := range []json.RawMessage{c.Input, c.Output} {
			if _, err := schema.Compile(raw, schema.Options{}); err != nil {
				return c.Name + ": " + err.Error()
			}
		}
	}
	return ""
}

// invalidInput finds a value that the capability's input schema refuses.
func invalidInput(c api.Capability) (json.RawMessage, bool) {
	s, err := schema.Compile(c.Input, schema.Options{})
	if err != nil {
		return nil, false
	}
	for _, v := range []string{`{}`, `{"":[]}`, `[]`, `"text"`, `0`, `null`} {
		if len(s.Validate(json.RawMessage(v))) > 0 {
			return json.RawMessage(v), true
		}
	}
	return nil, false
}

// awaitReady waits until the server can work and says what it lacks, or "".
func (k *kit) awaitReady(ctx context.Context) string {
	until := k.cfg.Clock.Now().Add(patience)
	for {
		lacks := k.lacks(ctx)
		if lacks == "" || !k.cfg.Clock.Now().Before(until) || k.pause(ctx) != nil {
			return lacks
		}
	}
}

// pause waits a moment before the kit looks again.
func (k *kit) pause(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-k.cfg.Clock.After(20 * time.Millisecond):
		return nil
	}
}

func (k *kit) lacks(ctx context.Context) string {
	if err := k.client.Health(ctx); err != nil {
		return "health: " + err.Error()
	}
	ready, err := k.client.Ready(ctx)
	if err != nil {
		return "ready: " + err.Error()
	}
	if !ready.Store.Reachable {
		return "the store is not reachable"
	}
	for _, a := range ready.Agents {
		for _, s := range a.MCPServers {
			if a.Agent == k.agent.Name && s.Transport == stdio && s.Required && s.Status != "connected" {
				return fmt.Sprintf("MCP server %s is %s: %s", s.Name, s.Status, s.Error)
			}
		}
	}
	return ""
}

// refusedWith reports whether err is an answer with the status and code.
func refusedWith(err error, status int, code problem.Code) bool {
	var e *client.Error
	return errors.As(err, &e) && e.Status == status && e.Problem.Code == code
}

// answer describes how a request ended, for reports.
func answer(err error) string {
	var e *client.Error
	switch {
	case err == nil:
		return "success"
	case errors.As(err, &e):
		return fmt.Sprintf("%d %s: %s", e.Status, e.Problem.Code, e.Problem.Message)
	}
	return err.Error()
}
