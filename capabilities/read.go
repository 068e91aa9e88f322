package capabilities

import (
	"net"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"agentos/holds/policyfile"
	"agentos/internal/strictyaml"
)

// Limits of one manifest: far above what people write, far below what hurts.
const (
	maxServers      = 32
	maxCapabilities = 64
	maxNames        = 100 // models, params, secrets, rules, tools, hosts and the like
	maxArgs         = 200
)

// Defaults of the manifest.
const (
	defaultPort           = 8080
	defaultTimeout        = 5 * time.Minute
	defaultConnectTimeout = 30 * time.Second
	defaultCallTimeout    = 60 * time.Second
	defaultMaxTurns       = 10
)

// Longest durations.
const (
	maxTimeout        = 24 * time.Hour
	maxConnectTimeout = 10 * time.Minute
	maxCallTimeout    = time.Hour
)

// Names. What a pattern allows is said in words beside each use.
var (
	agentName      = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,62}[a-z0-9])?$`)
	aliasName      = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,31}$`)
	capabilityName = regexp.MustCompile(`^[a-z][a-z0-9_]{0,62}$`)
	plainName      = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$`)
	paramName      = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_-]{0,62}$`)
	modelID        = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]*/[!-~]{1,200}$`)
	hostPattern    = regexp.MustCompile(`^(\*\.)?[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?(\.[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?)*$`)
)

// reader turns a document into an Agent. It goes on after every fault, so that
// all are reported; the agent is used only when there was none.
type reader struct {
	dir   string
	a     *Agent
	rules *policyfile.Reader
}

func (r *reader) agent(root strictyaml.Value) *Agent {
	r.a = &Agent{
		Dir: r.dir, Servers: map[string]*Server{}, Capabilities: map[string]*Capability{},
		Models: map[string]Model{}, Params: map[string]string{},
	}
	o := root.Object()
	if !o.Valid() {
		return r.a
	}
	// What others refer to comes first.
	r.config(o.Get("config"))
	r.secrets(o.Get("secrets"))

	name := o.Get("name")
	name.Required()
	r.a.Name = name.Matching(agentName, "1 to 64 of a-z, 0-9 and -, beginning and ending with a letter or digit")
	r.a.Title = r.text(o.Get("title"), none)
	r.a.Description = r.text(o.Get("description"), none)
	r.a.Version = o.Get("version").String()
	o.Get("runtime").OneOf("stateless")
	r.a.Port = int(o.Get("port").Int(1, 65535, defaultPort))
	r.servers(o.Get("mcp_servers"))
	r.network(o.Get("network"))
	r.policy(o.Get("policy"))
	r.capabilities(o.Get("capabilities"))
	o.Close()
	secretsOutside(root)
	return r.a
}

func (r *reader) config(v strictyaml.Value) {
	o := v.Object()
	for _, e := range o.Get("params").Entries(maxNames) {
		e.Key.Matching(paramName, "a name of letters, digits, _ and -")
		r.a.Params[e.Name] = param(e.Value)
	}
	for _, e := range o.Get("models").Entries(maxNames) {
		e.Key.Matching(plainName, "a name of letters, digits, _, . and -")
		r.a.Models[e.Name] = r.model(e.Value)
	}
	o.Close()
}

// param reads a value of config.params, which refers to nothing: the result must
// not depend on the order of the file.
func param(v strictyaml.Value) string {
	parts, err := parseTemplate(v.String())
	if err != nil {
		v.Problem("%s", err)
	}
	var b strings.Builder
	for _, p := range parts {
		if p.ref != "" && !strings.HasPrefix(p.ref, "secrets.") {
			v.Problem("${%s}: a param cannot refer to anything; write $${ for a literal ${", clip(p.ref))
		}
		b.WriteString(p.text)
	}
	return b.String()
}

// model reads "provider/model" or {use, fallback}.
func (r *reader) model(v strictyaml.Value) Model {
	if v.IsMapping() {
		o := v.Object()
		use := o.Get("use")
		use.Required()
		m := Model{Use: r.modelID(use)}
		for _, f := range o.Get("fallback").List(maxNames) {
			m.Fallback = append(m.Fallback, r.modelID(f))
		}
		o.Close()
		return m
	}
	return Model{Use: r.modelID(v)}
}

func (r *reader) modelID(v strictyaml.Value) string {
	s := r.text(v, none)
	if s != "" && !modelID.MatchString(s) {
		v.Problem("must be provider/model, such as openai/gpt-4o-mini, not %q", clip(s))
	}
	return s
}

func (r *reader) secrets(v strictyaml.Value) {
	for _, item := range v.List(maxNames) {
		name := item.Matching(capabilityName, "a name of a-z, 0-9 and _ that begins with a letter; values come from the operator")
		if name != "" && slices.Contains(r.a.Secrets, name) {
			item.Problem("is listed twice")
		}
		r.a.Secrets = append(r.a.Secrets, name)
	}
}

func (r *reader) network(v strictyaml.Value) {
	o := v.Object()
	for _, item := range o.Get("allow").List(maxNames) {
		host := strings.ToLower(r.text(item, none))
		if host != "" && !validHost(host) {
			item.Problem("must be host, host:port or *.host without scheme and path, not %q", clip(host))
		}
		r.a.NetworkAllow = append(r.a.NetworkAllow, host)
	}
	o.Close()
}

// validHost accepts names and literal addresses, each with an optional port.
func validHost(s string) bool {
	if net.ParseIP(s) != nil {
		return true
	}
	if host, port, err := net.SplitHostPort(s); err == nil {
		n, err := strconv.Atoi(port)
		return err == nil && n >= 1 && n <= 65535 && (net.ParseIP(host) != nil || hostPattern.MatchString(host))
	}
	return hostPattern.MatchString(s)
}

// tools reads a list of raw names or globs.
func (r *reader) tools(v strictyaml.Value) []string {
	if !v.Present() {
		return nil
	}
	out := []string{}
	for _, item := range v.List(maxNames) {
		out = append(out, policyfile.Tool(item))
	}
	return out
}

func (r *reader) absolute(path string) string {
	if path == "" || filepath.IsAbs(path) || r.dir == "" {
		return path
	}
	return filepath.Join(r.dir, filepath.FromSlash(path))
}
