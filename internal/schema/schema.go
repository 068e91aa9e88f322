// Package schema validates JSON against JSON Schema. It is the only importer of
// the schema library and guards its sharp edges: nothing is ever fetched or read
// from disk, sizes are bounded, a panic in the library becomes an error.
package schema

// Schema is a compiled JSON Schema, safe for concurrent use.
type Schema struct{}
