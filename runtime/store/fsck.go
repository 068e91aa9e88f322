package store

import (
	"context"

	"agentos/holds"
	"agentos/runtime/journal"
)

// FindingCode names one way in which a store can break its invariants. The codes
// are part of the output of agentos fsck.
type FindingCode string

// Breaches of indexes. All that an index says follows from records, so these can
// be repaired.
const (
	DueMissing      FindingCode = "due_missing"
	DueTime         FindingCode = "due_time"
	DueStray        FindingCode = "due_stray"
	RunListMissing  FindingCode = "run_list_missing"
	RunListStray    FindingCode = "run_list_stray"
	HoldListMissing FindingCode = "hold_list_missing"
	HoldListStray   FindingCode = "hold_list_stray"
	EnvMissing      FindingCode = "env_missing"
	ExpiryMissing   FindingCode = "expiry_missing"
	ExpiryUneven    FindingCode = "expiry_uneven"
	ExpiryStray     FindingCode = "expiry_stray"
	RetireMissing   FindingCode = "retire_missing"
	RetireStray     FindingCode = "retire_stray"
	KeyMissing      FindingCode = "key_missing"
	KeyStray        FindingCode = "key_stray"
	FileIndex       FindingCode = "file_index"
)

// Breaches of what is kept. Nothing repairs them: there is nothing to repair them
// from, and a guess would be believed.
const (
	RecordDamaged     FindingCode = "record_damaged"
	LeaseStray        FindingCode = "lease_stray"
	JournalIncomplete FindingCode = "journal_incomplete"
	JournalInvalid    FindingCode = "journal_invalid"
	HistoryInvalid    FindingCode = "history_invalid"
	StatusDiffers     FindingCode = "status_differs"
	CallRepeated      FindingCode = "call_repeated"
	HoldMissing       FindingCode = "hold_missing"
	HoldDamaged       FindingCode = "hold_damaged"
	HoldDiffers       FindingCode = "hold_differs"
	HoldStray         FindingCode = "hold_stray"
	JournalOrphan     FindingCode = "journal_orphan"
	HoldOrphan        FindingCode = "hold_orphan"
	StateOrphan       FindingCode = "state_orphan"
	DocumentDamaged   FindingCode = "document_damaged"
	FileDamaged       FindingCode = "file_damaged"
)

// kind is what there is to say of a code.
type kind struct {
	code FindingCode
	// index says that it is one of an index.
	index   bool
	meaning string
}

func kinds() []kind {
	return []kind{
		{DueMissing, true, "an unfinished run is not in the due index, so no worker will ever look at it"},
		{DueTime, true, "the run is in the due index at another time than the end of its lease or the expiry of its hold, so it is looked at too early or too late"},
		{DueStray, true, "the due index has a run that is finished or does not exist"},
		{RunListMissing, true, "a list does not have the run, so it cannot be seen there"},
		{RunListStray, true, "a list has a run under an environment or status that it does not have"},
		{HoldListMissing, true, "a list does not have the hold, so a reviewer cannot see it there"},
		{HoldListStray, true, "a list has a hold under an environment, agent or status that it does not have"},
		{EnvMissing, true, "the environment is not in the set of environments, so lists over all of them leave out its runs"},
		{ExpiryMissing, true, "a finished run has no end of its retention and would be kept for ever"},
		{ExpiryUneven, true, "the parts of a finished run expire at different times, so it would vanish piece by piece"},
		{ExpiryStray, true, "a part of an unfinished run expires, so the run would be lost"},
		{RetireMissing, true, "a finished run is not noted for the end of its retention, so its places in lists would stay behind"},
		{RetireStray, true, "a run is noted for the end of its retention that is not finished, or otherwise than it finished, and could be removed while it is needed"},
		{KeyMissing, true, "the idempotency key of a run does not lead to it, so a repeat of its request would start the work twice"},
		{KeyStray, true, "an idempotency key leads to a run that does not have it or does not exist"},
		{FileIndex, true, "an index of the file does not agree with its table"},
		{RecordDamaged, false, "the record of the run is missing fields or has ones that cannot be"},
		{LeaseStray, false, "a run that nobody can be working on has a lease, under which a worker could still write to it"},
		{JournalIncomplete, false, "entries of the run are missing or unreadable, so it cannot go on"},
		{JournalInvalid, false, "the journal is not one that the engine could have written, so the run cannot go on"},
		{HistoryInvalid, false, "the conversation of the run is not one a provider accepts"},
		{StatusDiffers, false, "the record and the journal tell different things of where the run stands"},
		{CallRepeated, false, "a call that may run once was started again without a person saying so"},
		{HoldMissing, false, "a hold of the run is not there"},
		{HoldDamaged, false, "the hold cannot be read, or its parts do not agree"},
		{HoldDiffers, false, "the hold is not what the journal of its run says: what a person saw or decided is not what ran or would run"},
		{HoldStray, false, "there is a hold that the run does not wait on or that its journal does not know"},
		{JournalOrphan, false, "there are entries of a run that has no record"},
		{HoldOrphan, false, "there is a hold of a run that does not exist"},
		{StateOrphan, false, "there is state of a run that does not exist"},
		{DocumentDamaged, false, "a document that belongs to no run cannot be read; if it is that of the keys, nobody can authenticate"},
		{FileDamaged, false, "the file is damaged; go back to a backup"},
	}
}

func (c FindingCode) kind() kind {
	for _, k := range kinds() {
		if k.code == c {
			return k
		}
	}
	return kind{c, false, string(c)}
}

// Repairable reports whether the breach is one of an index.
func (c FindingCode) Repairable() bool { return c.kind().index }

// Meaning says what the breach means to an operator.
func (c FindingCode) Meaning() string { return c.kind().meaning }

// Finding is one breach of an invariant.
type Finding struct {
	Code   FindingCode `json:"code"`
	RunID  string      `json:"run_id,omitempty"`
	HoldID string      `json:"hold_id,omitempty"`
	// Message says what the breach means, then what was found.
	Message  string `json:"message"`
	Repaired bool   `json:"repaired"`
}

// Found makes a finding about a run, and about one of its holds unless holdID is
// "". detail is what was found.
func Found(code FindingCode, runID, holdID, detail string) Finding {
	return Finding{Code: code, RunID: runID, HoldID: holdID, Message: code.Meaning() + ": " + detail}
}

// Trace is something to inspect: a run, when RunID is set, or a part of the store
// that belongs to no run, such as a document. Part tells the driver where it came upon it.
type Trace struct{ RunID, Part string }

// Inspection is what there is of a run, read at one moment.
type Inspection struct {
	// Record is nil when the run has none.
	Record *Record
	// Journal is nil when entries are missing or unreadable, which is a finding.
	Journal []journal.Entry
	// Holds are the readable holds of the run, in no order.
	Holds []holds.Hold
	// Findings are what the driver can tell: of indexes, of parts that are missing
	// or cannot be read. What records, journals and holds say is not compared; see
	// package fsck.
	Findings []Finding
}

// Inspector is a store that can be gone through for damage, while others work
// with it. Both drivers are Inspectors.
type Inspector interface {
	// Traces calls visit for all there is to inspect, a page at a time: every run
	// that has a record, whatever disagrees with or lacks one, and documents. A trace may come
	// more than once. It holds no more than a page in memory and ends with the
	// first error of visit. What is created meanwhile may be left out.
	Traces(ctx context.Context, visit func(page []Trace) error) error
	// Inspect reads the trace and all that belongs to it at one moment. With repair
	// it also sets the indexes right, in the same moment, and marks the findings it
	// has repaired. A run that is gone meanwhile is an empty Inspection.
	Inspect(ctx context.Context, t Trace, repair bool) (Inspection, error)
}
