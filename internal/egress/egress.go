// Package egress is the only dialer of the product. A Policy holds the names an
// agent may reach; everything else is refused: a host that is not listed before
// it is even resolved, an address that is not public after resolution and again
// when the socket connects, so that a name which changes its answer in between
// gains nothing. It refuses to know who connects or why.
//
// The proxy variables of the environment are not honoured: whoever resolves the
// name must be the one who checks the address.
package egress

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"syscall"
	"time"

	"code.dny.dev/ssrf"

	"agentos/internal/problem"
)

// Limits of one connection.
const (
	dialTimeout = 10 * time.Second
	tlsTimeout  = 10 * time.Second
	// idleTimeout is below the five seconds after which common servers close an
	// idle connection: a request that meets that close may or may not have been
	// executed, and nobody could tell.
	idleTimeout    = 4 * time.Second
	maxHeaderBytes = 256 << 10
	// DefaultMaxBody is the cap of one response body after decompression.
	DefaultMaxBody = 64 << 20
)

// Connection is one attempt to connect, for the evidence of a run.
type Connection struct {
	Host string `json:"host"`
	Port uint16 `json:"port"`
	// Allowed says that the rules let the connection through, not that the
	// other side answered.
	Allowed bool `json:"allowed"`
	// Reason is why it was denied; empty when allowed.
	Reason string `json:"reason,omitempty"`
}

// Config describes a Policy. The zero value allows nothing.
type Config struct {
	// Allow lists "host", "host:port", "*.host" (any name below host, not host
	// itself) or a literal address, "127.0.0.1:8765" or "[::1]". Only a literal
	// opens an address that is not public, and it opens exactly that one.
	Allow []string
	// URLs are the endpoints the manifest or the operator configured. The
	// explicit port of each is allowed, beside 80 and 443, for its own host, if
	// the host is listed without a port.
	URLs []string
	// Resolve finds the addresses of a name; the system's resolver when nil.
	Resolve func(ctx context.Context, host string) ([]netip.Addr, error)
	// OnConnection, if set, is told of every allowed and denied connection. It
	// is called on the goroutine that dials and must not block.
	OnConnection func(Connection)
	// MaxBody caps a response body in bytes; DefaultMaxBody when 0.
	MaxBody int64
}

// Policy decides and dials. It is safe for concurrent use; the zero value is
// not usable, a nil *Policy refuses everything.
type Policy struct {
	cfg      Config
	list     list
	guard    *ssrf.Guardian
	resolve  func(ctx context.Context, host string) ([]netip.Addr, error)
	base     *http.Transport
	maxBytes int64
}

// New returns the Policy for cfg. Entries that cannot be read are reported
// together as one problem with code invalid_manifest.
func New(cfg Config) (*Policy, error) {
	l, faults := newList(cfg.Allow, cfg.URLs)
	if len(faults) > 0 {
		return nil, problem.New(problem.InvalidManifest, "network.allow cannot be read: %s", faults[0].Message).With(faults...)
	}
	p := &Policy{
		cfg: cfg, list: l, resolve: cfg.Resolve, maxBytes: cfg.MaxBody,
		// Ports are checked against the list here; the guardian knows addresses.
		guard: ssrf.New(ssrf.WithAnyPort()),
	}
	if p.resolve == nil {
		p.resolve = systemResolve
	}
	if p.maxBytes == 0 {
		p.maxBytes = DefaultMaxBody
	}
	p.base = &http.Transport{
		DialContext:            p.DialContext,
		ForceAttemptHTTP2:      true,
		TLSHandshakeTimeout:    tlsTimeout,
		IdleConnTimeout:        idleTimeout,
		MaxIdleConnsPerHost:    16,
		MaxResponseHeaderBytes: maxHeaderBytes,
	}
	return p, nil
}

func systemResolve(ctx context.Context, host string) ([]netip.Addr, error) {
	return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
}

// Close drops idle connections. Connections in use end with their requests.
func (p *Policy) Close() {
	if p != nil {
		p.base.CloseIdleConnections()
	}
}

// CheckURL reports whether raw may be reached as far as its text can tell:
// scheme, no user name, host and port listed. It resolves nothing. Faults of the
// URL itself and hosts that are not listed both have code egress_denied.
func (p *Policy) CheckURL(raw string) error {
	u, err := url.Parse(raw)
	if err != nil {
		// The parser's message repeats the URL, which may hold a password.
		return problem.New(problem.EgressDenied, "the URL cannot be read")
	}
	return p.checkURL(u)
}

func (p *Policy) checkURL(u *url.URL) error {
	_, _, err := p.target(u)
	return err
}

// target returns the normalised host and the port of u, or the refusal.
func (p *Policy) target(u *url.URL) (string, uint16, error) {
	if p == nil {
		return "", 0, problem.New(problem.EgressDenied, "no network access: nothing is listed in network.allow")
	}
	var port uint16
	switch u.Scheme {
	case "http":
		port = 80
	case "https":
		port = 443
	default:
		return "", 0, problem.New(problem.EgressDenied, "the scheme of a URL must be http or https, not %q", u.Scheme)
	}
	if u.User != nil {
		return "", 0, problem.New(problem.EgressDenied, "the URL of host %q holds a user name or password; send credentials in a header", u.Hostname())
	}
	if s := u.Port(); s != "" {
		n, err := strconv.ParseUint(s, 10, 16)
		if err != nil || n == 0 {
			return "", 0, problem.New(problem.EgressDenied, "port %q of host %q is none", s, u.Hostname())
		}
		port = uint16(n)
	}
	host, err := normalHost(u.Hostname())
	if err != nil {
		return "", 0, problem.New(problem.EgressDenied, "host %q: %v", u.Hostname(), err)
	}
	return host, port, p.listed(host, port)
}

// listed refuses a host and port that no entry covers.
func (p *Policy) listed(host string, port uint16) error {
	switch p.list.covers(host, port) {
	case covered:
		return nil
	case otherPort:
		line := bracketed(host) + ":" + strconv.Itoa(int(port))
		return problem.New(problem.EgressDenied, "port %d of %q is not allowed; add it to the manifest: network.allow: [%q]", port, host, line)
	case uncovered:
	}
	return problem.New(problem.EgressDenied, "host %q is not allowed; add it to the manifest: network.allow: [%s]", host, yamlEntry(host))
}

// DialContext connects to address ("host:port") if the rules allow it. The host
// must be listed, which is checked before any lookup; each of its addresses must
// be public or listed literally, which is checked after the lookup and again at
// connect time. Refusals are *problem.Error with code egress_denied.
func (p *Policy) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	if p == nil {
		return nil, problem.New(problem.EgressDenied, "no network access: nothing is listed in network.allow")
	}
	host, port, err := splitAddress(address)
	if err == nil {
		err = p.listed(host, port)
	}
	if err != nil {
		p.record(host, port, err)
		return nil, err
	}
	addrs, err := p.addresses(ctx, host, port)
	if err != nil {
		p.record(host, port, err)
		return nil, err
	}
	p.record(host, port, nil)
	var last error
	for _, a := range addrs {
		d := net.Dialer{Timeout: dialTimeout, Control: p.control}
		conn, err := d.DialContext(ctx, network, netip.AddrPortFrom(a, port).String())
		if err == nil {
			return conn, nil
		}
		last = err
		if ctx.Err() != nil {
			break
		}
	}
	return nil, last
}

func splitAddress(address string) (string, uint16, error) {
	h, s, err := net.SplitHostPort(address)
	if err != nil {
		return "", 0, problem.New(problem.EgressDenied, "%q is no host:port", address)
	}
	n, err := strconv.ParseUint(s, 10, 16)
	if err != nil || n == 0 {
		return h, 0, problem.New(problem.EgressDenied, "port %q of host %q is none", s, h)
	}
	host, err := normalHost(h)
	if err != nil {
		return h, uint16(n), problem.New(problem.EgressDenied, "host %q: %v", h, err)
	}
	return host, uint16(n), nil
}

// addresses returns the addresses of host that may be dialled, or the refusal
// when there are only others.
func (p *Policy) addresses(ctx context.Context, host string, port uint16) ([]netip.Addr, error) {
	found := []netip.Addr{}
	if a, err := netip.ParseAddr(host); err == nil {
		found = append(found, a)
	} else {
		found, err = p.resolve(ctx, host)
		if err != nil {
			return nil, fmt.Errorf("look up %q: %w", host, err)
		}
	}
	var good []netip.Addr
	var refusal error
	for _, a := range found {
		if err := p.checkAddress(netip.AddrPortFrom(a, port)); err != nil {
			refusal = err
			continue
		}
		good = append(good, a.Unmap())
	}
	if len(good) == 0 {
		if refusal == nil {
			return nil, fmt.Errorf("look up %q: no address", host)
		}
		return nil, problem.Wrap(refusal, problem.EgressDenied,
			"host %q has the address %s, which is not public; if that is meant, add the address itself to the manifest: network.allow: [%q]",
			host, found[0], netip.AddrPortFrom(found[0].Unmap().WithZone(""), port).String())
	}
	return good, nil
}

// control is the check at connect time, on the address the socket will use.
func (p *Policy) control(network, address string, c syscall.RawConn) error {
	ap, err := netip.ParseAddrPort(address)
	if err != nil {
		return problem.New(problem.EgressDenied, "address %q cannot be checked", address)
	}
	if err := p.checkAddress(ap); err != nil {
		return problem.Wrap(err, problem.EgressDenied, "address %s is not public", ap.Addr())
	}
	if network != "tcp4" && network != "tcp6" {
		return p.guard.Safe(network, address, c)
	}
	return nil
}

// nat64 carries an IPv4 address in its last four bytes (RFC 6052 section 2.1).
// The local-use prefix 64:ff9b:1::/48 is not in it and stays refused.
var nat64 = netip.MustParsePrefix("64:ff9b::/96") //nolint:gochecknoglobals // a constant that Go has no literal for

// checkAddress refuses addresses that are neither public nor listed literally.
func (p *Policy) checkAddress(ap netip.AddrPort) error {
	a := ap.Addr()
	if a.Zone() != "" {
		return fmt.Errorf("address %s has a zone", a)
	}
	a = a.Unmap()
	if p.list.literal(a, ap.Port()) {
		return nil
	}
	if nat64.Contains(a) {
		// On networks with NAT64 every IPv4 host looks like this; what counts is
		// the IPv4 address behind it.
		b := a.As16()
		a = netip.AddrFrom4([4]byte(b[12:]))
	}
	return p.guard.SafeAddr(a)
}

func (p *Policy) record(host string, port uint16, err error) {
	if p.cfg.OnConnection == nil {
		return
	}
	c := Connection{Host: host, Port: port, Allowed: err == nil}
	if err != nil {
		c.Reason = reason(err)
	}
	p.cfg.OnConnection(c)
}

func reason(err error) string {
	if pe, ok := errors.AsType[*problem.Error](err); ok {
		return pe.Message
	}
	return err.Error()
}

func bracketed(host string) string {
	if strings.Contains(host, ":") {
		return "[" + host + "]"
	}
	return host
}

// yamlEntry writes host the way it has to stand in the manifest.
func yamlEntry(host string) string {
	if strings.Contains(host, ":") {
		return `"[` + host + `]"`
	}
	return host
}
