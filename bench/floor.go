package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	goredis "github.com/redis/go-redis/v9"

	"agentos/internal/ids"
	"agentos/internal/rawjson"
)

// transition is one write of floor-full: compare the version, write the run,
// append to its events, keep the index of holds.
const transition = `
local have = redis.call('HGET', KEYS[1], 'v') or '0'
if have ~= ARGV[1] then return redis.error_reply('CONFLICT') end
redis.call('HSET', KEYS[1], 'v', ARGV[1] + 1, 'd', ARGV[2])
redis.call('XADD', KEYS[2], '*', 't', ARGV[3])
if ARGV[3] == 'held' then redis.call('ZADD', KEYS[3], ARGV[4], KEYS[1])
elseif ARGV[3] == 'decided' then redis.call('ZREM', KEYS[3], KEYS[1]) end
return 1`

// floor is floor-full: what a careful program would do by hand for the same
// scenario on Redis, and nothing else. It has no recovery, no policy, no schema,
// no tool process and no model.
type floor struct {
	client *goredis.Client
	script *goredis.Script
	ids    ids.Random
	turn   []byte // the conversation so far, as the messages of a request
	result []byte
}

func newFloor(client *goredis.Client) *floor {
	messages := `[{"role":"system","content":` + string(rawjson.Quote(words(1, systemChars))) +
		`},{"role":"user","content":` + string(rawjson.Quote(words(2, userChars))) + `},`
	message := rawjson.Get(firstChoice(asks(gatedTool)), "message")
	return &floor{
		client: client, script: goredis.NewScript(transition),
		turn:   append([]byte(messages), message...),
		result: []byte(`,{"role":"tool","tool_call_id":"call_x","content":"ok"}`),
	}
}

func firstChoice(reply []byte) json.RawMessage {
	choices, err := rawjson.Elements(rawjson.Get(reply, "choices"))
	if err != nil || len(choices) == 0 {
		return nil
	}
	return choices[0]
}

// state encodes the run as a program that keeps it whole would.
func (f *floor) state(id, status string, parts ...[]byte) ([]byte, error) {
	var messages []byte
	for _, p := range parts {
		messages = append(messages, p...)
	}
	return rawjson.Marshal(struct {
		ID       string          `json:"id"`
		Status   string          `json:"status"`
		Messages json.RawMessage `json:"messages"`
	}{id, status, append(messages, ']')})
}

func (f *floor) write(ctx context.Context, id string, version int, status string, parts ...[]byte) error {
	raw, err := f.state(id, status, parts...)
	if err != nil {
		return err
	}
	return f.script.Run(ctx, f.client, []string{"{f}r:" + id, "{f}e:" + id, "{f}holds"}, version, raw, status, strconv.Itoa(version)).Err()
}

// lookup is two writes.
func (f *floor) lookup(ctx context.Context) error {
	id := f.ids.Run()
	return errors.Join(f.write(ctx, id, 0, "running", f.turn), f.write(ctx, id, 1, "completed", f.turn, f.result))
}

// approve is four writes and one read.
func (f *floor) approve(ctx context.Context) error {
	id := f.ids.Run()
	if err := errors.Join(f.write(ctx, id, 0, "running", f.turn), f.write(ctx, id, 1, "held", f.turn)); err != nil {
		return err
	}
	raw, err := f.client.HGet(ctx, "{f}r:"+id, "d").Bytes()
	if err != nil {
		return err
	}
	var was struct {
		Status   string          `json:"status"`
		Messages json.RawMessage `json:"messages"`
	}
	if err := json.Unmarshal(raw, &was); err != nil {
		return err
	}
	if was.Status != "held" {
		return fmt.Errorf("the run reads %q, want held", was.Status)
	}
	so := was.Messages[:len(was.Messages)-1]
	return errors.Join(f.write(ctx, id, 2, "decided", so), f.write(ctx, id, 3, "completed", so, f.result))
}
