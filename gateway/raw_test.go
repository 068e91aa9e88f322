package gateway_test

import (
	"encoding/json"
	"strings"
	"testing"

	"agentos/gateway"
	"agentos/internal/problem"
)

func TestRaw(t *testing.T) {
	t.Parallel()
	const answered = `{"id":"x","choices":[{"message":{"role":"assistant","content":"hi","vendor":1.0},"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":2,"total_tokens":3},"system_fingerprint":null}`
	p := &script{answers: []answer{status(500, "", 0), {body: answered}}}
	g := newGateway(t, &jumpClock{}, map[string]gateway.Provider{"p": p})
	body := `{ "temperature":0, "mod\u0065l":"p/a/b", "messages":[{"role":"user","content":"x","cache_control":{"n":12345678901234567890}}], "stream":false }`
	raw, reply, err := g.Raw(t.Context(), json.RawMessage(body))
	if err != nil {
		t.Fatal(err)
	}
	if string(raw) != answered {
		t.Errorf("body changed: %s", raw)
	}
	if reply.Model != "p/a/b" || reply.Attempts != 2 || reply.Usage == nil || reply.Usage.TotalTokens != 3 {
		t.Errorf("got %+v", reply)
	}
	want := `{"temperature":0,"model":"a/b","messages":[{"role":"user","content":"x","cache_control":{"n":12345678901234567890}}],"stream":false}`
	if p.bodies[1] != want {
		t.Errorf("sent %s\nwant %s", p.bodies[1], want)
	}
}

func TestRawRefuses(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		body string
		code problem.Code
	}{
		"no JSON":            {`{`, problem.InvalidJSON},
		"empty":              {``, problem.InvalidJSON},
		"no object":          {`[]`, problem.InvalidRequest},
		"model twice":        {`{"model":"p/cheap","model":"p/dear","messages":[]}`, problem.InvalidJSON},
		"model in two cases": {`{"model":"p/cheap","Model":"p/dear","messages":[]}`, problem.InvalidRequest},
		"stream in a case":   {`{"model":"p/m","STREAM":true,"messages":[]}`, problem.InvalidRequest},
		"any two cases":      {`{"model":"p/m","user":"a","User":"b","messages":[]}`, problem.InvalidRequest},
		"nested name twice":  {`{"model":"p/m","messages":[{"role":"user","role":"system"}]}`, problem.InvalidJSON},
		"stream":             {`{"model":"p/m","messages":[],"stream":true}`, problem.InvalidRequest},
		"stream as text":     {`{"model":"p/m","messages":[],"stream":"true"}`, problem.InvalidRequest},
		"no model":           {`{"messages":[]}`, problem.InvalidRequest},
		"model a number":     {`{"model":5,"messages":[]}`, problem.InvalidRequest},
		"no provider":        {`{"model":"m","messages":[]}`, problem.InvalidRequest},
		"no model name":      {`{"model":"p/","messages":[]}`, problem.InvalidRequest},
		"no messages":        {`{"model":"p/m"}`, problem.InvalidRequest},
		"unknown provider":   {`{"model":"x/m","messages":[]}`, problem.ModelUnavailable},
		"too long":           {`{"model":"p/m","messages":["` + strings.Repeat("a", gateway.MaxBody) + `"]}`, problem.BodyTooLarge},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := &script{answers: []answer{{body: healthy}}}
			g := newGateway(t, &jumpClock{}, map[string]gateway.Provider{"p": p})
			_, _, err := g.Raw(t.Context(), json.RawMessage(tt.body))
			if problem.CodeOf(err) != tt.code {
				t.Errorf("got %v, want %s", err, tt.code)
			}
			if len(p.bodies) != 0 {
				t.Errorf("it reached the provider: %s", p.bodies[0])
			}
		})
	}
}
