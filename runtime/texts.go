package runtime

import (
	"context"
	"errors"
	"sync"

	"agentos/internal/problem"
	"agentos/internal/rawjson"
	"agentos/runtime/store"
)

// maxInline is the longest system message, in bytes, that is kept in each run.
const maxInline = 128

// texts are the long system messages, kept in the store once by their digest for
// all runs that begin with them, and remembered here.
type texts struct {
	mu    sync.Mutex
	known map[string]string
}

func (t *texts) get(digest string) (string, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	text, ok := t.known[digest]
	return text, ok
}

func (t *texts) put(digest, text string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.known == nil {
		t.known = map[string]string{}
	}
	t.known[digest] = text
}

func textScope(digest string) string { return "text/" + digest }

// keepText makes sure that the store has the text and returns its digest.
func (e *Engine) keepText(ctx context.Context, text string) (string, error) {
	digest := rawjson.Digest([]byte(text))
	if _, ok := e.texts.get(digest); ok {
		return digest, nil
	}
	if err := e.cfg.Store.PutState(ctx, textScope(digest), "text", rawjson.Quote(text)); err != nil {
		return "", e.storeError(err, "keep the system message", "")
	}
	e.texts.put(digest, text)
	return digest, nil
}

// text returns a text kept before, by any process.
func (e *Engine) text(ctx context.Context, digest string) (string, error) {
	if text, ok := e.texts.get(digest); ok {
		return text, nil
	}
	raw, err := e.cfg.Store.GetState(ctx, textScope(digest), "text")
	if errors.Is(err, store.ErrNotFound) {
		return "", problem.Wrap(err, problem.JournalDamaged, "the system message of the run is not in the store")
	}
	if err != nil {
		return "", err
	}
	text, ok := rawjson.Text(raw)
	if !ok || rawjson.Digest([]byte(text)) != digest {
		return "", problem.New(problem.JournalDamaged, "the system message of the run is not the one it began with")
	}
	e.texts.put(digest, text)
	return text, nil
}
