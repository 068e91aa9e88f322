package inbox

import (
	"encoding/json"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const orderSchema = `{"type":"object","required":["id","who"],"properties":{
 "id":{"type":"integer","minimum":1,"description":"The order."},
 "who":{"type":"string","maxLength":40},
 "note":{"type":"string"},
 "speed":{"enum":["slow","fast",3]},
 "gift":{"type":"boolean"},
 "to":{"$ref":"#/$defs/address"},
 "tags":{"type":"array","items":{"type":"string"}}},
 "$defs":{"address":{"type":"object","properties":{"city":{"type":"string"},"zip":{"type":"integer"}},"required":["city"]}}}`

// posted is what a browser sends for a form that nobody touched, with what is
// written over it.
func posted(f *form, over map[string]string) url.Values {
	post := url.Values{}
	var walk func([]*field)
	walk = func(fields []*field) {
		for _, c := range fields {
			if c.Kind != kindGroup {
				post.Set(c.Control, strings.ReplaceAll(c.Text, "\n", "\r\n"))
			}
			if text, ok := over[c.Path]; ok {
				post.Set(c.Control, text)
			}
			if _, ok := over[c.Path+" out"]; ok {
				post.Set(c.Control+".out", "1")
			}
			walk(c.Fields)
		}
	}
	walk(f.Fields)
	return post
}

func TestFormSplicesRawJSON(t *testing.T) {
	t.Parallel()
	const value = `{ "who":"Z\u006fe","id":9007199254740993, "n":1.0,"note":"two\nlines","to":{"zip":00000}}`
	valid := strings.Replace(value, "00000", "12345678901234567890", 1)
	for name, c := range map[string]struct {
		value string
		over  map[string]string
		want  string
		fault string
	}{
		"untouched":               {valid, nil, valid, ""},
		"text":                    {valid, map[string]string{"/who": "Ann \"A\""}, `{"who":"Ann \"A\"","id":9007199254740993,"n":1.0,"note":"two\nlines","to":{"zip":12345678901234567890}}`, ""},
		"exact integer":           {valid, map[string]string{"/id": " 9007199254740995 "}, `{"who":"Z\u006fe","id":9007199254740995,"n":1.0,"note":"two\nlines","to":{"zip":12345678901234567890}}`, ""},
		"one of a group":          {valid, map[string]string{"/to/city": "Ulm"}, `{"who":"Z\u006fe","id":9007199254740993,"n":1.0,"note":"two\nlines","to":{"zip":12345678901234567890,"city":"Ulm"}}`, ""},
		"number kept as written":  {valid, map[string]string{"/n": "1.00"}, `{"who":"Z\u006fe","id":9007199254740993,"n":1.00,"note":"two\nlines","to":{"zip":12345678901234567890}}`, ""},
		"left out":                {valid, map[string]string{"/note out": ""}, `{"who":"Z\u006fe","id":9007199254740993,"n":1.0,"to":{"zip":12345678901234567890}}`, ""},
		"emptied is not left out": {valid, map[string]string{"/note": ""}, `{"who":"Z\u006fe","id":9007199254740993,"n":1.0,"note":"","to":{"zip":12345678901234567890}}`, ""},
		"required stays":          {valid, map[string]string{"/who out": ""}, valid, ""},
		"choice and list":         {`{"id":1}`, map[string]string{"/speed": "3", "/tags": "[ \"a\",\"<b>\" ]", "/gift": "true"}, `{"id":1,"speed":3,"gift":true,"tags":["a","<b>"]}`, ""},
		"no number":               {valid, map[string]string{"/id": "007"}, "", "/id"},
		"a word":                  {valid, map[string]string{"/id": "NaN"}, "", "/id"},
		"emptied number":          {valid, map[string]string{"/id": ""}, "", "/id"},
		"injection":               {valid, map[string]string{"/id": `1,"admin":true`}, "", "/id"},
		"not a choice":            {`{"id":1}`, map[string]string{"/speed": `"warp"`}, "", "/speed"},
		"no JSON":                 {`{"id":1}`, map[string]string{"/tags": `["a",]`}, "", "/tags"},
		"doubled name":            {`{"id":1}`, map[string]string{"/tags": `[{"a":1,"a":2}]`}, "", "/tags"},
		"zip as a text":           {valid, map[string]string{"/to/zip": `"1"`}, "", "/to/zip"},
	} {
		f := newForm(json.RawMessage(orderSchema), json.RawMessage(c.value))
		if f == nil {
			t.Fatalf("%s: no form", name)
		}
		got, faults := f.read(posted(f, c.over))
		if c.fault != "" {
			if len(faults) != 1 || faults[0].Path != c.fault {
				t.Errorf("%s: faults %v, want one at %s", name, faults, c.fault)
			}
			continue
		}
		if len(faults) > 0 || string(got) != c.want {
			t.Errorf("%s: %v\n got %s\nwant %s", name, faults, got, c.want)
		}
	}
}

// A text that a browser would change, or that nobody can see, is edited as JSON.
func TestFormKinds(t *testing.T) {
	t.Parallel()
	kinds := func(schema, value string) map[string]kind {
		f := newForm(json.RawMessage(schema), json.RawMessage(value))
		if f == nil {
			return nil
		}
		out := map[string]kind{}
		for _, c := range f.Fields {
			out[c.Name] = c.Kind
		}
		return out
	}
	for name, c := range map[string]struct {
		schema, value string
		want          map[string]kind
	}{
		"hidden":           {`{"properties":{"a":{"type":"string"}}}`, `{"a":"x` + "\u202e" + `"}`, map[string]kind{"a": kindJSON}},
		"carriage return":  {`{"properties":{"a":{"type":"string"}}}`, `{"a":"x\r\ny"}`, map[string]kind{"a": kindJSON}},
		"nul":              {`{"properties":{"a":{"type":"string"}}}`, `{"a":"x\u0000"}`, map[string]kind{"a": kindJSON}},
		"wrong type":       {`{"properties":{"a":{"type":"string"},"b":{"type":"integer"}}}`, `{"a":1,"b":"x"}`, map[string]kind{"a": kindJSON, "b": kindJSON}},
		"no schema":        {``, `{"a":"t","b":1,"c":[1],"d":null,"e":true}`, map[string]kind{"a": kindText, "b": kindNumber, "c": kindJSON, "d": kindJSON, "e": kindJSON}},
		"not in the enum":  {`{"properties":{"a":{"enum":["x"]}}}`, `{"a":"y"}`, map[string]kind{"a": kindText}},
		"union":            {`{"properties":{"a":{"type":["integer","null"]}}}`, `{"a":null}`, map[string]kind{"a": kindJSON}},
		"reference loop":   {`{"properties":{"a":{"$ref":"#/properties/a"}}}`, `{"a":[]}`, map[string]kind{"a": kindJSON}},
		"foreign":          {`{"properties":{"a":{"$ref":"http://x/y"}}}`, `{"a":[]}`, map[string]kind{"a": kindJSON}},
		"boolean":          {`{"properties":{"a":{"type":"boolean"}}}`, `{}`, map[string]kind{"a": kindChoice}},
		"recursive object": {`{"type":"object","properties":{"a":{"$ref":"#"}}}`, `{}`, map[string]kind{"a": kindGroup}},
		"schema true":      {`true`, `{"a":"t"}`, map[string]kind{"a": kindText}},
		"nothing to edit":  {`{}`, `{}`, nil},
		"not an object":    {`{}`, `[1]`, nil},
		"damaged":          {`{`, `{"a":1}`, nil},
	} {
		if diff := cmp.Diff(c.want, kinds(c.schema, c.value)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func FuzzFormUntouched(f *testing.F) {
	f.Add(orderSchema, `{"who":"a","id":1}`)
	f.Add(``, `{"a":"b\nc","d":1.0,"e":{"f":null}}`)
	f.Fuzz(func(t *testing.T, schema, value string) {
		form := newForm(json.RawMessage(schema), json.RawMessage(value))
		if form == nil {
			return
		}
		if got, faults := form.read(posted(form, nil)); len(faults) > 0 || string(got) != value {
			t.Fatalf("%s became %s %v", value, got, faults)
		}
	})
}

func TestDifferences(t *testing.T) {
	t.Parallel()
	show := func(a, b string) string {
		var out []string
		for _, c := range differences(json.RawMessage(a), json.RawMessage(b)) {
			out = append(out, c.Sign+strings.TrimSpace(c.Text))
		}
		return strings.Join(out, " ")
	}
	for name, c := range map[string][3]string{
		"a digit":     {`{"id":9007199254740993,"a":1}`, `{"id":9007199254740992,"a":1}`, ` { -"id": 9007199254740993, +"id": 9007199254740992,  "a": 1  }`},
		"spelling":    {`{"a":1}`, `{"a":1.0}`, ` { -"a": 1 +"a": 1.0  }`},
		"white space": {`{"a":1}`, `{ "a" : 1 }`, ` {  "a": 1  }`},
		"hidden":      {`{"a":"b"}`, "{\"a\":\"b\u200b\"}", ` { -"a": "b" +"a": "b\u200b"  }`},
		"added":       {`{"a":1,"c":3}`, `{"a":1,"b":2,"c":3}`, ` {  "a": 1, +"b": 2,  "c": 3  }`},
		"emptied":     {`{"a":1}`, `{}`, `-{ -"a": 1 -} +{}`},
	} {
		if got := show(c[0], c[1]); got != c[2] {
			t.Errorf("%s: %q, want %q", name, got, c[2])
		}
	}
}
