package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	goredis "github.com/redis/go-redis/v9"

	"agentos/api/auth"
	apiserver "agentos/api/server"
	"agentos/bench/floor"
	"agentos/bench/scenario"
	"agentos/internal/clock"
	"agentos/internal/ids"
)

// This program is also its own children. Their names are the first argument.
const (
	toolCommand  = "mcp-tool"    // the MCP server
	serveCommand = "serve"       // what agentos serve is, with the scenario's model
	floorCommand = "serve-floor" // a floor program behind net/http
)

// serveConcurrency is how many runs agentos serve works on at once unless told
// otherwise.
const serveConcurrency = 64

// childCommand runs what args name if that is one of the children, and reports
// whether it was.
func childCommand(ctx context.Context, args []string, in io.Reader, out io.Writer) (is bool, err error) {
	if len(args) == 0 {
		return false, nil
	}
	switch args[0] {
	case toolCommand:
		return true, scenario.ServeTool(in, out)
	case serveCommand:
		return true, serveProduct(ctx, args[1:], out)
	case floorCommand:
		return true, serveFloor(ctx, args[1:], out)
	}
	return false, nil
}

// self is a command that runs this program as one of its children.
func self(name string, args ...string) (*exec.Cmd, error) {
	path, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return exec.Command(path, append([]string{name}, args...)...), nil
}

// serveProduct is agentos serve with two differences: the model is the scenario's,
// because the mock model reads its directives with more processor time than a whole
// run takes; and nothing is logged.
func serveProduct(ctx context.Context, args []string, out io.Writer) (err error) {
	f := flag.NewFlagSet(serveCommand, flag.ContinueOnError)
	url := f.String("store", "", "where runs are kept")
	lease := f.Duration("lease", 0, "how long a run stays ours without a sign of life")
	if err := f.Parse(args); err != nil {
		return err
	}
	// Runs outlive the signal that stops the server.
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	dir, err := os.MkdirTemp("", "agentos-bench-serve-")
	if err != nil {
		return err
	}
	a, err := openAgent(life, dir)
	if err != nil {
		return errors.Join(err, os.RemoveAll(dir))
	}
	defer func() { err = errors.Join(err, a.MCP.Close(life), os.RemoveAll(dir)) }()
	s, err := openStore(life, *url)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	p, err := newProcess(life, processConfig{store: s, agent: a, concurrency: serveConcurrency, lease: *lease})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.close(life)) }()
	keys, err := auth.New(auth.Config{Store: s, Env: environment, Clock: clock.System{}, IDs: ids.Random{}, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	srv, err := apiserver.New(life, apiserver.Config{
		Keys: keys, Engine: p.engine, Store: s, Gateway: p.gateway, Env: environment, Version: "bench", Clock: clock.System{}, IDs: ids.Random{},
		Log: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry(), Tokens: apiserver.NewRunTokens(ids.Random{}),
	})
	if err != nil {
		return err
	}
	l, err := listener(ctx, out)
	if err != nil {
		return err
	}
	if err = srv.Serve(ctx, l); errors.Is(err, http.ErrServerClosed) {
		err = nil
	}
	return err
}

// listener opens a port and tells where.
func listener(ctx context.Context, out io.Writer) (net.Listener, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err == nil {
		fmt.Fprintf(out, "serving on http://%s\n", l.Addr())
	}
	return l, err
}

// serveFloor puts net/http before a floor program.
func serveFloor(ctx context.Context, args []string, out io.Writer) (err error) {
	f := flag.NewFlagSet(floorCommand, flag.ContinueOnError)
	name := f.String("program", "", "floor-min or floor-full")
	addr := f.String("redis", "", "host:port")
	capability := f.String("capability", "", "lookup or approve")
	if err := f.Parse(args); err != nil {
		return err
	}
	client := goredis.NewClient(&goredis.Options{Addr: *addr, Protocol: 2, PoolSize: 2 * inFlight, DisableIdentity: true})
	defer func() { err = errors.Join(err, client.Close()) }()
	p, err := floor.New(*name, client)
	if err != nil {
		return err
	}
	l, err := listener(ctx, out)
	if err != nil {
		return err
	}
	srv := &http.Server{Handler: p.Handler(*capability), ReadHeaderTimeout: 10 * time.Second}
	closed := make(chan error, 1)
	unhook := context.AfterFunc(ctx, func() { closed <- srv.Close() })
	if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		unhook()
		return err
	}
	return <-closed
}
