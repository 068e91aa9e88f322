// Command chaos proves "nothing lost, nothing twice" on real processes: it drives
// thousands of runs through several agentos servers on one Redis, while it kills,
// stops and restarts all of them, and then compares what the servers promised with
// what the tools did. README.md says what is checked.
//
//	go run ./bench/chaos [-runs 1000] [-seed 1] [-workers 3] [-appendfsync always] [-json]
//
// It starts its own redis-server and keeps every file in a temporary directory,
// which is deleted unless something was violated.
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
	runs    int
	seed    uint64
	workers int
	clients int
	// faults is how often each kind of fault happens.
	faults int
	lease  time.Duration
	fsync  string
	asJSON bool
	keep   bool
}

func main() {
	if served, code := serveHidden(os.Args); served {
		os.Exit(code)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	switch {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "chaos:", err)
		os.Exit(1)
	}
}

// run does what args say and writes the report to out; progress goes to errs.
func run(ctx context.Context, args []string, out, errs io.Writer) error {
	s, err := parse(args, errs)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "agentos-chaos-")
	if err != nil {
		return err
	}
	r, err := torment(ctx, s, dir, errs)
	if err != nil {
		return fmt.Errorf("%w (files are in %s)", err, dir)
	}
	if len(r.Violations) == 0 && !s.keep {
		if err := os.RemoveAll(dir); err != nil {
			return err
		}
	} else {
		r.Directory = dir
	}
	if s.asJSON {
		err = r.writeJSON(out)
	} else {
		err = r.writeText(out)
	}
	if n := len(r.Violations); n > 0 {
		err = errors.Join(err, fmt.Errorf("%d violations; ledger, Redis files and logs are in %s", n, dir))
	}
	return err
}

func parse(args []string, errs io.Writer) (settings, error) {
	var s settings
	f := flag.NewFlagSet("chaos", flag.ContinueOnError)
	f.SetOutput(errs)
	f.IntVar(&s.runs, "runs", 1000, "runs to drive")
	f.Uint64Var(&s.seed, "seed", 1, "seed of the runs, the decisions and the order of the faults")
	f.IntVar(&s.workers, "workers", 3, "agentos serve processes, at least 2")
	f.IntVar(&s.clients, "clients", 64, "runs in flight")
	f.IntVar(&s.faults, "faults", 0, "faults of each kind; 0 means one for 250 runs, at least 2")
	f.DurationVar(&s.lease, "lease", 2*time.Second, "lease of the workers")
	f.StringVar(&s.fsync, "appendfsync", "always", "how Redis writes its append-only file to disk: always or everysec")
	f.BoolVar(&s.asJSON, "json", false, "write JSON instead of text")
	f.BoolVar(&s.keep, "keep", false, "keep the directory even without a violation")
	if err := f.Parse(args); err != nil {
		return s, err
	}
	if s.faults == 0 {
		s.faults = max(2, s.runs/250)
	}
	switch {
	case f.NArg() > 0:
		return s, fmt.Errorf("unknown argument %q; see -help", f.Arg(0))
	case s.runs < 1 || s.clients < 1 || s.faults < 0:
		return s, errors.New("runs and clients must be at least 1, faults not negative")
	case s.workers < 2:
		return s, errors.New("workers must be at least 2: one has to be there while another is killed")
	case s.lease < time.Second:
		return s, errors.New("lease must be at least 1s")
	case s.fsync != "always" && s.fsync != "everysec":
		return s, fmt.Errorf("appendfsync %q; use always or everysec", s.fsync)
	}
	return s, nil
}
