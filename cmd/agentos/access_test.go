package main

import (
	"slices"
	"strings"
	"testing"
)

// Which requests a server answers for, and where it needs a key.
func TestAllowedHosts(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		addr, hosts string
		more        []string
		reachable   bool
	}{
		{"127.0.0.1:8080", "", []string{"127.0.0.1"}, false},
		{"[::1]:8080", "", []string{"::1"}, false},
		{"localhost:8080", "", nil, false},
		{"localhost:8080", "agents.example", []string{"agents.example"}, true},
		{"0.0.0.0:8080", "Agents.Example., b.example,192.0.2.1", []string{"agents.example", "b.example", "192.0.2.1"}, true},
		{"[::]:8080", "", nil, true},
		{":8080", "", nil, true},
		{"192.0.2.7:8080", "", []string{"192.0.2.7"}, true},
		{"agents.example:8080", "", nil, true},
		{"nonsense", "", nil, true},
	} {
		s := settings{addr: tc.addr, hosts: words(tc.hosts)}
		want := append([]string{"localhost", "127.0.0.1", "::1"}, tc.more...)
		if got := s.allowedHosts(); !slices.Equal(got, want) || s.reachable() != tc.reachable {
			t.Errorf("%s %q: %q %v, want %q %v", tc.addr, tc.hosts, got, s.reachable(), want, tc.reachable)
		}
	}
	good := settings{concurrency: 1, partitions: 1, lease: minLease, addr: "127.0.0.1:0", logFormat: "text", logLevel: "info"}
	for _, host := range []string{"a", "a.example", "A-1.example.", "xn--bcher-kva.example", "192.0.2.1", "::1"} {
		if good.hosts = []string{host}; good.check() != nil {
			t.Errorf("host %q: %v", host, good.check())
		}
	}
	for _, host := range []string{"", "*", "*.example", "http://a.example", "a.example:443", "[::1]", "a..example", "-a", "a_b", "a b", "bücher.example", "a/b"} {
		good.hosts = []string{host}
		if err := good.check(); err == nil || !strings.Contains(err.Error(), "without scheme and port") {
			t.Errorf("host %q: %v", host, err)
		}
	}
}
