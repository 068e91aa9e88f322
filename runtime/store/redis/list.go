package redis

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"strconv"
	"strings"

	"agentos/holds"
	"agentos/runtime/store"
)

// place is where a list stands: after the row of this score and id. The zero
// place is before the first row, or after the last.
type place struct{ score, id string }

func (p place) none() bool { return p.id == "" }

// newer orders places as lists do: by score, then by id, both falling.
func newer(a, b place) int {
	x, _ := strconv.ParseFloat(a.score, 64) //nolint:errcheck // written by Redis, or checked by parseCursor
	y, _ := strconv.ParseFloat(b.score, 64) //nolint:errcheck // likewise
	return cmp.Or(cmp.Compare(y, x), cmp.Compare(b.id, a.id))
}

func (p place) cursor() string {
	if p.none() {
		return ""
	}
	return p.score + "." + p.id
}

func parseCursor(cursor string) (place, error) {
	if cursor == "" {
		return place{}, nil
	}
	score, id, _ := strings.Cut(cursor, ".")
	n, err := strconv.ParseInt(score, 10, 64)
	if err != nil || n < 0 || id == "" {
		return place{}, store.BadCursor(cursor)
	}
	return place{score, id}, nil
}

// listing is one list request: the script and what tells it the rows to choose.
type listing struct {
	what   string
	script *script
	env    string
	index  func(k keys, env string) string
	choose []any
}

// row is a row of a list and its place.
type row struct {
	place
	parts []any
}

// source is one index to list from.
type source struct {
	keys
	index string
}

// sources returns the indexes of the listing: one a partition, or one for each
// environment a partition knows when none is asked for.
func (s *Store) sources(ctx context.Context, l listing) ([]source, error) {
	var out []source
	for i := range s.cfg.Partitions {
		k := s.partition(i)
		if l.env != "" {
			out = append(out, source{k, l.index(k, l.env)})
			continue
		}
		reply, err := s.command(ctx, l.what, "smembers", k.envs())
		if err != nil {
			return nil, err
		}
		names := list(reply)
		for n := range names {
			out = append(out, source{k, l.index(k, unescape(text(names, n)))})
		}
	}
	return out, nil
}

// list asks every source for a page and merges them. One that looked at its share
// of rows without filling the page says how far it came: rows older than that are
// left to the next page, since it may have newer ones.
func (s *Store) list(ctx context.Context, l listing, p store.Page, score func([]any) string) ([]row, string, error) {
	if err := p.Check(); err != nil {
		return nil, "", err
	}
	from, err := parseCursor(p.Cursor)
	if err != nil {
		return nil, "", err
	}
	var rows []row
	var horizon place
	sources, err := s.sources(ctx, l)
	if err != nil {
		return nil, "", err
	}
	for _, src := range sources {
		args := append([]any{src.base, from.score, from.id, p.Limit}, l.choose...)
		reply, err := s.read(ctx, l.what, l.script, []string{src.index}, args...)
		if err != nil {
			return nil, "", err
		}
		page := list(reply)
		for _, id := range list(at(page, 3)) {
			s.cfg.Log.LogAttrs(ctx, slog.LevelWarn, "left out of a list: the run cannot be read; see agentos fsck",
				slog.String("doing", l.what), slog.String("run_id", word(id)))
		}
		for _, r := range list(at(page, 0)) {
			parts := list(r)
			rows = append(rows, row{place{score(parts), text(parts, 0)}, parts})
		}
		stop := place{text(page, 1), text(page, 2)}
		if !stop.none() && (horizon.none() || newer(stop, horizon) < 0) {
			horizon = stop
		}
	}
	rows, next := merge(rows, horizon, p.Limit)
	return rows, next.cursor(), nil
}

// merge sorts the rows of all sources and cuts them at the limit and at the
// horizon, which is where the next page begins.
func merge(rows []row, horizon place, limit int) ([]row, place) {
	slices.SortFunc(rows, func(a, b row) int { return newer(a.place, b.place) })
	if !horizon.none() {
		n := slices.IndexFunc(rows, func(r row) bool { return newer(r.place, horizon) > 0 })
		if n >= 0 {
			rows = rows[:n]
		}
	}
	if len(rows) > limit {
		rows = rows[:limit]
		horizon = rows[limit-1].place
	}
	return rows, horizon
}

// Runs lists runs, newest first.
func (s *Store) Runs(ctx context.Context, f store.RunFilter, p store.Page) ([]store.View, string, error) {
	l := listing{what: "list runs", script: s.scripts.runs, env: f.Env}
	l.choose = []any{escape(f.Agent), escape(f.Capability), escape(f.SessionID), string(f.Status)}
	l.index = func(k keys, env string) string {
		if f.Status != "" {
			return k.runsBy(env, f.Status)
		}
		return k.runIndex(env)
	}
	rows, next, err := s.list(ctx, l, p, func(parts []any) string { return createdScore(list(at(parts, 1))) })
	if err != nil {
		return nil, "", err
	}
	out := make([]store.View, len(rows))
	for i, r := range rows {
		out[i] = view(r.id, r.parts[1:])
	}
	return out, next, nil
}

// Holds lists holds, newest first.
func (s *Store) Holds(ctx context.Context, f store.HoldFilter, p store.Page) ([]holds.Hold, string, error) {
	before := ""
	if !f.OpenedBefore.IsZero() {
		before = strconv.FormatInt(ceilMillis(f.OpenedBefore), 10)
	}
	l := listing{what: "list holds", script: s.scripts.holds, env: f.Env}
	l.choose = []any{escape(f.Agent), string(f.Status), before}
	l.index = func(k keys, env string) string {
		if f.Status != "" {
			return k.holdsBy(env, f.Status)
		}
		return k.holdIndex(env)
	}
	rows, next, err := s.list(ctx, l, p, func(parts []any) string { return text(parts, 2) })
	if err != nil {
		return nil, "", err
	}
	var out []holds.Hold
	for _, r := range rows {
		h, err := hold(r.id, at(r.parts, 1))
		if err != nil {
			h = &holds.Hold{ID: r.id, RunID: store.RunOfHold(r.id)} // one unreadable hold hides no other
		}
		out = append(out, *h)
	}
	return out, next, nil
}
