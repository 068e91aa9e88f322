package inbox

import (
	"context"
	"encoding/json"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"agentos/api"
	"agentos/internal/problem"
	"agentos/internal/rawjson"
	"agentos/internal/visible"
)

// pageSize is how many holds or runs a page lists.
const pageSize = 50

// ages are the choices of the filter by age.
func ages() []string { return []string{"15m", "1h", "24h", "168h"} }

// statuses are the choices of the filter by status.
func statuses() []string { return []string{"pending", "decided", "expired", "cancelled"} }

// holdList is the data of the inbox.
type holdList struct {
	live
	Status, Agent, Age   string
	Statuses, Ages       []string
	Agents               []string
	Holds                []holdRow
	First, Next          string
	Pending, Filtered    bool
	Selectable, Waitings int
}

// holdRow is one hold in a list.
type holdRow struct {
	api.Hold
	Items []itemRow
	// Tick is what a tick posts: the hold and the revision that is shown. It is ""
	// when the hold cannot be decided with others.
	Tick string
}

// itemRow is one item of a hold in a list.
type itemRow struct {
	api.Item
	// Preview are the arguments on one line, shortened; a list is not what
	// somebody decides by.
	Preview string
	Why     string
	Odd     bool
}

// clip shortens a text that only informs.
func clip(s string, most int) string {
	if utf8.RuneCountInString(s) <= most {
		return s
	}
	return string([]rune(s)[:most]) + "…"
}

func toRow(h api.Hold) holdRow {
	row := holdRow{Hold: h}
	if h.Status == api.HoldPending && h.Kind == "tool_call" {
		row.Tick = tick(h)
	}
	for _, it := range h.Items {
		compact, err := rawjson.Compact(it.Data)
		if err != nil {
			compact = it.Data
		}
		row.Items = append(row.Items, itemRow{
			Item: it, Preview: clip(string(compact), 200), Why: why(it), Odd: len(warnings(it.Data)) > 0,
		})
		// Once is enough for items that are asked about for the same reason.
		if n := len(row.Items); n > 1 && row.Items[n-2].Why == row.Items[n-1].Why {
			row.Items[n-2].Why = ""
		}
	}
	return row
}

// why says in one line why a person is asked.
func why(it api.Item) string {
	if it.Reason != "" {
		return it.Reason
	}
	if len(it.Rules) > 0 {
		return "Rule " + strings.Join(it.Rules, ", ") + " asks."
	}
	return "Policy asks."
}

// holdQuery reads the filter of a list from the address.
func holdQuery(v *visit) (HoldQuery, holdList, error) {
	q := v.r.URL.Query()
	l := holdList{Status: q.Get("status"), Agent: q.Get("agent"), Age: q.Get("age"), Statuses: statuses(), Ages: ages()}
	if !q.Has("status") {
		l.Status = "pending"
	}
	out := HoldQuery{Status: l.Status, Agent: l.Agent, Cursor: q.Get("cursor"), Limit: pageSize}
	if l.Status != "" && !slices.Contains(l.Statuses, l.Status) {
		return out, l, problem.New(problem.InvalidRequest, "no holds have that status; choose one of the list")
	}
	if l.Age != "" {
		d, err := time.ParseDuration(l.Age)
		if err != nil || d <= 0 {
			return out, l, problem.New(problem.InvalidRequest, "the age must be a duration such as 1h")
		}
		out.OlderThan = d
	}
	l.Pending = l.Status == "pending"
	l.Filtered = l.Agent != "" || l.Age != "" || !l.Pending
	return out, l, nil
}

// holdsPage reads what the inbox shows.
func (in *Inbox) holdsPage(ctx context.Context, v *visit) (holdList, error) {
	query, l, err := holdQuery(v)
	if err != nil {
		return l, err
	}
	list, err := in.cfg.Backend.Holds(ctx, v.who, query)
	if err != nil {
		return l, err
	}
	for _, h := range list.Holds {
		row := toRow(h)
		if row.Tick != "" {
			l.Selectable++
		}
		l.Holds = append(l.Holds, row)
	}
	self := v.r.URL.Query()
	if list.NextCursor != "" {
		self.Set("cursor", list.NextCursor)
		l.Next = "/?" + self.Encode()
	}
	if query.Cursor != "" {
		self.Del("cursor")
		l.First = "/?" + self.Encode()
	}
	l.live, err = in.liveOf("holds", "/inbox", "/inbox/live/holds", v.r.URL.Query(), l)
	return l, err
}

func (in *Inbox) showHolds(ctx context.Context, v *visit) (*page, error) {
	l, err := in.holdsPage(ctx, v)
	if err != nil {
		return nil, err
	}
	agents, err := in.cfg.Backend.Agents(ctx, v.who)
	if err != nil {
		return nil, err
	}
	for _, a := range agents.Agents {
		l.Agents = append(l.Agents, a.Name)
	}
	if l.Agent != "" && !slices.Contains(l.Agents, l.Agent) {
		l.Agents = append(l.Agents, l.Agent)
	}
	return &page{name: "holds", title: "Inbox", tab: "holds", data: l}, nil
}

// holdPage is the data of the page of one hold.
type holdPage struct {
	live
	Hold  api.Hold
	Items []itemCard
	// Open are the ids of the items nobody has decided.
	Open []string
	// Run is what happened so far: nil when its journal cannot be read.
	Run *story
	// Seen is the revision a page that is still open was made for; 0 none.
	Seen int64
	// Conflict says that a decision came too late, or did not fit; Details where.
	Conflict string
	Details  []problem.Detail
	// Tried is the action that was refused.
	Tried   string
	Preview *preview
	Urgent  bool
	// Reason is what was written, so that a refusal does not lose it.
	Reason string
	NextID string
}

// Pending reports whether the hold can be decided.
func (p *holdPage) Pending() bool { return p.Hold.Status == api.HoldPending }

// Stale reports whether a page made for revision Seen is out of date.
func (p *holdPage) Stale() bool { return p.Seen != 0 && p.Seen != p.Hold.Revision }

// Offers reports whether the page offers to approve changes to an item. The item as
// it was proposed is not offered beside them: two buttons that approve would invite
// the wrong one.
func (p *holdPage) Offers(item string) bool {
	c := p.Preview
	return c != nil && c.ItemID == item && !c.Same && len(c.Faults) == 0
}

// itemCard is one item on the page of its hold.
type itemCard struct {
	api.Item
	Why string
	// Form is nil when the arguments can only be edited as JSON.
	Form *form
	// JSON is the text of the editor, and Base the arguments that an edit is
	// compared with.
	JSON  string
	Fault string
	// Texts are long texts among the arguments as a reader reads them.
	Texts []longText
	// Editing opens the editor.
	Editing bool
}

// longText is a text in the arguments that is hard to read as JSON.
type longText struct {
	Path string
	Text string
}

func toCard(it api.Item) itemCard {
	return itemCard{
		Item: it, Why: why(it), Form: newForm(it.Schema, it.Data), JSON: visible.JSON(it.Data, ""), Texts: longTexts(it.Data),
	}
}

// longTexts are the members of an object that are texts of several lines, or long.
func longTexts(data json.RawMessage) []longText {
	fields, err := rawjson.Fields(data)
	if err != nil {
		return nil
	}
	const long = 120
	var out []longText
	for _, f := range fields {
		if s, ok := rawjson.Text(f.Value); ok && (len(s) > long || strings.Contains(s, "\n")) {
			out = append(out, longText{Path: f.Name, Text: s})
		}
	}
	return out
}

// holdAsItStands reads what the page of a hold shows.
func (in *Inbox) holdAsItStands(ctx context.Context, v *visit, id string) (*holdPage, error) {
	h, err := in.cfg.Backend.Hold(ctx, v.who, id)
	if err != nil {
		return nil, err
	}
	p := &holdPage{Hold: h, Urgent: in.urgent(h.ExpiresAt)}
	for _, it := range h.Items {
		p.Items = append(p.Items, toCard(it))
		if it.Decision == nil && p.Pending() {
			p.Open = append(p.Open, it.ID)
		}
	}
	t, err := in.cfg.Backend.Trajectory(ctx, v.who, h.RunID)
	if err == nil {
		p.Run = tell(t)
	} else if problem.CodeOf(err) != problem.JournalDamaged {
		return nil, err
	}
	return p, nil
}

func (in *Inbox) showHold(ctx context.Context, v *visit) (*page, error) {
	p, err := in.holdAsItStands(ctx, v, v.args[0])
	if err != nil {
		return nil, err
	}
	if p.Seen, err = revision(v.r.URL.Query().Get("seen")); err != nil {
		return nil, err
	}
	return in.holdAnswer(ctx, v, p)
}

// holdAnswer makes the page of a hold.
func (in *Inbox) holdAnswer(ctx context.Context, v *visit, p *holdPage) (*page, error) {
	var err error
	here := "/inbox/holds/" + url.PathEscape(p.Hold.HoldID)
	seen := p.Seen
	if seen == 0 {
		seen = p.Hold.Revision
	}
	query := url.Values{"seen": {itoa(seen)}}
	if p.live, err = in.liveOf("hold", here, "/inbox/live/holds/"+url.PathEscape(p.Hold.HoldID), query, p); err != nil {
		return nil, err
	}
	if !p.Pending() {
		p.NextID = in.nextPending(ctx, v)
	}
	out := &page{name: "hold", title: visible.Text(clip(p.Hold.Intent, 80)), tab: "holds", data: p}
	return out, nil
}

// nextPending is the oldest hold of the first page that still waits, for going on
// with the work; "" when there is none or the list cannot be read.
func (in *Inbox) nextPending(ctx context.Context, v *visit) string {
	list, err := in.cfg.Backend.Holds(ctx, v.who, HoldQuery{Status: string(api.HoldPending), Limit: pageSize})
	if err != nil || len(list.Holds) == 0 {
		return ""
	}
	return list.Holds[len(list.Holds)-1].HoldID
}
