package strictyaml

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"agentos/internal/rawjson"
)

func mustParse(t *testing.T, text string) *Document {
	t.Helper()
	d, err := Parse("f.yaml", []byte(text))
	if err != nil {
		t.Fatalf("Parse(%.100q): %v", text, err)
	}
	return d
}

// TestTextStaysAsWritten: YAML 1.1 reads these as booleans, octal numbers, dates
// and floats; a text field gets what the author wrote.
func TestTextStaysAsWritten(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"no", "on", "off", "y", "True", "012", "0x1F", "1_000", "1.0", "1e3", ".5", ".inf", "2020-01-01",
		"2001-12-14t21:59:43.10-05:00", "12:30:45", "12345678901234567890", "+1", "=", "a b",
	} {
		d := mustParse(t, "k: "+text)
		if got := d.Root().Object().Get("k").String(); got != text || d.Err() != nil {
			t.Errorf("%s is read as %q, %v", text, got, d.Err())
		}
	}
	for yaml, want := range map[string]string{
		`k: "no"`: "no", `k: 'it''s'`: "it's", `k: "\u00e9"`: "é", "k: |\n  a\n  b\n": "a\nb\n", "k: >-\n  a\n  b\n": "a b",
		`k: !!str 12`: "12", `k: ""`: "", `k: "null"`: "null",
	} {
		d := mustParse(t, yaml)
		if got := d.Root().Object().Get("k").String(); got != want || d.Err() != nil {
			t.Errorf("%s is read as %q, %v", yaml, got, d.Err())
		}
	}
}

// problems runs a reader over the value of k and returns what it reports.
func problems(t *testing.T, yaml string, read func(Value)) string {
	t.Helper()
	d := mustParse(t, yaml)
	o := d.Root().Object()
	read(o.Get("k"))
	o.Close()
	if err := d.Err(); err != nil {
		return err.Error()
	}
	return ""
}

func TestTypedReaders(t *testing.T) {
	t.Parallel()
	str := func(v Value) { _ = v.String() }
	boolean := func(v Value) { v.Bool(false) }
	integer := func(v Value) { v.Int(1, 10, 5) }
	duration := func(v Value) { v.Duration(time.Hour, time.Second) }
	list := func(v Value) { v.List(2) }
	entries := func(v Value) { v.Entries(1) }
	choice := func(v Value) { v.OneOf("plain", "namespaced") }
	pattern := func(v Value) { v.Matching(regexp.MustCompile("a+"), "letters a") }
	for _, c := range []struct {
		yaml string
		read func(Value)
		want string
	}{
		{"k: x", str, ""},
		{"k:", str, "f.yaml:1:3: k: has no value; write text or remove the key"},
		{"k: ~", str, "f.yaml:1:4: k: has no value; write text or remove the key"},
		{"k: {a: b}", str, "f.yaml:1:4: k: must be text, not a mapping"},
		{"k: true", boolean, ""},
		{"k: FALSE", boolean, ""},
		{"k: yes", boolean, `f.yaml:1:4: k: must be true or false, not "yes"`},
		{`k: "true"`, boolean, `f.yaml:1:4: k: must be true or false, not "true"`},
		{"k: 7", integer, ""},
		{"k: 07", integer, `f.yaml:1:4: k: must be a whole number, not "07"`},
		{"k: 7.0", integer, `f.yaml:1:4: k: must be a whole number, not "7.0"`},
		{"k: 1_0", integer, `f.yaml:1:4: k: must be a whole number, not "1_0"`},
		{`k: "7"`, integer, `f.yaml:1:4: k: must be a whole number, not "7"`},
		{"k: 11", integer, `f.yaml:1:4: k: must be between 1 and 10, not "11"`},
		{"k: 99999999999999999999", integer, `f.yaml:1:4: k: must be between 1 and 10, not "99999999999999999999"`},
		{"k: 5m", duration, ""},
		{"k: 5", duration, `f.yaml:1:4: k: must be a duration such as 30s, 5m or 72h, not "5"`},
		{"k: 0s", duration, `f.yaml:1:4: k: must be more than zero, not "0s"`},
		{"k: 2h", duration, `f.yaml:1:4: k: must be at most 1h0m0s, not "2h"`},
		{"k: [a]", list, ""},
		{"k: a", list, `f.yaml:1:4: k: must be a list, not "a"`},
		{"k: [a, b, c]", list, "f.yaml:1:4: k: has 3 entries, at most 2 are allowed"},
		{"k: {a: b, c: d}", entries, "f.yaml:1:4: k: has 2 entries, at most 1 are allowed"},
		{"k: []", entries, "f.yaml:1:4: k: must be a mapping, not a list"},
		{"k: plain", choice, ""},
		{"k: namespcaed", choice, `f.yaml:1:4: k: must be plain or namespaced, not "namespcaed"; did you mean "namespaced"?`},
		{"k: aa", pattern, ""},
		{"k: aab", pattern, `f.yaml:1:4: k: must be letters a, not "aab"`},
		{"j: 1", func(v Value) { v.Required() }, "f.yaml:1:1: k: is required\nf.yaml:1:1: j: unknown key; known keys are k"},
		{"k: 1\nother: 2", str, "f.yaml:2:1: other: unknown key; known keys are k"},
	} {
		if got := problems(t, c.yaml, c.read); got != c.want {
			t.Errorf("%s: %q, want %q", c.yaml, got, c.want)
		}
	}
}

func TestAbsentValues(t *testing.T) {
	t.Parallel()
	d := mustParse(t, "{}")
	v := d.Root().Object().Get("k")
	nested := v.Object()
	if nested.Valid() || nested.Get("x").Present() || v.Len() != 0 || v.Key() != "k" || v.Path() != "k" {
		t.Error("an absent value is not empty")
	}
	nested.Close()
	if v.String() != "" || !v.Bool(true) || v.Int(1, 9, 7) != 7 || v.Duration(time.Hour, time.Minute) != time.Minute ||
		v.List(1) != nil || v.Entries(1) != nil || v.JSON() != nil || v.Children() != nil || v.OneOf("a") != "" || v.Text() != "" {
		t.Error("an absent value has no defaults")
	}
	if d.Err() != nil {
		t.Errorf("an absent value is reported: %v", d.Err())
	}
}

func tenOf(item string) string {
	return "[" + strings.TrimSuffix(strings.Repeat(item+", ", 10), ", ") + "]\n"
}

func TestParseRefuses(t *testing.T) {
	t.Parallel()
	var bomb strings.Builder
	bomb.WriteString("a: &a " + tenOf("x"))
	for c := 'b'; c <= 'j'; c++ {
		fmt.Fprintf(&bomb, "%c: &%c %s", c, c, tenOf("*"+string(c-1)))
	}
	for _, c := range []struct{ name, text, want string }{
		{"empty", "", "f.yaml:1:1: the file is empty"},
		{"only comments", "# a\n", "f.yaml:1:1: the file is empty"},
		{"tab", "a:\n  b: 1\n\tc: 2\n", "f.yaml:3:1: a tab is used to indent"},
		{"two documents", "a: 1\n---\nb: 2\n", "f.yaml:2:1: a second YAML document begins here"},
		{"second is broken", "a: 1\n---\n}\n", "invalid YAML"},
		{"alias bomb", bomb.String(), "too many values"},
		{"cycle", "a: &a {b: *a}", `f.yaml:1:11: the anchor "a" contains itself`},
		{"unknown alias", "a: *b", "unknown anchor 'b' referenced"},
		{"deep flow", strings.Repeat("[", 200) + strings.Repeat("]", 200), "nested too deeply"},
		{"very deep flow", strings.Repeat("[", 100_000), "invalid YAML"},
		{"deep by alias", "a: &a " + strings.Repeat("[", 60) + strings.Repeat("]", 60) + "\nb: " + strings.Repeat("[", 60) + "*a" + strings.Repeat("]", 60), "nested too deeply"},
		{"latin 1", "a: \xe9\n", "f.yaml:1:4: the file is not valid UTF-8 here"},
		{"utf-16", "\xff\xfea\x00", "f.yaml:1:1: the file is not valid UTF-8 here"},
		{"control", "a: \x01", "f.yaml:1:4: control character U+0001 is not allowed"},
		{"too large", "a: " + strings.Repeat("x", MaxBytes), "f.yaml: the file is larger than 1024 KiB"},
		{"unclosed", "a: [1, 2\nb: 3\n", "f.yaml:1:1: invalid YAML"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			start := time.Now()
			d, err := Parse("f.yaml", []byte(c.text))
			var all Errors
			if d != nil || !errors.As(err, &all) || len(all) != 1 || !strings.Contains(all.Error(), c.want) {
				t.Errorf("Parse = %v, %.200v; want %q", d, err, c.want)
			}
			if took := time.Since(start); took > 3*time.Second {
				t.Errorf("took %s", took)
			}
		})
	}
}

func TestLesserFaultsAreCollected(t *testing.T) {
	t.Parallel()
	d := mustParse(t, "a: 1\na: 2\nb: !x 3\n<<: {c: 4}\n? [x]\n: 5\ne: 6\n")
	o := d.Root().Object()
	for _, key := range []string{"a", "b"} {
		_ = o.Get(key).String()
	}
	o.Close()
	want := strings.Join([]string{
		`f.yaml:2:1: the key "a" is already set in line 1`,
		`f.yaml:3:4: the tag "!x" is not supported; write the plain value`,
		"f.yaml:4:1: merge keys (<<) are not supported; write the keys out, or share a whole value with an anchor",
		"f.yaml:5:3: a key must be plain text",
		"f.yaml:7:1: e: unknown key; known keys are a, b",
	}, "\n")
	if diff := cmp.Diff(want, d.Err().Error()); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
}

func TestAnchorsShareAValue(t *testing.T) {
	t.Parallel()
	d := mustParse(t, "a: &x {k: [1, 2]}\nb: *x\n")
	if got := string(d.Root().JSON()); got != `{"a":{"k":[1,2]},"b":{"k":[1,2]}}` || d.Err() != nil {
		t.Errorf("JSON = %s, %v", got, d.Err())
	}
}

func TestPositionsCountCharacters(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{"plain": "é: 1\nk: {ü: x, z: 1}\n", "bom and crlf": "\ufeffé: 1\r\nk: {ü: x, z: 1}\r\n"} {
		d := mustParse(t, text)
		o := d.Root().Object()
		o.Get("é")
		inner := o.Get("k").Object()
		inner.Get("ü")
		inner.Close()
		if err := d.Err(); err == nil || !strings.HasPrefix(err.Error(), "f.yaml:2:11: k.z: unknown key") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestJSON(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ yaml, want string }{
		{"{z: 1, a: {y: [], x: {}}}", `{"z":1,"a":{"y":[],"x":{}}}`},
		{"[9007199254740993, 12345678901234567890123, -0, 1.0, 1.10, 1e5, 1E+5]", `[9007199254740993,12345678901234567890123,-0,1.0,1.10,1e5,1E+5]`},
		{"[true, False, null, ~, '', no, on, yes]", `[true,false,null,null,"","no","on","yes"]`},
		{"[2020-01-01, 12:30, 1.2.3, '012', !!str 5]", `["2020-01-01","12:30","1.2.3","012","5"]`},
		{"{'1': a, no: b, 2020-01-01: c}", `{"1":"a","no":"b","2020-01-01":"c"}`},
		{`["<&>", "\u0000é😀", 'a"b']`, `["<&>","\u0000é😀","a\"b"]`},
		{"- a: 1\n  b:\n    - c\n", `[{"a":1,"b":["c"]}]`},
		{"{a: }", `{"a":null}`},
	} {
		d := mustParse(t, c.yaml)
		if got := string(d.Root().JSON()); got != c.want || d.Err() != nil {
			t.Errorf("%s becomes %s, %v; want %s", c.yaml, got, d.Err(), c.want)
		}
	}
	for _, text := range []string{"012", "0x1F", "0o17", "0b11", "+1", "1_000", ".5", "5.", ".inf", "-.INF", ".nan", "1e5000000"} {
		d := mustParse(t, "a:\n  - "+text)
		if got := d.Root().JSON(); got != nil || d.Err() == nil || !strings.HasPrefix(d.Err().Error(), "f.yaml:2:5: a[0]: ") {
			t.Errorf("%s becomes %s, %v", text, got, d.Err())
		}
	}
	for _, key := range []string{"1", "true", "null", "1.5", "~"} {
		d := mustParse(t, "a: {"+key+": x}")
		if got := d.Root().JSON(); got != nil || d.Err() == nil || !strings.Contains(d.Err().Error(), "f.yaml:1:5: ") {
			t.Errorf("key %s becomes %s, %v", key, got, d.Err())
		}
	}
}

func TestAt(t *testing.T) {
	t.Parallel()
	d := mustParse(t, "a:\n  - b/c: 1\n    d~: 2\n")
	for pointer, want := range map[string]string{
		"": "f.yaml:1:1: here", "/a/0/b~1c": "f.yaml:2:10: a[0].b/c: here", "/a/0/d~0": "f.yaml:3:9: a[0][\"d~\"]: here",
		"/a/7/x": "f.yaml:2:3: a: here", "/a/0/d~0/deeper": "f.yaml:3:9: a[0][\"d~\"]: here",
	} {
		d.problems = nil
		d.Root().At(pointer).Problem("here")
		if got := d.Err().Error(); got != want {
			t.Errorf("At(%q): %s, want %s", pointer, got, want)
		}
	}
}

func TestNearest(t *testing.T) {
	t.Parallel()
	known := []string{"approve", "call_timeout", "connect_timeout", "deny", "env", "tools", "url"}
	for word, want := range map[string]string{
		"aprove": "approve", "call_timout": "call_timeout", "callTimeout": "call_timeout", "Call-Timeout": "call_timeout",
		"denny": "deny", "tool": "tools", "ulr": "url", "envs": "env", "zzzz": "", "": "", "x": "", strings.Repeat("a", 1000): "",
	} {
		if got := Nearest(word, known); got != want {
			t.Errorf("Nearest(%.20q) = %q, want %q", word, got, want)
		}
	}
}

func TestProblemString(t *testing.T) {
	t.Parallel()
	for want, p := range map[string]Problem{
		"f:1:2: a.b: bad": {File: "f", Line: 1, Column: 2, Path: "a.b", Message: "bad"},
		"f:1: bad":        {File: "f", Line: 1, Message: "bad"},
		"f: bad":          {File: "f", Message: "bad"},
		"bad":             {Message: "bad"},
	} {
		if got := p.String(); got != want {
			t.Errorf("String() = %q, want %q", got, want)
		}
	}
}

func TestMessagesAreShort(t *testing.T) {
	t.Parallel()
	d := mustParse(t, "k: "+strings.Repeat("é", 10000)+"\n"+strings.Repeat("x", 1000)+": 1\n")
	o := d.Root().Object()
	o.Get("k").Bool(false)
	o.Close()
	if err := d.Err(); err == nil || len(err.Error()) > 1000 {
		t.Errorf("%d bytes of errors", len(err.Error()))
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{
		"a: &x {b: [1, 2]}\nc: *x\n", "a: &a [*a]", "<<: {a: 1}", "\ufeffa: 1\r\n", "a:\n\t- b", "--- a\n--- b", "? {a: b}\n: c",
		"a: !!binary aGk=", "a: 012\nb: .inf\n1: c", "a: |\n  x\n# c\n", "[[[[", "a: 'x", "%YAML 1.1\n---\na: no", "- - - a\n    - b",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		d, err := Parse("f.yaml", data)
		if err != nil {
			var all Errors
			if d != nil || !errors.As(err, &all) || len(all) == 0 {
				t.Fatalf("Parse = %v, %T", d, err)
			}
			return
		}
		raw := d.Root().JSON()
		if raw == nil && d.Err() == nil {
			t.Fatalf("no JSON and no problem for %q", data)
		}
		if raw != nil {
			if err := rawjson.Check(raw); err != nil {
				t.Fatalf("%q becomes %s: %v", data, raw, err)
			}
			if compact, err := rawjson.Compact(raw); err != nil || string(compact) != string(raw) {
				t.Fatalf("%s is not compact", raw)
			}
		}
		o := d.Root().Object()
		o.Close()
	})
}
