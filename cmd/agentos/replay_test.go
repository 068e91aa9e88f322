package main

import (
	"encoding/json"
	"strings"
	"testing"

	"agentos/api"
	"agentos/capabilities"
	"agentos/platform"
)

const replayManifest = `
name: shop
mcp_servers: {orders: {command: [x], tools: ["*"]}, docs: {command: [x], tools: [ask]}}
capabilities:
  support:
    input: {type: object}
    output: {type: object}
    loop:
      model: main
      approve:
        - {id: big, tool: refund, when: args.amount > 100, reviewers: {roles: [finance], require: 2}}
        - {id: vip, tool: note, when: input.customer == "vip"}
        - {id: night, tool: sweep, when: '"night" in requester.groups'}
  code: {input: {type: object}, output: {type: object}}
config: {models: {main: a/b}}
`

// TestReplayJudgesWhatIsKnown: a call is judged again by what is recorded of it, and
// told to be beyond judgement where that does not say enough.
func TestReplayJudgesWhatIsKnown(t *testing.T) {
	t.Parallel()
	agent, err := capabilities.Parse("agentos.yaml", []byte(replayManifest), "/bundle")
	if err != nil {
		t.Fatal(err)
	}
	operator, err := platform.Parse("platform.yaml", []byte(`policy: {rules: [{id: o, effect: deny, tool: "drop_*"}, {id: any, effect: deny, tool: purge, when: args.all == true}]}`))
	if err != nil {
		t.Fatal(err)
	}
	b := book{agent: agent, operator: operator}
	big := &api.Reviewers{Require: 2, Sets: []api.ReviewerSet{{Rule: "big", Roles: []string{"finance"}}}}
	run := api.Run{RunID: "r_1", Agent: "shop", Capability: "support", Input: json.RawMessage(`{"customer":"x"}`), Requester: "ann"}
	for name, c := range map[string]struct {
		change func(*api.Run, *api.Call)
		tool   string
		args   string
		then   string // effect and rules
		want   string // same, then → now, or why it cannot be judged
	}{
		"alike":               {nil, "refund", `{"amount":100}`, "allow", "same"},
		"alike, asks":         {by(big), "refund", `{"amount":101}`, "ask big", "same"},
		"other people":        {nil, "refund", `{"amount":101}`, "ask big", "ask → ask [big]"},
		"another rule":        {by(big), "refund", `{"amount":101}`, "ask old", "ask → ask [big]"},
		"exact numbers":       {nil, "refund", `{"amount":9007199254740993}`, "allow", "allow → ask [big]"},
		"denied otherwise":    {nil, "drop_all", `{}`, "deny mine", "same"},
		"the operator's rule": {nil, "drop_all", `{}`, "allow", "allow → deny [operator:o]"},
		"a gate that is gone": {nil, "ping", `{}`, "ask mine", "ask → allow []"},

		"in a group":       {func(r *api.Run, _ *api.Call) { r.RequesterGroups = []string{"night"} }, "sweep", `{}`, "allow", "allow → ask [night]"},
		"in none":          {nil, "sweep", `{}`, "allow", "same"},
		"destructive":      {func(_ *api.Run, c *api.Call) { c.Destructive = true }, "wipe", `{}`, "allow mine", "allow → ask [destructive_hint]"},
		"the verdict says": {nil, "wipe", `{}`, "ask destructive_hint", "same"},

		"input lost, and it matters":     {func(r *api.Run, _ *api.Call) { r.Input = json.RawMessage("null") }, "note", `{}`, "allow", "rules look at the input, which is missing"},
		"input lost, and nobody looks":   {func(r *api.Run, _ *api.Call) { r.Input = nil }, "ping", `{}`, "allow", "same"},
		"redacted, and it matters":       {nil, "refund", `{"amount":"[secret:n]"}`, "allow", "rules look at the arguments, which are partly redacted"},
		"redacted, and nobody looks":     {nil, "ping", `{"x":"[secret:n]"}`, "allow", "same"},
		"redacted, and denied anyway":    {nil, "drop_all", `{"x":"[secret:n]"}`, "allow", "allow → deny [operator:o]"},
		"an edit that would be denied":   {edited(`{"all":true}`), "purge", `{"all":false}`, "ask mine", "ask → allow []"},
		"an accepted edit, denied today": {edited(`{"all":true}`), "purge", `{"all":false}`, "allow", "allow → deny [operator:any]"},
		"an edit that is fine":           {edited(`{"all":false}`), "purge", `{"all": false}`, "allow", "same"},

		"another agent's":           {func(r *api.Run, _ *api.Call) { r.Agent = "bank" }, "ping", `{}`, "allow", "the run is of agent bank, the manifest of shop"},
		"no such capability":        {func(r *api.Run, _ *api.Call) { r.Capability = "gone" }, "ping", `{}`, "allow", "the manifest has no capability gone with a loop"},
		"code of the agent's own":   {func(r *api.Run, _ *api.Call) { r.Capability = "code" }, "ping", `{}`, "allow", "the manifest has no capability code with a loop"},
		"a call that was no call":   {nil, "ping", "", "", "policy was not asked: the call was not one that could run"},
		"an operator's order":       {nil, "ping", `{}`, "deny operator", "an operator had switched the tool off"},
		"a server that is gone":     {func(_ *api.Run, c *api.Call) { c.Server = "old" }, "ping", `{}`, "allow", `the manifest has no MCP server "old"`},
		"a tool that is left out":   {func(_ *api.Run, c *api.Call) { c.Server = "docs" }, "ping", `{}`, "allow", "the manifest leaves this tool of the server out"},
		"a tool that is not missed": {func(_ *api.Run, c *api.Call) { c.Server = "docs" }, "ask", `{}`, "allow", "same"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, call := run, api.Call{ID: "call_1", Server: "orders", Tool: c.tool}
			if words := strings.Fields(c.then); len(words) > 0 {
				call.Verdict = api.Verdict{Effect: words[0], Rules: words[1:]}
			}
			if c.args != "" {
				call.ProposedArguments = json.RawMessage(c.args)
			}
			if c.change != nil {
				c.change(&r, &call)
			}
			if got := told(b, r, call); got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
		})
	}
}

func by(r *api.Reviewers) func(*api.Run, *api.Call) {
	return func(_ *api.Run, c *api.Call) { c.Verdict.Reviewers = r }
}

func edited(args string) func(*api.Run, *api.Call) {
	return func(_ *api.Run, c *api.Call) { c.DecidedArguments = json.RawMessage(args) }
}

func told(b book, r api.Run, c api.Call) string {
	var p replayReport
	p.judge(b, r, c)
	switch {
	case len(p.Unjudged) == 1:
		return p.Unjudged[0].Why
	case len(p.Different) == 1:
		d := p.Different[0]
		return string(d.Then.Effect) + " → " + string(d.Now.Effect) + " [" + strings.Join(d.Now.Rules, " ") + "]"
	case p.Same == 1:
		return "same"
	}
	return "nothing"
}
