package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"agentos/api/auth"
	"agentos/audit"
	"agentos/capabilities"
	"agentos/gateway"
	"agentos/gateway/mock"
	"agentos/gateway/openai"
	"agentos/internal/clock"
	"agentos/internal/egress"
	"agentos/internal/ids"
	"agentos/internal/problem"
	"agentos/internal/secrets"
	"agentos/notify"
	"agentos/platform"
	"agentos/runtime"
	"agentos/runtime/mcp"
	"agentos/runtime/store"
	"agentos/runtime/store/file"
	"agentos/runtime/store/redis"
)

// environment is the one environment a server has until the operator can name
// more.
const environment = "default"

// settings are what flags and environment variables choose. Flags win.
type settings struct {
	addr string
	// hosts are further names that requests may be for.
	hosts        []string
	config       string
	store        string
	concurrency  int
	partitions   int
	waitReplicas int
	maxQueued    int
	lease        time.Duration
	retention    time.Duration
	grace        time.Duration
	logFormat    string
	logLevel     string
	// given tells how the value of a flag was given; nil when no flags were read.
	given func(flag string) string
}

// parts are the pieces of a running engine. close releases them in order.
type parts struct {
	log      *slog.Logger
	platform platform.Config
	secrets  *secrets.Set
	store    store.Store
	gateway  *gateway.Gateway
	audit    *audit.Chain
	agents   []*runtime.Agent
	engine   *runtime.Engine
	teller   *notify.Teller
	keys     *auth.Keyring
	// hosts are the names that requests may be for.
	hosts []string
	// mock says which model the mock model stands in for, "" when none.
	mock string
}

// hooks replace pieces for the conformance kit's own server; zero everywhere
// else.
type hooks struct {
	clock    clock.Clock
	store    func(store.Store) store.Store
	provider func(gateway.Provider) gateway.Provider
	manifest func(*capabilities.Agent)
	lease    time.Duration
	// listening is told the address before the first request is answered.
	listening func(net.Addr)
}

// assemble builds an engine for the manifests. ctx is the life of everything it
// starts; on an error nothing is left behind.
func assemble(ctx context.Context, s settings, env lookup, logTo io.Writer, manifests []string, h hooks) (*parts, error) {
	config, platformErr := platform.Load(s.config)
	agents, err := loadAll(manifests)
	if err = errors.Join(platformErr, err); err != nil {
		return nil, err
	}
	if h.manifest != nil {
		for _, a := range agents {
			h.manifest(a)
		}
	}
	p := &parts{platform: config}
	if p.secrets, err = readSecrets(env, agents); err != nil {
		return nil, err
	}
	if p.log, err = newLog(s, logTo, p.secrets); err != nil {
		return nil, err
	}
	p.warnSecrets(ctx, agents)
	if h.clock == nil {
		h.clock = clock.System{}
	}
	if p.gateway, p.mock, err = newGateway(s, env, p.secrets, h); err != nil {
		return nil, err
	}
	if p.store, err = openStore(ctx, s, p.log, h.clock); err != nil {
		return nil, err
	}
	if h.store != nil {
		p.store = h.store(p.store)
	}
	p.audit = audit.NewChain(p.store, environment)
	if err := p.newTeller(); err != nil {
		return nil, errors.Join(err, p.close(ctx))
	}
	if p.keys, err = newKeyring(s, p.store, p.audit.Append, p.log); err != nil {
		return nil, errors.Join(err, p.close(ctx))
	}
	p.hosts = s.allowedHosts()
	if err := p.connect(ctx, env, agents); err != nil {
		return nil, errors.Join(err, p.close(ctx))
	}
	if h.lease == 0 {
		h.lease = s.lease
	}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	p.engine, err = runtime.New(ctx, runtime.Config{
		Store: p.store, Gateway: p.gateway, Agents: p.agents, Clock: clock.System{}, IDs: ids.Random{}, Log: p.log,
		Redact: p.secrets.Redact, Env: environment, Worker: host + "/" + strconv.Itoa(os.Getpid()),
		Concurrency: s.concurrency, MaxQueued: s.maxQueued, Lease: h.lease,
		Notify: audit.Concerns, Record: p.audit.Append,
	})
	if err != nil {
		return nil, errors.Join(err, p.close(ctx))
	}
	return p, nil
}

// close ends MCP connections and the store. The engine must be drained before.
func (p *parts) close(ctx context.Context) error {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer stop()
	var errs []error
	for _, a := range p.agents {
		errs = append(errs, a.MCP.Close(ctx))
	}
	if p.store != nil {
		errs = append(errs, p.store.Close())
	}
	return errors.Join(errs...)
}

func loadAll(manifests []string) ([]*capabilities.Agent, error) {
	var agents []*capabilities.Agent
	var errs []error
	for _, path := range manifests {
		a, err := capabilities.Load(path)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		agents = append(agents, a)
	}
	return agents, errors.Join(errs...)
}

// connect opens the MCP servers of every agent.
func (p *parts) connect(ctx context.Context, env lookup, agents []*capabilities.Agent) error {
	binary, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find the running binary: %w", err)
	}
	for _, a := range agents {
		urls := make([]string, 0, len(a.Servers))
		for _, s := range a.Servers {
			if s.URL != "" {
				urls = append(urls, s.URL)
			}
		}
		policy, err := egress.New(egress.Config{Allow: a.NetworkAllow, URLs: urls})
		if err != nil {
			return fmt.Errorf("agent %s: %w", a.Name, err)
		}
		set, err := mcp.Open(ctx, mcp.Config{
			Servers: a.Servers, Egress: policy, Binary: binary, BaseEnv: childEnv(env), Version: version(),
			Resolve: func(template string) (string, error) { return capabilities.Resolve(template, p.secrets.Value) },
			Redact:  p.secrets.Redact, Clock: clock.System{}, Log: p.log.With(slog.String("agent", a.Name)),
		})
		if err != nil {
			return fmt.Errorf("agent %s: %w", a.Name, err)
		}
		p.agents = append(p.agents, &runtime.Agent{Manifest: a, MCP: set, Operator: p.platform.Policy})
	}
	return nil
}

// childEnv is all that MCP servers inherit.
func childEnv(env lookup) []string {
	var out []string
	for _, name := range []string{"PATH", "HOME", "USER", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR"} {
		if v, ok := env(name); ok {
			out = append(out, name+"="+v)
		}
	}
	return out
}

// readSecrets finds the value of every secret a manifest names, and the keys of
// the model providers and of this API, which are redacted but never given to an
// agent.
func readSecrets(env lookup, agents []*capabilities.Agent) (*secrets.Set, error) {
	values := map[string]string{}
	for _, a := range agents {
		for _, name := range a.Secrets {
			v, ok := env("AGENTOS_SECRET_" + strings.ToUpper(strings.ReplaceAll(name, "-", "_")))
			if !ok {
				raw, err := os.ReadFile(filepath.Join("/run/secrets", filepath.Base(name)))
				if errors.Is(err, os.ErrNotExist) {
					continue // the server that needs it says so when it connects
				}
				if err != nil {
					return nil, problem.Wrap(err, problem.InvalidSettings, "the file of secret %q cannot be read", name)
				}
				v = strings.TrimRight(string(raw), "\r\n")
			}
			values[name] = v
		}
	}
	return secrets.New(values).Guard(map[string]string{
		"openai_api_key": env.or("OPENAI_API_KEY", ""), "agentos_api_key": env.or("AGENTOS_API_KEY", ""),
	}), nil
}

// warnSecrets names the secrets that are too short to be taken out of texts.
func (p *parts) warnSecrets(ctx context.Context, agents []*capabilities.Agent) {
	for _, a := range agents {
		for _, name := range a.Secrets {
			if v, ok := p.secrets.Value(name); ok && len(v) < secrets.MinLength {
				p.log.WarnContext(ctx, "the secret is too short to be redacted", slog.String("agent", a.Name), slog.String("secret", name))
			}
		}
	}
}

// level is the log level that is set.
func (s settings) level() (slog.Level, error) {
	var level slog.Level
	err := level.UnmarshalText([]byte(s.logLevel))
	return level, err
}

func newLog(s settings, to io.Writer, redact *secrets.Set) (*slog.Logger, error) {
	level, err := s.level()
	if err != nil {
		return nil, s.wrong("log-level", "use debug, info, warn or error")
	}
	o := &slog.HandlerOptions{Level: level}
	switch s.logFormat {
	case "text":
		return slog.New(redact.Handler(slog.NewTextHandler(to, o))), nil
	case "json":
		return slog.New(redact.Handler(slog.NewJSONHandler(to, o))), nil
	}
	return nil, s.wrong("log", "use text or json")
}

// newGateway reaches the providers that are configured. Without any, on a
// loopback address, the mock model stands in for development.
func newGateway(s settings, env lookup, redact *secrets.Set, h hooks) (*gateway.Gateway, string, error) {
	mocked, err := mock.New(mock.Config{Clock: clock.System{}})
	if err != nil {
		return nil, "", err
	}
	cfg := gateway.Config{
		Providers: map[string]gateway.Provider{"mock": mocked},
		Clock:     clock.System{}, Rand: rand.Int64N, Redact: redact.Redact,
	}
	standsIn := ""
	key, base := env.or("OPENAI_API_KEY", ""), env.or("OPENAI_BASE_URL", "")
	switch {
	case h.provider != nil:
		p := h.provider(mocked)
		cfg.Providers["mock"], cfg.StandIn = p, p
	case key != "" || base != "":
		if base == "" {
			base = "https://api.openai.com/v1"
		}
		if cfg.Providers["openai"], err = openai.New(openai.Config{BaseURL: base, APIKey: key, Client: modelClient(), Clock: clock.System{}}); err != nil {
			return nil, "", err
		}
	case isLoopback(s.addr):
		cfg.StandIn = mocked
		standsIn = "no model provider is configured (OPENAI_API_KEY, OPENAI_BASE_URL): the mock model answers every model"
	}
	g, err := gateway.New(cfg)
	return g, standsIn, err
}

// modelClient reaches model providers: traffic of the operator's, which an
// agent's network rules neither open nor close.
func modelClient() *http.Client {
	return &http.Client{Transport: &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           (&net.Dialer{Timeout: 10 * time.Second}).DialContext,
		TLSHandshakeTimeout:   10 * time.Second,
		ResponseHeaderTimeout: 10 * time.Minute,
		MaxIdleConnsPerHost:   64,
		IdleConnTimeout:       90 * time.Second,
		ForceAttemptHTTP2:     true,
	}}
}

// isLoopback reports whether addr can only be reached from this machine.
func isLoopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// openStore opens the store a URL names: file:PATH, memory:, or any Redis.
func openStore(ctx context.Context, s settings, log *slog.Logger, c clock.Clock) (store.Store, error) {
	scheme, rest, _ := strings.Cut(s.store, ":")
	switch scheme {
	case "file":
		return file.Open(ctx, file.Config{Path: rest, Clock: c, Retention: s.retention, Log: log})
	case "memory":
		return file.Open(ctx, file.Config{Clock: c, Retention: s.retention, Log: log})
	case "redis", "rediss", "redis+sentinel", "rediss+sentinel", "redis+cluster", "rediss+cluster":
		opened, err := redis.Open(ctx, redis.Config{URL: s.store, Partitions: s.partitions, WaitReplicas: s.waitReplicas, Retention: s.retention, Log: log})
		switch {
		case problem.CodeOf(err) == problem.InvalidSettings:
			return nil, usageError{err}
		case err != nil:
			return nil, err
		}
		return opened, nil
	}
	// The rest of it may hold a password.
	return nil, usageError{problem.New(problem.InvalidSettings,
		"a store cannot begin with %.40q; use file:PATH, memory:, redis://…, rediss://…, redis+sentinel://… or redis+cluster://…", scheme)}
}
