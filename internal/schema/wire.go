package schema

import (
	"encoding/json"
	"slices"

	"agentos/internal/rawjson"
)

// emptyParameters is what a tool without a usable schema offers to a provider.
const emptyParameters = `{"type":"object","properties":{}}`

// FunctionParameters adapts a tool's input schema to what model providers take
// as function parameters: an object at the root whose "properties" is an object.
// Everything else stays byte for byte and in its order. It is for the wire only;
// validation follows the schema as the server gave it.
func FunctionParameters(raw json.RawMessage) json.RawMessage {
	if rawjson.Check(raw) != nil {
		return json.RawMessage(emptyParameters)
	}
	fields, err := rawjson.Fields(raw)
	if err != nil || !describesObject(fields) {
		return json.RawMessage(emptyParameters)
	}
	fields = slices.DeleteFunc(fields, func(f rawjson.Field) bool {
		return f.Name == "required" && rawjson.Kind(f.Value) != "array"
	})
	fields = put(fields, "properties", json.RawMessage(`{}`), func(v json.RawMessage) bool {
		return rawjson.Kind(v) == "object"
	})
	fields = put(fields, "type", json.RawMessage(`"object"`), func(v json.RawMessage) bool {
		return string(v) == `"object"`
	})
	return rawjson.Object(fields)
}

// describesObject is false when the root's type leaves no room for an object.
func describesObject(fields []rawjson.Field) bool {
	i := slices.IndexFunc(fields, func(f rawjson.Field) bool { return f.Name == "type" })
	if i < 0 {
		return true
	}
	switch rawjson.Kind(fields[i].Value) {
	case "string":
		return string(fields[i].Value) == `"object"`
	case "array":
		var types []json.RawMessage
		return json.Unmarshal(fields[i].Value, &types) == nil &&
			slices.ContainsFunc(types, func(t json.RawMessage) bool { return string(t) == `"object"` })
	}
	return true
}

// put sets the field called name to value unless it is already as it should be;
// a new field goes to the front, where readers look for it.
func put(fields []rawjson.Field, name string, value json.RawMessage, fine func(json.RawMessage) bool) []rawjson.Field {
	for i, f := range fields {
		if f.Name == name {
			if !fine(f.Value) {
				fields[i].Value = value
			}
			return fields
		}
	}
	return slices.Insert(fields, 0, rawjson.Field{Name: name, Value: value})
}
