package scenario

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"strconv"

	"agentos/internal/clock"
	"agentos/internal/rawjson"
)

// The tools. Policy asks a person about GatedTool; WaitTool never answers.
const (
	FreeTool  = "lookup_order"
	GatedTool = "cancel_order"
	WaitTool  = "wait_for_order"
)

// toolList is the answer to tools/list.
const toolList = `{"tools":[` +
	`{"name":"lookup_order","description":"Look up an order's status and total.","inputSchema":{"type":"object","properties":{"order_id":{"type":"string"}},"required":["order_id"]}},` +
	`{"name":"wait_for_order","description":"Wait for an order to arrive.","inputSchema":{"type":"object","properties":{"order_id":{"type":"string"}},"required":["order_id"]}},` +
	`{"name":"cancel_order","description":"Cancel an order. Irreversible.","inputSchema":{"type":"object","properties":{"order_id":{"type":"string"},"reason":{"type":"string"}},"required":["order_id"]}}]}`

// ServeTool speaks as much MCP over stdio as a client needs to call tools that do
// nothing, and ends when in does. It uses no library so that the child costs as
// little as a process can.
func ServeTool(in io.Reader, out io.Writer) error {
	lines := bufio.NewReaderSize(in, 1<<16)
	for {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if reply := answerTool(line); reply != nil {
			if _, err := out.Write(append(reply, '\n')); err != nil {
				return err
			}
		}
	}
}

// answerTool returns the answer to one message, nil for a notification and for a
// call of WaitTool.
func answerTool(line []byte) json.RawMessage {
	id := rawjson.Get(line, "id")
	if id == nil {
		return nil
	}
	method, _ := rawjson.Text(rawjson.Get(line, "method"))
	params := rawjson.Get(line, "params")
	var result json.RawMessage
	switch method {
	case "initialize":
		result = rawjson.Object([]rawjson.Field{
			{Name: "protocolVersion", Value: rawjson.Get(params, "protocolVersion")},
			{Name: "capabilities", Value: json.RawMessage(`{"tools":{}}`)},
			{Name: "serverInfo", Value: json.RawMessage(`{"name":"nothing","version":"1"}`)},
		})
	case "tools/list":
		result = json.RawMessage(toolList)
	case "tools/call":
		if name, _ := rawjson.Text(rawjson.Get(params, "name")); name == WaitTool {
			return nil
		}
		result = toolResult(clock.System{}.Now().UnixMicro())
	default:
		result = json.RawMessage(`{}`)
	}
	return rawjson.Object([]rawjson.Field{
		{Name: "jsonrpc", Value: json.RawMessage(`"2.0"`)}, {Name: "id", Value: id}, {Name: "result", Value: result},
	})
}

// toolResult is the answer to a call that began at a time, in microseconds since
// 1970: the result tells it.
func toolResult(at int64) json.RawMessage {
	text := `{"order_id":"A-1002","status":"processing","total":"250.00","started_us":` + strconv.FormatInt(at, 10) + `}`
	return json.RawMessage(`{"content":[{"type":"text","text":` + string(rawjson.Quote(text)) + `}]}`)
}

// StartedAt reads from the text of a tool's result when its call began, in
// microseconds since 1970; false when the text does not tell.
func StartedAt(text string) (us int64, ok bool) {
	us, err := strconv.ParseInt(string(rawjson.Get([]byte(text), "started_us")), 10, 64)
	return us, err == nil
}
