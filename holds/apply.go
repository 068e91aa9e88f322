package holds

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"

	"agentos/holds/policy"
	"agentos/internal/problem"
	"agentos/internal/rawjson"
	"agentos/internal/schema"
)

// Post is one request to decide items of a hold.
type Post struct {
	Decisions []ItemDecision
	// Revision is the revision the decider looked at; 0 means not said.
	Revision int64
	// Key is the idempotency key of the request, or "".
	Key string
	// By is who decides, from the credential; Roles are that person's roles and
	// groups, and From is the address the request came from.
	By    string
	Roles []string
	From  string
}

// ItemDecision is the decision for one item as it was posted.
type ItemDecision struct {
	ID     string          `json:"id"`
	Action Action          `json:"action"`
	Data   json.RawMessage `json:"data,omitempty"`
	Reason string          `json:"reason,omitempty"`
	// Verdict is, of an edit, what policy says about the call with Data. The caller
	// works it out; nobody posts it.
	Verdict policy.Verdict `json:"-"`
}

// Limits of a decision request.
const (
	maxReason   = 4 << 10
	maxRequests = 64
	maxVotes    = 64
)

// Apply returns the hold after p, all or nothing. The Revision of the result is
// left to the caller, who knows the journal. changed is false when p repeats
// what is already recorded; the hold is then returned as it stands.
//
// Errors: hold_decided, hold_expired and hold_cancelled when it can no longer be
// decided or an item was decided otherwise; hold_stale when p looked at another
// revision; requester_may_not_decide, not_reviewer and already_voted when the
// person is not entitled to decide; idempotency_conflict; invalid_decision and
// invalid_edit with the faults by path; edit_denied.
func Apply(h Hold, p Post, now time.Time) (next Hold, changed bool, err error) {
	digest := p.digest()
	if p.Key != "" {
		if i := slices.IndexFunc(h.Requests, func(r Request) bool { return r.Key == p.Key }); i >= 0 {
			if h.Requests[i].Digest != digest {
				return h, false, problem.New(problem.IdempotencyConflict,
					"the Idempotency-Key %q was used for other decisions on this hold; use a new key", p.Key)
			}
			return h, false, nil
		}
	}
	if len(p.Decisions) > 0 && !slices.ContainsFunc(p.Decisions, func(d ItemDecision) bool { return !recorded(h, p.By, d) }) {
		return h, false, nil
	}
	if err := decidable(h, p, now); err != nil {
		return h, false, err
	}
	if faults := check(h, p); len(faults) > 0 {
		return h, false, problem.New(problem.InvalidDecision, "the decisions do not fit the hold; nothing was applied").With(faults...)
	}
	for _, d := range p.Decisions {
		if it := h.Item(d.ID); it.Decision != nil && !recorded(h, p.By, d) {
			return h, false, problem.New(problem.HoldDecided,
				"item %s was already decided (%s by %s)", d.ID, it.Decision.Action, it.Decision.By)
		}
	}
	if err := entitled(h, p, now); err != nil {
		return h, false, err
	}
	if faults := checkEdits(h, p); len(faults) > 0 {
		return h, false, problem.New(problem.InvalidEdit, "the edited arguments do not fit the tool's schema; the hold stays open").With(faults...)
	}
	next, err = apply(h, p, now)
	if err != nil {
		return h, false, err
	}
	if p.Key != "" {
		next.Requests = append(slices.Clone(h.Requests), Request{Key: p.Key, Digest: digest})
	}
	return next, true, nil
}

func apply(h Hold, p Post, now time.Time) (Hold, error) {
	h.Items = slices.Clone(h.Items)
	for _, d := range p.Decisions {
		if recorded(h, p.By, d) {
			continue
		}
		it := h.Item(d.ID)
		if d.Action == Edit {
			if err := edit(h, it, p, d.Verdict, now); err != nil {
				return h, err
			}
		}
		made := Decision{Action: d.Action, Data: d.Data, Reason: d.Reason, By: p.By, At: now, From: p.From}
		if d.Action == Approve {
			made.Data = nil
		}
		it.Record(made)
	}
	if len(h.Pending()) == 0 {
		h.Status = Decided
	}
	return h, nil
}

// edit takes what policy says about the edited arguments into account: what it
// denies is refused, and whom it asks are asked too, beginning with the person
// who edits.
func edit(h Hold, it *Item, p Post, v policy.Verdict, now time.Time) error {
	switch v.Effect {
	case policy.Deny:
		return problem.New(problem.EditDenied, "policy denies the call with these arguments (%s)%s; the hold stays open",
			strings.Join(v.Rules, ", "), because(v.Reason))
	case policy.Ask:
		if stricter := it.Reviewers.And(v.Reviewers); !stricter.Equal(it.Reviewers) {
			it.Tighten(stricter)
			return mayDecide(h, it, p, now)
		}
	case policy.Allow, policy.Conditional:
	}
	return nil
}

func because(reason string) string {
	if reason == "" {
		return ""
	}
	return ": " + strings.TrimSuffix(reason, ".")
}

// entitled refuses a person who may not decide about one of the items, or who has
// said something else about it before.
func entitled(h Hold, p Post, now time.Time) error {
	for i, d := range p.Decisions {
		it := h.Item(d.ID)
		if recorded(h, p.By, d) {
			continue
		}
		if err := mayDecide(h, it, p, now); err != nil {
			return err
		}
		if was := it.said(p.By); was != nil {
			return problem.New(problem.AlreadyVoted, "you have said %s about item %s; it waits for other people", was.Action, d.ID)
		}
		if len(it.Votes) > 0 && p.Revision == 0 && d.Action != Reject {
			return problem.New(problem.InvalidDecision, "others have said something about the hold; nothing was applied").With(problem.Detail{
				Path:    "/revision",
				Message: "is required: others have decided about item " + d.ID + "; look at the hold and give the revision that you saw",
			})
		}
		if len(it.Votes) >= maxVotes {
			return problem.New(problem.InvalidDecision, "the decisions do not fit the hold; nothing was applied").With(problem.Detail{
				Path: "/decisions/" + strconv.Itoa(i), Message: "item " + d.ID + " has been edited too often; reject it",
			})
		}
	}
	return nil
}

// Waits reports whether h waits for who: it is pending at now, and has an item that
// this person is entitled to decide and has said nothing about.
func (h Hold) Waits(who policy.Person, now time.Time) bool {
	if h.Status != Pending || !now.Before(h.ExpiresAt) {
		return false
	}
	p := Post{By: who.Name, Roles: who.Roles}
	for i := range h.Items {
		it := &h.Items[i]
		if it.Decision == nil && it.said(who.Name) == nil && mayDecide(h, it, p, now) == nil {
			return true
		}
	}
	return false
}

func mayDecide(h Hold, it *Item, p Post, now time.Time) error {
	r := it.Reviewers
	if r.NotRequester && p.By == h.Requester {
		return problem.New(problem.RequesterMayNotDecide, "%s asked for the run and may not decide about item %s", p.By, it.ID)
	}
	set := r.Lacking(policy.Person{Name: p.By, Roles: p.Roles}, now.Sub(h.CreatedAt))
	if set == nil {
		return nil
	}
	text := "rule " + set.Rule + " asks for " + people(set.Roles, set.Users)
	if e := set.Escalate; e != nil {
		text += ", from " + h.CreatedAt.Add(e.After()).UTC().Format(time.RFC3339) + " on also for " + people(e.Roles, e.Users)
	}
	return problem.New(problem.NotReviewer, "%s may not decide about item %s: %s", p.By, it.ID, text)
}

// people says in words who has one of the roles or names.
func people(roles, users []string) string {
	var ways []string
	if len(roles) > 0 {
		ways = append(ways, "a person with role "+strings.Join(roles, " or "))
	}
	if len(users) > 0 {
		ways = append(ways, strings.Join(users, " or "))
	}
	return strings.Join(ways, ", or ")
}

func decidable(h Hold, p Post, now time.Time) error {
	switch h.Status {
	case Decided:
		return problem.New(problem.HoldDecided, "the hold was already decided")
	case Expired:
		return problem.New(problem.HoldExpired, "the hold expired at %s", h.ExpiresAt.UTC().Format(time.RFC3339))
	case Cancelled:
		if h.Reason != "" {
			return problem.New(problem.HoldCancelled, "the hold was cancelled: %s", h.Reason)
		}
		return problem.New(problem.HoldCancelled, "the hold was cancelled with its run")
	case Pending:
	}
	if !now.Before(h.ExpiresAt) {
		return problem.New(problem.HoldExpired, "the hold expired at %s", h.ExpiresAt.UTC().Format(time.RFC3339))
	}
	if p.Revision != 0 && p.Revision != h.Revision {
		return problem.New(problem.HoldStale,
			"the hold is at revision %d, the decisions were made on revision %d; look at it again", h.Revision, p.Revision)
	}
	return nil
}

func check(h Hold, p Post) []problem.Detail {
	if len(p.Decisions) == 0 {
		return []problem.Detail{{Path: "/decisions", Message: "is empty; give at least one {id, action}"}}
	}
	var faults []problem.Detail
	seen := map[string]bool{}
	for i, d := range p.Decisions {
		path := "/decisions/" + strconv.Itoa(i)
		fault := func(field, message string) {
			faults = append(faults, problem.Detail{Path: path + field, Message: message})
		}
		it := h.Item(d.ID)
		switch {
		case it == nil:
			fault("/id", "no item "+strconv.Quote(d.ID)+" in this hold; it has "+itemIDs(h))
			continue
		case seen[d.ID]:
			fault("/id", "item "+strconv.Quote(d.ID)+" is decided twice in this request")
		}
		seen[d.ID] = true
		if len(d.Reason) > maxReason {
			fault("/reason", "is longer than 4096 bytes")
		}
		if !slices.Contains(h.Actions, d.Action) {
			fault("/action", "is not offered by this hold; it offers "+actionNames(h.Actions))
			continue
		}
		if message := checkData(*it, d); message != "" {
			fault("/data", message)
		}
	}
	if p.Key != "" && len(h.Requests) >= maxRequests {
		faults = append(faults, problem.Detail{Path: "/decisions", Message: "too many requests with idempotency keys on this hold"})
	}
	return faults
}

// checkData returns what is wrong with the data of d, or "".
func checkData(it Item, d ItemDecision) string {
	switch d.Action {
	case Edit:
		if len(d.Data) == 0 {
			return "is required for edit: the arguments to run instead"
		}
		if rawjson.Kind(d.Data) != "object" {
			return "must be an object: the arguments to run instead"
		}
	case Approve:
		if len(d.Data) > 0 && !rawjson.Equal(d.Data, it.Data) {
			return "differs from the item; approve runs the item as it is, use edit to change it"
		}
	case Ran:
		if len(d.Data) == 0 {
			return "is required for ran: the result of the call as a person knows it"
		}
	case Reject, Retry, Skip:
		if len(d.Data) > 0 {
			return "does not apply to " + string(d.Action)
		}
	}
	return ""
}

func checkEdits(h Hold, p Post) []problem.Detail {
	var faults []problem.Detail
	for i, d := range p.Decisions {
		it := h.Item(d.ID)
		if d.Action != Edit || len(it.Schema) == 0 {
			continue
		}
		s, err := schema.Compile(it.Schema, schema.Options{Lenient: true})
		if err != nil {
			continue // the tool's own schema is unusable; its server will judge
		}
		for _, f := range s.Validate(d.Data) {
			faults = append(faults, problem.Detail{Path: "/decisions/" + strconv.Itoa(i) + "/data" + f.Path, Message: f.Message})
		}
	}
	return faults
}

// recorded reports whether h has the decision already, made by the same person.
func recorded(h Hold, by string, d ItemDecision) bool {
	it := h.Item(d.ID)
	if it == nil {
		return false
	}
	was := it.said(by)
	if was == nil || was.Action != d.Action || was.Reason != d.Reason {
		return false
	}
	if d.Action == Approve {
		return len(d.Data) == 0 || rawjson.Equal(d.Data, it.Data)
	}
	return rawjson.Equal(was.Data, d.Data) || len(was.Data)+len(d.Data) == 0
}

func (p Post) digest() string {
	parts := make([][]byte, 0, 1+4*len(p.Decisions))
	parts = append(parts, []byte(p.By))
	for _, d := range p.Decisions {
		parts = append(parts, []byte(d.ID), []byte(d.Action), d.Data, []byte(d.Reason))
	}
	return rawjson.Digest(parts...)
}

func itemIDs(h Hold) string {
	names := make([]string, len(h.Items))
	for i, it := range h.Items {
		names[i] = it.ID
	}
	return strings.Join(names, ", ")
}

func actionNames(actions []Action) string {
	names := make([]string, len(actions))
	for i, a := range actions {
		names[i] = string(a)
	}
	return strings.Join(names, ", ")
}
