package server

import (
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/labstack/echo/v4"

	"agentos/internal/problem"
)

// guard keeps web pages out. A browser on this machine reaches the server too, and
// without it any page could start runs and decide holds:
//
//   - a page of another origin: browsers say so in Sec-Fetch-Site and Origin;
//   - a page whose name was made to resolve to this machine (DNS rebinding): the
//     Host header has that name.
//
// Reading is refused as well as changing, but for following a link to a page of the
// inbox. Programs send neither header.
func (s *Server) guard(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		r := c.Request()
		if !s.servesHost(r.Host) {
			return problem.New(problem.MisdirectedHost, "this server does not answer for the host %q; use localhost or a configured name", clip(r.Host))
		}
		if foreign(r) && !visits(r) {
			return problem.New(problem.ForbiddenOrigin, "requests of web pages from other origins are refused")
		}
		return next(c)
	}
}

// servesHost reports whether a Host header names this server. A final dot means
// the same name (RFC 1034 section 3.1).
func (s *Server) servesHost(hostport string) bool {
	host := hostport
	if h, _, err := net.SplitHostPort(hostport); err == nil {
		host = h
	} else {
		host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	}
	host = strings.TrimSuffix(strings.ToLower(host), ".")
	allowed := s.cfg.AllowedHosts
	if allowed == nil {
		allowed = []string{"localhost", "127.0.0.1", "::1"}
	}
	return slices.Contains(allowed, host)
}

// foreign reports whether a browser sends r for a page of another origin. Other
// ports of one host are "same-site" and other origins. "null" is an origin that a
// browser does not tell, such as a sandboxed frame.
func foreign(r *http.Request) bool {
	for _, site := range r.Header.Values("Sec-Fetch-Site") {
		if site != "same-origin" && site != "none" {
			return true
		}
	}
	for _, origin := range r.Header.Values("Origin") {
		u, err := url.Parse(origin)
		if err != nil || !strings.EqualFold(u.Host, r.Host) || u.Host == "" {
			return true
		}
	}
	return false
}
