package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"agentos/bench/scenario"
	"agentos/holds"
	"agentos/holds/policy"
	"agentos/internal/ids"
	"agentos/runtime/journal"
	"agentos/runtime/store"
)

// entriesOf is the journal of a run after n turns with one call each.
func entriesOf(tb testing.TB, n int) []journal.Entry {
	tb.Helper()
	var out []journal.Entry
	add := func(t journal.Type, v any) {
		e, err := journal.Encode(t, v)
		if err != nil {
			tb.Fatal(err)
		}
		out = append(out, journal.Entry{Seq: int64(len(out) + 1), At: time.Unix(1, 0), Type: t, Data: e.Data})
	}
	add(journal.RunCreated, journal.Created{
		Agent: "bench", Capability: lookup, Input: input(), Requester: "bench", System: scenario.System(), Prompt: scenario.User(),
	})
	args := json.RawMessage(`{"order_id":"A-1002"}`)
	for turn := 1; turn <= n; turn++ {
		id := fmt.Sprintf("call_%d", turn)
		message := fmt.Sprintf(`{"role":"assistant","content":null,"tool_calls":[{"id":"p%d","type":"function","function":{"name":%q,"arguments":"{\"order_id\":\"A-1002\"}"}}]}`, turn, scenario.FreeTool)
		add(journal.ModelAnswered, journal.Answered{
			Turn: turn, Message: json.RawMessage(message), FinishReason: "tool_calls", Asked: "m/m", Model: "m/m", Attempts: 1,
			Calls: []journal.Asked{{
				ID: id, ProviderID: fmt.Sprintf("p%d", turn), Name: scenario.FreeTool, Server: "orders", Tool: scenario.FreeTool, Arguments: args,
				Verdict: policy.Verdict{Effect: policy.Allow},
			}},
		})
		add(journal.CallStarted, journal.Started{Call: id, Server: "orders", Tool: scenario.FreeTool, Arguments: args, Effect: "read"})
		add(journal.CallFinished, journal.Finished{Call: id, Outcome: journal.Success, Text: `{"status":"processing"}`})
	}
	return out
}

func BenchmarkFold(b *testing.B) {
	for _, turns := range []int{10, 100, 500} {
		entries := entriesOf(b, turns)
		b.Run(fmt.Sprintf("turns=%d", turns), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := journal.Fold(entries); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkHistory(b *testing.B) {
	for _, turns := range []int{10, 100, 500} {
		s, err := journal.Fold(entriesOf(b, turns))
		if err != nil {
			b.Fatal(err)
		}
		b.Run(fmt.Sprintf("turns=%d", turns), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := s.History(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkApply(b *testing.B) {
	h := holds.Hold{
		ID: "h_x_1", RunID: "r_x", Kind: holds.ToolCall, Status: holds.Pending, Actions: holds.Actions(holds.ToolCall),
		Revision: 3, ExpiresAt: time.Unix(1<<40, 0),
		Items: []holds.Item{{
			ID: "call_1", Data: json.RawMessage(`{"order_id":"A-1002"}`),
			Schema: json.RawMessage(`{"type":"object","properties":{"order_id":{"type":"string"}},"required":["order_id"]}`),
		}},
	}
	for _, d := range []holds.ItemDecision{
		{ID: "call_1", Action: holds.Approve},
		{ID: "call_1", Action: holds.Edit, Data: json.RawMessage(`{"order_id":"A-1003"}`)},
	} {
		b.Run(string(d.Action), func(b *testing.B) {
			b.ReportAllocs()
			post := holds.Post{By: "ann", Decisions: []holds.ItemDecision{d}}
			for b.Loop() {
				if _, changed, err := holds.Apply(h, post, time.Unix(1, 0)); err != nil || !changed {
					b.Fatal(changed, err)
				}
			}
		})
	}
}

// BenchmarkCommit writes one entry of 1 KB in a running run.
func BenchmarkCommit(b *testing.B) {
	for _, name := range []string{redisStore, fileStore} {
		b.Run(name, func(b *testing.B) {
			back, err := newBacking(b.Context(), name, b.TempDir(), "everysec")
			if err != nil {
				b.Fatal(err)
			}
			s, err := back.open(b.Context())
			if err != nil {
				b.Fatal(err)
			}
			created, err := s.Create(b.Context(), store.Create{
				Op: ids.Random{}.Token(), RunID: ids.Random{}.Run(), Request: "r", Env: environment, Agent: "a", Capability: "c",
				Entry: journal.New{Type: journal.RunCreated, Data: json.RawMessage(`{}`)}, Lease: time.Hour,
			})
			if err != nil {
				b.Fatal(err)
			}
			data := json.RawMessage(`{"text":"` + scenario.Words(3, 1<<10) + `"}`)
			b.ReportAllocs()
			for b.Loop() {
				_, err := s.Commit(b.Context(), created.Lease, store.Tx{
					Op: ids.Random{}.Token(), Status: store.Running, Lease: time.Hour,
					Entries: []journal.New{{Type: journal.ModelAnswered, Data: data}},
				})
				if err != nil {
					b.Fatal(err)
				}
			}
			if err := errors.Join(s.Close(), back.close()); err != nil {
				b.Fatal(err)
			}
		})
	}
}

// BenchmarkRun is a whole run: the engine, the store, and the call of a child
// process.
func BenchmarkRun(b *testing.B) {
	m := newBench(b)
	for _, name := range []string{redisStore, fileStore} {
		b.Run(lookup+"/"+name, func(b *testing.B) { m.benchmark(b, name, func(p *process) error { return p.run(b.Context(), lookup) }) })
		b.Run(approve+"/"+name, func(b *testing.B) {
			m.benchmark(b, name, func(p *process) error { return p.run(b.Context(), approve) })
		})
	}
}

func (m *bench) benchmark(b *testing.B, name string, do func(*process) error) {
	b.Helper()
	b.ReportAllocs()
	err := m.on(b.Context(), name, func(_ *backing, p *process) error {
		for b.Loop() {
			if err := do(p); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		b.Fatal(err)
	}
}
