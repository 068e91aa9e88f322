// Command bench measures what a run costs: how long the two-turn run and the
// approve round trip take, how many fit into a second, what they ask of the store,
// and what a held run leaves behind. It drives the engine through its Go API on
// both stores, with a model that answers at once and a tool that does nothing, so
// what is left is ours. docs/performance.md says how to read the figures.
//
//	go run ./bench [-json] [-rounds 3] [-runs 300] [-for 3s] [-parked 10000] [-appendfsync everysec]
//
// It starts its own redis-server and keeps every file in a temporary directory.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// settings are what the flags choose.
type settings struct {
	rounds int
	runs   int
	length time.Duration
	parked int
	fsync  string
	asJSON bool
}

func main() {
	if len(os.Args) > 1 && os.Args[1] == toolCommand {
		if err := serveTool(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
			os.Exit(1)
		}
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	switch {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// run measures as args say and writes the report to out; progress goes to errs.
func run(ctx context.Context, args []string, out, errs io.Writer) error {
	s, err := parse(args, errs)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "agentos-bench-")
	if err != nil {
		return err
	}
	r, err := measure(ctx, s, dir, errs)
	if err := errors.Join(err, os.RemoveAll(dir)); err != nil {
		return err
	}
	if s.asJSON {
		return r.writeJSON(out)
	}
	return r.writeTable(out)
}

func parse(args []string, errs io.Writer) (settings, error) {
	var s settings
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.SetOutput(errs)
	f.IntVar(&s.rounds, "rounds", 3, "rounds of latency and throughput; the report has their medians")
	f.IntVar(&s.runs, "runs", 300, "runs of one sequential measurement, after a warm-up")
	f.DurationVar(&s.length, "for", 3*time.Second, "length of one throughput measurement, 64 runs in flight")
	f.IntVar(&s.parked, "parked", 10000, "held runs to leave in the store")
	f.StringVar(&s.fsync, "appendfsync", "everysec", "how Redis writes its append-only file to disk: everysec or always")
	f.BoolVar(&s.asJSON, "json", false, "write JSON instead of tables")
	f.Usage = func() {
		fmt.Fprint(errs, usage)
		f.PrintDefaults()
	}
	if err := f.Parse(args); err != nil {
		return s, err
	}
	switch {
	case f.NArg() > 0:
		return s, fmt.Errorf("unknown argument %q; see -help", f.Arg(0))
	case s.rounds < 1 || s.runs < 1 || s.length <= 0 || s.parked < 1:
		return s, errors.New("rounds, runs and parked must be at least 1, and -for more than 0s")
	case s.fsync != "everysec" && s.fsync != "always":
		return s, fmt.Errorf("appendfsync %q; use everysec or always", s.fsync)
	}
	return s, nil
}

const usage = `Measure what a run costs, on a private redis-server and on the embedded store.

  lookup    start -> model asks for a tool -> the tool runs -> model answers -> completed
  approve   start -> model asks for a gated tool -> held; approve -> the tool runs -> completed

The model answers at once and the tool is a real MCP child process that does
nothing. floor-full is a plain Go program that does the same writes to Redis and
nothing else. The whole takes some two minutes and wants a quiet machine: the
report tells the load average.

`
