package inbox

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"agentos/api"
	"agentos/internal/problem"
	"agentos/internal/rawjson"
	"agentos/internal/schema"
	"agentos/internal/visible"
)

func itoa(n int64) string { return strconv.FormatInt(n, 10) }

// revision reads the revision that a page was made for; "" is 0, not said.
func revision(text string) (int64, error) {
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 1 {
		return 0, problem.New(problem.InvalidRequest, "the revision of the page is missing or malformed; reload the page")
	}
	return n, nil
}

// postedRevision reads the revision from a form, in which it must stand: whoever
// decides has looked at something.
func postedRevision(v *visit) (int64, error) {
	n, err := revision(v.r.PostForm.Get("revision"))
	if err == nil && n == 0 {
		err = problem.New(problem.InvalidRequest, "the form does not say which revision of the hold was looked at; reload the page")
	}
	return n, err
}

// postDecision decides the items that the form names.
func (in *Inbox) postDecision(ctx context.Context, v *visit) (*page, error) {
	id, post := v.args[0], v.r.PostForm
	seen, err := postedRevision(v)
	if err != nil {
		return nil, err
	}
	d := api.Decide{Revision: seen}
	for _, item := range post["item"] {
		one := api.ItemDecision{ID: item, Action: post.Get("action"), Reason: strings.TrimSpace(unixLines(post.Get("reason")))}
		if one.Data, err = postedData(one.Action, post); err != nil {
			return nil, err
		}
		d.Decisions = append(d.Decisions, one)
	}
	if len(d.Decisions) == 0 {
		return nil, problem.New(problem.InvalidDecision, "the form names no item to decide")
	}
	now, err := in.cfg.Backend.Decide(ctx, v.who, id, d)
	if err != nil {
		return in.refused(ctx, v, now, d, err)
	}
	return &page{to: "/inbox/holds/" + url.PathEscape(id)}, nil
}

// unixLines undoes what browsers do to line breaks.
func unixLines(s string) string { return strings.ReplaceAll(s, "\r\n", "\n") }

// postedData is the data that goes with an action: of edit the arguments that
// were shown, of ran the result that somebody wrote.
func postedData(action string, post url.Values) (json.RawMessage, error) {
	switch action {
	case "edit":
		raw := json.RawMessage(post.Get("data"))
		if err := rawjson.Check(raw); err != nil {
			return nil, problem.New(problem.InvalidDecision, "the edited arguments are no JSON: %v", err)
		}
		return raw, nil
	case "ran":
		result := unixLines(post.Get("result"))
		if post.Get("form") != "json" {
			return rawjson.Quote(result), nil
		}
		if err := rawjson.Check([]byte(result)); err != nil {
			return nil, problem.New(problem.InvalidDecision, "the result is no JSON: %v; choose text when it is none", err)
		}
		return rawjson.Compact([]byte(result))
	}
	return nil, nil
}

// refused shows the hold as it stands with why the decision was not taken. now is
// empty when the error is not about the hold.
func (in *Inbox) refused(ctx context.Context, v *visit, now api.Hold, d api.Decide, cause error) (*page, error) {
	fault := problem.From(cause)
	status := in.cfg.Status(fault.Code)
	if now.HoldID == "" || status >= http.StatusInternalServerError {
		return nil, cause
	}
	p, err := in.holdAsItStands(ctx, v, now.HoldID)
	if err != nil {
		return nil, err
	}
	p.Conflict, p.Details, p.Tried, p.Reason = fault.Message, fault.Details, d.Decisions[0].Action, d.Decisions[0].Reason
	for i := range p.Items {
		if d.Decisions[0].Action == "edit" && p.Items[i].ID == d.Decisions[0].ID {
			p.Items[i].Editing, p.Items[i].JSON = true, visible.JSON(d.Decisions[0].Data, "")
		}
	}
	out, err := in.holdAnswer(ctx, v, p)
	if err != nil {
		return nil, err
	}
	out.status = status
	return out, nil
}

// preview is an edit before it is posted.
type preview struct {
	ItemID string
	Data   json.RawMessage
	Lines  []change
	// Same says that nothing was changed.
	Same   bool
	Faults []problem.Detail
}

// previewEdit shows what an edit would change, and what is wrong with it. Nothing
// is decided.
func (in *Inbox) previewEdit(ctx context.Context, v *visit) (*page, error) {
	post := v.r.PostForm
	seen, err := postedRevision(v)
	if err != nil {
		return nil, err
	}
	p, err := in.holdAsItStands(ctx, v, v.args[0])
	if err != nil {
		return nil, err
	}
	p.Seen, p.Reason = seen, post.Get("reason")
	i := slices.IndexFunc(p.Items, func(c itemCard) bool { return c.ID == post.Get("item") })
	switch {
	case p.Stale() || !p.Pending():
		out, err := in.holdAnswer(ctx, v, p)
		if err == nil {
			out.status = http.StatusConflict
		}
		return out, err
	case i < 0 || p.Items[i].Decision != nil:
		return nil, problem.New(problem.InvalidDecision, "there is no such item to edit in this hold")
	}
	card := &p.Items[i]
	card.Editing = true
	data, faults, err := card.edited(post)
	if err != nil {
		return nil, err
	}
	out := &preview{ItemID: card.ID, Data: data, Faults: faults}
	if len(faults) == 0 {
		out.Faults = checkSchema(card.Schema, data)
		out.Same = rawjson.Equal(data, card.Data)
		out.Lines = differences(card.Data, data)
		card.JSON = visible.JSON(data, "")
	}
	p.Preview = out
	answer, err := in.holdAnswer(ctx, v, p)
	if err == nil && len(out.Faults) > 0 {
		answer.status = http.StatusUnprocessableEntity
	}
	return answer, err
}

// edited reads the arguments from the form or the JSON editor, compact, and keeps
// what was written in the card.
func (c *itemCard) edited(post url.Values) (json.RawMessage, []problem.Detail, error) {
	if post.Get("by") == "form" && c.Form != nil {
		if post.Get("digest") != c.Form.Digest {
			return nil, nil, problem.New(problem.HoldStale, "the form was made for other arguments; reload the page")
		}
		data, faults := c.Form.read(post)
		if len(faults) > 0 {
			return nil, faults, nil
		}
		compact, err := rawjson.Compact(data)
		return compact, nil, err
	}
	c.JSON = unixLines(post.Get("json"))
	data, faults := written(c.JSON)
	if len(faults) == 0 && rawjson.Kind(data) != "object" {
		faults = []problem.Detail{{Message: "must be an object"}}
	}
	return data, faults, nil
}

// written reads JSON that somebody wrote: compact, every value in its own bytes.
func written(text string) (json.RawMessage, []problem.Detail) {
	err := rawjson.Check([]byte(text))
	if err == nil {
		var compact json.RawMessage
		if compact, err = rawjson.Compact([]byte(text)); err == nil {
			return compact, nil
		}
	}
	return nil, []problem.Detail{{Message: "is not JSON: " + err.Error()}}
}

// checkSchema is what a schema says about arguments or an input before they are
// sent, so that the form keeps what was written; the engine has the last word. A
// schema that cannot be used says nothing.
func checkSchema(raw, data json.RawMessage) []problem.Detail {
	if len(raw) == 0 {
		return nil
	}
	if s, err := schema.Compile(raw, schema.Options{Lenient: true}); err == nil {
		return s.Validate(data)
	}
	return nil
}
