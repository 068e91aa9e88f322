package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode"

	"agentos/internal/rawjson"
	"agentos/internal/visible"
)

func TestVisible(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, in, want string }{
		{"plain", `order A-1 "é" 日本 😀 <&>`, `order A-1 "é" 日本 😀 <&>`},
		{"right to left letters are letters", "שלום", "שלום"},
		{"bidirectional override", "A\u202e1", `A\u202e1`},
		{"isolate", "\u2066x\u2069", `\u2066x\u2069`},
		{"zero width", "a\u200bb\ufeffc\u2060", `a\u200bb\ufeffc\u2060`},
		{"cursor and colours", "\x1b[2Kdone\r", `\u001b[2Kdone\u000d`},
		{"new line", "a\nb\tc", `a\u000ab\u0009c`},
		{"C1 control", "\u009b2J", `\u009b2J`},
		{"delete", "a\x7f", `a\u007f`},
		{"other spaces", "a\u00a0b\u2003c\u3000", `a\u00a0b\u2003c\u3000`},
		{"line separator", "a\u2028b", `a\u2028b`},
		{"tag characters", "\U000e0041", `\udb40\udc41`},
		{"variation selector", "a\ufe0f\U000e0100", `a\ufe0f\udb40\udd00`},
		{"fillers", "\u3164\u115f\u2800", `\u3164\u115f\u2800`},
		{"private use", "\ue000", `\ue000`},
		{"invalid UTF-8", "a\xff\xfe", `a\xff\xfe`},
		{"the replacement character is a character", "\ufffd", "\ufffd"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if got := visible.Text(c.in); got != c.want {
				t.Errorf("visible.Text(%q) = %s, want %s", c.in, got, c.want)
			}
		})
	}
}

// What a reviewer reads is the value that is sent, and nothing in it acts on the
// terminal.
func FuzzVisibleJSON(f *testing.F) {
	f.Add([]byte("{\"a\":\"\u202e\x7f\\u202e\",\"n\":12345678901234567890,\"l\":[1,{\"x\":null}]}"))
	f.Add([]byte("\"\U000e0041\u2028\""))
	f.Fuzz(func(t *testing.T, raw []byte) {
		if rawjson.Check(raw) != nil {
			return
		}
		shown := visible.JSON(raw, "  ")
		if !rawjson.Equal([]byte(shown), raw) {
			t.Fatalf("%q is shown as %q, another value", raw, shown)
		}
		for _, r := range strings.ReplaceAll(shown, "\n", "") {
			if visible.Hidden(r) || unicode.IsControl(r) {
				t.Fatalf("%q is shown with %U", raw, r)
			}
		}
	})
}

func TestVisibleJSONOfNoJSON(t *testing.T) {
	t.Parallel()
	if got := visible.JSON(json.RawMessage("{\x1b"), "  "); got != `  {\u001b` {
		t.Errorf("got %q", got)
	}
}

// fakeTerminal is a stream that says it is a terminal.
type fakeTerminal struct{ bytes.Buffer }

func (*fakeTerminal) IsTerminal() bool { return true }

func TestPaint(t *testing.T) {
	t.Parallel()
	env := func(pairs ...string) lookup {
		return func(name string) (string, bool) {
			for i := 0; i < len(pairs); i += 2 {
				if pairs[i] == name {
					return pairs[i+1], true
				}
			}
			return "", false
		}
	}
	for _, c := range []struct {
		name   string
		stream any
		env    lookup
		want   string
	}{
		{"terminal", &fakeTerminal{}, noEnv, "\x1b[1mx\x1b[0m"},
		{"file", &bytes.Buffer{}, noEnv, "x"},
		{"NO_COLOR", &fakeTerminal{}, env("NO_COLOR", "1"), "x"},
		{"empty NO_COLOR is none", &fakeTerminal{}, env("NO_COLOR", ""), "\x1b[1mx\x1b[0m"},
		{"dumb", &fakeTerminal{}, env("TERM", "dumb"), "x"},
	} {
		if got := paintFor(c.stream, c.env).bold("x"); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

func TestTables(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	if err := printTable(&b, [][]string{{"A", "B"}, {"long value", "x\ty\x1b[0m"}}); err != nil {
		t.Fatal(err)
	}
	if want := "A           B\nlong value  x\\u0009y\\u001b[0m\n"; b.String() != want {
		t.Errorf("table:\n%q, want\n%q", b.String(), want)
	}
	b.Reset()
	if err := printFields(&b, [2]string{"run", "r_1"}, [2]string{"empty", ""}, [2]string{"status", "held"}); err != nil {
		t.Fatal(err)
	}
	if want := "run:     r_1\nstatus:  held\n"; b.String() != want {
		t.Errorf("fields:\n%q, want\n%q", b.String(), want)
	}
}

func TestClipKeepsCharactersWhole(t *testing.T) {
	t.Parallel()
	if got := clip(strings.Repeat("é", 160)); got != strings.Repeat("é", 160) {
		t.Errorf("a text of the longest length was cut: %q", got)
	}
	if got := clip(strings.Repeat("é", 161)); got != strings.Repeat("é", 160)+"…" {
		t.Errorf("got %q", got)
	}
}
