package capabilities

import (
	"net/url"
	"regexp"
	"strings"

	"agentos/internal/strictyaml"
)

var (
	envName     = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	headerName  = regexp.MustCompile("^[A-Za-z0-9!#$%&'*+.^_`|~-]+$") // RFC 9110 section 5.6.2
	shownName   = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)
	mcpRevision = regexp.MustCompile(`^[0-9]{4}-[0-9]{2}-[0-9]{2}$`)
)

func (r *reader) servers(v strictyaml.Value) {
	for _, e := range v.Entries(maxServers) {
		alias := e.Key.Matching(aliasName, "1 to 32 of a-z, 0-9, _ and -, beginning with a letter or digit")
		if strings.Contains(alias, "__") {
			e.Key.Problem(`an alias must not contain "__", which separates server and tool in the names the model sees`)
		}
		r.a.Servers[e.Name] = r.server(e.Name, e.Value)
	}
}

func (r *reader) server(alias string, v strictyaml.Value) *Server {
	s := &Server{Alias: alias}
	o := v.Object()
	command, address := o.Get("command"), o.Get("url")
	env, cwd, headers := o.Get("env"), o.Get("cwd"), o.Get("headers")
	s.Command = r.command(command)
	s.Env = r.templates(env, envName, "a name of letters, digits and _")
	s.Cwd = r.absolute(r.text(cwd, none))
	s.URL = r.address(address)
	s.Headers = r.templates(headers, headerName, "a header name")
	uniqueHeaders(headers)
	s.Tools = r.tools(o.Get("tools"))
	s.Rename = r.rename(o.Get("rename"))
	s.Required = o.Get("required").Bool(true)
	s.ConnectTimeout = o.Get("connect_timeout").Duration(maxConnectTimeout, defaultConnectTimeout)
	s.CallTimeout = o.Get("call_timeout").Duration(maxCallTimeout, defaultCallTimeout)
	effects := o.Get("effects").Object()
	s.ReadTools = r.tools(effects.Get("read"))
	s.IdempotentTools = r.tools(effects.Get("idempotent"))
	effects.Close()
	s.TrustHints = o.Get("trust_hints").Bool(false)
	s.ProtocolVersion = o.Get("protocol_version").Matching(mcpRevision, "an MCP revision such as 2025-06-18")
	o.Refuse("transport", "is not supported yet: a url server speaks streamable HTTP, a command server stdio")
	o.Refuse("oauth", "is not supported yet; send a token with headers")
	o.Close()
	if o.Valid() {
		checkTransport(v, command, address, env, cwd, headers)
	}
	if s.Command != nil && s.Cwd == "" {
		s.Cwd = r.dir
	}
	return s
}

// checkTransport holds stdio and url servers apart. The order of the values is
// that of the call in server.
func checkTransport(v, command, address, env, cwd, headers strictyaml.Value) {
	switch {
	case command.Present() && address.Present():
		v.Problem("has both command and url; a server is either started (command) or reached (url)")
	case command.Present():
		if headers.Present() {
			headers.Problem("'headers' does not apply to a stdio server (it applies to url servers); use env")
		}
	case address.Present():
		for _, field := range []strictyaml.Value{env, cwd} {
			if field.Present() {
				field.Problem("'%s' does not apply to a url server (it applies to stdio servers)", field.Key())
			}
		}
	case env.Present() || cwd.Present():
		v.Problem("command is required for a stdio server, such as [orders-server, --quiet]")
	case headers.Present():
		v.Problem("url is required: headers apply to url servers")
	default:
		v.Problem("command is required (a program to start, stdio), or url (a server to reach, streamable HTTP)")
	}
}

func (r *reader) command(v strictyaml.Value) []string {
	if v.IsText() {
		v.Problem("must be a list of program and arguments, such as [orders-server, --quiet]; no shell reads it")
		return nil
	}
	var argv []string
	for i, item := range v.List(maxArgs) {
		arg := r.text(item, withAgentos)
		if i == 0 && item.IsText() && arg == "" {
			item.Problem("the program is empty")
		}
		if strings.ContainsRune(arg, 0) {
			item.Problem("must not contain a NUL character")
		}
		argv = append(argv, arg)
	}
	if v.IsList() && v.Len() == 0 {
		v.Problem("must name a program")
	}
	return argv
}

func (r *reader) templates(v strictyaml.Value, name *regexp.Regexp, want string) map[string]string {
	var out map[string]string
	for _, e := range v.Entries(maxNames) {
		e.Key.Matching(name, want)
		value := r.text(e.Value, withSecrets)
		if strings.ContainsAny(value, "\r\n\x00") {
			e.Value.Problem("must be one line")
		}
		if out == nil {
			out = map[string]string{}
		}
		out[e.Name] = value
	}
	return out
}

// uniqueHeaders refuses names that differ only in case: for HTTP they are one.
func uniqueHeaders(v strictyaml.Value) {
	seen := map[string]bool{}
	for _, e := range v.Children() {
		if name := strings.ToLower(e.Key()); seen[name] {
			e.Problem("the header is set twice; case does not tell headers apart")
		} else {
			seen[name] = true
		}
	}
}

func (r *reader) address(v strictyaml.Value) string {
	s := r.text(v, none)
	if !v.IsText() || strings.Contains(s, "${") {
		return s
	}
	u, err := url.Parse(s)
	switch {
	case err != nil || (u.Scheme != "http" && u.Scheme != "https"):
		v.Problem("url must start with http:// or https://, not %q", clip(s))
	case u.Hostname() == "":
		v.Problem("url has no host")
	case u.User != nil:
		v.Problem("url must not hold credentials; send them with headers and a secret")
	case u.Fragment != "":
		v.Problem("url must not hold a fragment (#…)")
	}
	return s
}

func (r *reader) rename(v strictyaml.Value) map[string]string {
	var out map[string]string
	taken := map[string]bool{}
	for _, e := range v.Entries(maxNames) {
		shown := e.Value.Matching(shownName, "1 to 64 of letters, digits, _ and -")
		if shown != "" && taken[shown] {
			e.Value.Problem("two tools cannot both be called %q", shown)
		}
		taken[shown] = true
		if out == nil {
			out = map[string]string{}
		}
		out[e.Name] = shown
	}
	return out
}
