package inbox

import (
	"bytes"
	"encoding/json"
	"fmt"
	"html/template"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"agentos/api"
	"agentos/internal/rawjson"
	"agentos/internal/visible"
)

// functions are what the templates can call. None of them returns HTML: every
// piece of text goes through the escaping of html/template.
func (in *Inbox) functions() template.FuncMap {
	return template.FuncMap{
		"static": in.address, "text": text, "line": line, "json": tokens, "raw": rawBytes, "warnings": warnings,
		"ago": in.ago, "left": in.left, "urgent": in.urgent, "stamp": stamp, "duration": duration, "count": count,
		"path": url.PathEscape, "plain": visible.Text, "verb": verb, "done": done, "quorum": quorum, "shortID": shortID,
		"prompt": prompt, "list": func(items ...any) []any { return items },
	}
}

// text splits a text of several lines for showing.
func text(s string) []visible.Part { return visible.Parts(s, true) }

// line splits a text of one line for showing.
func line(s string) []visible.Part { return visible.Parts(s, false) }

// token is a piece of a JSON text: white space and punctuation, or one value or
// name, which is kept apart from its neighbours so that letters written from right
// to left cannot reorder them.
type token struct {
	Class string
	Parts []visible.Part
}

// tokens returns raw over several lines, every value in its own bytes.
func tokens(raw json.RawMessage) []token {
	pretty, err := indented(raw)
	if err != nil {
		return []token{{Class: "s", Parts: visible.Parts(string(raw), true)}}
	}
	var out []token
	add := func(class, s string) { out = append(out, token{Class: class, Parts: visible.Parts(s, class == "")}) }
	for len(pretty) > 0 {
		var end int
		class := ""
		switch c := pretty[0]; {
		case c == '"':
			if end, class = stringEnd(pretty), "s"; strings.HasPrefix(pretty[end:], ":") {
				class = "k"
			}
		case c == '-' || c >= '0' && c <= '9':
			end, class = extent(pretty, func(r rune) bool { return strings.ContainsRune("+-.eE0123456789", r) }), "n"
		case unicode.IsLetter(rune(c)):
			end, class = extent(pretty, unicode.IsLetter), "l"
		default:
			end = extent(pretty, func(r rune) bool { return strings.ContainsRune("{}[],: \n", r) })
		}
		end = max(end, 1)
		add(class, pretty[:end])
		pretty = pretty[end:]
	}
	return out
}

func indented(raw json.RawMessage) (string, error) {
	if err := rawjson.Check(raw); err != nil {
		return "", err
	}
	var buf bytes.Buffer
	err := json.Indent(&buf, raw, "", "  ")
	return buf.String(), err
}

// stringEnd is the length of the JSON string that s begins with.
func stringEnd(s string) int {
	for i := 1; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(s)
}

// extent is the length of the beginning of s in which every rune fits.
func extent(s string, fits func(rune) bool) int {
	if i := strings.IndexFunc(s, func(r rune) bool { return !fits(r) }); i >= 0 {
		return i
	}
	return len(s)
}

// rawText is a JSON text in its own bytes, on one line.
type rawText struct {
	Parts []visible.Part
	Bytes int
}

func rawBytes(raw json.RawMessage) rawText {
	return rawText{Parts: visible.Parts(string(raw), false), Bytes: len(raw)}
}

// warnings tell about the characters of raw that do not show what they are, one
// sentence each.
func warnings(raw json.RawMessage) []string {
	var names [2][]string
	var counts [2]int
	for _, p := range visible.Parts(string(raw), false) {
		i := 0
		switch p.Mark {
		case visible.Plain:
			continue
		case visible.Lookalike:
			i = 1
		case visible.Unseen:
			if p.Text == `\u000a` || p.Text == `\u0009` || p.Text == `\u000d` {
				continue // white space between values
			}
		}
		counts[i]++
		if !slices.Contains(names[i], p.Name) && len(names[i]) < 8 {
			names[i] = append(names[i], p.Name)
		}
	}
	var out []string
	if counts[0] > 0 {
		out = append(out, count(counts[0], "character")+" that cannot be seen, written as an escape: "+strings.Join(names[0], ", ")+".")
	}
	if counts[1] > 0 {
		out = append(out, count(counts[1], "letter")+" that looks like another: "+strings.Join(names[1], ", ")+".")
	}
	return out
}

// count writes a number with its noun.
func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return strconv.Itoa(n) + " " + noun + "s"
}

// stamp is a moment as titles show it.
func stamp(t api.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") }

// ago is how long a moment is past.
func (in *Inbox) ago(t api.Time) string {
	d := in.cfg.Clock.Now().Sub(t.Time)
	if d < time.Minute {
		return "just now"
	}
	return span(d) + " ago"
}

// left is how long a moment is ahead.
func (in *Inbox) left(t api.Time) string {
	d := t.Sub(in.cfg.Clock.Now())
	switch {
	case d <= 0:
		return "expired"
	case d < time.Minute:
		return "less than a minute"
	}
	return span(d)
}

// soon is when a deadline becomes urgent.
const soon = time.Hour

// urgent reports whether a deadline is near or over.
func (in *Inbox) urgent(t api.Time) bool { return t.Sub(in.cfg.Clock.Now()) < soon }

// span writes a duration of a minute or more in its largest unit or two.
func span(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d < time.Hour:
		return strconv.Itoa(int(d/time.Minute)) + " min"
	case d < day:
		h, m := int(d/time.Hour), int(d%time.Hour/time.Minute)
		if m == 0 || h >= 6 {
			return strconv.Itoa(h) + " h"
		}
		return fmt.Sprintf("%d h %d min", h, m)
	}
	return count(int(d/day), "day")
}

// duration writes milliseconds.
func duration(ms int64) string {
	switch d := time.Duration(ms) * time.Millisecond; {
	case d < time.Second:
		return strconv.FormatInt(ms, 10) + " ms"
	case d < time.Minute:
		return strconv.FormatInt(ms/1000, 10) + "." + strconv.FormatInt(ms%1000/100, 10) + " s"
	default:
		return d.Truncate(time.Second).String()
	}
}

// shortID is the end of an id, where ids differ.
func shortID(id string) string {
	const most = 10
	if len(id) <= most {
		return id
	}
	return "…" + id[len(id)-most:]
}

// verb is an action as a button says it.
func verb(action string) string {
	switch action {
	case "approve":
		return "Approve"
	case "edit":
		return "Approve with changes"
	case "reject":
		return "Reject"
	case "ran":
		return "It ran"
	case "retry":
		return "Run it again"
	case "skip":
		return "Go on without knowing"
	}
	return visible.Text(action)
}

// done is a decision as a sentence says it.
func done(action string) string {
	switch action {
	case "approve":
		return "Approved"
	case "edit":
		return "Approved with changes"
	case "reject":
		return "Rejected"
	case "ran":
		return "Said to have run"
	case "retry":
		return "Run again"
	case "skip":
		return "Left unknown"
	}
	return visible.Text(action)
}

// progress is how far the votes on an item have come.
type progress struct {
	// Have of Need people have approved.
	Have, Need int
	// Lines tell who voted, and who may, one sentence each.
	Lines []string
}

// quorum tells who may decide an item and how far their votes have come. It is nil
// where one decision of anybody who may decide at all is enough.
func quorum(it api.Item) *progress {
	r := it.Reviewers
	if r == nil {
		return nil
	}
	p := &progress{Have: it.Approvals, Need: r.Require}
	for _, s := range r.Sets {
		p.Lines = append(p.Lines, "May be decided by "+people(s.Roles, s.Users)+" (rule "+s.Rule+").")
		if e := s.Escalate; e != nil {
			p.Lines = append(p.Lines, "From "+stamp(e.At)+" on also by "+people(e.Roles, e.Users)+".")
		}
	}
	if r.NotRequester {
		p.Lines = append(p.Lines, "Not by the person who asked for the run.")
	}
	for _, v := range it.Votes {
		said := done(v.Action) + " by " + v.By + ", " + stamp(v.At)
		if v.Reason != "" {
			said += ": " + v.Reason
		}
		if v.Void {
			said += " (for other arguments, which were edited since)"
		}
		p.Lines = append(p.Lines, said)
	}
	return p
}

// people says who has one of the roles or one of the names.
func people(roles, users []string) string {
	who := slices.Clone(users)
	if len(roles) > 0 {
		who = append(who, "the role "+strings.Join(roles, " or "))
	}
	return strings.Join(who, " or ")
}
