package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"

	"agentos/bench/scenario"
	"agentos/capabilities"
	"agentos/gateway"
	"agentos/internal/rawjson"
)

// The capabilities of the agent; each has a model of the same name. long is a run
// of many turns, and stuck one whose tool never answers.
const (
	lookup  = scenario.Lookup
	approve = scenario.Approve
	long    = "long"
	stuck   = "stuck"
)

// maxTurns is how many model calls a run may make.
const maxTurns = 1000

// input is what every run is started with.
func input() json.RawMessage {
	return rawjson.Object([]rawjson.Field{{Name: "message", Value: rawjson.Quote(scenario.User())}})
}

// manifest is the agent: one MCP server, which is this program, and the
// capabilities.
func manifest(self, dir string) (*capabilities.Agent, error) {
	var b strings.Builder
	fmt.Fprintf(&b, "name: bench\nmcp_servers:\n  orders:\n    command: [%q, %s]\n    effects: {read: [%s, %s]}\n",
		self, toolCommand, scenario.FreeTool, scenario.WaitTool)
	fmt.Fprint(&b, "config:\n  models:\n")
	names := []string{lookup, approve, long, stuck}
	for _, name := range names {
		fmt.Fprintf(&b, "    %s: %[1]s/m\n", name)
	}
	fmt.Fprint(&b, "capabilities:\n")
	for _, name := range names {
		fmt.Fprintf(&b, `  %s:
    input: {type: object, properties: {message: {type: string}}, required: [message]}
    output: {type: object, properties: {answer: {type: string}}, required: [answer]}
    timeout: 10m
    loop:
      model: %[1]s
      max_turns: %d
      system: %q
      approve: [%s]
`, name, maxTurns, scenario.System(), scenario.GatedTool)
	}
	return capabilities.Parse("agentos.yaml", []byte(b.String()), dir)
}

// scripted is a model without latency: it asks for one tool, and answers once it
// sees a result.
type scripted struct{ call, answer json.RawMessage }

func newScripted(tool string) scripted {
	return scripted{call: scenario.Asks(tool), answer: scenario.Says(scenario.Answer)}
}

// Complete answers a request.
func (s scripted) Complete(_ context.Context, body json.RawMessage) (json.RawMessage, error) {
	if bytes.Contains(body, []byte(`"role":"tool"`)) {
		return s.answer, nil
	}
	return s.call, nil
}

// talker is a model that asks for a tool until it is asked for the last time, for
// one run at a time.
type talker struct {
	turns        atomic.Int64
	last         int
	call, answer json.RawMessage
	// at is told the number of each request before it is answered: what the turns
	// before wrote is durable then.
	at func(turn int) error
}

func newTalker() *talker {
	return &talker{call: scenario.Asks(scenario.FreeTool), answer: scenario.Says("Done.")}
}

// Complete answers a request.
func (t *talker) Complete(_ context.Context, _ json.RawMessage) (json.RawMessage, error) {
	n := int(t.turns.Add(1))
	if err := t.at(n); err != nil {
		return nil, err
	}
	if n >= t.last {
		return t.answer, nil
	}
	return t.call, nil
}

// providers are the models by name. talk may be nil where no long run is made.
func providers(talk *talker) map[string]gateway.Provider {
	p := map[string]gateway.Provider{
		lookup: newScripted(scenario.FreeTool), approve: newScripted(scenario.GatedTool), stuck: newScripted(scenario.WaitTool),
	}
	if talk != nil {
		p[long] = talk
	}
	return p
}
