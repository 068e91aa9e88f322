package audit

import (
	"fmt"

	"agentos/holds"
	"agentos/internal/rawjson"
	"agentos/runtime/journal"
)

// Concerns reports whether FromRun makes an entry of a journal entry of the type.
// Of an end of a call it may, when the run ever asked a person.
func Concerns(t journal.Type, asked bool) bool {
	switch t {
	case journal.HoldDecided, journal.HoldClosed, journal.RunCancelled:
		return true
	case journal.CallFinished:
		return asked
	case journal.RunCreated, journal.ModelAnswered, journal.CallStarted, journal.HoldOpened, journal.RunRecovered, journal.RunCompleted, journal.RunFailed:
	}
	return false
}

// FromRun returns what is to be told of a run, worked out from its whole journal.
// The same journal gives the same entries under the same keys, however often and by
// whomever it is read. It fails on a journal that cannot be folded; what comes
// before the fault is returned then.
func FromRun(env, run string, entries []journal.Entry) ([]Keyed, error) {
	var out []Keyed
	r := reader{let: map[string]bool{}}
	for _, e := range entries {
		r.pending = r.state.Hold
		if err := r.state.Add(e); err != nil {
			return out, fmt.Errorf("audit of run %s: %w", run, err)
		}
		about := Entry{At: e.At.UTC(), Env: env, Agent: r.state.Created.Agent, Run: run}
		told, err := r.tell(&about, e)
		if err != nil {
			return out, fmt.Errorf("audit of run %s, entry %d: %w", run, e.Seq, err)
		}
		if told {
			out = append(out, Keyed{Key: fmt.Sprintf("%s/%d", run, e.Seq), Seq: e.Seq, Entry: about})
		}
	}
	return out, nil
}

// reader reads the journal of a run.
type reader struct {
	state journal.State
	// pending is the hold that was open before the newest entry.
	pending *holds.Hold
	// let are the calls that a person has let run.
	let map[string]bool
}

// tell fills in what a journal entry says, and reports whether it says anything for
// the audit.
func (r *reader) tell(about *Entry, e journal.Entry) (bool, error) {
	switch e.Type {
	case journal.HoldOpened:
		if r.state.Hold.Kind == holds.ToolCall { // what was said of a call before counts no more
			for _, it := range r.state.Hold.Items {
				delete(r.let, it.ID)
			}
		}
		return false, nil
	case journal.HoldDecided:
		return r.decided(about, e)
	case journal.HoldClosed:
		return closed(about, e)
	case journal.RunCancelled:
		about.Event, about.By = RunCancelled, r.state.CancelledBy
		return true, nil
	case journal.CallFinished:
		return r.ran(about, e)
	case journal.RunCreated, journal.ModelAnswered, journal.CallStarted, journal.RunRecovered, journal.RunCompleted, journal.RunFailed:
	}
	return false, nil
}

func (r *reader) decided(about *Entry, e journal.Entry) (bool, error) {
	var d journal.HoldDecision
	if err := rawjson.Unmarshal(e.Data, &d); err != nil {
		return false, err
	}
	about.Event, about.Hold, about.By = HoldDecided, d.HoldID, d.By
	for _, it := range d.Items {
		about.Items = append(about.Items, itemOf(it, r.pending.Item(it.ID)))
		about.From = it.Decision.From
		switch it.Decision.Action {
		case holds.Approve, holds.Edit, holds.Retry:
			r.let[it.ID] = !it.Open
		case holds.Reject:
			r.let[it.ID] = false
		case holds.Ran, holds.Skip: // it was sent by the decision before, if by any
		}
	}
	return true, nil
}

func closed(about *Entry, e journal.Entry) (bool, error) {
	var c journal.Closed
	if err := rawjson.Unmarshal(e.Data, &c); err != nil {
		return false, err
	}
	about.Hold, about.Reason = c.HoldID, c.Reason
	switch c.Why {
	case holds.Expired:
		about.Event = HoldExpired
	case holds.Cancelled:
		about.Event = HoldCancelled
	case holds.Pending, holds.Decided: // every decision has its own entry
	}
	return about.Event != "", nil
}

// ran fills in a call that was sent after a person had let it run.
func (r *reader) ran(about *Entry, e journal.Entry) (bool, error) {
	var f journal.Finished
	if err := rawjson.Unmarshal(e.Data, &f); err != nil {
		return false, err
	}
	c := r.state.Call(f.Call)
	if c.Started == nil || !r.let[c.ID] {
		return false, nil
	}
	about.Event = CallRan
	about.Call = &Call{
		ID: c.ID, Server: c.Started.Server, Tool: c.Started.Tool, ToolDigest: c.Started.ToolDigest,
		Arguments: rawjson.Digest(c.Started.Arguments), Outcome: string(f.Outcome),
	}
	return true, nil
}

// itemOf tells a decision about an item, with what the person was shown.
func itemOf(d journal.DecidedItem, it *holds.Item) Item {
	out := Item{Call: d.ID, Seen: rawjson.Digest(d.Proposed), Action: string(d.Decision.Action), Reason: d.Decision.Reason, Open: d.Open}
	if it != nil {
		out.Server, out.Tool, out.ToolDigest = it.Server, it.Tool, it.ToolDigest
	}
	switch d.Decision.Action {
	case holds.Approve, holds.Retry:
		out.Decided = out.Seen
	case holds.Edit, holds.Ran:
		out.Decided = rawjson.Digest(d.Decision.Data)
	case holds.Reject, holds.Skip:
	}
	return out
}
