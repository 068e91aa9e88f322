package visible_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"agentos/internal/visible"
)

func TestParts(t *testing.T) {
	t.Parallel()
	unseen := func(text, name string) visible.Part {
		return visible.Part{Text: text, Mark: visible.Unseen, Name: name}
	}
	alike := func(text, name string) visible.Part {
		return visible.Part{Text: text, Mark: visible.Lookalike, Name: name}
	}
	plain := func(text string) visible.Part { return visible.Part{Text: text} }
	for name, c := range map[string]struct {
		in    string
		lines bool
		want  []visible.Part
	}{
		"nothing":             {"", true, nil},
		"plain":               {"cancel order A-1002", false, []visible.Part{plain("cancel order A-1002")}},
		"accents and emoji":   {"Zoë naïve 😀 日本", false, []visible.Part{plain("Zoë naïve 😀 日本")}},
		"override":            {"a\u202eb", false, []visible.Part{plain("a"), unseen(`\u202e`, "U+202E"), plain("b")}},
		"isolate":             {"\u2066x\u2069", false, []visible.Part{unseen(`\u2066`, "U+2066"), plain("x"), unseen(`\u2069`, "U+2069")}},
		"zero width":          {"a\u200bb", false, []visible.Part{plain("a"), unseen(`\u200b`, "U+200B"), plain("b")}},
		"tag beyond BMP":      {"\U000e0041", false, []visible.Part{unseen(`\udb40\udc41`, "U+E0041")}},
		"no-break space":      {"a\u00a0b", false, []visible.Part{plain("a"), unseen(`\u00a0`, "U+00A0"), plain("b")}},
		"broken":              {"a\xff", false, []visible.Part{plain("a"), unseen(`\xff`, "a byte that is no UTF-8")}},
		"lines kept":          {"a\n\tb", true, []visible.Part{plain("a\n\tb")}},
		"lines shown":         {"a\nb", false, []visible.Part{plain("a"), unseen(`\u000a`, "U+000A"), plain("b")}},
		"carriage return":     {"a\rb", true, []visible.Part{plain("a"), unseen(`\u000d`, "U+000D"), plain("b")}},
		"Cyrillic in Latin":   {"pаypal", false, []visible.Part{plain("p"), alike("а", "U+0430 Cyrillic"), plain("ypal")}},
		"Cyrillic domain":     {"аррӏе.com", false, []visible.Part{alike("а", "U+0430 Cyrillic"), alike("р", "U+0440 Cyrillic"), alike("р", "U+0440 Cyrillic"), alike("ӏ", "U+04CF Cyrillic"), alike("е", "U+0435 Cyrillic"), plain(".com")}},
		"a Russian word":      {"order Москва", false, []visible.Part{plain("order Москва")}},
		"Greek omicron":       {"gοogle", false, []visible.Part{plain("g"), alike("ο", "U+03BF Greek"), plain("ogle")}},
		"full-width":          {"Ａdmin", false, []visible.Part{alike("Ａ", "U+FF21 full-width"), plain("dmin")}},
		"mathematical":        {"𝐚", false, []visible.Part{alike("𝐚", "U+1D41A mathematical")}},
		"Hebrew stays itself": {"שלום", false, []visible.Part{plain("שלום")}},
	} {
		if diff := cmp.Diff(c.want, visible.Parts(c.in, c.lines)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// What is shown of a JSON text is the same value.
func TestJSONKeepsTheValue(t *testing.T) {
	t.Parallel()
	raw := json.RawMessage(`{"id":9007199254740993,"n":1.0,"s":"a` + "\u202e" + `b"}`)
	shown := visible.JSON(raw, "")
	if !strings.Contains(shown, `"id": 9007199254740993`) || !strings.Contains(shown, `"n": 1.0`) || !strings.Contains(shown, `a\u202eb`) {
		t.Errorf("%s", shown)
	}
	var before, after struct{ S string }
	if json.Unmarshal(raw, &before) != nil || json.Unmarshal([]byte(shown), &after) != nil || before != after {
		t.Errorf("%q became %q", before, after)
	}
	if got := visible.JSON(json.RawMessage("{\u202e"), "  "); got != `  {\u202e` {
		t.Errorf("%q", got)
	}
}

func FuzzText(f *testing.F) {
	f.Add("a\u202eb\xff")
	f.Fuzz(func(t *testing.T, s string) {
		out := visible.Text(s)
		if strings.ContainsFunc(out, visible.Hidden) {
			t.Errorf("%q shows as %q", s, out)
		}
		if len(s) > 0 && visible.Text(out) != out {
			t.Errorf("%q is not stable", out)
		}
		var all strings.Builder
		for _, p := range visible.Parts(s, false) {
			if p.Mark != visible.Unseen {
				all.WriteString(p.Text)
				continue
			}
			if strings.ContainsFunc(p.Text, visible.Hidden) {
				t.Errorf("%q has the part %q", s, p.Text)
			}
		}
		if strings.ContainsFunc(all.String(), visible.Hidden) {
			t.Errorf("%q leaves %q unmarked", s, all.String())
		}
	})
}
