package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"agentos/api/server"
	"agentos/internal/clock"
	"agentos/internal/ids"
	"agentos/internal/problem"
	"agentos/runtime"
)

// gcPercent is GOGC of a server unless the environment sets it. What lives is a few
// MiB, so that by default a seventh of the processor time went into collecting.
const gcPercent = 400

func serveCommand(io stdio, env lookup) *cobra.Command {
	var s settings
	cmd := &cobra.Command{
		Use:   "serve [agentos.yaml ...]",
		Short: "Serve the API, the gateway and a worker for the agents",
		Long: `Serve the API, the gateway and a worker in one process.

Without any settings it serves ./agentos.yaml on 127.0.0.1:8080, keeps runs in
./.agentos/agentos.db, and lets the mock model answer when no model provider is
configured.`,
		Example: "  agentos serve\n  AGENTOS_STORE=redis://127.0.0.1:6379 OPENAI_API_KEY=sk-... agentos serve agent/agentos.yaml",
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				args = []string{"agentos.yaml"}
			}
			if env.or("GOGC", "") == "" {
				debug.SetGCPercent(gcPercent)
			}
			return serve(cmd.Context(), s, io, env, args, hooks{})
		},
	}
	settingsFlags(cmd, &s, env)
	return cmd
}

// settingsFlags adds the flags of a command that runs an engine; the environment
// gives their defaults.
func settingsFlags(cmd *cobra.Command, s *settings, env lookup) {
	s.given = givenBy(cmd, env)
	f := cmd.Flags()
	f.StringVar(&s.addr, "addr", env.or("AGENTOS_ADDR", "127.0.0.1:8080"), "address to listen on (AGENTOS_ADDR)")
	f.StringSliceVar(&s.hosts, "host", words(env.or("AGENTOS_HOSTS", "")), "name under which clients reach the server, beside localhost and the address; repeatable (AGENTOS_HOSTS, with commas)")
	configFlag(cmd, &s.config, env)
	f.StringVar(&s.store, "store", env.or("AGENTOS_STORE", "file:.agentos/agentos.db"), "where runs are kept: file:PATH, memory:, redis://... (AGENTOS_STORE)")
	f.IntVar(&s.concurrency, "concurrency", number(env, "AGENTOS_CONCURRENCY", 64), "runs worked on at once (AGENTOS_CONCURRENCY)")
	f.IntVar(&s.partitions, "partitions", number(env, "AGENTOS_PARTITIONS", 1), "Redis hash slots to spread runs over; cannot be changed later (AGENTOS_PARTITIONS)")
	f.IntVar(&s.waitReplicas, "wait-replicas", number(env, "AGENTOS_WAIT_REPLICAS", 0), "Redis replicas that must have a write before it counts, so that a failover loses none; not with a cluster (AGENTOS_WAIT_REPLICAS)")
	f.IntVar(&s.maxQueued, "max-queued", number(env, "AGENTOS_MAX_QUEUED", 10000), "runs that may wait for a worker before more are refused with 429; 0 sets no bound (AGENTOS_MAX_QUEUED)")
	f.DurationVar(&s.lease, "lease", duration(env, "AGENTOS_LEASE", defaultLease), "how long a run stays with a worker that gives no sign of life (AGENTOS_LEASE)")
	f.DurationVar(&s.retention, "retention", duration(env, "AGENTOS_RETENTION", 30*24*time.Hour), "how long finished runs are kept; 0 keeps them for ever (AGENTOS_RETENTION)")
	f.DurationVar(&s.grace, "shutdown-grace", duration(env, "AGENTOS_SHUTDOWN_GRACE", 20*time.Second), "how long runs may go on after a stop signal (AGENTOS_SHUTDOWN_GRACE)")
	f.StringVar(&s.logFormat, "log", env.or("AGENTOS_LOG", "text"), "log format: text or json (AGENTOS_LOG)")
	f.StringVar(&s.logLevel, "log-level", env.or("AGENTOS_LOG_LEVEL", "info"), "log level: debug, info, warn or error (AGENTOS_LOG_LEVEL)")
}

// configFlag adds the flag for the operator's file.
func configFlag(cmd *cobra.Command, path *string, env lookup) {
	cmd.Flags().StringVar(path, "config", env.or("AGENTOS_CONFIG", ""), "the operator's platform.yaml; none when empty (AGENTOS_CONFIG)")
}

// number reads a whole number; a value that is none is -1, which check refuses.
func number(env lookup, name string, fallback int) int {
	v, ok := env(name)
	if !ok || v == "" {
		return fallback
	}
	var n int
	if _, err := fmt.Sscanf(v+"\n", "%d\n", &n); err != nil {
		return -1
	}
	return n
}

// duration reads a duration; a value that is none is -1, which check refuses.
func duration(env lookup, name string, fallback time.Duration) time.Duration {
	v, ok := env(name)
	if !ok || v == "" {
		return fallback
	}
	d, err := time.ParseDuration(v)
	if err != nil {
		return -1
	}
	return d
}

// Bounds of the lease: a shorter one is lost to any pause of a machine, a longer
// one leaves the runs of a dead worker alone for too long.
const (
	minLease     = time.Second
	maxLease     = 10 * time.Minute
	defaultLease = 15 * time.Second
)

// check reports settings that cannot work.
func (s settings) check() error {
	_, level := s.level()
	switch {
	case s.concurrency < 1:
		return s.wrong("concurrency", "must be a number of at least 1")
	case s.partitions < 1 || s.partitions > maxPartitions:
		return s.wrong("partitions", "must be a number from 1 to %d", maxPartitions)
	case s.waitReplicas < 0:
		return s.wrong("wait-replicas", "must be a number of at least 0")
	case s.maxQueued < 0:
		return s.wrong("max-queued", "must be a number of at least 0")
	case s.lease < minLease || s.lease > maxLease:
		return s.wrong("lease", `must be a duration from %s to %s such as "15s"`, minLease, maxLease)
	case s.retention < 0:
		return s.wrong("retention", `must be a duration such as "720h", or 0`)
	case s.grace < 0:
		return s.wrong("shutdown-grace", `must be a duration such as "20s"`)
	case s.logFormat != "text" && s.logFormat != "json":
		return s.wrong("log", "use text or json")
	case level != nil:
		return s.wrong("log-level", "use debug, info, warn or error")
	case !isAddress(s.addr):
		return s.wrong("addr", "must be host:port such as 127.0.0.1:8080")
	}
	for _, host := range s.hosts {
		if !hostName.MatchString(host) && net.ParseIP(host) == nil {
			return s.wrong("host", "%q: write a name or an IP address, without scheme and port", host)
		}
	}
	return nil
}

// maxPartitions is the most that a Redis store takes.
const maxPartitions = 1024

// isAddress reports whether addr is a host and a port.
func isAddress(addr string) bool {
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return false
	}
	_, err = strconv.ParseUint(port, 10, 16)
	return err == nil
}

// wrong is the error for the value of a flag, or of the variable that stands for it.
func (s settings) wrong(flag, format string, args ...any) error {
	given := "--" + flag
	if s.given != nil {
		given = s.given(flag)
	}
	return usageError{problem.New(problem.InvalidSettings, "%s: %s", given, fmt.Sprintf(format, args...))}
}

// givenBy tells how the values of the flags of cmd were given: "--lease 0s", or
// "AGENTOS_LEASE=abc". It must not be asked about a value that can hold a secret.
func givenBy(cmd *cobra.Command, env lookup) func(flag string) string {
	return func(flag string) string {
		f := cmd.Flags().Lookup(flag)
		name := "AGENTOS_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
		switch value, ok := env(name); {
		case f != nil && f.Changed:
			return fmt.Sprintf("--%s %.100s", flag, f.Value)
		case ok:
			return fmt.Sprintf("%s=%.100s", name, value)
		}
		return "--" + flag
	}
}

// serve runs until ctx ends, then drains.
func serve(ctx context.Context, s settings, out stdio, env lookup, manifests []string, h hooks) error {
	if err := s.check(); err != nil {
		return err
	}
	// The engine outlives the stop signal by the grace period.
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	p, err := assemble(life, s, env, out.err, manifests, h)
	if err != nil {
		return err
	}
	defer func() {
		if err := p.close(life); err != nil {
			p.log.WarnContext(life, "could not close everything", slog.Any("error", err))
		}
	}()
	if err := p.protected(ctx, s); err != nil {
		p.engine.Drain(life, 0)
		return err
	}
	if err := p.settle(ctx); err != nil {
		p.engine.Drain(life, 0)
		return err
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", s.addr)
	if err != nil {
		p.engine.Drain(life, 0)
		return problem.Wrap(err, problem.InvalidSettings, "cannot listen on %s: %v", s.addr, err)
	}
	srv, err := p.server(life)
	if err == nil {
		err = p.recordPolicy(ctx)
	}
	if err != nil {
		p.engine.Drain(life, 0)
		return errors.Join(err, listener.Close())
	}
	p.greet(out.err, listener.Addr())
	if h.listening != nil {
		h.listening(listener.Addr())
	}
	worked := make(chan error, 1)
	go func() { worked <- p.engine.Work(ctx) }()
	defer p.tell(life)()
	err = srv.Serve(ctx, listener)
	if errors.Is(err, http.ErrServerClosed) {
		err = nil
	}
	p.log.InfoContext(life, "stopping", slog.Duration("grace", s.grace))
	p.engine.Drain(life, s.grace)
	return errors.Join(err, <-worked)
}

// settleTime is how long a start waits for the MCP servers. Slower ones connect
// while the server runs; runs of their agent wait for them.
const settleTime = 2 * time.Second

// settle waits for the MCP servers and refuses agents whose policy misleads.
func (p *parts) settle(ctx context.Context) error {
	ctx, stop := context.WithTimeout(ctx, settleTime)
	defer stop()
	for _, a := range p.agents {
		a.MCP.Wait(ctx)
		if fault := a.Misleading(); fault != nil {
			return fault
		}
		for _, w := range a.Idle() {
			p.log.WarnContext(ctx, "policy", slog.String("warning", w))
		}
	}
	for _, w := range runtime.IdleOperator(p.agents) {
		p.log.WarnContext(ctx, "policy", slog.String("warning", w))
	}
	return nil
}

// server makes the API for the engine.
func (p *parts) server(ctx context.Context) (*server.Server, error) {
	return server.New(ctx, server.Config{
		Engine: p.engine, Store: p.store, Keys: p.keys, AllowedHosts: p.hosts, Gateway: p.gateway, Audit: p.audit, Env: environment, Version: version(),
		Clock: clock.System{}, IDs: ids.Random{}, Log: p.log, Metrics: prometheus.NewRegistry(),
		Tokens: server.NewRunTokens(ids.Random{}), MockModel: p.mock, Warnings: p.warnings,
	})
}

// warnings are what an operator should know about the agents' policy.
func (p *parts) warnings() []string {
	out := runtime.IdleOperator(p.agents)
	for _, a := range p.agents {
		out = append(out, a.Idle()...)
		if fault := a.Misleading(); fault != nil {
			for _, d := range fault.Details {
				out = append(out, "agent "+a.Manifest.Name+" does not run: "+d.Path+": "+d.Message)
			}
		}
	}
	return out
}

// greet prints where the server is and one line to try.
func (p *parts) greet(w io.Writer, addr net.Addr) {
	shown, ip := addr.String(), net.IP(nil)
	if tcp, ok := addr.(*net.TCPAddr); ok {
		ip = tcp.IP
	}
	if ip.IsUnspecified() {
		_, port, _ := net.SplitHostPort(shown) //nolint:errcheck // a listener's own address
		shown = net.JoinHostPort("127.0.0.1", port)
	}
	fmt.Fprintf(w, "agentos: serving on http://%s\n", shown)
	if ip != nil && !ip.IsLoopback() {
		fmt.Fprintf(w, "agentos: other machines reach it with an API key, for the hosts %s\n", strings.Join(p.hosts, ", "))
	}
	if p.mock != "" {
		fmt.Fprintf(w, "agentos: development mode: %s\n", p.mock)
	}
	if n := len(p.platform.Policy.Rules); n > 0 {
		fmt.Fprintf(w, "agentos: %d rules of the operator apply to every agent (%s)\n", n, p.platform.Policy.Digest)
	}
	for _, a := range p.agents {
		for _, name := range slices.Sorted(maps.Keys(a.Manifest.Capabilities)) {
			fmt.Fprintf(w, "agentos: POST http://%s/v0/envs/%s/agents/%s/capabilities/%s/runs?wait=true\n", shown, environment, a.Manifest.Name, name)
		}
	}
}
