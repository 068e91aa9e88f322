package conformance

import (
	"regexp"
	"slices"
	"strings"
	"unicode"

	"agentos/internal/schema"
	"agentos/internal/strictyaml"
)

// Limits of one file.
const (
	maxCases     = 1000
	maxList      = 200
	maxTimes     = 1000
	maxNameBytes = 100
)

// Parse reads a conformance.yaml. The error is of type strictyaml.Errors: every
// fault with its position and what to write instead.
func Parse(file string, data []byte) ([]Case, error) {
	doc, err := strictyaml.Parse(file, data)
	if err != nil {
		return nil, err
	}
	top := doc.Root().Object()
	list := top.Get("cases")
	top.Close()
	var cases []Case
	if top.Valid() && list.Required() {
		values := list.List(maxCases)
		if list.IsList() && list.Len() == 0 {
			list.Problem("is empty; write at least one case")
		}
		seen := map[string]bool{}
		for _, v := range values {
			cases = append(cases, parseCase(v, seen))
		}
	}
	if err := doc.Err(); err != nil {
		return nil, err
	}
	return cases, nil
}

func parseCase(v strictyaml.Value, seen map[string]bool) Case {
	o := v.Object()
	c := Case{Expect: Completed, Unknown: Decision{Action: actionSkip}}
	if !o.Valid() {
		return c
	}
	c.Capability = requiredText(o.Get("capability"))
	c.Name = parseName(o.Get("name"), seen)
	if in := o.Get("input"); in.Required() {
		c.Input = in.JSON()
	}
	if e := o.Get("expect"); e.Present() {
		c.Expect = Expect(e.OneOf(string(Completed), "suspended", string(Held), string(Failed)))
		if c.Expect == "suspended" {
			c.Expect = Held
		}
	}
	fault := o.Get("fault")
	c.Fault = parseFault(fault)
	parseSteps(o, &c)
	placeFault(fault, &c)
	parseOutput(o.Get("output"), &c)
	parseError(o.Get("error"), &c)
	if calls := o.Get("calls"); calls.Present() {
		c.Calls = []CallCount{}
		for _, v := range calls.List(maxList) {
			c.Calls = append(c.Calls, parseCount(v))
		}
	}
	parseUnknown(o.Get("unknown"), &c)
	o.Close()
	return c
}

func requiredText(v strictyaml.Value) string {
	if !v.Required() {
		return ""
	}
	s := v.String()
	if s == "" && v.IsText() {
		v.Problem("must not be empty")
	}
	return s
}

func parseName(v strictyaml.Value, seen map[string]bool) string {
	name := requiredText(v)
	switch {
	case name == "":
		return ""
	case len(name) > maxNameBytes || strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }):
		v.Problem("must be one printable line of at most %d bytes", maxNameBytes)
	case seen[name]:
		v.Problem("another case has this name; give each its own")
	}
	seen[name] = true
	return name
}

// parseSteps reads steps, or the one step that hold and decision make.
func parseSteps(o *strictyaml.Object, c *Case) {
	steps, hold, decision := o.Get("steps"), o.Get("hold"), o.Get("decision")
	if c.Expect != Held {
		for _, v := range []strictyaml.Value{steps, hold, decision} {
			if v.Present() {
				v.Problem("belongs to a case with expect: suspended")
			}
		}
		return
	}
	if !steps.Present() {
		c.Steps = []Step{{Decisions: parseDecisions(decision), Hold: parseHold(hold)}}
		return
	}
	for _, v := range []strictyaml.Value{hold, decision} {
		if v.Present() {
			v.Problem("cannot stand beside steps; write it in a step")
		}
	}
	for _, v := range steps.List(maxList) {
		so := v.Object()
		fault := so.Get("fault")
		s := Step{Decisions: parseDecisions(so.Get("decision")), Hold: parseHold(so.Get("hold")), Fault: parseFault(fault)}
		so.Close()
		if s.Fault.Kind == FaultKill && len(s.Fault.Points) != 1 {
			fault.Problem("a step needs one point, such as {kill: after:hold.decided}; fault: kill belongs to the case")
		}
		c.Steps = append(c.Steps, s)
	}
	if steps.IsList() && steps.Len() == 0 {
		steps.Problem("is empty; write at least one step")
	}
}

// placeFault gives the fault of a case to the step that it is about.
func placeFault(v strictyaml.Value, c *Case) {
	switch c.Fault.Kind {
	case FaultNone, FaultKill, FaultDrop:
	case FaultChangeTool, FaultDoubleDecision, FaultExpire:
		if c.Expect != Held {
			v.Problem("%s disturbs a decision; it belongs to a case with expect: suspended", c.Fault.Kind)
		} else if len(c.Steps) > 0 {
			if c.Steps[0].Fault.Kind != FaultNone {
				v.Problem("the first step has a fault of its own")
			}
			c.Steps[0].Fault = c.Fault
		}
		c.Fault = Fault{}
	}
}

func parseHold(v strictyaml.Value) HoldShape {
	o := v.Object()
	h := HoldShape{Intent: o.Get("intent").String()}
	if k := o.Get("kind"); k.Present() {
		h.Kind = k.OneOf("tool_call", "outcome_unknown")
	}
	for _, item := range o.Get("items").List(maxList) {
		if !item.IsMapping() {
			item.Problem("must be a mapping such as {id: call_1, title: …, data: {…}}")
			continue
		}
		h.Items = append(h.Items, item.JSON())
	}
	o.Close()
	return h
}

// The actions of a decision.
const (
	actionApprove = "approve"
	actionEdit    = "edit"
	actionReject  = "reject"
	actionRan     = "ran"
	actionRetry   = "retry"
	actionSkip    = "skip"
)

func parseDecisions(v strictyaml.Value) []Decision {
	if !v.Present() {
		return nil
	}
	out := []Decision{}
	for _, d := range v.List(maxList) {
		o := d.Object()
		dec := Decision{
			ID: requiredText(o.Get("id")), Data: o.Get("data").JSON(), Reason: o.Get("reason").String(),
		}
		if a := o.Get("action"); a.Required() {
			dec.Action = a.OneOf(actionApprove, actionEdit, actionReject, actionRan, actionRetry, actionSkip)
		}
		needsData(o.Get("data"), dec.Action)
		o.Close()
		out = append(out, dec)
	}
	if v.IsList() && v.Len() == 0 {
		v.Problem("is empty; write a decision, or leave the key out to approve every item")
	}
	return out
}

func needsData(data strictyaml.Value, action string) {
	if (action == actionEdit || action == actionRan) && !data.Present() {
		data.Problem("is required for %s", action)
	}
}

func parseOutput(v strictyaml.Value, c *Case) {
	if !v.Present() {
		return
	}
	if c.Expect == Failed {
		v.Problem("a failed run has no output")
	}
	if !v.IsMapping() || v.Len() != 1 || v.Children()[0].Key() != "schema" {
		c.Output = v.JSON()
		return
	}
	o := v.Object()
	s := o.Get("schema")
	raw := s.JSON()
	if raw == nil {
		return
	}
	compiled, err := schema.Compile(raw, schema.Options{})
	if err != nil {
		s.Problem("%s", err)
		return
	}
	c.OutputSchema = compiled
}

func parseError(v strictyaml.Value, c *Case) {
	if !v.Present() {
		return
	}
	if c.Expect == Completed {
		v.Problem("a completed run has no error; write expect: failed, or suspended when it fails after a decision")
	}
	o := v.Object()
	if code := o.Get("code"); code.Required() {
		c.ErrorCode = code.Matching(codePattern, "an error code such as mcp_unavailable")
	}
	o.Close()
}

func parseCount(v strictyaml.Value) CallCount {
	o := v.Object()
	n := CallCount{
		Tool: requiredText(o.Get("tool")), Times: int(o.Get("times").Int(0, maxTimes, 1)), Arguments: o.Get("arguments").JSON(),
	}
	o.Close()
	return n
}

func parseUnknown(v strictyaml.Value, c *Case) {
	if !v.Present() {
		return
	}
	o := v.Object()
	if a := o.Get("action"); a.Required() {
		c.Unknown.Action = a.OneOf(actionSkip, actionRetry, actionRan)
	}
	c.Unknown.Data, c.Unknown.Reason = o.Get("data").JSON(), o.Get("reason").String()
	needsData(o.Get("data"), c.Unknown.Action)
	o.Close()
}

var (
	codePattern  = regexp.MustCompile(`[a-z][a-z0-9_]*`)
	pointPattern = regexp.MustCompile(`(before|after|during):([a-z.+]+)(#[1-9][0-9]{0,2})?`)
)

// parseFault reads a name, or {kill: POINT or list of POINT}.
func parseFault(v strictyaml.Value) Fault {
	if !v.Present() {
		return Fault{}
	}
	if !v.IsMapping() {
		return Fault{Kind: FaultKind(v.OneOf(FaultKinds()...))}
	}
	o := v.Object()
	f := Fault{Kind: FaultKill}
	if at := o.Get("kill"); at.Required() {
		points := []strictyaml.Value{at}
		if at.IsList() {
			points = at.List(maxList)
		}
		for _, p := range points {
			if s := p.Matching(pointPattern, pointAdvice); s != "" && checkPoint(p, s) {
				f.Points = append(f.Points, s)
			}
		}
		if len(points) == 0 {
			at.Problem("is empty; write a point, or fault: kill for every boundary")
		}
	}
	o.Close()
	return f
}

const pointAdvice = "a point such as after:call.started, before:call.finished#2, during:model or during:call"

// checkPoint reports a point that no server passes.
func checkPoint(v strictyaml.Value, point string) bool {
	when, rest, _ := strings.Cut(point, ":")
	name, _, _ := strings.Cut(rest, "#")
	known, parts := Entries(), strings.Split(name, "+")
	if when == "during" {
		known, parts = []string{"model", "call"}, []string{name}
	}
	for _, part := range parts {
		if slices.Contains(known, part) {
			continue
		}
		if near := strictyaml.Nearest(part, known); near != "" {
			v.Problem("no point %q; did you mean %q?", point, when+":"+near)
		} else {
			v.Problem("no point %q; after %q comes one of %s", point, when+":", strings.Join(known, ", "))
		}
		return false
	}
	return true
}
