package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"agentos/capabilities"
	"agentos/conformance"
	"agentos/gateway"
	"agentos/internal/clock"
	"agentos/internal/rawjson"
	"agentos/runtime/store"
)

// listening is the one line that the kit's server writes to its output.
type listening struct {
	URL string `json:"url"`
}

// kitServerCommand is the server that the conformance kit tests: the same as
// serve, offline, with the mock model, and with the kit's notes and faults where
// it meets the store, the model and the MCP servers. It ends when its input is
// closed, so that it cannot outlive the kit.
func kitServerCommand(std stdio, env lookup) *cobra.Command {
	var manifest, dir, config string
	var offset time.Duration
	cmd := &cobra.Command{
		Use:     "kit-server",
		Short:   "Serve an agent to the conformance kit",
		Example: "  agentos kit-server --agent agentos.yaml --dir DIR",
		Hidden:  true,
		Args:    takes(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := context.WithCancel(cmd.Context())
			defer stop()
			go func() {
				_, _ = io.Copy(io.Discard, std.in) //nolint:errcheck // any end of the input is the end
				stop()
			}()
			s := settings{
				addr: "127.0.0.1:0", config: config, store: "file:" + filepath.Join(dir, "runs.db"), concurrency: 64, partitions: 1, lease: defaultLease,
				grace: 2 * time.Second, logFormat: "text", logLevel: "info",
			}
			return serve(ctx, s, std, env, []string{manifest}, kitHooks(std, conformance.Dir{Path: dir}, offset))
		},
	}
	f := cmd.Flags()
	f.StringVar(&manifest, "agent", "agentos.yaml", "manifest of the agent")
	f.StringVar(&dir, "dir", "", "folder of the notes, the faults and the store")
	f.StringVar(&config, "config", "", "the operator's platform.yaml")
	f.DurationVar(&offset, "offset", 0, "how far the store's clock is ahead")
	return cmd
}

func kitHooks(std stdio, dir conformance.Dir, offset time.Duration) hooks {
	return hooks{
		clock:    ahead{by: offset},
		provider: func(p gateway.Provider) gateway.Provider { return noted{next: p, dir: dir} },
		manifest: func(a *capabilities.Agent) { interpose(a, dir) },
		store: func(s store.Store) store.Store {
			return store.Fault{Store: s, At: func(ctx context.Context, p store.Point) { reach(ctx, dir, p.String()) }}
		},
		listening: func(addr net.Addr) {
			line, err := rawjson.Marshal(listening{URL: "http://" + addr.String()})
			if err == nil {
				fmt.Fprintf(std.out, "%s\n", line)
			}
		},
	}
}

// ahead is the system clock with an offset: what a store sees that is used again
// much later.
type ahead struct {
	clock.System
	by time.Duration
}

// Now implements clock.Clock.
func (a ahead) Now() time.Time { return a.System.Now().Add(a.by) }

// interpose closes the network and puts a proxy of the kit's before each stdio
// server. The digest stays that of the manifest as it is.
func interpose(a *capabilities.Agent, dir conformance.Dir) {
	a.NetworkAllow = nil
	for alias, s := range a.Servers {
		if len(s.Command) > 0 {
			s.Command = append([]string{"${agentos}", "kit-mcp", "--dir", dir.Path, "--alias", alias, "--"}, s.Command...)
		}
	}
}

// noted notes each request to the model before it is answered.
type noted struct {
	next gateway.Provider
	dir  conformance.Dir
}

// Complete implements gateway.Provider.
func (n noted) Complete(ctx context.Context, body json.RawMessage) (json.RawMessage, error) {
	if err := n.dir.NoteModel(body); err != nil {
		return nil, err
	}
	reach(ctx, n.dir, "during:model")
	return n.next.Complete(ctx, body)
}

// reach notes a point and ends this process where the kit wants it to die. The
// signal cannot be caught, so nothing is flushed, closed or handed back.
func reach(ctx context.Context, dir conformance.Dir, point string) {
	die, err := dir.Reached(point)
	if err != nil {
		slog.ErrorContext(ctx, "the conformance kit's notes cannot be written", slog.Any("error", err))
	}
	if die || err != nil {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL) //nolint:errcheck // it cannot fail for oneself
		select {}
	}
}

// kitMCPCommand runs an MCP server with the kit's proxy before it.
func kitMCPCommand(std stdio) *cobra.Command {
	var dir, alias string
	cmd := &cobra.Command{
		Use:     "kit-mcp --dir DIR --alias ALIAS -- COMMAND ...",
		Short:   "Count the calls of an MCP server for the conformance kit",
		Example: "  agentos kit-mcp --dir DIR --alias orders -- agentos example-orders",
		Hidden:  true,
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return kitMCP(cmd.Context(), std, conformance.Dir{Path: dir}, alias, args)
		},
	}
	f := cmd.Flags()
	f.StringVar(&dir, "dir", "", "folder of the notes and the faults")
	f.StringVar(&alias, "alias", "", "the server's name in the manifest")
	return cmd
}

func kitMCP(ctx context.Context, std stdio, dir conformance.Dir, alias string, command []string) error {
	parent := os.Getppid()
	joined, err := dir.Join()
	if err != nil {
		return err
	}
	defer joined.Close() //nolint:errcheck // its lock ends with the process
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	server := exec.CommandContext(ctx, command[0], command[1:]...) //nolint:gosec // the manifest's own command
	server.Stderr = std.err
	toServer, err := server.StdinPipe()
	if err != nil {
		return err
	}
	fromServer, err := server.StdoutPipe()
	if err != nil {
		return err
	}
	if err := server.Start(); err != nil {
		return err
	}
	p := &conformance.Proxy{Dir: dir, Alias: alias, Clock: clock.System{}, Kill: func() error {
		if os.Getppid() != parent {
			return errors.New("the client is gone already")
		}
		return syscall.Kill(parent, syscall.SIGKILL)
	}}
	err = p.Run(ctx, std.in, std.out, fromServer, toServer)
	if err != nil {
		stop()
	}
	return errors.Join(err, server.Wait())
}
