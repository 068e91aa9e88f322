package gateway_test

import (
	"encoding/json"
	"strings"
	"testing"

	"agentos/gateway"
	"agentos/internal/rawjson"
)

func TestParseArguments(t *testing.T) {
	t.Parallel()
	exact := "{ \"z\":9007199254740993, \"a\":12345678901234567890,\"f\":1.0,\"g\":1,\"s\":\"\\u0000 \\/ é 🎉 \\ud83c\\udf89\"\n}"
	tests := map[string]struct{ raw, want string }{
		"absent":           {``, `{}`},
		"null":             {`null`, `{}`},
		"empty text":       {`""`, `{}`},
		"blank text":       {`" \n"`, `{}`},
		"null as text":     {`"null"`, `{}`},
		"{} as text":       {`"{}"`, `{}`},
		"{}":               {`{}`, `{}`},
		"object":           {`{"a":1}`, `{"a":1}`},
		"exact bytes":      {string(rawjson.Quote(exact)), exact},
		"exact bare":       {exact, exact},
		"encoded twice":    {`"\"{\\\"a\\\":1.0}\""`, `{"a":1.0}`},
		"text inside text": {`"{\"filter\":\"{\\\"status\\\":1}\"}"`, `{"filter":"{\"status\":1}"}`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := gateway.ParseArguments(json.RawMessage(tt.raw))
			if err != nil || string(got) != tt.want {
				t.Errorf("got %s, %v; want %s", got, err, tt.want)
			}
		})
	}
}

func TestParseArgumentsRefuses(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ raw, says string }{
		"truncated":             {`"{\"a\":"`, "ends too early"},
		"truncated in a text":   {`"{\"a\":\"b"`, "ends too early"},
		"array":                 {`"[1]"`, "JSON array"},
		"bare array":            {`[1]`, "JSON array"},
		"number":                {`"5"`, "JSON number"},
		"bare number":           {`5`, "JSON number"},
		"boolean":               {`"true"`, "JSON boolean"},
		"prose":                 {`"order A-1"`, "no valid JSON"},
		"duplicate name":        {`"{\"a\":1,\"a\":2}"`, `duplicate name "a"`},
		"bare duplicate name":   {`{"a":1,"a":2}`, `duplicate name "a"`},
		"nested duplicate name": {`"{\"o\":{\"a\":1,\"a\":2}}"`, `duplicate name "a"`},
		"escaped duplicate":     {`"{\"a\":1,\"\\u0061\":2}"`, `duplicate name "a"`},
		"NaN":                   {`"{\"a\":NaN}"`, "'N'"},
		"lone surrogate":        {`"{\"a\":\"\\ud800\"}"`, "surrogate"},
		"outer lone surrogate":  {`"{\"a\":\"\ud800\"}"`, "surrogate"},
		"two objects":           {`"{}{}"`, "data after"},
		"encoded three times":   {`"\"\\\"{}\\\"\""`, "several times"},
		"absurd number":         {`"{\"a\":1e5000000}"`, "exponent"},
		"deep":                  {string(rawjson.Quote(strings.Repeat("[", 10000))), "deep"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := gateway.ParseArguments(json.RawMessage(tt.raw))
			if err == nil {
				t.Fatalf("accepted as %s", got)
			}
			for _, part := range []string{tt.says, "was not run", "one JSON object"} {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%q does not say %q", err, part)
				}
			}
		})
	}
}

func FuzzParseArguments(f *testing.F) {
	for _, seed := range []string{``, `null`, `""`, `"{\"a\":1}"`, `"\"{}\""`, `{"a":1,"a":2}`, `"{\"a\":\"\\ud800\"}"`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		got, err := gateway.ParseArguments(json.RawMessage(raw))
		if err != nil {
			if got != nil {
				t.Fatalf("arguments %s came with the error %v", got, err)
			}
			return
		}
		if err := rawjson.Check(got); err != nil || rawjson.Kind(got) != "object" {
			t.Fatalf("accepted %q as %q: %v", raw, got, err)
		}
		again, err := gateway.ParseArguments(rawjson.Quote(string(got)))
		if err != nil || string(again) != string(got) {
			t.Fatalf("%s sent back as text reads as %s, %v", got, again, err)
		}
	})
}
