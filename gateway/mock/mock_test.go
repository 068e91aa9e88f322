package mock_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"agentos/gateway"
	"agentos/gateway/mock"
	"agentos/internal/problem"
	"agentos/internal/rawjson"
)

// pauseClock passes pauses at once and reports them.
type pauseClock struct{ pauses chan time.Duration }

func (pauseClock) Now() time.Time { return time.Unix(0, 0) }

func (c pauseClock) After(d time.Duration) <-chan time.Time {
	c.pauses <- d
	ch := make(chan time.Time, 1)
	ch <- time.Unix(0, 0)
	return ch
}

// stuckClock never passes a pause; it calls waiting when one begins.
type stuckClock struct{ waiting func() }

func (stuckClock) Now() time.Time { return time.Unix(0, 0) }

func (c stuckClock) After(time.Duration) <-chan time.Time {
	c.waiting()
	return nil
}

func newMock(t *testing.T) *mock.Provider {
	t.Helper()
	p, err := mock.New(mock.Config{Clock: pauseClock{make(chan time.Duration, 100)}})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func message(role, content string) json.RawMessage {
	return rawjson.Object([]rawjson.Field{{Name: "role", Value: rawjson.Quote(role)}, {Name: "content", Value: rawjson.Quote(content)}})
}

func toolMessage(id, content string) json.RawMessage {
	return rawjson.Object([]rawjson.Field{
		{Name: "role", Value: rawjson.Quote("tool")},
		{Name: "tool_call_id", Value: rawjson.Quote(id)},
		{Name: "content", Value: rawjson.Quote(content)},
	})
}

func request(messages []json.RawMessage, extra string) json.RawMessage {
	parts := make([]string, len(messages))
	for i, m := range messages {
		parts[i] = string(m)
	}
	return json.RawMessage(`{"model":"m","messages":[` + strings.Join(parts, ",") + `]` + extra + `}`)
}

// ask returns the reply to the messages.
func ask(t *testing.T, p gateway.Provider, extra string, messages ...json.RawMessage) gateway.Reply {
	t.Helper()
	body, err := p.Complete(t.Context(), request(messages, extra))
	if err != nil {
		t.Fatal(err)
	}
	reply, err := gateway.ParseReply(body)
	if err != nil {
		t.Fatalf("%v: %s", err, body)
	}
	return reply
}

// said is a reply in short: its text and its calls.
type said struct {
	Content string
	Calls   []string
}

func short(r gateway.Reply) said {
	s := said{Content: r.Content}
	for _, c := range r.Calls {
		args, err := gateway.ParseArguments(c.Arguments)
		if err != nil {
			args = json.RawMessage(err.Error())
		}
		s.Calls = append(s.Calls, c.ID+" "+c.Name+" "+string(args))
	}
	return s
}

func TestDirectives(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		user string
		want said
	}{
		"echo":                   {"hello, then bye", said{Content: "hello, then bye"}},
		"empty":                  {"", said{}},
		"call":                   {`call:lookup_order {"order_id": "A-1001"}`, said{Calls: []string{`call_1 lookup_order {"order_id": "A-1001"}`}}},
		"exact arguments":        {`call:f {"n":12345678901234567890,"f":1.0,"s":"\u0000 then call:x {"}`, said{Calls: []string{`call_1 f {"n":12345678901234567890,"f":1.0,"s":"\u0000 then call:x {"}`}}},
		"no arguments":           {"call:list", said{Calls: []string{`call_1 list {}`}}},
		"within a sentence":      {`Please call:lookup, and call:cancel.`, said{Calls: []string{`call_1 lookup {}`, `call_2 cancel {}`}}},
		"several":                {`call:a {"x":1} call:a {"x":1}call:b`, said{Calls: []string{`call_1 a {"x":1}`, `call_2 a {"x":1}`, `call_3 b {}`}}},
		"dots and dashes":        {"call:mcp__a__b call:orders.get-one", said{Calls: []string{`call_1 mcp__a__b {}`, `call_2 orders.get-one {}`}}},
		"say":                    {"say:hello, {world}! ", said{Content: "hello, {world}! "}},
		"say is not a directive": {"as they say: hello", said{Content: "as they say: hello"}},
		"recall is another word": {"recall:x and un-call:y", said{Content: "recall:x and un-call:y"}},
		"say beside calls":       {"call:a say:one moment", said{Content: "one moment", Calls: []string{`call_1 a {}`}}},
		"say takes the rest":     {"say:do call:a", said{Content: "do call:a"}},
		"then within say":        {"say:first this then that", said{Content: "first this then that"}},
		"say then":               {"say:first\n then  call:a", said{Content: "first"}},
		"raw":                    {`raw:{"role":"assistant","content":[{"type":"text","text":"x"}]}`, said{Content: "x"}},
		"raw odd calls":          {`raw:{"role":"assistant","tool_calls":[{"id":"d","function":{"name":"a","arguments":""}},{"id":"d","function":{"name":"b"}}]}`, said{Calls: []string{`d a {}`, `d b {}`}}},
		"slow":                   {"slow:1s call:a", said{Calls: []string{`call_1 a {}`}}},
		"slow echo":              {"slow:1s hello", said{Content: "slow:1s hello"}},
		"input as JSON":          {`{"n":1,"note":"x","message":"call:a {\"b\":\"c\"}"}`, said{Calls: []string{`call_1 a {"b":"c"}`}}},
		"JSON without":           {`{"n":1}`, said{Content: `{"n":1}`}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := short(ask(t, newMock(t), "", message("system", "call:never"), message("user", tt.user)))
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestRefusedDirectives(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		user string
		code problem.Code
		says string
	}{
		"fail 503":          {"fail:503", problem.ModelUnavailable, "503"},
		"fail 401":          {"fail:401 call:a", problem.ModelError, "401"},
		"fail 200":          {"fail:200", problem.ModelError, "400 to 599"},
		"fail word":         {"fail:hard", problem.ModelError, "400 to 599"},
		"arguments cut":     {`call:a {"b":`, problem.ModelError, "no JSON"},
		"raw prose":         {"raw:hello", problem.ModelError, "no JSON"},
		"slow word":         {"slow:ly", problem.ModelError, "duration"},
		"slow too long":     {"slow:11m", problem.ModelError, "duration"},
		"slow back in time": {"slow:-1s", problem.ModelError, "duration"},
		"call nothing":      {"call:{}", problem.ModelError, "name of a tool"},
		"in a later step":   {"say:x then fail:now", problem.ModelError, "400 to 599"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := newMock(t).Complete(t.Context(), request([]json.RawMessage{message("user", tt.user)}, ""))
			if problem.CodeOf(err) != tt.code || !strings.Contains(problem.From(err).Message, tt.says) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// converse answers each call with a text that names it until the model calls no
// more, and returns all it said.
func converse(t *testing.T, history ...json.RawMessage) (all []said, _ []json.RawMessage) {
	t.Helper()
	p := newMock(t)
	for range 10 {
		reply := ask(t, p, "", history...)
		all = append(all, short(reply))
		history = append(history, reply.Message)
		for _, c := range reply.Calls {
			history = append(history, toolMessage(c.ID, "result of "+c.Name))
		}
		if len(reply.Calls) == 0 {
			return all, history
		}
	}
	t.Fatalf("no end: %v", all)
	return nil, nil
}

func TestConversations(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		user string
		want []said
	}{
		"results are answered": {"call:a call:b", []said{{Calls: []string{"call_1 a {}", "call_2 b {}"}}, {Content: "result of a\nresult of b"}}},
		"steps": {`call:a {"x":1} then call:b say:wait then call:c call:d then say:done`, []said{
			{Calls: []string{`call_1 a {"x":1}`}},
			{Content: "wait", Calls: []string{"call_2 b {}"}},
			{Calls: []string{"call_3 c {}", "call_4 d {}"}},
			{Content: "done"},
		}},
		"slow step answers results": {"call:a\nthen\nslow:1ms", []said{{Calls: []string{"call_1 a {}"}}, {Content: "result of a"}}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, _ := converse(t, message("user", tt.user))
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestScriptsGoOnAfterCorrections(t *testing.T) {
	t.Parallel()
	history := []json.RawMessage{message("user", `say:prose then say:{"a": then say:{"a":1}`)}
	for _, want := range []string{"prose", `{"a":`, `{"a":1}`, "correct it"} {
		reply := ask(t, newMock(t), `,"response_format":{"type":"json_schema","json_schema":{"name":"x","schema":{}}}`, history...)
		if reply.Content != want {
			t.Errorf("got %q, want %q", reply.Content, want)
		}
		history = append(history, reply.Message, message("user", "correct it"))
	}
}

func TestNextUserMessageBeginsAnew(t *testing.T) {
	t.Parallel()
	_, history := converse(t, message("user", "call:a"))
	got, _ := converse(t, append(history, message("user", "call:b then say:end"))...)
	want := []said{{Calls: []string{"call_1 b {}"}}, {Content: "end"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestContentAsParts(t *testing.T) {
	t.Parallel()
	got := ask(t, newMock(t), "", json.RawMessage(`{"role":"user","content":[{"type":"text","text":"call:"},{"type":"image_url"},{"type":"text","text":"a"}]}`))
	if diff := cmp.Diff(said{Calls: []string{"call_1 a {}"}}, short(got)); diff != "" {
		t.Error(diff)
	}
}

func TestSlowWaitsOnTheClock(t *testing.T) {
	t.Parallel()
	pauses := make(chan time.Duration, 1)
	p, err := mock.New(mock.Config{Clock: pauseClock{pauses}})
	if err != nil {
		t.Fatal(err)
	}
	ask(t, p, "", message("user", "slow:90s slow:500ms say:x"))
	if got := <-pauses; got != 90500*time.Millisecond {
		t.Errorf("waited %s", got)
	}
}

func TestContextEndsSlow(t *testing.T) {
	t.Parallel()
	cause := errors.New("lease lost")
	ctx, cancel := context.WithCancelCause(t.Context())
	p, err := mock.New(mock.Config{Clock: stuckClock{func() { cancel(cause) }}})
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"slow:10m", "hello"} {
		if _, err := p.Complete(ctx, request([]json.RawMessage{message("user", text)}, "")); !errors.Is(err, cause) {
			t.Errorf("%s: got %v", text, err)
		}
	}
}

func TestSameRequestSameAnswer(t *testing.T) {
	t.Parallel()
	body := request([]json.RawMessage{message("user", "call:a")}, "")
	first, err := newMock(t).Complete(t.Context(), body)
	if err != nil {
		t.Fatal(err)
	}
	second, err := newMock(t).Complete(t.Context(), body)
	if err != nil || string(first) != string(second) {
		t.Errorf("%s, %v\ndiffers from\n%s", second, err, first)
	}
	reply, err := gateway.ParseReply(first)
	if err != nil {
		t.Fatal(err)
	}
	want := &gateway.Usage{InputTokens: int64(len(body)/4 + 1), OutputTokens: int64(len(reply.Message)/4 + 1)}
	want.TotalTokens = want.InputTokens + want.OutputTokens
	if diff := cmp.Diff(want, reply.Usage); diff != "" || reply.FinishReason != "tool_calls" {
		t.Errorf("%s%s", diff, reply.FinishReason)
	}
}

func TestRefusedRequests(t *testing.T) {
	t.Parallel()
	const calls = `{"role":"assistant","tool_calls":[{"id":"a"},{"id":"b"}]}`
	tool := func(id string) string { return string(toolMessage(id, "r")) }
	user := string(message("user", "hi"))
	tests := map[string]struct{ messages, extra, says string }{
		"no messages":            {``, ``, "at least one"},
		"odd role":               {`{"role":"robot","content":"x"}`, ``, "role"},
		"no message":             {`5`, ``, "role"},
		"stream":                 {user, `,"stream":true`, "stream"},
		"empty tools":            {user, `,"tools":[]`, "tools"},
		"tool without name":      {user, `,"tools":[{"type":"function"}]`, "tools[0]"},
		"tool twice":             {user, `,"tools":[{"function":{"name":"a"}},{"function":{"name":"a"}}]`, "tools[1]"},
		"name twice":             {user, `,"model":"n"`, "duplicate"},
		"answer missing":         {calls + "," + tool("a"), ``, "without a tool message: b"},
		"answers missing":        {calls, ``, "a, b"},
		"missing before user":    {calls + "," + tool("a") + "," + user, ``, "b"},
		"answer twice":           {calls + "," + tool("a") + "," + tool("a"), ``, "messages[2]"},
		"answer without a call":  {user + "," + tool("a"), ``, "messages[1]"},
		"answer to an old call":  {calls + "," + tool("a") + "," + tool("b") + "," + user + "," + tool("a"), ``, "messages[4]"},
		"call id empty":          {`{"role":"assistant","tool_calls":[{"id":""}]},` + tool(""), ``, "empty"},
		"call id twice":          {`{"role":"assistant","tool_calls":[{"id":"a"},{"id":"a"}]},` + tool("a"), ``, "repeats"},
		"tool_calls not a list":  {`{"role":"assistant","tool_calls":{}}`, ``, "list"},
		"answers before another": {calls + "," + calls, ``, "a, b"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := newMock(t).Complete(t.Context(), json.RawMessage(`{"model":"m","messages":[`+tt.messages+`]`+tt.extra+`}`))
			if problem.CodeOf(err) != problem.ModelError || !strings.Contains(problem.From(err).Message, tt.says) {
				t.Errorf("got %v, want it to say %q", err, tt.says)
			}
		})
	}
	for name, messages := range map[string]string{
		"any order":      calls + "," + tool("b") + "," + tool("a"),
		"same ids again": calls + "," + tool("a") + "," + tool("b") + "," + calls + "," + tool("a") + "," + tool("b"),
		"older form":     user + `,{"role":"assistant","function_call":{"name":"f"}},{"role":"function","name":"f","content":"r"}`,
		"null calls":     user + `,{"role":"assistant","content":"x","tool_calls":null},` + user,
	} {
		if _, err := newMock(t).Complete(t.Context(), json.RawMessage(`{"model":"m","messages":[`+messages+`]}`)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestSentences(t *testing.T) {
	t.Parallel()
	const tools = `,"tools":[
		{"type":"function","function":{"name":"lookup_order","parameters":{"type":"object","properties":{"order_id":{"type":"string"}},"required":["order_id"]}}},
		{"type":"function","function":{"name":"cancel_order","parameters":{"type":"object","properties":{"order_id":{"type":"string"},"reason":{"type":"string"}},"required":["order_id","reason"]}}},
		{"type":"function","function":{"name":"merge_orders","parameters":{"properties":{"from_id":{"type":"string"},"to_id":{"type":"string"}},"required":["from_id","to_id"]}}},
		{"type":"function","function":{"name":"refund_order","parameters":{"properties":{"amount":{"type":"number"}},"required":["amount"]}}},
		{"type":"function","function":{"name":"rate_order","parameters":{"properties":{"stars":{"type":"string","enum":["1"]}},"required":["stars"]}}},
		{"type":"function","function":{"name":"move_order","parameters":{"properties":{"street":{"type":"string"},"town":{"type":"string"}},"required":["street","town"]}}},
		{"type":"function","function":{"name":"list_orders"}}]`
	tests := map[string][]string{
		"Please cancel order A-1002, I ordered it twice.": {`call_1 cancel_order {"order_id":"A-1002","reason":"I ordered it twice"}`},
		"Cancel my orders: A-7":                           {`call_1 cancel_order {"order_id":"A-7","reason":"Cancel my orders: A-7"}`},
		"Could you look up order A-1001?":                 {`call_1 lookup_order {"order_id":"A-1001"}`},
		"merge order A-1 into order B-22":                 {`call_1 merge_orders {"from_id":"A-1","to_id":"B-22"}`},
		"List all my orders":                              {`call_1 list_orders {}`},
		"Please cancel my order.":                         nil, // which one?
		"merge order A-1":                                 nil,
		"What is the status of order A-1?":                nil,
		"refund order A-1, 5 euros":                       nil, // a number cannot be filled
		"rate order A-1":                                  nil,
		"move order A-1 to Main Street":                   nil, // two texts
		"listen, orders":                                  {`call_1 list_orders {}`},
	}
	for sentence, want := range tests {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			got := short(ask(t, newMock(t), tools, message("user", sentence)))
			if diff := cmp.Diff(want, got.Calls); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if want == nil && got.Content != sentence {
				t.Errorf("got %q", got.Content)
			}
		})
	}
	t.Run("without tools", func(t *testing.T) {
		t.Parallel()
		if got := ask(t, newMock(t), "", message("user", "Please cancel order A-1002.")); len(got.Calls) != 0 {
			t.Errorf("got %+v", got)
		}
	})
	t.Run("not after a result", func(t *testing.T) {
		t.Parallel()
		got := ask(t, newMock(t), tools, message("user", "cancel order A-1"),
			json.RawMessage(`{"role":"assistant","tool_calls":[{"id":"x"}]}`), toolMessage("x", "cancel order A-2"))
		if diff := cmp.Diff(said{Content: "cancel order A-2"}, short(got)); diff != "" {
			t.Error(diff)
		}
	})
}

func TestHandler(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(mock.Handler(newMock(t)))
	t.Cleanup(srv.Close)
	hi := string(request([]json.RawMessage{message("user", "hi")}, ""))
	tests := []struct {
		method, path, body string
		status             int
		has                string
	}{
		{"POST", "/v1/chat/completions", hi, 200, `"content":"hi"`},
		{"POST", "/v1/chat/completions", strings.ReplaceAll(hi, `"hi"`, `"fail:429"`), 429, `"code":429`},
		{"POST", "/v1/chat/completions", `{`, 400, `"error":{"message":`},
		{"POST", "/v1/chat/completions", strings.Repeat(" ", gateway.MaxBody+1), 413, `"code":413`},
		{"GET", "/v1/models", "", 200, `"object":"list"`},
		{"GET", "/v1/chat/completions", "", 404, `"error"`},
		{"GET", "/other", "", 404, `"error"`},
	}
	for _, tt := range tests {
		req, err := http.NewRequestWithContext(t.Context(), tt.method, srv.URL+tt.path, strings.NewReader(tt.body))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := srv.Client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil || resp.StatusCode != tt.status || !strings.Contains(string(body), tt.has) || rawjson.Check(body) != nil {
			t.Errorf("%s %s: got %d %s, %v", tt.method, tt.path, resp.StatusCode, body, err)
		}
		if ct := resp.Header.Get("Content-Type"); ct != "application/json" {
			t.Errorf("%s %s: Content-Type %q", tt.method, tt.path, ct)
		}
	}
}

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	if _, err := mock.New(mock.Config{}); err == nil {
		t.Error("accepted without a clock")
	}
}

func FuzzDirectives(f *testing.F) {
	for _, seed := range []string{
		"hello", `call:a {"x":1} then call:b`, "say:x then say:y", `raw:{"role":"assistant","content":"x"}`, "fail:503", "slow:1s x",
		`{"m":"call:a {\"b\":1}"}`, "call:a{", "Please cancel order A-1, twice.", "then call:a then say:b",
	} {
		f.Add(seed)
	}
	const tools = `,"tools":[{"function":{"name":"cancel_order","parameters":{"properties":{"order_id":{"type":"string"},"reason":{"type":"string"}},"required":["order_id","reason"]}}}]`
	f.Fuzz(func(t *testing.T, text string) {
		p, err := mock.New(mock.Config{Clock: pauseClock{make(chan time.Duration, 1)}})
		if err != nil {
			t.Fatal(err)
		}
		body, err := p.Complete(t.Context(), request([]json.RawMessage{message("user", text)}, tools))
		if err != nil {
			if c := problem.CodeOf(err); c != problem.ModelError && c != problem.ModelUnavailable {
				t.Fatalf("code %s: %v", c, err)
			}
			return
		}
		if strings.Contains(text, "raw:") {
			return // it may answer anything
		}
		reply, err := gateway.ParseReply(body)
		if err != nil {
			t.Fatalf("%v: %s", err, body)
		}
		for _, c := range reply.Calls {
			arguments, ok := rawjson.Text(c.Arguments)
			if !ok || !json.Valid([]byte(arguments)) || c.Name == "" || c.ID == "" {
				t.Fatalf("call %+v", c)
			}
		}
	})
}
