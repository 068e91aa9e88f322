// Package scenario is what every system of the benchmark is given: the
// conversation, what the model answers, and the tool. The model and the tool take
// no time, so that what is measured is the system between them.
//
//	lookup    start -> the model asks for lookup_order -> it runs -> the model answers
//	approve   start -> the model asks for cancel_order -> held; approve -> it runs -> the model answers
package scenario

import (
	"encoding/json"
	"math/rand/v2"
	"strings"

	"agentos/internal/rawjson"
)

// The two kinds of run.
const (
	Lookup  = "lookup"
	Approve = "approve"
)

// Lengths of the two messages that a run starts with, in characters: with the
// model's tool call some 4 KB of JSON.
const (
	SystemChars = 2000
	UserChars   = 1747
)

// Words returns n characters of made-up words. They are the same for a seed and
// do not repeat, so that a store which compresses shows no better than it is.
func Words(seed uint64, n int) string {
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

// System is the system message.
func System() string { return Words(1, SystemChars) }

// User is the message of the user.
func User() string { return Words(2, UserChars) }

// Answer is what the model says when it has seen the tool's result.
const Answer = "Your order A-1002 is taken care of."

// Asks is the response of the model that asks for one call of tool.
func Asks(tool string) json.RawMessage {
	return json.RawMessage(`{"model":"m","choices":[{"index":0,"finish_reason":"tool_calls","message":{"role":"assistant","content":null,` +
		`"tool_calls":[{"id":"call_x","type":"function","function":{"name":"` + tool + `","arguments":"{\"order_id\":\"A-1002\"}"}}]}}],` +
		`"usage":{"prompt_tokens":1000,"completion_tokens":20,"total_tokens":1020}}`)
}

// Says is the response of the model that ends a run with text.
func Says(text string) json.RawMessage {
	return json.RawMessage(`{"model":"m","choices":[{"index":0,"finish_reason":"stop","message":{"role":"assistant","content":` +
		string(rawjson.Quote(text)) + `}}],"usage":{"prompt_tokens":1050,"completion_tokens":12,"total_tokens":1062}}`)
}
