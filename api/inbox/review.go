package inbox

import (
	"context"
	"net/http"
	"strings"

	"agentos/api"
	"agentos/internal/problem"
)

// maxReview is how many holds are decided at once: more than that nobody has
// looked at.
const maxReview = 25

// tick is what stands for a hold at the revision that was shown.
func tick(h api.Hold) string { return h.HoldID + "@" + itoa(h.Revision) }

// reviewed is one hold of several that are decided at once.
type reviewed struct {
	Row holdRow
	// Items are those nobody has decided, as they are on the page of the hold.
	Items []itemCard
	// Done, Fault and Changed tell how it went; all are zero before.
	Done    bool
	Fault   string
	Changed bool
}

// review is the data of the page that decides several holds.
type review struct {
	Holds []reviewed
	// Open is how many of them can be decided.
	Open int
	// Action is what was posted, "" before.
	Action string
	Failed int
	Reason string
}

// showReview shows the holds that were ticked, whole.
func (in *Inbox) showReview(ctx context.Context, v *visit) (*page, error) {
	r := review{}
	ticks := v.r.URL.Query()["hold"]
	if err := checkTicks(ticks); err != nil {
		return nil, err
	}
	for _, t := range ticks {
		id, seen, err := readTick(t)
		if err != nil {
			return nil, err
		}
		one, err := in.reviewOne(ctx, v, id, seen)
		if err != nil {
			return nil, err
		}
		if one.Row.Tick != "" {
			r.Open++
		}
		r.Holds = append(r.Holds, one)
	}
	return &page{name: "review", title: "Decide " + count(len(r.Holds), "hold"), tab: "holds", data: r}, nil
}

func checkTicks(ticks []string) error {
	if len(ticks) == 0 {
		return problem.New(problem.InvalidRequest, "no hold was chosen; go back and tick those to decide")
	}
	if len(ticks) > maxReview {
		return problem.New(problem.InvalidRequest, "%d holds were chosen; decide at most %d at once", len(ticks), maxReview)
	}
	return nil
}

func readTick(t string) (id string, seen int64, err error) {
	id, rest, _ := strings.Cut(t, "@")
	if seen, err = revision(rest); err == nil && (seen == 0 || id == "") {
		err = problem.New(problem.InvalidRequest, "a hold was named without its revision; go back and reload the list")
	}
	return id, seen, err
}

func (in *Inbox) reviewOne(ctx context.Context, v *visit, id string, seen int64) (reviewed, error) {
	h, err := in.cfg.Backend.Hold(ctx, v.who, id)
	if err != nil {
		return reviewed{}, err
	}
	return toReviewed(h, seen), nil
}

// toReviewed shows a hold; seen is the revision that was looked at before.
func toReviewed(h api.Hold, seen int64) reviewed {
	out := reviewed{Row: toRow(h), Changed: h.Revision != seen}
	for _, it := range h.Items {
		if it.Decision == nil {
			out.Items = append(out.Items, toCard(it))
		}
	}
	return out
}

// postReview decides every listed hold by itself: one that was overtaken stops no
// other, and the page tells of each how it went.
func (in *Inbox) postReview(ctx context.Context, v *visit) (*page, error) {
	ticks := v.r.PostForm["hold"]
	if err := checkTicks(ticks); err != nil {
		return nil, err
	}
	r := review{Action: v.r.PostForm.Get("action"), Reason: strings.TrimSpace(unixLines(v.r.PostForm.Get("reason")))}
	if r.Action != "approve" && r.Action != "reject" {
		return nil, problem.New(problem.InvalidDecision, "several holds can be approved or rejected")
	}
	for _, t := range ticks {
		id, seen, err := readTick(t)
		if err != nil {
			return nil, err
		}
		one := in.decideOne(ctx, v, id, seen, r)
		if !one.Done {
			r.Failed++
		}
		r.Holds = append(r.Holds, one)
	}
	out := &page{name: "review", title: done(r.Action) + " " + count(len(r.Holds)-r.Failed, "hold"), tab: "holds", data: r}
	if r.Failed > 0 {
		out.status = http.StatusConflict
	}
	return out, nil
}

func (in *Inbox) decideOne(ctx context.Context, v *visit, id string, seen int64, r review) reviewed {
	failed := func(h api.Hold, err error) reviewed {
		one := toReviewed(h, h.Revision)
		if h.HoldID == "" {
			one.Row.HoldID = id
		}
		one.Fault = problem.From(err).Message
		return one
	}
	h, err := in.cfg.Backend.Hold(ctx, v.who, id)
	if err != nil {
		return failed(api.Hold{}, err)
	}
	d := api.Decide{Revision: seen}
	for _, it := range h.Items {
		if it.Decision == nil {
			d.Decisions = append(d.Decisions, api.ItemDecision{ID: it.ID, Action: r.Action, Reason: r.Reason})
		}
	}
	if len(d.Decisions) == 0 {
		return failed(h, problem.New(problem.HoldDecided, "the hold was already decided"))
	}
	now, err := in.cfg.Backend.Decide(ctx, v.who, id, d)
	if err != nil {
		if now.HoldID == "" {
			now = h
		}
		return failed(now, err)
	}
	one := toReviewed(now, now.Revision)
	one.Done = true
	return one
}
