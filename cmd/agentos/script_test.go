package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/spf13/cobra"
	"go.uber.org/goleak"

	"agentos/internal/rawjson"
	"agentos/internal/testenv/toolserver"
)

var update = flag.Bool("update", false, "rewrite the golden parts of scripts")

func TestMain(m *testing.M) {
	toolserver.Main() // the MCP server of some scripts is this binary
	testscript.Main(leakChecked{m}, map[string]func(){"agentos": main})
}

// leakChecked fails a passing run that leaves goroutines behind.
type leakChecked struct{ m *testing.M }

func (l leakChecked) Run() int {
	code := l.m.Run()
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// TestScripts runs the command line and the server from outside, one script per
// story. Besides the commands of testscript there are waitready, waitfile, http,
// json, exits and example; see their comments.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		UpdateScripts:       *update,
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(e *testscript.Env) error {
			// Proxies and settings of the machine are none of the scripts' business.
			e.Setenv("NO_PROXY", "*")
			e.Setenv("TERM", "xterm")
			// Each process built with -race would sleep for a second when it ends.
			e.Setenv("GORACE", "atexit_sleep_ms=0")
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"waitready": waitReady,
			"waitfile":  waitFile,
			"http":      httpCommand,
			"json":      jsonCommand,
			"example":   exampleCommand,
			"exits":     exitsCommand,
		},
	})
}

// waitReady waits until the server whose standard error goes to a file says where
// it serves, and sets AGENTOS_URL.
//
//	waitready LOG
func waitReady(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: waitready LOG")
	}
	line := regexp.MustCompile(`(?m)^agentos: serving on (http://\S+)$`)
	poll(ts, args[0], func(raw []byte) bool {
		m := line.FindSubmatch(raw)
		if m != nil {
			ts.Setenv("AGENTOS_URL", string(m[1]))
		}
		return m != nil
	})
}

// waitFile waits until another process has written to a file.
//
//	waitfile FILE
func waitFile(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: waitfile FILE")
	}
	poll(ts, args[0], func(raw []byte) bool { return len(raw) > 0 })
}

// poll reads a file until enough says so.
func poll(ts *testscript.TestScript, file string, enough func(raw []byte) bool) {
	deadline := time.After(20 * time.Second)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		raw, err := os.ReadFile(ts.MkAbs(file)) // the file appears with the process
		if err == nil && enough(raw) {
			return
		}
		select {
		case <-deadline:
			ts.Fatalf("%s: waited in vain: %v %s", file, err, raw)
		case <-tick.C:
		}
	}
}

// httpCommand sends a request to AGENTOS_URL, as curl would, and requires the
// status. The body of the answer becomes stdout.
//
//	http STATUS METHOD PATH [BODYFILE]
func httpCommand(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 3 || len(args) > 4 {
		ts.Fatalf("usage: http STATUS METHOD PATH [BODYFILE]")
	}
	var body io.Reader
	if len(args) == 4 {
		body = strings.NewReader(ts.ReadFile(args[3]))
	}
	ctx, stop := context.WithTimeout(context.Background(), 30*time.Second)
	defer stop()
	req, err := http.NewRequestWithContext(ctx, args[1], ts.Getenv("AGENTOS_URL")+args[2], body)
	ts.Check(err)
	req.Header.Set("Content-Type", "application/json")
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := client.Do(req)
	ts.Check(err)
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	ts.Check(err)
	ts.Check(write(ts.Stdout(), raw))
	if strconv.Itoa(res.StatusCode) != args[0] {
		ts.Fatalf("status %d, want %s: %s", res.StatusCode, args[0], raw)
	}
}

// jsonCommand looks into JSON: it sets a variable to the value at a path, or
// requires the value to be as given. Strings are taken without quotes; a path is
// such as hold.items.0.data.
//
//	json FILE PATH -> VARIABLE
//	json FILE PATH VALUE
func jsonCommand(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) < 3 || (args[2] == "->") != (len(args) == 4) {
		ts.Fatalf("usage: json FILE PATH -> VARIABLE, or json FILE PATH VALUE")
	}
	raw := json.RawMessage(strings.TrimSpace(ts.ReadFile(args[0])))
	for name := range strings.SplitSeq(args[1], ".") {
		if i, err := strconv.Atoi(name); err == nil {
			list, err := rawjson.Elements(raw)
			ts.Check(err)
			if i >= len(list) {
				ts.Fatalf("%s: only %d elements", args[1], len(list))
			}
			raw = list[i]
			continue
		}
		raw = rawjson.Get(raw, name)
	}
	value := string(raw)
	if text, ok := rawjson.Text(raw); ok {
		value = text
	}
	switch {
	case args[2] == "->":
		if raw == nil {
			ts.Fatalf("nothing at %s", args[1])
		}
		ts.Setenv(args[3], value)
	case (value == args[2]) == neg:
		ts.Fatalf("%s is %s", args[1], value)
	}
}

// exampleCommand runs the first line of a command's Example as a shell would, with
// the ids in it replaced by $RUN, $HOLD and $KEY.
//
//	example COMMAND...
func exampleCommand(ts *testscript.TestScript, neg bool, args []string) {
	cmd, rest, err := commands().Find(args)
	if err != nil || len(rest) > 0 || cmd.Example == "" {
		ts.Fatalf("no command %q with an example", args)
	}
	line, _, _ := strings.Cut(strings.TrimSpace(cmd.Example), "\n")
	line = regexp.MustCompile(`\br_[0-9a-z]{26}\b`).ReplaceAllString(line, ts.Getenv("RUN"))
	line = regexp.MustCompile(`\bh_[0-9a-z]{26}_[0-9]+\b`).ReplaceAllString(line, ts.Getenv("HOLD"))
	line = regexp.MustCompile(`\bk[0-9a-z]{15}\b`).ReplaceAllString(line, ts.Getenv("KEY"))
	ts.Logf("> %s", line)
	if err := ts.Exec("sh", "-c", line); (err == nil) == neg {
		ts.Fatalf("%s: %v", line, err)
	}
}

// exitsCommand runs a program and requires its exit code.
//
//	exits CODE PROGRAM [ARG...]
func exitsCommand(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE PROGRAM [ARG...]")
	}
	err := ts.Exec(args[1], args[2:]...)
	code := 0
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		code = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if strconv.Itoa(code) != args[0] {
		ts.Fatalf("exit code %d, want %s", code, args[0])
	}
}

func write(w io.Writer, raw []byte) error {
	_, err := io.Copy(w, bytes.NewReader(raw))
	return err
}

func commands() *cobra.Command {
	return rootCommand(stdio{in: strings.NewReader(""), out: io.Discard, err: io.Discard}, noEnv)
}

func noEnv(string) (string, bool) { return "", false }

// A command that is listed without help that can be tried is half documented.
func TestEveryCommandShowsAnExampleThatRuns(t *testing.T) {
	t.Parallel()
	script, err := os.ReadFile("testdata/script/examples.txtar")
	if err != nil {
		t.Fatal(err)
	}
	mine := []string{"run", "validate", "schema", "runs", "holds", "agents", "tools", "orders", "keys"}
	walk(commands(), func(c *cobra.Command) {
		path := strings.Fields(c.CommandPath())[1:]
		if len(path) == 0 || !slices.Contains(mine, path[0]) {
			return
		}
		name := strings.Join(path, " ")
		if c.Short == "" || !strings.HasPrefix(c.Example, "  agentos "+name) && !c.HasSubCommands() {
			t.Errorf("%s: Short %q, Example %q", name, c.Short, c.Example)
		}
		if !c.HasSubCommands() && !bytes.Contains(script, []byte("\nexample "+name+"\n")) {
			t.Errorf("testdata/script/examples.txtar does not run the example of %s", name)
		}
		var help bytes.Buffer
		if code := execute(t.Context(), stdio{in: strings.NewReader(""), out: &help, err: &help}, noEnv, append(path, "--help")); code != exitOK {
			t.Errorf("%s --help: exit %d", name, code)
		}
		if !strings.Contains(help.String(), "Examples:\n  agentos "+path[0]) {
			t.Errorf("%s --help shows no example:\n%s", name, &help)
		}
	})
}

func walk(c *cobra.Command, visit func(*cobra.Command)) {
	visit(c)
	for _, sub := range c.Commands() {
		walk(sub, visit)
	}
}
