package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"agentos/capabilities"
	"agentos/holds/policy"
	"agentos/internal/strictyaml"
	"agentos/internal/visible"
)

// Limits of a file of examples.
const (
	maxExamples = 1000
	maxInList   = 100
)

// example is one call and what policy is expected to say about it.
type example struct {
	name       string
	capability *capabilities.Capability
	call       policy.Call
	effect     policy.Effect
	// rules and reviewers are nil where the example does not care.
	rules     []string
	reviewers *policy.Reviewers
}

// exampleReader reads the examples for one agent.
type exampleReader struct{ book book }

// readExamples reads a file of examples. The error is of type strictyaml.Errors and
// holds every problem.
func readExamples(file string, b book) ([]example, error) {
	data, err := strictyaml.ReadFile(file)
	if err != nil {
		return nil, err
	}
	doc, err := strictyaml.Parse(file, data)
	if err != nil {
		return nil, err
	}
	r := exampleReader{book: b}
	root := doc.Root()
	if root.IsList() && root.Len() == 0 {
		root.Problem("has no examples")
	}
	var out []example
	for _, item := range root.List(maxExamples) {
		out = append(out, r.example(item))
	}
	return out, doc.Err()
}

func (r exampleReader) example(v strictyaml.Value) example {
	var e example
	o := v.Object()
	e.name = o.Get("name").String()
	e.capability = r.capability(o.Get("capability"))
	tool := o.Get("tool")
	args, input, expect := o.Get("args"), o.Get("input"), o.Get("expect")
	e.call.Args, e.call.Input = objectOf(args), objectOf(input)
	who := o.Get("requester").Object()
	e.call.Requester = policy.Requester{Name: who.Get("name").String(), Groups: texts(who.Get("groups"))}
	who.Close()
	e.call.Destructive = o.Get("destructive").Bool(false)
	run := o.Get("run").Object()
	e.call.Run = policy.Run{
		ID: run.Get("id").String(), SessionID: run.Get("session_id").String(), Env: environment, Agent: r.book.agent.Name,
	}
	if env := run.Get("env"); env.Present() {
		e.call.Run.Env = env.String()
	}
	run.Close()
	if o.Valid() {
		tool.Required()
		expect.Required()
	}
	e.expect(expect)
	o.Close()
	if e.capability != nil {
		e.call.Run.Capability = e.capability.Name
		r.fits(&e, tool, input)
	}
	if e.name == "" {
		e.name = clip(strings.TrimSpace(tool.Text() + " " + string(e.call.Args)))
	}
	return e
}

// capability reads the name of a capability with a loop, which may be left out where
// there is only one.
func (r exampleReader) capability(v strictyaml.Value) *capabilities.Capability {
	var names []string
	for name, c := range r.book.agent.Capabilities {
		if c.Loop != nil {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	name := v.String()
	switch {
	case !v.Present() && len(names) == 1:
		name = names[0]
	case !slices.Contains(names, name):
		v.Problem("must be a capability with a loop; the manifest has: %s", strings.Join(names, ", "))
		return nil
	}
	return r.book.agent.Capabilities[name]
}

// fits reports a tool that no model could ask for and an input that no run could
// have: an example with them would prove nothing.
func (r exampleReader) fits(e *example, tool, input strictyaml.Value) {
	server, name, ok := strings.Cut(tool.String(), "/")
	if !tool.IsText() {
		return
	}
	if !ok || server == "" || name == "" {
		tool.Problem("must be server/tool, by the alias in the manifest and the raw name")
		return
	}
	e.call.Server, e.call.Tool = server, name
	if why := r.book.offers(e.capability, server, name); why != "" {
		near := strictyaml.Nearest(server, slices.Sorted(maps.Keys(r.book.agent.Servers)))
		if near != "" && near != server {
			why += fmt.Sprintf("; did you mean %q?", near)
		}
		tool.Problem("%s", why)
	}
	if input.Present() && e.call.Input != nil {
		for _, d := range e.capability.InputSchema.Validate(e.call.Input) {
			input.At(d.Path).Problem("does not fit the input of %s: %s", e.capability.Name, d.Message)
		}
	}
}

// expect reads allow, ask or deny, or {effect, rules, reviewers}.
func (e *example) expect(v strictyaml.Value) {
	effects := []string{string(policy.Allow), string(policy.Ask), string(policy.Deny)}
	if !v.IsMapping() {
		e.effect = policy.Effect(v.OneOf(effects...))
		return
	}
	o := v.Object()
	effect, rules, reviewers := o.Get("effect"), o.Get("rules"), o.Get("reviewers")
	effect.Required()
	e.effect = policy.Effect(effect.OneOf(effects...))
	if rules.Present() {
		e.rules = append([]string{}, texts(rules)...)
	}
	if reviewers.Present() {
		e.reviewers = expectedReviewers(reviewers)
		if e.effect != "" && e.effect != policy.Ask {
			reviewers.Problem("'reviewers' does not apply to effect %s (it applies to ask)", e.effect)
		}
	}
	o.Close()
}

// expectedReviewers reads reviewers as a rule has them, or {sets: [...]} where
// several rules ask.
func expectedReviewers(v strictyaml.Value) *policy.Reviewers {
	o := v.Object()
	r := &policy.Reviewers{Require: int(o.Get("require").Int(1, maxInList, 1)), NotRequester: o.Get("not_requester").Bool(false)}
	if s := (policy.ReviewerSet{Roles: texts(o.Get("roles")), Users: texts(o.Get("users"))}); len(s.Roles)+len(s.Users) > 0 {
		r.Sets = append(r.Sets, s)
	}
	for _, item := range o.Get("sets").List(maxInList) {
		set := item.Object()
		r.Sets = append(r.Sets, policy.ReviewerSet{Roles: texts(set.Get("roles")), Users: texts(set.Get("users"))})
		set.Close()
	}
	o.Close()
	return r
}

func texts(v strictyaml.Value) []string {
	var out []string
	for _, item := range v.List(maxInList) {
		out = append(out, item.String())
	}
	return out
}

// objectOf returns a mapping as JSON, {} when it is absent.
func objectOf(v strictyaml.Value) json.RawMessage {
	switch {
	case !v.Present():
		return json.RawMessage("{}")
	case !v.IsMapping():
		v.Problem("must be an object, written as a mapping")
		return nil
	}
	return v.JSON()
}

// examplesReport is the --json of a test of examples.
type examplesReport struct {
	Examples   []exampleReport `json:"examples"`
	Mismatches int             `json:"mismatches"`
}

// exampleReport is one example with what came. Of what was expected the effect is
// always there.
type exampleReport struct {
	Name       string           `json:"name"`
	Capability string           `json:"capability"`
	Tool       string           `json:"tool"`
	OK         bool             `json:"ok"`
	Expected   expectedReport   `json:"expected"`
	Got        policy.Verdict   `json:"got"`
	differs    map[string]bool  // which of effect, rules and reviewers
	want       policy.Reviewers // as expected, for the text
}

type expectedReport struct {
	Effect    policy.Effect     `json:"effect"`
	Rules     []string          `json:"rules,omitempty"`
	Reviewers *policy.Reviewers `json:"reviewers,omitempty"`
}

// testExamples judges the examples of a file.
func (r *remote) testExamples(b book, file string) error {
	examples, err := readExamples(file, b)
	if err != nil {
		return r.badFiles(err)
	}
	out := examplesReport{}
	for _, e := range examples {
		report := e.compare(b.judge(e.capability, e.call))
		if !report.OK {
			out.Mismatches++
		}
		out.Examples = append(out.Examples, report)
	}
	if r.json {
		err = printJSON(r.out, out)
	} else {
		for _, e := range out.Examples {
			e.print(r)
		}
		_, err = fmt.Fprintf(r.out, "%d examples: %d as expected, %d not\n", len(out.Examples), len(out.Examples)-out.Mismatches, out.Mismatches)
	}
	if err == nil && out.Mismatches > 0 {
		return failed{exitFailed}
	}
	return err
}

func (e *example) compare(got policy.Verdict) exampleReport {
	r := exampleReport{
		Name: e.name, Capability: e.capability.Name, Tool: e.call.Server + "/" + e.call.Tool, Got: got,
		Expected: expectedReport{Effect: e.effect, Rules: e.rules, Reviewers: e.reviewers},
		differs:  map[string]bool{"effect": e.effect != got.Effect},
	}
	if e.rules != nil {
		r.differs["rules"] = !slices.Equal(sorted(e.rules), sorted(got.Rules))
	}
	if e.reviewers != nil {
		r.want = *e.reviewers
		r.differs["reviewers"] = got.Effect != policy.Ask || !sameReviewers(r.want, got.Reviewers)
	}
	r.OK = !slices.Contains(slices.Collect(maps.Values(r.differs)), true)
	return r
}

func sorted(list []string) []string { return slices.Sorted(slices.Values(list)) }

// sameReviewers compares who may decide and how many must agree, not which rule says
// so or when others are asked too.
func sameReviewers(a, b policy.Reviewers) bool {
	return a.Needed() == b.Needed() && a.NotRequester == b.NotRequester && reflect.DeepEqual(plainSets(a), plainSets(b))
}

func plainSets(r policy.Reviewers) []string {
	out := []string{}
	for _, s := range r.Sets {
		out = append(out, fmt.Sprintf("%q %q", sorted(s.Roles), sorted(s.Users)))
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func (e exampleReport) print(r *remote) {
	if e.OK {
		fmt.Fprintf(r.out, "ok    %s: %s\n", visible.Text(e.Name), e.Got.Effect)
		return
	}
	fmt.Fprintf(r.out, "FAIL  %s: %s %s\n", visible.Text(e.Name), e.Capability, visible.Text(e.Tool))
	e.line(r, "effect", string(e.Expected.Effect), string(e.Got.Effect))
	e.line(r, "rules", ruleNames(e.Expected.Rules), ruleNames(e.Got.Rules))
	e.line(r, "reviewers", whoDecides(e.want), asked(e.Got))
	if e.Got.Reason != "" {
		diffLine(r.out, " ", "reason", visible.Text(e.Got.Reason))
	}
}

// line prints a field: both sides where they differ, else what came.
func (e exampleReport) line(r *remote, field, want, got string) {
	if !e.differs[field] {
		diffLine(r.out, " ", field, got)
		return
	}
	diffLine(r.out, "-", field, want)
	diffLine(r.out, "+", field, got)
}
