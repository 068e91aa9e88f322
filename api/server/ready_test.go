package server_test

import (
	"context"
	"errors"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"agentos/api"
	"agentos/api/server"
)

func TestReady(t *testing.T) {
	r := newRig(t)
	ready, err := r.client.Ready(r.ctx())
	if err != nil || !ready.Ready || !ready.MCPConnected || !ready.Store.Reachable || ready.Store.Driver != "file" || !ready.Store.Durable {
		t.Fatalf("%v %+v", err, ready)
	}
	if ready.MockModel != "mock/m" || len(ready.Warnings) != 1 || ready.Warnings[0] != "a policy warning" {
		t.Errorf("notices: %q %q", ready.MockModel, ready.Warnings)
	}
	if len(ready.Agents) != 1 || ready.Agents[0].MCPServers[0].Name != "orders" || ready.Agents[0].MCPServers[0].ToolCount == 0 {
		t.Errorf("agents: %+v", ready.Agents)
	}
	r.store.set(errors.New("dial redis.internal"))
	a := r.send(call{method: "GET", path: "/ready"})
	if a.status != http.StatusServiceUnavailable || !strings.Contains(string(a.body), `"reachable":false`) || strings.Contains(string(a.body), "redis.internal") {
		t.Errorf("store away: %d %s", a.status, a.body)
	}
	if err := r.client.Health(r.ctx()); err != nil {
		t.Errorf("health while the store is away: %v", err)
	}
	r.store.set(nil)
	r.stop()
	r.command = "/nonexistent/tool-server"
	r.up()
	ready, err = r.client.Ready(r.ctx())
	if err != nil || ready.Ready || ready.MCPConnected || !ready.Store.Reachable {
		t.Errorf("a required server is gone: %v %+v", err, ready)
	}
}

func TestAgents(t *testing.T) {
	r := newRig(t)
	list, err := r.client.Agents(r.ctx(), "default")
	if err != nil || len(list) != 1 || list[0].Name != "shop" || list[0].Title != "Shop" {
		t.Fatalf("%v %+v", err, list)
	}
	a, err := r.client.Agent(r.ctx(), "default", "shop")
	if err != nil || len(a.Capabilities) != 1 {
		t.Fatalf("%v %+v", err, a)
	}
	c := a.Capabilities[0]
	if c.Name != "support" || c.Model != "mock/m" || c.TimeoutMS != 30_000 || !strings.Contains(string(c.Input), `"message"`) {
		t.Errorf("capability %+v", c)
	}
	verdicts := map[string]api.Tool{}
	for _, tool := range c.Tools {
		verdicts[tool.Tool] = tool
	}
	if got := verdicts["cancel_order"]; got.Verdict.Effect != "ask" || len(got.Verdict.Rules) != 1 || got.Effect != "once" || !strings.Contains(string(got.InputSchema), "order_id") {
		t.Errorf("cancel_order: %+v", got)
	}
	if got := verdicts["lookup_order"]; got.Verdict.Effect != "allow" || got.Effect != "read" {
		t.Errorf("lookup_order: %+v", got)
	}
}

func TestIndexPointsToWhatExists(t *testing.T) {
	r := newRig(t)
	a := r.send(call{method: "GET", path: "/"})
	paths := regexp.MustCompile(`"(/[^"]*)"`).FindAllStringSubmatch(string(a.body), -1)
	if len(paths) < 4 {
		t.Fatalf("%s", a.body)
	}
	for _, m := range paths {
		if a := r.send(call{method: "GET", path: m[1]}); a.status != http.StatusOK {
			t.Errorf("%s: %d", m[1], a.status)
		}
	}
}

func TestMetricsAndLog(t *testing.T) {
	r := newRig(t)
	run := r.held("A-1")
	if _, err := r.decide(run.Hold.HoldID, 10*time.Second, item("reject")); err != nil {
		t.Fatal(err)
	}
	r.send(call{method: "GET", path: "/no/such/path/" + strings.Repeat("x", 300)})
	text := string(r.send(call{method: "GET", path: "/metrics"}).body)
	for _, line := range []string{
		`agentos_run_requests_total{agent="shop",capability="support"} 1`,
		`agentos_decisions_total{action="reject"} 1`,
		`agentos_http_requests_total{method="POST",route="/v0/envs/:env/holds/:hold/decisions",status="200"} 1`,
		"go_goroutines ",
	} {
		if !strings.Contains(text, line) {
			t.Errorf("%s is not in the metrics", line)
		}
	}
	if strings.Contains(text, "/no/such/path") {
		t.Error("a caller can make labels")
	}
	decided := regexp.MustCompile(`msg=request request_id=\S{26} method=POST route=/v0/envs/:env/holds/:hold/decisions status=200 took=\S+ run_id=` + run.RunID)
	if log := r.log.String(); !decided.MatchString(log) {
		t.Errorf("the decision is not in the log with its run:\n%s", log)
	}
}

func TestNewNamesWhatIsMissing(t *testing.T) {
	if _, err := server.New(context.Background(), server.Config{}); err == nil || !strings.Contains(err.Error(), "engine, store, gateway") {
		t.Errorf("New of nothing: %v", err)
	}
}
