package conformance

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"sync"
	"time"

	"agentos/internal/clock"
	"agentos/internal/rawjson"
)

// Proxy stands between the client and one stdio MCP server. It hands every line
// on unchanged and notes each tools/call in Dir before the server sees it, so
// that executions are counted outside of the product under test. On demand of
// the kit it plays the faults that happen around a call.
type Proxy struct {
	Dir Dir
	// Alias is the server's name in the manifest.
	Alias string
	Clock clock.Clock
	// Kill ends the client's process at once (SIGKILL).
	Kill func() error

	mu sync.Mutex // guards what follows, and makes lines to the client whole
	// calls and lists are the open requests by id: tools/call and tools/list.
	calls map[string]Execution
	lists map[string]bool
	// changed are the tools whose definition is shown differently, with how often
	// it was changed.
	changed map[string]int
}

// ErrFault says that a fault was played that ends the server.
var ErrFault = errors.New("the conformance kit ended this server")

// watchEvery is how often the proxy looks whether a tool is to be changed.
const watchEvery = 20 * time.Millisecond

// Run copies lines until the server closes its output, which it does after the
// client has closed its own, or until ctx ends. The caller closes the streams and
// waits for the server. It returns ErrFault when a fault must end the server.
func (p *Proxy) Run(ctx context.Context, client io.Reader, toClient io.Writer, server io.Reader, toServer io.WriteCloser) error {
	p.calls, p.lists, p.changed = map[string]Execution{}, map[string]bool{}, map[string]int{}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	watched := make(chan error, 1)
	go func() { watched <- p.watch(ctx, toClient) }()
	up := make(chan error, 1)
	go func() {
		err := lines(client, func(line []byte) error { return p.request(line, toServer) })
		up <- errors.Join(err, toServer.Close())
	}()
	down := lines(server, func(line []byte) error { return p.response(line, toClient) })
	stop()
	err := errors.Join(down, <-watched)
	select {
	case upErr := <-up:
		err = errors.Join(err, upErr)
	default: // it reads from the client until the process ends
	}
	return err
}

// lines calls take with every line of r, line end included.
func lines(r io.Reader, take func(line []byte) error) error {
	br := bufio.NewReaderSize(r, 64<<10)
	for {
		line, err := br.ReadBytes('\n')
		if len(line) > 0 {
			if err := take(line); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// message is what the proxy reads of a JSON-RPC message. Other members are none
// of its business.
type message struct {
	ID     json.RawMessage
	Method string
	Params json.RawMessage
	Result json.RawMessage
}

// messages returns the messages of a line: one, or those of a batch. What is no
// JSON-RPC is handed on unread.
func messages(line []byte) []message {
	elements := []json.RawMessage{line}
	if rawjson.Kind(line) == "array" {
		if batch, err := rawjson.Elements(line); err == nil {
			elements = batch
		}
	}
	var out []message
	for _, e := range elements {
		fields, err := rawjson.Fields(e)
		if err != nil {
			continue
		}
		var m message
		for _, f := range fields {
			switch f.Name {
			case "id":
				m.ID = f.Value
			case "method":
				m.Method, _ = rawjson.Text(f.Value)
			case "params":
				m.Params = f.Value
			case "result":
				m.Result = f.Value
			}
		}
		out = append(out, m)
	}
	return out
}

// request hands a line of the client on.
func (p *Proxy) request(line []byte, toServer io.Writer) error {
	for _, m := range messages(line) {
		switch m.Method {
		case "tools/list":
			p.mu.Lock()
			p.lists[string(m.ID)] = true
			p.mu.Unlock()
		case "tools/call":
			tool, _ := rawjson.Text(rawjson.Get(m.Params, "name"))
			key, _ := rawjson.Text(rawjson.Get(rawjson.Get(m.Params, "_meta"), "agentos/idempotency_key"))
			e := Execution{Server: p.Alias, Tool: tool, Arguments: rawjson.Get(m.Params, "arguments"), Key: key}
			p.mu.Lock()
			p.calls[string(m.ID)] = e
			p.mu.Unlock()
			if err := p.Dir.NoteCall(e); err != nil {
				return err
			}
		}
	}
	_, err := toServer.Write(line)
	return err
}

// response hands a line of the server on, unless a fault comes first.
func (p *Proxy) response(line []byte, toClient io.Writer) error {
	for _, m := range messages(line) {
		if m.Method != "" || len(m.ID) == 0 {
			continue
		}
		p.mu.Lock()
		e, call := p.calls[string(m.ID)]
		list, changed := p.lists[string(m.ID)], maps.Clone(p.changed)
		delete(p.calls, string(m.ID))
		delete(p.lists, string(m.ID))
		p.mu.Unlock()
		if call {
			if err := p.fault(e); err != nil {
				return err
			}
		}
		if list && len(changed) > 0 {
			line = changeTools(line, m.Result, changed)
		}
	}
	return p.write(toClient, line)
}

func (p *Proxy) write(toClient io.Writer, line []byte) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, err := toClient.Write(line)
	return err
}

// fault plays what is armed for the moment after a tool's effect and before its
// answer.
func (p *Proxy) fault(e Execution) error {
	die, err := p.Dir.Reached("during:call")
	if err != nil {
		return err
	}
	if die {
		return errors.Join(p.Kill(), ErrFault)
	}
	a, ok, err := p.Dir.armed()
	if err != nil || !ok || a.Kind != FaultDrop {
		return err
	}
	if mine, err := p.Dir.take(); err != nil || !mine {
		return err
	}
	return errors.Join(p.Dir.NoteLost(e), ErrFault)
}

// watch waits for the order to change a tool of this server.
func (p *Proxy) watch(ctx context.Context, toClient io.Writer) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-p.Clock.After(watchEvery):
		}
		a, ok, err := p.Dir.armed()
		if err != nil {
			return err
		}
		if !ok || a.Kind != FaultChangeTool || a.Server != p.Alias {
			continue
		}
		if mine, err := p.Dir.take(); err != nil || !mine {
			return err
		}
		p.mu.Lock()
		p.changed[a.Tool]++
		p.mu.Unlock()
		if err := p.write(toClient, []byte(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`+"\n")); err != nil {
			return err
		}
	}
}

// changeTools returns the answer to tools/list with other descriptions of the
// tools; every other byte of the list stays.
func changeTools(line, result json.RawMessage, changed map[string]int) []byte {
	tools, err := rawjson.Elements(rawjson.Get(result, "tools"))
	if err != nil {
		return line
	}
	for i, t := range tools {
		name, _ := rawjson.Text(rawjson.Get(t, "name"))
		if n := changed[name]; n > 0 {
			description, _ := rawjson.Text(rawjson.Get(t, "description"))
			tools[i] = replace(t, "description", rawjson.Quote(fmt.Sprintf("%s (Change %d of the conformance kit.)", description, n)))
		}
	}
	list := append(append([]byte{'['}, bytes.Join(bytesOf(tools), []byte{','})...), ']')
	return append(replace(line, "result", replace(result, "tools", list)), '\n')
}

// replace returns object with the member called name set to value.
func replace(object json.RawMessage, name string, value json.RawMessage) json.RawMessage {
	fields, err := rawjson.Fields(object)
	if err != nil {
		return object
	}
	for i := range fields {
		if fields[i].Name == name {
			fields[i].Value = value
			return rawjson.Object(fields)
		}
	}
	return rawjson.Object(append(fields, rawjson.Field{Name: name, Value: value}))
}

func bytesOf(values []json.RawMessage) [][]byte {
	out := make([][]byte, len(values))
	for i, v := range values {
		out[i] = v
	}
	return out
}
