package server_test

import (
	"encoding/json"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"agentos/api"
	"agentos/internal/testenv/browser"
	"agentos/internal/testenv/toolserver"
)

// executed are the arguments of the last call of a tool.
func (r *rig) executed(tool string) string {
	r.t.Helper()
	last := ""
	for _, e := range toolserver.Ledger(r.t, r.ledger) {
		if e.Tool == tool {
			last = string(e.Arguments)
		}
	}
	return last
}

// heldOn creates a run that is held on cancel_order with the arguments.
func (r *rig) heldOn(arguments string) api.Run {
	r.t.Helper()
	run := r.create("call:cancel_order "+arguments, 30*time.Second)
	if run.Status != api.RunHeld {
		r.t.Fatalf("the run is %s, want held; error %+v", run.Status, run.Error)
	}
	return run
}

func (r *rig) completed(run string) {
	r.t.Helper()
	v, err := r.client.Run(r.ctx(), "default", run, 30*time.Second)
	if err != nil || v.Status != api.RunCompleted {
		r.t.Fatalf("the run is %s (%v), want completed", v.Status, err)
	}
}

// A reviewer finds what waits, sees it whole and approves it once.
func TestInboxApprove(t *testing.T) {
	r, tab := newRig(t), browser.Open(t)
	tab.Go(r.http.URL)
	tab.WaitText("Nothing waits for you")
	tab.Accessible()
	// The list is live: nobody reloads it.
	run := r.heldOn(`{"order_id":"A-1","n":9007199254740993}`)
	tab.WaitText(`"n":9007199254740993`)
	tab.Accessible()
	tab.Press("j")
	tab.Press("\r")
	tab.WaitText("Arguments, as they will be sent")
	tab.WaitText(`"n": 9007199254740993`)
	tab.WaitText("Rule approve:cancel_order asks")
	tab.Accessible()
	tab.Press("a")
	tab.Press("\r")
	tab.WaitText("Everything here is decided")
	tab.WaitText("Approved by local")
	tab.Accessible()
	r.completed(run.RunID)
	r.ran("cancel_order", "A-1", 1)
	if got := r.executed("cancel_order"); got != `{"order_id":"A-1","n":9007199254740993}` {
		t.Errorf("the tool got %s", got)
	}
}

// What the form does not touch keeps every byte, and numbers are never decoded.
func TestInboxEditByForm(t *testing.T) {
	r, tab := newRig(t), browser.Open(t)
	run := r.heldOn(`{"order_id":"A-1","big":12345678901234567890,"f":1.0,"reason":"two\nlines \u003cb\u003e"}`)
	tab.Go(r.http.URL + "/inbox/holds/" + run.Hold.HoldID)
	tab.Press("e")
	tab.Wait("document.activeElement.name === 'f.0' && document.activeElement.value === 'A-1'")
	tab.Write("[name='f.0']", "A-2")
	tab.Write("[name='f.1']", "12345678901234567891")
	tab.Click("details.editor form:first-of-type button")
	tab.WaitText("Your changes")
	text := tab.Text()
	for _, want := range []string{`"order_id": "A-1"`, `"order_id": "A-2"`, `"big": 12345678901234567891`} {
		if !strings.Contains(text, want) {
			t.Errorf("the comparison lacks %s:\n%s", want, text)
		}
	}
	tab.Accessible()
	r.ran("cancel_order", "A-", 0)
	tab.Write("#reason-edit", "wrong order")
	tab.Press("\t")
	tab.Press("\r")
	tab.WaitText("Approved with changes by local")
	r.completed(run.RunID)
	if got := r.executed("cancel_order"); got != `{"order_id":"A-2","big":12345678901234567891,"f":1.0,"reason":"two\nlines \u003cb\u003e"}` {
		t.Errorf("the tool got %s", got)
	}
}

func TestInboxEditAsJSON(t *testing.T) {
	r, tab := newRig(t), browser.Open(t)
	run := r.heldOn(`{"order_id":"A-1"}`)
	tab.Go(r.http.URL + "/inbox/holds/" + run.Hold.HoldID)
	tab.Click("details.editor summary")
	editor, show := "#json-call_1", "details.editor form:last-of-type button"
	// Faults are shown where they are, and what was written stays.
	for _, c := range []struct{ write, want string }{
		{`{"order_id": }`, "is not JSON"},
		{`{"order_id":"A-1","order_id":"A-2"}`, "duplicate name"},
		{`{"order_id": 7}`, "/order_id"},
		{`[1]`, "must be an object"},
		{`{"order_id": "A-1"}`, "The arguments are the same as before."},
	} {
		tab.Write(editor, c.write)
		tab.Click(show)
		tab.WaitText(c.want)
		if got := browser.Eval[string](tab, "document.querySelector('"+editor+"').value"); strings.Join(strings.Fields(got), "") != strings.Join(strings.Fields(c.write), "") {
			t.Errorf("%s was lost: %s", c.write, got)
		}
		if browser.Eval[bool](tab, "!!document.getElementById('approve-edit')") {
			t.Errorf("%s can be approved", c.write)
		}
	}
	tab.Write(editor, `{"order_id": "A-3", "n": 9007199254740993}`)
	tab.Click(show)
	tab.WaitText("Approve with these changes")
	tab.Press("a")
	tab.Press("\r")
	tab.WaitText("Approved with changes")
	r.completed(run.RunID)
	if got := r.executed("cancel_order"); got != `{"order_id":"A-3","n":9007199254740993}` {
		t.Errorf("the tool got %s", got)
	}
}

// A page that was overtaken says so by itself, and the server refuses its forms
// with the winner's decision.
func TestInboxStalePage(t *testing.T) {
	r, tab, late := newRig(t), browser.Open(t), browser.Open(t)
	run := r.heldOn(`{"order_id":"A-1"}`)
	page := r.http.URL + "/inbox/holds/" + run.Hold.HoldID
	tab.Go(page)
	late.NoScript(true) // nothing tells this page
	late.Go(page)
	decided, err := r.decide(run.Hold.HoldID, 30*time.Second, api.ItemDecision{ID: "call_1", Action: "reject", Reason: "not this one"})
	if err != nil || decided.Hold.Status != api.HoldDecided {
		t.Fatalf("%+v %v", decided.Hold.Status, err)
	}
	tab.WaitText("This page is out of date")
	tab.WaitText("Rejected by local")
	tab.Wait("[...document.querySelectorAll('fieldset[data-decide]')].every(f => f.disabled)")
	tab.Accessible()
	late.Click("[data-key=a]")
	late.NoScript(false)
	late.WaitText("nothing was recorded")
	late.WaitText("Rejected by local")
	late.WaitText("not this one")
	r.ran("cancel_order", "A-1", 0)
}

// Several holds are decided only after all of them were shown whole.
func TestInboxDecideSeveral(t *testing.T) {
	r, tab := newRig(t), browser.Open(t)
	var runs []api.Run
	for _, id := range []string{"A-1", "A-2", "A-3", "A-4"} {
		runs = append(runs, r.held(id))
	}
	tab.Go(r.http.URL)
	for _, run := range runs[:3] {
		tab.Click("#t-" + run.Hold.HoldID)
	}
	// Ticks outlive the swap that somebody else's hold brings.
	r.held("A-5")
	tab.WaitText("A-5")
	tab.WaitText("Look at the 3 ticked holds")
	tab.Click("#review")
	tab.WaitText("Decide 3 holds at once")
	text := tab.Text()
	if !strings.Contains(text, `"A-1"`) || !strings.Contains(text, `"A-3"`) || strings.Contains(text, `"A-4"`) {
		t.Errorf("%s", text)
	}
	tab.Accessible()
	// One is overtaken: the others go through, and the page tells.
	if _, err := r.decide(runs[1].Hold.HoldID, 30*time.Second, item("reject")); err != nil {
		t.Fatal(err)
	}
	tab.Press("a")
	tab.Press("\r")
	tab.WaitText("1 hold of 3 could not be decided")
	tab.WaitText("Rejected by local")
	tab.Accessible()
	r.completed(runs[0].RunID)
	r.completed(runs[2].RunID)
	for id, n := range map[string]int{"A-1": 1, "A-2": 0, "A-3": 1, "A-4": 0, "A-5": 0} {
		r.ran("cancel_order", id, n)
	}
}

// Everything works without a script.
func TestInboxWithoutScript(t *testing.T) {
	r, tab := newRig(t), browser.Open(t)
	run := r.heldOn(`{"order_id":"A-1"}`)
	tab.NoScript(true)
	tab.Go(r.http.URL)
	tab.Click("#a-" + run.Hold.HoldID)
	tab.Do("see the hold", visible("[data-key=r]"))
	tab.Write("#reason-call_1", "too late\nfor that")
	tab.Click("[data-key=r]")
	tab.Do("see the outcome", visible(".banner.good"))
	r.completed(run.RunID)
	h, err := r.client.Hold(r.ctx(), "default", run.Hold.HoldID)
	if err != nil || h.Items[0].Decision == nil || h.Items[0].Decision.Reason != "too late\nfor that" {
		t.Errorf("%+v %v", h.Items[0].Decision, err)
	}
}

// hostile are texts that would run, break out, or mislead.
var hostile = []string{
	`<script>alert(1)</script>`, `"><img src=x onerror=alert(2)>`, `'-alert(3)-'`, `</textarea><script>alert(4)</script>`,
	`{{template "layout.html"}}`, `javascript:alert(5)`, `<svg/onload=alert(6)>`, `</pre></bdi><iframe srcdoc="<script>parent.alert(7)</script>">`,
	`<div hx-get="/inbox/runs" hx-trigger="load" hx-on:click="alert(8)">`, "a\u202egnp.exe\u2066", "zero\u200bwidth", `p` + "а" + `ypal`,
	`<base href="http://evil.example/">`, `<style>*{display:none}</style>`, `<meta http-equiv=refresh content="0;url=http://evil.example/">`,
}

// TestInboxHostile puts hostile texts wherever a model, a tool or a caller can
// write, and visits every page with them. The browser reports whatever ran.
func TestInboxHostile(t *testing.T) {
	r, tab := newRig(t), browser.Open(t)
	all := strings.Join(hostile, " ")
	arguments, err := json.Marshal(map[string]json.RawMessage{
		"order_id": mustJSON(t, all), "reason": mustJSON(t, "line\n"+all), all: mustJSON(t, all),
	})
	if err != nil {
		t.Fatal(err)
	}
	run := r.create("raw:"+string(mustJSON(t, map[string]json.RawMessage{
		"role": mustJSON(t, "assistant"), "content": mustJSON(t, all),
		"tool_calls": json.RawMessage(`[{"id":"x","type":"function","function":{"name":"cancel_order","arguments":` + string(mustJSON(t, string(arguments))) + `}},` +
			`{"id":"y","type":"function","function":{"name":` + string(mustJSON(t, `nope<img src=x onerror=alert(9)>`)) + `,"arguments":"{}"}},` +
			`{"id":"z","type":"function","function":{"name":"ping","arguments":"{}"}}]`),
	}))+" then say:"+all, 30*time.Second)
	if run.Status != api.RunHeld {
		t.Fatalf("%s %+v", run.Status, run.Error)
	}
	pages := []string{
		"/", "/?status=", "/inbox/holds/" + run.Hold.HoldID, "/inbox/review?hold=" + run.Hold.HoldID + "@" + itoa(run.Hold.Revision),
		"/inbox/runs", "/inbox/runs/" + run.RunID, "/inbox/agents", "/inbox/agents/shop", "/inbox/agents/shop/start/support",
		"/?agent=" + url.QueryEscape(all), "/?status=" + url.QueryEscape(all), "/inbox/agents/" + url.PathEscape(all), "/inbox/holds/" + url.PathEscape(all),
		"/inbox/runs?agent=" + url.QueryEscape(all), "/inbox/" + url.PathEscape(all),
	}
	visit := func() {
		t.Helper()
		for _, page := range pages {
			tab.Go(r.http.URL + page)
			browser.Eval[bool](tab, "document.querySelectorAll('details').forEach(d => d.open = true), true")
			planted := browser.Eval[[]string](tab, `[...document.querySelectorAll("script,iframe,style,base,svg,img,[onerror],[onload],[hx-on\\:click]")]
				.filter(e => !e.closest(".brand") && !(e.tagName === "SCRIPT" && e.src.startsWith(location.origin + "/inbox/static/"))).map(e => e.outerHTML)`)
			if len(planted) > 0 {
				t.Errorf("%s holds %q", page, planted)
			}
			if !strings.Contains(browser.Eval[string](tab, "document.title"), "agentos") {
				t.Errorf("%s is not a page of ours", page)
			}
			if f := tab.Faults(); len(f) > 0 {
				t.Errorf("%s: %q", page, f)
			}
		}
	}
	visit()
	tab.Go(r.http.URL + "/inbox/holds/" + run.Hold.HoldID)
	for _, want := range []string{`\u202e`, `\u2066`, `\u200b`, "<script>alert(1)</script>", "U+202E", "U+0430 Cyrillic"} {
		if !strings.Contains(tab.Text(), want) {
			t.Errorf("the page does not show %q", want)
		}
	}
	if browser.Eval[int](tab, "document.querySelectorAll('mark.unseen').length") < 3 || browser.Eval[int](tab, "document.querySelectorAll('mark.alike').length") < 1 {
		t.Error("odd characters are not marked")
	}
	tab.Accessible()
	// The form and the editor give the same arguments back when nothing was changed.
	for _, form := range []string{"first", "last"} {
		tab.Go(r.http.URL + "/inbox/holds/" + run.Hold.HoldID)
		tab.Click("details.editor summary")
		tab.Click("details.editor form:" + form + "-of-type button")
		tab.WaitText("The arguments are the same as before.")
	}
	tab.Write("#reason-call_1", all[:200])
	tab.Click("[data-key=a]")
	tab.WaitText("Everything here is decided")
	r.completed(run.RunID)
	if got := r.executed("cancel_order"); got != string(arguments) {
		t.Errorf("the tool got %s\nnot %s", got, arguments)
	}
	visit()
}

func mustJSON(t *testing.T, v any) json.RawMessage {
	t.Helper()
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// A run is started from a form, followed live and cancelled.
func TestInboxRuns(t *testing.T) {
	r, tab := newRig(t), browser.Open(t)
	tab.Go(r.http.URL + "/inbox/agents")
	tab.WaitText("connected")
	tab.Accessible()
	tab.Click(".agent h2 a")
	tab.WaitText("After a crash")
	tab.WaitText("cancel_order")
	tab.Accessible()
	tab.Go(r.http.URL + "/inbox/agents/shop/start/support")
	tab.Accessible()
	tab.Click("form button.primary") // required, and nothing written
	tab.WaitText("The input does not fit")
	tab.Accessible()
	tab.Write("[name='f.0']", `call:wait {"ms":20000}`)
	tab.Click("form button.primary")
	tab.WaitText("running")
	tab.Accessible()
	tab.Click("#cancel summary")
	tab.Click("#cancel button")
	tab.WaitText("Cancelled")
	tab.Wait("!document.querySelector('form[data-open]') || document.querySelector('form[data-open]').hidden")
	tab.Accessible()
	tab.Go(r.http.URL + "/inbox/runs")
	tab.WaitText("cancelled")
	tab.Accessible()
	run := r.create("say:hello there", 30*time.Second)
	tab.WaitText("completed")
	tab.Go(r.http.URL + "/inbox/runs/" + run.RunID)
	tab.WaitText("hello there")
	tab.Accessible()
	// What operators have ordered stands on the pages of the agent.
	if _, err := r.client.PauseAgent(r.ctx(), "default", "shop", api.PauseAgent{Reason: "rates are off"}); err != nil {
		t.Fatal(err)
	}
	if _, err := r.client.SwitchOff(r.ctx(), "default", api.SwitchOff{Tool: "lookup_*", Reason: "too slow"}); err != nil {
		t.Fatal(err)
	}
	for _, page := range []string{"/inbox/agents", "/inbox/agents/shop"} {
		tab.Go(r.http.URL + page)
		tab.WaitText("rates are off")
		tab.WaitText("lookup_*")
		tab.WaitText("too slow")
		tab.Accessible()
	}
	if _, err := r.client.ResumeAgent(r.ctx(), "default", "shop"); err != nil {
		t.Fatal(err)
	}
	// A held run is followed while somebody else decides.
	held := r.held("A-9")
	tab.Go(r.http.URL + "/inbox/runs/" + held.RunID)
	tab.WaitText("Waits for a person.")
	tab.Accessible()
	if _, err := r.decide(held.Hold.HoldID, 30*time.Second, item("approve")); err != nil {
		t.Fatal(err)
	}
	tab.WaitText("Output")
	tab.WaitText("Approved by local")
}

func itoa(n int64) string { return strconv.FormatInt(n, 10) }

func visible(selector string) chromedp.Action[chromedp.Void] { return chromedp.WaitVisible(selector) }
