package secrets

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"testing"
	"time"
)

const value = "s3cr&t/Wert+\"ä\"<x>"

// C36, B24: a value in every form in which it may come back.
func TestRedact(t *testing.T) {
	t.Parallel()
	s := New(map[string]string{"token": value, "short": "abc", "long": "prefix-" + value, "file": "from-a-file\n", "": "nameless-value", "we\"ird name": "weird-value"}).
		Guard(map[string]string{"openai_api_key": "sk-test-upstream"})
	html := htmlSafe(value)
	for in, want := range map[string]string{
		value:                       "[secret:token]",
		"a " + value + value + " b": "a [secret:token][secret:token] b",
		"prefix-" + value:           "[secret:long]",
		"https://x/?k=" + url.QueryEscape(value) + "&z":      "https://x/?k=[secret:token]&z",
		"/p/" + url.PathEscape(value):                        "/p/[secret:token]",
		strings.ToLower(url.QueryEscape("sk-test-upstream")): "[secret:openai_api_key]",
		`{"v":"s3cr&t/Wert+\"ä\"<x>"}`:                       `{"v":"[secret:token]"}`,
		`{"v":` + string(html) + `}`:                         `{"v":"[secret:token]"}`,
		base64.StdEncoding.EncodeToString([]byte(value)):     "[secret:token]",
		base64.RawURLEncoding.EncodeToString([]byte(value)):  "[secret:token]",
		"from-a-file!":     "[secret:file]!",
		"abc":              "abc",
		"sk-test-upstream": "[secret:openai_api_key]",
		"nameless-value":   "[secret:]",
		"weird-value":      "[secret:we_ird_name]",
		"nothing here":     "nothing here",
		"":                 "",
	} {
		if got := s.Redact(in); got != want {
			t.Errorf("Redact(%q) = %q, want %q", in, got, want)
		}
		if got := string(s.RedactBytes([]byte(in))); got != want {
			t.Errorf("RedactBytes(%q) = %q, want %q", in, got, want)
		}
	}
}

// A value inside a longer base64 text stands at one of three positions.
func TestRedactInsideBase64(t *testing.T) {
	t.Parallel()
	const secret = "correct-horse-battery"
	s := New(map[string]string{"pw": secret})
	for _, enc := range []*base64.Encoding{base64.StdEncoding, base64.URLEncoding, base64.RawStdEncoding} {
		for _, around := range [][2]string{{"", ""}, {"a:", ""}, {"ab:", "!"}, {"abc:", "??"}, {"user:", "xyz"}} {
			text := enc.EncodeToString([]byte(around[0] + secret + around[1]))
			got := s.Redact("Basic " + text)
			if !strings.Contains(got, "[secret:pw]") {
				t.Errorf("%q: %q stays in %q", around, secret, got)
			}
			for piece := range strings.SplitSeq(strings.TrimPrefix(got, "Basic "), "[secret:pw]") {
				b, _ := base64.RawStdEncoding.DecodeString(piece)
				if strings.Contains(string(b), secret[2:8]) {
					t.Errorf("%q: %q is left", around, b)
				}
			}
		}
	}
}

func TestValue(t *testing.T) {
	t.Parallel()
	in := map[string]string{"a": "value-a"}
	s := New(in).Guard(map[string]string{"k": "key-k"}).Guard(map[string]string{"l": "key-l"})
	in["a"] = "changed"
	if v, ok := s.Value("a"); v != "value-a" || !ok {
		t.Errorf("a = %q %v", v, ok)
	}
	if _, ok := s.Value("k"); ok {
		t.Error("a guarded key can be read")
	}
	if got := s.Redact("value-a key-k key-l"); got != "[secret:a] [secret:k] [secret:l]" {
		t.Errorf("redacted %q", got)
	}
	var none *Set
	if _, ok := none.Value("a"); ok || none.Redact("x") != "x" || string(none.RedactBytes([]byte("x"))) != "x" {
		t.Error("a nil set is not empty")
	}
	if got := none.Guard(map[string]string{"k": "key-k"}).Redact("key-k"); got != "[secret:k]" {
		t.Errorf("guarded nil set: %q", got)
	}
	if got := New(nil).Redact("x"); got != "x" {
		t.Errorf("empty set: %q", got)
	}
}

type stringer struct{ s string }

func (s stringer) LogValue() slog.Value { return slog.StringValue("logged " + s.s) }

// Nothing a log line can carry keeps a value.
func TestHandler(t *testing.T) {
	t.Parallel()
	const secret = "very-secret-1234"
	s := New(map[string]string{"k": secret, "pin": "98765432"})
	for _, format := range []func(*bytes.Buffer) slog.Handler{
		func(b *bytes.Buffer) slog.Handler { return slog.NewJSONHandler(b, nil) },
		func(b *bytes.Buffer) slog.Handler { return slog.NewTextHandler(b, nil) },
	} {
		var b bytes.Buffer
		log := slog.New(s.Handler(format(&b))).With(slog.String("with", secret)).WithGroup("g")
		log.Info("message "+secret,
			slog.String("string", secret),
			slog.Any("error", fmt.Errorf("wrapped: %w", errors.New("dial "+secret))),
			slog.Any("bytes", []byte(secret)),
			slog.Any("raw", json.RawMessage(`{"a":"`+secret+`"}`)),
			slog.Any("struct", struct {
				A *int
				B string
			}{nil, secret}),
			slog.Any("valuer", stringer{secret}),
			slog.Any("nil", nil),
			slog.Int("pin", 98765432),
			slog.Group("inner", slog.Group("deep", slog.String("x", url.QueryEscape(secret)))),
			slog.Duration("kept", 3*time.Second), slog.Bool("yes", true), slog.Int("n", 7), slog.Any("list", []string{"kept-too"}))
		out := b.String()
		if strings.Contains(out, secret) || strings.Contains(out, "98765432") || strings.Contains(out, base64.StdEncoding.EncodeToString([]byte(secret))) {
			t.Errorf("the log has a secret: %s", out)
		}
		for _, want := range []string{"message [secret:k]", "wrapped: dial [secret:k]", "logged [secret:k]", "kept", "kept-too", "[secret:pin]"} {
			if !strings.Contains(out, want) {
				t.Errorf("%q is missing in %s", want, out)
			}
		}
	}
	if s.Handler(slog.NewTextHandler(&bytes.Buffer{}, &slog.HandlerOptions{Level: slog.LevelWarn})).Enabled(context.Background(), slog.LevelInfo) {
		t.Error("the level of the next handler is not asked")
	}
}

func BenchmarkRedact(b *testing.B) {
	values := map[string]string{}
	for i := range 20 {
		values[fmt.Sprint("name", i)] = fmt.Sprintf("secret-value-number-%d", i)
	}
	s := New(values)
	text := strings.Repeat("an ordinary tool result with nothing in it ", 6000)
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		s.Redact(text)
	}
}
