// Package floor has the programs that the benchmark compares everything to: what a
// careful programmer would do by hand for the same scenario on Redis, and nothing
// else. They have no recovery, no policy, no schemas, no tool and no model, so no
// runtime can be faster on the same store.
//
//	floor-min    keeps the run under one key: SET, GET, SET. Two deciders overwrite
//	             each other, nobody can list what is held, and there is no history.
//	floor-full   each transition is one script that compares the run's version, writes
//	             the run, appends to its events, and keeps the index of what is held.
package floor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	goredis "github.com/redis/go-redis/v9"

	"agentos/bench/scenario"
	"agentos/internal/ids"
	"agentos/internal/rawjson"
)

// The names of the programs.
const (
	Min  = "floor-min"
	Full = "floor-full"
)

// Statuses of a run.
const (
	running   = "running"
	held      = "held"
	decided   = "decided"
	completed = "completed"
)

// Program runs the scenario. It is safe for concurrent use.
type Program struct {
	client *goredis.Client
	full   bool
	script *goredis.Script
	ids    ids.Random
	turn   map[string][]byte // by capability: the messages up to the model's tool call, an open array
	result []byte
}

// transition is one write of floor-full.
const transition = `
local have = redis.call('HGET', KEYS[1], 'v') or '0'
if have ~= ARGV[1] then return redis.error_reply('CONFLICT') end
redis.call('HSET', KEYS[1], 'v', ARGV[1] + 1, 'd', ARGV[2])
redis.call('XADD', KEYS[2], '*', 't', ARGV[3])
if ARGV[3] == 'held' then redis.call('ZADD', KEYS[3], ARGV[4], KEYS[1])
elseif ARGV[3] == 'decided' then redis.call('ZREM', KEYS[3], KEYS[1]) end
return 1`

// New returns the program of a name, Min or Full, on a server.
func New(name string, client *goredis.Client) (*Program, error) {
	if name != Min && name != Full {
		return nil, fmt.Errorf("no floor program is called %q", name)
	}
	p := &Program{
		client: client, full: name == Full, script: goredis.NewScript(transition), turn: map[string][]byte{},
		result: []byte(`,{"role":"tool","tool_call_id":"call_x","content":"ok"},{"role":"assistant","content":` + string(rawjson.Quote(scenario.Answer)) + `}`),
	}
	for capability, tool := range map[string]string{scenario.Lookup: scenario.FreeTool, scenario.Approve: scenario.GatedTool} {
		choices, err := rawjson.Elements(rawjson.Get(scenario.Asks(tool), "choices"))
		if err != nil {
			return nil, err
		}
		messages := `[{"role":"system","content":` + string(rawjson.Quote(scenario.System())) +
			`},{"role":"user","content":` + string(rawjson.Quote(scenario.User())) + `},`
		p.turn[capability] = append([]byte(messages), rawjson.Get(choices[0], "message")...)
	}
	return p, nil
}

// Start begins a run and returns its id and status, "completed" for lookup and
// "held" for approve. Lookup is two writes; approve is two of floor-full and one of
// floor-min.
func (p *Program) Start(ctx context.Context, capability string) (id, status string, err error) {
	turn := p.turn[capability]
	id = p.ids.Run()
	if p.full || capability == scenario.Lookup {
		if err := p.write(ctx, id, 0, running, turn); err != nil {
			return "", "", err
		}
	}
	if capability == scenario.Lookup {
		return id, completed, p.write(ctx, id, 1, completed, turn, p.result)
	}
	return id, held, p.write(ctx, id, 1, held, turn)
}

// Decide approves a held run and returns its status, "completed": one read, then
// two writes of floor-full or one of floor-min.
func (p *Program) Decide(ctx context.Context, id string) (status string, err error) {
	raw, err := p.read(ctx, id)
	if err != nil {
		return "", err
	}
	var was state
	if err := json.Unmarshal(raw, &was); err != nil {
		return "", err
	}
	if was.Status != held || len(was.Messages) == 0 {
		return "", fmt.Errorf("the run reads %q, want %q", was.Status, held)
	}
	so := was.Messages[:len(was.Messages)-1]
	if p.full {
		if err := p.write(ctx, id, 2, decided, so); err != nil {
			return "", err
		}
	}
	return completed, p.write(ctx, id, 3, completed, so, p.result)
}

// Run makes one whole run of a capability.
func (p *Program) Run(ctx context.Context, capability string) error {
	id, status, err := p.Start(ctx, capability)
	if err == nil && status == held {
		_, err = p.Decide(ctx, id)
	}
	return err
}

// state is a run as a program that keeps it whole would encode it.
type state struct {
	ID       string          `json:"id"`
	Status   string          `json:"status"`
	Messages json.RawMessage `json:"messages"`
}

func runKey(id string) string { return "{f}r:" + id }

func (p *Program) write(ctx context.Context, id string, version int, status string, parts ...[]byte) error {
	var messages []byte
	for _, part := range parts {
		messages = append(messages, part...)
	}
	raw, err := rawjson.Marshal(state{id, status, append(messages, ']')})
	if err != nil {
		return err
	}
	if !p.full {
		return p.client.Set(ctx, runKey(id), raw, 0).Err()
	}
	keys := []string{runKey(id), "{f}e:" + id, "{f}holds"}
	return p.script.Run(ctx, p.client, keys, version, raw, status, strconv.Itoa(version)).Err()
}

func (p *Program) read(ctx context.Context, id string) (raw []byte, err error) {
	if p.full {
		raw, err = p.client.HGet(ctx, runKey(id), "d").Bytes()
	} else {
		raw, err = p.client.Get(ctx, runKey(id)).Bytes()
	}
	if errors.Is(err, goredis.Nil) {
		return nil, fmt.Errorf("there is no run %s", id)
	}
	return raw, err
}
