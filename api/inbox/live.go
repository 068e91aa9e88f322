package inbox

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/url"
	"time"

	"agentos/api"
)

// Pages are kept up to date by streams that say only that something changed; the
// browser then asks for the page again and takes the live part of it.

// Timing of streams: how often a list is read again, the shortest time between two
// looks at a run, and when a silent stream says that it is there.
const (
	listEvery    = 2 * time.Second
	runEvery     = 300 * time.Millisecond
	heartbeat    = 15 * time.Second
	writeTimeout = 30 * time.Second
)

// live is what makes a part of a page live.
type live struct {
	// Self is the address of the page, Stream of its changes, "" when it will not
	// change any more.
	Self, Stream string
	// Digest is of the live part as it was made.
	Digest string
}

// liveOf makes the live part of the page name and takes its digest. here is the
// address of the page, stream of its changes, both with the query.
func (in *Inbox) liveOf(name, here, stream string, query url.Values, data any) (live, error) {
	digest, err := in.digest(name, data)
	if err != nil {
		return live{}, err
	}
	if q := query.Encode(); q != "" {
		here, stream = here+"?"+q, stream+"?"+q
	}
	return live{Self: here, Stream: stream, Digest: digest}, nil
}

func (in *Inbox) digest(name string, data any) (string, error) {
	body, err := in.render(name, "live", data)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(body)
	return hex.EncodeToString(sum[:12]), nil
}

// look makes a live part anew: its digest, and whether it will not change any more.
type look func(context.Context) (digest string, last bool, err error)

// stream sends the digest of a live part whenever it is another one, as server-sent
// events (HTML standard, section 9.2). news says when to look; without it every
// listEvery.
func (in *Inbox) stream(ctx context.Context, v *visit, news <-chan struct{}, look look) (*page, error) {
	digest, last, err := look(ctx)
	if err != nil {
		return nil, err // before the head is written, so that it has a status
	}
	h := v.w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("X-Accel-Buffering", "no") // nginx would keep events back
	v.w.WriteHeader(http.StatusOK)
	sent := ""
	for {
		message := ":\n\n"
		if digest != sent {
			message, sent = "event: changed\ndata: "+digest+"\n\n", digest
		}
		if last {
			message += "event: end\ndata: " + digest + "\n\n"
		}
		if err := in.write(v, message); err != nil || last {
			return nil, nil //nolint:nilerr // whoever has left cannot be told
		}
		if !in.pause(ctx, news) {
			return nil, nil
		}
		if digest, last, err = look(ctx); err != nil {
			return nil, nil //nolint:nilerr // the browser connects again and gets the error with its status
		}
	}
}

// pause waits until it is time to look again; false when the stream has ended.
func (in *Inbox) pause(ctx context.Context, news <-chan struct{}) bool {
	wait := listEvery
	if news != nil {
		select { // many entries at once are one change
		case <-ctx.Done():
			return false
		case <-in.cfg.Clock.After(runEvery):
		}
		wait = heartbeat
	}
	select {
	case <-ctx.Done():
		return false
	case <-news:
	case <-in.cfg.Clock.After(wait):
	}
	return true
}

func (in *Inbox) write(v *visit, message string) error {
	control := http.NewResponseController(v.w)
	// A writer without deadlines is one of a test; there is nothing to protect.
	_ = control.SetWriteDeadline(in.cfg.Clock.Now().Add(writeTimeout)) //nolint:errcheck // see above
	if _, err := v.w.Write([]byte(message)); err != nil {
		return err
	}
	return control.Flush()
}

func (in *Inbox) liveHolds(ctx context.Context, v *visit) (*page, error) {
	return in.stream(ctx, v, nil, func(ctx context.Context) (string, bool, error) {
		l, err := in.holdsPage(ctx, v)
		return l.Digest, false, err
	})
}

func (in *Inbox) liveRuns(ctx context.Context, v *visit) (*page, error) {
	return in.stream(ctx, v, nil, func(ctx context.Context) (string, bool, error) {
		l, err := in.runsPage(ctx, v)
		return l.Digest, false, err
	})
}

func (in *Inbox) liveHold(ctx context.Context, v *visit) (*page, error) {
	seen, err := revision(v.r.URL.Query().Get("seen"))
	if err != nil {
		return nil, err
	}
	h, err := in.cfg.Backend.Hold(ctx, v.who, v.args[0])
	if err != nil {
		return nil, err
	}
	news, err := in.cfg.Backend.Watch(ctx, v.who, h.RunID)
	if err != nil {
		return nil, err
	}
	return in.stream(ctx, v, news, func(ctx context.Context) (string, bool, error) {
		h, err := in.cfg.Backend.Hold(ctx, v.who, v.args[0])
		if err != nil {
			return "", false, err
		}
		digest, err := in.digest("hold", &holdPage{Hold: h, Seen: seen, Urgent: in.urgent(h.ExpiresAt)})
		return digest, h.Status != api.HoldPending, err
	})
}

func (in *Inbox) liveRun(ctx context.Context, v *visit) (*page, error) {
	news, err := in.cfg.Backend.Watch(ctx, v.who, v.args[0])
	if err != nil {
		return nil, err
	}
	return in.stream(ctx, v, news, func(ctx context.Context) (string, bool, error) {
		p, err := in.runPage(ctx, v)
		if err != nil {
			return "", false, err
		}
		return p.Digest, p.Run.Status.Finished(), nil
	})
}
