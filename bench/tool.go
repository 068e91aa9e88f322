package main

import (
	"bufio"
	"encoding/json"
	"io"

	"agentos/internal/rawjson"
)

// toolCommand makes this program the MCP server.
const toolCommand = "mcp-tool"

// The names of the tools; policy asks a person about gatedTool.
const (
	freeTool  = "lookup_order"
	gatedTool = "cancel_order"
)

// toolList is the answer to tools/list.
const toolList = `{"tools":[` +
	`{"name":"lookup_order","description":"Look up an order's status and total.","inputSchema":{"type":"object","properties":{"order_id":{"type":"string"}},"required":["order_id"]}},` +
	`{"name":"cancel_order","description":"Cancel an order. Irreversible.","inputSchema":{"type":"object","properties":{"order_id":{"type":"string"},"reason":{"type":"string"}},"required":["order_id"]}}]}`

// toolResult is the answer to every call.
const toolResult = `{"content":[{"type":"text","text":"{\"order_id\":\"A-1002\",\"status\":\"processing\",\"total\":\"250.00\"}"}]}`

// serveTool speaks as much MCP over stdio as a client needs to call tools that do
// nothing, and ends when in does. It uses no library so that the child costs as
// little as a process can.
func serveTool(in io.Reader, out io.Writer) error {
	lines := bufio.NewReaderSize(in, 1<<16)
	for {
		line, err := lines.ReadBytes('\n')
		if err == io.EOF {
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

// answerTool returns the answer to one message, nil for a notification.
func answerTool(line []byte) json.RawMessage {
	id := rawjson.Get(line, "id")
	if id == nil {
		return nil
	}
	method, _ := rawjson.Text(rawjson.Get(line, "method"))
	var result json.RawMessage
	switch method {
	case "initialize":
		result = rawjson.Object([]rawjson.Field{
			{Name: "protocolVersion", Value: rawjson.Get(rawjson.Get(line, "params"), "protocolVersion")},
			{Name: "capabilities", Value: json.RawMessage(`{"tools":{}}`)},
			{Name: "serverInfo", Value: json.RawMessage(`{"name":"nothing","version":"1"}`)},
		})
	case "tools/list":
		result = json.RawMessage(toolList)
	case "tools/call":
		result = json.RawMessage(toolResult)
	default:
		result = json.RawMessage(`{}`)
	}
	return rawjson.Object([]rawjson.Field{
		{Name: "jsonrpc", Value: json.RawMessage(`"2.0"`)}, {Name: "id", Value: id}, {Name: "result", Value: result},
	})
}
