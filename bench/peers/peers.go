// Package peers has the other agent frameworks of the benchmark: for each a small
// program in JavaScript that puts it through the scenario, and how to install and
// start it. It measures nothing itself; main.mjs says what a peer has to do, and
// each file what is saved when.
package peers

import (
	"bytes"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
)

//go:embed *.mjs package.json package-lock.json
var files embed.FS

// Peer is one framework with the store it is used with.
type Peer struct {
	// Name is the file without its ending, and Title what reports call it.
	Name, Title string
	// Redis says that its runs are in Redis; then they are as durable as Redis is,
	// else Durability says how durable they are.
	Redis      bool
	Durability string
}

// All returns the peers.
func All() []Peer {
	return []Peer{
		{Name: "ai-sdk", Title: "AI SDK 6", Redis: true},
		{Name: "openai-agents", Title: "OpenAI Agents 0.20", Redis: true},
		{Name: "langgraph-sqlite", Title: "LangGraph 1.7, SQLite", Durability: "write-ahead log, no fsync per commit"},
		{Name: "langgraph-memory", Title: "LangGraph 1.7, memory", Durability: "none"},
	}
}

// Settings are what a peer is told on its standard input.
type Settings struct {
	// Redis is the URL of the server, and Dir a directory for other files.
	Redis string `json:"redis"`
	Dir   string `json:"dir"`
	// System and Message begin the conversation; Message is for "measure" alone,
	// as are all that follow Capability.
	System     string `json:"system"`
	Message    string `json:"message"`
	Capability string `json:"capability"`
	// WarmUp and Runs are runs one after another, the timed ones being Runs.
	WarmUp int `json:"warm_up"`
	Runs   int `json:"runs"`
	// WarmUpMS and MeasureMS are milliseconds with InFlight runs at a time.
	WarmUpMS  int64 `json:"warm_up_ms"`
	MeasureMS int64 `json:"measure_ms"`
	InFlight  int   `json:"in_flight"`
}

// Figures are what a peer measured of itself. Times are microseconds; CPU is the
// processor time of one run with many in flight.
type Figures struct {
	P50  int64 `json:"p50_us"`
	P99  int64 `json:"p99_us"`
	Rate int64 `json:"runs_per_s"`
	CPU  int64 `json:"cpu_us"`
}

// Install puts the peers and the packages they need into a directory under cache
// and returns it. Packages are fetched once for each package-lock.json, with npm;
// what npm says goes to out. Nothing is put into the source tree, whose tools would
// take the packages for ours.
func Install(ctx context.Context, cache string, out io.Writer) (dir string, err error) {
	for _, program := range []string{"node", "npm"} {
		if _, err := exec.LookPath(program); err != nil {
			return "", fmt.Errorf("the peers need Node.js 20 or later with npm: %w", err)
		}
	}
	lock, err := files.ReadFile("package-lock.json")
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(lock)
	dir = filepath.Join(cache, "agentos-bench-peers-"+hex.EncodeToString(sum[:6]))
	if err := write(dir); err != nil {
		return "", err
	}
	// Written last, so it is there only when everything is.
	done := filepath.Join(dir, "installed")
	if _, err := os.Stat(done); !errors.Is(err, fs.ErrNotExist) {
		return dir, err
	}
	npm := exec.CommandContext(ctx, "npm", "ci", "--no-audit", "--no-fund")
	npm.Dir, npm.Stdout, npm.Stderr = dir, out, out
	// better-sqlite3 is built here; a ready-made binary would come from a host that
	// package-lock.json says nothing of.
	npm.Env = append(os.Environ(), "npm_config_build_from_source=true")
	if err := npm.Run(); err != nil {
		return "", fmt.Errorf("npm ci in %s: %w", dir, err)
	}
	return dir, os.WriteFile(done, nil, 0o600)
}

// write puts the files of this package into dir.
func write(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	entries, err := files.ReadDir(".")
	if err != nil {
		return err
	}
	for _, e := range entries {
		raw, err := files.ReadFile(e.Name())
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, e.Name()), raw, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// Serve returns the command that serves the peer over HTTP until it is stopped. It
// writes a line with its URL first.
func (p Peer) Serve(dir string, s Settings) (*exec.Cmd, error) { return p.command(dir, "serve", s) }

// Measure lets the peer drive itself and returns what it measured.
func (p Peer) Measure(ctx context.Context, dir string, s Settings) (Figures, error) {
	cmd, err := p.command(dir, "measure", s)
	if err != nil {
		return Figures{}, err
	}
	var out, faults bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &faults
	if err := cmd.Start(); err != nil {
		return Figures{}, err
	}
	stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() }) // Wait tells
	defer stop()
	if err := cmd.Wait(); err != nil {
		return Figures{}, fmt.Errorf("%s: %w\n%.2000s", p.Name, errors.Join(err, ctx.Err()), faults.Bytes())
	}
	var f Figures
	if err := json.Unmarshal(out.Bytes(), &f); err != nil {
		return f, fmt.Errorf("%s: %w in %.200q", p.Name, err, out.Bytes())
	}
	return f, nil
}

func (p Peer) command(dir, mode string, s Settings) (*exec.Cmd, error) {
	in, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command("node", "main.mjs", p.Name, mode)
	cmd.Dir, cmd.Stdin = dir, bytes.NewReader(in)
	// As frameworks run in production: some check more otherwise.
	cmd.Env = append(os.Environ(), "NODE_ENV=production", "LANGSMITH_TRACING=false", "OPENAI_AGENTS_DISABLE_TRACING=1")
	return cmd, nil
}
