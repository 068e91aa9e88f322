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
		n, _ := strconv.ParseInt(v, 10, 64) //nolint:errcheck // written by scripts; 0 fails the checks that follow
		return n
	}
	return 0
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

// record reads a record in the order of prelude.lua.
func record(id string, l []any) store.Record {
	r := store.Record{
		ID: id, Env: unescape(text(l, 0)), Agent: text(l, 1), Capability: text(l, 2), SessionID: text(l, 3),
		Status: store.Status(text(l, 4)), Seq: number(l, 5), Epoch: number(l, 6), Idle: int(number(l, 7)),
		HoldID: text(l, 8), CancelBy: text(l, 9), CreatedAt: fromMillis(number(l, 11) / 1000), UpdatedAt: moment(l, 12),
	}
	if s := text(l, 10); s != "" {
		r.Summary = json.RawMessage(s)
	}
	return r
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

func hold(id string, v any) (*holds.Hold, error) {
	var h holds.Hold
	if err := json.Unmarshal([]byte(word(v)), &h); err != nil || h.ID != id {
		return nil, fmt.Errorf("%w: hold %s is unreadable", store.ErrDamaged, id)
	}
	return &h, nil
}
