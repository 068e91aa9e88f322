// Command bench measures what a run costs: how long the two-turn run and the
// approve round trip take, how many fit into a second, what they ask of the store,
// and what a held run leaves behind. It does so in process and over HTTP, on both
// stores, with a model that answers at once and a tool that does nothing, so what is
// left is ours; and side by side with programs that write the same by hand
// (bench/floor) and, if asked, with other frameworks (bench/peers).
// docs/performance.md says how to read the figures.
//
//	go run ./bench [-peers] [-json] [-svg file] [-rounds 3] [-runs 300] [-for 3s] [-parked 10000] [-appendfsync everysec]
//
// It starts its own redis-server and keeps every file in a temporary directory; the
// peers' packages are kept in the user's cache.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
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
	peers  bool
	svg    string
	asJSON bool
}

func main() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(400) // as agentos serve
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	child, err := childCommand(ctx, os.Args[1:], os.Stdin, os.Stdout)
	if !child {
		err = run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	}
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
	write := r.writeTable
	if s.asJSON {
		write = r.writeJSON
	}
	if err := write(out); err != nil || s.svg == "" {
		return err
	}
	return draw(r, s.svg)
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
	f.BoolVar(&s.peers, "peers", false, "measure other frameworks too; needs Node.js and npm, which fetches them once")
	f.StringVar(&s.svg, "svg", "", "draw the approve figures into this file")
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

Each is measured in process and over HTTP. The model answers at once and the tool is a
real MCP child process that does nothing. floor-min and floor-full are plain Go programs
that write to Redis by hand what such a run needs, and nothing else; ratios are to
floor-full. The whole takes some five minutes, with -peers some fifteen, and wants a
quiet machine: with a load average of more than 1.5 for each CPU at the start, targets
are not judged.

`
