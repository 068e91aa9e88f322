package egress

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"agentos/internal/problem"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func policy(t *testing.T, cfg Config) *Policy {
	t.Helper()
	p, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// C30: which URLs are allowed as far as their text can tell.
func TestCheckURL(t *testing.T) {
	t.Parallel()
	p := policy(t, Config{
		Allow: []string{"Mcp.Example.com.", "api.test:8443", "*.wild.test", "127.0.0.1:8765", "[::1]", "::2", "93.184.216.34", "own.test"},
		URLs:  []string{"http://own.test:9000/mcp", "https://elsewhere.test:9001/", "http://[::1]:7000/x", "http://api.test:1/"},
	})
	for in, want := range map[string]string{
		"https://mcp.example.com/mcp":      "",
		"http://MCP.EXAMPLE.COM/":          "",
		"http://mcp.example.com.:443/":     "",
		"http://mcp.example.com:8080/":     `port 8080 of "mcp.example.com" is not allowed; add it to the manifest: network.allow: ["mcp.example.com:8080"]`,
		"https://api.test:8443":            "",
		"https://api.test":                 `port 443 of "api.test" is not allowed`,
		"https://api.test:1":               `port 1 of "api.test" is not allowed`,
		"https://a.wild.test":              "",
		"https://a.b.wild.test":            "",
		"https://wild.test":                "network.allow: [wild.test]",
		"https://evilwild.test":            "network.allow: [evilwild.test]",
		"http://127.0.0.1:8765/mcp":        "",
		"http://127.0.0.1/":                `port 80 of "127.0.0.1" is not allowed`,
		"http://[::1]/":                    "",
		"http://[::1]:7000/":               "",
		"http://[::1]:7001/":               "port 7001",
		"http://[0:0:0:0:0:0:0:2]/":        "",
		"http://[::ffff:127.0.0.1]:8765/":  "",
		"http://[::ffff:93.184.216.34]/":   "",
		"http://[::3]/":                    `add it to the manifest: network.allow: ["[::3]"]`,
		"http://[fe80::1%25eth0]/":         "a zone",
		"http://2130706433:8765/":          "four decimal numbers",
		"http://0x7f000001:8765/":          "four decimal numbers",
		"http://0x7f.1:8765/":              "four decimal numbers",
		"http://0177.0.0.1:8765/":          "four decimal numbers",
		"http://127.1:8765/":               "four decimal numbers",
		"http://127.0.0.1.:8765/":          "",
		"http://0x:8765/":                  "four decimal numbers",
		"http://localhost./":               "network.allow: [localhost]",
		"http://own.test:9000/":            "",
		"http://own.test:9001/":            "port 9001",
		"http://elsewhere.test:9001/":      "network.allow: [elsewhere.test]",
		"http://user@mcp.example.com/":     "user name or password",
		"http://u:p@mcp.example.com/":      "user name or password",
		"http://mcp.example.com@evil.test": "user name or password",
		"ftp://mcp.example.com/":           "scheme",
		"mcp.example.com":                  "scheme",
		"http:///x":                        "it is empty",
		"http://mcp.example.com:0/":        "port",
		"http://mcp.example.com:70000/":    "port",
		"http://mcp..example.com/":         "no host name",
		"http://mcp.exämple.com/":          "xn--",
		"http://169.254.169.254/latest":    `host "169.254.169.254" is not allowed`,
		"http://a b/":                      "cannot be read",
	} {
		err := p.CheckURL(in)
		if want == "" && err != nil || want != "" && (problem.CodeOf(err) != problem.EgressDenied || !strings.Contains(problem.From(err).Message, want)) {
			t.Errorf("CheckURL(%q) = %v, want %q", in, err, want)
		}
	}
	if err := (*Policy)(nil).CheckURL("http://x/"); problem.CodeOf(err) != problem.EgressDenied {
		t.Errorf("no policy allows %v", err)
	}
}

func TestEntriesThatCannotBeRead(t *testing.T) {
	t.Parallel()
	bad := []string{"https://x.test", "x.test/path", "*", "a.*.test", "*.127.0.0.1", "x:99999", "x:0", "[::1", "[::1]x", "", "fe80::1%eth0", "1.2.3", "u@x.test", "x test"}
	_, err := New(Config{Allow: append([]string{"fine.test"}, bad...)})
	p := problem.From(err)
	if p == nil || p.Code != problem.InvalidManifest || len(p.Details) != len(bad) {
		t.Fatalf("New = %v with %d details", err, len(p.Details))
	}
	for i, d := range p.Details {
		if d.Path != fmt.Sprintf("network.allow[%d]", i+1) || !strings.Contains(d.Message, fmt.Sprintf("%q", bad[i])) {
			t.Errorf("detail %d = %+v", i, d)
		}
	}
}

// B59: internal addresses in every clothing, refused after the lookup.
func TestAddresses(t *testing.T) {
	t.Parallel()
	for addrs, want := range map[string]string{
		"93.184.216.34":                       "93.184.216.34",
		"2606:2800:220:1::1":                  "2606:2800:220:1::1",
		"64:ff9b::808:808":                    "64:ff9b::808:808",
		"::ffff:93.184.216.34":                "93.184.216.34",
		"93.184.216.34 10.0.0.1":              "93.184.216.34",
		"::1 127.0.0.1 2606:2800:220:1::1":    "2606:2800:220:1::1",
		"64:ff9b::a9fe:a9fe":                  "",
		"64:ff9b:1::a9fe:a9fe":                "",
		"::169.254.169.254":                   "",
		"2002:a9fe:a9fe::1":                   "",
		"::ffff:0:127.0.0.1":                  "",
		"::ffff:127.0.0.1":                    "",
		"100.100.100.200":                     "",
		"fd00:ec2::254":                       "",
		"fe80::1%eth0":                        "",
		"fe80::1":                             "",
		"0.0.0.0":                             "",
		"::":                                  "",
		"198.18.0.1":                          "",
		"224.0.0.1":                           "",
		"ff02::1":                             "",
		"255.255.255.255":                     "",
		"10.1.2.3":                            "",
		"172.16.0.1":                          "",
		"192.168.1.1":                         "",
		"169.254.169.254":                     "",
		"127.0.0.2":                           "",
		"::1":                                 "",
		"192.0.2.1":                           "",
		"240.0.0.1":                           "",
		"2001:db8::1":                         "",
		"127.0.0.1":                           "127.0.0.1", // listed literally
		"::ffff:127.0.0.1 127.0.0.1 10.0.0.7": "127.0.0.1 127.0.0.1",
	} {
		cfg := Config{Allow: []string{"mcp.test"}, Resolve: resolver(addrs)}
		if strings.HasPrefix(want, "127.0.0.1") {
			cfg.Allow = append(cfg.Allow, "127.0.0.1:80")
		}
		p := policy(t, cfg)
		got, err := p.addresses(t.Context(), "mcp.test", 80)
		var texts []string
		for _, a := range got {
			texts = append(texts, a.String())
		}
		if strings.Join(texts, " ") != want {
			t.Errorf("%s: got %v, want %q", addrs, got, want)
		}
		if want == "" && (problem.CodeOf(err) != problem.EgressDenied || !strings.Contains(problem.From(err).Message, "mcp.test")) {
			t.Errorf("%s: error %v", addrs, err)
		}
	}
}

func resolver(addrs string) func(context.Context, string) ([]netip.Addr, error) {
	return func(context.Context, string) ([]netip.Addr, error) {
		var out []netip.Addr
		for s := range strings.FieldsSeq(addrs) {
			out = append(out, netip.MustParseAddr(s))
		}
		return out, nil
	}
}

// A literal opens exactly itself: no other port, no other address.
func TestLiteral(t *testing.T) {
	t.Parallel()
	p := policy(t, Config{Allow: []string{"127.0.0.1:8765", "[::1]", "name.test"}, URLs: []string{"http://name.test:9000"}})
	for in, want := range map[string]bool{
		"127.0.0.1:8765": true, "127.0.0.1:80": false, "127.0.0.1:8766": false, "127.0.0.2:8765": false, "[::1]:443": true, "[::1]:8765": false,
		"[::ffff:127.0.0.1]:8765": true, "10.0.0.1:9000": false, "8.8.8.8:9000": true, "[64:ff9b::7f00:1]:8765": false,
	} {
		if err := p.checkAddress(netip.MustParseAddrPort(in)); (err == nil) != want {
			t.Errorf("%s: %v", in, err)
		}
	}
}

// C30: a host that is not listed is refused before any lookup; a name that
// changes its answer is caught when the socket connects; both are recorded.
func TestDial(t *testing.T) {
	t.Parallel()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	port := l.Addr().(*net.TCPAddr).Port
	looked := 0
	var seen []Connection
	p := policy(t, Config{
		Allow: []string{fmt.Sprintf("name.test:%d", port), fmt.Sprintf("inside.test:%d", port), fmt.Sprintf("127.0.0.1:%d", port)},
		Resolve: func(_ context.Context, host string) ([]netip.Addr, error) {
			looked++
			if host == "inside.test" {
				return []netip.Addr{netip.MustParseAddr("127.0.0.3")}, nil
			}
			return []netip.Addr{netip.MustParseAddr("10.255.255.1"), netip.MustParseAddr("127.0.0.1")}, nil
		},
		OnConnection: func(c Connection) { seen = append(seen, c) },
	})
	for host, want := range map[string]string{"other.test": "network.allow: [other.test]", "inside.test": "127.0.0.3, which is not public"} {
		_, err := p.DialContext(t.Context(), "tcp", fmt.Sprintf("%s:%d", host, port))
		if problem.CodeOf(err) != problem.EgressDenied || !strings.Contains(problem.From(err).Message, want) {
			t.Errorf("dial %s = %v", host, err)
		}
	}
	if looked != 1 {
		t.Errorf("%d lookups, want 1: a host that is not listed is not looked up", looked)
	}
	conn, err := p.DialContext(t.Context(), "tcp", fmt.Sprintf("NAME.test.:%d", port))
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.Close()
	allowed := 0
	for _, c := range seen {
		if c.Port != uint16(port) || c.Allowed != (c.Reason == "") {
			t.Errorf("recorded %+v", c)
		}
		if c.Allowed {
			allowed++
		}
	}
	if len(seen) != 3 || allowed != 1 {
		t.Errorf("recorded %+v", seen)
	}
	// The check at connect time knows nothing of the lookup before it.
	if err := p.control("tcp4", "127.0.0.9:80", nil); problem.CodeOf(err) != problem.EgressDenied {
		t.Errorf("control = %v", err)
	}
	if err := p.control("udp4", fmt.Sprintf("127.0.0.1:%d", port), nil); err == nil {
		t.Error("udp is let through")
	}
	if _, err := (*Policy)(nil).DialContext(t.Context(), "tcp", "x:80"); problem.CodeOf(err) != problem.EgressDenied {
		t.Errorf("no policy dials: %v", err)
	}
	for _, bad := range []string{"x", "x:0", "x:http", "0x7f.1:80"} {
		if _, err := p.DialContext(t.Context(), "tcp", bad); problem.CodeOf(err) != problem.EgressDenied {
			t.Errorf("dial %q = %v", bad, err)
		}
	}
}

// B36: redirects, and headers that stay where they belong.
func TestRedirects(t *testing.T) {
	t.Parallel()
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the other origin was asked") }))
	defer other.Close()
	var mu sync.Mutex
	var got []string
	mux := http.NewServeMux()
	srv := httptest.NewServer(mux)
	defer srv.Close()
	for path, to := range map[string]string{"/same": "/end", "/other": other.URL + "/x", "/unlisted": "http://unlisted.test/x?y=1", "/loop": "/loop", "/https": strings.Replace(srv.URL, "http", "https", 1)} {
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			status := http.StatusTemporaryRedirect
			if s := r.URL.Query().Get("s"); s != "" {
				_, _ = fmt.Sscan(s, &status)
			}
			w.Header().Set("Location", to)
			w.WriteHeader(status)
		})
	}
	mux.HandleFunc("/end", func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		got = append(got, r.Method+" "+string(body)+" "+r.Header.Get("X-Api-Key"))
		mu.Unlock()
		fmt.Fprint(w, "end")
	})
	host := func(s string) string { u, _ := url.Parse(s); return u.Host }
	p := policy(t, Config{Allow: []string{host(srv.URL), host(other.URL)}})
	for path, want := range map[string]string{
		"/same":       "",
		"/same?s=308": "",
		"/same?s=301": `HTTP 301 redirects to "` + srv.URL + `/end"`,
		"/same?s=302": "HTTP 302 redirects",
		"/same?s=303": "HTTP 303 redirects",
		"/other":      `HTTP 307 redirects to "` + other.URL + `/x": another origin`,
		"/unlisted":   `egress_denied: HTTP 307 redirects to "http://unlisted.test/x?y=1": host "unlisted.test" is not allowed`,
		"/https":      "another origin",
		"/loop":       "more than 5 redirects",
	} {
		req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, srv.URL+path, strings.NewReader("body"))
		req.Header.Set("X-Api-Key", "k")
		resp, err := p.Client().Do(req)
		if resp != nil {
			_ = resp.Body.Close()
		}
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
		var re *RedirectError
		if want != "" && !errors.As(err, &re) {
			t.Errorf("%s: %v is no RedirectError", path, err)
		}
	}
	if d := cmp.Diff([]string{"POST body k", "POST body k"}, got); d != "" {
		t.Error(d)
	}
}

// The cap of a body ends it loudly; an event stream has none.
func TestBodyCap(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", r.URL.Query().Get("type"))
		fmt.Fprint(w, strings.Repeat("x", 101))
		if r.URL.Query().Get("exact") != "" {
			return
		}
		fmt.Fprint(w, strings.Repeat("x", 900))
	}))
	defer srv.Close()
	u, _ := url.Parse(srv.URL)
	p := policy(t, Config{Allow: []string{u.Host}, MaxBody: 101})
	for _, c := range []struct {
		query string
		n     int
		err   error
	}{
		{"type=text/plain", 101, ErrBodyTooLarge},
		{"type=text/plain&exact=1", 101, nil},
		{"type=text/event-stream", 1001, nil},
	} {
		req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, srv.URL+"/?"+c.query, nil)
		resp, err := p.Client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if len(b) != c.n || !errors.Is(err, c.err) {
			t.Errorf("%s: %d bytes, %v", c.query, len(b), err)
		}
	}
}

// A request to a host that is not listed never reaches the pool, and is recorded.
func TestRoundTripIsGuarded(t *testing.T) {
	t.Parallel()
	var seen []Connection
	p := policy(t, Config{
		Allow:        []string{"x.test"},
		OnConnection: func(c Connection) { seen = append(seen, c) },
		Resolve:      func(context.Context, string) ([]netip.Addr, error) { return nil, errors.New("no network") },
	})
	for _, raw := range []string{"http://y.test/", "http://u:p@x.test/", "http://x.test:81/"} {
		req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, raw, strings.NewReader("x"))
		resp, err := (&http.Client{Transport: p.RoundTripper()}).Do(req)
		if resp != nil {
			_ = resp.Body.Close()
		}
		var pe *problem.Error
		if !errors.As(err, &pe) || pe.Code != problem.EgressDenied {
			t.Errorf("%s: %v", raw, err)
		}
	}
	if len(seen) != 3 || seen[0].Allowed || seen[1].Host != "x.test" {
		t.Errorf("recorded %+v", seen)
	}
}

func FuzzNormalHost(f *testing.F) {
	for _, s := range []string{"EXAMPLE.com.", "0x7f.1", "::ffff:1.2.3.4", "1.2.3.4", "a..b", "ä"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		h, err := normalHost(s)
		if err != nil {
			return
		}
		again, err := normalHost(h)
		if err != nil || again != h {
			t.Errorf("normalHost(%q) = %q, then %q (%v)", s, h, again, err)
		}
	})
}
