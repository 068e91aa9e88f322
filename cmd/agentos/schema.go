package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"agentos/capabilities"
	"agentos/platform"
)

// schemaCommand prints what editors complete and check a file by.
func schemaCommand(io stdio) *cobra.Command {
	return &cobra.Command{
		Use:     "schema [agentos|platform]",
		Short:   "Print the JSON Schema of agentos.yaml, or of platform.yaml",
		Example: "  agentos schema\n  agentos schema platform",
		Args:    takes("[agentos|platform]"),
		RunE: func(_ *cobra.Command, args []string) error {
			schema := capabilities.SchemaJSON()
			if len(args) == 1 {
				switch args[0] {
				case "agentos":
				case "platform":
					schema = platform.SchemaJSON()
				default:
					return usageError{fmt.Errorf("no schema %q; there are agentos and platform", args[0])}
				}
			}
			_, err := io.out.Write(schema)
			return err
		},
	}
}
