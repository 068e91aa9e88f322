package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"agentos/holds"
	"agentos/internal/problem"
	"agentos/runtime/journal"
)

// The checks below are what arguments must satisfy before a driver looks at what
// it keeps. Each driver calls them first, so that no driver can write what
// another would refuse. Their errors are faults of the caller.

// maxPage is the most rows of one page.
const maxPage = 200

// Check reports what is wrong with c.
func (c Create) Check() error {
	switch {
	case c.RunID == "" || RunOfHold(HoldID(c.RunID, 1)) != c.RunID:
		return fmt.Errorf("create: %q is no run id", c.RunID)
	case c.Entry.Type != journal.RunCreated:
		return fmt.Errorf("create: the first entry is %q, want %s", c.Entry.Type, journal.RunCreated)
	case c.Lease < 0 || c.MaxQueued < 0:
		return errors.New("create: negative lease or bound")
	case !strings.HasSuffix(c.RunID, c.Key):
		return fmt.Errorf("create: run id %q does not end with its key", c.RunID)
	}
	return nil
}

// Check reports what is wrong with tx for the run.
func (tx Tx) Check(runID string) error {
	if tx.Hold != nil && RunOfHold(tx.Hold.ID) != runID {
		return fmt.Errorf("commit: hold %q is not one of run %s", tx.Hold.ID, runID)
	}
	if pending := tx.Hold != nil && tx.Hold.Status == holds.Pending; pending != (tx.Status == Held) {
		return fmt.Errorf("commit: status %s and a pending hold belong together", Held)
	}
	if tx.Due < 0 {
		return errors.New("commit: negative due")
	}
	if tx.Status == Running && tx.Lease < time.Millisecond && tx.Due < time.Millisecond {
		return errors.New("commit: a running run needs a lease or a time at which it is due")
	}
	return checkEntries(tx.Entries, tx.Status)
}

// Check reports what is wrong with d.
func (d Decide) Check() error {
	switch {
	case d.Hold.Status != holds.Pending && d.Hold.Status != holds.Decided && d.Hold.Status != holds.Cancelled:
		return fmt.Errorf("decide: the hold is %q, want pending, decided or cancelled", d.Hold.Status)
	case d.Hold.Revision <= d.Seen:
		return errors.New("decide: a changed hold needs a later revision")
	case len(d.Entries) == 0:
		return errors.New("decide: no entry")
	case d.Lease < 0:
		return errors.New("decide: negative lease")
	}
	return checkEntries(d.Entries, Running)
}

// Check reports what is wrong with c.
func (c Cancel) Check() error {
	if c.Hold != nil && (c.Hold.Status != holds.Cancelled || RunOfHold(c.Hold.ID) != c.RunID) {
		return fmt.Errorf("cancel: hold %q is not a cancelled one of run %s", c.Hold.ID, c.RunID)
	}
	return checkEntries(c.Entries, Cancelled)
}

// Bounds of documents, in bytes: each is read and written as a whole.
const (
	maxDocument     = 4 << 20
	maxDocumentName = 64
)

// Check reports what is wrong with d under the name.
func (d Document) Check(name string) error {
	switch {
	case name == "" || len(name) > maxDocumentName:
		return fmt.Errorf("document: the name %.80q has not 1 to %d bytes", name, maxDocumentName)
	case d.Version < 1:
		return fmt.Errorf("document %s: version %d, want at least 1", name, d.Version)
	case len(d.Text) > maxDocument:
		return fmt.Errorf("document %s: %d bytes, want at most %d", name, len(d.Text), maxDocument)
	case !json.Valid(d.Text):
		return fmt.Errorf("document %s: the text is not JSON", name)
	}
	return nil
}

// Check reports what is wrong with s.
func (s Settled) Check() error {
	switch {
	case s.RunID == "" || RunOfHold(HoldID(s.RunID, 1)) != s.RunID:
		return fmt.Errorf("settle: %q is no run id", s.RunID)
	case s.Due < 0 || !s.Again && s.Due != 0:
		return errors.New("settle: a time without more to tell, or a negative one")
	}
	return nil
}

// maxLogItem is how many bytes an item of a log may have.
const maxLogItem = 4 << 20

// CheckAppend reports what is wrong with items for a log.
func CheckAppend(seen int64, items []LogItem) error {
	if seen < 0 || len(items) == 0 {
		return fmt.Errorf("append: %d items after %d", len(items), seen)
	}
	keys := map[string]bool{}
	for _, it := range items {
		if it.Key == "" || keys[it.Key] || len(it.Text) == 0 || len(it.Text) > maxLogItem {
			return fmt.Errorf("append: item %q of %d bytes: want a key of its own and 1 to %d bytes", it.Key, len(it.Text), maxLogItem)
		}
		keys[it.Key] = true
	}
	return nil
}

// Check reports what is wrong with p.
func (p Page) Check() error {
	if p.Limit < 1 || p.Limit > maxPage {
		return problem.New(problem.InvalidRequest, "limit is %d; give 1 to %d", p.Limit, maxPage)
	}
	return nil
}

// BadCursor is the error for a cursor that no page gave.
func BadCursor(cursor string) error {
	return problem.New(problem.InvalidRequest, "cursor %.64q is not one that this list gave; start without a cursor", cursor)
}

// AsideWarning is what Health tells of n runs that Claim has set aside; ids names some.
func AsideWarning(n int64, ids []string) string {
	ids = ids[:min(len(ids), 10)]
	more := ""
	if n > int64(len(ids)) {
		more = fmt.Sprintf(" and %d more", n-int64(len(ids)))
	}
	return fmt.Sprintf("runs whose record cannot be read are set aside and do not go on: %s%s; see agentos fsck", strings.Join(ids, ", "), more)
}

// checkEntries sees to it that a run ends with the entry of its status, and only
// then.
func checkEntries(entries []journal.New, status Status) error {
	last, ok := map[Status]journal.Type{
		Queued: "", Running: "", Held: "",
		Completed: journal.RunCompleted, Failed: journal.RunFailed, Cancelled: journal.RunCancelled,
	}[status]
	if !ok {
		return fmt.Errorf("no status %q", status)
	}
	if last != "" && len(entries) == 0 {
		return fmt.Errorf("status %s needs the entry %s", status, last)
	}
	for i, e := range entries {
		want := journal.Type("")
		if i == len(entries)-1 {
			want = last
		}
		if e.Type == "" || (e.Type.Last() || want != "") && e.Type != want {
			return fmt.Errorf("entry %q does not fit status %s at place %d of %d", e.Type, status, i+1, len(entries))
		}
	}
	return nil
}
