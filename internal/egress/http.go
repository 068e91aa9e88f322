package egress

import (
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"

	"agentos/internal/problem"
)

// maxRedirects bounds a chain of redirects.
const maxRedirects = 5

// ErrBodyTooLarge ends the reading of a response body at the cap of its Policy.
var ErrBodyTooLarge = errors.New("the response body is larger than the limit")

// RedirectError is a redirect that is not followed. Its text quotes the target,
// which is what belongs into the configuration.
type RedirectError struct {
	Status int
	Target string
	Reason string
}

// Error names status, target and why it was not followed.
func (e *RedirectError) Error() string {
	return fmt.Sprintf("HTTP %d redirects to %q: %s", e.Status, e.Target, e.Reason)
}

// RoundTripper returns the guarded transport: every request's URL is checked
// against the list, every connection is dialled by the Policy, and every body
// but an event stream ends with ErrBodyTooLarge at the cap (whoever reads an
// event stream caps its events). Redirects are not followed.
func (p *Policy) RoundTripper() http.RoundTripper { return guarded{p} }

// Client returns a new http.Client on RoundTripper that follows a redirect only
// with status 307 or 308 and to the same origin, so that method, body and
// headers stay what and where they were. Others end with a *RedirectError, or
// with an egress_denied problem when the target is not listed either.
func (p *Policy) Client() *http.Client {
	return &http.Client{Transport: guarded{p}, CheckRedirect: p.checkRedirect}
}

type guarded struct{ p *Policy }

// RoundTrip implements http.RoundTripper.
func (g guarded) RoundTrip(req *http.Request) (*http.Response, error) {
	host, port, err := g.p.target(req.URL)
	if err != nil {
		if g.p != nil {
			if host == "" {
				host = req.URL.Hostname()
			}
			g.p.record(host, port, err)
		}
		if req.Body != nil {
			_ = req.Body.Close() //nolint:errcheck // the contract asks for the close, nothing was read
		}
		return nil, err
	}
	resp, err := g.p.base.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	if media, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type")); err != nil || media != "text/event-stream" {
		resp.Body = &capped{ReadCloser: resp.Body, left: g.p.maxBytes}
	}
	return resp, nil
}

// CloseIdleConnections lets http.Client.CloseIdleConnections reach the pool.
func (g guarded) CloseIdleConnections() { g.p.Close() }

func (p *Policy) checkRedirect(req *http.Request, via []*http.Request) error {
	first := via[0]
	status := 0
	if req.Response != nil {
		status = req.Response.StatusCode
	}
	refuse := func(why string) error {
		return &RedirectError{Status: status, Target: req.URL.Redacted(), Reason: why}
	}
	if !sameOrigin(req.URL, first.URL) {
		if err := p.checkURL(req.URL); err != nil {
			if pe, ok := errors.AsType[*problem.Error](err); ok {
				return problem.Wrap(refuse("not listed"), pe.Code, "HTTP %d redirects to %q: %s", status, req.URL.Redacted(), pe.Message)
			}
			return err
		}
		return refuse("another origin is never given the configured headers; put the target into the configuration")
	}
	if status != http.StatusTemporaryRedirect && status != http.StatusPermanentRedirect {
		return refuse("it would turn the request into another one; put the target into the configuration")
	}
	if len(via) > maxRedirects {
		return refuse(fmt.Sprintf("more than %d redirects", maxRedirects))
	}
	return nil
}

func sameOrigin(a, b *url.URL) bool {
	ha, ea := normalHost(a.Hostname())
	hb, eb := normalHost(b.Hostname())
	return ea == nil && eb == nil && ha == hb && a.Scheme == b.Scheme && effectivePort(a) == effectivePort(b) && a.User == nil
}

func effectivePort(u *url.URL) string {
	if p := u.Port(); p != "" {
		return p
	}
	if u.Scheme == "https" {
		return "443"
	}
	return "80"
}

// capped ends a body with ErrBodyTooLarge instead of a silent cut.
type capped struct {
	io.ReadCloser
	left int64
}

// Read implements io.Reader.
func (c *capped) Read(b []byte) (int, error) {
	if c.left < 0 {
		return 0, ErrBodyTooLarge
	}
	// One byte more than allowed tells a body of exactly the cap from a longer one.
	if int64(len(b)) > c.left+1 {
		b = b[:c.left+1]
	}
	n, err := c.ReadCloser.Read(b)
	c.left -= int64(n)
	if c.left < 0 {
		return n - 1, ErrBodyTooLarge
	}
	return n, err
}
