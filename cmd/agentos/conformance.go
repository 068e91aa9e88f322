package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"agentos/api/client"
	"agentos/capabilities"
	"agentos/conformance"
	"agentos/internal/clock"
	"agentos/internal/problem"
	"agentos/internal/rawjson"
	"agentos/internal/strictyaml"
	"agentos/internal/visible"
	"agentos/platform"
)

// conformanceFlags are the flags of the conformance command.
type conformanceFlags struct {
	file, agent, url, key, junit, config string
	json                                 bool
	cases                                []string
}

// conformanceCommand runs conformance.yaml against an agent.
func conformanceCommand(std stdio, env lookup) *cobra.Command {
	var o conformanceFlags
	cmd := &cobra.Command{
		Use:   "conformance",
		Short: "Run the cases of conformance.yaml against an agent, offline",
		Long: `Run the cases of conformance.yaml against an agent and report every check.

Without --url the agent of --agent runs in a server of the kit's own: offline, with
the mock model, in a folder that is removed afterwards. The kit counts what the
tools really did and injects the faults that cases ask for: it kills the server at
every boundary of the journal, drops MCP servers, races decisions. With --url it
tests a running server; cases with faults that need a server of its own are then
skipped.

The exit code is 0 when every check passed, 1 when one failed, 2 when the command
or the case file is wrong.`,
		Example: `  agentos conformance
  agentos conformance --case cancel-approved --json
  agentos conformance --url http://127.0.0.1:8080 --junit report.xml`,
		Args: takes(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.url != "" && cmd.Flags().Changed("agent") {
				return usageError{errors.New("give --agent or --url, not both")}
			}
			if o.url != "" && cmd.Flags().Changed("config") {
				return usageError{errors.New("give --config or --url, not both: a server has its own")}
			}
			if o.url != "" {
				if _, err := client.New(client.Config{URL: o.url, HTTP: kitClient()}); err != nil {
					return usage(cmd, "--url: %s", problem.From(err).Message)
				}
			}
			return runConformance(cmd.Context(), std, env, o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.file, "file", "conformance.yaml", "file with the cases")
	f.StringVar(&o.agent, "agent", "agentos.yaml", "manifest of the agent to test")
	configFlag(cmd, &o.config, env)
	f.StringVar(&o.url, "url", "", "test the server at this address instead")
	f.StringVar(&o.key, "key", "", "API key for --url (AGENTOS_API_KEY)")
	f.StringVar(&o.junit, "junit", "", "also write the report as JUnit XML to this file")
	f.BoolVar(&o.json, "json", false, "print the report as JSON")
	f.StringArrayVar(&o.cases, "case", nil, "run only this case; may be repeated")
	return cmd
}

func runConformance(ctx context.Context, std stdio, env lookup, o conformanceFlags) error {
	cases, err := readCases(o)
	if problems := strictyaml.Errors(nil); errors.As(err, &problems) {
		for _, p := range problems {
			fmt.Fprintln(std.err, visible.Text(p.String()))
		}
		return failed{code: exitUsage}
	}
	if err != nil {
		return err
	}
	cfg := conformance.Config{Cases: cases, Clock: clock.System{}, HTTP: kitClient(), Key: kitKey(env, o), URL: o.url}
	if o.url == "" {
		if _, err := platform.Load(o.config); err != nil {
			return usageError{err}
		}
		dir, err := os.MkdirTemp("", "agentos-conformance-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir) //nolint:errcheck // the system clears its temporary folder
		k := &kitProcess{dir: dir, manifest: o.agent, config: o.config, environ: os.Environ()}
		_, cfg.Manifest = capabilities.Load(o.agent)
		cfg.Dir, cfg.Start = conformance.Dir{Path: dir}, k.start
	}
	report, err := conformance.Run(ctx, cfg)
	return errors.Join(err, publish(std, o, report, err))
}

// publish writes the report in every form asked for. Nothing is printed when the
// kit could not begin.
func publish(std stdio, o conformanceFlags, report conformance.Report, kitErr error) error {
	if kitErr != nil && len(report.Results) == 0 {
		return nil
	}
	if o.junit != "" {
		f, err := os.Create(o.junit)
		if err != nil {
			return err
		}
		if err := errors.Join(report.WriteJUnit(f), f.Close()); err != nil {
			return err
		}
	}
	write := report.WriteText
	if o.json {
		write = report.WriteJSON
	}
	if err := write(std.out); err != nil {
		return err
	}
	if !report.OK() {
		return failed{code: exitFailed}
	}
	return nil
}

// readCases reads the case file and keeps the cases asked for.
func readCases(o conformanceFlags) ([]conformance.Case, error) {
	f, err := os.Open(o.file)
	if err != nil {
		return nil, usageError{fmt.Errorf("the case file cannot be read: %w", err)}
	}
	defer f.Close() //nolint:errcheck // read only
	data, err := io.ReadAll(io.LimitReader(f, strictyaml.MaxBytes+1))
	if err != nil {
		return nil, usageError{fmt.Errorf("the case file cannot be read: %w", err)}
	}
	all, err := conformance.Parse(o.file, data)
	if err != nil || len(o.cases) == 0 {
		return all, err
	}
	var names []string
	for _, c := range all {
		names = append(names, c.Name)
	}
	for _, name := range o.cases {
		if !slices.Contains(names, name) {
			return nil, usageError{fmt.Errorf("no case %q in %s; it has: %s", name, o.file, strings.Join(names, ", "))}
		}
	}
	return slices.DeleteFunc(all, func(c conformance.Case) bool { return !slices.Contains(o.cases, c.Name) }), nil
}

// kitKey is the API key of the kit's requests. A server of its own has no keys.
func kitKey(env lookup, o conformanceFlags) string {
	switch {
	case o.url == "":
		return ""
	case o.key == "":
		return env.or("AGENTOS_API_KEY", "")
	}
	return o.key
}

// kitClient sends the kit's requests.
func kitClient() *http.Client {
	return &http.Client{
		Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, MaxIdleConnsPerHost: 32},
		// The API never redirects, and a key must not travel to another host.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// kitProcess starts the kit's servers: children of this binary.
type kitProcess struct {
	dir, manifest, config string
	environ               []string
}

// startTime is how long a server may take to listen.
const startTime = 30 * time.Second

// start starts a server and returns when it listens. Its log is server.log in
// the kit's folder; the end of it is in the error when it does not come up.
func (k *kitProcess) start(ctx context.Context, l conformance.Launch) (conformance.Server, error) {
	binary, err := os.Executable()
	if err != nil {
		return conformance.Server{}, err
	}
	log, err := os.OpenFile(filepath.Join(k.dir, "server.log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return conformance.Server{}, err
	}
	defer log.Close()                                                                                                                                 //nolint:errcheck // the child has its own
	cmd := exec.CommandContext(ctx, binary, "kit-server", "--agent", k.manifest, "--dir", k.dir, "--offset", l.Offset.String(), "--config", k.config) //nolint:gosec // our own binary
	cmd.Env, cmd.Stderr = k.environ, log
	life, err := cmd.StdinPipe()
	if err != nil {
		return conformance.Server{}, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return conformance.Server{}, err
	}
	if err := cmd.Start(); err != nil {
		return conformance.Server{}, err
	}
	first, exited := watchOver(cmd, out, life)
	s := conformance.Server{Exited: exited, Kill: func() {
		_ = cmd.Process.Kill() //nolint:errcheck // it may have ended
		<-exited
	}}
	var hello listening
	select {
	case line := <-first:
		if err := rawjson.Decode(line, &hello); err == nil {
			s.URL = hello.URL
			return s, nil
		}
	case <-clock.System{}.After(startTime):
	case <-ctx.Done():
	}
	s.Kill()
	return conformance.Server{}, fmt.Errorf("the server did not come up: %s", k.lastWords())
}

// watchOver reads what the server says and waits for its end: first gets its
// first line, exited is closed when it is gone.
func watchOver(cmd *exec.Cmd, out io.Reader, life io.Closer) (first <-chan []byte, exited <-chan struct{}) {
	said, gone := make(chan []byte, 1), make(chan struct{})
	go func() {
		defer close(gone)
		lines := bufio.NewReader(out)
		line, _ := lines.ReadBytes('\n') //nolint:errcheck // without a line the server has failed
		said <- line
		_, _ = io.Copy(io.Discard, lines) //nolint:errcheck // until it ends
		_ = cmd.Wait()                    //nolint:errcheck // it is killed on purpose
		_ = life.Close()                  //nolint:errcheck // it is gone
	}()
	return said, gone
}

// lastWords is the end of the server's log.
func (k *kitProcess) lastWords() string {
	raw, err := os.ReadFile(filepath.Join(k.dir, "server.log"))
	if err != nil {
		return err.Error()
	}
	const most = 2000
	return strings.TrimSpace(string(raw[max(0, len(raw)-most):]))
}
