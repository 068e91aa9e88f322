package redis

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"

	goredis "github.com/redis/go-redis/v9"

	"agentos/holds"
	"agentos/runtime/store"
)

var _ store.Inspector = (*Store)(nil)

// fsckPage is about how many keys or members are looked at in one request: few
// enough that others do not wait for it.
const fsckPage = 200

// page is some keys of one kind, or members of one list, as fsck_page.lua wants
// them.
type page struct {
	partition         int
	kind, env, status string
}

// Traces scans the keys of every node once. Records and documents are traces; of other keys, and
// of the members of lists, those that do not fit a record are. Keys that move to
// another node meanwhile may be left out.
func (s *Store) Traces(ctx context.Context, visit func([]store.Trace) error) error {
	leave, err := s.enter("fsck")
	if err != nil {
		return err
	}
	defer leave()
	nodes, err := s.nodes(ctx)
	if err != nil {
		return failure(ctx, "fsck", err)
	}
	for _, node := range nodes {
		for cursor := uint64(0); ; {
			names, next, err := node.Scan(ctx, cursor, escapeGlob(s.cfg.Prefix)+":{p*}:*", fsckPage).Result()
			if err != nil {
				return failure(ctx, "fsck", err)
			}
			if err := s.traceKeys(ctx, names, visit); err != nil {
				return err
			}
			if cursor = next; cursor == 0 {
				break
			}
		}
	}
	return nil
}

// nodes are the servers that have keys: the masters of a cluster, or the one.
func (s *Store) nodes(ctx context.Context) ([]*goredis.Client, error) {
	switch c := s.client.(type) {
	case *goredis.Client:
		return []*goredis.Client{c}, nil
	case *goredis.ClusterClient:
		var mu sync.Mutex
		var out []*goredis.Client
		err := c.ForEachMaster(ctx, func(_ context.Context, node *goredis.Client) error {
			mu.Lock()
			defer mu.Unlock()
			out = append(out, node)
			return nil
		})
		return out, err
	}
	return nil, errors.New("this kind of client cannot list keys")
}

func escapeGlob(s string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`, `^`, `\^`).Replace(s)
}

// traceKeys visits what a page of keys has to inspect, then the lists among them.
func (s *Store) traceKeys(ctx context.Context, names []string, visit func([]store.Trace) error) error {
	var out []store.Trace
	groups := map[page][]any{}
	lists := map[page]string{}
	for _, name := range names {
		p, rest, ok := s.split(name)
		if !ok {
			continue
		}
		kind, id, _ := strings.Cut(rest, ":")
		switch kind {
		case "r":
			t := store.Trace{RunID: id}
			if p != s.partitionOf(id) {
				t.Part = where{partition: p}.String()
			}
			out = append(out, t)
		case "k":
			groups[page{partition: p, kind: kind}] = append(groups[page{partition: p, kind: kind}], id)
		case "s":
			if run, ok := strings.CutPrefix(id, "r:"); ok {
				groups[page{partition: p, kind: kind}] = append(groups[page{partition: p, kind: kind}], run)
			}
		case "docs":
			if p == 0 && strings.Contains(id, ":") {
				out = append(out, store.Trace{Part: documentPart + rest})
			}
		case "due", "retire", "runs", "holds":
			env, status, _ := strings.Cut(id, ":")
			lists[page{p, kind, env, status}] = name
		}
	}
	for g, members := range groups {
		more, err := s.misfits(ctx, g, members)
		if err != nil {
			return err
		}
		out = append(out, more...)
	}
	if len(out) > 0 {
		if err := visit(out); err != nil {
			return err
		}
	}
	for g, name := range lists {
		if err := s.traceList(ctx, g, name, visit); err != nil {
			return err
		}
	}
	return nil
}

// split takes a key apart into its partition and what follows the hash tag.
func (s *Store) split(key string) (partition int, rest string, ok bool) {
	key, ok = strings.CutPrefix(key, s.cfg.Prefix+":{p")
	number, rest, tagged := strings.Cut(key, "}:")
	partition, err := strconv.Atoi(number)
	return partition, rest, ok && tagged && err == nil && partition >= 0 && partition < s.cfg.Partitions
}

// traceList visits the members of a list that do not fit, a page at a time.
func (s *Store) traceList(ctx context.Context, g page, name string, visit func([]store.Trace) error) error {
	for cursor := "0"; ; {
		reply, err := s.command(ctx, "fsck", "zscan", name, cursor, "count", fsckPage)
		if err != nil {
			return err
		}
		var members []any
		for i, m := range list(at(list(reply), 1)) {
			if i%2 == 0 {
				members = append(members, m)
			}
		}
		out, err := s.misfits(ctx, g, members)
		if err != nil {
			return err
		}
		if len(out) > 0 {
			if err := visit(out); err != nil {
				return err
			}
		}
		if cursor = text(list(reply), 0); cursor == "0" || cursor == "" {
			return nil
		}
	}
}

// misfits asks which members of a page do not fit.
func (s *Store) misfits(ctx context.Context, g page, members []any) ([]store.Trace, error) {
	if len(members) == 0 {
		return nil, nil
	}
	k := s.partition(g.partition)
	reply, err := s.read(ctx, "fsck", s.scripts.fsckPage, []string{k.due()}, append([]any{k.base, g.kind, g.env, g.status}, members...)...)
	if err != nil {
		return nil, err
	}
	var out []store.Trace
	for _, r := range list(reply) {
		row := list(r)
		w := where{partition: g.partition, hold: number(row, 1), env: text(row, 2), key: text(row, 3), member: text(row, 4)}
		out = append(out, store.Trace{RunID: text(row, 0), Part: w.String()})
	}
	return out, nil
}

// where is where a trace was come upon: a row of fsck_page.lua.
type where struct {
	partition        int
	hold             int64
	env, key, member string
}

// String is the Part of a trace. Only the last field can have spaces.
func (w where) String() string {
	return fmt.Sprintf("%d %d %s %s %s", w.partition, w.hold, w.env, w.key, w.member)
}

func parseWhere(part string) where {
	f := append(strings.SplitN(part, " ", 5), "", "", "", "", "")
	p, _ := strconv.Atoi(f[0]) //nolint:errcheck // "" is a trace of a record, which needs none
	return where{partition: p, hold: integer(f[1]), env: f[2], key: f[3], member: f[4]}
}

// Inspect reads a run in one script.
func (s *Store) Inspect(ctx context.Context, t store.Trace, repair bool) (store.Inspection, error) {
	var in store.Inspection
	if rest, ok := strings.CutPrefix(t.Part, documentPart); ok && t.RunID == "" {
		return s.inspectDocument(ctx, rest)
	}
	w := parseWhere(t.Part)
	if t.RunID == "" {
		return s.nobodysHold(ctx, w, repair)
	}
	home, fix := s.partitionOf(t.RunID), ""
	if t.Part == "" {
		w.partition = home
	}
	if repair {
		fix = "1"
	}
	k := s.partition(w.partition)
	reply, err := s.read(ctx, "fsck", s.scripts.fsckRun, []string{k.run(t.RunID)},
		k.base, t.RunID, millis(s.cfg.Retention), fix, w.hold, w.env, w.key, w.member)
	if err != nil {
		return in, err
	}
	row := list(reply)
	for _, r := range list(at(row, 3)) {
		in.Findings = append(in.Findings, finding(t.RunID, list(r)))
	}
	if rec := list(at(row, 0)); len(rec) > 0 {
		r := record(t.RunID, rec)
		in.Record = &r
		readRun(&in, row)
		if w.partition != home {
			in.Findings = append(in.Findings, store.Found(store.RecordDamaged, t.RunID, "",
				fmt.Sprintf("it is in partition %d and is looked for in partition %d", w.partition, home)))
		}
	}
	return in, nil
}

// nobodysHold is a member of a list of holds whose id names no run.
func (s *Store) nobodysHold(ctx context.Context, w where, repair bool) (in store.Inspection, err error) {
	k := s.partition(w.partition)
	f := store.Found(store.HoldListStray, "", w.member, "its id names no run")
	if repair {
		for _, status := range []string{"", ":pending", ":decided", ":expired", ":cancelled"} {
			if _, err := s.command(ctx, "fsck", "zrem", k.base+"holds:"+w.env+status, w.member); err != nil {
				return in, err
			}
		}
		f.Repaired = true
	}
	in.Findings = append(in.Findings, f)
	return in, nil
}

// finding reads {code, hold, what was found, repaired}.
func finding(run string, row []any) store.Finding {
	code := store.FindingCode(text(row, 0))
	if code == store.EnvMissing { // of no run in particular
		run = ""
	}
	f := store.Found(code, run, text(row, 1), text(row, 2))
	f.Repaired = number(row, 3) == 1
	return f
}

// readRun adds the journal and the holds of a record.
func readRun(in *store.Inspection, row []any) {
	r := in.Record
	found := func(code store.FindingCode, hold, format string, args ...any) {
		in.Findings = append(in.Findings, store.Found(code, r.ID, hold, fmt.Sprintf(format, args...)))
	}
	all, err := entries(0, list(at(row, 1)))
	switch {
	case err != nil:
		found(store.JournalIncomplete, "", "%v", err)
	case int64(len(all)) != r.Seq || r.Seq < 1:
		found(store.JournalIncomplete, "", "there are %d entries, the record counts %d", len(all), r.Seq)
	default:
		in.Journal = all
	}
	pending := false
	for _, part := range list(at(row, 2)) {
		parts := list(part)
		id := text(parts, 0)
		pending = pending || id == r.HoldID
		h, err := hold(id, at(parts, 1))
		known, _ := splitHold(at(parts, 1))
		switch {
		case err != nil:
			found(store.HoldDamaged, id, "it cannot be read: %v", err)
		case known != meta(*h):
			found(store.HoldDamaged, id, "it is %q, and %q", known, meta(*h))
		default:
			in.Holds = append(in.Holds, *h)
			if h.Status == holds.Pending && id != r.HoldID {
				found(store.HoldStray, id, "it is pending, and its run waits on %q", r.HoldID)
			}
		}
	}
	if r.HoldID != "" && !pending {
		found(store.HoldMissing, r.HoldID, "the run waits on it")
	}
}

// meta is what scripts know of a hold.
func meta(h holds.Hold) string {
	return strings.Join([]string{
		string(h.Status), strconv.FormatInt(h.Revision, 10), strconv.FormatInt(ceilMillis(h.ExpiresAt), 10),
		strconv.FormatInt(h.CreatedAt.UnixMilli(), 10), escape(h.Agent),
	}, " ")
}
