package api_test

import (
	"encoding/json"
	"reflect"
	"slices"
	"sort"
	"strings"
	"testing"
	"time"

	"agentos/api"
	"agentos/internal/rawjson"
	"agentos/internal/strictyaml"
)

// structs are all bodies and their parts, by their name in the document.
var structs = map[string]any{
	"Error": api.Error{}, "ErrorBody": api.ErrorBody{}, "CreateRun": api.CreateRun{}, "Run": api.Run{}, "RunList": api.RunList{},
	"Usage": api.Usage{}, "Entry": api.Entry{}, "Hold": api.Hold{}, "Item": api.Item{}, "Change": api.Change{},
	"Decision": api.Decision{}, "Reviewers": api.Reviewers{}, "ReviewerSet": api.ReviewerSet{}, "Escalation": api.Escalation{}, "Vote": api.Vote{}, "RanCall": api.RanCall{}, "HoldList": api.HoldList{}, "Decide": api.Decide{},
	"ItemDecision": api.ItemDecision{}, "Decided": api.Decided{}, "Trajectory": api.Trajectory{}, "Turn": api.Turn{},
	"Call": api.Call{}, "CallDecision": api.CallDecision{}, "HoldEvent": api.HoldEvent{}, "Recovery": api.Recovery{},
	"Totals": api.Totals{}, "Verdict": api.Verdict{}, "AgentList": api.AgentList{}, "Agent": api.Agent{},
	"Capability": api.Capability{}, "Tool": api.Tool{}, "MCPServer": api.MCPServer{}, "ServerInfo": api.ServerInfo{},
	"Orders": api.Orders{}, "Order": api.Order{}, "Pause": api.Pause{}, "ToolOff": api.ToolOff{}, "PauseAgent": api.PauseAgent{},
	"SwitchOff": api.SwitchOff{}, "SwitchOn": api.SwitchOn{}, "SwitchedOff": api.SwitchedOff{}, "ToolName": api.ToolName{},
	"Key": api.Key{}, "KeyList": api.KeyList{}, "CreateKey": api.CreateKey{}, "CreatedKey": api.CreatedKey{}, "Me": api.Me{}, "Readiness": api.Readiness{},
	"Index": api.Index{}, "Health": api.Health{}, "Ready": api.Ready{}, "StoreReady": api.StoreReady{},
	"AgentReady": api.AgentReady{}, "ModelList": api.ModelList{}, "Model": api.Model{},
}

// notStructs are schemas that no struct of this package is for.
var notStructs = []string{"Time", "Detail", "Role", "RunStatus", "HoldStatus", "Action", "Outcome", "ChatCompletion"}

func schemas(t *testing.T) []rawjson.Field {
	t.Helper()
	doc, err := strictyaml.Parse("openapi.yaml", api.Document)
	if err != nil {
		t.Fatal(err)
	}
	raw := doc.Root().JSON()
	if err := doc.Err(); err != nil {
		t.Fatal(err)
	}
	fields, err := rawjson.Fields(rawjson.Get(rawjson.Get(raw, "components"), "schemas"))
	if err != nil {
		t.Fatal(err)
	}
	return fields
}

// A struct and its schema have the same members, and a member that can be left out
// is one that is not required.
func TestStructsAndDocumentAgree(t *testing.T) {
	seen := map[string]bool{}
	for _, f := range schemas(t) {
		seen[f.Name] = true
		v, ok := structs[f.Name]
		if !ok {
			if !slices.Contains(notStructs, f.Name) {
				t.Errorf("schema %s has no struct", f.Name)
			}
			continue
		}
		all, required := members(reflect.TypeOf(v))
		if got := names(t, rawjson.Get(f.Value, "properties")); !slices.Equal(got, all) {
			t.Errorf("%s: the document has %v, the struct %v", f.Name, got, all)
		}
		var want []string
		if err := json.Unmarshal(rawjson.Get(f.Value, "required"), &want); err != nil {
			t.Errorf("%s: %v", f.Name, err)
		}
		sort.Strings(want)
		if !slices.Equal(want, required) {
			t.Errorf("%s: the document requires %v, the struct always writes %v", f.Name, want, required)
		}
	}
	for name := range structs {
		if !seen[name] {
			t.Errorf("struct %s has no schema", name)
		}
	}
}

func names(t *testing.T, properties json.RawMessage) []string {
	t.Helper()
	fields, err := rawjson.Fields(properties)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, f := range fields {
		out = append(out, f.Name)
	}
	sort.Strings(out)
	return out
}

// members are the names a struct type encodes, sorted, and those it always writes.
func members(typ reflect.Type) (all, required []string) {
	for f := range typ.Fields() {
		if f.Anonymous {
			inner, innerRequired := members(f.Type)
			all, required = append(all, inner...), append(required, innerRequired...)
			continue
		}
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		all = append(all, name)
		if !strings.Contains(options, "omit") {
			required = append(required, name)
		}
	}
	sort.Strings(all)
	sort.Strings(required)
	return all, required
}

func TestTime(t *testing.T) {
	at := time.Date(2026, 3, 4, 5, 6, 7, 89_999_999, time.FixedZone("", 2*3600))
	raw, err := json.Marshal(api.Time{Time: at})
	if err != nil || string(raw) != `"2026-03-04T03:06:07.089Z"` {
		t.Errorf("%s, %v", raw, err)
	}
	var back api.Time
	if err := json.Unmarshal(raw, &back); err != nil || !back.Equal(at.Truncate(time.Millisecond)) {
		t.Errorf("read back %v, %v", back, err)
	}
}

func TestFinished(t *testing.T) {
	for status, want := range map[api.RunStatus]bool{
		api.RunQueued: false, api.RunRunning: false, api.RunHeld: false, api.RunCompleted: true, api.RunFailed: true, api.RunCancelled: true,
	} {
		if status.Finished() != want {
			t.Errorf("%s.Finished() = %v", status, !want)
		}
	}
}
