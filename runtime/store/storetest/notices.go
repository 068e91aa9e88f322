package storetest

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"agentos/runtime/store"
)

func noticeCases() []Case {
	return []Case{
		{"Notices/only_where_asked", noticesOnlyWhereAsked},
		{"Notices/of_commit_decide_and_cancel", noticesOfAll},
		{"Notices/one_claim_at_a_time", noticesOneClaim},
		{"Notices/a_claim_that_lapsed_is_lost", noticesLapsed},
		{"Notices/entries_during_a_claim", noticesDuring},
		{"Notices/again_later", noticesAgain},
		{"Notices/oldest_first_and_no_more", noticesOrder},
		{"Notices/shared_by_many", noticesShared},
		{"Notices/repeated_operation", noticesRepeated},
		{"Notices/refuses_what_is_none", noticesRefused},
	}
}

func (k *kit) notices(n int) []store.Notice {
	k.Helper()
	got, err := k.s.Notices(k.ctx, n, ttl)
	k.ok(err)
	return got
}

// noticeOf claims notices, and wants exactly the run's.
func (k *kit) noticeOf(run string, seq int64) store.Notice {
	k.Helper()
	got := k.notices(10)
	if len(got) != 1 || got[0].RunID != run {
		k.Fatalf("notices %+v, want only that of %s", got, run)
	}
	if got[0].Seq != seq || got[0].Env != "prod" {
		k.Fatalf("notice %+v, want %d entries in prod", got[0], seq)
	}
	return got[0]
}

func (k *kit) noticesNone(why string) {
	k.Helper()
	if got := k.notices(10); len(got) != 0 {
		k.Fatalf("%s: notices %+v, want none", why, got)
	}
}

// settled is what came of a notice when there is no more to tell.
func settled(n store.Notice, told string) store.Settled {
	return store.Settled{RunID: n.RunID, Claim: n.Claim, Seq: n.Seq, Told: json.RawMessage(told)}
}

func told(tx store.Tx) store.Tx {
	tx.Notify = true
	return tx
}

func noticesOnlyWhereAsked(k *kit) {
	quiet, loud := k.create(runID(1), ttl), k.create(runID(2), ttl)
	k.commit(quiet.Lease, running(2))
	k.commit(loud.Lease, told(running(2)))
	n := k.noticeOf(loud.Lease.RunID, 3)
	k.equal("told", n.Told, json.RawMessage(nil))
	k.ok(k.s.Settle(k.ctx, settled(n, `{}`)))
	k.commit(loud.Lease, running(1))
	k.noticesNone("after a commit that tells nobody")
}

func noticesOfAll(k *kit) {
	h := k.held(runID(1), time.Hour)
	d := k.decision(h, false, 0)
	d.Notify = true
	_, err := k.s.Decide(k.ctx, d)
	k.ok(err)
	n := k.noticeOf(h.RunID, 3)
	k.ok(k.s.Settle(k.ctx, settled(n, awkward)))

	c := k.cancellation(h.RunID, 3, &d.Hold)
	c.Notify = true
	_, err = k.s.Cancel(k.ctx, c)
	k.ok(err)
	k.restart()
	n = k.noticeOf(h.RunID, 4)
	k.sameBytes("told", n.Told, []byte(awkward))
	k.ok(k.s.Settle(k.ctx, settled(n, `{}`)))
	k.noticesNone("after the run was told of")
}

func noticesOneClaim(k *kit) {
	c := k.create(runID(1), ttl)
	k.commit(c.Lease, told(running(1)))
	n := k.noticeOf(c.Lease.RunID, 2)
	k.noticesNone("while it is claimed")
	k.restart()
	k.noticesNone("after a restart")
	k.h.Advance(ttl - k.nearly())
	k.noticesNone("before the end of the claim")
	k.ok(k.s.Settle(k.ctx, settled(n, `{}`)))
	k.h.Advance(ttl)
	k.noticesNone("after it was settled")
}

func noticesLapsed(k *kit) {
	c := k.create(runID(1), ttl)
	k.commit(c.Lease, told(running(1)))
	first := k.noticeOf(c.Lease.RunID, 2)
	k.h.Advance(ttl)
	second := k.noticeOf(c.Lease.RunID, 2)
	if first.Claim == second.Claim {
		k.Fatalf("two claims are called %d", first.Claim)
	}
	k.refused(k.s.Settle(k.ctx, settled(first, `{"late":true}`)), store.ErrLeaseLost)
	k.equal("told after a late settle", second.Told, json.RawMessage(nil))
	k.ok(k.s.Settle(k.ctx, settled(second, `{}`)))
	unknown := settled(second, `{}`)
	unknown.RunID = runID(2)
	k.refused(k.s.Settle(k.ctx, unknown), store.ErrLeaseLost)
}

// Whoever tells has read the journal up to the entries of the notice: what comes
// after is told of by the next one, and not before the claim ends.
func noticesDuring(k *kit) {
	c := k.create(runID(1), ttl)
	k.commit(c.Lease, told(running(1)))
	n := k.noticeOf(c.Lease.RunID, 2)
	k.commit(c.Lease, told(running(1)))
	k.noticesNone("while it is claimed")
	later := settled(n, `{"to":2}`)
	later.Again, later.Due = true, time.Hour
	k.ok(k.s.Settle(k.ctx, later))
	n = k.noticeOf(c.Lease.RunID, 3)
	k.sameBytes("told", n.Told, []byte(`{"to":2}`))
	k.ok(k.s.Settle(k.ctx, settled(n, `{"to":3}`)))
	k.noticesNone("after all was told")
	k.commit(c.Lease, told(running(1)))
	k.ok(k.s.Settle(k.ctx, settled(k.noticeOf(c.Lease.RunID, 4), `{}`)))
}

func noticesAgain(k *kit) {
	c := k.create(runID(1), ttl)
	k.commit(c.Lease, told(running(1)))
	later := settled(k.noticeOf(c.Lease.RunID, 2), `{"failed":1}`)
	later.Again, later.Due = true, time.Hour
	k.ok(k.s.Settle(k.ctx, later))
	k.h.Advance(time.Hour - k.nearly())
	k.noticesNone("before its time")
	k.restart()
	k.h.Advance(k.nearly())
	n := k.noticeOf(c.Lease.RunID, 2)
	k.sameBytes("told", n.Told, []byte(`{"failed":1}`))
	// News make it due at once.
	later = settled(n, `{"failed":2}`)
	later.Again, later.Due = true, time.Hour
	k.ok(k.s.Settle(k.ctx, later))
	l := k.claimOnly(c.Lease.RunID).Lease
	k.commit(l, told(running(1)))
	k.noticeOf(c.Lease.RunID, 3)
}

func noticesOrder(k *kit) {
	leases := map[string]store.Lease{}
	for i := range 5 {
		leases[runID(i)] = k.create(runID(i), ttl).Lease
	}
	for _, i := range []int{3, 1, 4, 0, 2} {
		k.commit(leases[runID(i)], told(running(1)))
		k.h.Advance(time.Millisecond)
	}
	k.equal("no notices", len(k.notices(0)), 0)
	var got []string
	for range 3 {
		for _, n := range k.notices(2) {
			got = append(got, n.RunID)
		}
	}
	if k.h.Frozen {
		k.equal("order", got, []string{runID(3), runID(1), runID(4), runID(0), runID(2)})
	}
	k.equal("all of them", len(got), 5)
}

func noticesShared(k *kit) {
	const runs = 40
	for i := range runs {
		k.commit(k.create(runID(i), ttl).Lease, told(running(1)))
	}
	var given [runs]atomic.Int64
	handles := k.handles()
	together(8, func(i int) {
		for {
			list, err := handles[i%len(handles)].Notices(k.ctx, 3, ttl)
			if err != nil {
				k.Errorf("notices: %v", err)
			}
			if len(list) == 0 {
				return
			}
			for _, n := range list {
				var number int
				if _, err := fmt.Sscanf(n.RunID, "r_%d", &number); err != nil {
					k.Errorf("run %q: %v", n.RunID, err)
				}
				given[number].Add(1)
				if err := handles[i%len(handles)].Settle(k.ctx, settled(n, `{}`)); err != nil {
					k.Errorf("settle: %v", err)
				}
			}
		}
	})
	for i := range given {
		if n := given[i].Load(); n != 1 {
			k.Errorf("run %d was given %d times", i, n)
		}
	}
}

// An operation that is repeated, because its answer was lost, tells nobody again.
func noticesRepeated(k *kit) {
	c := k.create(runID(1), ttl)
	tx := told(running(1))
	tx.Op = k.op()
	k.commit(c.Lease, tx)
	k.ok(k.s.Settle(k.ctx, settled(k.noticeOf(c.Lease.RunID, 2), `{}`)))
	k.commit(c.Lease, tx)
	k.noticesNone("after a repeat")
}

func noticesRefused(k *kit) {
	_, err := k.s.Notices(k.ctx, 1, 0)
	k.invalid("a claim without length", err)
	for what, s := range map[string]store.Settled{
		"no run":                  {Claim: 1},
		"another id":              {RunID: "h_1_1", Claim: 1},
		"a negative time":         {RunID: runID(1), Again: true, Due: -1},
		"a time without an again": {RunID: runID(1), Due: 1},
	} {
		k.invalid(what, k.s.Settle(k.ctx, s))
	}
}

func logCases() []Case {
	return []Case{
		{"Log/read_by_page", logPages},
		{"Log/each_key_once", logKeys},
		{"Log/worked_out_on_what_is_there", logConflict},
		{"Log/many_writers_make_one_chain", logRace},
		{"Log/refuses_what_is_none", logRefused},
	}
}

func (k *kit) append(name string, seen int64, items ...string) []string {
	k.Helper()
	var list []store.LogItem
	for i := 0; i < len(items); i += 2 {
		list = append(list, store.LogItem{Key: items[i], Text: json.RawMessage(items[i+1])})
	}
	known, err := k.s.AppendLog(k.ctx, name, seen, list...)
	k.ok(err)
	return known
}

func (k *kit) logOf(name string, after int64, limit int) []json.RawMessage {
	k.Helper()
	got, err := k.s.Log(k.ctx, name, after, limit)
	k.ok(err)
	return got
}

func (k *kit) logEnd(name string, n int64, last string) {
	k.Helper()
	got, item, err := k.s.LogEnd(k.ctx, name)
	k.ok(err)
	k.equal("items of "+name, got, n)
	k.sameBytes("last item of "+name, item, []byte(last))
}

func logPages(k *kit) {
	k.equal("of a log that is not there", len(k.logOf("audit prod", 0, 10)), 0)
	k.logEnd("audit prod", 0, "")
	names := []string{"audit prod", "audit:prod", "é %20"}
	for _, name := range names {
		for i := range int64(4) {
			k.equal("known", k.append(name, i, fmt.Sprint("k", i), fmt.Sprintf(`[%q,%d]`, name, i)), []string(nil))
		}
		k.append(name, 4, "k4", `"four"`, "k5", awkward)
	}
	k.restart()
	for _, name := range names {
		k.equal("a page of "+name, k.logOf(name, 1, 2), []json.RawMessage{json.RawMessage(fmt.Sprintf(`[%q,1]`, name)), json.RawMessage(fmt.Sprintf(`[%q,2]`, name))})
		k.logEnd(name, 6, awkward)
	}
	k.equal("the last page", k.logOf(names[0], 4, 10), []json.RawMessage{json.RawMessage(`"four"`), json.RawMessage(awkward)})
	k.equal("behind the end", len(k.logOf(names[0], 6, 10)), 0)
	k.equal("no items", len(k.logOf(names[0], 0, 0)), 0)
}

func logKeys(k *kit) {
	k.append("a", 0, "one", `1`, "two", `2`)
	k.equal("known at the wrong place", k.append("a", 0, "one", `"other"`), []string{"one"})
	k.equal("some known", k.append("a", 2, "three", `3`, "two", `2`, "one", `1`), []string{"two", "one"})
	k.restart()
	k.equal("all known", k.append("a", 0, "one", `1`, "two", `2`), []string{"one", "two"})
	k.equal("another log", k.append("b", 0, "two", `"b"`), []string(nil))
	k.equal("items", k.logOf("a", 0, 10), []json.RawMessage{json.RawMessage(`1`), json.RawMessage(`2`)})
	k.equal("a new one", k.append("a", 2, "three", `3`), []string(nil))
	k.logEnd("a", 3, `3`)
}

func logConflict(k *kit) {
	for _, seen := range []int64{1, 7} {
		_, err := k.s.AppendLog(k.ctx, "a", seen, store.LogItem{Key: "x", Text: json.RawMessage(`1`)})
		k.refused(err, store.ErrConflict)
	}
	k.append("a", 0, "x", `1`)
	_, err := k.s.AppendLog(k.ctx, "a", 0, store.LogItem{Key: "y", Text: json.RawMessage(`2`)}, store.LogItem{Key: "z", Text: json.RawMessage(`3`)})
	k.refused(err, store.ErrConflict)
	k.logEnd("a", 1, `1`)
	k.equal("the refused key", k.append("a", 1, "y", `2`), []string(nil))
}

// Items that tell how many there were before them come out in that order, however
// many append at once, and each once.
func logRace(k *kit) {
	const writers, each = 6, 10
	handles := k.handles()
	together(writers, func(i int) {
		s, seen := handles[i%len(handles)], int64(0)
		for n := 0; n < each; {
			items := []store.LogItem{
				{Key: fmt.Sprint(i, " ", n), Text: json.RawMessage(strconv.FormatInt(seen, 10))},
				{Key: fmt.Sprint(i, " ", n, "b"), Text: json.RawMessage(strconv.FormatInt(seen+1, 10))},
			}
			known, err := s.AppendLog(k.ctx, "a", seen, items...)
			switch {
			case err == nil && known == nil:
				n++
				seen += 2
			case errors.Is(err, store.ErrConflict):
				if seen, _, err = s.LogEnd(k.ctx, "a"); err != nil {
					k.Errorf("end: %v", err)
					return
				}
			default:
				k.Errorf("append: %v, %v", known, err)
				return
			}
		}
	})
	list := k.logOf("a", 0, 1000)
	k.equal("items", len(list), 2*writers*each)
	for i, item := range list {
		k.equal("what an item says", string(item), strconv.Itoa(i))
	}
}

func logRefused(k *kit) {
	one := store.LogItem{Key: "x", Text: json.RawMessage(`1`)}
	for what, items := range map[string][]store.LogItem{
		"nothing":     {},
		"no key":      {{Text: json.RawMessage(`1`)}},
		"no text":     {{Key: "x"}},
		"a key twice": {one, one},
		"too much":    {{Key: "x", Text: json.RawMessage(`"` + strings.Repeat("x", 4<<20) + `"`)}},
	} {
		_, err := k.s.AppendLog(k.ctx, "a", 0, items...)
		k.invalid(what, err)
	}
	_, err := k.s.AppendLog(k.ctx, "a", -1, one)
	k.invalid("a bad number", err)
}
