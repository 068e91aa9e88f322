package server

import (
	"bytes"
	"encoding/json"
	"fmt"

	"agentos/api"
	"agentos/internal/rawjson"
	"agentos/internal/schema"
	"agentos/internal/strictyaml"
)

// document is the OpenAPI document as it is used at run time.
type document struct {
	json json.RawMessage
	// schemas check the bodies of requests, by their name in the document.
	schemas map[string]*schema.Schema
}

// loadDocument converts the document and compiles the schemas of the bodies.
func loadDocument() (document, error) {
	parsed, err := strictyaml.Parse("openapi.yaml", api.Document)
	if err != nil {
		return document{}, fmt.Errorf("read the OpenAPI document: %w", err)
	}
	d := document{json: parsed.Root().JSON(), schemas: map[string]*schema.Schema{}}
	if err := parsed.Err(); err != nil {
		return document{}, fmt.Errorf("read the OpenAPI document: %w", err)
	}
	for _, name := range []string{"CreateKey", "CreateRun", "Decide", "PauseAgent", "SwitchOff", "SwitchOn"} {
		if d.schemas[name], err = d.compile(name); err != nil {
			return document{}, fmt.Errorf("schema %s of the OpenAPI document: %w", name, err)
		}
	}
	return d, nil
}

// compile makes one JSON Schema of a component and those it refers to: an OpenAPI
// 3.1 schema is JSON Schema 2020-12, only its neighbours live elsewhere.
func (d document) compile(name string) (*schema.Schema, error) {
	all := rawjson.Get(rawjson.Get(d.json, "components"), "schemas")
	defs := bytes.ReplaceAll(all, []byte(`"#/components/schemas/`), []byte(`"#/$defs/`))
	return schema.Compile(rawjson.Object([]rawjson.Field{
		{Name: "$ref", Value: rawjson.Quote("#/$defs/" + name)},
		{Name: "$defs", Value: defs},
	}), schema.Options{})
}
