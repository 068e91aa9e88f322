package conformance

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"agentos/api"
	"agentos/internal/rawjson"
)

// recovery is what the journal says about the crash of a run.
type recovery struct {
	// after are the entries from run.recovered on; nil when nothing was recovered.
	after []api.Entry
	// inFlight are the calls that were started and not finished at that moment,
	// with how they were started.
	inFlight map[string]bool
	started  map[string]startedCall
}

// startedCall is what a call.started entry says.
type startedCall struct {
	Call   string `json:"call"`
	Effect string `json:"effect"`
	Key    string `json:"idempotency_key"`
}

// recovery reads the journal of a finished run that was disturbed by a kill.
func (a *attempt) recovery(ctx context.Context) (recovery, error) {
	rec := recovery{inFlight: map[string]bool{}, started: map[string]startedCall{}}
	if !a.fired || !a.run.Status.Finished() {
		return rec, nil
	}
	var entries []api.Entry
	for e, err := range a.k.client.Events(ctx, env, a.run.RunID, 0) {
		if err != nil {
			return rec, a.gone(err)
		}
		entries = append(entries, e)
	}
	for i, e := range entries {
		var s startedCall
		switch e.Type {
		case "call.started":
			if err := json.Unmarshal(e.Data, &s); err != nil {
				return rec, fmt.Errorf("entry %d: %w", e.Seq, err)
			}
			rec.inFlight[s.Call], rec.started[s.Call] = true, s
		case "call.finished":
			id, _ := rawjson.Text(rawjson.Get(e.Data, "call"))
			delete(rec.inFlight, id)
		case "run.recovered":
			rec.after = entries[i:]
			return rec, nil
		}
	}
	rec.inFlight = map[string]bool{}
	return rec, nil
}

// fault says where the journal after the crash is not what the crash table
// demands, or "". A call that was in flight asks a person when its class is once,
// and starts again with the same idempotency key when it is not; no other call
// does either.
func (r recovery) fault(action string) string {
	asked, again := map[string]bool{}, map[string]string{}
	finished := map[string]string{}
	for _, e := range r.after {
		switch e.Type {
		case "hold.opened":
			hold := rawjson.Get(e.Data, "hold")
			if kind, _ := rawjson.Text(rawjson.Get(hold, "kind")); kind == kindUnknown {
				for _, id := range itemIDs(hold) {
					asked[id] = true
				}
			}
		case "call.started":
			id, _ := rawjson.Text(rawjson.Get(e.Data, "call"))
			if once := r.inFlight[id] && r.started[id].Effect == effectOnce; once && !asked[id] {
				return id + " (once) was started again before anybody was asked"
			}
			again[id], _ = rawjson.Text(rawjson.Get(e.Data, "idempotency_key"))
		case "call.finished":
			id, _ := rawjson.Text(rawjson.Get(e.Data, "call"))
			finished[id], _ = rawjson.Text(rawjson.Get(e.Data, "outcome"))
		}
	}
	for _, id := range slices.Sorted(maps.Keys(asked)) {
		if !r.inFlight[id] {
			return fmt.Sprintf("a person was asked what became of %s, which was not under way", id)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(r.inFlight)) {
		s := r.started[id]
		key, restarted := again[id]
		switch {
		case s.Effect == effectOnce && !asked[id]:
			return fmt.Sprintf("nobody was asked what became of %s (once)", id)
		case s.Effect == effectOnce && restarted != (action == actionRetry):
			return fmt.Sprintf("%s: started again is %t after %s", id, restarted, action)
		case s.Effect != effectOnce && !restarted:
			return fmt.Sprintf("%s (%s) was not started again", id, s.Effect)
		case restarted && key != s.Key:
			return fmt.Sprintf("%s was started again with the idempotency key %q, not %q", id, key, s.Key)
		case action == actionSkip && s.Effect == effectOnce && finished[id] != "unknown":
			return fmt.Sprintf("%s ended %q after skip", id, finished[id])
		}
	}
	return ""
}

func itemIDs(hold json.RawMessage) []string {
	items, err := rawjson.Elements(rawjson.Get(hold, "items"))
	if err != nil {
		return nil
	}
	var out []string
	for _, it := range items {
		id, _ := rawjson.Text(rawjson.Get(it, "id"))
		out = append(out, id)
	}
	return out
}
