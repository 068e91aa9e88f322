package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"agentos/bench/scenario"
	"agentos/internal/rawjson"
)

// target is a server under measurement. Every system is driven by this code.
type target struct {
	base   string
	client *http.Client
	// capability is what the runs are of; served tells how the server is asked.
	capability string
	served     wire
}

// wire is how one kind of server is asked.
type wire struct {
	// start is where a run is started, and with what; question reads from the answer
	// how the run stands and what is to be decided.
	start    string
	body     []byte
	question func(answer []byte) (status, id string)
	// decide is where and with what an id is approved; ended reads how the run
	// stands then.
	decide func(id string) (path string, body []byte)
	ended  func(answer []byte) (status string)
}

// productWire is the HTTP API of agentos, waiting for the run.
func productWire(capability string) wire {
	return wire{
		start: "/v0/envs/" + environment + "/agents/bench/capabilities/" + capability + "/runs?wait=true",
		body:  rawjson.Object([]rawjson.Field{{Name: "input", Value: input()}}),
		question: func(answer []byte) (status, id string) {
			return text(answer, "status"), text(rawjson.Get(answer, "hold"), "hold_id")
		},
		decide: func(id string) (string, []byte) {
			return "/v0/envs/" + environment + "/holds/" + id + "/decisions?wait=true", []byte(`{"decisions":[{"id":"call_1","action":"approve"}]}`)
		},
		ended: func(answer []byte) string { return text(rawjson.Get(answer, "run"), "status") },
	}
}

// plainWire is how the floor programs and the peers are asked; see floor.Handler.
func plainWire() wire {
	return wire{
		start:    "/runs",
		body:     input(),
		question: func(answer []byte) (status, id string) { return text(answer, "status"), text(answer, "id") },
		decide: func(id string) (string, []byte) {
			return "/decide", rawjson.Object([]rawjson.Field{{Name: "id", Value: rawjson.Quote(id)}})
		},
		ended: func(answer []byte) string { return text(answer, "status") },
	}
}

func text(object json.RawMessage, name string) string {
	s, _ := rawjson.Text(rawjson.Get(object, name))
	return s
}

func newTarget(base, capability string, served wire) *target {
	return &target{
		base: base, capability: capability, served: served,
		client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: inFlight, DisableCompression: true}},
	}
}

// run makes one whole run of the capability.
func (t *target) run(ctx context.Context) error {
	id, err := t.begin(ctx)
	if err != nil || t.capability != scenario.Approve {
		return err
	}
	return t.approve(ctx, id)
}

// begin starts a run, waits until it is as its capability wants, and returns what
// is to be decided.
func (t *target) begin(ctx context.Context) (id string, err error) {
	answer, err := t.post(ctx, t.served.start, t.served.body)
	if err != nil {
		return "", err
	}
	want := map[string]string{scenario.Lookup: "completed", scenario.Approve: "held"}[t.capability]
	status, id := t.served.question(answer)
	if status != want {
		return "", fmt.Errorf("the run is %q, want %q: %.400s", status, want, answer)
	}
	return id, nil
}

// approve decides and waits for the end of the run.
func (t *target) approve(ctx context.Context, id string) error {
	path, body := t.served.decide(id)
	answer, err := t.post(ctx, path, body)
	if err != nil {
		return err
	}
	if status := t.served.ended(answer); status != "completed" {
		return fmt.Errorf("the run is %q after the decision: %.400s", status, answer)
	}
	return nil
}

func (t *target) post(ctx context.Context, path string, body []byte) (answer []byte, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, t.base+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := t.client.Do(req)
	if err != nil {
		return nil, err
	}
	answer, err = io.ReadAll(res.Body)
	if err = errors.Join(err, res.Body.Close()); err != nil {
		return nil, err
	}
	if res.StatusCode/100 != 2 {
		return nil, fmt.Errorf("POST %s answers %s: %.400s", path, res.Status, answer)
	}
	return answer, nil
}
