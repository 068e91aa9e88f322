package mcp

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// C25: names the model sees.
func TestNames(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("n", 64)
	for _, c := range []struct {
		name       string
		tools      []string // server/tool or server/tool=shown
		namespaced bool
		want       []string
		excluded   []string
	}{
		{"plain", []string{"a/x", "b/y"}, false, []string{"x", "y"}, nil},
		{"namespaced", []string{"a/x"}, true, []string{"mcp__a__x"}, nil},
		{"two servers", []string{"b/x", "a/x", "a/y"}, false, []string{"mcp__a__x", "y", "mcp__b__x"}, nil},
		{"dots and unicode", []string{"a/orders.cancel", "a/größe", "a/b c"}, false, []string{"b_c", "gr__e", "orders_cancel"}, nil},
		{"same after replacement, two servers", []string{"a/x.y", "b/x_y"}, false, []string{"mcp__a__x_y", "mcp__b__x_y"}, nil},
		{"same after replacement, one server", []string{"a/x.y", "a/x_y", "a/z"}, false, []string{"z"}, []string{"a/x.y: also called", "a/x_y: also called"}},
		{"64 characters", []string{"a/" + long}, false, []string{long}, nil},
		{"65 characters", []string{"a/" + long + "n", "a/x"}, false, []string{"x"}, []string{"a/" + long + "n: 65 characters"}},
		{"too long only with its server", []string{"a/" + long, "b/" + long}, false, nil, []string{"a/" + long + ": 72 characters", "b/" + long + ": 72 characters"}},
		{"nothing left", []string{"a/名前", "a/x"}, false, []string{"x"}, []string{"a/名前: nothing is left"}},
		{"renamed", []string{"a/名前=name", "a/x.y=xy", "a/x_y"}, false, []string{"xy", "x_y", "name"}, nil},
		{"renamed onto another", []string{"a/x=z", "b/z"}, false, []string{"mcp__a__z", "mcp__b__z"}, nil},
		{"a raw name in another server's place", []string{"a/b", "c/b", "x/mcp__a__b"}, false, []string{"mcp__a__b", "mcp__c__b", "mcp__x__mcp__a__b"}, nil},
		{"no collision across case", []string{"a/X", "a/x"}, false, []string{"X", "x"}, nil},
		{"underscores at the border", []string{"a_/b", "a/_b"}, true, nil, []string{"a/_b: also called", "a_/b: also called"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var tools []Tool
			for _, s := range c.tools {
				server, name, _ := strings.Cut(s, "/")
				name, shown, ok := strings.Cut(name, "=")
				if !ok {
					shown = name
				}
				tools = append(tools, Tool{Server: server, Name: name, Shown: shown})
			}
			for range 2 {
				named, excluded := Names(tools, c.namespaced)
				var got []string
				for _, n := range named {
					got = append(got, n.Provider)
				}
				if d := cmp.Diff(c.want, got); d != "" {
					t.Error(d)
				}
				if len(excluded) != len(c.excluded) {
					t.Fatalf("excluded = %v", excluded)
				}
				for i, e := range excluded {
					who, why, _ := strings.Cut(c.excluded[i], ": ")
					if e.Server+"/"+e.Tool != who || !strings.Contains(e.Reason, why) {
						t.Errorf("excluded %+v, want %s", e, c.excluded[i])
					}
				}
				slices.Reverse(tools) // the outcome must be the same
			}
		})
	}
}
