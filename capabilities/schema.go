package capabilities

import (
	_ "embed"
	"slices"
)

//go:embed agentos.schema.json
var schemaJSON []byte

// SchemaJSON returns the JSON Schema (draft 2020-12) of agentos.yaml, for editors
// and for `agentos schema`. Parse knows exactly the same keys; a test holds them
// together. What spans several places (references, names used twice) only Parse
// checks.
func SchemaJSON() []byte { return slices.Clone(schemaJSON) }
