package fsck

import (
	"fmt"

	"agentos/holds"
	"agentos/internal/rawjson"
	"agentos/runtime/journal"
	"agentos/runtime/store"
)

// once is the effect class of calls that nothing but a person may start again.
const once = "once"

// Check compares the record, the journal and the holds of one run. It reports
// what they say against each other, not what the driver has found already. A run
// without a record has nothing to compare.
func Check(in store.Inspection) []store.Finding {
	if in.Record == nil {
		return nil
	}
	c := &check{rec: *in.Record, told: map[string]*toldHold{}}
	sane := c.record()
	if in.Journal == nil || !c.fold(in.Journal) {
		return c.found
	}
	if sane {
		c.status()
	}
	c.holds(in)
	return c.found
}

// check is the check of one run.
type check struct {
	rec   store.Record
	state journal.State
	// told are the holds as the journal tells them.
	told  map[string]*toldHold
	found []store.Finding
}

// toldHold is a hold as it was opened, with the decisions since.
type toldHold struct {
	*holds.Hold
	status holds.Status
}

func (c *check) finding(code store.FindingCode, holdID, format string, args ...any) {
	c.found = append(c.found, store.Found(code, c.rec.ID, holdID, fmt.Sprintf(format, args...)))
}

// record looks at the record alone, and reports whether it can be compared.
func (c *check) record() bool {
	switch s := c.rec.Status; {
	case s != store.Queued && s != store.Running && s != store.Held && !s.Finished():
		c.finding(store.RecordDamaged, "", "its status is %q", s)
	case c.rec.Env == "" || c.rec.Agent == "" || c.rec.Capability == "":
		c.finding(store.RecordDamaged, "", "its environment, agent or capability is empty")
	case c.rec.HoldID != "" && store.RunOfHold(c.rec.HoldID) != c.rec.ID:
		c.finding(store.RecordDamaged, "", "it waits on hold %q of another run", c.rec.HoldID)
	}
	return len(c.found) == 0
}

// fold goes through the journal and reports whether it could have been written.
// Before each answer the conversation was sent to a provider, so it must have
// been valid there.
func (c *check) fold(entries []journal.Entry) bool {
	if int64(len(entries)) != c.rec.Seq || len(entries) == 0 {
		c.finding(store.JournalIncomplete, "", "there are %d entries, the record counts %d", len(entries), c.rec.Seq)
		return false
	}
	valid := true
	for _, e := range entries {
		if e.Type == journal.ModelAnswered && valid {
			valid = c.prove(fmt.Sprintf("before entry %d", e.Seq))
		}
		if e.Type == journal.CallStarted {
			c.started(e)
		}
		closes := c.state.Hold
		if err := c.state.Add(e); err != nil {
			c.finding(store.JournalInvalid, "", "%v", err)
			return false
		}
		if e.Type == journal.HoldOpened {
			c.told[c.state.Hold.ID] = &toldHold{c.state.Hold, holds.Pending}
		}
		if e.Type == journal.HoldClosed {
			c.closed(e, closes.ID)
		}
	}
	if valid && c.state.End == "" && len(c.state.Open()) == 0 {
		c.prove("now")
	}
	return true
}

func (c *check) prove(when string) bool {
	if len(c.state.Open()) > 0 {
		return true // Add refuses an answer while calls are open
	}
	_, err := c.state.History()
	if err != nil {
		c.finding(store.HistoryInvalid, "", "%s: %v", when, err)
	}
	return err == nil
}

// started looks at a call that is started by an entry not yet folded: one that may
// run once and was started before needs a person's retry.
func (c *check) started(e journal.Entry) {
	var s journal.Started
	if rawjson.Unmarshal(e.Data, &s) != nil {
		return // Add tells it
	}
	was := c.state.Call(s.Call)
	if was == nil || was.Started == nil || was.Started.Effect != once {
		return
	}
	if was.Resolution == nil || was.Resolution.Action != holds.Retry {
		c.finding(store.CallRepeated, "", "entry %d starts %s (%s) for the %d. time", e.Seq, s.Call, s.Tool, was.Starts+1)
	}
}

func (c *check) closed(e journal.Entry, id string) {
	var cl journal.Closed
	if rawjson.Unmarshal(e.Data, &cl) == nil {
		c.told[id].status = cl.Why
	}
}

// status compares where the record and the journal say that the run stands.
func (c *check) status() {
	want := map[journal.Type]store.Status{
		journal.RunCompleted: store.Completed, journal.RunFailed: store.Failed, journal.RunCancelled: store.Cancelled,
	}[c.state.End]
	waits := ""
	if c.state.Hold != nil {
		want, waits = store.Held, c.state.Hold.ID
	}
	switch s := c.rec.Status; {
	case want == "" && s != store.Queued && s != store.Running:
		c.finding(store.StatusDiffers, "", "the record says %s, by the journal it is queued or running", s)
	case want != "" && s != want:
		c.finding(store.StatusDiffers, "", "the record says %s, the journal %s", s, want)
	case c.rec.HoldID != waits:
		c.finding(store.StatusDiffers, c.rec.HoldID, "the record waits on hold %q, the journal on %q", c.rec.HoldID, waits)
	}
	if id := c.state.Created; id.Agent != c.rec.Agent || id.Capability != c.rec.Capability {
		c.finding(store.StatusDiffers, "", "the record says %s/%s, the journal %s/%s", c.rec.Agent, c.rec.Capability, id.Agent, id.Capability)
	}
}

// holds compares the holds that are kept with what the journal tells of them. A
// hold that the driver could not read is neither missing nor here.
func (c *check) holds(in store.Inspection) {
	seen := map[string]bool{}
	for _, f := range in.Findings {
		if f.Code == store.HoldDamaged || f.Code == store.HoldMissing {
			seen[f.HoldID] = true
		}
	}
	for i := range in.Holds {
		h := &in.Holds[i]
		seen[h.ID] = true
		c.hold(h)
	}
	for n := 1; n <= c.state.Holds; n++ {
		if id := store.HoldID(c.rec.ID, n); c.told[id] != nil && !seen[id] {
			c.finding(store.HoldMissing, id, "the journal has it as %s", c.told[id].status)
		}
	}
}

func (c *check) hold(h *holds.Hold) {
	told := c.told[h.ID]
	switch {
	case told == nil:
		c.finding(store.HoldStray, h.ID, "it is %s, and no entry has opened it", h.Status)
	case h.Status != told.status:
		c.finding(store.HoldDiffers, h.ID, "it is %s, by the journal %s", h.Status, told.status)
	case holds.Difference(*h, *told.Hold) != "":
		c.finding(store.HoldDiffers, h.ID, "%s differs", holds.Difference(*h, *told.Hold))
	case h.Env != c.rec.Env || h.Agent != c.rec.Agent:
		c.finding(store.HoldDiffers, h.ID, "it belongs to %s in %s, its run to %s in %s", h.Agent, h.Env, c.rec.Agent, c.rec.Env)
	}
}
