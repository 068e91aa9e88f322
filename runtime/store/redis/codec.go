package redis

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"agentos/holds"
	"agentos/internal/rawjson"
	"agentos/runtime/journal"
	"agentos/runtime/store"
)

// Replies are lists of strings, lists and nil. A part that is missing, or of
// another kind, reads as empty; what must not be missing is checked where it is
// needed.

func list(v any) []any {
	if l, ok := v.([]any); ok {
		return l
	}
	return nil
}

func at(l []any, i int) any {
	if i < len(l) {
		return l[i]
	}
	return nil
}

func text(l []any, i int) string { return word(at(l, i)) }

func word(v any) string {
	if s, ok := v.(string); ok {
		return s
	}
	return ""
}

// number reads an integer, which scripts send as a string or as itself.
func number(l []any, i int) int64 {
	switch v := at(l, i).(type) {
	case int64:
		return v
	case string:
		return integer(v)
	}
	return 0
}

func integer(s string) int64 {
	n, _ := strconv.ParseInt(s, 10, 64) //nolint:errcheck // written by scripts; 0 fails the checks that follow
	return n
}

func moment(l []any, i int) time.Time { return fromMillis(number(l, i)) }

func fromMillis(ms int64) time.Time { return time.UnixMilli(ms).UTC() }

// ceilMillis returns the first whole millisecond that is not before t, so that
// "now < t" means the same on a clock of milliseconds.
func ceilMillis(t time.Time) int64 {
	ms := t.UnixMilli()
	if t.After(time.UnixMilli(ms)) {
		ms++
	}
	return max(ms, 0)
}

// millis returns d in whole milliseconds, rounded up, so that a short time is
// never none.
func millis(d time.Duration) string {
	return strconv.FormatInt(int64((max(d, 0)+time.Millisecond-1)/time.Millisecond), 10)
}

// record reads a record as answer in prelude.lua sends it: what never changes,
// what does, and the summary.
func record(id string, l []any) store.Record {
	f, v := strings.Split(text(l, 0), " "), strings.Split(text(l, 1), " ")
	if len(f) != 7 || len(v) != 9 {
		return store.Record{ID: id}
	}
	r := store.Record{
		ID: id, Env: unescape(f[0]), Agent: unescape(f[1]), Capability: unescape(f[2]), SessionID: unescape(f[3]),
		Status: store.Status(v[0]), Seq: integer(v[1]), Epoch: integer(v[2]), Idle: int(integer(v[3])),
		HoldID: v[5], CancelBy: unescape(v[8]), CreatedAt: fromMillis(integer(f[4]) / 1000), UpdatedAt: fromMillis(integer(v[7])),
	}
	if s := text(l, 2); s != "" {
		r.Summary = json.RawMessage(s)
	}
	return r
}

// createdScore is the place of a record in the lists of runs.
func createdScore(l []any) string {
	f := strings.Split(text(l, 0), " ")
	if len(f) != 7 {
		return "0"
	}
	return f[4]
}

// encodeEntry returns an entry as append in prelude.lua wants it: the time is
// put before.
func encodeEntry(n journal.New) string {
	return " " + string(n.Type) + " " + string(n.Data)
}

func encodeEntries(args []any, entries []journal.New) []any {
	for _, n := range entries {
		args = append(args, encodeEntry(n))
	}
	return args
}

// entry reads "<ms> <type> <data>".
func entry(seq int64, v any) (journal.Entry, error) {
	stamp, rest, _ := strings.Cut(word(v), " ")
	kind, data, ok := strings.Cut(rest, " ")
	ms, err := strconv.ParseInt(stamp, 10, 64)
	if err != nil || !ok || kind == "" {
		return journal.Entry{}, fmt.Errorf("%w: entry %d is unreadable", store.ErrDamaged, seq)
	}
	return journal.Entry{Seq: seq, At: fromMillis(ms), Type: journal.Type(kind), Data: json.RawMessage(data)}, nil
}

// entries reads the entries that follow entry number after.
func entries(after int64, l []any) ([]journal.Entry, error) {
	out := make([]journal.Entry, 0, len(l))
	for i, v := range l {
		e, err := entry(after+int64(i)+1, v)
		if err != nil {
			return nil, err
		}
		out = append(out, e)
	}
	return out, nil
}

// stamped returns written entries as a script has stored them.
func stamped(from int64, now time.Time, written []journal.New) []journal.Entry {
	out := make([]journal.Entry, len(written))
	for i, n := range written {
		out[i] = journal.Entry{Seq: from + int64(i), At: now, Type: n.Type, Data: n.Data}
	}
	return out
}

// encodeHold returns the seven arguments scripts store a hold from; they are
// empty for nil.
func encodeHold(args []any, h *holds.Hold) ([]any, error) {
	if h == nil {
		return append(args, "", "", "", "", "", "", ""), nil
	}
	blob, err := rawjson.Marshal(h)
	if err != nil {
		return nil, fmt.Errorf("redis: encode hold %s: %w", h.ID, err)
	}
	return append(args, h.ID, string(h.Status), h.Revision, ceilMillis(h.ExpiresAt),
		h.CreatedAt.UnixMilli(), escape(h.Agent), blob), nil
}

// hold reads "<status> <revision> <expiry> <creation> <agent> <JSON>". What stands
// before the JSON is for scripts.
func hold(id string, v any) (*holds.Hold, error) {
	_, blob := splitHold(v)
	var h holds.Hold
	if err := json.Unmarshal([]byte(blob), &h); err != nil || h.ID != id {
		return nil, fmt.Errorf("%w: hold %s is unreadable", store.ErrDamaged, id)
	}
	return &h, nil
}

// splitHold returns what scripts know of a hold, and the JSON.
func splitHold(v any) (meta, blob string) {
	s := word(v)
	at := 0
	for range 5 {
		i := strings.IndexByte(s[at:], ' ')
		if i < 0 {
			return s, ""
		}
		at += i + 1
	}
	return s[:at-1], s[at:]
}
