package main

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"agentos/internal/rawjson"
)

// model is a provider that speaks OpenAI chat completions. What it answers depends
// on the conversation alone, and it checks every conversation it is sent.
type model struct {
	url    string
	server *http.Server
	served chan error

	mu sync.Mutex // guards the fields below
	// seen are the messages of each run, by number: digests of the longest
	// conversation so far.
	seen    map[int][]digest
	calls   int
	faults  []violation
	strange []string // requests that are about none of our runs
}

// digest is what is kept of a message.
type digest [sha256.Size]byte

// startModel serves on a free port of loopback.
func startModel() (*model, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	m := &model{url: "http://" + l.Addr().String() + "/v1", seen: map[int][]digest{}, served: make(chan error, 1)}
	m.server = &http.Server{Handler: http.HandlerFunc(m.handle), ReadHeaderTimeout: patience}
	go func() { m.served <- m.server.Serve(l) }()
	return m, nil
}

func (m *model) close() error {
	err := m.server.Close()
	if served := <-m.served; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}

func (m *model) handle(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the worker was killed while it asked
	}
	reply, err := m.reply(r.Context(), body)
	if err != nil {
		m.mu.Lock()
		m.strange = append(m.strange, err.Error())
		m.mu.Unlock()
		http.Error(w, `{"error":{"message":"`+err.Error()+`"}}`, http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(reply)
}

// reply answers one request.
func (m *model) reply(ctx context.Context, body json.RawMessage) (json.RawMessage, error) {
	messages, err := readMessages(body)
	if err != nil {
		return nil, err
	}
	p, err := planIn(messages)
	if err != nil {
		return nil, err
	}
	if fault := m.look(p, messages); fault != nil {
		m.mu.Lock()
		m.faults = append(m.faults, violation{Check: checkHistory, Run: p.prompt(), Text: fault.Error()})
		m.mu.Unlock()
	}
	// The moments around a model call are moments to be killed in, too.
	d := dice{rand.New(rand.NewPCG(p.seed, uint64(p.n)<<32|uint64(len(messages))))}
	pause(ctx, time.Duration(d.IntN(15))*time.Millisecond)
	turn := 0
	for _, msg := range messages {
		if msg.Role == "assistant" {
			turn++
		}
	}
	reason := "stop"
	if turn < len(p.turns) {
		reason = "tool_calls"
	}
	return rawjson.Marshal(completion{
		ID: "c", Object: "chat.completion", Model: "chaos",
		Choices: []choice{{Message: p.message(turn), FinishReason: reason}},
		Usage:   usage{PromptTokens: 10, CompletionTokens: 1, TotalTokens: 11},
	})
}

// completion is the answer of the API.
type completion struct {
	ID      string   `json:"id"`
	Object  string   `json:"object"`
	Model   string   `json:"model"`
	Choices []choice `json:"choices"`
	Usage   usage    `json:"usage"`
}

type choice struct {
	Index        int             `json:"index"`
	Message      json.RawMessage `json:"message"`
	FinishReason string          `json:"finish_reason"`
}

type usage struct {
	PromptTokens     int `json:"prompt_tokens"`
	CompletionTokens int `json:"completion_tokens"`
	TotalTokens      int `json:"total_tokens"`
}

// message is what the model says in the turn, counting from 0.
func (p plan) message(turn int) json.RawMessage {
	if turn >= len(p.turns) {
		return json.RawMessage(`{"role":"assistant","content":` + string(rawjson.Quote(p.answer())) + `}`)
	}
	calls := make([]string, len(p.turns[turn]))
	for i, c := range p.turns[turn] {
		calls[i] = `{"id":"` + p.callID(turn, i) + `","type":"function","function":{"name":"` + c.name() +
			`","arguments":` + string(rawjson.Quote(string(c.args))) + `}}`
	}
	return json.RawMessage(`{"role":"assistant","content":null,"x_seal":` + strconv.Itoa(p.n) + `,"tool_calls":[` + strings.Join(calls, ",") + `]}`)
}

func (p plan) callID(turn, i int) string {
	if p.oddIDs {
		return "again"
	}
	return fmt.Sprintf("c_%d_%d_%d", p.n, turn, i)
}

// chatMessage is a message of a request: what is looked at, and its bytes.
type chatMessage struct {
	Role       string          `json:"role"`
	Content    json.RawMessage `json:"content"`
	ToolCallID string          `json:"tool_call_id"`
	ToolCalls  []chatCall      `json:"tool_calls"`
	raw        json.RawMessage
}

type chatCall struct {
	ID       string `json:"id"`
	Function struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	} `json:"function"`
}

func readMessages(body json.RawMessage) ([]chatMessage, error) {
	list, err := rawjson.Elements(rawjson.Get(body, "messages"))
	if err != nil {
		return nil, fmt.Errorf("messages: %w", err)
	}
	out := make([]chatMessage, len(list))
	for i, raw := range list {
		if err := json.Unmarshal(raw, &out[i]); err != nil {
			return nil, fmt.Errorf("message %d: %w", i, err)
		}
		out[i].raw = raw
	}
	return out, nil
}

// planIn finds the run a conversation belongs to.
func planIn(messages []chatMessage) (plan, error) {
	for _, msg := range messages {
		if msg.Role == "user" {
			text, _ := rawjson.Text(msg.Content)
			return planOf(text)
		}
	}
	return plan{}, errors.New("there is no user message")
}

// look returns what is wrong with a conversation: by itself, against what the
// model said before, or against what it was shown before.
func (m *model) look(p plan, messages []chatMessage) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.calls++
	err := validHistory(p, messages)
	before := m.seen[p.n]
	for i, msg := range messages {
		is := digest(sha256.Sum256(msg.raw))
		switch {
		case i >= len(before):
			before = append(before, is)
		case before[i] != is && err == nil:
			err = fmt.Errorf("message %d is not what it was in an earlier request: %s", i, msg.raw)
		}
	}
	m.seen[p.n] = before
	return err
}

// validHistory reports what a provider would refuse: roles, and that every call of
// every assistant message has exactly one result, in order, directly after it. And
// each assistant message must be the one the model gave in that turn.
func validHistory(p plan, messages []chatMessage) error {
	var open []string
	used := map[string]bool{}
	turn, users := 0, 0
	for i, msg := range messages {
		if len(open) > 0 && msg.Role != "tool" {
			return fmt.Errorf("message %d is of role %q while calls %q have no result", i, msg.Role, open)
		}
		switch msg.Role {
		case "system":
			if i != 0 {
				return fmt.Errorf("message %d is a system message", i)
			}
		case "user":
			users++
		case "assistant":
			if err := sameAnswer(p, turn, msg); err != nil {
				return fmt.Errorf("message %d: %w", i, err)
			}
			turn++
			for _, c := range msg.ToolCalls {
				if c.ID == "" || used[c.ID] {
					return fmt.Errorf("message %d: call id %q is empty or used before", i, c.ID)
				}
				used[c.ID] = true
				open = append(open, c.ID)
			}
		case "tool":
			if len(open) == 0 || msg.ToolCallID != open[0] {
				return fmt.Errorf("message %d is the result of %q, while %q have none yet", i, msg.ToolCallID, open)
			}
			open = open[1:]
		default:
			return fmt.Errorf("message %d has the role %q", i, msg.Role)
		}
	}
	switch {
	case len(open) > 0:
		return fmt.Errorf("calls %q have no result", open)
	case users != 1:
		return fmt.Errorf("there are %d user messages", users)
	}
	return nil
}

// sameAnswer compares an assistant message with what the model said in the turn:
// byte for byte, or, where it gave ids that no request may have, all but the ids.
func sameAnswer(p plan, turn int, msg chatMessage) error {
	want := p.message(turn)
	if !p.oddIDs {
		if string(want) != string(msg.raw) {
			return fmt.Errorf("it is not what the model said in turn %d: %s", turn+1, msg.raw)
		}
		return nil
	}
	if turn >= len(p.turns) || len(msg.ToolCalls) != len(p.turns[turn]) {
		return fmt.Errorf("it has %d calls, not those of turn %d", len(msg.ToolCalls), turn+1)
	}
	for i, c := range p.turns[turn] {
		if f := msg.ToolCalls[i].Function; f.Name != c.name() || f.Arguments != string(c.args) {
			return fmt.Errorf("call %d is not what the model asked for in turn %d: %s %s", i, turn+1, f.Name, f.Arguments)
		}
	}
	return nil
}
