package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"agentos/internal/clock"
	"agentos/internal/problem"
	"agentos/internal/secrets"
	"agentos/internal/visible"
	"agentos/runtime/fsck"
	"agentos/runtime/store"
)

// fsckOptions are the flags of agentos fsck.
type fsckOptions struct {
	settings
	repair, json bool
}

func fsckCommand(io stdio, env lookup) *cobra.Command {
	var o fsckOptions
	cmd := &cobra.Command{
		Use:   "fsck",
		Short: "Check a store for damage, and repair its indexes",
		Long: `Check that a store keeps its invariants: every unfinished run is due exactly once,
lists have every run and hold where it belongs, journals are whole and fold, records and
holds agree with them, and nothing is left of runs that are gone.

A Redis store is checked while servers work with it; a store file must not be in use.
--repair sets indexes and expiries right from the records. Records, journals and holds are
never changed.

Exit codes: 0 clean, or all repaired; 1 findings remain; 2 the check could not be made.`,
		Example: "  agentos fsck --store file:.agentos/agentos.db\n  agentos fsck --store redis://127.0.0.1:6379 --repair",
		Args:    takes(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			sum, err := runFsck(cmd.Context(), io, o)
			if err != nil {
				return couldNot(io, err)
			}
			if !sum.Clean() {
				return failed{exitFailed}
			}
			return nil
		},
	}
	o.given = givenBy(cmd, env)
	f := cmd.Flags()
	f.StringVar(&o.store, "store", env.or("AGENTOS_STORE", "file:.agentos/agentos.db"), "the store to check: file:PATH, redis://... (AGENTOS_STORE)")
	f.IntVar(&o.partitions, "partitions", number(env, "AGENTOS_PARTITIONS", 1), "as of the servers (AGENTOS_PARTITIONS)")
	f.DurationVar(&o.retention, "retention", duration(env, "AGENTOS_RETENTION", 30*24*time.Hour), "as of the servers; for Redis: finished runs must have an expiry unless it is 0 (AGENTOS_RETENTION)")
	f.BoolVar(&o.repair, "repair", false, "set indexes and expiries right")
	f.BoolVar(&o.json, "json", false, "print each finding as a line of JSON, then the summary")
	return cmd
}

// couldNot says why the check could not be made.
func couldNot(io stdio, err error) error {
	if p := (*problem.Error)(nil); errors.As(err, &p) {
		printProblem(io.err, p)
	} else {
		fmt.Fprintf(io.err, "agentos: the check could not be made: %s\n", visible.Text(err.Error()))
	}
	return failed{exitUsage}
}

func runFsck(ctx context.Context, io stdio, o fsckOptions) (sum fsck.Summary, err error) {
	o.logFormat, o.logLevel = "text", "error"
	if o.partitions < 1 || o.partitions > maxPartitions {
		return sum, o.wrong("partitions", "must be a number from 1 to %d", maxPartitions)
	}
	if o.retention < 0 {
		return sum, o.wrong("retention", `must be a duration such as "720h", or 0`)
	}
	if err := checkable(&o.settings); err != nil {
		return sum, err
	}
	log, err := newLog(o.settings, io.err, secrets.New(nil))
	if err != nil {
		return sum, err
	}
	s, err := openStore(ctx, o.settings, log, clock.System{})
	if err != nil {
		return sum, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	inspector, ok := s.(store.Inspector)
	if !ok {
		return sum, errors.New("this kind of store has no check")
	}
	if o.repair {
		if err := recordRepair(ctx, s); err != nil {
			return sum, err
		}
	}
	p := &fsckPrinter{stdio: io, json: o.json, terminal: isTerminal(io.err)}
	sum, err = fsck.Run(ctx, fsck.Options{Store: inspector, Clock: clock.System{}, Repair: o.repair, Report: p.finding, Progress: p.progress})
	p.clear()
	if err != nil {
		return sum, err
	}
	return sum, p.summary(sum)
}

// checkable refuses stores in which there is nothing to find. Opening a file store
// would make a file that is not there, and with a retention it would remove runs.
func checkable(s *settings) error {
	path, isFile := strings.CutPrefix(s.store, "file:")
	switch {
	case isFile && path != "" && path != ":memory:":
		s.retention = 0
		if _, err := os.Stat(path); err != nil {
			return problem.Wrap(err, problem.InvalidSettings, "the store file %s cannot be opened: %v", path, err)
		}
	case isFile || strings.HasPrefix(s.store, "memory:"):
		return problem.New(problem.InvalidSettings, "a store in memory ends with its process; there is nothing to check")
	}
	return nil
}

// fsckPrinter prints findings as they come.
type fsckPrinter struct {
	stdio
	json, terminal bool
	// shown is the last progress that was shown.
	shown int
}

// progressEvery is after how many runs the progress is shown again.
const progressEvery = 1000

func (p *fsckPrinter) progress(s fsck.Summary) {
	if !p.terminal || s.Runs < p.shown+progressEvery {
		return
	}
	p.shown = s.Runs
	fmt.Fprintf(p.err, "\ragentos: %d runs, %d findings", s.Runs, s.Findings)
}

// clear takes the progress off the line.
func (p *fsckPrinter) clear() {
	if p.shown > 0 {
		fmt.Fprint(p.err, "\r\x1b[K")
	}
}

func (p *fsckPrinter) finding(f store.Finding) error {
	p.clear()
	if p.json {
		return printJSON(p.out, f)
	}
	about := f.RunID
	if f.HoldID != "" {
		about = f.HoldID // the run is in it
	}
	if about != "" {
		about = " " + visible.Text(about)
	}
	repaired := ""
	if f.Repaired {
		repaired = " [repaired]"
	}
	_, err := fmt.Fprintf(p.out, "%s%s: %s%s\n", f.Code, about, visible.Text(f.Message), repaired)
	return err
}

func (p *fsckPrinter) summary(s fsck.Summary) error {
	if p.json {
		return printJSON(p.out, s)
	}
	_, err := fmt.Fprintf(p.out, "%d runs checked, %d findings, %d repaired\n", s.Runs, s.Findings, s.Repaired)
	return err
}
