package redis

import (
	"encoding/json"
	"errors"
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"agentos/runtime/journal"
	"agentos/runtime/store"
)

func TestParseURL(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		url                string
		addrs              []string
		user, pass, master string
		db                 int
		cluster, tls       bool
	}{
		{url: "redis://localhost", addrs: []string{"localhost:6379"}},
		{url: "redis://u:p%40ss@10.0.0.1:6380/3", addrs: []string{"10.0.0.1:6380"}, user: "u", pass: "p@ss", db: 3},
		{url: "rediss://:secret@[::1]:6380", addrs: []string{"[::1]:6380"}, pass: "secret", tls: true},
		{url: "redis://[::1]", addrs: []string{"[::1]:6379"}},
		{url: "redis+sentinel://a,b:1/2?master=m", addrs: []string{"a:26379", "b:1"}, master: "m", db: 2},
		{url: "rediss+cluster://u:p@a:1,b:2", addrs: []string{"a:1", "b:2"}, user: "u", pass: "p", cluster: true, tls: true},
		{url: "redis+cluster://a", addrs: []string{"a:6379"}, cluster: true},
	} {
		o, err := parseURL(c.url)
		if err != nil {
			t.Errorf("%s: %v", c.url, err)
			continue
		}
		if !cmp.Equal(o.Addrs, c.addrs) || o.Username != c.user || o.Password != c.pass || o.MasterName != c.master ||
			o.DB != c.db || o.IsClusterMode != c.cluster || (o.TLSConfig != nil) != c.tls {
			t.Errorf("%s: %+v", c.url, o)
		}
		if !o.ContextTimeoutEnabled || o.MaxRetries != -1 {
			t.Errorf("%s: the library may repeat commands or ignore deadlines: %+v", c.url, o)
		}
	}
	for url, want := range map[string]string{
		"localhost:6379":                     "no scheme",
		"http://a":                           "unknown scheme",
		"redis+x://a":                        "unknown scheme",
		"redis://":                           "names no host",
		"redis://:6379":                      "names no host",
		"redis://a,b":                        "several hosts",
		"redis://a/x":                        "must be a number",
		"redis://a/-1":                       "must be a number",
		"redis://a?pool_size=3":              "unknown parameter",
		"redis+sentinel://a":                 "which master",
		"redis+cluster://a/1":                "only database 0",
		"redis://u:100%secret@a":             "malformed",
		"redis://u:top secret@a/x?master=me": "",
	} {
		_, err := parseURL(url)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", url, err, want)
		}
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: the error tells the password: %v", url, err)
		}
	}
}

func TestCompleteRefuses(t *testing.T) {
	t.Parallel()
	log := slog.New(slog.DiscardHandler)
	for want, cfg := range map[string]Config{
		"Log is required":          {},
		"has braces":               {Log: log, Prefix: "a{b}"},
		"partitions must be":       {Log: log, Partitions: -1},
		"partitions must be 1 to ": {Log: log, Partitions: maxPartitions + 1},
		"retention must be":        {Log: log, Retention: -1},
		"at least 1ms":             {Log: log, Retention: 1},
		"wait_replicas must not":   {Log: log, WaitReplicas: -1},
		"work with a cluster":      {Log: log, WaitReplicas: 1, URL: "redis+cluster://a"},
	} {
		if _, err := Open(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", cfg, err, want)
		}
	}
}

// Whoever follows a reason loses nothing.
func TestReasonsCostNoData(t *testing.T) {
	t.Parallel()
	for _, r := range reasons() {
		if strings.Contains(r.meaning, "delete") || r.meaning == "" {
			t.Errorf("%s: %s", r.code, r.meaning)
		}
	}
}

func FuzzEscape(f *testing.F) {
	for _, s := range []string{"", "default", "a:b", "{p0}", "%", "%3A", "ä b", "\x00\xff"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		e := escape(s)
		if strings.ContainsAny(e, ":{} ;*?[]\\") {
			t.Errorf("escape(%q) = %q", s, e)
		}
		if back := unescape(e); back != s {
			t.Errorf("%q came back as %q", s, back)
		}
	})
}

func FuzzEntry(f *testing.F) {
	f.Add("1764558000000 run.created {\"a\":1}")
	f.Add("1 x ")
	f.Add("x y z")
	f.Add("")
	f.Fuzz(func(t *testing.T, s string) {
		e, err := entry(7, s)
		if err != nil {
			if !errors.Is(err, store.ErrDamaged) {
				t.Errorf("%q: %v", s, err)
			}
			return
		}
		again, err := entry(7, strconv.FormatInt(e.At.UnixMilli(), 10)+encodeEntry(journal.New{Type: e.Type, Data: e.Data}))
		if err != nil || !cmp.Equal(e, again) {
			t.Errorf("%q: %+v came back as %+v, %v", s, e, again, err)
		}
	})
}

func TestEntryKeepsBytes(t *testing.T) {
	t.Parallel()
	n := journal.New{Type: journal.CallFinished, Data: json.RawMessage("{\"a\": 9007199254740993, \"b\":\t[1.0,{}] }")}
	e, err := entry(3, "1764558000123"+encodeEntry(n))
	if err != nil || string(e.Data) != string(n.Data) || e.Type != n.Type || e.Seq != 3 || e.At.UnixMilli() != 1764558000123 {
		t.Errorf("entry = %+v, %v", e, err)
	}
}

func FuzzCursor(f *testing.F) {
	f.Add("1764558000000000.r_1")
	f.Add("-1.x")
	f.Add(".")
	f.Add("1e5.x")
	f.Fuzz(func(t *testing.T, s string) {
		p, err := parseCursor(s)
		if err != nil {
			return
		}
		again, err := parseCursor(p.cursor())
		if err != nil || again != p {
			t.Errorf("%q: %v came back as %v, %v", s, p, again, err)
		}
	})
}

// A source that stopped early hides rows older than where it stopped: they may
// have newer ones before them that it has not come to.
func TestMerge(t *testing.T) {
	t.Parallel()
	rows := func(places ...string) []row {
		var out []row
		for _, p := range places {
			at, err := parseCursor(p)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, row{place: at})
		}
		return out
	}
	for _, c := range []struct {
		name    string
		rows    []row
		horizon place
		limit   int
		want    []row
		next    string
	}{
		{"all there", rows("1.a", "3.b", "2.c"), place{}, 5, rows("3.b", "2.c", "1.a"), ""},
		{"cut at the limit", rows("1.a", "3.b", "2.c"), place{}, 2, rows("3.b", "2.c"), "2.c"},
		{"cut at the horizon", rows("1.a", "3.b", "2.c"), place{"2", "x"}, 5, rows("3.b"), "2.x"},
		{"the horizon is a row", rows("1.a", "3.b", "2.c"), place{"2", "c"}, 5, rows("3.b", "2.c"), "2.c"},
		{"nothing newer than the horizon", rows("1.a"), place{"9", "z"}, 5, rows(), "9.z"},
		{"ties by id", rows("1.a", "1.c", "1.b"), place{}, 5, rows("1.c", "1.b", "1.a"), ""},
	} {
		got, next := merge(c.rows, c.horizon, c.limit)
		if len(got) != len(c.want) || next.cursor() != c.next {
			t.Errorf("%s: %v, next %q; want %v, %q", c.name, got, next.cursor(), c.want, c.next)
			continue
		}
		for i := range got {
			if got[i].place != c.want[i].place {
				t.Errorf("%s: row %d is %v, want %v", c.name, i, got[i].place, c.want[i].place)
			}
		}
	}
}

func TestMillis(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{-1: "0", 0: "0", 1: "1", time.Millisecond: "1", time.Millisecond + 1: "2"} {
		if got := millis(d); got != want {
			t.Errorf("millis(%s) = %s, want %s", d, got, want)
		}
	}
	base := time.UnixMilli(1764558000123)
	for d, want := range map[time.Duration]int64{0: 1764558000123, 1: 1764558000124, time.Millisecond: 1764558000124} {
		if got := ceilMillis(base.Add(d)); got != want {
			t.Errorf("ceilMillis(+%s) = %d, want %d", d, got, want)
		}
	}
}

// Each script fits on a screen and says what it takes and answers.
func TestScriptsAreShort(t *testing.T) {
	t.Parallel()
	files, err := scriptFiles.ReadDir("scripts")
	if err != nil {
		t.Fatal(err)
	}
	parts := map[string]bool{"prelude.lua": true, "advance.lua": true, "list.lua": true, "fsck.lua": true, "fsck_index.lua": true, "fsck_keys.lua": true}
	for _, f := range files {
		text, err := scriptFiles.ReadFile("scripts/" + f.Name())
		if err != nil {
			t.Fatal(err)
		}
		longest := 80
		if f.Name() == "prelude.lua" { // a library
			longest = 110
		}
		if n := strings.Count(string(text), "\n"); n > longest {
			t.Errorf("%s has %d lines, more than %d", f.Name(), n, longest)
		}
		for _, word := range []string{"-- KEYS:", "-- ARGV:", "-- Reply:"} {
			if !parts[f.Name()] && !strings.Contains(string(text), word) {
				t.Errorf("%s does not say %q", f.Name(), word)
			}
		}
		if strings.Contains(string(text), "cjson") {
			t.Errorf("%s parses JSON", f.Name())
		}
	}
}
