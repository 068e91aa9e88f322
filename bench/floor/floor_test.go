package floor_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"agentos/bench/floor"
	"agentos/bench/scenario"
)

// redisServer starts a private server that keeps nothing.
func redisServer(t *testing.T) *goredis.Client {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(addr)
	cmd := exec.Command("redis-server", "--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	client := goredis.NewClient(&goredis.Options{Addr: addr, Protocol: 2, DisableIdentity: true})
	t.Cleanup(func() {
		_ = client.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	for range 500 {
		if client.Ping(t.Context()).Err() == nil {
			return client
		}
		<-time.After(10 * time.Millisecond)
	}
	t.Fatal("redis-server does not answer")
	return nil
}

func newProgram(t *testing.T, name string, client *goredis.Client) *floor.Program {
	t.Helper()
	p, err := floor.New(name, client)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// commands are those that clients sent since the last call; those of scripts are not
// among them.
func commands(t *testing.T, client *goredis.Client, do func() error) map[string]string {
	t.Helper()
	if err := client.ConfigResetStat(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	if err := do(); err != nil {
		t.Fatal(err)
	}
	info, err := client.Info(t.Context(), "commandstats").Result()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for line := range strings.Lines(info) {
		if name, rest, ok := strings.Cut(strings.TrimPrefix(line, "cmdstat_"), ":calls="); ok && name != "config|resetstat" && name != "info" {
			out[name], _, _ = strings.Cut(rest, ",")
		}
	}
	return out
}

// What each program asks of Redis is what its description says: ratios to it mean
// nothing otherwise.
func TestCommands(t *testing.T) {
	t.Parallel()
	client := redisServer(t)
	for _, c := range []struct {
		name, capability string
		want             map[string]string
	}{
		{floor.Min, scenario.Lookup, map[string]string{"set": "2"}},
		{floor.Min, scenario.Approve, map[string]string{"set": "2", "get": "1"}},
		{floor.Full, scenario.Lookup, map[string]string{"evalsha": "2", "hget": "2", "hset": "2", "xadd": "2"}},
		{floor.Full, scenario.Approve, map[string]string{"evalsha": "4", "hget": "5", "hset": "4", "xadd": "4", "zadd": "1", "zrem": "1"}},
	} {
		p := newProgram(t, c.name, client)
		if err := p.Run(t.Context(), c.capability); err != nil { // teaches the server the script
			t.Fatal(err)
		}
		got := commands(t, client, func() error { return p.Run(t.Context(), c.capability) })
		if fmt.Sprint(got) != fmt.Sprint(c.want) {
			t.Errorf("%s, %s: %v, want %v", c.name, c.capability, got, c.want)
		}
	}
}

// saved reads a run as another program would.
func saved(t *testing.T, client *goredis.Client, name, id string) (raw string) {
	t.Helper()
	var err error
	if name == floor.Min {
		raw, err = client.Get(t.Context(), "{f}r:"+id).Result()
	} else {
		raw, err = client.HGet(t.Context(), "{f}r:"+id, "d").Result()
	}
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// A held run is saved whole before Start returns; its conversation is 4 KB and ends
// with the answer once it is decided.
func TestApprove(t *testing.T) {
	t.Parallel()
	client := redisServer(t)
	for _, name := range []string{floor.Min, floor.Full} {
		p := newProgram(t, name, client)
		id, status, err := p.Start(t.Context(), scenario.Approve)
		if err != nil || status != "held" {
			t.Fatalf("%s: %q, %v", name, status, err)
		}
		if raw := saved(t, client, name, id); !json.Valid([]byte(raw)) || len(raw) < 3900 || !strings.Contains(raw, `"held"`) {
			t.Errorf("%s saved %d bytes: %s", name, len(raw), raw)
		}
		if status, err = p.Decide(t.Context(), id); err != nil || status != "completed" {
			t.Fatalf("%s: %q, %v", name, status, err)
		}
		var run struct {
			Status   string
			Messages []struct{ Role, Content string }
		}
		if err := json.Unmarshal([]byte(saved(t, client, name, id)), &run); err != nil || len(run.Messages) != 5 {
			t.Fatalf("%s: %v, %+v", name, err, run)
		}
		if last := run.Messages[4]; run.Status != "completed" || last.Role != "assistant" || last.Content != scenario.Answer {
			t.Errorf("%s: %+v", name, run)
		}
		if _, err := p.Decide(t.Context(), id); err == nil {
			t.Errorf("%s decides twice", name)
		}
		if _, err := p.Decide(t.Context(), "r_none"); err == nil {
			t.Errorf("%s decides a run that is not there", name)
		}
	}
	if n := client.ZCard(t.Context(), "{f}holds").Val(); n != 0 {
		t.Errorf("%d runs are in the index of held ones", n)
	}
}

// Of two that decide at once, floor-full lets one win.
func TestConflict(t *testing.T) {
	t.Parallel()
	p := newProgram(t, floor.Full, redisServer(t))
	id, _, err := p.Start(t.Context(), scenario.Approve)
	if err != nil {
		t.Fatal(err)
	}
	const deciders = 8
	won := make(chan error, deciders)
	for range deciders {
		go func() {
			_, err := p.Decide(context.WithoutCancel(t.Context()), id)
			won <- err
		}()
	}
	winners := 0
	for range deciders {
		if <-won == nil {
			winners++
		}
	}
	if winners != 1 {
		t.Errorf("%d deciders won", winners)
	}
}

func TestUnknownProgram(t *testing.T) {
	t.Parallel()
	if _, err := floor.New("floor-none", nil); err == nil {
		t.Error("floor-none is a program")
	}
}

// Over HTTP a run is the same, and what is not the scenario is refused.
func TestHandler(t *testing.T) {
	t.Parallel()
	p := newProgram(t, floor.Full, redisServer(t))
	srv := httptest.NewServer(p.Handler(scenario.Approve))
	defer srv.Close()
	post := func(path, body string) (status int, answer struct{ ID, Status string }) {
		res, err := srv.Client().Post(srv.URL+path, "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		if res.StatusCode == http.StatusOK {
			if err := json.NewDecoder(res.Body).Decode(&answer); err != nil {
				t.Fatal(err)
			}
		}
		return res.StatusCode, answer
	}
	status, run := post("/runs", `{"message":"`+scenario.User()+`"}`)
	if status != http.StatusOK || run.Status != "held" {
		t.Fatalf("%d, %+v", status, run)
	}
	if status, after := post("/decide", `{"id":"`+run.ID+`"}`); status != http.StatusOK || after.Status != "completed" {
		t.Errorf("%d, %+v", status, after)
	}
	for _, c := range []struct {
		path, body string
		want       int
	}{
		{"/runs", `{"message":"hello"}`, http.StatusInternalServerError},
		{"/runs", `not JSON`, http.StatusBadRequest},
		{"/decide", `{"id":"` + run.ID + `"}`, http.StatusInternalServerError},
		{"/other", `{}`, http.StatusNotFound},
	} {
		if status, _ := post(c.path, c.body); status != c.want {
			t.Errorf("POST %s %s answers %d, want %d", c.path, c.body, status, c.want)
		}
	}
}
