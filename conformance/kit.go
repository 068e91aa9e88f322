package conformance

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"agentos/api"
	"agentos/api/client"
	"agentos/internal/clock"
	"agentos/internal/problem"
)

// env is the environment whose agents are tested.
const env = "default"

// patience is how long a run may take to be held or finished, and a server to
// notice something.
const patience = 60 * time.Second

// Config is what the kit needs. Either URL or Start says where the agent is.
type Config struct {
	Cases []Case
	// HTTP sends every request; required. Key is the API key they carry, or "".
	HTTP  *http.Client
	Key   string
	Clock clock.Clock
	// URL is a server that the kit does not control.
	URL string
	// Start starts a server of the kit's own whose notes go to Dir. It is called
	// again after each kill, with the store as it was left.
	Start func(ctx context.Context, l Launch) (Server, error)
	Dir   Dir
	// Manifest is what is wrong with the agent's manifest, nil when it is valid.
	// It is only looked at with Start.
	Manifest error
}

// Launch says how to start a server.
type Launch struct {
	// Offset is how far the store's clock is ahead. It never shrinks: a restarted
	// server finds the leases of the one before expired, and holds when asked to.
	Offset time.Duration
}

// Server is a server that the kit has started.
type Server struct {
	URL string
	// Exited is closed when the server's process has ended.
	Exited <-chan struct{}
	// Kill ends it at once (SIGKILL) and returns when it has ended.
	Kill func()
}

// leaseAge is how far the clock jumps at a restart, so that the leases of the
// killed server are over.
const leaseAge = time.Minute

// kit runs cases against one agent.
type kit struct {
	cfg    Config
	client *client.Client
	server Server
	offset time.Duration
	agent  api.Agent
	report Report
}

// Run runs all cases one after another and reports. An error means that the kit
// itself could not go on; the report then holds what it had seen.
func Run(ctx context.Context, cfg Config) (Report, error) {
	if cfg.HTTP == nil || cfg.Clock == nil || (cfg.Start == nil) == (cfg.URL == "") {
		return Report{}, errors.New("the conformance kit needs HTTP, Clock, and one of URL and Start")
	}
	k := &kit{cfg: cfg, report: Report{Results: []Result{}}}
	began := cfg.Clock.Now()
	err := k.run(ctx)
	k.report.DurationMS = cfg.Clock.Now().Sub(began).Milliseconds()
	return k.report, err
}

func (k *kit) run(ctx context.Context) error {
	first := Result{Name: "agent"}
	began := k.cfg.Clock.Now()
	if k.own() && !first.check(CheckManifest, k.cfg.Manifest == nil, "no fault", errorText(k.cfg.Manifest)) {
		k.report.add(first, 0)
		return nil
	}
	if err := k.start(ctx); err != nil {
		return err
	}
	defer k.stop()
	if err := k.findAgent(ctx); err != nil {
		return err
	}
	k.probe(ctx, &first)
	k.report.add(first, k.cfg.Clock.Now().Sub(began))
	for _, c := range k.cfg.Cases {
		if err := k.runCase(ctx, c); err != nil {
			return fmt.Errorf("case %s: %w", c.Name, err)
		}
	}
	return nil
}

// own reports whether the kit controls the server.
func (k *kit) own() bool { return k.cfg.Start != nil }

// start starts the server, or looks at the one it is given.
func (k *kit) start(ctx context.Context) (err error) {
	url := k.cfg.URL
	if k.own() {
		if k.server, err = k.cfg.Start(ctx, Launch{Offset: k.offset}); err != nil {
			return fmt.Errorf("start the server: %w", err)
		}
		url = k.server.URL
	}
	k.client, err = client.New(client.Config{URL: url, HTTP: k.cfg.HTTP, Key: k.cfg.Key})
	return err
}

func (k *kit) stop() {
	if k.server.Kill != nil {
		k.server.Kill()
	}
}

// restart kills the server if it still lives, waits until nothing writes notes
// any more, and starts it again with its clock at least at offset. atDeath, when
// not nil, looks at the notes in between.
func (k *kit) restart(ctx context.Context, offset time.Duration, atDeath func() error) error {
	k.stop()
	k.cfg.HTTP.CloseIdleConnections()
	if err := k.cfg.Dir.settle(); err != nil {
		return err
	}
	if atDeath != nil {
		if err := atDeath(); err != nil {
			return err
		}
	}
	k.offset = max(offset, k.offset+leaseAge)
	return k.start(ctx)
}

// revive starts the server again when it has died by itself, so that one crash
// fails one case.
func (k *kit) revive(ctx context.Context) error {
	select {
	case <-k.server.Exited:
		return k.restart(ctx, 0, nil)
	default:
		return nil
	}
}

// findAgent chooses the agent that has all the capabilities of the cases.
func (k *kit) findAgent(ctx context.Context) error {
	agents, err := k.client.Agents(ctx, env)
	if err != nil {
		return fmt.Errorf("list the agents: %w", err)
	}
	var fit []api.Agent
	for _, a := range agents {
		if k.serves(a) {
			fit = append(fit, a)
		}
	}
	switch {
	case len(fit) == 1:
		k.agent = fit[0]
	case len(agents) == 1: // the cases will say what it lacks
		k.agent = agents[0]
	default:
		return problem.New(problem.InvalidSettings, "%d of the server's %d agents have all the capabilities of the cases; there must be one", len(fit), len(agents))
	}
	k.report.Agent, k.report.Digest, k.report.Counted = k.agent.Name, k.agent.Digest, map[string]string{}
	for _, s := range k.agent.MCPServers {
		k.report.Counted[s.Name] = "trajectory"
		if k.proxied(s.Name) {
			k.report.Counted[s.Name] = "proxy"
		}
	}
	return nil
}

func (k *kit) serves(a api.Agent) bool {
	for _, c := range k.cfg.Cases {
		if capability(a, c.Capability) == nil {
			return false
		}
	}
	return true
}

func capability(a api.Agent, name string) *api.Capability {
	for i := range a.Capabilities {
		if a.Capabilities[i].Name == name {
			return &a.Capabilities[i]
		}
	}
	return nil
}

// stdio is the transport of the servers that the kit can stand before.
const stdio = "stdio"

// proxied reports whether the calls of the server are counted by a proxy.
func (k *kit) proxied(alias string) bool {
	if !k.own() {
		return false
	}
	for _, s := range k.agent.MCPServers {
		if s.Name == alias {
			return s.Transport == stdio
		}
	}
	return false
}

// runCase runs a case in all the ways its faults ask for.
func (k *kit) runCase(ctx context.Context, c Case) error {
	if why := k.unable(c); why != "" {
		k.report.add(Result{Capability: c.Capability, Name: c.Name, Skipped: why}, 0)
		return nil
	}
	switch {
	case c.Fault.Kind == FaultKill:
		return k.killEverywhere(ctx, c)
	case c.races():
		if _, err := k.attempt(ctx, c, variant{title: "same decision from 8 clients"}); err != nil {
			return err
		}
		_, err := k.attempt(ctx, c, variant{title: "approve races reject from 16 clients", race: true})
		return err
	case c.Fault.Kind == FaultDrop:
		_, err := k.attempt(ctx, c, variant{title: "drop_mcp", armed: &armed{Kind: FaultDrop}})
		return err
	}
	_, err := k.attempt(ctx, c, variant{title: c.stepFaults()})
	return err
}

// unable says why a case cannot run against this server, or "".
func (k *kit) unable(c Case) string {
	if k.own() {
		return ""
	}
	faults := []Fault{c.Fault}
	for _, s := range c.Steps {
		faults = append(faults, s.Fault)
	}
	for _, f := range faults {
		switch f.Kind {
		case FaultNone, FaultDoubleDecision:
		case FaultKill, FaultDrop, FaultChangeTool, FaultExpire:
			return fmt.Sprintf("%s needs a server that the kit starts itself (--agent)", f.Kind)
		}
	}
	return ""
}

func (c Case) races() bool {
	for _, s := range c.Steps {
		if s.Fault.Kind == FaultDoubleDecision {
			return true
		}
	}
	return false
}

// stepFaults names the faults of the steps, for the title.
func (c Case) stepFaults() string {
	var faults []string
	for _, s := range c.Steps {
		if s.Fault.Kind != FaultNone {
			faults = append(faults, strings.Join(append([]string{string(s.Fault.Kind)}, s.Fault.Points...), " "))
		}
	}
	return strings.Join(faults, ", ")
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
