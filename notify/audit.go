package notify

import (
	"context"
	"encoding/json"
	"log/slog"
	"time"

	"agentos/audit"
	"agentos/internal/rawjson"
)

// auditRetry is when entries are appended again that could not be.
const auditRetry = 2 * time.Second

// Appender appends to the audit chain.
type Appender interface {
	Append(ctx context.Context, list ...audit.Keyed) error
}

// Audit is the target that appends what people decided, and what ran because of it,
// to the audit chain.
type Audit struct {
	Chain Appender
	Log   *slog.Logger
}

// Name implements Target.
func (*Audit) Name() string { return "audit" }

// auditState is how far a run is in the chain.
type auditState struct {
	Seq int64 `json:"seq"`
}

// Tell implements Target. Entries that are in the chain already, because the
// process that appended them died before it could say so, are not appended again.
func (a *Audit) Tell(ctx context.Context, r Run, state json.RawMessage) Told {
	var s auditState
	if state != nil && rawjson.Unmarshal(state, &s) != nil {
		s = auditState{} // what is there already has its keys there
	}
	all, err := audit.FromRun(r.Env, r.ID, r.Journal)
	if err != nil {
		a.Log.ErrorContext(ctx, "the audit of the run ends here", slog.String("run_id", r.ID), slog.Any("error", err))
	}
	var list []audit.Keyed
	for _, k := range all {
		if k.Seq > s.Seq {
			list = append(list, k)
		}
	}
	if len(list) > 0 {
		if err := a.Chain.Append(ctx, list...); err != nil {
			a.Log.WarnContext(ctx, "could not append to the audit; trying again", slog.String("run_id", r.ID), slog.Any("error", err))
			return Told{State: state, Again: true, Due: auditRetry}
		}
		s.Seq = list[len(list)-1].Seq
	}
	raw, err := rawjson.Marshal(s)
	if err != nil {
		raw = state // a struct of a number encodes
	}
	return Told{State: raw}
}
