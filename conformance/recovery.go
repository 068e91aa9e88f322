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
// is asked about.
func (r recovery) fault(action string) string {
	after, fault := r.since()
	if fault != "" {
		return fault
	}
	for _, id := range slices.Sorted(maps.Keys(after.asked)) {
		if !r.inFlight[id] {
			return fmt.Sprintf("a person was asked what became of %s, which was not under way", id)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(r.inFlight)) {
		s := r.started[id]
		once := s.Effect == effectOnce
		key, restarted := after.again[id]
		switch {
		case once && !after.asked[id]:
			return fmt.Sprintf("nobody was asked what became of %s (once)", id)
		case once && restarted != (action == actionRetry):
			return fmt.Sprintf("%s: started again is %t after %s", id, restarted, action)
		case !once && !restarted:
			return fmt.Sprintf("%s (%s) was not started again", id, s.Effect)
		case restarted && key != s.Key:
			return fmt.Sprintf("%s was started again with the idempotency key %q, not %q", id, key, s.Key)
		case once && action == actionSkip && after.finished[id] != "unknown":
			return fmt.Sprintf("%s ended %q after skip", id, after.finished[id])
		}
	}
	return ""
}

// aftermath is what happened to calls after a crash, by call id.
type aftermath struct {
	asked map[string]bool
	// again has the idempotency keys of calls that were started, finished the
	// outcomes.
	again, finished map[string]string
}

// since reads the entries after the crash. A call of class once that starts again
// before a person was asked is a fault.
func (r recovery) since() (aftermath, string) {
	a := aftermath{asked: map[string]bool{}, again: map[string]string{}, finished: map[string]string{}}
	for _, e := range r.after {
		id, _ := rawjson.Text(rawjson.Get(e.Data, "call"))
		switch e.Type {
		case "hold.opened":
			hold := rawjson.Get(e.Data, "hold")
			if kind, _ := rawjson.Text(rawjson.Get(hold, "kind")); kind == kindUnknown {
				for _, item := range itemIDs(hold) {
					a.asked[item] = true
				}
			}
		case "call.started":
			if r.inFlight[id] && r.started[id].Effect == effectOnce && !a.asked[id] {
				return a, id + " (once) was started again before anybody was asked"
			}
			a.again[id], _ = rawjson.Text(rawjson.Get(e.Data, "idempotency_key"))
		case "call.finished":
			a.finished[id], _ = rawjson.Text(rawjson.Get(e.Data, "outcome"))
		}
	}
	return a, ""
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
