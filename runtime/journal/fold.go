package journal

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"agentos/holds"
	"agentos/holds/policy"
	"agentos/internal/rawjson"
)

// State is a run folded from its journal.
type State struct {
	// Seq is the number of entries folded.
	Seq     int64
	Created Created
	// Answers are the model's answers in order; Calls every call of the run by
	// our id, also in order.
	Answers []Answered
	Calls   []*Call
	// Hold is the pending hold, nil while there is none; Holds counts all.
	Hold  *holds.Hold
	Holds int
	// Usage adds up what the model calls reported.
	Usage Usage
	// ActiveMS is the active time up to the newest entry that tells it.
	ActiveMS int64
	// Servers are the MCP servers as last recorded.
	Servers json.RawMessage
	// PolicyDigest is of the operator's rules as last recorded, "" without any.
	PolicyDigest string
	// End is the type of the last entry of a finished run, else "".
	End Type
	// Output and Fault are set by run.completed and run.failed.
	Output json.RawMessage
	Fault  *Fault
	// CancelledBy is set by run.cancelled.
	CancelledBy string

	// history is what History has derived so far.
	history *history
}

// Call is one call as far as it has come.
type Call struct {
	Asked
	Turn int
	// Started is the newest call.started, nil before; Finished the end.
	Started  *Started
	Finished *Finished
	// Starts counts how often the call was started.
	Starts int
	// Decision is what a person decided about running the call, nil when nobody
	// was asked or nobody has answered.
	Decision *holds.Decision
	// Resolution is what a person said became of a started call whose end nobody
	// saw, nil when nobody was asked since it was last started.
	Resolution *holds.Decision
	// Item is the newest item that asked about the call.
	Item *holds.Item
	// Expired says that a hold which asked about the call ended undecided;
	// ExpiryFails that the whole run fails then.
	Expired     bool
	ExpiryFails bool
}

// Effective returns the arguments the call runs with: those of an edit, else the
// ones a person was shown, else the proposed ones. An edit that not enough people
// have approved counts for nothing.
func (c *Call) Effective() json.RawMessage {
	switch {
	case c.Decision != nil && c.Decision.Action == holds.Edit:
		return c.Decision.Data
	case c.Item != nil && c.Decision == nil && c.Item.Proposed != nil:
		return c.Item.Proposed
	case c.Item != nil:
		return c.Item.Data
	}
	return c.Arguments
}

// Approved reports whether a person has allowed the call to run.
func (c *Call) Approved() bool {
	return c.Decision != nil && (c.Decision.Action == holds.Approve || c.Decision.Action == holds.Edit)
}

// Encode makes an entry of v, which is the data struct of t.
func Encode(t Type, v any) (New, error) {
	data, err := rawjson.Marshal(v)
	if err != nil {
		return New{}, fmt.Errorf("encode %s: %w", t, err)
	}
	return New{Type: t, Data: data}, nil
}

// Fold returns the state after entries, which start at the first one. It fails
// on a journal no engine could have written: a gap, an entry about a call or
// hold that does not exist, anything after the last entry.
func Fold(entries []Entry) (*State, error) {
	s := &State{}
	for _, e := range entries {
		if err := s.Add(e); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// Add folds one more entry into s.
func (s *State) Add(e Entry) error {
	if e.Seq != s.Seq+1 {
		return fmt.Errorf("entry %d follows entry %d", e.Seq, s.Seq)
	}
	if (e.Type == RunCreated) != (e.Seq == 1) {
		return fmt.Errorf("entry %d is %s", e.Seq, e.Type)
	}
	if s.End != "" {
		return fmt.Errorf("entry %d (%s) follows %s", e.Seq, e.Type, s.End)
	}
	if err := s.add(e); err != nil {
		return fmt.Errorf("entry %d (%s): %w", e.Seq, e.Type, err)
	}
	s.Seq = e.Seq
	return nil
}

func (s *State) add(e Entry) error {
	switch e.Type {
	case RunCreated:
		err := rawjson.Unmarshal(e.Data, &s.Created)
		s.PolicyDigest = s.Created.PolicyDigest
		return err
	case ModelAnswered:
		return s.addAnswer(e.Data)
	case CallStarted:
		return s.addStarted(e.Data)
	case CallFinished:
		return s.addFinished(e.Data)
	case HoldOpened:
		return s.addOpened(e.Data)
	case HoldDecided:
		return s.addDecided(e.Data)
	case HoldClosed:
		return s.addClosed(e.Data)
	case RunRecovered:
		return rawjson.Unmarshal(e.Data, &Recovered{})
	case RunCompleted, RunFailed, RunCancelled:
		return s.addEnd(e)
	}
	return errors.New("unknown type")
}

func (s *State) addAnswer(data []byte) error {
	var a Answered
	if err := rawjson.Unmarshal(data, &a); err != nil {
		return err
	}
	if a.Turn != len(s.Answers)+1 {
		return fmt.Errorf("turn %d follows turn %d", a.Turn, len(s.Answers))
	}
	if open := s.Open(); len(open) > 0 {
		return fmt.Errorf("call %s has not finished", open[0].ID)
	}
	for _, asked := range a.Calls {
		if want := fmt.Sprintf("call_%d", len(s.Calls)+1); asked.ID != want {
			return fmt.Errorf("call id %q, want %q", asked.ID, want)
		}
		s.Calls = append(s.Calls, &Call{Asked: asked, Turn: a.Turn})
	}
	if a.Usage != nil {
		s.Usage.InputTokens += a.Usage.InputTokens
		s.Usage.OutputTokens += a.Usage.OutputTokens
		s.Usage.TotalTokens += a.Usage.TotalTokens
	}
	if len(a.Servers) > 0 {
		s.Servers = a.Servers
	}
	if a.PolicyDigest != "" {
		s.PolicyDigest = strings.TrimSuffix(a.PolicyDigest, NoPolicy)
	}
	s.active(a.ActiveMS)
	s.Answers = append(s.Answers, a)
	return nil
}

func (s *State) addStarted(data []byte) error {
	var st Started
	if err := rawjson.Unmarshal(data, &st); err != nil {
		return err
	}
	c, err := s.unfinished(st.Call)
	if err != nil {
		return err
	}
	c.Started, c.Resolution = &st, nil
	c.Starts++
	return nil
}

func (s *State) addFinished(data []byte) error {
	var f Finished
	if err := rawjson.Unmarshal(data, &f); err != nil {
		return err
	}
	c, err := s.unfinished(f.Call)
	if err != nil {
		return err
	}
	c.Finished = &f
	s.active(f.ActiveMS)
	return nil
}

func (s *State) addOpened(data []byte) error {
	var o Opened
	if err := rawjson.Unmarshal(data, &o); err != nil {
		return err
	}
	if s.Hold != nil {
		return fmt.Errorf("hold %s is still pending", s.Hold.ID)
	}
	for i := range o.Hold.Items {
		c, err := s.unfinished(o.Hold.Items[i].ID)
		if err != nil {
			return err
		}
		c.Item, c.Expired = &o.Hold.Items[i], false
		if o.Hold.Kind == holds.ToolCall {
			c.Decision = nil
		}
	}
	s.Hold = &o.Hold
	s.Holds++
	s.active(o.ActiveMS)
	return nil
}

func (s *State) addDecided(data []byte) error {
	var d HoldDecision
	if err := rawjson.Unmarshal(data, &d); err != nil {
		return err
	}
	if s.Hold == nil || s.Hold.ID != d.HoldID {
		return fmt.Errorf("hold %s is not pending", d.HoldID)
	}
	for i := range d.Items {
		it := s.Hold.Item(d.Items[i].ID)
		c := s.Call(d.Items[i].ID)
		if it == nil || c == nil {
			return fmt.Errorf("no item %s", d.Items[i].ID)
		}
		if !bytes.Equal(d.Items[i].Proposed, it.Data) {
			return fmt.Errorf("item %s was decided with other arguments than it shows", d.Items[i].ID)
		}
		if it.Decision != nil {
			return fmt.Errorf("item %s was decided before", it.ID)
		}
		if r := d.Items[i].Reviewers; r != nil {
			it.Tighten(*r)
		}
		it.Record(d.Items[i].Decision)
		if open := it.Decision == nil; open != d.Items[i].Open {
			return fmt.Errorf("item %s has %d approvals of the %d it needs; the entry says something else", it.ID, it.Approvals(), it.Reviewers.Needed())
		}
		if s.Hold.Kind == holds.OutcomeUnknown {
			c.Resolution = it.Decision
		} else {
			c.Decision = it.Decision
		}
	}
	return nil
}

func (s *State) addClosed(data []byte) error {
	var cl Closed
	if err := rawjson.Unmarshal(data, &cl); err != nil {
		return err
	}
	if s.Hold == nil || s.Hold.ID != cl.HoldID {
		return fmt.Errorf("hold %s is not pending", cl.HoldID)
	}
	if cl.Why == holds.Expired {
		for _, it := range s.Hold.Pending() {
			c := s.Call(it.ID)
			c.Expired, c.ExpiryFails = true, s.Hold.OnExpire == policy.FailOnExpire
		}
	}
	s.Hold = nil
	return nil
}

func (s *State) addEnd(e Entry) error {
	if s.Hold != nil {
		return fmt.Errorf("hold %s is still pending", s.Hold.ID)
	}
	s.End = e.Type
	switch e.Type {
	case RunCompleted:
		var c Completed
		if err := rawjson.Unmarshal(e.Data, &c); err != nil {
			return err
		}
		s.Output = c.Output
		s.active(c.ActiveMS)
	case RunFailed:
		var f Failed
		if err := rawjson.Unmarshal(e.Data, &f); err != nil {
			return err
		}
		s.Fault = &f.Error
		s.active(f.ActiveMS)
	case RunCancelled:
		var c Cancel
		if err := rawjson.Unmarshal(e.Data, &c); err != nil {
			return err
		}
		s.CancelledBy = c.By
	case RunCreated, ModelAnswered, CallStarted, CallFinished, HoldOpened, HoldDecided, HoldClosed, RunRecovered: // no ends
	}
	return nil
}

// Call returns the call with our id, or nil.
func (s *State) Call(id string) *Call {
	for _, c := range s.Calls {
		if c.ID == id {
			return c
		}
	}
	return nil
}

// Open returns the calls that have not finished, in the model's order. They all
// belong to the newest answer.
func (s *State) Open() []*Call {
	var out []*Call
	for i := len(s.Calls) - 1; i >= 0 && s.Calls[i].Turn == len(s.Answers); i-- {
		if s.Calls[i].Finished == nil {
			out = append([]*Call{s.Calls[i]}, out...)
		}
	}
	return out
}

func (s *State) unfinished(id string) (*Call, error) {
	c := s.Call(id)
	if c == nil {
		return nil, fmt.Errorf("no call %s", id)
	}
	if c.Finished != nil {
		return nil, fmt.Errorf("call %s has finished before", id)
	}
	return c, nil
}

func (s *State) active(ms int64) { s.ActiveMS = max(s.ActiveMS, ms) }
