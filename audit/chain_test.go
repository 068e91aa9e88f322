package audit_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"agentos/audit"
	"agentos/holds"
	"agentos/internal/testenv"
	"agentos/runtime/journal"
	"agentos/runtime/store"
	"agentos/runtime/store/file"
	"agentos/runtime/store/redis"
	"agentos/runtime/store/storetest"
)

// stores are the drivers a chain is kept in.
func stores(t *testing.T, test func(t *testing.T, s store.Store)) {
	t.Helper()
	t.Run("file", func(t *testing.T) {
		s, err := file.Open(t.Context(), file.Config{Clock: storetest.NewClock()})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = s.Close() }()
		test(t, s)
	})
	t.Run("redis", func(t *testing.T) {
		s, err := redis.Open(t.Context(), redis.Config{URL: testenv.StartRedis(t).URL(), Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = s.Close() }()
		test(t, s)
	})
}

func keyed(key string) audit.Keyed {
	return audit.Keyed{Key: key, Entry: audit.Entry{At: time.Unix(1, 0).UTC(), Event: audit.ToolOff, By: "ann", Tool: key, Reason: "<&> \u2028"}}
}

// export is the whole chain as a file.
func export(t *testing.T, c *audit.Chain) []byte {
	t.Helper()
	var out []byte
	for n := int64(0); ; {
		lines, err := c.Read(t.Context(), n, 7)
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range lines {
			out = append(append(out, l...), '\n')
		}
		if n += int64(len(lines)); len(lines) == 0 {
			return out
		}
	}
}

func sound(t *testing.T, text []byte, entries int64) audit.Report {
	t.Helper()
	r, err := audit.Verify(bytes.NewReader(text), "")
	if err != nil || len(r.Faults) > 0 || r.Entries != entries {
		t.Fatalf("%+v, %v; want %d sound entries", r, err, entries)
	}
	return r
}

// However many append at once, from several processes, the chain is one, and each
// key is in it once.
func TestChainOfMany(t *testing.T) {
	t.Parallel()
	stores(t, func(t *testing.T, s store.Store) {
		t.Helper()
		chains := []*audit.Chain{audit.NewChain(s, "prod"), audit.NewChain(s, "prod"), audit.NewChain(s, "prod")}
		var all sync.WaitGroup
		for i := range 9 {
			all.Go(func() {
				for n := range 10 {
					// Every other key is appended by three.
					key, other := fmt.Sprint(i, "/", n), fmt.Sprint(i%3, "/shared/", n)
					if err := chains[i/3].Append(t.Context(), keyed(key), keyed(other)); err != nil {
						t.Error(err)
					}
				}
			})
		}
		all.Wait()
		text := export(t, chains[0])
		sound(t, text, 9*10+3*10)
		if err := audit.NewChain(s, "dev").Append(t.Context(), keyed("x")); err != nil {
			t.Fatal(err)
		}
		if again := export(t, chains[0]); !bytes.Equal(again, text) {
			t.Error("another environment's entries are in the chain")
		}
	})
}

// failing refuses appends, or loses their answers.
type failing struct {
	store.Store
	before, after error
}

func (f *failing) AppendLog(ctx context.Context, name string, seen int64, items ...store.LogItem) ([]string, error) {
	if f.before != nil {
		return nil, f.before
	}
	known, err := f.Store.AppendLog(ctx, name, seen, items...)
	return known, errors.Join(err, f.after)
}

// An append whose answer was lost may be repeated.
func TestChainAnswerLost(t *testing.T) {
	t.Parallel()
	stores(t, func(t *testing.T, s store.Store) {
		t.Helper()
		f := &failing{Store: s}
		c := audit.NewChain(f, "prod")
		for i, fault := range []*error{&f.before, &f.after} {
			*fault = store.ErrUnavailable
			if err := c.Append(t.Context(), keyed(fmt.Sprint(i, "a")), keyed(fmt.Sprint(i, "b"))); !errors.Is(err, store.ErrUnavailable) {
				t.Fatal(err)
			}
			*fault = nil
			if err := c.Append(t.Context(), keyed(fmt.Sprint(i, "a")), keyed(fmt.Sprint(i, "b")), keyed(fmt.Sprint(i, "c"))); err != nil {
				t.Fatal(err)
			}
		}
		sound(t, export(t, c), 6)
	})
}

// history is a chain in which calls ran that people had let run.
func history(t *testing.T) []byte {
	t.Helper()
	s, err := file.Open(t.Context(), file.Config{Clock: storetest.NewClock()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	c := audit.NewChain(s, "prod")
	for i, run := range []*script{
		begin(t, 1).hold(1, holds.ToolCall, 0, asked, "call_1").decide(1, "ann", false, holds.Approve, "", asked, "call_1").closed(1, holds.Decided, "").ran("call_1", asked, journal.Success),
		begin(t, 1).hold(1, holds.ToolCall, 2, asked, "call_1").decide(1, "ann", true, holds.Edit, edited, asked, "call_1").
			decide(1, "bob", false, holds.Approve, "", edited, "call_1").closed(1, holds.Decided, "").ran("call_1", edited, journal.Success),
		begin(t, 1).hold(1, holds.ToolCall, 0, asked, "call_1").decide(1, "ann", false, holds.Reject, "", asked, "call_1").closed(1, holds.Decided, "").ended("call_1", journal.Rejected),
	} {
		list, err := audit.FromRun("prod", fmt.Sprint("r_", i), run.entries)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Append(t.Context(), list...); err != nil {
			t.Fatal(err)
		}
	}
	return export(t, c)
}

// reseal makes a chain of changed lines that follow each other.
func reseal(t *testing.T, lines []string) []string {
	t.Helper()
	prev := ""
	for i, line := range lines {
		var e audit.Entry
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatal(err)
		}
		e.N, e.Prev = int64(i+1), prev
		raw, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		lines[i] = string(raw)
		r, err := audit.Verify(strings.NewReader(strings.Join(lines[:i+1], "\n")), "")
		if err != nil {
			t.Fatal(err)
		}
		prev = r.Head
	}
	return lines
}

func TestVerify(t *testing.T) {
	t.Parallel()
	text := history(t)
	clean := sound(t, text, 6)
	if clean.Ran != 2 {
		t.Errorf("%d calls ran, want 2", clean.Ran)
	}
	middle := sound(t, text[:bytes.IndexByte(text, '\n')+1], 1).Head
	split := func() []string { return strings.Split(strings.TrimSuffix(string(text), "\n"), "\n") }
	for name, c := range map[string]struct {
		change func(l []string) []string
		head   string
		line   int64
		want   string
	}{
		"an entry changed":       {func(l []string) []string { l[1] = strings.Replace(l[1], "success", "error", 1); return l }, "", 3, "does not follow"},
		"the last one changed":   {func(l []string) []string { l[5] = strings.Replace(l[5], "reject", "ratify", 1); return l }, clean.Head, 0, "no line has the digest"},
		"an entry taken out":     {func(l []string) []string { return slices.Delete(l, 2, 3) }, "", 3, "says that it is entry 4"},
		"the end cut off":        {func(l []string) []string { return l[:4] }, clean.Head, 0, "no line has the digest"},
		"an entry put in":        {func(l []string) []string { return slices.Insert(l, 1, l[1]) }, "", 3, "says that it is entry 2"},
		"entries exchanged":      {func(l []string) []string { l[2], l[3] = l[3], l[2]; return l }, "", 3, "says that it is entry 4"},
		"no JSON":                {func(l []string) []string { l[3] = "{"; return l }, "", 4, "no JSON object"},
		"a chain written anew":   {func(l []string) []string { l[0] = strings.Replace(l[0], "ann", "bob", 1); return reseal(t, l) }, middle, 0, "written anew"},
		"another environment":    {func(l []string) []string { l[4] = strings.Replace(l[4], "prod", "dev", 1); return reseal(t, l) }, "", 5, "environment"},
		"ran without approval":   {func(l []string) []string { return reseal(t, slices.Delete(l, 0, 1)) }, "", 1, "no entry before it approves"},
		"ran before the second":  {func(l []string) []string { return reseal(t, slices.Delete(l, 3, 4)) }, "", 4, "no entry before it approves"},
		"ran something else":     {func(l []string) []string { l[1] = reached(l[1], l[4]); return reseal(t, l) }, "", 2, "other arguments"},
		"ran although rejected":  {func(l []string) []string { return reseal(t, append(l, strings.ReplaceAll(l[1], `"r_0"`, `"r_2"`))) }, "", 7, "no entry before it approves"},
		"ran and does not tell":  {func(l []string) []string { return reseal(t, append(l, `{"event":"call.ran","env":"prod"}`)) }, "", 7, "which call"},
		"a line without its end": {func(l []string) []string { return append(l, "") }, "", 7, "no JSON object"},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := audit.Verify(strings.NewReader(strings.Join(c.change(split()), "\n")+"\n"), c.head)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.ContainsFunc(r.Faults, func(f audit.Fault) bool { return f.Line == c.line && strings.Contains(f.Message, c.want) }) {
				t.Errorf("faults %+v, want line %d: %s", r.Faults, c.line, c.want)
			}
		})
	}
	for _, head := range []string{middle, clean.Head} {
		r, err := audit.Verify(bytes.NewReader(text), head)
		if err != nil || !r.Seen || len(r.Faults) > 0 {
			t.Errorf("head %s: %+v, %v", head, r, err)
		}
	}
	if r, err := audit.Verify(strings.NewReader(""), ""); err != nil || r.Entries != 0 || len(r.Faults) > 0 {
		t.Errorf("an empty chain: %+v, %v", r, err)
	}
	if _, err := audit.Verify(strings.NewReader(strings.Repeat("x", 6<<20)), ""); err == nil {
		t.Error("an endless line was read")
	}
}

// reached gives a line the arguments of another one.
func reached(line, other string) string {
	digestOf := func(l string) string {
		_, rest, _ := strings.Cut(l, `"arguments":"`)
		d, _, _ := strings.Cut(rest, `"`)
		return d
	}
	return strings.Replace(line, digestOf(line), digestOf(other), 1)
}

func FuzzVerify(f *testing.F) {
	f.Add([]byte("{\"n\":1,\"prev\":\"\"}\n{\"n\":2}"), "sha256:00")
	f.Fuzz(func(t *testing.T, text []byte, head string) {
		lines := int64(bytes.Count(append(text, '\n'), []byte("\n")))
		if bytes.HasSuffix(text, []byte("\n")) || len(text) == 0 {
			lines--
		}
		r, err := audit.Verify(bytes.NewReader(text), head)
		if err == nil && r.Entries != lines {
			t.Errorf("%d entries in %q", r.Entries, text)
		}
		if err == nil && lines > 0 && len(r.Faults) == 0 && !bytes.HasPrefix(bytes.TrimSpace(text), []byte("{")) {
			t.Errorf("a chain that begins with no object: %q", text)
		}
	})
}
