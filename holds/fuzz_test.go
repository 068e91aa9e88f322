package holds

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"agentos/holds/policy"
)

// standing is what a test knows of an item without asking it: who approves which
// arguments, and when each of them said so.
type standing struct {
	data      []byte
	approvals map[string]time.Duration
}

// tape is what a fuzzer has to say, one choice at a time.
type tape []byte

// next returns a number below n, 0 at the end of the tape.
func (t *tape) next(n int) int {
	if len(*t) == 0 {
		return 0
	}
	b := (*t)[0]
	*t = (*t)[1:]
	return int(b) % n
}

// persons are who may post, with their roles.
func persons() []policy.Person {
	return []policy.Person{
		{Name: "ann", Roles: []string{"finance"}},
		{Name: "bob", Roles: []string{"finance", "board"}},
		{Name: "cid", Roles: []string{"board"}},
		{Name: "zoe"},
		{Name: "req", Roles: []string{"finance", "board"}},
		{Name: "local", Roles: []string{policy.AnyRole}},
	}
}

func (t *tape) reviewers() policy.Reviewers {
	r := policy.Reviewers{Require: t.next(4), NotRequester: t.next(2) == 1}
	switch t.next(4) {
	case 1:
		r.Sets = []policy.ReviewerSet{{Rule: "fin", Roles: []string{"finance"}, Users: []string{"zoe"}}}
	case 2:
		r.Sets = []policy.ReviewerSet{{Rule: "fin", Roles: []string{"finance"}}, {Rule: "board", Roles: []string{"board"}}}
	case 3:
		r.Sets = []policy.ReviewerSet{{Rule: "late", Users: []string{"zoe"}, Escalate: &policy.Escalation{Roles: []string{"board"}, AfterMS: 1_200_000}}}
	}
	return r
}

// post makes a request of somebody about one item or both.
func (t *tape) post(h Hold) (Post, policy.Person) {
	who := persons()[t.next(6)]
	p := Post{By: who.Name, Roles: who.Roles, Revision: []int64{0, h.Revision, h.Revision - 1}[t.next(3)]}
	if t.next(4) == 1 {
		p.Key = []string{"k1", "k2"}[t.next(2)]
	}
	for _, id := range [][]string{{"call_1"}, {"call_3"}, {"call_1", "call_3"}}[t.next(3)] {
		d := ItemDecision{ID: id, Action: []Action{Approve, Edit, Reject, Approve, Skip}[t.next(5)]}
		switch d.Action {
		case Edit:
			d.Data = json.RawMessage([]string{`{"order_id":"A-1"}`, `{"order_id":"B"}`, `{"order_id": "B"}`, `{"order_id":"C","n":9007199254740993}`, `{"order_id":7}`}[t.next(5)])
			d.Verdict = []policy.Verdict{
				{Effect: policy.Allow},
				{Effect: policy.Deny, Rules: []string{"never"}},
				{Effect: policy.Ask, Reviewers: policy.Reviewers{Require: 3, Sets: []policy.ReviewerSet{{Rule: "huge", Roles: []string{"board"}}}}},
				{Effect: policy.Ask},
			}[t.next(4)]
		case Approve:
			if t.next(4) == 1 {
				d.Data = h.Item(id).Data
			}
		case Reject, Ran, Retry, Skip:
		}
		p.Decisions = append(p.Decisions, d)
	}
	return p, who
}

// effective are the arguments that an approved item runs with.
func effective(it *Item) []byte {
	if it.Decision.Action == Edit {
		return it.Decision.Data
	}
	return it.Data
}

// FuzzApply plays requests of several people in any order and holds Apply to what it
// promises: an item is approved by as many different people as it needs, who are all
// entitled and approve the same bytes, and by nobody less; one reject decides; what
// is decided stays; and what is refused changes nothing.
func FuzzApply(f *testing.F) {
	f.Add([]byte{2, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 1, 1, 0, 0, 0})
	f.Add([]byte{2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 1, 1, 2, 1, 0, 1, 1, 0, 0, 0, 0, 1, 0, 0, 0})
	f.Add([]byte{0, 0, 3, 1, 0, 0, 2, 0, 0, 0, 2, 0, 3, 2, 0, 0, 0, 2})
	f.Add([]byte{3, 1, 2, 3, 0, 1, 1, 1, 0, 2, 0, 0, 1, 2, 0, 1, 1, 0, 0, 0})
	f.Fuzz(perform)
}

// TestApplyInAnyOrder is FuzzApply on a few hundred random programs, the same in
// every run.
func TestApplyInAnyOrder(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		program := make([]byte, 200)
		for i := range program {
			program[i] = byte(random.Uint32())
		}
		perform(t, program)
	}
}

// perform plays a program of requests.
func perform(t *testing.T, program []byte) {
	t.Helper()
	in := tape(program)
	h := sample()
	h.Requester = "req"
	known := map[string]*standing{}
	for i := range h.Items {
		h.Items[i].Reviewers = in.reviewers()
		known[h.Items[i].ID] = &standing{data: h.Items[i].Data, approvals: map[string]time.Duration{}}
	}
	var waited time.Duration
	for range 40 {
		if len(in) == 0 {
			return
		}
		waited += []time.Duration{0, 0, 0, 10 * time.Minute}[in.next(4)]
		p, who := in.post(h)
		before := mustJSON(t, h)
		next, changed, err := Apply(h, p, opened.Add(waited))
		if after := mustJSON(t, h); after != before {
			t.Fatalf("Apply changed what it was given:\n%s", cmp.Diff(before, after))
		}
		if err != nil || !changed {
			if got := mustJSON(t, next); got != before || err != nil && changed {
				t.Fatalf("nothing was applied (%v, %v), and the hold is another:\n%s", changed, err, cmp.Diff(before, got))
			}
			continue
		}
		if waited >= time.Hour {
			t.Fatalf("a decision counted after %s, when the hold had expired", waited)
		}
		for _, d := range p.Decisions {
			follow(t, known[d.ID], h.Item(d.ID), next.Item(d.ID), d, who.Name, waited)
		}
		for i := range next.Items {
			judge(t, known[next.Items[i].ID], &h.Items[i], &next.Items[i])
		}
		if (next.Status == Decided) != (len(next.Pending()) == 0) {
			t.Fatalf("the hold is %s with %d items pending", next.Status, len(next.Pending()))
		}
		next.Revision++
		h = next
	}
}

// follow notes what one decision of an accepted request says.
func follow(t *testing.T, s *standing, was, is *Item, d ItemDecision, by string, waited time.Duration) {
	t.Helper()
	if was.Decision != nil {
		return // judge sees that it stays
	}
	if d.Action == Reject && (is.Decision == nil || is.Decision.Action != Reject || is.Decision.By != by) {
		t.Fatalf("%s rejected item %s, and it stands at %+v", by, is.ID, is.Decision)
	}
	if !was.Reviewers.Equal(is.Reviewers) {
		s.approvals = map[string]time.Duration{}
	}
	switch d.Action {
	case Edit:
		if !bytes.Equal(d.Data, s.data) {
			s.data, s.approvals = d.Data, map[string]time.Duration{}
		}
		fallthrough
	case Approve:
		if _, again := s.approvals[by]; !again {
			s.approvals[by] = waited
		}
	case Reject, Ran, Retry, Skip:
	}
}

// judge holds an item after an accepted request to the standing of its people.
func judge(t *testing.T, s *standing, was, is *Item) {
	t.Helper()
	if was.Decision != nil {
		if a, b := mustJSON(t, was), mustJSON(t, is); a != b {
			t.Fatalf("a decided item changed:\n%s", cmp.Diff(a, b))
		}
		return
	}
	enough := len(s.approvals) >= is.Reviewers.Needed()
	switch {
	case is.Decision == nil && enough:
		t.Fatalf("item %s is open, and %v approve it", is.ID, s.approvals)
	case is.Decision == nil || is.Decision.Action == Reject:
		return
	case !enough:
		t.Fatalf("item %s is decided (%s) by %v, and needs %d people", is.ID, is.Decision.Action, s.approvals, is.Reviewers.Needed())
	case !bytes.Equal(effective(is), s.data):
		t.Fatalf("item %s runs with %s, and approved was %s", is.ID, effective(is), s.data)
	}
	for by, at := range s.approvals {
		if by == "req" && is.Reviewers.NotRequester {
			t.Fatalf("the requester approved item %s", is.ID)
		}
		all := persons()
		who := all[slices.IndexFunc(all, func(p policy.Person) bool { return p.Name == by })]
		if set := is.Reviewers.Lacking(who, at); set != nil {
			t.Fatalf("%s approved item %s after %s and is not among %+v", by, is.ID, at, *set)
		}
	}
}

func mustJSON(t *testing.T, v any) string {
	t.Helper()
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}
