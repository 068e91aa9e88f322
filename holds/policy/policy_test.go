package policy

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestMatch(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		pattern, server, tool string
		want                  bool
	}{
		{"cancel", "orders", "cancel", true},
		{"cancel", "other", "cancel", true},
		{"cancel", "orders", "cancel_all", false},
		{"cancel", "orders", "Cancel", false},
		{"cancel*", "orders", "cancel_all", true},
		{"*", "orders", "a/b.c", true},
		{"**", "orders", "", true},
		{"?", "orders", "", false},
		{"?", "orders", "ü", true},
		{"??", "orders", "ü", false},
		{"a?c", "orders", "a🙂c", true},
		{"*ab*ab", "orders", "aabab", true},
		{"*a*b*c", "orders", "xxaxbxxcb", false},
		{"", "orders", "", true},
		{"", "orders", "a", false},
		// Nothing else is special.
		{"[a-z]", "orders", "b", false},
		{"[a-z]", "orders", "[a-z]", true},
		{`a\*`, "orders", "a*", false},
		{"orders.cancel", "orders", "ordersXcancel", false},
		{"{a,b}", "orders", "a", false},
		// A slash splits alias and tool once, or is part of a raw name.
		{"orders/cancel", "orders", "cancel", true},
		{"orders/cancel", "other", "cancel", false},
		{"ord*/can*", "orders", "cancel", true},
		{"*/cancel", "other", "cancel", true},
		{"fs/a/b", "fs", "a/b", true},
		{"repos/delete", "github", "repos/delete", true},
		{"repos/*", "github", "repos/delete", true},
		{"github/repos/delete", "github", "repos/delete", true},
		{"delete", "github", "repos/delete", false},
		{"*delete", "github", "repos/delete", true},
		{"/", "", "", true},
		{"/x", "orders", "x", false},
		{"orders/", "orders", "x", false},
	} {
		if got := Match(c.pattern, c.server, c.tool); got != c.want {
			t.Errorf("Match(%q, %q, %q) = %v", c.pattern, c.server, c.tool, got)
		}
	}
	if MatchServerTool("orders/cancel", "evil", "orders/cancel") {
		t.Error("a tool can name itself into another server")
	}
	if !MatchServerTool("orders/*", "orders", "a/b") || !MatchServerTool("cancel", "x", "cancel") {
		t.Error("MatchServerTool refuses its own server")
	}
}

func TestGlobIsFast(t *testing.T) {
	t.Parallel()
	pattern := strings.Repeat("a*", 100) + "b"
	name := strings.Repeat("a", 5000)
	start := time.Now()
	if glob(pattern, name) {
		t.Error("matched")
	}
	if d := time.Since(start); d > time.Second {
		t.Errorf("took %s", d)
	}
}

func FuzzGlob(f *testing.F) {
	f.Add("a*b?c", "axxbyc")
	f.Add("*🙂?", "x🙂ü")
	f.Add("repos/*", "repos/a/b")
	f.Add("**?*", "")
	f.Fuzz(func(t *testing.T, pattern, name string) {
		if len(pattern) > 50 || len(name) > 200 {
			return
		}
		pattern, name = strings.ToValidUTF8(pattern, "."), strings.ToValidUTF8(name, ".")
		quoted := regexp.QuoteMeta(pattern)
		quoted = strings.ReplaceAll(strings.ReplaceAll(quoted, `\*`, `.*`), `\?`, `.`)
		want := regexp.MustCompile(`(?s)^(?:` + quoted + `)$`).MatchString(name)
		if got := glob(pattern, name); got != want {
			t.Fatalf("glob(%q, %q) = %v, the regular expression says %v", pattern, name, got, want)
		}
		if !strings.Contains(pattern, "/") && Match(pattern, "s", name) != want {
			t.Fatalf("Match(%q, %q) differs from glob", pattern, name)
		}
		if !IsGlob(name) && !Match("s/"+name, "s", name) {
			t.Fatalf("%q does not match itself", name)
		}
	})
}

func TestEvaluate(t *testing.T) {
	t.Parallel()
	deny := Rule{ID: "d", Effect: Deny, Tool: "drop_*", Reason: "Never."}
	ask := Rule{ID: "a", Effect: Ask, Tool: "orders/*", Expires: 2 * time.Hour, Reason: "Look first."}
	askShort := Rule{ID: "s", Effect: Ask, Tool: "cancel", Expires: time.Hour, OnExpire: FailOnExpire}
	askPlain := Rule{ID: "p", Effect: Ask, Tool: "cancel"}
	allow := Rule{ID: "ok", Effect: Allow, Tool: "cancel"}
	allowAll := Rule{ID: "all", Effect: Allow, Tool: "*"}
	unknown := Rule{ID: "u", Effect: "alow", Tool: "cancel"}
	cancel := Call{Server: "orders", Tool: "cancel"}
	destructive := Call{Server: "x", Tool: "cancel", Destructive: true}
	hint := Verdict{
		Effect: Ask, Rules: []string{DestructiveHint}, Reason: "The server declares this tool destructive.",
		Expires: DefaultExpires, OnExpire: RejectOnExpire,
	}
	for _, c := range []struct {
		name  string
		rules []Rule
		call  Call
		want  Verdict
	}{
		{"default", nil, cancel, Verdict{Effect: Allow}},
		{"allow", []Rule{allow}, cancel, Verdict{Effect: Allow, Rules: []string{"ok"}}},
		{
			"ask over allow",
			[]Rule{allow, ask},
			cancel,
			Verdict{Effect: Ask, Rules: []string{"a"}, Reason: "Look first.", Expires: 2 * time.Hour, OnExpire: RejectOnExpire},
		},
		{
			"ask over allow in the other order",
			[]Rule{ask, allow},
			cancel,
			Verdict{Effect: Ask, Rules: []string{"a"}, Reason: "Look first.", Expires: 2 * time.Hour, OnExpire: RejectOnExpire},
		},
		{
			"shortest wait, fail wins, first reason",
			[]Rule{askPlain, ask, askShort},
			cancel,
			Verdict{Effect: Ask, Rules: []string{"p", "a", "s"}, Reason: "Look first.", Expires: time.Hour, OnExpire: FailOnExpire},
		},
		{
			"deny over all",
			[]Rule{allowAll, ask, deny},
			Call{Server: "orders", Tool: "drop_table"},
			Verdict{Effect: Deny, Rules: []string{"d"}, Reason: "Never."},
		},
		{"unknown effect closes", []Rule{allow, unknown}, cancel, Verdict{Effect: Deny, Rules: []string{"u"}}},
		{"destructive asks", nil, destructive, hint},
		{"a glob does not allow destructive", []Rule{allowAll}, destructive, hint},
		{"a name does", []Rule{allow}, destructive, Verdict{Effect: Allow, Rules: []string{"ok"}}},
		{"server and name do", []Rule{{ID: "n", Effect: Allow, Tool: "x/cancel"}}, destructive, Verdict{Effect: Allow, Rules: []string{"n"}}},
		{"any server does not", []Rule{{ID: "n", Effect: Allow, Tool: "*/cancel"}}, destructive, hint},
		{
			"a tool cannot name itself into an allow rule",
			[]Rule{{ID: "n", Effect: Allow, Tool: "orders/cancel"}},
			Call{Server: "evil", Tool: "orders/cancel", Destructive: true},
			hint,
		},
		{
			"but it cannot name itself out of a deny rule",
			[]Rule{{ID: "n", Effect: Deny, Tool: "orders/cancel"}},
			Call{Server: "evil", Tool: "orders/cancel"},
			Verdict{Effect: Deny, Rules: []string{"n"}},
		},
		{
			"a rule that asks takes the place of the hint",
			[]Rule{askPlain},
			destructive,
			Verdict{Effect: Ask, Rules: []string{"p"}, Expires: DefaultExpires, OnExpire: RejectOnExpire},
		},
		{"destructive and denied", []Rule{{ID: "n", Effect: Deny, Tool: "*"}}, destructive, Verdict{Effect: Deny, Rules: []string{"n"}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(c.want, Evaluate(c.rules, c.call)); diff != "" {
				t.Errorf("verdict (-want +got):\n%s", diff)
			}
		})
	}
}

// TestPrecedence tries every set of effects in every order: the strongest wins.
func TestPrecedence(t *testing.T) {
	t.Parallel()
	rank := map[Effect]int{Allow: 0, Ask: 1, Deny: 2}
	effects := []Effect{Allow, Ask, Deny}
	for i := range 3 * 3 * 3 {
		rules := make([]Rule, 3)
		want := Allow
		for j, e := range []Effect{effects[i%3], effects[i/3%3], effects[i/9]} {
			rules[j] = Rule{ID: strconv.Itoa(j), Effect: e, Tool: "x"}
			if rank[e] > rank[want] {
				want = e
			}
		}
		if got := Evaluate(rules, Call{Server: "s", Tool: "x"}); got.Effect != want {
			t.Errorf("%v gives %s, want %s", rules, got.Effect, want)
		}
	}
}

func TestUnmatched(t *testing.T) {
	t.Parallel()
	offered := []Call{{Server: "orders", Tool: "orders.cancel"}, {Server: "fs", Tool: "repos/delete"}}
	rules := []Rule{
		{ID: "1", Effect: Ask, Tool: "orders.*"},
		{ID: "2", Effect: Ask, Tool: "refund"},
		{ID: "3", Effect: Deny, Tool: "repos/*"},
		{ID: "4", Effect: Allow, Tool: "repos/delete"},
		{ID: "5", Effect: Allow, Tool: "fs/repos/delete"},
	}
	var ids []string
	for _, r := range Unmatched(rules, offered) {
		ids = append(ids, r.ID)
	}
	if diff := cmp.Diff([]string{"2", "4"}, ids); diff != "" {
		t.Errorf("unmatched (-want +got):\n%s", diff)
	}
}

func TestNearMiss(t *testing.T) {
	t.Parallel()
	offered := []Call{
		{Server: "orders", Tool: "orders.cancel"},
		{Server: "orders", Tool: "refund"},
		{Server: "github", Tool: "github_search"},
		{Server: "db", Tool: "drop_table"},
		{Server: "db", Tool: "getItem"},
	}
	shown := []string{"orders_cancel", "mcp__orders__refund", "github_search", "", "get_it"}
	for _, c := range []struct {
		tool string
		want string // what to write; "" means no near miss
	}{
		{"orders.cancel", ""},
		{"refund", ""},
		{"drop_*", ""},
		// As the model or the provider sees the tool.
		{"orders_cancel", "orders/orders.cancel"},
		{"mcp__orders__refund", "orders/refund"},
		{"mcp__orders__*", "orders/refund"},
		{"get_it", "db/getItem"},
		// Case, separators, a slip.
		{"orders-cancel", "orders/orders.cancel"},
		{"ordersCancel", "orders/orders.cancel"},
		{"Orders.Cancel", "orders/orders.cancel"},
		{"orders.cancle", "orders/orders.cancel"},
		{"orders.cance", "orders/orders.cancel"},
		{"drop-*", "db/drop_table"},
		{"db.drop_table", "db/drop_table"},
		{"order/refund", "orders/refund"},
		{"get_item", "db/getItem"},
		{"orders-*", "orders/orders.cancel"},
		// Something else altogether.
		{"purge", ""},
		{"delete_*", ""},
		{"git.*", ""},
		{"*.*.*", ""},
		{"orders/ship", ""},
		{"_*", ""},
		{"refunds_report", ""},
	} {
		text, ok := NearMiss(Rule{ID: "r", Effect: Deny, Tool: c.tool}, offered, shown)
		if ok != (c.want != "") || ok && !strings.Contains(text, fmt.Sprintf("write %q", c.want)) {
			t.Errorf("NearMiss(%q) = %q, %v; want %q", c.tool, text, ok, c.want)
		}
	}
	if _, ok := NearMiss(Rule{Effect: Allow, Tool: "orders_cancel"}, offered, shown); ok {
		t.Error("an allow rule is no gate that could be missed")
	}
	if _, ok := NearMiss(Rule{Effect: Ask, Tool: "orders_cancel"}, offered, nil); !ok {
		t.Error("without shown names the likeness must be found")
	}
}
