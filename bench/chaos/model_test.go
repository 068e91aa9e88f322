package main

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"agentos/internal/rawjson"
)

// conversation is what a runtime sends after turns answers with their results.
func conversation(p plan, turns int) []json.RawMessage {
	out := []json.RawMessage{
		json.RawMessage(`{"role":"system","content":"s"}`),
		json.RawMessage(`{"role":"user","content":` + string(rawjson.Quote(p.prompt())) + `}`),
	}
	for t := range turns {
		out = append(out, p.message(t))
		if t < len(p.turns) {
			for i := range p.turns[t] {
				out = append(out, json.RawMessage(`{"role":"tool","tool_call_id":"`+p.callID(t, i)+`","content":"ok"}`))
			}
		}
	}
	return out
}

func request(messages []json.RawMessage) json.RawMessage {
	return json.RawMessage(`{"model":"chaos","messages":[` + string(bytes.Join(rawBytes(messages), []byte(","))) + `]}`)
}

func rawBytes(messages []json.RawMessage) [][]byte {
	out := make([][]byte, len(messages))
	for i, m := range messages {
		out[i] = m
	}
	return out
}

func TestModelAnswersByTheConversation(t *testing.T) {
	t.Parallel()
	m, err := startModel()
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := m.close(); err != nil {
			t.Error(err)
		}
	}()
	hc := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	ask := func(messages []json.RawMessage) (int, json.RawMessage) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, m.url+"/chat/completions", bytes.NewReader(request(messages)))
		if err != nil {
			t.Fatal(err)
		}
		res, err := hc.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		raw, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		return res.StatusCode, raw
	}
	p := planWith(t, chain)
	for turn := range len(p.turns) + 1 {
		_, first := ask(conversation(p, turn))
		_, again := ask(conversation(p, turn)) // a worker died meanwhile
		if string(first) != string(again) || !strings.Contains(string(first), string(p.message(turn))) {
			t.Errorf("turn %d: %s and %s, want %s", turn, first, again, p.message(turn))
		}
	}
	if found := m.judge(); len(found) > 0 {
		t.Errorf("valid requests were complained about: %+v", found)
	}
	if code, _ := ask([]json.RawMessage{json.RawMessage(`{"role":"user","content":"hello"}`)}); code != http.StatusBadRequest {
		t.Errorf("a stranger was answered with %d", code)
	}
	if found := m.judge(); len(found) != 1 {
		t.Errorf("the stranger was not reported: %+v", found)
	}
}

// Each case breaks a history; the model has to notice.
func TestInvalidHistoriesAreFound(t *testing.T) {
	t.Parallel()
	p := planWith(t, partial) // turn 1 has four calls
	for name, breaks := range map[string]func([]json.RawMessage) []json.RawMessage{
		"no result": func(h []json.RawMessage) []json.RawMessage { return h[:len(h)-1] },
		"a result twice": func(h []json.RawMessage) []json.RawMessage {
			return append(h, h[len(h)-1])
		},
		"results out of order": func(h []json.RawMessage) []json.RawMessage {
			h[3], h[4] = h[4], h[3]
			return h
		},
		"a message between call and result": func(h []json.RawMessage) []json.RawMessage {
			return append(h[:3:3], append([]json.RawMessage{json.RawMessage(`{"role":"assistant","content":"?"}`)}, h[3:]...)...)
		},
		"another answer than the model's": func(h []json.RawMessage) []json.RawMessage {
			h[2] = json.RawMessage(strings.Replace(string(h[2]), "1e2", "100", 1))
			return h
		},
		"an unknown member is gone": func(h []json.RawMessage) []json.RawMessage {
			h[2] = json.RawMessage(strings.Replace(string(h[2]), "x_seal", "y", 1))
			return h
		},
		"an unknown role": func(h []json.RawMessage) []json.RawMessage {
			return append(h, json.RawMessage(`{"role":"critic","content":"?"}`))
		},
		"a second prompt": func(h []json.RawMessage) []json.RawMessage { return append(h, h[1]) },
		"a late system message": func(h []json.RawMessage) []json.RawMessage {
			return append(h, h[0])
		},
		"an answer of a later turn": func(h []json.RawMessage) []json.RawMessage {
			return append(h, p.message(0))
		},
	} {
		m := &model{seen: map[int][]digest{}}
		if _, err := m.reply(t.Context(), request(breaks(conversation(p, 1)))); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if found := m.judge(); len(found) != 1 || found[0].Check != checkHistory {
			t.Errorf("%s was not found: %+v", name, found)
		}
	}
}

func TestChangedHistoriesAreFound(t *testing.T) {
	t.Parallel()
	p := planWith(t, chain)
	m := &model{seen: map[int][]digest{}}
	first, second := conversation(p, 1), conversation(p, 2)
	second[3] = json.RawMessage(strings.Replace(string(second[3]), "ok", "OK", 1))
	for _, h := range [][]json.RawMessage{first, second} {
		if _, err := m.reply(t.Context(), request(h)); err != nil {
			t.Fatal(err)
		}
	}
	if found := m.judge(); len(found) != 1 || !strings.Contains(found[0].Text, "earlier request") {
		t.Errorf("found %+v", found)
	}
}

// Ids that a provider gave twice may be replaced, and nothing else.
func TestOddIDs(t *testing.T) {
	t.Parallel()
	p := planWith(t, chain)
	p.oddIDs = true
	renamed := func(args string) []chatMessage {
		var out []chatMessage
		h := conversation(p, 1)
		h[2] = json.RawMessage(strings.ReplaceAll(string(h[2]), "1e2", args))
		messages, err := readMessages(request(h))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range messages {
			for i := range m.ToolCalls {
				m.ToolCalls[i].ID = "call_1"
			}
			if m.Role == "tool" {
				m.ToolCallID = "call_1"
			}
			out = append(out, m)
		}
		return out
	}
	if err := validHistory(p, renamed("1e2")); err != nil {
		t.Error(err)
	}
	if err := validHistory(p, renamed("1e3")); err == nil {
		t.Error("other arguments were not noticed")
	}
}
