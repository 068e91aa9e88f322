package gateway_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"agentos/gateway"
	"agentos/internal/problem"
	"agentos/internal/rawjson"
)

func choice(message, reason string) string {
	return `{"choices":[{"index":0,"message":` + message + `,"finish_reason":` + reason + `}]}`
}

const oneCall = `"tool_calls":[{"id":"x","type":"function","function":{"name":"f","arguments":"{}"}}]`

func TestParseReplyReads(t *testing.T) {
	t.Parallel()
	call := []gateway.ToolCall{{ID: "x", Name: "f", Arguments: json.RawMessage(`"{}"`)}}
	tests := map[string]struct {
		message, reason string
		want            gateway.Reply // Message is compared with message
	}{
		"text":                     {`{"role":"assistant","content":"hi"}`, `"stop"`, gateway.Reply{Content: "hi", FinishReason: "stop"}},
		"empty text":               {`{"role":"assistant","content":""}`, `"stop"`, gateway.Reply{FinishReason: "stop"}},
		"null text":                {`{"role":"assistant","content":null}`, `"stop"`, gateway.Reply{FinishReason: "stop"}},
		"no parts":                 {`{"role":"assistant","content":[]}`, `"stop"`, gateway.Reply{FinishReason: "stop"}},
		"calls with stop":          {`{"role":"assistant","content":null,` + oneCall + `}`, `"stop"`, gateway.Reply{Calls: call, FinishReason: "stop"}},
		"calls with tool_calls":    {`{"role":"assistant","content":"",` + oneCall + `}`, `"tool_calls"`, gateway.Reply{Calls: call, FinishReason: "tool_calls"}},
		"calls without content":    {`{"role":"assistant",` + oneCall + `}`, `"function_call"`, gateway.Reply{Calls: call, FinishReason: "function_call"}},
		"calls with null reason":   {`{"role":"assistant",` + oneCall + `}`, `null`, gateway.Reply{Calls: call}},
		"calls with odd reason":    {`{"role":"assistant",` + oneCall + `}`, `"eos"`, gateway.Reply{Calls: call, FinishReason: "eos"}},
		"calls beside text":        {`{"role":"assistant","content":"a",` + oneCall + `}`, `"stop"`, gateway.Reply{Content: "a", Calls: call, FinishReason: "stop"}},
		"tool_calls null":          {`{"role":"assistant","content":"a","tool_calls":null}`, `"stop"`, gateway.Reply{Content: "a", FinishReason: "stop"}},
		"tool_calls empty":         {`{"role":"assistant","content":"a","tool_calls":[]}`, `"tool_calls"`, gateway.Reply{Content: "a", FinishReason: "tool_calls"}},
		"parts are joined":         {`{"role":"assistant","content":[{"type":"text","text":"a"},{"type":"image_url"},{"type":"text","text":"b"}]}`, `"stop"`, gateway.Reply{Content: "ab", FinishReason: "stop"}},
		"refusal":                  {`{"role":"assistant","content":null,"refusal":"no"}`, `"stop"`, gateway.Reply{Refusal: "no", FinishReason: "stop"}},
		"refusal null":             {`{"role":"assistant","content":"a","refusal":null}`, `"stop"`, gateway.Reply{Content: "a", FinishReason: "stop"}},
		"refusal as part":          {`{"role":"assistant","content":[{"type":"refusal","refusal":"no"}]}`, `"stop"`, gateway.Reply{Refusal: "no", FinishReason: "stop"}},
		"unknown members":          {`{"role":"assistant","content":"a","reasoning_content":"r","annotations":[],"n":12345678901234567890}`, `"stop"`, gateway.Reply{Content: "a", FinishReason: "stop"}},
		"no role":                  {`{"content":"a"}`, `"stop"`, gateway.Reply{Content: "a", FinishReason: "stop"}},
		"id empty, null and odd":   {`{"role":"assistant","tool_calls":[{"id":"","function":{"name":"f"}},{"id":null,"function":{"name":"f"}},{"id":7,"function":{"name":"f"}}]}`, `null`, gateway.Reply{Calls: []gateway.ToolCall{{Name: "f"}, {Name: "f"}, {Name: "f"}}}},
		"same id, model's order":   {`{"role":"assistant","tool_calls":[{"id":"d","function":{"name":"a"}},{"id":"d","function":{"name":"b"}}]}`, `null`, gateway.Reply{Calls: []gateway.ToolCall{{ID: "d", Name: "a"}, {ID: "d", Name: "b"}}}},
		"bare object as arguments": {`{"role":"assistant","tool_calls":[{"id":"d","function":{"name":"a","arguments":{"n":1.0}}}]}`, `null`, gateway.Reply{Calls: []gateway.ToolCall{{ID: "d", Name: "a", Arguments: json.RawMessage(`{"n":1.0}`)}}}},
		"call without function":    {`{"role":"assistant","tool_calls":[{"id":"d","type":"custom","custom":{"name":"a"}}]}`, `null`, gateway.Reply{Calls: []gateway.ToolCall{{ID: "d"}}}},
		"function_call":            {`{"role":"assistant","content":null,"function_call":{"name":"f","arguments":"{}"}}`, `"function_call"`, gateway.Reply{Calls: []gateway.ToolCall{{Name: "f", Arguments: json.RawMessage(`"{}"`)}}, FinishReason: "function_call"}},
		"function_call repeated":   {`{"role":"assistant",` + oneCall + `,"function_call":{"name":"f","arguments":"{}"}}`, `null`, gateway.Reply{Calls: call}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := gateway.ParseReply(json.RawMessage(choice(tt.message, tt.reason)))
			if err != nil {
				t.Fatal(err)
			}
			tt.want.Message = json.RawMessage(tt.message)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestParseReplyFails(t *testing.T) {
	t.Parallel()
	big := make([]string, 1001)
	for i := range big {
		big[i] = `{}`
	}
	tests := map[string]struct {
		body string
		code problem.Code
		says string
	}{
		"embedded 502":          {`{"error":{"message":"overloaded","code":502},"choices":null}`, problem.ModelUnavailable, "overloaded"},
		"embedded 429 as text":  {`{"error":{"message":"slow","code":"429"}}`, problem.ModelUnavailable, "slow"},
		"embedded word":         {`{"error":{"message":"slow","type":"overloaded_error"}}`, problem.ModelUnavailable, "slow"},
		"embedded in choice":    {`{"choices":[{"error":{"code":429,"message":"slow"},"finish_reason":"error","message":{"role":"assistant","content":""}}]}`, problem.ModelUnavailable, "slow"},
		"embedded 400":          {`{"error":{"message":"too long","code":400},"choices":[]}`, problem.ModelError, "too long"},
		"embedded, no code":     {`{"error":{"message":"bad"}}`, problem.ModelError, "bad"},
		"embedded as text":      {`{"error":"bad thing"}`, problem.ModelError, "bad thing"},
		"error beside choices":  {`{"error":{"message":"bad"},"choices":[{"message":{"role":"assistant","content":"a"}}]}`, problem.ModelError, "bad"},
		"finish_reason error":   {choice(`{"role":"assistant","content":""}`, `"error"`), problem.ModelError, "error"},
		"choices empty":         {`{"choices":[]}`, problem.ModelError, "no choices"},
		"choices null":          {`{"choices":null}`, problem.ModelError, "no choices"},
		"choices an object":     {`{"choices":{}}`, problem.ModelError, "no choices"},
		"choice null":           {`{"choices":[null]}`, problem.ModelError, "no message"},
		"empty object":          {`{}`, problem.ModelError, "no choices"},
		"null":                  {`null`, problem.ModelError, "JSON null"},
		"array":                 {`[]`, problem.ModelError, "JSON array"},
		"nothing":               {``, problem.ModelError, "empty"},
		"HTML":                  {`<html><body>Bad gateway</body></html>`, problem.ModelError, "Bad gateway"},
		"two values":            {`{}{}`, problem.ModelError, "after"},
		"message null":          {choice(`null`, `"stop"`), problem.ModelError, "no message"},
		"message a text":        {choice(`"hi"`, `"stop"`), problem.ModelError, "no message"},
		"message empty":         {choice(`{}`, `"stop"`), problem.ModelError, "neither"},
		"role only":             {choice(`{"role":"assistant"}`, `"stop"`), problem.ModelError, "neither"},
		"image only":            {choice(`{"role":"assistant","content":[{"type":"image_url"}]}`, `"stop"`), problem.ModelError, "neither"},
		"another role":          {choice(`{"role":"system","content":"obey"}`, `"stop"`), problem.ModelError, "role"},
		"role null":             {choice(`{"role":null,"content":"a"}`, `"stop"`), problem.ModelError, "role"},
		"content a number":      {choice(`{"role":"assistant","content":5}`, `"stop"`), problem.ModelError, "number"},
		"refusal a boolean":     {choice(`{"role":"assistant","refusal":true}`, `"stop"`), problem.ModelError, "refusal"},
		"tool_calls an object":  {choice(`{"role":"assistant","tool_calls":{"id":"x"}}`, `null`), problem.ModelError, "tool_calls"},
		"call null":             {choice(`{"role":"assistant","tool_calls":[null]}`, `null`), problem.ModelError, "tool_calls[0]"},
		"function_call a text":  {choice(`{"role":"assistant","function_call":"f"}`, `null`), problem.ModelError, "function_call"},
		"1001 calls":            {choice(`{"role":"assistant","tool_calls":[`+strings.Join(big, ",")+`]}`, `null`), problem.ModelError, "1001"},
		"name twice in message": {choice(`{"role":"assistant","content":"a","content":"b"}`, `"stop"`), problem.ModelError, "duplicate"},
		"name twice in call":    {choice(`{"role":"assistant","tool_calls":[{"function":{"name":"a","name":"b"}}]}`, `null`), problem.ModelError, "duplicate"},
		"lone surrogate":        {choice(`{"role":"assistant","content":"\ud800"}`, `"stop"`), problem.ModelError, "surrogate"},
		"invalid UTF-8":         {choice("{\"role\":\"assistant\",\"content\":\"\xff\"}", `"stop"`), problem.ModelError, "UTF-8"},
		"absurd number":         {choice(`{"role":"assistant","content":"a","n":1e5000000}`, `"stop"`), problem.ModelError, "exponent"},
		"deep":                  {strings.Repeat(`[`, 20000), problem.ModelError, "deep"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := gateway.ParseReply(json.RawMessage(tt.body))
			if problem.CodeOf(err) != tt.code || !strings.Contains(problem.From(err).Message, tt.says) {
				t.Errorf("got %v, %v; want %s saying %q", got, err, tt.code, tt.says)
			}
			if got.Message != nil {
				t.Errorf("a reply came with the error: %s", got.Message)
			}
		})
	}
}

func TestParseReplyTooLong(t *testing.T) {
	t.Parallel()
	body := choice(`{"role":"assistant","content":"`+strings.Repeat("a", gateway.MaxBody)+`"}`, `"stop"`)
	if _, err := gateway.ParseReply(json.RawMessage(body)); problem.CodeOf(err) != problem.ModelError {
		t.Errorf("got %v, want model_error", err)
	}
}

func TestParseReplyManyParts(t *testing.T) {
	t.Parallel()
	const n = 100_000
	parts := strings.TrimSuffix(strings.Repeat(`{"type":"text","text":"abc"},`, n), ",")
	reply, err := gateway.ParseReply(json.RawMessage(choice(`{"role":"assistant","content":[`+parts+`]}`, `"stop"`)))
	if err != nil || len(reply.Content) != 3*n {
		t.Errorf("got %d bytes, %v", len(reply.Content), err)
	}
}

func TestParseReplyUsage(t *testing.T) {
	t.Parallel()
	tests := []struct {
		usage string
		want  *gateway.Usage
	}{
		{`{"prompt_tokens":3,"completion_tokens":4,"total_tokens":7}`, &gateway.Usage{InputTokens: 3, OutputTokens: 4, TotalTokens: 7}},
		{`{"prompt_tokens":3,"completion_tokens":4,"total_tokens":17}`, &gateway.Usage{InputTokens: 3, OutputTokens: 4, TotalTokens: 17}},
		{`{"prompt_tokens":3,"completion_tokens":4}`, &gateway.Usage{InputTokens: 3, OutputTokens: 4, TotalTokens: 7}},
		{`{"prompt_tokens":3,"completion_tokens":4,"total_tokens":null}`, &gateway.Usage{InputTokens: 3, OutputTokens: 4, TotalTokens: 7}},
		{`{"prompt_tokens":0,"completion_tokens":0,"total_tokens":0}`, &gateway.Usage{}},
		{`null`, nil},
		{`{}`, nil},
		{`[]`, nil},
		{`{"prompt_tokens":3}`, nil},
		{`{"prompt_tokens":-3,"completion_tokens":4}`, nil},
		{`{"prompt_tokens":3.5,"completion_tokens":4}`, nil},
		{`{"prompt_tokens":"3","completion_tokens":4}`, nil},
		{`{"prompt_tokens":9223372036854775807,"completion_tokens":1}`, nil},
		{`{"prompt_tokens":92233720368547758070,"completion_tokens":1}`, nil},
	}
	for _, tt := range tests {
		body := `{"usage":` + tt.usage + `,"choices":[{"message":{"role":"assistant","content":"a"}}]}`
		got, err := gateway.ParseReply(json.RawMessage(body))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(tt.want, got.Usage); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.usage, diff)
		}
	}
}

func TestReplyCut(t *testing.T) {
	t.Parallel()
	for reason, want := range map[string]bool{"length": true, "content_filter": true, "stop": false, "tool_calls": false, "": false, "eos": false} {
		if got := (gateway.Reply{FinishReason: reason}).Cut(); got != want {
			t.Errorf("%q: got %v", reason, got)
		}
	}
}

func FuzzParseReply(f *testing.F) {
	f.Add(choice(`{"role":"assistant","content":[{"type":"text","text":"a"}],`+oneCall+`}`, `"stop"`))
	f.Add(`{"error":{"message":"overloaded","code":502},"choices":null}`)
	f.Add(choice(`{"function_call":{"name":"f"}}`, `null`))
	f.Add(`{"choices":[{"error":{"code":429},"message":null}],"usage":{"prompt_tokens":1,"completion_tokens":2}}`)
	f.Fuzz(func(t *testing.T, body string) {
		reply, err := gateway.ParseReply(json.RawMessage(body))
		if err != nil {
			if c := problem.CodeOf(err); c != problem.ModelError && c != problem.ModelUnavailable {
				t.Fatalf("code %s", c)
			}
			return
		}
		if err := rawjson.Check(reply.Message); err != nil || rawjson.Kind(reply.Message) != "object" {
			t.Fatalf("accepted the message %s: %v", reply.Message, err)
		}
		if !strings.Contains(body, string(reply.Message)) {
			t.Fatalf("message %s is not part of the body", reply.Message)
		}
		if len(reply.Calls) == 0 && reply.Content == "" && reply.Refusal == "" && rawjson.Get(reply.Message, "content") == nil {
			t.Fatalf("an answer out of nothing: %s", body)
		}
		again, err := gateway.ParseReply(json.RawMessage(fmt.Sprintf(`{"choices":[{"message":%s}]}`, reply.Message)))
		if err != nil || !cmp.Equal(again.Calls, reply.Calls) || again.Content != reply.Content {
			t.Fatalf("the message alone reads as %+v, %v", again, err)
		}
	})
}
