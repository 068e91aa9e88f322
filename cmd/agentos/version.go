package main

import (
	"fmt"
	"runtime/debug"

	"github.com/spf13/cobra"

	"agentos/examples/orders"
)

// version is the module version of the binary, or the revision it was built from.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && len(s.Value) >= 12 {
			return "devel-" + s.Value[:12]
		}
	}
	return "devel"
}

func versionCommand(io stdio) *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print the version",
		Example: "  agentos version",
		Args:    takes(),
		RunE: func(*cobra.Command, []string) error {
			_, err := fmt.Fprintln(io.out, "agentos", version())
			return err
		},
	}
}

// exampleOrdersCommand is the MCP server of the example agent, in this binary so
// that the example needs nothing else.
func exampleOrdersCommand(io stdio) *cobra.Command {
	return &cobra.Command{
		Use:     "example-orders",
		Short:   "Serve the example's orders over MCP on stdin and stdout",
		Example: "  agentos example-orders",
		Args:    takes(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return orders.Serve(cmd.Context(), version(), io.in, io.out, io.err)
		},
	}
}
