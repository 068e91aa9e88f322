package main

import (
	"encoding/json"
	"errors"
	"fmt"

	"agentos/api"
)

// record is a run as its journal tells it, read without the engine's own code.
type record struct {
	run     api.Run
	entries []api.Entry
	calls   []*call
	holds   map[string]*held
	end     string // type of the last entry, "" while the run is not finished
	// recoveries counts how often the run was taken over.
	recoveries int
}

// call is one tool call of the run.
type call struct {
	id       string
	tool     string
	verdict  string // of policy, when the model asked for it
	started  []started
	finished *finished
	// items are the items of holds that asked about the call, in order.
	items []*item
}

// held is one hold of the run.
type held struct {
	kind  string
	items map[string]*item
	why   string // how it was closed, "" while it is pending
}

// item is one question, with the decision that the journal says was made.
type item struct {
	hold     string
	kind     string
	call     string
	data     json.RawMessage
	decision *api.Decision
}

// The data of entries, as far as the audit looks at them.
type (
	started struct {
		Call      string          `json:"call"`
		Tool      string          `json:"tool"`
		Arguments json.RawMessage `json:"arguments"`
		Effect    string          `json:"effect"`
		Key       string          `json:"idempotency_key"`
	}
	finished struct {
		Call      string `json:"call"`
		Outcome   string `json:"outcome"`
		Text      string `json:"text"`
		ErrorCode string `json:"error_code"`
		By        string `json:"by"`
	}
	answered struct {
		Calls []struct {
			ID      string      `json:"id"`
			Tool    string      `json:"tool"`
			Verdict api.Verdict `json:"verdict"`
		} `json:"calls"`
	}
	opened struct {
		Hold api.Hold `json:"hold"`
	}
	decided struct {
		HoldID string `json:"hold_id"`
		Items  []struct {
			ID       string          `json:"id"`
			Proposed json.RawMessage `json:"proposed"`
			Decision api.Decision    `json:"decision"`
		} `json:"items"`
	}
	closed struct {
		HoldID string `json:"hold_id"`
		Why    string `json:"why"`
	}
)

// readRecord goes through a journal and reports what no journal may hold.
func readRecord(run api.Run, entries []api.Entry) (*record, error) {
	r := &record{run: run, entries: entries, holds: map[string]*held{}}
	for i, e := range entries {
		if e.Seq != int64(i+1) {
			return r, fmt.Errorf("entry %d stands at place %d", e.Seq, i+1)
		}
		if r.end != "" {
			return r, fmt.Errorf("entry %d (%s) follows %s", e.Seq, e.Type, r.end)
		}
		if err := r.add(e); err != nil {
			return r, fmt.Errorf("entry %d (%s): %w", e.Seq, e.Type, err)
		}
	}
	return r, nil
}

func (r *record) add(e api.Entry) error {
	switch e.Type {
	case "model.answered":
		return read(e, r.answered)
	case "call.started":
		return read(e, r.started)
	case "call.finished":
		return read(e, r.finished)
	case "hold.opened":
		return read(e, r.opened)
	case "hold.decided":
		return read(e, r.decided)
	case "hold.closed":
		return read(e, r.closed)
	case "run.recovered":
		r.recoveries++
	case "run.completed", "run.failed", "run.cancelled":
		r.end = e.Type
	case "run.created":
	default:
		return errors.New("unknown type")
	}
	return nil
}

func read[T any](e api.Entry, use func(T) error) error {
	var data T
	if err := json.Unmarshal(e.Data, &data); err != nil {
		return err
	}
	return use(data)
}

// call returns the call with the id, or nil.
func (r *record) call(id string) *call {
	for _, c := range r.calls {
		if c.id == id {
			return c
		}
	}
	return nil
}

func (r *record) answered(a answered) error {
	for _, c := range a.Calls {
		if r.call(c.ID) != nil {
			return fmt.Errorf("call %s stands twice", c.ID)
		}
		r.calls = append(r.calls, &call{id: c.ID, tool: c.Tool, verdict: c.Verdict.Effect})
	}
	return nil
}

// open returns a call that may go on.
func (r *record) open(id string) (*call, error) {
	c := r.call(id)
	if c == nil {
		return nil, fmt.Errorf("no call %s", id)
	}
	if c.finished != nil {
		return nil, fmt.Errorf("call %s has finished before", id)
	}
	return c, nil
}

func (r *record) started(s started) error {
	c, err := r.open(s.Call)
	if err == nil {
		c.started = append(c.started, s)
	}
	return err
}

func (r *record) finished(f finished) error {
	c, err := r.open(f.Call)
	if err == nil {
		c.finished = &f
	}
	return err
}

func (r *record) opened(o opened) error {
	if r.holds[o.Hold.HoldID] != nil {
		return fmt.Errorf("hold %s stands twice", o.Hold.HoldID)
	}
	h := &held{kind: o.Hold.Kind, items: map[string]*item{}}
	for _, it := range o.Hold.Items {
		c, err := r.open(it.ID)
		if err != nil {
			return err
		}
		asked := &item{hold: o.Hold.HoldID, kind: o.Hold.Kind, call: it.ID, data: it.Data}
		h.items[it.ID] = asked
		c.items = append(c.items, asked)
	}
	r.holds[o.Hold.HoldID] = h
	return nil
}

func (r *record) decided(d decided) error {
	h := r.holds[d.HoldID]
	if h == nil || h.why != "" {
		return fmt.Errorf("hold %s is not pending", d.HoldID)
	}
	for _, it := range d.Items {
		switch asked := h.items[it.ID]; {
		case asked == nil:
			return fmt.Errorf("hold %s has no item %s", d.HoldID, it.ID)
		case asked.decision != nil:
			return fmt.Errorf("item %s is decided twice", it.ID)
		case string(asked.data) != string(it.Proposed):
			return fmt.Errorf("item %s was decided with other arguments than it shows", it.ID)
		default:
			asked.decision = &it.Decision
		}
	}
	return nil
}

func (r *record) closed(c closed) error {
	h := r.holds[c.HoldID]
	if h == nil || h.why != "" {
		return fmt.Errorf("hold %s is not pending", c.HoldID)
	}
	h.why = c.Why
	return nil
}

// pending is the hold that is not closed, or "".
func (r *record) pending() string {
	for id, h := range r.holds {
		if h.why == "" {
			return id
		}
	}
	return ""
}

// retries is how often a person said to run the call again.
func (c *call) retries() int {
	n := 0
	for _, it := range c.items {
		if it.kind == unknownHold && it.decision != nil && it.decision.Action == "retry" {
			n++
		}
	}
	return n
}

// gated reports whether anybody was asked before the call ran, and approval
// returns the last decision about that, nil when there is none.
func (c *call) gate() (gated bool, approval *api.Decision) {
	for _, it := range c.items {
		if it.kind == toolCallHold {
			gated, approval = true, it.decision
		}
	}
	return gated, approval
}
