package gateway

import (
	"encoding/json"
	"fmt"
	"strings"

	"agentos/internal/rawjson"
)

// ParseArguments makes the arguments object of a call from function.arguments as
// received. Absent, null, "", "null" and "{}" are {}: models leave arguments out
// for tools that need none. A string's text and a bare object are returned byte
// for byte. An object encoded twice is unwrapped once.
//
// Anything else is an error, and nothing is repaired: what a reviewer approves has
// to be what the model said. The error's text is written for the model: it names
// the fault and says what to send instead.
func ParseArguments(raw json.RawMessage) (json.RawMessage, error) {
	if len(raw) == 0 {
		return json.RawMessage("{}"), nil
	}
	for range 3 { // an object, in a string, in a string
		if err := rawjson.Check(raw); err != nil {
			return nil, badArguments("they are no valid JSON: %v", err)
		}
		switch rawjson.Kind(raw) {
		case "object":
			return raw, nil
		case "null":
			return json.RawMessage("{}"), nil
		case "string":
		default:
			return nil, badArguments("they are a JSON %s", rawjson.Kind(raw))
		}
		text, _ := rawjson.Text(raw)
		if strings.TrimSpace(text) == "" {
			return json.RawMessage("{}"), nil
		}
		raw = json.RawMessage(text)
	}
	return nil, badArguments("they are encoded as text several times over")
}

func badArguments(format string, args ...any) error {
	return fmt.Errorf("The arguments of this call were not accepted: "+format+ // a sentence for the model
		". The tool was not run. Send the call again with one JSON object as arguments.", args...)
}
