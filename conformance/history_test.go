package conformance

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestCheckHistory(t *testing.T) {
	t.Parallel()
	const (
		user  = `{"role":"user","content":"x"}`
		two   = `{"role":"assistant","content":null,"tool_calls":[{"id":"a"},{"id":"b"}]}`
		toolA = `{"role":"tool","tool_call_id":"a","content":"1"}`
		toolB = `{"role":"tool","tool_call_id":"b","content":[]}`
		said  = `{"role":"assistant","content":"done"}`
	)
	for name, test := range map[string]struct {
		messages []string
		want     string // "" when the history is valid
	}{
		"plain":           {[]string{`{"role":"system","content":"s"}`, user}, ""},
		"two calls":       {[]string{user, two, toolA, toolB, said, user}, ""},
		"no calls":        {[]string{user, `{"role":"assistant","content":"","tool_calls":null}`, user}, ""},
		"empty calls":     {[]string{user, `{"role":"assistant","content":"","tool_calls":[]}`, user}, ""},
		"older kind":      {[]string{user, `{"role":"assistant","function_call":{"name":"f"}}`, `{"role":"function","name":"f","content":"1"}`}, ""},
		"other order":     {[]string{user, two, toolB, toolA}, `message 3: a result for "b" where that of "a" belongs`},
		"missing":         {[]string{user, two, toolA}, `the call "b" has no result`},
		"in between":      {[]string{user, two, toolA, user, toolB}, `message 4: a user message before the result`},
		"twice":           {[]string{user, two, toolA, toolB, toolB}, `message 5: a tool message that answers no call`},
		"repeated id":     {[]string{user, `{"role":"assistant","tool_calls":[{"id":"a"},{"id":"a"}]}`}, `repeated id "a"`},
		"no id":           {[]string{user, `{"role":"assistant","tool_calls":[{}]}`}, `missing or repeated id ""`},
		"no content":      {[]string{user, two, `{"role":"tool","tool_call_id":"a","content":null}`}, `has no content`},
		"calls no list":   {[]string{user, `{"role":"assistant","tool_calls":{}}`}, `tool_calls: expected an array`},
		"odd role":        {[]string{user, `{"role":"robot"}`}, `role "robot"`},
		"nobody asked":    {[]string{said}, `no user message`},
		"wrong function":  {[]string{user, `{"role":"assistant","function_call":{"name":"f"}}`, toolA}, `a tool message before the result`},
		"no conversation": {nil, `no user message`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := CheckHistory(json.RawMessage(`{"messages":[` + strings.Join(test.messages, ",") + `]}`))
			if test.want == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %s", err, test.want)
			}
		})
	}
	for _, request := range []string{``, `{}`, `{"messages":5}`, `{"messages":[],"messages":[]}`} {
		if CheckHistory(json.RawMessage(request)) == nil {
			t.Errorf("%q passes", request)
		}
	}
}

func FuzzCheckHistory(f *testing.F) {
	f.Add([]byte(`{"messages":[{"role":"user"},{"role":"assistant","tool_calls":[{"id":"a"}]},{"role":"tool","tool_call_id":"a","content":""}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if CheckHistory(data) == nil && !json.Valid(data) {
			t.Error("passes and is no JSON")
		}
	})
}

func TestSubset(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ want, got, fault string }{
		{`{"a":1}`, `{"b":2,"a":1}`, ""},
		{`{"a":{"b":[{"c":1},2]}}`, `{"a":{"x":0,"b":[{"c":1,"d":1},2]}}`, ""},
		{`{}`, `{"a":1}`, ""},
		{`null`, `null`, ""},
		{`9007199254740993`, `9007199254740992`, "the value is 9007199254740992, not 9007199254740993"},
		{`{"a":1}`, `{"a":1.0}`, "/a is 1.0, not 1"},
		{`{"a":1}`, `{}`, "/a is missing"},
		{`{"a":{"b":1}}`, `{"a":{"b":"1"}}`, `/a/b is "1", not 1`},
		{`[1]`, `[1,2]`, "the value is [1,2], not [1]"},
		{`[1,{"a":2}]`, `[1,{"a":3}]`, "/1/a is 3, not 2"},
		{`{"a":1}`, `[]`, `the value is [], not {"a":1}`},
		{`{"a":1}`, ``, `the value is nothing, not {"a":1}`},
	} {
		if fault := subset(json.RawMessage(test.want), json.RawMessage(test.got)); fault != test.fault {
			t.Errorf("subset(%s, %s) = %q, want %q", test.want, test.got, fault, test.fault)
		}
	}
}
