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
		calls, names := offered(tools, set)
		for _, r := range set.rules {
			if text, near := policy.NearMiss(r, calls, names); near {
				faults = append(faults, problem.Detail{Path: "capabilities." + name, Message: text})
			}
		}
	}
	if len(faults) == 0 {
		return nil
	}
	return problem.New(problem.InvalidManifest, "agent %s has rules that protect nothing although they read like it", a.Manifest.Name).With(faults...)
}

// Idle returns what an operator should know about rules and tools entries that
// match no tool that is offered now, and that Misleading does not report. While a server is away its
// rules are not judged.
func (a *Agent) Idle() []string {
	if slices.ContainsFunc(a.MCP.Status(), func(s mcp.Status) bool { return s.Status != mcp.Connected }) {
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
		for _, r := range policy.Unmatched(set.rules, calls) {
			if _, near := policy.NearMiss(r, calls, names); near {
				continue
			}
			out = append(out, "agent "+a.Manifest.Name+", capability "+name+": rule "+r.ID+" matches no tool that a server offers")
		}
	}
	slices.Sort(out)
	return out
}
