package conformance

import (
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"agentos/internal/schema"
	"agentos/internal/strictyaml"
)

func TestParse(t *testing.T) {
	t.Parallel()
	input := json.RawMessage(`{"m":1}`)
	base := Case{Capability: "c", Name: "n", Input: input, Expect: Completed, Unknown: Decision{Action: "skip"}}
	with := func(change func(*Case)) []Case {
		c := base
		change(&c)
		return []Case{c}
	}
	for name, test := range map[string]struct {
		yaml string
		want []Case
	}{
		"least": {"", []Case{base}},
		"suspended is held": {"expect: suspended", with(func(c *Case) {
			c.Expect, c.Steps = Held, []Step{{}}
		})},
		"decision": {"expect: held\ndecision: [{id: call_1, action: edit, data: {a: 12345678901234567890}, reason: no}]", with(func(c *Case) {
			c.Expect = Held
			c.Steps = []Step{{Decisions: []Decision{{ID: "call_1", Action: "edit", Data: json.RawMessage(`{"a":12345678901234567890}`), Reason: "no"}}}}
		})},
		"hold": {"expect: held\nhold: {kind: tool_call, intent: 'Run it?', items: [{id: call_1}]}", with(func(c *Case) {
			c.Expect = Held
			c.Steps = []Step{{Hold: HoldShape{Kind: "tool_call", Intent: "Run it?", Items: []json.RawMessage{json.RawMessage(`{"id":"call_1"}`)}}}}
		})},
		"steps": {"expect: held\nsteps: [{fault: expire}, {decision: [{id: x, action: reject}], fault: {kill: after:hold.decided#2}}]", with(func(c *Case) {
			c.Expect = Held
			c.Steps = []Step{
				{Fault: Fault{Kind: FaultExpire}},
				{Decisions: []Decision{{ID: "x", Action: "reject"}}, Fault: Fault{Kind: FaultKill, Points: []string{"after:hold.decided#2"}}},
			}
		})},
		"failed": {"expect: failed\nerror: {code: mcp_unavailable}", with(func(c *Case) {
			c.Expect, c.ErrorCode = Failed, "mcp_unavailable"
		})},
		"calls": {"calls: [{tool: a}, {tool: s/b, times: 0, arguments: {x: no}}]", with(func(c *Case) {
			c.Calls = []CallCount{{Tool: "a", Times: 1}, {Tool: "s/b", Arguments: json.RawMessage(`{"x":"no"}`)}}
		})},
		"no calls": {"calls: []", with(func(c *Case) { c.Calls = []CallCount{} })},
		"output":   {"output: {schema: 1, other: 2}", with(func(c *Case) { c.Output = json.RawMessage(`{"schema":1,"other":2}`) })},
		"unknown":  {"unknown: {action: ran, data: done}", with(func(c *Case) { c.Unknown = Decision{Action: "ran", Data: json.RawMessage(`"done"`)} })},
		"kill everywhere": {"fault: kill", with(func(c *Case) {
			c.Fault = Fault{Kind: FaultKill}
		})},
		"kill points": {"fault: {kill: [during:model, before:model.answered+call.started]}", with(func(c *Case) {
			c.Fault = Fault{Kind: FaultKill, Points: []string{"during:model", "before:model.answered+call.started"}}
		})},
		"fault of the first step": {"expect: held\nfault: double_decision", with(func(c *Case) {
			c.Expect, c.Steps = Held, []Step{{Fault: Fault{Kind: FaultDoubleDecision}}}
		})},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := Parse("f.yaml", []byte(caseFile(test.yaml)))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got, cmpopts.IgnoreUnexported(schema.Schema{})); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// caseFile is a file with one case that has the lines besides what it must have.
func caseFile(lines string) string {
	return "cases:\n  - capability: c\n    name: n\n    input: {m: 1}\n    " + strings.ReplaceAll(lines, "\n", "\n    ")
}

func TestParseRefuses(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ yaml, want string }{
		"unknown key":           {caseFile("expcet: failed"), `f.yaml:5:5: cases[0].expcet: unknown key; did you mean "expect"?`},
		"unknown top key":       {"case: []", `f.yaml:1:1: case: unknown key; did you mean "cases"?`},
		"no cases":              {"cases: []", `f.yaml:1:8: cases: is empty; write at least one case`},
		"a list":                {"- capability: c", `f.yaml:1:1: must be a mapping, not a list`},
		"nothing required":      {"cases: [{}]", `cases[0].capability: is required`},
		"same name":             {"cases: [{capability: c, name: n, input: 1}, {capability: d, name: n, input: 1}]", `cases[1].name: another case has this name`},
		"empty name":            {"cases: [{capability: c, name: '', input: 1}]", `cases[0].name: must not be empty`},
		"wrong expect":          {caseFile("expect: suspend"), `did you mean "suspended"?`},
		"decision when none":    {caseFile("decision: [{id: a, action: approve}]"), `f.yaml:5:15: cases[0].decision: belongs to a case with expect: suspended`},
		"no decisions":          {caseFile("expect: held\ndecision: []"), `leave the key out to approve every item`},
		"wrong action":          {caseFile("expect: held\ndecision: [{id: a, action: aprove}]"), `did you mean "approve"?`},
		"edit without data":     {caseFile("expect: held\ndecision: [{id: a, action: edit}]"), `decision[0].data: is required for edit`},
		"steps and hold":        {caseFile("expect: held\nsteps: [{}]\nhold: {}"), `hold: cannot stand beside steps`},
		"no steps":              {caseFile("expect: held\nsteps: []"), `steps: is empty`},
		"error of a success":    {caseFile("error: {code: timeout}"), `a completed run has no error`},
		"odd code":              {caseFile("expect: failed\nerror: {code: Time-Out}"), `must be an error code`},
		"output of a failure":   {caseFile("expect: failed\noutput: {}"), `a failed run has no output`},
		"bad schema":            {caseFile("output: {schema: {type: strin}}"), `cases[0].output.schema: invalid JSON Schema`},
		"octal":                 {caseFile("output: {a: 012}"), `is a number in YAML but not in JSON`},
		"negative times":        {caseFile("calls: [{tool: a, times: -1}]"), `must be between 0 and 1000`},
		"unknown without data":  {caseFile("unknown: {action: ran}"), `unknown.data: is required for ran`},
		"wrong fault":           {caseFile("fault: kil"), `did you mean "kill"?`},
		"expire without a hold": {caseFile("fault: expire"), `expire disturbs a decision`},
		"no such point":         {caseFile("fault: {kill: after:call.start}"), `no point "after:call.start"; did you mean "after:call.started"?`},
		"no such moment":        {caseFile("fault: {kill: during:hold}"), `after "during:" comes one of model, call`},
		"no point":              {caseFile("fault: {kill: call.started}"), `must be a point such as`},
		"empty points":          {caseFile("fault: {kill: []}"), `is empty; write a point`},
		"step killed anywhere":  {caseFile("expect: held\nsteps: [{fault: kill}]"), `a step needs one point`},
		"two faults":            {caseFile("expect: held\nfault: expire\nsteps: [{fault: expire}]"), `the first step has a fault of its own`},
		"items of text":         {caseFile("expect: held\nhold: {items: [call_1]}"), `items[0]: must be a mapping`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cases, err := Parse("f.yaml", []byte(test.yaml))
			var problems strictyaml.Errors
			if !errors.As(err, &problems) || cases != nil {
				t.Fatalf("got %v and %v, want problems", cases, err)
			}
			if !strings.Contains(err.Error(), test.want) {
				t.Errorf("got:\n%s\nwant: %s", err, test.want)
			}
			for _, p := range problems {
				if p.Line == 0 || p.Column == 0 {
					t.Errorf("no position: %s", p)
				}
			}
		})
	}
}

// The files in the source tree are the specification that authors copy from.
func TestParseFilesOfTheProject(t *testing.T) {
	t.Parallel()
	for file, want := range map[string]int{"../conformance.yaml": 5, "testdata/faults.yaml": 12, "testdata/puppet.yaml": 11} {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		cases, err := Parse(file, data)
		if err != nil || len(cases) != want {
			t.Errorf("%s: %d cases, want %d; %v", file, len(cases), want, err)
		}
	}
}

// Whatever is read is complete: the runner relies on it.
func FuzzParse(f *testing.F) {
	for _, file := range []string{"../conformance.yaml", "testdata/faults.yaml", "testdata/puppet.yaml"} {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Add([]byte("cases: [{capability: c, name: n, input: &a {x: *a}, expect: held, steps: [{}]}]"))
	f.Add([]byte("cases: [{capability: c, name: n, input: 1e400, fault: {kill: after:}}]"))
	f.Fuzz(func(t *testing.T, data []byte) {
		cases, err := Parse("f.yaml", data)
		if err != nil {
			var problems strictyaml.Errors
			if !errors.As(err, &problems) || len(problems) == 0 || cases != nil {
				t.Fatalf("%v with %T", cases, err)
			}
			return
		}
		if len(cases) == 0 {
			t.Fatal("no cases and no error")
		}
		for _, c := range cases {
			if c.Capability == "" || c.Name == "" || !json.Valid(c.Input) || c.Unknown.Action == "" || (c.Expect == Held) != (len(c.Steps) > 0) {
				t.Fatalf("incomplete: %+v", c)
			}
			for _, s := range c.Steps {
				if s.Fault.Kind == FaultKill && len(s.Fault.Points) != 1 {
					t.Fatalf("a step without a point: %+v", s)
				}
			}
		}
	})
}
