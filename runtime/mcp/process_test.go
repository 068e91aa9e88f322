package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"agentos/capabilities"
	"agentos/internal/clock"
)

// playStubborn ignores SIGTERM and the end of its input.
func playStubborn(c *child) {
	signal.Ignore(syscall.SIGTERM)
	ledger("pid", json.RawMessage(strconv.Itoa(os.Getpid())))
	c.loop(nil)
	hang()
}

// playGrandchild leaves a process behind.
func playGrandchild(c *child) {
	cmd := exec.CommandContext(context.Background(), "sleep", "300")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr // holds the pipes open
	if err := cmd.Start(); err != nil {
		panic(err)
	}
	ledger("pid", json.RawMessage(strconv.Itoa(cmd.Process.Pid)))
	playDiesAfter(c)
}

func alive(pid int) bool {
	if errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
		return false
	}
	// A zombie that nobody reaps (the tests may run without an init) is dead.
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !bytes.Contains(stat, []byte(") Z "))
}

func (r *rig) pid() int {
	r.t.Helper()
	_, s, _ := strings.Cut(r.executions()[0], " ")
	pid, err := strconv.Atoi(s)
	if err != nil {
		r.t.Fatal(err)
	}
	return pid
}

// C22: no process is left after shutdown, whatever it ignores.
func TestShutdown(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		mode  string
		grace time.Duration
		most  time.Duration
	}{
		{"well-behaved", "standard", time.Minute, 2 * time.Second},
		{"ignores everything", "stubborn", time.Minute, 6 * time.Second},
		{"ignores everything, in a hurry", "stubborn", 100 * time.Millisecond, 2 * time.Second},
		{"leaves a grandchild", "grandchild", time.Minute, 3 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.child("s", c.mode)
			r.open().mustConnect()
			ctx, cancel := context.WithTimeout(context.Background(), c.grace)
			defer cancel()
			began := time.Now()
			if err := r.Close(ctx); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(began); took > c.most {
				t.Errorf("closing took %s", took)
			}
			if c.mode != "standard" {
				// It was killed; the kernel may still be taking it down.
				eventually(t, "no process is left", func() bool { return !alive(r.pid()) })
			}
			if strings.Contains(r.log.String(), "level=WARN") || strings.Contains(r.log.String(), "level=ERROR") {
				t.Error("shutdown was not quiet")
			}
			if got := r.call("s", "echo", `{}`); got.Outcome != Error {
				t.Errorf("a call after Close = %+v", got)
			}
		})
	}
}

// C22: what a dead server leaves behind goes with it, even if it holds the
// pipes.
func TestGrandchildOfDeadServer(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.child("s", "grandchild")
	r.open().mustConnect()
	pid := r.pid()
	if got := r.call("s", "echo", `{}`); got.Text != "bye" {
		t.Fatalf("call = %+v", got)
	}
	eventually(t, "the grandchild is gone", func() bool { return !alive(pid) })
}

// playParent is a process with a server of its own, which writes its pid to the
// ledger.
func playParent(*child) {
	_, err := Open(context.Background(), Config{
		Servers: map[string]*capabilities.Server{"s": {
			Command: []string{os.Args[0]}, ConnectTimeout: time.Minute, CallTimeout: time.Minute,
			Env: map[string]string{"MCP_TEST_MODE": "stubborn", "MCP_TEST_LEDGER": os.Getenv("MCP_TEST_LEDGER")},
		}},
		Resolve: func(s string) (string, error) { return s, nil }, Redact: func(s string) string { return s },
		Clock: clock.System{}, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		panic(err)
	}
	hang()
}

// A server does not outlive a process that is killed, whatever it ignores.
func TestParentKilled(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = []string{"MCP_TEST_MODE=parent", "MCP_TEST_LEDGER=" + r.ledger}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the server runs", func() bool { return len(r.executions()) == 1 && strings.HasPrefix(r.executions()[0], "pid ") })
	pid := r.pid()
	if !alive(pid) {
		t.Fatal("the server is not there")
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	eventually(t, "the server is gone", func() bool { return !alive(pid) })
}

func playClosesOutput(c *child) {
	c.loop(func(m msg) bool {
		if m.Method != "tools/call" {
			return false
		}
		_ = os.Stdout.Close()
		hang()
		return true
	})
}

func TestServerClosesItsOutput(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.child("s", "closes_output")
	r.open().mustConnect()
	began := time.Now()
	got := r.call("s", "echo", `{}`)
	if got.Outcome != Unknown || !strings.Contains(got.Text, "closed its output") || time.Since(began) > 3*time.Second {
		t.Errorf("call = %+v after %s", got, time.Since(began))
	}
}

// playClosesInput stops listening after the first tool list and lives on; the
// next process is well.
func playClosesInput(c *child) {
	marker := filepath.Join(os.Getenv("MCP_TEST_DIR"), "was-closed")
	_, err := os.Stat(marker)
	_ = os.WriteFile(marker, nil, 0o600)
	c.loop(func(m msg) bool {
		if m.Method == "tools/list" && err != nil {
			_ = os.Stdin.Close()
			c.result(m.ID, standard(m, c.tools))
			hang()
		}
		return false
	})
}

// Nothing can have reached a server whose input is closed, so the call is sent
// to the next one.
func TestServerClosesItsInput(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.child("s", "closes_input")
	r.open().mustConnect()
	if got := r.call("s", "write", `{}`); got.Outcome != Success || got.Reconnects != 1 || len(r.executions()) != 1 {
		t.Errorf("call = %+v", got)
	}
}

func playEnv(c *child) {
	c.loop(func(m msg) bool {
		if m.Method != "tools/call" {
			return false
		}
		dir, _ := os.Getwd()
		c.result(m.ID, text(strings.Join(append(os.Environ(), "cwd="+dir), "\n")))
		return true
	})
}

// C23: children inherit nothing but what they are given.
func TestEnvironment(t *testing.T) {
	t.Setenv("OPENAI_API_KEY", "sk-parent")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "aws-parent")
	r := newRig(t)
	r.cfg.Resolve = func(s string) (string, error) { return strings.ReplaceAll(s, "${secrets.token}", "s3cret-token"), nil }
	r.cfg.BaseEnv = []string{"PATH=/bin", "LANG=C", "TZ=UTC"}
	s := r.child("s", "env")
	s.Env["TOKEN"], s.Env["TZ"] = "${secrets.token}", "Europe/Berlin"
	r.open().mustConnect()
	got := strings.Split(r.call("s", "echo", `{}`).Text, "\n")
	slices.Sort(got)
	want := []string{
		"GORACE=atexit_sleep_ms=0", "LANG=C", "MCP_TEST_DIR=" + s.Env["MCP_TEST_DIR"], "MCP_TEST_LEDGER=" + r.ledger, "MCP_TEST_MODE=env", "PATH=/bin",
		"TOKEN=s3cret-token", "TZ=Europe/Berlin", "cwd=" + s.Cwd,
	}
	if !slices.Equal(got, want) {
		t.Errorf("environment = %q, want %q", got, want)
	}
}
