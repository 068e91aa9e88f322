package runtime

import (
	"maps"
	"slices"

	"agentos/capabilities"
	"agentos/holds/policy"
	"agentos/internal/problem"
	"agentos/runtime/mcp"
)

// offered are the agent's tools as policy sees them, and under the names a
// capability's model sees; a name is empty where the tool is not shown.
func offered(tools []mcp.Tool, shown *toolSet) (calls []policy.Call, names []string) {
	for _, t := range tools {
		calls = append(calls, asPolicy(t))
		i := slices.IndexFunc(shown.named, func(n mcp.Named) bool { return n.Tool.Server == t.Server && n.Tool.Name == t.Name })
		if i < 0 {
			names = append(names, "")
			continue
		}
		names = append(names, shown.named[i].Provider)
	}
	return calls, names
}

// Misleading returns what is wrong with rules that read like a gate for an
// offered tool and are none, or nil. An agent with such a rule must not run.
func (a *Agent) Misleading() *problem.Error { return a.view().misleading }

func (a *Agent) findMisleading(v *view) *problem.Error {
	var faults []problem.Detail
	tools := a.MCP.Tools()
	for _, name := range slices.Sorted(maps.Keys(v.sets)) {
		set := v.sets[name]
		for _, text := range a.nearMisses(tools, set) {
			faults = append(faults, problem.Detail{Path: "capabilities." + name, Message: text})
		}
	}
	if len(faults) == 0 {
		return nil
	}
	return problem.New(problem.InvalidManifest, "agent %s has rules that protect nothing although they read like it", a.Manifest.Name).With(faults...)
}

// nearMisses are the rules that read like a gate for a tool of the agent and are
// none. The operator's rules are for every agent, so one of them may resemble a tool
// by chance: it is no fault where another of the operator's rules is about the tool.
func (a *Agent) nearMisses(tools []mcp.Tool, set *toolSet) []string {
	calls, names := offered(tools, set)
	var bare []policy.Call
	var bareNames []string
	for i, c := range calls {
		if len(policy.Unmatched(a.Operator.Rules, []policy.Call{c})) == len(a.Operator.Rules) {
			bare, bareNames = append(bare, c), append(bareNames, names[i])
		}
	}
	var out []string
	for i, r := range set.rules {
		if i < len(a.Operator.Rules) && len(policy.Unmatched([]policy.Rule{r}, calls)) == 1 {
			if text, near := policy.NearMiss(r, bare, bareNames); near {
				out = append(out, text)
			}
		} else if text, near := policy.NearMiss(r, calls, names); near {
			out = append(out, text)
		}
	}
	return out
}

// Idle returns what an operator should know about rules and tools entries of the
// manifest that match no tool that is offered now, and that Misleading does not
// report. While a server is away its rules are not judged.
func (a *Agent) Idle() []string {
	if a.away() {
		return nil
	}
	var out []string
	tools := a.MCP.Tools()
	for name, set := range a.view().sets {
		for _, entry := range a.Manifest.Capabilities[name].Loop.Tools {
			only := capabilities.Loop{Tools: []string{entry}}
			if !slices.ContainsFunc(tools, func(t mcp.Tool) bool { return only.Offers(t.Server, t.Name) }) {
				out = append(out, "agent "+a.Manifest.Name+", capability "+name+": tools: "+entry+" matches no tool that a server offers")
			}
		}
		calls, names := offered(tools, set)
		for _, r := range policy.Unmatched(set.rules[len(a.Operator.Rules):], calls) {
			if _, near := policy.NearMiss(r, calls, names); near {
				continue
			}
			out = append(out, "agent "+a.Manifest.Name+", capability "+name+": rule "+r.ID+" matches no tool that a server offers")
		}
	}
	slices.Sort(out)
	return out
}

// away reports whether a server is not connected, so that its tools are not known.
func (a *Agent) away() bool {
	return slices.ContainsFunc(a.MCP.Status(), func(s mcp.Status) bool { return s.Status != mcp.Connected })
}

// IdleOperator returns which rules of the operator match no tool of any of the
// agents, which are all of a server's. While a server is away nothing is judged.
func IdleOperator(agents []*Agent) []string {
	var calls []policy.Call
	for _, a := range agents {
		if a.away() {
			return nil
		}
		for _, t := range a.MCP.Tools() {
			calls = append(calls, asPolicy(t))
		}
	}
	var out []string
	if len(agents) > 0 {
		for _, r := range policy.Unmatched(agents[0].Operator.Rules, calls) {
			out = append(out, "rule "+r.ID+" matches no tool of any agent")
		}
	}
	return out
}
