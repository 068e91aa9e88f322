package auth

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"agentos/audit"
	"agentos/internal/clock"
	"agentos/internal/ids"
	"agentos/internal/problem"
	"agentos/runtime/store"
)

// documentName is where the store has the keys.
const documentName = "keys"

// How the keys are followed.
const (
	followEvery = time.Second
	// fresh is how long what was read is gone by without another look.
	fresh = 3 * followEvery / 2
	// trusted is how long it is gone by when the store does not answer.
	trusted     = 10 * time.Second
	readTimeout = 2 * time.Second
	// Unknown keys make a server look again: they may be new. This bounds it.
	missBurst = 10
	missEvery = 200 * time.Millisecond
)

// Documents is what the package needs of a store.
type Documents interface {
	Document(ctx context.Context, env, name string) (store.Document, error)
	SetDocument(ctx context.Context, env, name string, d store.Document) error
}

// Config is what a Keyring needs; all but Record and Required must be given.
type Config struct {
	Store Documents
	// Env is the environment whose keys these are.
	Env   string
	Clock clock.Clock
	IDs   ids.Source
	Log   *slog.Logger
	// Record has the audit keep what is about to be done; nil keeps nothing.
	Record func(ctx context.Context, acts ...audit.Keyed) error
	// Required asks for credentials even where there is no key: nobody is Local.
	Required bool
}

// Keyring knows the keys of an environment. It is safe for concurrent use.
type Keyring struct {
	cfg      Config
	known    atomic.Pointer[known]
	attempts attempts

	reading sync.Mutex // held while the document is read
	lastTry time.Time  // when the last reading ended, and how
	lastErr error
	misses  bucket

	watching sync.Mutex
	watches  map[*watch]struct{}
}

// known is the document as it was read.
type known struct {
	// at is when the reading began, on the clock of this process.
	at time.Time
	// required says that there is, or ever was, a key.
	required bool
	keys     map[string]*key
}

// New returns a keyring that has read nothing yet, or an error that names what cfg
// lacks.
func New(cfg Config) (*Keyring, error) {
	if cfg.Store == nil || cfg.Env == "" || cfg.Clock == nil || cfg.IDs == nil || cfg.Log == nil {
		return nil, problem.New(problem.InvalidSettings, "the keyring needs store, environment, clock, ids and log")
	}
	return &Keyring{cfg: cfg, watches: map[*watch]struct{}{}}, nil
}

// Required reports whether requests need a credential; store_unavailable when that
// cannot be told.
func (k *Keyring) Required(ctx context.Context) (bool, error) {
	now, err := k.current(ctx)
	if err != nil {
		return true, err
	}
	return now.required, nil
}

// Follow keeps what k knows up to date, and ends what While began for keys that
// ended, until ctx ends.
func (k *Keyring) Follow(ctx context.Context) {
	for {
		if err := k.learn(ctx, always); err == nil {
			k.sweep()
		}
		select {
		case <-ctx.Done():
			return
		case <-k.cfg.Clock.After(followEvery):
		}
	}
}

// Authenticate returns who stands behind the credential, the text after "Bearer",
// or "" when none was sent. from is the address of the request, by which failures
// are counted. Errors: unauthorized, rate_limited, and store_unavailable when the
// keys cannot be read. With the last one comes who it was by what was read last, for
// an answer that only tells what is wrong; nobody acts by it.
func (k *Keyring) Authenticate(ctx context.Context, credential, from string) (Principal, error) {
	now, err := k.current(ctx)
	if err != nil {
		return k.lately(credential), err
	}
	if credential == "" {
		if now.required {
			return Principal{}, problem.New(problem.Unauthorized, "this server needs an API key: send it as Authorization: Bearer aos_…, or set AGENTOS_API_KEY for the agentos command")
		}
		return Local(), nil
	}
	p, failure := now.match(credential, k.cfg.Clock.Now())
	if failure == nil {
		return p, nil
	}
	if wait := k.attempts.fail(from, k.cfg.Clock.Now()); wait > 0 {
		return Principal{}, retryAfter(problem.New(problem.RateLimited, "too many keys from this address did not count; wait, and check the key"), wait)
	}
	if idOf(credential) == "" {
		return Principal{}, failure
	}
	if err := k.learn(ctx, seldom); err != nil {
		return Principal{}, failure // what is known is gone by
	}
	return k.known.Load().match(credential, k.cfg.Clock.Now())
}

// lately is who a credential stood for when the keys were last read.
func (k *Keyring) lately(credential string) Principal {
	n := k.known.Load()
	switch {
	case n == nil:
		return Principal{}
	case credential == "" && !n.required:
		return Local()
	}
	p, err := n.match(credential, k.cfg.Clock.Now())
	if err != nil {
		return Principal{}
	}
	return p
}

// match finds the key of a text and who it stands for.
func (n *known) match(text string, now time.Time) (Principal, error) {
	found := n.keys[idOf(text)]
	if found == nil || !found.fits(text) {
		return Principal{}, problem.New(problem.Unauthorized, "the API key is not one of this server")
	}
	switch found.status(now) {
	case statusRevoked:
		return Principal{}, problem.New(problem.Unauthorized, "the API key %s was revoked at %s", found.ID, found.RevokedAt.UTC().Format(time.RFC3339))
	case statusExpired:
		return Principal{}, problem.New(problem.Unauthorized, "the API key %s expired at %s", found.ID, found.ExpiresAt.UTC().Format(time.RFC3339))
	}
	return found.principal(), nil
}

// counts reports whether p could still come in.
func (n *known) counts(p Principal, now time.Time) bool {
	if p.KeyID == "" {
		return !n.required && p.Name == localName
	}
	found := n.keys[p.KeyID]
	return found != nil && found.status(now) == statusActive
}

// current returns what is known, read again when it is old.
func (k *Keyring) current(ctx context.Context) (*known, error) {
	now := k.cfg.Clock.Now()
	if n := k.known.Load(); n != nil && n.younger(now, fresh) {
		return n, nil
	}
	err := k.learn(ctx, together)
	n := k.known.Load()
	if err == nil || n != nil && n.younger(now, trusted) {
		return n, nil
	}
	return nil, err
}

func (n *known) younger(now time.Time, than time.Duration) bool {
	age := now.Sub(n.at)
	return age >= 0 && age < than
}

// look says when the document is read.
type look int

const (
	always look = iota
	// together takes the outcome of a reading that ended while one waited for it, so
	// that a store without an answer is not asked by one request after the other.
	together
	// seldom reads a few times a second at most.
	seldom
)

// learn reads the document.
func (k *Keyring) learn(ctx context.Context, when look) error {
	asked := k.cfg.Clock.Now()
	k.reading.Lock()
	defer k.reading.Unlock()
	if when == together && k.lastTry.After(asked) {
		return k.lastErr
	}
	if when == seldom && k.misses.take(asked, missBurst, missEvery) > 0 {
		return nil
	}
	began := k.cfg.Clock.Now()
	// Others may wait for this: it does not end with the request.
	reading, stop := context.WithTimeout(context.WithoutCancel(ctx), readTimeout)
	defer stop()
	doc, version, err := k.read(reading)
	if err == nil {
		n := &known{at: began, required: k.cfg.Required || version > 0, keys: map[string]*key{}}
		if was := k.known.Load(); was != nil && was.required {
			n.required = true // a store that lost its keys opens nothing
		}
		for i := range doc.Keys {
			each := &doc.Keys[i]
			if faults := each.faults(); len(faults) > 0 {
				k.cfg.Log.WarnContext(ctx, "a key in the store is not as keys are; it does not count", slog.String("key_id", each.ID), slog.String("fault", faults[0].Path+" "+faults[0].Message))
				continue
			}
			n.keys[each.ID] = each
		}
		k.known.Store(n)
	}
	k.lastTry, k.lastErr = k.cfg.Clock.Now(), err
	if err != nil && ctx.Err() == nil {
		k.cfg.Log.WarnContext(ctx, "could not read the API keys", slog.Any("error", err))
	}
	return err
}

// read reads the document.
func (k *Keyring) read(ctx context.Context) (document, int64, error) {
	raw, err := k.cfg.Store.Document(ctx, k.cfg.Env, documentName)
	if err != nil {
		return document{}, 0, unavailable(err)
	}
	var doc document
	if len(raw.Text) > 0 {
		if err := json.Unmarshal(raw.Text, &doc); err != nil {
			return document{}, 0, unavailable(err)
		}
	}
	return doc, raw.Version, nil
}

func unavailable(cause error) error {
	return retryAfter(problem.Wrap(cause, problem.StoreUnavailable, "the API keys cannot be read or written in the store now"), time.Second)
}

func retryAfter(p *problem.Error, wait time.Duration) *problem.Error {
	p.RetryAfter = wait
	return p
}

// ErrEnded is the cause of a context of While whose principal may come in no more.
var ErrEnded = errors.New("the credential does not count any more")

// watch is something long that a principal does.
type watch struct {
	who Principal
	end context.CancelCauseFunc
}

// While returns a context for something long that p does: it ends with ctx, and
// with the cause ErrEnded within about a second after p's key ends, or after the
// first key when p is Local. That takes somebody who follows.
func (k *Keyring) While(ctx context.Context, p Principal) (context.Context, context.CancelFunc) {
	ctx, end := context.WithCancelCause(ctx)
	w := &watch{who: p, end: end}
	k.watching.Lock()
	k.watches[w] = struct{}{}
	k.watching.Unlock()
	return ctx, func() {
		k.watching.Lock()
		delete(k.watches, w)
		k.watching.Unlock()
		end(context.Canceled)
	}
}

// sweep ends what principals do whose key has ended.
func (k *Keyring) sweep() {
	n, now := k.known.Load(), k.cfg.Clock.Now()
	k.watching.Lock()
	defer k.watching.Unlock()
	for w := range k.watches {
		if !n.counts(w.who, now) {
			w.end(ErrEnded)
		}
	}
}
