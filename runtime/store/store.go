// Package store is the contract between the engine and whatever keeps runs: the
// operations, what each does atomically, and the errors. Two drivers keep it,
// store/redis and store/file, and both pass store/storetest. The contract knows
// no rules: what a decision means was worked out before by holds.Apply, a driver
// only compares and sets.
//
// Time is the store's clock, never the caller's: entries are stamped, leases and
// holds expire, and runs become due on it.
package store

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"time"

	"agentos/holds"
	"agentos/runtime/journal"
)

// Errors of the contract. A driver wraps them with what it was doing.
var (
	// ErrNotFound says that there is no such run, hold or key.
	ErrNotFound = errors.New("not found")
	// ErrIdempotencyConflict says that the run id or the key is taken by another
	// request.
	ErrIdempotencyConflict = errors.New("idempotency key was used for another request")
	// ErrLeaseLost says that the lease is not the current one: another worker
	// has the run, or the run is finished. Nothing was written.
	ErrLeaseLost = errors.New("lease lost")
	// ErrConflict says that the run or the hold is not as the caller saw it.
	// Nothing was written; read again.
	ErrConflict = errors.New("changed meanwhile")
	// ErrQueueFull says that as many runs are queued as may be. Nothing was written.
	ErrQueueFull = errors.New("too many runs are queued")
	// ErrOrders says that an operator gave newer orders than the caller went by.
	// Nothing was written; read them and judge again.
	ErrOrders = errors.New("an operator has given other orders")
	// ErrLocked says that another process has the file open.
	ErrLocked = errors.New("store is in use by another process")
	// ErrDamaged says that parts of a run are missing or unreadable.
	ErrDamaged = errors.New("run is damaged")
	// ErrUnavailable says that the store could not be reached or refused to
	// work. The operation may or may not have been applied; repeating it with
	// the same Op is safe.
	ErrUnavailable = errors.New("store unavailable")
)

// Status is where a run stands.
type Status string

// The statuses of a run.
const (
	Queued    Status = "queued"
	Running   Status = "running"
	Held      Status = "held"
	Completed Status = "completed"
	Failed    Status = "failed"
	Cancelled Status = "cancelled"
)

// Finished reports whether a run of the status has ended.
func (s Status) Finished() bool { return s == Completed || s == Failed || s == Cancelled }

// Record is what the store knows of a run beside its journal.
type Record struct {
	ID         string
	Env        string
	Agent      string
	Capability string
	SessionID  string
	Status     Status
	// Seq is the number of entries in the journal.
	Seq int64
	// Epoch counts the leases that were given; each lease has its own.
	Epoch int64
	// Idle counts the claims since entries were written or a lease was given back:
	// takeovers that led to nothing.
	Idle int
	// HoldID is the pending hold, set while the run is held.
	HoldID string
	// CancelBy is who asked to cancel while the run was leased, or "".
	CancelBy string
	// Summary is opaque to the store: what lists show without reading journals.
	Summary   json.RawMessage
	CreatedAt time.Time
	UpdatedAt time.Time
}

// View is a run as readers see it, read in one round trip.
type View struct {
	Record
	// First is run.created. Last is the newest entry, which of a finished run
	// holds its output or error.
	First, Last journal.Entry
	// Hold is the pending hold of a held run, else nil.
	Hold *holds.Hold
}

// Lease is the right to write to one run until Expires. A stale one is refused.
type Lease struct {
	RunID string
	Epoch int64
	// Expires is when others may take the run, on the store's clock.
	Expires time.Time
}

// Create is a run to be created.
type Create struct {
	// Op identifies this attempt: repeating Create with the same Op after a lost
	// answer is answered like the first.
	Op string
	// RunID is the id of the run, used for no other run ever. With a Key it ends
	// with it, so that a driver that spreads runs keeps both in one place.
	RunID string
	// Key is the idempotency key, or "": while there is a run with the same Key,
	// that run is the answer. It ends with its run's retention.
	Key string
	// Request is the digest of the request, compared when the run exists.
	Request    string
	Env        string
	Agent      string
	Capability string
	SessionID  string
	Entry      journal.New
	Summary    json.RawMessage
	// Lease is how long the caller leases the run; 0 leaves it queued and due now.
	Lease time.Duration
	// MaxQueued is the most queued runs of the environment for which one more is
	// taken without a lease; 0 sets no bound. A driver that spreads runs over n
	// partitions counts each of them against its n-th part.
	MaxQueued int
}

// Created is the answer to Create.
type Created struct {
	Record Record
	// Existing says that the run was there before, with the same Request. No
	// lease is given then.
	Existing bool
	Lease    Lease
	// Entry is run.created as it was stamped.
	Entry journal.Entry
}

// Claimed is a run a worker has taken.
type Claimed struct {
	Record  Record
	Lease   Lease
	Journal []journal.Entry
	// Hold is set when the run is held and its hold has expired.
	Hold *holds.Hold
	// Lapsed says that the run had a lease which ran out: its worker died.
	Lapsed bool
}

// Renewal is the answer to Renew for one lease.
type Renewal struct {
	Lease Lease
	// Lost says that the lease is gone; CancelBy that somebody wants the run to
	// stop.
	Lost     bool
	CancelBy string
}

// Tx is what one Commit writes.
type Tx struct {
	// Op identifies this attempt, as in Create.
	Op string
	// Entries are appended in order.
	Entries []journal.New
	// Status is the run's status afterwards. Held needs a pending Hold; a
	// finished status needs a last entry. Running with a Lease keeps the lease;
	// everything else ends it.
	Status Status
	// Hold, when set, is stored: opened with Held, or closed with any other
	// status. A held run takes only its pending hold, kept or closed; another run
	// only a hold that was never opened.
	Hold *holds.Hold
	// Lease is how long a running run stays leased from now.
	Lease time.Duration
	// Due is when a run that is Queued, or Running without a Lease, may be
	// claimed, counted from now.
	Due time.Duration
	// Summary replaces the record's summary when not nil.
	Summary json.RawMessage
	// Orders, when not nil, is the version of the operator's orders by which the
	// entries were judged; there must be no newer one.
	Orders *int64
	// Notify says that others are to be told of the entries: there is a notice of
	// the run afterwards.
	Notify bool
}

// Committed is the answer to Commit.
type Committed struct {
	Lease Lease
	// Entries are the appended entries as they were stamped.
	Entries []journal.Entry
	// CancelBy is set when somebody asked to cancel: the engine ends the run
	// with its next commit.
	CancelBy string
}

// Decide is a decision, worked out on the hold at revision Seen.
type Decide struct {
	// Op identifies this attempt, as in Create.
	Op string
	// Hold is the hold afterwards; its id names it.
	Hold holds.Hold
	// Seen is the revision the decision was worked out on.
	Seen    int64
	Entries []journal.New
	Summary json.RawMessage
	// Lease is how long the caller leases the run when the hold is not pending; 0
	// leaves it running and due now.
	Lease time.Duration
	// Notify is as in Tx.
	Notify bool
}

// Decided is the answer to Decide.
type Decided struct {
	Record  Record
	Lease   Lease
	Entries []journal.Entry
}

// Cancel ends a run that nobody works on.
type Cancel struct {
	// Op identifies this attempt, as in Create.
	Op    string
	RunID string
	By    string
	// Seen is the Seq of the record the entries were worked out on.
	Seen    int64
	Entries []journal.New
	// Hold is the pending hold, closed; nil when the run was not held.
	Hold    *holds.Hold
	Summary json.RawMessage
	// Notify is as in Tx. A request that is only recorded makes no notice.
	Notify bool
}

// HoldView is a hold with all that is needed to decide it, read in one round trip.
type HoldView struct {
	Hold    holds.Hold
	Record  Record
	Journal []journal.Entry
	// Now is the store's clock.
	Now time.Time
}

// Orders are what an operator has ordered for an environment: which agents pause,
// which tools are off. The text is opaque to the store.
type Orders struct {
	Version int64
	Text    json.RawMessage
}

// Document is a versioned text of an environment that belongs to no run, such as
// its keys. The text is JSON and opaque to the store.
type Document struct {
	// Version grows by one with every change; 0 when there is no document.
	Version int64
	Text    json.RawMessage
}

// Notice says that a run has entries of which others are to be told. It is claimed
// by whoever tells them.
type Notice struct {
	RunID string
	Env   string
	// Seq is the number of entries in the journal.
	Seq int64
	// Claim names this claim of the run.
	Claim int64
	// Told is what the last Settle has left, nil when there was none.
	Told json.RawMessage
}

// Settled is what came of telling.
type Settled struct {
	// RunID, Claim and Seq are those of the notice.
	RunID string
	Claim int64
	Seq   int64
	// Told is opaque to the store; it lives as long as its run.
	Told json.RawMessage
	// Again says that there is more to tell after Due, counted from now; else the
	// run has no notice until its next one.
	Again bool
	Due   time.Duration
}

// LogItem is one item for a log.
type LogItem struct {
	// Key is what the item is about. A log has each key once.
	Key  string
	Text json.RawMessage
}

// Page asks for a part of a list, newest first.
type Page struct {
	// Limit is the most rows wanted, 1 to 200.
	Limit int
	// Cursor is Next of the page before, or "". Any other is refused with the code
	// invalid_request.
	Cursor string
}

// RunFilter chooses runs; empty fields choose all.
type RunFilter struct {
	Env, Agent, Capability, SessionID string
	Status                            Status
}

// HoldFilter chooses holds; empty fields choose all.
type HoldFilter struct {
	Env, Agent string
	Status     holds.Status
	// OpenedBefore chooses holds older than this; zero chooses all.
	OpenedBefore time.Time
}

// Health is what the store says of itself.
type Health struct {
	// Driver is "redis", "file" or "memory".
	Driver string
	// Durable says that acknowledged writes survive a crash of the store.
	Durable bool
	// Warnings tell the operator how data can be lost.
	Warnings []string
}

// Store keeps runs. Every operation is atomic, and safe for concurrent use by
// any number of goroutines and processes (one process for the file driver).
// Operations with an Op may be repeated after ErrUnavailable: while nothing else
// was done to the run with an Op, the repeat is answered like the first and
// writes nothing. Should the lease it gave be gone by then, Create answers
// Existing, Decide answers without a lease, and a Commit that kept the lease
// answers ErrLeaseLost.
//
// A lease that has run out but that nobody has claimed is still the current one.
// Times are kept in milliseconds. Arguments that break the contract are refused
// first, by their Check, with an error that is none of the above.
//
// Every unfinished run is in the due index exactly once, with the time at which
// somebody must look at it: now (queued), the end of the lease (running), the
// expiry of the hold (held).
type Store interface {
	// Create stores the record and the first entry. The same RunID or Key and the
	// same Request give the existing run; another Request ErrIdempotencyConflict.
	// ErrQueueFull when MaxQueued is reached.
	Create(ctx context.Context, c Create) (Created, error)

	// Claim takes up to n runs whose due time has passed, oldest first: epoch
	// plus one, due in ttl. A queued run is running then; a held one stays held,
	// with its expired hold, until the commit that closes it. Runs set to be
	// decided or queued are taken without a mark; Record.Idle grows with each
	// claim and is reset by entries and by a commit that gives the lease back. A run whose journal or hold is damaged is
	// taken too, with an empty Journal, so that it blocks no other and can be
	// failed: the next entry is numbered after Record.Seq. One whose record cannot
	// be read is left out, set aside for an hour, and told by Health. Where the index
	// has a hold at a time before its expiry, the index is set right and the run left.
	Claim(ctx context.Context, n int, ttl time.Duration) ([]Claimed, error)

	// Renew pushes the due time of each lease to now plus ttl. The answer has a
	// Renewal for each lease in the same order.
	Renew(ctx context.Context, leases []Lease, ttl time.Duration) ([]Renewal, error)

	// Commit appends entries under a lease and moves the run on. ErrLeaseLost
	// when the lease is not the current one, ErrOrders when Orders are old. On a finished status the run leaves
	// the due index and its retention starts.
	Commit(ctx context.Context, l Lease, tx Tx) (Committed, error)

	// Decide replaces a hold: it must be pending, at revision Seen, and not
	// expired; else ErrConflict, or ErrNotFound when there is no such hold. While
	// the new hold is pending the run stays held; when it is decided or cancelled
	// the run is running, leased or due now.
	Decide(ctx context.Context, d Decide) (Decided, error)

	// Cancel ends a held or queued run that is still at Seen entries and not
	// leased, else ErrConflict. Any other unfinished run (leased, lease run out,
	// or running and due) gets the request recorded, whatever Seen says: requested
	// is true, the first By stays, and its next worker ends it. Entries that are
	// missing keep no run from being cancelled, nor does a hold that is missing or
	// unreadable: Hold, with the id that the record has, is stored in its place. A finished run:
	// ErrConflict; no such run: ErrNotFound; a record that cannot be read: ErrDamaged.
	Cancel(ctx context.Context, c Cancel) (requested bool, err error)

	// Run reads one run, ErrNotFound when there is none, ErrDamaged when its record
	// cannot be read. Of a run damaged otherwise First or Last may be zero.
	Run(ctx context.Context, id string) (View, error)
	// Runs lists runs, newest first, without those whose record cannot be read. next is "" after the last page; a page may
	// be short and still have a next.
	Runs(ctx context.Context, f RunFilter, p Page) (runs []View, next string, err error)
	// Journal reads the entries after seq after, in order; ErrNotFound when there
	// is no such run, ErrDamaged when entries are missing.
	Journal(ctx context.Context, runID string, after int64) ([]journal.Entry, error)
	// Hold reads a hold with its run, ErrNotFound when there is none, ErrDamaged
	// when entries are missing.
	Hold(ctx context.Context, id string) (HoldView, error)
	// Holds lists holds, newest first.
	Holds(ctx context.Context, f HoldFilter, p Page) (list []holds.Hold, next string, err error)

	// Watch returns a channel that gets a value whenever entries may have been
	// added to the run, and one at once. The caller reads the journal after each,
	// so nothing is missed. The channel is never closed; it ends with ctx.
	Watch(ctx context.Context, runID string) (<-chan struct{}, error)

	// Wake returns a channel that gets a value whenever a run may have become due
	// without anybody here knowing; a poll every second is the backstop.
	Wake(ctx context.Context) (<-chan struct{}, error)

	// GetState, PutState and DeleteState keep values for agent code. A scope is
	// "run/<id>" or "session/<env>/<agent>/<id>". GetState answers ErrNotFound for
	// a key that is not there; DeleteState does not mind.
	GetState(ctx context.Context, scope, key string) (json.RawMessage, error)
	PutState(ctx context.Context, scope, key string, value json.RawMessage) error
	DeleteState(ctx context.Context, scope, key string) error

	// Orders reads the operator's orders of an environment; version 0 and no text
	// when none were given.
	Orders(ctx context.Context, env string) (Orders, error)
	// SetOrders replaces the orders that are at version o.Version-1, else
	// ErrConflict. When it has answered, no Commit is accepted that was judged by
	// older ones.
	SetOrders(ctx context.Context, env string, o Orders) error

	// Document reads a document of an environment; version 0 and no text when
	// there is none.
	Document(ctx context.Context, env, name string) (Document, error)
	// SetDocument replaces the document that is at version d.Version-1, else
	// ErrConflict. Setting what stands already, version and text, changes nothing
	// and is no error, so it may be repeated after ErrUnavailable.
	SetDocument(ctx context.Context, env, name string, d Document) error

	// Notices claims up to n notices whose time has come, oldest first: nobody else
	// is given them within ttl. One that is not settled by then is given again, so
	// others may be told twice.
	Notices(ctx context.Context, n int, ttl time.Duration) ([]Notice, error)
	// Settle keeps what came of telling. When the run has got entries with Notify
	// meanwhile, its notice is due now whatever Due says. ErrLeaseLost when the
	// notice was claimed again, or the run is gone; nothing is kept then.
	Settle(ctx context.Context, s Settled) error

	// AppendLog adds items to the log called name, which nothing is ever taken
	// from, all or none. When the log has keys of items already it returns these,
	// and nothing is added. Otherwise ErrConflict when there are other than seen
	// items: they were worked out on what is no longer the end of the log.
	AppendLog(ctx context.Context, name string, seen int64, items ...LogItem) (known []string, err error)
	// LogEnd returns how many items the log has, and the last one; nil when none.
	LogEnd(ctx context.Context, name string) (n int64, last json.RawMessage, err error)
	// Log reads up to limit items after place after, in order.
	Log(ctx context.Context, name string, after int64, limit int) ([]json.RawMessage, error)

	// Health asks the store how it is; an error means it cannot be used now.
	Health(ctx context.Context) (Health, error)
	// Close releases what the store holds; operations under way end first.
	Close() error
}

// HoldID returns the id of the n-th hold of a run, counting from 1. The run is
// part of it, so that a hold is found without an index.
func HoldID(runID string, n int) string {
	return "h_" + strings.TrimPrefix(runID, "r_") + "_" + strconv.Itoa(n)
}

// RunOfHold returns the run a hold id belongs to, or "" for a malformed id.
func RunOfHold(holdID string) string {
	rest, ok := strings.CutPrefix(holdID, "h_")
	if !ok {
		return ""
	}
	run, n, ok := strings.Cut(rest, "_")
	if !ok || run == "" || n == "" {
		return ""
	}
	return "r_" + run
}
