// Command agentos runs agents whose risky calls wait for a person. This package
// is the only one that reads flags and the environment, names drivers and
// providers, and decides exit codes; everything it wires together takes values.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"agentos/internal/problem"
	"agentos/internal/visible"
)

// Exit codes of every command.
const (
	exitOK     = 0
	exitFailed = 1 // the thing asked about failed
	exitUsage  = 2 // the command was called wrongly
)

func main() { os.Exit(run()) }

// run executes the command line and returns the exit code.
func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// A second signal ends the process at once.
	context.AfterFunc(ctx, stop)
	io := stdio{in: os.Stdin, out: os.Stdout, err: os.Stderr}
	return execute(ctx, io, os.LookupEnv, os.Args[1:])
}

// stdio are the streams of a command.
type stdio struct {
	in  io.Reader
	out io.Writer
	err io.Writer
}

// lookup reads one environment variable.
type lookup func(name string) (string, bool)

// or returns the variable's value, or fallback when it is unset or empty.
func (l lookup) or(name, fallback string) string {
	if v, ok := l(name); ok && v != "" {
		return v
	}
	return fallback
}

// failed is an error whose report is already printed.
type failed struct{ code int }

func (f failed) Error() string { return fmt.Sprintf("exit %d", f.code) }

// execute runs the command line args and returns the exit code.
func execute(ctx context.Context, io stdio, env lookup, args []string) int {
	root := rootCommand(io, env) //nolint:contextcheck // a command takes the context of ExecuteContext
	root.SetArgs(args)
	root.SetIn(io.in)
	root.SetOut(io.out)
	root.SetErr(io.err)
	err := root.ExecuteContext(ctx)
	var f failed
	var p *problem.Error
	code := exitFailed
	if errors.As(err, &usageError{}) {
		code = exitUsage
	}
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &f):
		return f.code
	case errors.As(err, &p):
		printProblem(io.err, p)
		return code
	case errors.Is(err, context.Canceled):
		return exitFailed
	}
	fmt.Fprintf(io.err, "agentos: %v\n", err)
	return code
}

// usageError marks an error as a wrong call of the command line, wrong values of
// flags and of the variables that stand for them included.
type usageError struct{ error }

// Unwrap returns what is wrong.
func (u usageError) Unwrap() error { return u.error }

func printProblem(w io.Writer, p *problem.Error) {
	fmt.Fprintf(w, "agentos: %s (%s)\n", visible.Text(p.Message), p.Code)
	for _, d := range p.Details {
		path := d.Path
		if path == "" {
			path = "/"
		}
		fmt.Fprintf(w, "  %s: %s\n", visible.Text(path), visible.Text(d.Message))
	}
}

func rootCommand(io stdio, env lookup) *cobra.Command {
	root := &cobra.Command{
		Use:           "agentos",
		Short:         "Run agents whose risky calls wait for a person",
		SilenceUsage:  true,
		SilenceErrors: true,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usageError{fmt.Errorf("unknown command %q; see agentos --help", args[0])}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usageError{fmt.Errorf("%w; see %s --help", err, cmd.CommandPath())}
	})
	root.AddCommand(
		serveCommand(io, env),
		runCommand(io, env),
		validateCommand(io, env),
		schemaCommand(io),
		runsCommand(io, env),
		holdsCommand(io, env),
		agentsCommand(io, env),
		toolsCommand(io, env),
		ordersCommand(io, env),
		keysCommand(io, env),
		auditCommand(io, env),
		policyCommand(io, env),
		healthCommand(io, env),
		fsckCommand(io, env),
		versionCommand(io),
		exampleOrdersCommand(io),
		conformanceCommand(io, env),
		mockModelCommand(io),
		kitServerCommand(io, env),
		kitMCPCommand(io),
	)
	return root
}
