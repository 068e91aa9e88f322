// Package browser drives a real Chromium in tests: the Debian package, headless,
// with nothing but the pages of the server under test. A test that opens a tab
// fails when a page throws, breaks its content security policy or opens a dialog,
// so that hostile texts need not be looked for one by one. Only tests use it.
package browser

import (
	"context"
	_ "embed"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// patience is how long a page may take to show what a test waits for.
const patience = time.Minute

// axe is axe-core, which looks for what keeps people with disabilities out.
//
//go:embed testdata/axe-4.14.1.min.js
var axe string

// Tab is one tab of a browser of its own.
type Tab struct {
	tb  testing.TB
	ctx context.Context //nolint:containedctx // chromedp keeps its tab there

	mu     sync.Mutex
	faults []string
}

// Open starts a browser and closes it with the test. Without Chromium the test
// fails where CI is set, and is skipped elsewhere.
func Open(tb testing.TB) *Tab {
	tb.Helper()
	path, err := exec.LookPath("chromium")
	if err != nil {
		if os.Getenv("CI") != "" {
			tb.Fatal("chromium is not installed (apt-get install chromium)")
		}
		tb.Skip("chromium is not installed (apt-get install chromium)")
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox,
		chromedp.Flag("disable-background-networking", true), chromedp.Flag("disable-component-update", true),
		chromedp.Flag("no-proxy-server", true), chromedp.Flag("host-resolver-rules", "MAP * ~NOTFOUND , EXCLUDE 127.0.0.1"),
		chromedp.UserDataDir(tb.TempDir()))
	allocator, stop := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, cancel := chromedp.NewContext(allocator)
	t := &Tab{tb: tb, ctx: ctx}
	tb.Cleanup(func() {
		if err := chromedp.Cancel(ctx); err != nil {
			tb.Logf("close the browser: %v", err)
		}
		cancel()
		stop()
		t.check()
	})
	if err := chromedp.Do(ctx, chromedp.Navigate("about:blank")); err != nil {
		tb.Fatalf("start chromium: %v", err)
	}
	if err := chromedp.Listen(ctx, t.hear); err != nil {
		tb.Fatalf("listen to chromium: %v", err)
	}
	_, err = chromedp.Call(ctx, log.Enable, cdp.Empty{})
	t.must("enable the log", err)
	t.Size(1280, 900)
	return t
}

// hear notes what no page may do.
func (t *Tab) hear(ev any) {
	fault := ""
	switch ev := ev.(type) {
	case *runtime.EventExceptionThrown:
		fault = "exception: " + ev.ExceptionDetails.Text
		if ev.ExceptionDetails.Exception != nil {
			fault += " " + ev.ExceptionDetails.Exception.Description
		}
	case *log.EventEntryAdded:
		if ev.Entry.Level == log.EntryLevelError && !strings.Contains(ev.Entry.Text, "the server responded with a status of 4") {
			fault = "log: " + ev.Entry.Text
		}
	case *page.EventJavascriptDialogOpening:
		fault = "dialog: " + ev.Message
		go func() {
			_, _ = chromedp.Call(t.ctx, page.HandleJavaScriptDialog, page.HandleJavaScriptDialogParams{Accept: true})
		}()
	}
	if fault != "" {
		t.mu.Lock()
		t.faults = append(t.faults, fault)
		t.mu.Unlock()
	}
}

// Faults are what pages did that none may do, and forgets them.
func (t *Tab) Faults() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := t.faults
	t.faults = nil
	return out
}

func (t *Tab) check() {
	for _, f := range t.Faults() {
		t.tb.Errorf("the browser reports %s", f)
	}
}

func (t *Tab) must(what string, err error) {
	t.tb.Helper()
	if err != nil {
		t.tb.Fatalf("%s: %v", what, err)
	}
}

// Do runs steps of chromedp.
func (t *Tab) Do(what string, steps ...chromedp.Action[chromedp.Void]) {
	t.tb.Helper()
	ctx, cancel := context.WithTimeout(t.ctx, patience)
	defer cancel()
	t.must(what, chromedp.Do(ctx, steps...))
}

// Go opens an address.
func (t *Tab) Go(url string) {
	t.tb.Helper()
	t.Do("open "+url, chromedp.Navigate(url))
}

// Size makes the window that large, in CSS pixels.
func (t *Tab) Size(width, height int64) {
	t.tb.Helper()
	t.Do("size", chromedp.EmulateViewport(width, height))
}

// Scheme sets the preferred colour scheme: light or dark.
func (t *Tab) Scheme(scheme string) {
	t.tb.Helper()
	_, err := chromedp.Call(t.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
	})
	t.must("colour scheme", err)
}

// NoScript switches scripts of pages off or on.
func (t *Tab) NoScript(off bool) {
	t.tb.Helper()
	_, err := chromedp.Call(t.ctx, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: off})
	t.must("switch scripts", err)
}

// Click clicks what the selector finds first.
func (t *Tab) Click(selector string) {
	t.tb.Helper()
	t.Do("click "+selector, chromedp.Click(selector))
}

// Write replaces the text of a control.
func (t *Tab) Write(selector, text string) {
	t.tb.Helper()
	quoted, err := json.Marshal(selector)
	t.must("quote", err)
	Eval[bool](t, "(e => { e.focus(); e.select(); return true })(document.querySelector("+string(quoted)+"))")
	ctx, cancel := context.WithTimeout(t.ctx, patience)
	defer cancel()
	_, err = chromedp.Call(ctx, input.InsertText, input.InsertTextParams{Text: text})
	t.must("write into "+selector, err)
}

// Press presses keys where the focus is.
func (t *Tab) Press(keys string) {
	t.tb.Helper()
	t.Do("press "+keys, chromedp.KeyEvent(keys))
}

// Eval evaluates a JavaScript expression and returns its value as JSON decodes it.
func Eval[T any](t *Tab, expression string) T {
	t.tb.Helper()
	ctx, cancel := context.WithTimeout(t.ctx, patience)
	defer cancel()
	v, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	t.must("evaluate "+expression, err)
	return v
}

// Text is the text of the page as a person sees it.
func (t *Tab) Text() string {
	t.tb.Helper()
	return Eval[string](t, "document.body.innerText")
}

// Wait waits until a JavaScript expression is true. While the page is being
// replaced it cannot be evaluated, which is not yet a failure.
func (t *Tab) Wait(expression string) {
	t.tb.Helper()
	ctx, cancel := context.WithTimeout(t.ctx, patience)
	defer cancel()
	for {
		ok, err := chromedp.Run(ctx, chromedp.Evaluate[bool]("!!("+expression+")"))
		if err == nil && ok {
			return
		}
		select {
		case <-ctx.Done():
			t.tb.Fatalf("%s did not come true (%v); the page says:\n%s", expression, err, t.Text())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// WaitText waits until the page shows a text.
func (t *Tab) WaitText(text string) {
	t.tb.Helper()
	quoted, err := json.Marshal(text)
	t.must("quote", err)
	t.Wait("document.body && document.body.innerText.includes(" + string(quoted) + ")")
}

// findings runs axe-core on the page and returns one line for each place at fault.
const findings = `axe.run().then(r => r.violations.flatMap(v =>
	v.nodes.map(n => v.id + ": " + v.help + "\n" + n.html + "\n" + n.failureSummary)))`

// Accessible fails the test for everything that axe-core finds on the page.
func (t *Tab) Accessible() {
	t.tb.Helper()
	Eval[bool](t, axe+"; true")
	for _, f := range Eval[[]string](t, findings) {
		t.tb.Errorf("axe %s", f)
	}
}

// Shot keeps a picture of the whole page in the folder that AGENTOS_SHOTS names,
// for people to look at; without it nothing is done.
func (t *Tab) Shot(name string) {
	t.tb.Helper()
	dir := os.Getenv("AGENTOS_SHOTS")
	if dir == "" {
		return
	}
	ctx, cancel := context.WithTimeout(t.ctx, patience)
	defer cancel()
	png, err := chromedp.Run(ctx, chromedp.FullScreenshot(100))
	t.must("screenshot", err)
	t.must("screenshot", os.WriteFile(filepath.Join(dir, name+".png"), png, 0o600))
}
