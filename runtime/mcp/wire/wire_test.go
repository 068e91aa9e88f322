package wire

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// B26, B30: what is a message and what is not.
func TestParse(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		`{"jsonrpc":"2.0","id":3,"result":{"a":1}}`:                       `answer 3 {"a":1}`,
		`{"result":{},"id":"3","jsonrpc":"2.0"}`:                          `answer "3" {}`,
		`{"jsonrpc":"2.0","id":3,"result":null}`:                          `answer 3 null`,
		`{"jsonrpc":"2.0","id":3,"result":{"a":1,"a":2}}`:                 `answer 3 {"a":1,"a":2}`,
		`{"jsonrpc":"2.0","id":3,"result":1,"error":null}`:                `answer 3 1`,
		`{"jsonrpc":"2.0","id":3,"error":{"code":-1,"message":"m"}}`:      `error 3 MCP error -1: m `,
		`{"jsonrpc":"2.0","error":{"code":-1.0,"message":5,"data":{}}}`:   `error  MCP error -1: 5 {}`,
		`{"jsonrpc":"2.0","id":null,"error":"just text"}`:                 `error null MCP error 0: just text `,
		`{"jsonrpc":"2.0","method":"n","params":{}}`:                      `notification n {}`,
		`{"jsonrpc":"2.0","id":null,"method":"n"}`:                        `notification n `,
		`{"jsonrpc":"2.0","id":"s-1","method":"ping"}`:                    `request "s-1" ping`,
		`[{"jsonrpc":"2.0","method":"n"},{"jsonrpc":"2.0","method":"o"}]`: `notification n , notification o `,
		"\xef\xbb\xbf" + `{"jsonrpc":"2.0","method":"n"}`:                 `notification n `,
		"{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":\"\xff\"}":              "answer 1 \"\uFFFD\"",
		`{"jsonrpc":"2.0","id":1,"result":"\ud800 \ud83d\ude00 \\ud800"}`: `answer 1 "\ufffd \ud83d\ude00 \\ud800"`,
		`{"jsonrpc":"2.0","id":1,"result":"\udc00\ud800"}`:                `answer 1 "\ufffd\ufffd"`,
		`{"level":"info"}`:                              `no "jsonrpc": "2.0"`,
		`{"id":1,"result":{}}`:                          `no "jsonrpc": "2.0"`,
		`{"jsonrpc":"1.0","id":1,"result":{}}`:          `no "jsonrpc": "2.0"`,
		`{"jsonrpc":"2.0"}`:                             "neither a request nor an answer",
		`{"jsonrpc":"2.0","id":1}`:                      "neither a request nor an answer",
		`{"jsonrpc":"2.0","id":null,"result":{}}`:       "neither a request nor an answer",
		`{"jsonrpc":"2.0","method":7,"id":1}`:           "the method is no text",
		`{"jsonrpc":"2.0","id":1,"result":{}} trailing`: "data after",
		`[]`:                                "empty batch",
		`[{"id":1}]`:                        `no "jsonrpc"`,
		`null`:                              "no JSON-RPC message",
		`"x"`:                               "no JSON-RPC message",
		`12`:                                "no JSON-RPC message",
		`Listening on 80`:                   "no JSON-RPC message",
		`{"jsonrpc":"2.0","id":1,"result":`: "EOF",
		``:                                  "no JSON-RPC message",
	} {
		messages, err := parse([]byte(in))
		var got []string
		for _, m := range messages {
			got = append(got, describe(m))
		}
		text := strings.Join(got, ", ")
		if err != nil && strings.Contains(err.Error(), want) {
			continue
		}
		if err != nil || text != want {
			t.Errorf("parse(%s) = %s, %v; want %s", in, text, err, want)
		}
	}
}

func describe(m message) string {
	switch {
	case m.kind == request:
		return fmt.Sprintf("request %s %s", m.id, m.method)
	case m.kind == notification:
		return fmt.Sprintf("notification %s %s", m.method, m.params)
	case m.err != nil:
		return fmt.Sprintf("error %s %s %s", m.id, m.err, m.err.Data)
	}
	return fmt.Sprintf("answer %s %s", m.id, m.result)
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"jsonrpc":"2.0","id":3,"result":{"a":"\ud800"}}`))
	f.Add([]byte(`[{"jsonrpc":"2.0","id":null,"error":"x"}]`))
	f.Fuzz(func(t *testing.T, in []byte) {
		messages, err := parse(in)
		if err != nil {
			return
		}
		for _, m := range messages {
			for _, raw := range []json.RawMessage{m.result, m.params} {
				if raw != nil && (!utf8.Valid(raw) || !json.Valid(raw)) {
					t.Errorf("parse(%q) let through %q", in, raw)
				}
			}
			if m.kind == request && bytes.ContainsAny(encodeReply(m.id, json.RawMessage(`{}`), nil), "\n") {
				t.Errorf("the reply to %q is more than a line", in)
			}
		}
	})
}

func TestEncode(t *testing.T) {
	t.Parallel()
	for want, got := range map[string][]byte{
		`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"a":1.0,"b":"<&>"}}`:                       encodeRequest(7, "tools/call", json.RawMessage("{\n\"a\": 1.0,\r\n\"b\":\"<&>\"}")),
		`{"jsonrpc":"2.0","id":7,"method":"m","params":{"a": 1}}`:                                           encodeRequest(7, "m", json.RawMessage(`{"a": 1}`)),
		`{"jsonrpc":"2.0","method":"n"}`:                                                                    encodeNotification("n", nil),
		`{"jsonrpc":"2.0","id":"x","error":{"code":-32601,"message":"this client does not offer \"a b\""}}`: encodeReply(json.RawMessage(`"x"`), nil, Refuse("a\nb")),
		`{"requestId":3,"reason":"quo\"te"}`:                                                                cancelParams(3, `quo"te`),
	} {
		if string(got) != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

// B30: which open request an id means.
func TestTable(t *testing.T) {
	t.Parallel()
	var tab table
	first, ch, err := tab.add()
	if err != nil || first != 1 {
		t.Fatal(first, err)
	}
	if !tab.deliver(message{kind: response, err: &RPCError{Code: 5}}) {
		t.Error("an error without an id belongs to the only open request")
	}
	if o := <-ch; o.reply.Err.Code != 5 {
		t.Errorf("outcome = %+v", o)
	}
	two, chTwo, _ := tab.add()
	three, chThree, _ := tab.add()
	for _, raw := range []string{"null", "", "1", "4", "true", "2.5", `"x"`, "[2]"} {
		if tab.deliver(message{kind: response, id: json.RawMessage(raw), err: &RPCError{}}) {
			t.Errorf("id %s was taken", raw)
		}
	}
	if !tab.deliver(message{kind: response, id: json.RawMessage(`"2"`)}) || !tab.deliver(message{kind: response, id: json.RawMessage(`3.0`)}) {
		t.Error("ids of another type were refused")
	}
	<-chTwo
	<-chThree
	tab.remove(two)
	tab.remove(three)
	_, chFour, _ := tab.add()
	tab.fail(errors.New("gone"))
	tab.fail(errors.New("later"))
	var f *RequestError
	if o := <-chFour; !errors.As(o.err, &f) || f.Reach != MaybeSent || f.Error() != "gone" {
		t.Errorf("outcome = %+v", o)
	}
	if _, _, err := tab.add(); !errors.As(err, &f) || f.Reach != NotSent || f.Error() != "gone" {
		t.Errorf("add after the end = %v", err)
	}
}

// C21: lines up to the limit, and whose answer a longer one was.
func TestLines(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 10_000)
	in := "one\r\n\n" + `{"jsonrpc":"2.0","id":7,"result":"` + long + "\"}\n" +
		`{"result":{"id":9,"t":"` + long + `"},"id":"8","jsonrpc":"2.0"}` + "\n" +
		`{"result":{"t":"` + long + `","id":9}}` + "\nlast"
	r := &lineReader{r: bufio.NewReaderSize(iotest.OneByteReader(strings.NewReader(in)), 16), max: 1000}
	type view struct {
		Text, Owner string
		TooLong     bool
		Size        int64
	}
	var got []view
	for {
		l, err := r.next()
		if err != nil {
			if !errors.Is(err, io.EOF) {
				t.Fatal(err)
			}
			break
		}
		v := view{TooLong: l.tooLong, Size: l.size}
		if l.tooLong {
			v.Owner = string(l.owner())
		} else {
			v.Text = string(l.text)
		}
		got = append(got, v)
	}
	want := []view{
		{Text: "one", Size: 5},
		{Size: 1},
		{Owner: "7", TooLong: true, Size: 10037},
		{Owner: `"8"`, TooLong: true, Size: 10052},
		{TooLong: true, Size: 10027},
		{Text: "last", Size: 4},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

// B38: the grammar of event streams, whatever the pieces they arrive in.
func TestEvents(t *testing.T) {
	t.Parallel()
	for in, want := range map[string][]string{
		"data: a\n\n":                                   {"a"},
		"data: a\r\rdata: b\r\n\r\ndata: c\n\n":         {"a", "b", "c"},
		"data: a\n":                                     nil,
		"data: a":                                       nil,
		":c\n\ndata\n\n":                                {""},
		"data:a\ndata: b\ndata:  c\n\n":                 {"a\nb\n c"},
		"\xef\xbb\xbfdata: a\n\n":                       {"a"},
		"\xef\xbb\xbf\xef\xbb\xbfdata: a\n\n":           nil,
		"event: x\nid: 1\n\ndata: a\nid: 2\nfoo: b\n\n": {"a@2"},
		"id: 1\ndata: a\n\ndata: b\nid\n\n":             {"a@1", "b"},
		"id: x\x00y\ndata: a\n\n":                       {"a"},
		"data: é😀\n\n":                                  {"é😀"},
		"DATA: a\n\n":                                   nil,
		"\r\n\r\ndata: a\r\n\r\n":                       {"a"},
	} {
		for _, r := range []io.Reader{strings.NewReader(in), iotest.OneByteReader(strings.NewReader(in)), iotest.DataErrReader(strings.NewReader(in))} {
			stream := newEventReader(r)
			var got []string
			for {
				ev, err := stream.next()
				if err != nil {
					break
				}
				text := string(ev.data)
				if ev.id != "" {
					text += "@" + ev.id
				}
				got = append(got, text)
			}
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("%q: %s", in, d)
			}
		}
	}
	stream := newEventReader(strings.NewReader("retry: 250\nretry: x\nretry: 99999999999999\ndata: a\n\n"))
	if _, err := stream.next(); err != nil || stream.retry != 250*time.Millisecond {
		t.Errorf("retry = %s, %v", stream.retry, err)
	}
	stream = newEventReader(strings.NewReader("data: " + strings.Repeat("x", 100) + "\n\n"))
	stream.max = 50
	if _, err := stream.next(); !errors.Is(err, errEventTooLarge) {
		t.Errorf("a long line: %v", err)
	}
	stream = newEventReader(strings.NewReader(strings.Repeat("data: xxxxxxxx\n", 100)))
	stream.max = 50
	if _, err := stream.next(); !errors.Is(err, errEventTooLarge) {
		t.Errorf("many lines: %v", err)
	}
}

func FuzzEvents(f *testing.F) {
	f.Add("data: a\r\rid: 1\ndata: b\n\n")
	f.Fuzz(func(t *testing.T, in string) {
		read := func(r io.Reader) []string {
			stream := newEventReader(r)
			var out []string
			for {
				ev, err := stream.next()
				if err != nil {
					return out
				}
				out = append(out, string(ev.data)+"@"+ev.id)
			}
		}
		if d := cmp.Diff(read(strings.NewReader(in)), read(iotest.OneByteReader(strings.NewReader(in)))); d != "" {
			t.Errorf("the pieces matter: %s", d)
		}
	})
}

func TestShort(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"a\n\x1b[31mb\t c ": "a [31mb c",
		"\xff":              "\uFFFD",
		"ääääää":            "äääää…",
		"0123456789":        "0123456789",
		"01234567890":       "0123456789…",
		"\u0085next\u009bx": "next x",
	} {
		if got := Short(in, 10); got != want {
			t.Errorf("Short(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestLookPath(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, path, want string }{
		{"sh", "/nowhere:/bin", ""},
		{"sh", "", "not found in any folder of PATH"},
		{"sh", "bin:.", "not found in any folder of PATH"},
		{"/bin/sh", "", ""},
		{"./wire_test.go", "/bin", "may not be executed"},
		{"../wire", "/bin", "it is a folder"},
		{"./nothing", "/bin", "not found"},
	} {
		_, err := lookPath(c.name, ".", []string{"PATH=/first", "PATH=" + c.path})
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("lookPath(%q, %q) = %v, want %q", c.name, c.path, err, c.want)
		}
	}
}
