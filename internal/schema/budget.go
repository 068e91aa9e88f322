package schema

import (
	jsonschema "github.com/santhosh-tekuri/jsonschema/v5"
)

// Steps one validation may take: a schema of a few hundred bytes can ask for
// 2^100 of them (allOf that refers twice to the next definition, and so on), and
// the library takes no context. Honest schemas need a few steps per value. A step
// costs about 2 µs, but up to 100 µs deep inside a schema that fails everywhere.
const (
	baseSteps    = 10_000
	stepsPerByte = 2
)

// exhausted is what budget panics with; Validate recovers it.
type exhausted struct{}

// budget counts the schemas that a validation visits. The library calls it
// through its extension mechanism, at the end of every schema object that got
// past its "type".
type budget struct{ left int }

// Compile attaches the budget to every schema object.
func (b *budget) Compile(jsonschema.CompilerContext, map[string]any) (jsonschema.ExtSchema, error) {
	return b, nil
}

// Validate takes one step.
func (b *budget) Validate(jsonschema.ValidationContext, any) error {
	b.left--
	if b.left < 0 {
		panic(exhausted{})
	}
	return nil
}
