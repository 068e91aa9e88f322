package rawjson

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

func TestCheck(t *testing.T) {
	for _, c := range []struct{ name, in, want string }{
		{"object", `{"a":1}`, ""},
		{"spaces", " {} \n", ""},
		{"big integer", `12345678901234567890`, ""},
		{"empty", ``, "empty"},
		{"truncated", `{"a":`, "ends too early"},
		{"two values", `{} {}`, "after the JSON value"},
		{"duplicate", `{"a":1,"a":2}`, `duplicate name "a"`},
		{"nan", `{"a":NaN}`, "at byte"},
		{"lone surrogate", `"\ud800"`, "at byte"},
		{"invalid utf-8", "\"\xff\"", "at byte"},
		{"huge exponent", `1e5000000`, "exponent"},
		{"huge exponent with plus", `1e+5000000`, "exponent"},
		{"long number", strings.Repeat("1", 300), "longer than"},
		{"deep", strings.Repeat("[", 10000) + strings.Repeat("]", 10000), "nested deeper"},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := Check([]byte(c.in))
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("Check(%.40q) = %v, want %q", c.in, err, c.want)
			}
		})
	}
}

func TestDecodeIsStrict(t *testing.T) {
	type body struct {
		Input json.RawMessage `json:"input"`
		Name  string          `json:"name,omitempty"`
	}
	var b body
	if err := Decode([]byte(`{"input":{"n": 9007199254740993}}`), &b); err != nil {
		t.Fatal(err)
	}
	if string(b.Input) != `{"n": 9007199254740993}` {
		t.Errorf("input = %s", b.Input)
	}
	for in, want := range map[string]string{
		`{"input":1,"Input":2}`: "unknown field",
		`{"inptu":1}`:           "/inptu: unknown field",
		`{"name":5}`:            "/name: a JSON number",
		`[]`:                    "a JSON array",
	} {
		if err := Decode([]byte(in), &body{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Decode(%s) = %v, want %q", in, err, want)
		}
	}
}

func TestExactness(t *testing.T) {
	in := `{"z":12345678901234567890,"a":1.0,"s":"<&>\u0000é😀","e":1}`
	out, err := Marshal(struct {
		Raw json.RawMessage `json:"raw"`
	}{json.RawMessage(in)})
	if err != nil {
		t.Fatal(err)
	}
	if want := `{"raw":` + in + `}`; string(out) != want {
		t.Errorf("Marshal = %s, want %s", out, want)
	}
	fields, err := Fields([]byte(in))
	if err != nil {
		t.Fatal(err)
	}
	if got := Object(fields); string(got) != in {
		t.Errorf("Object(Fields) = %s", got)
	}
	c, err := Canonical([]byte(` {"b": 1.0, "a": "\u0041"} `))
	if err != nil || string(c) != `{"a":"A","b":1.0}` {
		t.Errorf("Canonical = %s, %v", c, err)
	}
	if Equal([]byte(`1`), []byte(`1.0`)) || !Equal([]byte(`{"a":1,"b":[2]}`), []byte(`{"b":[ 2],"a":1}`)) {
		t.Error("Equal is wrong")
	}
	if Kind([]byte(" -3")) != "number" || Kind([]byte("[1]")) != "array" || Kind(nil) != "" || Kind([]byte("true")) != "boolean" {
		t.Error("Kind is wrong")
	}
}

func FuzzCanonicalIsStable(f *testing.F) {
	f.Add([]byte(`{"b":[1,{"c":null}],"a":"\u00e9"}`))
	f.Fuzz(func(t *testing.T, in []byte) {
		if Check(in) != nil {
			return
		}
		c, err := Canonical(in)
		if err != nil {
			t.Fatalf("Canonical(%q): %v", in, err)
		}
		again, err := Canonical(c)
		if err != nil || string(again) != string(c) {
			t.Fatalf("not stable: %q then %q (%v)", c, again, err)
		}
	})
}

func TestMapStrings(t *testing.T) {
	redact := func(s string) string { return strings.ReplaceAll(s, "4711", "X") }
	for in, want := range map[string]string{
		`{"n":104711,"s":"a 4711","4711":[ "4711", 4711, null ]}`: `{"n":104711,"s":"a X","X":["X",4711,null]}`,
		`"4711"`: `"X"`,
		`4711`:   `4711`,
		`{"a":`:  `{"a":`,
	} {
		if got := MapStrings([]byte(in), redact); string(got) != want {
			t.Errorf("MapStrings(%s) = %s, want %s", in, got, want)
		}
	}
}

// Parse gives what encoding/json gives with numbers as text.
func TestParse(t *testing.T) {
	t.Parallel()
	for _, in := range []string{
		`{"a":[1,-0.0,1E+2,9007199254740993,{"b":null,"":true,"\u00e9":"\ud83e\udd8a"}],"c":{},"d":[]}`, `"x"`, `null`, ` false `, `12`, `[[],[[]]]`,
	} {
		dec := json.NewDecoder(strings.NewReader(in))
		dec.UseNumber()
		var want any
		if err := dec.Decode(&want); err != nil {
			t.Fatal(err)
		}
		got, err := Parse([]byte(in))
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %#v, %v; want %#v", in, got, err, want)
		}
	}
	for _, in := range []string{"", "{", `{"a":1,"a":2}`, "1 2", "tru", "1e999999"} {
		if v, err := Parse([]byte(in)); err == nil {
			t.Errorf("%s: %v", in, v)
		}
	}
}
