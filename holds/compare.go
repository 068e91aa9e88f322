package holds

import (
	"bytes"
	"slices"
)

// Difference compares a hold as a person is shown it with the one its journal
// tells, from which the run goes on, and says what differs, or "". It looks at
// what a decision is about and what was decided; whatever only explains may
// differ.
func Difference(shown, told Hold) string {
	switch {
	case shown.ID != told.ID || shown.RunID != told.RunID:
		return "its id"
	case shown.Kind != told.Kind:
		return "its kind"
	case !shown.ExpiresAt.Equal(told.ExpiresAt):
		return "its expiry"
	case shown.Requester != told.Requester:
		return "its requester"
	case len(shown.Items) != len(told.Items):
		return "the number of its items"
	}
	for i := range shown.Items {
		if what := shown.Items[i].difference(&told.Items[i]); what != "" {
			return what + " of item " + told.Items[i].ID
		}
	}
	return ""
}

func (it *Item) difference(told *Item) string {
	switch {
	case it.ID != told.ID:
		return "the id"
	case it.Server != told.Server || it.Tool != told.Tool || it.ToolDigest != told.ToolDigest:
		return "the tool"
	case !bytes.Equal(it.Data, told.Data) || !bytes.Equal(it.Proposed, told.Proposed):
		return "the arguments"
	case !it.Reviewers.Equal(told.Reviewers):
		return "the reviewers"
	case !slices.EqualFunc(it.Votes, told.Votes, func(a, b Vote) bool { return a.Void == b.Void && a.same(&b.Decision) }):
		return "the votes"
	case (it.Decision == nil) != (told.Decision == nil):
		return "the decision"
	case it.Decision == nil:
		return ""
	case !it.Decision.same(told.Decision):
		return "the decision"
	}
	return ""
}

// same reports whether d and other decide the same, by the same person.
func (d *Decision) same(other *Decision) bool {
	return d.Action == other.Action && d.By == other.By && bytes.Equal(d.Data, other.Data)
}
