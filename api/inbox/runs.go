package inbox

import (
	"context"
	"encoding/json"
	"net/url"
	"slices"
	"strings"

	"agentos/api"
	"agentos/internal/problem"
	"agentos/internal/rawjson"
)

// runList is the data of the list of runs.
type runList struct {
	live
	Status, Agent    string
	Statuses, Agents []string
	Runs             []runRow
	First, Next      string
}

// runRow is one run in a list.
type runRow struct {
	api.Run
	// Preview is the input on one line, shortened.
	Preview string
}

// runStatuses are the choices of the filter by status.
func runStatuses() []string {
	return []string{"queued", "running", "held", "completed", "failed", "cancelled"}
}

func (in *Inbox) runsPage(ctx context.Context, v *visit) (runList, error) {
	q := v.r.URL.Query()
	l := runList{Status: q.Get("status"), Agent: q.Get("agent"), Statuses: runStatuses()}
	if l.Status != "" && !slices.Contains(l.Statuses, l.Status) {
		return l, problem.New(problem.InvalidRequest, "no runs have that status; choose one of the list")
	}
	list, err := in.cfg.Backend.Runs(ctx, v.who, RunQuery{Status: l.Status, Agent: l.Agent, Cursor: q.Get("cursor"), Limit: pageSize})
	if err != nil {
		return l, err
	}
	for _, r := range list.Runs {
		l.Runs = append(l.Runs, runRow{Run: r, Preview: clip(string(r.Input), 160)})
	}
	self := v.r.URL.Query()
	if list.NextCursor != "" {
		self.Set("cursor", list.NextCursor)
		l.Next = "/inbox/runs?" + self.Encode()
	}
	if q.Get("cursor") != "" {
		self.Del("cursor")
		l.First = "/inbox/runs?" + self.Encode()
	}
	l.live, err = in.liveOf("runs", "/inbox/runs", "/inbox/live/runs", v.r.URL.Query(), l)
	return l, err
}

func (in *Inbox) showRuns(ctx context.Context, v *visit) (*page, error) {
	l, err := in.runsPage(ctx, v)
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
	return &page{name: "runs", title: "Runs", tab: "runs", data: l}, nil
}

// story is a run as people read it.
type story struct {
	api.Trajectory
	Turns []storyTurn
	// Early are recoveries before the first answer of the model.
	Early []api.Recovery
	// Prompt is the input as a text, when it is nothing else.
	Prompt string
}

// storyTurn is one model call, what came of it, and what happened until the next.
type storyTurn struct {
	api.Turn
	// Text is what the model said besides its calls.
	Text  string
	Holds []api.HoldEvent
	// Recoveries are take-overs before the next turn.
	Recoveries []api.Recovery
}

// tell makes a story of a trajectory.
func tell(t api.Trajectory) *story {
	s := &story{Trajectory: t, Prompt: prompt(t.Run.Input)}
	for _, turn := range t.Turns {
		s.Turns = append(s.Turns, storyTurn{Turn: turn, Text: spoken(turn.Message)})
	}
	for _, h := range t.Holds {
		i := slices.IndexFunc(s.Turns, func(turn storyTurn) bool {
			return slices.ContainsFunc(turn.Calls, func(c api.Call) bool { return slices.Contains(h.Items, c.ID) })
		})
		if i >= 0 {
			s.Turns[i].Holds = append(s.Turns[i].Holds, h)
		}
	}
	for _, r := range t.Recoveries {
		at := -1
		for i, turn := range s.Turns {
			if !r.At.Before(turn.At.Time) {
				at = i
			}
		}
		if at < 0 {
			s.Early = append(s.Early, r)
			continue
		}
		s.Turns[at].Recoveries = append(s.Turns[at].Recoveries, r)
	}
	return s
}

// prompt is the text of an input that has a single member, a text; else "".
func prompt(input json.RawMessage) string {
	fields, err := rawjson.Fields(input)
	if err != nil || len(fields) != 1 {
		return ""
	}
	s, _ := rawjson.Text(fields[0].Value)
	return s
}

// spoken is the text of an assistant message: its content, or the text parts of it.
func spoken(message json.RawMessage) string {
	content := rawjson.Get(message, "content")
	if s, ok := rawjson.Text(content); ok {
		return s
	}
	parts, err := rawjson.Elements(content)
	if err != nil {
		return ""
	}
	var all []string
	for _, p := range parts {
		if s, ok := rawjson.Text(rawjson.Get(p, "text")); ok {
			all = append(all, s)
		}
	}
	return strings.Join(all, "\n")
}

// runView is the data of the page of one run.
type runView struct {
	live
	*story
}

// Open reports whether the run can still be cancelled.
func (p runView) Open() bool { return !p.Run.Status.Finished() }

func (in *Inbox) runPage(ctx context.Context, v *visit) (runView, error) {
	t, err := in.cfg.Backend.Trajectory(ctx, v.who, v.args[0])
	if err != nil {
		return runView{}, err
	}
	p := runView{story: tell(t)}
	here := url.PathEscape(t.Run.RunID)
	p.live, err = in.liveOf("run", "/inbox/runs/"+here, "/inbox/live/runs/"+here, nil, p)
	if !p.Open() {
		p.Stream = "" // nothing will change any more
	}
	return p, err
}

func (in *Inbox) showRun(ctx context.Context, v *visit) (*page, error) {
	p, err := in.runPage(ctx, v)
	if err != nil {
		return nil, err
	}
	return &page{name: "run", title: "Run of " + p.Run.Agent + "/" + p.Run.Capability, tab: "runs", data: p}, nil
}

func (in *Inbox) postCancel(ctx context.Context, v *visit) (*page, error) {
	r, err := in.cfg.Backend.Cancel(ctx, v.who, v.args[0])
	if err != nil {
		return nil, err
	}
	return &page{to: "/inbox/runs/" + url.PathEscape(r.RunID)}, nil
}
