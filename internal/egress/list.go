package egress

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"agentos/internal/problem"
)

// list is network.allow, parsed.
type list struct {
	entries []entry
	// own are the explicit ports of the configured URLs by host.
	own map[string][]uint16
}

// entry is one line of network.allow.
type entry struct {
	host string // without "*."
	wild bool   // the line was "*.host"
	port uint16 // 0 when the line has none
	addr netip.Addr
}

type coverage int

const (
	uncovered coverage = iota // no entry names the host
	otherPort                 // an entry names the host, none the port
	covered
)

func newList(allow, urls []string) (list, []problem.Detail) {
	l := list{own: map[string][]uint16{}}
	var faults []problem.Detail
	for i, s := range allow {
		e, err := parseEntry(s)
		if err != nil {
			faults = append(faults, problem.Detail{Path: fmt.Sprintf("network.allow[%d]", i), Message: fmt.Sprintf("%q: %v", s, err)})
			continue
		}
		l.entries = append(l.entries, e)
	}
	for _, raw := range urls {
		u, err := url.Parse(raw)
		if err != nil || u.Port() == "" {
			continue // the URL is judged when it is used
		}
		host, err := normalHost(u.Hostname())
		port, perr := strconv.ParseUint(u.Port(), 10, 16)
		if err != nil || perr != nil {
			continue
		}
		l.own[host] = append(l.own[host], uint16(port))
	}
	return l, faults
}

func parseEntry(s string) (entry, error) {
	if strings.ContainsAny(s, "/@?# \t") {
		return entry{}, errors.New(`write a host, "host:port" or "*.host", not a URL`)
	}
	host, port, err := splitEntry(s)
	if err != nil {
		return entry{}, err
	}
	e := entry{port: port}
	if rest, ok := strings.CutPrefix(host, "*."); ok {
		host, e.wild = rest, true
	}
	if strings.Contains(host, "*") {
		return entry{}, errors.New(`a "*" may only stand in front, as in "*.example.com"`)
	}
	if e.host, err = normalHost(host); err != nil {
		return entry{}, err
	}
	if a, err := netip.ParseAddr(e.host); err == nil {
		e.addr = a
		if e.wild {
			return entry{}, errors.New("an address has no names below it")
		}
	}
	return e, nil
}

// splitEntry separates an optional port; IPv6 addresses may stand with or
// without brackets, but need them when a port follows.
func splitEntry(s string) (string, uint16, error) {
	if a, err := netip.ParseAddr(s); err == nil {
		return a.String(), 0, nil
	}
	var host, port string
	var found bool
	if rest, ok := strings.CutPrefix(s, "["); ok {
		var tail string
		if host, tail, ok = strings.Cut(rest, "]"); !ok {
			return "", 0, errors.New(`a "]" is missing`)
		}
		port, found = strings.CutPrefix(tail, ":")
		if tail != "" && !found {
			return "", 0, errors.New(`only ":port" may follow the "]"`)
		}
	} else {
		host, port, found = strings.Cut(s, ":")
	}
	if !found {
		return host, 0, nil
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 {
		return "", 0, fmt.Errorf("port %q is none", port)
	}
	return host, uint16(n), nil
}

// normalHost returns the one spelling of a host: lower case, without the final
// dot, addresses in their shortest form. It refuses what resolvers read in
// different ways.
func normalHost(h string) (string, error) {
	h = strings.TrimSuffix(strings.ToLower(h), ".")
	if h == "" {
		return "", errors.New("it is empty")
	}
	if a, err := netip.ParseAddr(h); err == nil {
		if a.Zone() != "" {
			return "", errors.New("an address with a zone is refused")
		}
		return a.Unmap().String(), nil
	}
	labels := strings.Split(h, ".")
	if numeric(labels[len(labels)-1]) {
		return "", errors.New("write an IPv4 address as four decimal numbers without leading zeros")
	}
	for _, label := range labels {
		if label == "" || len(label) > 63 {
			return "", errors.New("it is no host name")
		}
		for i := range len(label) {
			if !hostByte(label[i]) {
				return "", errors.New(`it is no host name; write other scripts in their "xn--" form`)
			}
		}
	}
	return h, nil
}

// numeric reports whether resolvers may take a name that ends in label for an
// address: decimal, octal or hexadecimal numbers (URL standard, "ends in a
// number").
func numeric(label string) bool {
	hex, isHex := strings.CutPrefix(label, "0x")
	digits := "0123456789"
	if isHex {
		label, digits = hex, "0123456789abcdef"
	}
	return (label != "" || isHex) && strings.Trim(label, digits) == ""
}

func hostByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '-' || c == '_'
}

// covers reports whether an entry lets host be reached at port. The own port of
// a configured URL counts only for hosts listed without a port.
func (l list) covers(host string, port uint16) coverage {
	best := uncovered
	for _, e := range l.entries {
		if !e.matches(host) {
			continue
		}
		if l.opens(e, host, port) {
			return covered
		}
		best = otherPort
	}
	return best
}

func (e entry) matches(host string) bool {
	if e.wild {
		return strings.HasSuffix(host, "."+e.host)
	}
	return host == e.host
}

func (l list) opens(e entry, host string, port uint16) bool {
	if e.port != 0 {
		return e.port == port
	}
	if port == 80 || port == 443 {
		return true
	}
	return slices.Contains(l.own[host], port)
}

// literal reports whether the address itself is listed for port. An entry
// without a port opens 80, 443 and the ports that configured URLs name for that
// address.
func (l list) literal(a netip.Addr, port uint16) bool {
	for _, e := range l.entries {
		if e.addr == a && l.opens(e, e.host, port) {
			return true
		}
	}
	return false
}
