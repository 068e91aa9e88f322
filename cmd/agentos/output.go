package main

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"agentos/internal/problem"
	"agentos/internal/rawjson"
	"agentos/internal/visible"
)

// isTerminal reports whether a stream of a command is a terminal. Tests bring
// streams that say so themselves.
func isTerminal(stream any) bool {
	switch s := stream.(type) {
	case interface{ IsTerminal() bool }:
		return s.IsTerminal()
	case *os.File:
		return term.IsTerminal(int(s.Fd()))
	}
	return false
}

// paint adds emphasis where somebody sees it.
type paint struct{ on bool }

// paintFor returns the paint for a stream: off when it is no terminal, or when
// NO_COLOR is set (no-color.org).
func paintFor(stream any, env lookup) paint {
	return paint{on: isTerminal(stream) && env.or("NO_COLOR", "") == "" && env.or("TERM", "") != "dumb"}
}

func (p paint) bold(s string) string {
	if !p.on {
		return s
	}
	return "\x1b[1m" + s + "\x1b[0m"
}

// clip shortens a line that only informs; what somebody decides about is never
// clipped.
func clip(s string) string {
	const most = 160
	if utf8.RuneCountInString(s) <= most {
		return s
	}
	return string([]rune(s)[:most]) + "…"
}

// printJSON writes v as one line of JSON.
func printJSON(w io.Writer, v any) error {
	raw, err := rawjson.Marshal(v)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "%s\n", raw)
	return err
}

// printTable writes rows in columns; the first row is the head.
func printTable(w io.Writer, rows [][]string) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		for i, cell := range row {
			row[i] = visible.Text(cell)
		}
		fmt.Fprintln(t, strings.Join(row, "\t"))
	}
	return t.Flush()
}

// printFields writes "name: value" lines, leaving out empty values.
func printFields(w io.Writer, fields ...[2]string) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, f := range fields {
		if f[1] != "" {
			fmt.Fprintf(t, "%s:\t%s\n", f[0], visible.Text(f[1]))
		}
	}
	return t.Flush()
}

// printDetails writes the single faults of a problem.
func printDetails(w io.Writer, details []problem.Detail) {
	for _, d := range details {
		fmt.Fprintf(w, "  %s %s\n", visible.Text(d.Path), visible.Text(d.Message))
	}
}

// stamp is a time as tables show it.
func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// usage makes the error for a wrong call of cmd.
func usage(cmd *cobra.Command, format string, args ...any) error {
	return usageError{fmt.Errorf("%s; see %s --help", fmt.Sprintf(format, args...), cmd.CommandPath())}
}

// oneOf refuses a value of a flag that is none of those it can have; "" stands for
// leaving it out.
func oneOf(cmd *cobra.Command, flag, value string, values ...string) error {
	if slices.Contains(values, value) {
		return nil
	}
	values = slices.DeleteFunc(values, func(v string) bool { return v == "" })
	return usage(cmd, "--%s %.100q: use %s", flag, value, strings.Join(values, ", "))
}

// takes accepts the arguments named, such as "RUN". A last name in brackets may
// be left out; one that ends in "..." may be repeated.
func takes(names ...string) cobra.PositionalArgs {
	least, most := 0, len(names)
	for _, n := range names {
		if !strings.HasPrefix(n, "[") {
			least++
		}
		if strings.Contains(n, "...") {
			most = -1
		}
	}
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) < least:
			return usage(cmd, "%s is missing", names[len(args)])
		case most >= 0 && len(args) > most:
			return usage(cmd, "unexpected argument %q", args[most])
		}
		return nil
	}
}

// group is a command that only holds others.
func group(name, short string, commands ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use:   name,
		Short: short,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usage(cmd, "unknown command %q", args[0])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(commands...)
	for _, c := range commands {
		if cmd.Example == "" {
			cmd.Example = c.Example
		}
	}
	return cmd
}

// readArgument returns what an argument of the form TEXT, @FILE or - means.
func readArgument(arg string, stdin io.Reader) ([]byte, error) {
	switch {
	case arg == "-":
		return io.ReadAll(stdin)
	case strings.HasPrefix(arg, "@"):
		return os.ReadFile(arg[1:])
	}
	return []byte(arg), nil
}
