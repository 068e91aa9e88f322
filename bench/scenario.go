package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"

	"agentos/capabilities"
	"agentos/gateway"
	"agentos/internal/rawjson"
)

// The conversation: with the model's tool call some 4 KB of JSON.
const (
	systemChars = 2000
	userChars   = 1747
)

// The capabilities of the agent; each has a model of the same name.
const (
	lookup  = "lookup"
	approve = "approve"
	long    = "long"
)

// maxTurns is how many model calls a run may make.
const maxTurns = 1000

// words returns n characters of made-up words. They are the same for a seed and
// do not repeat, so that a store which compresses shows no better than it is.
func words(seed uint64, n int) string {
	r := rand.New(rand.NewPCG(seed, 1))
	var b strings.Builder
	for b.Len() < n {
		for range 2 + r.IntN(8) {
			b.WriteByte(byte('a' + r.IntN(26)))
		}
		b.WriteByte(' ')
	}
	return b.String()[:n-1] + "."
}

// input is what every run is started with.
func input() json.RawMessage {
	return rawjson.Object([]rawjson.Field{{Name: "message", Value: rawjson.Quote(words(2, userChars))}})
}

// manifest is the agent: one MCP server, which is this program, and three
// capabilities.
func manifest(self, dir string) (*capabilities.Agent, error) {
	var b strings.Builder
	fmt.Fprintf(&b, "name: bench\nmcp_servers:\n  orders:\n    command: [%q, %s]\n    effects: {read: [%s]}\n", self, toolCommand, freeTool)
	fmt.Fprintf(&b, "config:\n  models: {%s: %[1]s/m, %s: %[2]s/m, %s: %[3]s/m}\ncapabilities:\n", lookup, approve, long)
	for _, name := range []string{lookup, approve, long} {
		fmt.Fprintf(&b, `  %s:
    input: {type: object, properties: {message: {type: string}}, required: [message]}
    output: {type: object, properties: {answer: {type: string}}, required: [answer]}
    timeout: 10m
    loop:
      model: %[1]s
      max_turns: %d
      system: %q
      approve: [%s]
`, name, maxTurns, words(1, systemChars), gatedTool)
	}
	return capabilities.Parse("agentos.yaml", []byte(b.String()), dir)
}

// scripted is a model without latency: it asks for one tool, and answers once it
// sees a result.
type scripted struct{ call, answer json.RawMessage }

func newScripted(tool string) scripted {
	return scripted{call: asks(tool), answer: says("Your order A-1002 is taken care of.")}
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
	p := map[string]gateway.Provider{lookup: newScripted(freeTool), approve: newScripted(gatedTool)}
	if talk != nil {
		p[long] = talk
	}
	return p
}

func asks(tool string) json.RawMessage {
	return json.RawMessage(`{"model":"m","choices":[{"index":0,"finish_reason":"tool_calls","message":{"role":"assistant","content":null,` +
		`"tool_calls":[{"id":"call_x","type":"function","function":{"name":"` + tool + `","arguments":"{\"order_id\":\"A-1002\"}"}}]}}],` +
		`"usage":{"prompt_tokens":1000,"completion_tokens":20,"total_tokens":1020}}`)
}

func says(text string) json.RawMessage {
	return json.RawMessage(`{"model":"m","choices":[{"index":0,"finish_reason":"stop","message":{"role":"assistant","content":` +
		string(rawjson.Quote(text)) + `}}],"usage":{"prompt_tokens":1050,"completion_tokens":12,"total_tokens":1062}}`)
}
