package policy

import (
	"encoding/json"
	"math/big"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"agentos/internal/rawjson"
)

func when(tb testing.TB, text string) *Condition {
	tb.Helper()
	c, err := CompileCondition(text)
	if err != nil {
		tb.Fatalf("%s: %v", text, err)
	}
	return c
}

// refund is a call with the arguments, in a run that ann asked for.
func refund(args string) Call {
	return Call{
		Server: "shop", Tool: "refund", Args: json.RawMessage(args), Input: json.RawMessage(`{"vip":true,"note":"12345678901234567890123"}`),
		Requester: Requester{Name: "ann", Groups: []string{"support", "night"}},
		Run:       Run{ID: "r_1", Agent: "shop", Capability: "support", SessionID: "s", Env: "default"},
	}
}

func TestConditionHolds(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		when, args string
		want       string // "true", "false", or a part of the error
	}{
		{`args.amount > 100`, `{"amount":100}`, "false"},
		{`args.amount > 100`, `{"amount":100.01}`, "true"},
		{`args.amount > 100`, `{"amount":1e2}`, "false"},
		{`args.amount > 100`, `{"amount":"150"}`, "no such overload"},
		{`args.amount > 100`, `{"amount":null}`, "no such overload"},
		{`args.amount > 100`, `{}`, "no such key: amount"},
		{`args.?amount.orValue(0) > 100`, `{}`, "false"},
		{`has(args.amount) && args.amount > 100`, `{}`, "false"},
		{`args.to.endsWith("@example.com")`, `{"to":"x@example.com"}`, "true"},
		{`args.to.endsWith("@example.com")`, `{"to":["x@example.com"]}`, "no such overload"},
		{`args.lines.exists(l, l.price > 10)`, `{"lines":[{"price":5},{"price":50}]}`, "true"},
		{`args.lines.all(l, l.price < 10)`, `{"lines":[{"price":5},{}]}`, "no such key: price"},
		{`args["strange key"] == "x"`, `{"strange key":"x"}`, "true"},
		{`args == {"a": [1, {"b": null}], "c": true}`, `{"c":true,"a":[1,{"b":null}]}`, "true"},
		// Integers are compared digit by digit.
		{`args.id == 9007199254740993`, `{"id":9007199254740992}`, "false"},
		{`args.id == 9007199254740993`, `{"id":9007199254740993}`, "true"},
		{`args.id > 1234567890123456788`, `{"id":1234567890123456789}`, "true"},
		{`args.id > 1234567890123456789`, `{"id":1234567890123456789}`, "false"},
		{`args.id == -9223372036854775808`, `{"id":-9223372036854775808}`, "true"},
		{`args.id > 9223372036854775807`, `{"id":9223372036854775808}`, "true"},
		{`args.id == 18446744073709551615u`, `{"id":18446744073709551615}`, "true"},
		{`args.id + 1 > 0`, `{"id":9223372036854775807}`, "overflow"},
		{`args.n == 5`, `{"n":5.0}`, "true"},
		{`args.n == 0.1`, `{"n":0.10}`, "true"},
		{`args.n < 0`, `{"n":-0}`, "false"},
		// What has no exact value is not compared at all, wherever it stands.
		{`args.id > 5`, `{"id":18446744073709551616}`, "cannot be compared exactly"},
		{`args.id > 5`, `{"id":6,"deep":[{"x":-9223372036854775809}]}`, "cannot be compared exactly"},
		{`args.id == 9007199254740993`, `{"id":9007199254740992.0}`, "cannot be compared exactly"},
		{`args.n > 100`, `{"n":100.00000000000000000001}`, "cannot be compared exactly"},
		{`args.n > 100`, `{"n":1e300}`, "cannot be compared exactly"},
		{`args.n > 100`, `{"n":1e-400}`, "cannot be compared exactly"},
		// Only what is looked at must be readable.
		{`requester.name == "ann"`, `{"id":18446744073709551616}`, "true"},
		{`input.vip == true`, `[]`, "true"},
		{`args.n > 1`, `[]`, "args is no object"},
		{`args.n > 1`, ``, "args is no object"},
		{`args.n > 1`, `{"n":1,"n":2}`, "duplicate name"},
		// The rest of the variables.
		{`"night" in requester.groups && !("finance" in requester.groups)`, `{}`, "true"},
		{`run.id == "r_1" && run.agent == "shop" && run.capability == "support" && run.session_id == "s" && run.env == "default"`, `{}`, "true"},
		{`input.vip`, ``, "compile"},
		{`input.note == true`, `{}`, "false"},
		{`args.x || args.y`, `{"x":true}`, "true"},
		{`args.x || args.y`, `{"x":false}`, "no such key: y"},
		{`args.x || args.y`, `{"x":1,"y":false}`, "no such overload"},
		{`args.x`, ``, "compile"},
		{`true`, ``, "true"},
	} {
		cond, err := CompileCondition(c.when)
		if (err != nil) != (c.want == "compile") {
			t.Errorf("compile %s: %v", c.when, err)
		}
		if err != nil {
			continue
		}
		call := refund(c.args)
		yes, err := cond.holds(&facts{call: &call})
		switch {
		case c.want == "true" || c.want == "false":
			if err != nil || yes != (c.want == "true") {
				t.Errorf("%s on %s = %v, %v; want %s", c.when, c.args, yes, err, c.want)
			}
		case err == nil || yes || !strings.Contains(err.Error(), c.want):
			t.Errorf("%s on %s = %v, %v; want an error with %q", c.when, c.args, yes, err, c.want)
		}
	}
}

func TestConditionFaults(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                              "must be a CEL expression",
		" \n ":                          "must be a CEL expression",
		"\xff == 1":                     "must be a CEL expression",
		"args.x":                        "must be true or false, not dyn",
		"1 + 1":                         "must be true or false, not int",
		"arg.x > 1":                     `1:1: undeclared reference to 'arg' (did you mean 'args'?)`,
		"args.x > 1 ||\n  inputs.y":     "2:3: undeclared reference to 'inputs'",
		"requester.nam == 'x'":          "did you mean 'requester.name'?",
		"requester == 'x'":              "undeclared reference",
		"args.x > ":                     "1:10: Syntax error",
		"args.s.matches('(')":           "missing closing )",
		"now() > args.x":                "undeclared reference to 'now'",
		"'a' + 1 == 'b'":                "no matching overload",
		"${params.limit} < args.x":      "Syntax error",
		strings.Repeat("a", 5000):       "longer than 4096",
		strings.Repeat("(", 500) + "1":  "", // refused, whatever it says
		strings.Repeat("!", 2000) + "1": "",
		strings.Repeat("[", 2000):       "",
	} {
		c, err := CompileCondition(text)
		if err == nil {
			t.Errorf("%.40q compiled to %v", text, c)
			continue
		}
		if !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") || len(err.Error()) > 1000 {
			t.Errorf("%.40q: %v", text, err)
		}
	}
}

// TestHostileConditions: neither an expression nor arguments make a verdict slow,
// and what is stopped asks.
func TestHostileConditions(t *testing.T) {
	t.Parallel()
	list := "[" + strings.Repeat("1,", 5000) + "1]"
	long := strings.Repeat("a", 900_000)
	for _, c := range []struct{ when, args string }{
		{`args.l.all(a, args.l.all(b, args.l.all(c, a + b + c > 0)))`, `{"l":` + list + `}`},
		{`args.l.map(a, args.l.map(b, args.l.map(c, a + b + c))) == []`, `{"l":` + list + `}`},
		{`["x"]` + strings.Repeat(".map(a, a + a)", 25) + ` == ["x"]`, `{}`},
		{`args.s.matches("(a*)*(a*)*(a*)*b")`, `{"s":"` + long + `"}`},
		{`"aaaa".matches(args.p)`, `{"p":"` + strings.Repeat("(a{1000}){1000}", 10) + `"}`},
		{`(args.s + args.s + args.s + args.s + args.s) == ""`, `{"s":"` + long + `"}`},
	} {
		call := refund(c.args)
		start := time.Now()
		v := Evaluate([]Rule{{ID: "h", Effect: Deny, Tool: "*", When: when(t, c.when)}}, call)
		if v.Effect != Ask || !strings.Contains(v.Reason, "could not be decided") {
			t.Errorf("%s: %+v", c.when, v)
		}
		if d := time.Since(start); d > 5*time.Second { // some 20 ms; slow machines and -race included
			t.Errorf("%s took %s", c.when, d)
		}
	}
}

func TestConditionIsSafeForConcurrentUse(t *testing.T) {
	t.Parallel()
	rules := []Rule{{ID: "c", Effect: Deny, Tool: "*", When: when(t, `args.n > 10 && input.vip == true && args.l.exists(x, x == args.n)`)}}
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			args, want := `{"n":11,"l":[11]}`, Deny
			if i%2 == 0 {
				args, want = `{"n":10,"l":[]}`, Allow
			}
			for range 50 {
				if v := Evaluate(rules, refund(args)); v.Effect != want {
					t.Errorf("%s: %+v", args, v)
				}
			}
		})
	}
	wg.Wait()
}

func TestEvaluateConditions(t *testing.T) {
	t.Parallel()
	yes, no, doubt := when(t, `args.n > 1`), when(t, `args.n > 9`), when(t, `args.m > 1`)
	rule := func(id string, e Effect, c *Condition, reason string) Rule {
		return Rule{ID: id, Effect: e, Tool: "refund", When: c, Reason: reason}
	}
	asks := func(reason string, ids ...string) Verdict {
		return Verdict{Effect: Ask, Rules: ids, Reason: reason, Expires: DefaultExpires, OnExpire: RejectOnExpire}
	}
	const nobodyKnows = "The condition of rule %s could not be decided: no such key: m."
	told := func(id string) string { return strings.Replace(nobodyKnows, "%s", id, 1) }
	for _, c := range []struct {
		name        string
		rules       []Rule
		destructive bool
		want        Verdict
	}{
		{"deny true", []Rule{rule("d", Deny, yes, "No.")}, false, Verdict{Effect: Deny, Rules: []string{"d"}, Reason: "No."}},
		{"deny false", []Rule{rule("d", Deny, no, "No.")}, false, Verdict{Effect: Allow}},
		{"deny in doubt asks", []Rule{rule("d", Deny, doubt, "No.")}, false, asks("No. "+told("d"), "d")},
		{"ask true", []Rule{rule("a", Ask, yes, "")}, false, asks("", "a")},
		{"ask false", []Rule{rule("a", Ask, no, "")}, false, Verdict{Effect: Allow}},
		{"ask in doubt asks", []Rule{rule("a", Ask, doubt, "")}, false, asks(told("a"), "a")},
		{"allow true", []Rule{rule("o", Allow, yes, "")}, false, Verdict{Effect: Allow, Rules: []string{"o"}}},
		{"allow false", []Rule{rule("o", Allow, no, "")}, false, Verdict{Effect: Allow}},
		{"allow in doubt asks", []Rule{rule("o", Allow, doubt, "")}, false, asks(told("o"), "o")},
		{"allow true lifts the hint", []Rule{rule("o", Allow, yes, "")}, true, Verdict{Effect: Allow, Rules: []string{"o"}}},
		{"allow false leaves the hint", []Rule{rule("o", Allow, no, "")}, true, asks("The server declares this tool destructive.", DestructiveHint)},
		{"allow in doubt does not lift the hint", []Rule{rule("o", Allow, doubt, "")}, true, asks(told("o"), "o")},
		{"a sure deny beats a doubt", []Rule{rule("a", Ask, doubt, ""), rule("d", Deny, yes, "No.")}, false, Verdict{Effect: Deny, Rules: []string{"d"}, Reason: "No."}},
		{"a doubt beside an allow", []Rule{rule("o", Allow, nil, ""), rule("d", Deny, doubt, "")}, false, asks(told("d"), "d")},
		{"the reason of a sure rule comes first", []Rule{rule("a", Ask, doubt, ""), rule("b", Ask, nil, "Look.")}, false, asks("Look. "+told("a"), "a", "b")},
		{
			"many doubts are cut",
			[]Rule{rule("1", Ask, doubt, ""), rule("2", Ask, doubt, ""), rule("3", Ask, doubt, ""), rule("4", Ask, doubt, ""), rule("5", Deny, doubt, "")},
			false,
			asks(told("1")+" "+told("2")+" "+told("3")+" 2 more could not.", "1", "2", "3", "4", "5"),
		},
		{"a rule for another tool is not evaluated", []Rule{{ID: "x", Effect: Deny, Tool: "other", When: doubt}}, false, Verdict{Effect: Allow}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			call := refund(`{"n":5}`)
			call.Destructive = c.destructive
			if diff := cmp.Diff(c.want, Evaluate(c.rules, call)); diff != "" {
				t.Errorf("verdict (-want +got):\n%s", diff)
			}
		})
	}
}

func TestStatic(t *testing.T) {
	t.Parallel()
	cond := when(t, `args.n > 1`)
	r := func(id string, e Effect, c *Condition) Rule { return Rule{ID: id, Effect: e, Tool: "refund", When: c} }
	for _, c := range []struct {
		name        string
		rules       []Rule
		destructive bool
		want        Effect
		ids         string
	}{
		{"nothing", nil, false, Allow, ""},
		{"deny", []Rule{r("d", Deny, nil), r("c", Ask, cond)}, false, Deny, "d"},
		{"ask", []Rule{r("a", Ask, nil), r("c", Ask, cond)}, false, Ask, "a"},
		{"ask that may be denied", []Rule{r("a", Ask, nil), r("c", Deny, cond)}, false, Conditional, "a c"},
		{"ask whatever an allow says", []Rule{r("a", Ask, nil), r("c", Allow, cond)}, false, Ask, "a"},
		{"maybe ask", []Rule{r("c", Ask, cond)}, false, Conditional, "c"},
		{"maybe ask in spite of an allow", []Rule{r("o", Allow, nil), r("c", Ask, cond)}, false, Conditional, "o c"},
		{"an allow may be in doubt", []Rule{r("c", Allow, cond)}, false, Conditional, "c"},
		{"the hint may be lifted", []Rule{r("c", Allow, cond)}, true, Conditional, "c"},
		{"another tool's condition", []Rule{{ID: "x", Effect: Deny, Tool: "other", When: cond}}, false, Allow, ""},
	} {
		v := Static(c.rules, Call{Server: "shop", Tool: "refund", Destructive: c.destructive})
		if v.Effect != c.want || strings.Join(v.Rules, " ") != c.ids {
			t.Errorf("%s: %s %v; want %s [%s]", c.name, v.Effect, v.Rules, c.want, c.ids)
		}
	}
}

// FuzzCondition looks at the border to CEL: whatever is written and whatever a
// model sends, there is a verdict, it is the same each time, and it is allowed
// only when the condition was found false.
func FuzzCondition(f *testing.F) {
	f.Add(`args.amount > 100`, `{"amount":100.5}`)
	f.Add(`args.id == 9007199254740993`, `{"id":9007199254740993}`)
	f.Add(`args.a.b[0].c in input.list || requester.name == "x"`, `{"a":{"b":[{"c":1}]}}`)
	f.Add(`args.s.matches(args.p)`, `{"s":"a","p":"("}`)
	f.Add(`args.l.all(x, x > 0u) && timestamp(args.t) > timestamp("2020-01-01T00:00:00Z")`, `{"l":[1],"t":"y"}`)
	f.Add(`args.?a.?b.orValue(1) == 1`, `{"a":{"b":1e400}}`)
	f.Add(`duration(args.d) < duration("1h") || type(args.d) == string`, `{"d":"5m"}`)
	f.Fuzz(func(t *testing.T, text, args string) {
		c, err := CompileCondition(text)
		if err != nil {
			if err.Error() == "" || strings.Contains(err.Error(), "\n") {
				t.Fatalf("error %q", err)
			}
			return
		}
		call := refund(args)
		yes, err := c.holds(&facts{call: &call})
		v := Evaluate([]Rule{{ID: "r", Effect: Deny, Tool: "*", When: c}}, call)
		want := Deny
		switch {
		case err != nil:
			want = Ask
		case !yes:
			want = Allow
		}
		if v.Effect != want {
			t.Fatalf("%s on %s: %v, %v gives %+v", text, args, yes, err, v)
		}
		if c.args && rawjson.Check([]byte(args)) != nil && v.Effect != Ask {
			t.Fatalf("%s decided on broken arguments %q", text, args)
		}
	})
}

// FuzzNumber: a number that is accepted is the same number.
func FuzzNumber(f *testing.F) {
	for _, s := range []string{"0", "-0", "9007199254740993", "18446744073709551615", "0.1", "1e2", "1e-400", "100.000000000000000001", "9007199254740992.5"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if rawjson.Check([]byte(text)) != nil || rawjson.Kind([]byte(text)) != "number" || strings.TrimSpace(text) != text {
			return
		}
		v, err := number(text)
		if err != nil {
			return
		}
		back, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		want, ok := new(big.Rat).SetString(text)
		got, same := new(big.Rat).SetString(string(back))
		if !ok || !same || want.Cmp(got) != 0 {
			t.Fatalf("%s became %s", text, back)
		}
	})
}
