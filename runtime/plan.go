package runtime

import (
	"strings"
	"time"

	"agentos/holds"
	"agentos/holds/policy"
	"agentos/internal/problem"
	"agentos/internal/rawjson"
	"agentos/runtime/journal"
	"agentos/runtime/mcp"
)

// defaultExpiry is how long a hold waits when no rule says otherwise.
const defaultExpiry = 7 * 24 * time.Hour

// plan is what to do next about calls that have not finished. The three parts
// exclude each other from top to bottom: a hold is opened only when nothing is
// left to run, so that a person sees what already ran.
type plan struct {
	// fail ends the run.
	fail *problem.Error
	// finish are calls that end without running.
	finish []journal.Finished
	// start are calls to run now.
	start []ready
	// ask are the items a person must decide, all of kind kind.
	ask     []holds.Item
	kind    holds.Kind
	expires time.Duration
	onFail  policy.OnExpire
}

// ready is a call that may run, with the tool it will run.
type ready struct {
	call *journal.Call
	tool mcp.Tool
}

// plan decides about every open call from the journal, today's tools and today's
// policy.
func (w *run) plan(open []*journal.Call) plan {
	p := plan{expires: defaultExpiry}
	var unknown, gated []holds.Item
	sequential := !w.capability.Loop.ParallelCalls
	for _, c := range open {
		if sequential && (len(p.start) > 0) {
			break
		}
		switch v := w.judge(c); {
		case v.fail != nil:
			return plan{fail: v.fail}
		case v.finish != nil:
			p.finish = append(p.finish, *v.finish)
		case v.unknown != nil:
			unknown = append(unknown, *v.unknown)
		case v.ask != nil:
			gated = append(gated, *v.ask)
			p.shorten(v.verdict)
		case sequential && len(unknown)+len(gated) > 0:
			// An earlier call waits for a person; this one waits for it.
		default:
			p.start = append(p.start, ready{call: c, tool: v.tool})
		}
	}
	switch {
	case len(p.start) > 0:
	case len(unknown) > 0:
		p.ask, p.kind, p.expires, p.onFail = unknown, holds.OutcomeUnknown, defaultExpiry, policy.RejectOnExpire
	case len(gated) > 0:
		p.ask, p.kind = gated, holds.ToolCall
	}
	return p
}

// shorten makes the hold expire as soon as the strictest of its rules says.
func (p *plan) shorten(v policy.Verdict) {
	if v.Expires > 0 {
		p.expires = min(p.expires, v.Expires)
	}
	if v.OnExpire == policy.FailOnExpire {
		p.onFail = policy.FailOnExpire
	}
}

// judgement is what to do about one call; exactly one of the pointers is set, or
// none when the call may run as tool.
type judgement struct {
	fail    *problem.Error
	finish  *journal.Finished
	unknown *holds.Item
	ask     *holds.Item
	tool    mcp.Tool
	verdict policy.Verdict
}

func (w *run) judge(c *journal.Call) judgement {
	if c.Started != nil {
		return w.judgeStarted(c)
	}
	if d := c.Decision; d != nil && d.Action == holds.Reject {
		return judgement{finish: finish(c, journal.Rejected, declined(d.Reason))}
	}
	if c.Expired {
		if c.ExpiryFails {
			return judgement{fail: problem.New(problem.HoldExpired, "nobody decided about %s in time", c.Tool)}
		}
		return judgement{finish: finish(c, journal.Expired, "Nobody decided about this tool call in time, so it did not run.")}
	}
	tool, ok := w.tool(c.Server, c.Tool)
	if !ok {
		return judgement{finish: w.gone(c)}
	}
	v := w.verdict(w.toolSet(), tool, c.Effective())
	switch {
	case v.Effect == policy.Deny:
		return judgement{finish: finish(c, journal.Denied, deniedText(v))}
	case c.Approved() && c.Item.ToolDigest != tool.Digest:
		return judgement{ask: changedItem(c, tool, v), verdict: v}
	case c.Approved():
		return judgement{tool: tool}
	case c.Verdict.Effect == policy.Ask || v.Effect == policy.Ask || c.Item != nil:
		return judgement{ask: item(c, tool, v), verdict: v}
	}
	return judgement{tool: tool}
}

// judgeStarted decides about a call that was started and whose end nobody saw. It
// runs again where its effect class or a person says so, under the same gates as
// the first time: policy of today, and the definition that was seen.
func (w *run) judgeStarted(c *journal.Call) judgement {
	if f := resolved(c); f != nil {
		return judgement{finish: f}
	}
	retry := c.Resolution != nil // what was answered is to run it again
	tool, ok := w.tool(c.Server, c.Tool)
	if !ok {
		return w.judgeLost(c, tool, retry, "its tool is not offered now")
	}
	v := w.verdict(w.toolSet(), tool, c.Started.Arguments)
	seen := c.Started.ToolDigest
	if retry {
		seen = c.Item.ToolDigest
	}
	again := retry || mcp.Effect(c.Started.Effect) != mcp.Once
	switch {
	case again && v.Effect == policy.Deny:
		return judgement{finish: lostCall(c, "policy denies running it again ("+strings.Join(v.Rules, ", ")+")")}
	case again && seen == tool.Digest && (retry || c.Approved() || v.Effect == policy.Allow):
		return judgement{tool: tool}
	}
	return judgement{unknown: unknownItem(c, tool, v)}
}

// judgeLost decides about a started call whose tool is gone: it cannot run again,
// and a person who asked for that is told so by the call's end.
func (w *run) judgeLost(c *journal.Call, tool mcp.Tool, retry bool, why string) judgement {
	if retry || mcp.Effect(c.Started.Effect) != mcp.Once {
		return judgement{finish: lostCall(c, why)}
	}
	return judgement{unknown: unknownItem(c, tool, policy.Verdict{})}
}

// lostCall ends a call of which nobody knows whether it had its effect.
func lostCall(c *journal.Call, why string) *journal.Finished {
	return finish(c, journal.Unknown, "Nobody knows whether this tool call had its effect; "+why+".")
}

// resolved ends a started call as a person said, or as nobody did in time. It is
// nil when nobody was asked, or when the answer was to run the call again.
func resolved(c *journal.Call) *journal.Finished {
	switch r := c.Resolution; {
	case r != nil && r.Action == holds.Ran:
		f := finish(c, journal.Success, personText(r))
		f.By = r.By
		return f
	case r != nil && r.Action != holds.Retry: // whatever else was answered, it is no leave to run the call again
		return lostCall(c, "a person decided to go on without it")
	case r == nil && c.Expired:
		return lostCall(c, "nobody said in time what became of it")
	}
	return nil
}

// lastWords ends the calls of a run that ends before they did: as a person said,
// where one did, for what was said must not get lost; else nobody knows.
func lastWords(s *journal.State) []journal.Finished {
	var list []journal.Finished
	for _, c := range s.Open() {
		if c.Started == nil {
			continue
		}
		f := resolved(c)
		if f == nil {
			f = lostCall(c, "the run ended before its end was seen")
		}
		list = append(list, *f)
	}
	return list
}

// unknownItem asks what became of a call. tool is its definition now, or empty,
// and now what policy says about it. Whoever had to be asked before the call is
// asked what became of it, but one of them is enough: what happened is no matter
// of agreement, and a retry sends what was approved.
func unknownItem(c *journal.Call, tool mcp.Tool, now policy.Verdict) *holds.Item {
	who := c.Verdict.Reviewers.And(now.Reviewers)
	if c.Item != nil {
		who = c.Item.Reviewers.And(now.Reviewers)
	}
	who.Require = 0
	it := &holds.Item{
		ID: c.ID, Title: c.Tool, Data: c.Started.Arguments, Server: c.Server, Tool: c.Tool,
		ToolDigest: tool.Digest, Schema: tool.InputSchema,
		Reason:    "The call was started and its end was not seen: it may have had its effect.",
		Reviewers: who,
	}
	if tool.Digest != "" && tool.Digest != c.Started.ToolDigest {
		it.Reason += " The definition of the tool has changed since."
		it.Changed = &holds.Change{OldDigest: c.Started.ToolDigest}
	}
	return it
}

// gone ends a call whose tool is not there to be called; nothing was sent.
func (w *run) gone(c *journal.Call) *journal.Finished {
	for _, s := range w.agent.MCP.Status() {
		if s.Name == c.Server && s.Status != mcp.Connected {
			f := finish(c, journal.Error, "The MCP server of this tool is not available: "+s.Error)
			f.ErrorCode = string(problem.MCPUnavailable)
			return f
		}
	}
	return finish(c, journal.Invalid, "The tool "+c.Tool+" is no longer offered; nothing ran.")
}

func finish(c *journal.Call, o journal.Outcome, text string) *journal.Finished {
	return &journal.Finished{Call: c.ID, Outcome: o, Text: text}
}

func declined(reason string) string {
	if reason == "" {
		return "A person declined this tool call."
	}
	return "A person declined this tool call. Their reason: " + reason
}

func deniedText(v policy.Verdict) string {
	if v.Reason == "" {
		return "Policy denies this tool call (" + strings.Join(v.Rules, ", ") + ")."
	}
	return "Policy denies this tool call (" + strings.Join(v.Rules, ", ") + "): " + v.Reason
}

func personText(d *holds.Decision) string {
	if text, ok := rawjson.Text(d.Data); ok {
		return text
	}
	return string(d.Data)
}

// item is what a reviewer sees of a call. When policy does not ask any more, what
// it said when the call was asked for stands; and whoever a hold asked once is
// asked again.
func item(c *journal.Call, tool mcp.Tool, now policy.Verdict) *holds.Item {
	v := now
	if v.Effect != policy.Ask {
		v = c.Verdict
	}
	it := &holds.Item{
		ID: c.ID, Title: c.Tool, Data: c.Effective(), Server: c.Server, Tool: c.Tool,
		ToolDigest: tool.Digest, Schema: tool.InputSchema, Rules: v.Rules, Reason: v.Reason, Reviewers: v.Reviewers,
	}
	if c.Item != nil {
		it.Reviewers = c.Item.Reviewers.And(v.Reviewers)
	}
	return it
}

// changedItem asks again about an approved call whose tool is not the one that
// was approved.
func changedItem(c *journal.Call, tool mcp.Tool, now policy.Verdict) *holds.Item {
	it := item(c, tool, now)
	it.Reason = "The definition of the tool changed after the call was approved; look at it again."
	it.Changed = &holds.Change{OldDigest: c.Item.ToolDigest, OldSchema: c.Item.Schema, OldDecision: c.Decision}
	return it
}

// intent says in one sentence what an approval would do.
func intent(kind holds.Kind, items []holds.Item) string {
	names := make([]string, len(items))
	for i, it := range items {
		names[i] = it.Title
	}
	list := strings.Join(names, ", ")
	if n := len(names); n > 1 {
		list = strings.Join(names[:n-1], ", ") + " and " + names[n-1]
	}
	if kind == holds.OutcomeUnknown {
		return "What became of " + list + "?"
	}
	return "Run " + list + "?"
}
