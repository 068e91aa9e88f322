package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"agentos/api"
	"agentos/api/client"
	"agentos/audit"
	"agentos/internal/problem"
)

// evidence is everything there is to compare once the cluster rests.
type evidence struct {
	stories []*story
	// records are the runs that exist, by id.
	records map[string]*record
	// listed are the runs as the list of runs has them.
	listed []api.Run
	// pending are the holds as the list of pending holds has them.
	pending []api.Hold
	ledger  map[string][]mark
	// audit is the export of the audit, once it is as long as it must be.
	audit []byte
	found []violation
}

// gather reads all runs, journals and holds from a cluster that rests, and the
// ledger.
func gather(ctx context.Context, c *cluster, stories []*story) (*evidence, error) {
	e := &evidence{stories: stories, records: map[string]*record{}}
	api := c.clients[0]
	var err error
	if e.listed, err = allRuns(ctx, api); err != nil {
		return nil, fmt.Errorf("list runs: %w", err)
	}
	if e.pending, err = pendingHolds(ctx, api); err != nil {
		return nil, fmt.Errorf("list holds: %w", err)
	}
	if e.ledger, err = c.ledger.read(); err != nil {
		return nil, err
	}
	if err := e.readRuns(ctx, c); err != nil {
		return nil, err
	}
	return e, e.readAudit(ctx, api)
}

// readAudit reads the audit when it has caught up with the journals, which takes as
// long as the claim of a worker that was killed while it told.
func (e *evidence) readAudit(ctx context.Context, c *client.Client) error {
	for deadline := time.Now().Add(2 * patience); ; {
		var text bytes.Buffer
		if err := c.Audit(ctx, environment, 0, &text); err != nil {
			return fmt.Errorf("export the audit: %w", err)
		}
		e.audit = text.Bytes()
		if len(e.told()) == 0 || time.Now().After(deadline) {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Second):
		}
	}
}

// told: the audit is sound and has what people decided, closed and cancelled, and
// the calls that ran because of it, each once and nothing else of runs.
func (e *evidence) told() []violation {
	var out []violation
	report, err := audit.Verify(bytes.NewReader(e.audit), "")
	if err != nil {
		out = append(out, violation{Check: checkAudit, Text: err.Error()})
	}
	for _, f := range report.Faults {
		out = append(out, violation{Check: checkAudit, Text: fmt.Sprintf("line %d: %s", f.Line, f.Message)})
	}
	has := map[string]map[string]int{}
	for line := range bytes.Lines(e.audit) {
		var entry struct {
			Run   string `json:"run"`
			Event string `json:"event"`
		}
		if err := json.Unmarshal(line, &entry); err != nil || entry.Run == "" {
			continue // Verify has told, or it is of no run
		}
		if has[entry.Run] == nil {
			has[entry.Run] = map[string]int{}
		}
		has[entry.Run][entry.Event]++
	}
	for id, r := range e.records {
		for event, n := range r.audited() {
			if got := has[id][event]; got != n {
				out = append(out, violation{checkAudit, id, fmt.Sprintf("%s happened %d times and is %d times in the audit", event, n, got)})
			}
		}
	}
	return out
}

// audited counts what the audit must have of the run.
func (r *record) audited() map[string]int {
	out := map[string]int{"hold.decided": 0, "hold.expired": 0, "hold.cancelled": 0, "run.cancelled": 0, "call.ran": 0}
	for _, e := range r.entries {
		if _, counts := out[e.Type]; counts {
			out[e.Type]++
		}
	}
	for _, h := range r.holds {
		if name := "hold." + h.why; h.why != "" && h.why != "decided" {
			out[name]++
		}
	}
	for _, c := range r.calls {
		if len(c.started) > 0 && c.finished != nil && slices.ContainsFunc(c.items, (*item).lets) {
			out["call.ran"]++
		}
	}
	return out
}

// lets reports whether what was decided about the item lets its call run.
func (it *item) lets() bool {
	return it.decision != nil && slices.Contains([]string{"approve", "edit", "retry"}, it.decision.Action)
}

func allRuns(ctx context.Context, c *client.Client) ([]api.Run, error) {
	var out []api.Run
	for cursor := ""; ; {
		page, err := c.Runs(ctx, environment, client.RunQuery{Limit: 200, Cursor: cursor})
		out, cursor = append(out, page.Runs...), page.NextCursor
		if err != nil || cursor == "" {
			return out, err
		}
	}
}

func pendingHolds(ctx context.Context, c *client.Client) ([]api.Hold, error) {
	var out []api.Hold
	for cursor := ""; ; {
		page, err := c.Holds(ctx, environment, client.HoldQuery{Status: api.HoldPending, Limit: 200, Cursor: cursor})
		out, cursor = append(out, page.Holds...), page.NextCursor
		if err != nil || cursor == "" {
			return out, err
		}
	}
}

// readRuns reads every run that is listed or was told to a caller.
func (e *evidence) readRuns(ctx context.Context, c *cluster) error {
	ids := map[string]bool{}
	for _, r := range e.listed {
		ids[r.RunID] = true
	}
	for _, s := range e.stories {
		for _, id := range s.ids {
			ids[id] = true
		}
	}
	todo := make(chan string, len(ids))
	for id := range ids {
		todo <- id
	}
	close(todo)
	var mu sync.Mutex
	var errs []error
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for id := range todo {
				r, err := readRun(ctx, c.clients[i%len(c.clients)], id)
				mu.Lock()
				if r != nil {
					e.records[id] = r
				}
				if _, ok := errors.AsType[*damaged](err); ok {
					e.found = append(e.found, violation{Check: checkJournal, Run: id, Text: err.Error()})
				} else if err != nil && problem.CodeOf(err) != problem.RunNotFound {
					errs = append(errs, fmt.Errorf("read run %s: %w", id, err))
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// damaged is a journal that no engine may have written.
type damaged struct{ error }

// readRun reads a run and its journal to the end, as far as it has one.
func readRun(ctx context.Context, c *client.Client, id string) (*record, error) {
	ctx, stop := context.WithTimeout(ctx, patience)
	defer stop()
	run, err := c.Run(ctx, environment, id, 0)
	if err != nil {
		return nil, err
	}
	reading := ctx
	if !run.Status.Finished() && run.Hold == nil {
		// It should not be like that; there is no telling how long its journal is.
		var stop context.CancelFunc
		reading, stop = context.WithTimeout(ctx, time.Second)
		defer stop()
	}
	var entries []api.Entry
	for e, err := range c.Events(reading, environment, id, 0) {
		if err != nil {
			if reading.Err() != nil && ctx.Err() == nil {
				break
			}
			return nil, err
		}
		entries = append(entries, e)
		if run.Hold != nil && e.Seq >= run.Hold.Revision {
			break
		}
	}
	r, err := readRecord(run, entries)
	if err != nil {
		return r, &damaged{err}
	}
	return r, nil
}

// judge makes every check but that of the audit.
func (e *evidence) judge() []violation {
	out := e.found
	out = append(out, e.exist()...)
	out = append(out, e.indexes()...)
	out = append(out, e.recorded()...)
	for _, s := range e.stories {
		if len(s.ids) == 0 {
			continue
		}
		if r := e.records[s.id()]; r != nil {
			out = append(out, checkRun(s, r, e.ledger)...)
		}
	}
	return out
}

// exist: every run that a caller was told of is there and listed once, and there
// is one run for each key.
func (e *evidence) exist() []violation {
	var out []violation
	listed, prompts := map[string]int{}, map[string][]string{}
	for _, r := range e.listed {
		listed[r.RunID]++
		prompts[promptIn(r)] = append(prompts[promptIn(r)], r.RunID)
	}
	for _, s := range e.stories {
		name := s.plan.prompt()
		for _, id := range s.ids {
			if e.records[id] == nil || listed[id] != 1 {
				out = append(out, violation{checkExists, id, fmt.Sprintf("%s was accepted; found: %v, listed %d times", name, e.records[id] != nil, listed[id])})
			}
			if id != s.id() {
				out = append(out, violation{checkSingle, id, fmt.Sprintf("%s is also %s", name, s.id())})
			}
		}
		if s.vanished {
			out = append(out, violation{checkExists, s.id(), name + " was accepted, and later there was no such run"})
		}
		if len(prompts[name]) > 1 {
			out = append(out, violation{checkSingle, prompts[name][0], fmt.Sprintf("%s is %d runs: %v", name, len(prompts[name]), prompts[name])})
		}
	}
	return out
}

func promptIn(r api.Run) string {
	var in struct {
		Message string `json:"message"`
	}
	if err := json.Unmarshal(r.Input, &in); err != nil {
		return ""
	}
	return in.Message
}

// indexes: the list of pending holds has exactly the holds of held runs, and the
// list of runs says of each what the run itself says.
func (e *evidence) indexes() []violation {
	var out []violation
	runs := map[string]string{} // pending hold → its run
	for id, r := range e.records {
		if r.run.Status == api.RunHeld && r.run.Hold != nil {
			runs[r.run.Hold.HoldID] = id
		}
	}
	for _, h := range e.pending {
		if runs[h.HoldID] != h.RunID {
			out = append(out, violation{checkIndex, h.RunID, "hold " + h.HoldID + " is listed as pending and no held run has it"})
		}
		delete(runs, h.HoldID)
	}
	for hold, run := range runs {
		out = append(out, violation{checkIndex, run, "hold " + hold + " is pending and not listed"})
	}
	for _, r := range e.listed {
		if is := e.records[r.RunID]; is != nil && is.run.Status != r.Status {
			out = append(out, violation{checkIndex, r.RunID, fmt.Sprintf("the run is listed as %s and is %s", r.Status, is.run.Status)})
		}
	}
	return out
}

// recorded: nothing ran that no journal knows.
func (e *evidence) recorded() []violation {
	var out []violation
	for key, marks := range e.ledger {
		run, id, _ := strings.Cut(key, "/")
		if r := e.records[run]; r == nil || r.call(id) == nil {
			out = append(out, violation{checkRecorded, run, fmt.Sprintf("%q ran %d times, and there is no such call", key, len(starts(marks)))})
		}
	}
	return out
}

// losable are the checks that may fail when Redis is told to write to disk once a
// second: what it had acknowledged since then can be gone after a kill.
var losable = []check{checkExists, checkDecision, checkRecorded, checkFollower, checkHistory, checkCancelled, checkEffect}

// forgive takes out of all what a Redis that writes once a second may lose.
func forgive(all []violation) (kept, lost []violation) {
	for _, v := range all {
		if slices.Contains(losable, v.Check) {
			lost = append(lost, v)
		} else {
			kept = append(kept, v)
		}
	}
	return kept, lost
}
