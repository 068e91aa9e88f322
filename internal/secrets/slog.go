package secrets

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
)

// Handler returns a slog.Handler that redacts message and attributes, errors
// and groups included, before next sees them.
func (s *Set) Handler(next slog.Handler) slog.Handler { return handler{set: s, next: next} }

type handler struct {
	set  *Set
	next slog.Handler
}

// Enabled implements slog.Handler.
func (h handler) Enabled(ctx context.Context, level slog.Level) bool {
	return h.next.Enabled(ctx, level)
}

// Handle implements slog.Handler.
func (h handler) Handle(ctx context.Context, r slog.Record) error {
	clean := slog.NewRecord(r.Time, r.Level, h.set.Redact(r.Message), r.PC)
	r.Attrs(func(a slog.Attr) bool {
		clean.AddAttrs(h.set.attr(a))
		return true
	})
	return h.next.Handle(ctx, clean)
}

// WithAttrs implements slog.Handler.
func (h handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	clean := make([]slog.Attr, len(attrs))
	for i, a := range attrs {
		clean[i] = h.set.attr(a)
	}
	return handler{set: h.set, next: h.next.WithAttrs(clean)}
}

// WithGroup implements slog.Handler.
func (h handler) WithGroup(name string) slog.Handler {
	return handler{set: h.set, next: h.next.WithGroup(name)}
}

func (s *Set) attr(a slog.Attr) slog.Attr {
	v := a.Value.Resolve()
	switch v.Kind() {
	case slog.KindString:
		v = slog.StringValue(s.Redact(v.String()))
	case slog.KindGroup:
		group := v.Group()
		clean := make([]slog.Attr, len(group))
		for i, inner := range group {
			clean[i] = s.attr(inner)
		}
		v = slog.GroupValue(clean...)
	case slog.KindAny, slog.KindLogValuer:
		v = s.anyValue(v)
	case slog.KindInt64, slog.KindUint64, slog.KindFloat64:
		// A secret may be a number, such as a PIN.
		if text := v.String(); s.Redact(text) != text {
			v = slog.StringValue(s.Redact(text))
		}
	case slog.KindBool, slog.KindDuration, slog.KindTime:
	}
	return slog.Attr{Key: a.Key, Value: v}
}

// anyValue turns a value into text when its text holds a secret, and keeps the
// value for the next handler's own format otherwise.
func (s *Set) anyValue(v slog.Value) slog.Value {
	var text string
	switch x := v.Any().(type) {
	case nil:
		return v
	case error:
		return slog.StringValue(s.Redact(x.Error()))
	case json.RawMessage:
		return slog.StringValue(s.Redact(string(x)))
	case []byte:
		return slog.StringValue(s.Redact(string(x)))
	default:
		text = fmt.Sprintf("%+v", x)
	}
	if clean := s.Redact(text); clean != text {
		return slog.StringValue(clean)
	}
	return v
}
