package main

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"agentos/api/client"
	"agentos/audit"
	"agentos/internal/problem"
	"agentos/internal/visible"
)

func auditCommand(io stdio, env lookup) *cobra.Command {
	r := &remote{stdio: io, env: env}
	return remoteGroup(r, "audit", "Export the audit chain, and prove it", auditExport(r), auditVerify(r))
}

func auditExport(r *remote) *cobra.Command {
	var after int64
	cmd := &cobra.Command{
		Use:   "export",
		Short: "Print the audit chain, one JSON object to a line",
		Long: `Print the audit chain of the environment: who decided what, from where, what they saw,
and what ran because of it; pauses, switched-off tools, keys, policies and repairs. Each
line names the digest of the line before it, byte for byte, so keep the output as it is.`,
		Example: "  agentos audit export > audit.jsonl",
		Args:    takes(),
		RunE: r.run(func(ctx context.Context, c *client.Client, _ []string) error {
			return c.Audit(ctx, r.environment, after, r.out)
		}),
	}
	cmd.Flags().Int64Var(&after, "after", 0, "leave out the entries up to this number")
	return cmd
}

func auditVerify(r *remote) *cobra.Command {
	var head string
	cmd := &cobra.Command{
		Use:   "verify [FILE]",
		Short: "Prove that an export is whole, and that what ran was approved",
		Long: `Prove that no line of an export was changed, taken out or put in, and that every call
which a person had to let run ran with the arguments of the last decision about it. FILE
is an export from its first entry, - is standard input; nothing else is needed and no
server asked. Without FILE the chain of the server is proved.

The digest of the last line is printed. Note it elsewhere: whoever can write to the store
could write the whole chain anew, or cut it off, and only --head with a digest that was
noted earlier shows that.

Exit codes: 0 sound; 1 not; 2 the file could not be read.`,
		Example: "  agentos audit verify audit.jsonl --head sha256:6c1e...",
		Args:    takes("[FILE]"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				return r.verifyFile(args[0], head)
			}
			return r.run(func(ctx context.Context, c *client.Client, _ []string) error {
				return r.verifyServer(ctx, c, head)
			})(cmd, args)
		},
	}
	cmd.Flags().StringVar(&head, "head", "", "the digest of a line noted earlier, which must be in the chain")
	return cmd
}

func (r *remote) verifyFile(path, head string) error {
	from := r.in
	if path != "-" {
		f, err := os.Open(path) //nolint:gosec // the file that the user names
		if err != nil {
			return couldNot(r.stdio, problem.Wrap(err, problem.InvalidSettings, "the export cannot be opened: %v", err))
		}
		defer f.Close() //nolint:errcheck // read only
		from = f
	}
	report, err := audit.Verify(from, head)
	if err != nil {
		return couldNot(r.stdio, err)
	}
	return r.verified(report)
}

func (r *remote) verifyServer(ctx context.Context, c *client.Client, head string) error {
	from, to := io.Pipe()
	sent := make(chan error, 1)
	go func() {
		err := c.Audit(ctx, r.environment, 0, to)
		sent <- err
		_ = to.CloseWithError(err) // nil ends it
	}()
	report, err := audit.Verify(from, head)
	if err := from.Close(); err != nil { // whoever writes stops
		return err
	}
	if failed := <-sent; failed != nil {
		return failed
	}
	if err != nil {
		return err
	}
	return r.verified(report)
}

// verified prints what was found; an unsound chain is an exit code.
func (r *remote) verified(report audit.Report) error {
	if r.json {
		if err := printJSON(r.out, report); err != nil {
			return err
		}
	} else {
		for _, f := range report.Faults {
			where := "the chain"
			if f.Line > 0 {
				where = fmt.Sprint("line ", f.Line)
			}
			fmt.Fprintf(r.out, "%s: %s\n", where, visible.Text(f.Message))
		}
		fmt.Fprintf(r.out, "%d entries, %d calls that a person let run\n", report.Entries, report.Ran)
		if report.Head != "" {
			fmt.Fprintf(r.out, "head %s\n", report.Head)
		}
	}
	if len(report.Faults) > 0 {
		return failed{exitFailed}
	}
	return nil
}
