package server_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"agentos/api"
	"agentos/api/server"
)

// B58: a web page can neither read nor decide anything.
func TestWebPagesAreKeptOut(t *testing.T) {
	r := newRig(t)
	held := r.held("A-1")
	u, err := url.Parse(r.http.URL)
	if err != nil {
		t.Fatal(err)
	}
	port := ":" + u.Port()
	decide := call{method: "POST", path: home + "/holds/" + held.Hold.HoldID + "/decisions", body: okDecide}
	with := func(c call, host string, headers ...string) call {
		c.host, c.headers = host, headers
		return c
	}
	get := func(path string) call { return call{method: "GET", path: path} }
	refused := []struct {
		name   string
		call   call
		status int
	}{
		{"text/plain", with(decide, "", "Content-Type: text/plain"), 415},
		{"no content type", with(decide, "", "Content-Type:"), 415},
		{"form", with(decide, "", "Content-Type: application/x-www-form-urlencoded"), 415},
		{"foreign origin", with(decide, "", "Origin: https://evil.example"), 403},
		{"origin on another port", with(decide, "", "Origin: http://127.0.0.1:1"), 403},
		{"origin null", with(decide, "", "Origin: null"), 403},
		{"cross-site", with(decide, "", "Sec-Fetch-Site: cross-site"), 403},
		{"same-site is another origin", with(decide, "", "Sec-Fetch-Site: same-site"), 403},
		{"foreign origin, form", with(decide, "", "Origin: https://evil.example", "Content-Type: text/plain"), 403},
		{"rebound name", with(decide, "evil.example"+port), 421},
		{"rebound name with a matching origin", with(decide, "evil.example"+port, "Origin: http://evil.example"+port, "Sec-Fetch-Site: same-origin"), 421},
		{"subdomain", with(decide, "localhost.evil.example"+port), 421},
		{"another loopback address", with(decide, "127.0.0.2"+port), 421},
		{"no address", with(decide, "0.0.0.0"+port), 421},
		{"decimal address", with(decide, "2130706433"+port), 421},
		{"read runs, rebound", with(get(home+"/runs"), "evil.example"+port), 421},
		{"read events, rebound", with(get(home+"/runs/"+held.RunID+"/events"), "evil.example"+port), 421},
		{"read holds, rebound", with(get(home+"/holds"), "evil.example"+port), 421},
		{"read index, rebound", with(get("/"), "evil.example"+port), 421},
		{"read holds, cross-site", with(get(home+"/holds"), "", "Sec-Fetch-Site: cross-site"), 403},
		{"read health, foreign origin", with(get("/health"), "", "Origin: https://evil.example"), 403},
		{"nothing there, rebound", with(get("/nothing"), "evil.example"), 421},
		{"preflight", with(call{method: "OPTIONS", path: decide.path}, "", "Origin: https://evil.example", "Access-Control-Request-Method: POST"), 403},
	}
	for _, tc := range refused {
		a := r.send(tc.call)
		if a.status != tc.status {
			t.Errorf("%s: %d %s, want %d", tc.name, a.status, a.body, tc.status)
		}
		for name := range a.header {
			if strings.HasPrefix(name, "Access-Control-") {
				t.Errorf("%s: header %s", tc.name, name)
			}
		}
	}
	if h, err := r.client.Hold(r.ctx(), "default", held.Hold.HoldID); err != nil || h.Status != api.HoldPending {
		t.Fatalf("hold: %v %s", err, h.Status)
	}
	for _, host := range []string{"localhost" + port, "LocalHost" + port, "localhost." + port, "127.0.0.1" + port, "[::1]" + port, "localhost", "[::1]"} {
		for _, headers := range [][]string{nil, {"Origin: http://" + host, "Sec-Fetch-Site: same-origin"}, {"Sec-Fetch-Site: none"}} {
			if a := r.send(with(decide, host, headers...)); a.status != http.StatusOK {
				t.Errorf("host %s %v: %d %s, want 200", host, headers, a.status, a.body)
			}
		}
	}
}

func TestAllowedHosts(t *testing.T) {
	allowed := []string{"agents.example"}
	for host, want := range map[string]bool{
		"agents.example": true, "agents.example:443": true, "AGENTS.example.:443": true,
		"localhost": false, "127.0.0.1:8080": false, "x.agents.example": false, "agents.example.evil": false, "": false, "agents.example:1:2": false,
	} {
		if got := server.ServesHost(allowed, host); got != want {
			t.Errorf("host %q: %v, want %v", host, got, want)
		}
	}
}
