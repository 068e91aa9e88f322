package main

import (
	"github.com/spf13/cobra"

	"agentos/capabilities"
)

// schemaCommand prints what editors complete and check agentos.yaml by.
func schemaCommand(io stdio) *cobra.Command {
	return &cobra.Command{
		Use:     "schema",
		Short:   "Print the JSON Schema of agentos.yaml",
		Example: "  agentos schema",
		Args:    takes(),
		RunE: func(*cobra.Command, []string) error {
			_, err := io.out.Write(capabilities.SchemaJSON())
			return err
		},
	}
}
