package mcp

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// maxName is the longest name providers take for a function.
const maxName = 64

// prefix marks names that carry their server.
const prefix = "mcp__"

// Named is a tool under the name the model sees.
type Named struct {
	Provider string
	Tool     Tool
}

// Excluded is a tool the model cannot be shown.
type Excluded struct {
	Server string `json:"server"`
	Tool   string `json:"tool"`
	Reason string `json:"reason"`
}

// Names gives each tool the name the model sees: its own, or
// mcp__<server>__<tool> where two servers offer the same one, and for all when
// namespaced is set. Characters outside [A-Za-z0-9_-] become "_". A name that
// ends up empty, over 64 characters or still not unique excludes its tool; it is
// never cut. Both results are sorted by server and tool, whatever the order of
// tools.
func Names(tools []Tool, namespaced bool) ([]Named, []Excluded) {
	tools = slices.Clone(tools)
	slices.SortStableFunc(tools, func(a, b Tool) int {
		return cmp.Or(cmp.Compare(a.Server, b.Server), cmp.Compare(a.Name, b.Name))
	})
	plain := map[string]map[string]bool{} // name → servers that offer it
	for _, t := range tools {
		n := providerName(t.Shown)
		if plain[n] == nil {
			plain[n] = map[string]bool{}
		}
		plain[n][t.Server] = true
	}
	final := make([]string, len(tools))
	users := map[string]int{}
	for i, t := range tools {
		n := providerName(t.Shown)
		// A raw name that looks as if it carried a server is given its own, so
		// that no server can take another's place.
		if namespaced || len(plain[n]) > 1 || strings.HasPrefix(n, prefix) {
			n = prefix + providerName(t.Server) + "__" + n
		}
		final[i] = n
		users[n]++
	}
	var named []Named
	var excluded []Excluded
	for i, t := range tools {
		if why := unusable(t, final[i], users[final[i]]); why != "" {
			excluded = append(excluded, Excluded{Server: t.Server, Tool: t.Name, Reason: why})
			continue
		}
		named = append(named, Named{Provider: final[i], Tool: t})
	}
	return named, excluded
}

func unusable(t Tool, name string, users int) string {
	switch {
	case strings.Trim(providerName(t.Shown), "_-") == "":
		return "nothing is left of its name when only [A-Za-z0-9_-] may stay; give it another with rename"
	case len(name) > maxName:
		return fmt.Sprintf("its name %q has %d characters and providers take %d; give it a shorter one with rename", name, len(name), maxName)
	case users > 1:
		return fmt.Sprintf("another tool is also called %q; give one of them another name with rename", name)
	}
	return ""
}

func providerName(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '_', r == '-':
			return r
		}
		return '_'
	}, s)
}
