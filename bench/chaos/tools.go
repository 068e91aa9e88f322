package main

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"agentos/internal/clock"
	"agentos/internal/rawjson"
)

// Hidden commands that make this program an MCP server.
const (
	stdioTools = "mcp-stdio"
	httpTools  = "mcp-http"
)

// toolNames are the tools that both servers offer, all with the same schema. read
// and set may run again after a crash, refund waits for a person, drop is denied,
// and all but read and set have an effect that must happen at most once.
var toolNames = []string{"read", "set", "charge", "refund", "slow", "flaky", "drop"}

// onceTool reports whether the effect of a tool must happen at most once.
func onceTool(name string) bool { return name != "read" && name != "set" }

const toolSchema = `{"type":"object","properties":{"ref":{"type":"string"},"amount":{"type":"integer"},` +
	`"ms":{"type":"integer"},"fail":{"enum":["tool","protocol"]}},"required":["ref"]}`

// serveHidden runs the MCP server that args ask for, if they do.
func serveHidden(args []string) (served bool, code int) {
	if len(args) < 3 || args[1] != stdioTools && args[1] != httpTools {
		return false, 0
	}
	t := toolServer{ledger: ledger{path: args[2]}, session: rand.Text()}
	var err error
	switch {
	case args[1] == stdioTools:
		err = t.serveStdio(os.Stdin, os.Stdout)
	case len(args) != 4:
		err = errors.New("the address is missing")
	default:
		err = t.serveHTTP(args[3])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "chaos tools:", err)
		return true, 1
	}
	return true, 0
}

// toolServer speaks as much MCP as a client needs to call tools. It uses no
// library: what it does at which moment is what the harness is about.
type toolServer struct {
	ledger ledger
	// session is the id of all HTTP sessions of this process: a client of the
	// process before is told that its session is gone.
	session string
}

// serveStdio answers requests concurrently until in ends, and then leaves at once
// whatever is under way.
func (t toolServer) serveStdio(in io.Reader, out io.Writer) error {
	lines := bufio.NewReaderSize(in, 1<<16)
	var mu sync.Mutex
	for {
		line, err := lines.ReadBytes('\n')
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		go func() {
			if reply := t.answer(context.Background(), line); reply != nil {
				mu.Lock()
				defer mu.Unlock()
				_, _ = out.Write(append(reply, '\n'))
			}
		}()
	}
}

func (t toolServer) serveHTTP(addr string) error {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	return (&http.Server{Handler: http.HandlerFunc(t.handle), ReadHeaderTimeout: patience}).Serve(l)
}

// handle is the streamable HTTP transport without streams.
func (t toolServer) handle(w http.ResponseWriter, r *http.Request) {
	switch r.Method {
	case http.MethodPost:
	case http.MethodDelete:
		return
	default:
		http.Error(w, "no streams here", http.StatusMethodNotAllowed)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	method, _ := rawjson.Text(rawjson.Get(body, "method"))
	if method != "initialize" && r.Header.Get("Mcp-Session-Id") != t.session {
		http.Error(w, "no such session", http.StatusNotFound)
		return
	}
	// A caller that leaves does not undo what a tool has begun.
	reply := t.answer(context.WithoutCancel(r.Context()), body)
	if reply == nil {
		w.WriteHeader(http.StatusAccepted)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Mcp-Session-Id", t.session)
	_, _ = w.Write(reply)
}

// answer returns the answer to one message, nil for a notification.
func (t toolServer) answer(ctx context.Context, msg json.RawMessage) []byte {
	id := rawjson.Get(msg, "id")
	if id == nil {
		return nil
	}
	method, _ := rawjson.Text(rawjson.Get(msg, "method"))
	params := rawjson.Get(msg, "params")
	body := rawjson.Field{Name: "result", Value: json.RawMessage(`{}`)}
	switch method {
	case "initialize":
		body.Value = rawjson.Object([]rawjson.Field{
			{Name: "protocolVersion", Value: rawjson.Get(params, "protocolVersion")},
			{Name: "capabilities", Value: json.RawMessage(`{"tools":{}}`)},
			{Name: "serverInfo", Value: json.RawMessage(`{"name":"chaos","version":"1"}`)},
		})
	case "tools/list":
		body.Value = toolList()
	case "tools/call":
		body = t.call(ctx, params)
	}
	return rawjson.Object([]rawjson.Field{{Name: "jsonrpc", Value: json.RawMessage(`"2.0"`)}, {Name: "id", Value: id}, body})
}

func toolList() json.RawMessage {
	all := make([]string, len(toolNames))
	for i, name := range toolNames {
		all[i] = `{"name":"` + name + `","description":"Test tool ` + name + `.","inputSchema":` + toolSchema + `}`
	}
	return json.RawMessage(`{"tools":[` + strings.Join(all, ",") + `]}`)
}

// call has the effect, takes its time, and answers what it was asked for.
func (t toolServer) call(ctx context.Context, params json.RawMessage) rawjson.Field {
	args := rawjson.Get(params, "arguments")
	m := mark{Event: "start", ID: rand.Text(), Arguments: string(args), PID: os.Getpid(), At: clock.System{}.Now()}
	m.Tool, _ = rawjson.Text(rawjson.Get(params, "name"))
	m.Key, _ = rawjson.Text(rawjson.Get(rawjson.Get(params, "_meta"), "agentos/idempotency_key"))
	if err := t.ledger.write(m); err != nil {
		return failure(err.Error())
	}
	var wish struct {
		MS   int64  `json:"ms"`
		Fail string `json:"fail"`
	}
	if err := json.Unmarshal(args, &wish); err != nil {
		return failure(err.Error())
	}
	pause(ctx, time.Duration(wish.MS)*time.Millisecond)
	m.Event, m.At = "end", clock.System{}.Now()
	if err := t.ledger.write(m); err != nil {
		return failure(err.Error())
	}
	if wish.Fail == "protocol" {
		return failure("no " + executionText(m.ID))
	}
	text := rawjson.Quote(m.Tool + " done, " + executionText(m.ID))
	return rawjson.Field{Name: "result", Value: rawjson.Object([]rawjson.Field{
		{Name: "content", Value: json.RawMessage(`[{"type":"text","text":` + string(text) + `}]`)},
		{Name: "isError", Value: json.RawMessage(strconv.FormatBool(wish.Fail == "tool"))},
	})}
}

// executionText is how a result names the execution it comes from.
func executionText(id string) string { return "execution " + id }

func failure(message string) rawjson.Field {
	return rawjson.Field{Name: "error", Value: rawjson.Object([]rawjson.Field{
		{Name: "code", Value: json.RawMessage("-32000")}, {Name: "message", Value: rawjson.Quote(message)},
	})}
}
