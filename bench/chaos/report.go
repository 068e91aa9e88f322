package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"text/tabwriter"

	"agentos/internal/rawjson"
)

// report is what happened, and what must not have happened.
type report struct {
	Runs        int     `json:"runs"`
	Seed        uint64  `json:"seed"`
	Workers     int     `json:"workers"`
	AppendFsync string  `json:"appendfsync"`
	Lease       string  `json:"lease"`
	Seconds     float64 `json:"seconds"`
	RunsPerSec  float64 `json:"runs_per_second"`
	// Shapes count runs by shape and status.
	Shapes map[shape]map[string]int `json:"shapes"`
	// Failures count failed runs by code.
	Failures map[string]int `json:"failures"`
	Faults   map[fault]int  `json:"faults"`
	// Decisions count recorded decisions by kind of hold and action, Answers how
	// requests to decide were answered, Closed how holds ended.
	Decisions map[string]int `json:"decisions"`
	Answers   map[string]int `json:"answers"`
	Closed    map[string]int `json:"closed"`
	// Effects count executions by effect class. Repeats are those beyond the first
	// of a call.
	Effects map[string]int `json:"effects"`
	Repeats map[string]int `json:"repeats"`
	// Unseen counts executions whose end the tool itself did not live to see.
	Unseen     int `json:"unseen"`
	Recoveries int `json:"recoveries"`
	Followed   int `json:"followed"`
	ModelCalls int `json:"model_calls"`
	// Fsck is "clean", "faulty" or "not available".
	Fsck string `json:"fsck"`
	// Lost is what a Redis that writes once a second lost.
	Lost       []violation `json:"lost"`
	Violations []violation `json:"violations"`
	Directory  string      `json:"directory,omitempty"`
}

// tell counts what the evidence shows.
func (r *report) tell(e *evidence) {
	r.Shapes, r.Failures, r.Decisions, r.Answers = map[shape]map[string]int{}, map[string]int{}, map[string]int{}, map[string]int{}
	r.Closed, r.Effects, r.Repeats = map[string]int{}, map[string]int{}, map[string]int{}
	for _, s := range e.stories {
		if len(s.seen) > 0 {
			r.Followed++
		}
		for _, a := range s.attempts {
			r.Answers[cmp.Or(string(a.code), string(a.verdict))]++
		}
		status := "missing"
		if len(s.ids) > 0 && e.records[s.id()] != nil {
			rec := e.records[s.id()]
			status = string(rec.run.Status)
			r.tellRecord(rec, e.ledger)
		}
		if r.Shapes[s.plan.shape] == nil {
			r.Shapes[s.plan.shape] = map[string]int{}
		}
		r.Shapes[s.plan.shape][status]++
	}
}

func (r *report) tellRecord(rec *record, ledger map[string][]mark) {
	r.Recoveries += rec.recoveries
	if rec.run.Error != nil {
		r.Failures[string(rec.run.Error.Code)]++
	}
	for _, h := range rec.holds {
		r.Closed[h.kind+" "+cmp.Or(h.why, "pending")]++
		for _, it := range h.items {
			if it.decision != nil {
				r.Decisions[h.kind+" "+it.decision.Action]++
			}
		}
	}
	for _, c := range rec.calls {
		marks := ledger[rec.run.RunID+"/"+c.id]
		n := len(starts(marks))
		if n == 0 || len(c.started) == 0 {
			continue
		}
		class := c.started[0].Effect
		r.Effects[class] += n
		r.Repeats[class] += n - 1
		r.Unseen += 2*n - len(marks)
	}
}

func (r *report) writeJSON(w io.Writer) error {
	raw, err := rawjson.Marshal(r)
	if err != nil {
		return err
	}
	return errors.Join(writeAll(w, raw), writeAll(w, []byte("\n")))
}

func writeAll(w io.Writer, raw json.RawMessage) error {
	_, err := w.Write(raw)
	return err
}

func (r *report) writeText(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprintf(t, "runs\t%d in %.1f s, %.0f/s\n", r.Runs, r.Seconds, r.RunsPerSec)
	fmt.Fprintf(t, "seed, workers, lease, appendfsync\t%d, %d, %s, %s\n", r.Seed, r.Workers, r.Lease, r.AppendFsync)
	for _, s := range slices.Sorted(maps.Keys(r.Shapes)) {
		fmt.Fprintf(t, "shape %s\t%s\n", s, list(r.Shapes[s]))
	}
	fmt.Fprintf(t, "failures\t%s\n", list(r.Failures))
	fmt.Fprintf(t, "faults\t%s\n", list(r.Faults))
	fmt.Fprintf(t, "decisions recorded\t%s\n", list(r.Decisions))
	fmt.Fprintf(t, "decisions answered\t%s\n", list(r.Answers))
	fmt.Fprintf(t, "holds\t%s\n", list(r.Closed))
	fmt.Fprintf(t, "effects\t%s\n", list(r.Effects))
	fmt.Fprintf(t, "effects repeated\t%s\n", list(r.Repeats))
	fmt.Fprintf(t, "executions cut off\t%d\n", r.Unseen)
	fmt.Fprintf(t, "recoveries\t%d\n", r.Recoveries)
	fmt.Fprintf(t, "event streams followed\t%d\n", r.Followed)
	fmt.Fprintf(t, "model calls\t%d\n", r.ModelCalls)
	fmt.Fprintf(t, "fsck\t%s\n", r.Fsck)
	fmt.Fprintf(t, "lost by Redis\t%d\n", len(r.Lost))
	fmt.Fprintf(t, "violations\t%d\n", len(r.Violations))
	if err := t.Flush(); err != nil {
		return err
	}
	for _, v := range r.Lost {
		fmt.Fprintf(w, "lost: %s %s: %s\n", v.Check, v.Run, v.Text)
	}
	for _, v := range r.Violations {
		fmt.Fprintf(w, "VIOLATION: %s %s: %s\n", v.Check, v.Run, v.Text)
	}
	if r.Directory != "" {
		fmt.Fprintf(w, "files: %s\n", r.Directory)
	}
	return nil
}

// list writes counts by name, such as "completed 3, failed 1".
func list[K ~string](counts map[K]int) string {
	out := ""
	for _, k := range slices.Sorted(maps.Keys(counts)) {
		if out != "" {
			out += ", "
		}
		out += fmt.Sprintf("%s %d", string(k), counts[k])
	}
	return cmp.Or(out, "none")
}
