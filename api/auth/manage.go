package auth

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"agentos/api"
	"agentos/audit"
	"agentos/internal/problem"
	"agentos/internal/rawjson"
	"agentos/runtime/store"
)

const (
	// maxKeys bounds the document. Keys that ended make room for new ones.
	maxKeys = 500
	// maxRaces is how often a change is tried again that another was faster than.
	maxRaces = 16
)

// Actor is who makes or revokes a key, and the address that came from.
type Actor struct{ Name, From string }

// Create makes a key in the name of by. Its text is in the answer and nowhere else.
// Errors: invalid_request with the faults, no_admin_key when nobody could make keys
// afterwards, store_unavailable.
func (k *Keyring) Create(ctx context.Context, by Actor, c api.CreateKey) (api.CreatedKey, error) {
	now := k.cfg.Clock.Now()
	made, text, err := newKey(c, by.Name, k.cfg.IDs, now)
	if err != nil {
		return api.CreatedKey{}, err
	}
	act, err := k.act(audit.KeyCreated, by, made, now)
	if err != nil {
		return api.CreatedKey{}, err
	}
	err = k.change(ctx, act, func(doc *document) (bool, error) {
		if !made.activeAdmin(now) && !slices.ContainsFunc(doc.Keys, func(other key) bool { return other.activeAdmin(now) }) {
			return false, problem.New(problem.NoAdminKey, "there is no key with the role admin that counts; make one first, or nobody could make others")
		}
		if slices.ContainsFunc(doc.Keys, func(other key) bool { return other.ID == made.ID }) {
			return false, errors.New("two keys got the same id; randomness is broken")
		}
		if len(doc.Keys) >= maxKeys {
			i := slices.IndexFunc(doc.Keys, func(other key) bool { return other.status(now) != statusActive })
			if i < 0 {
				return false, problem.New(problem.InvalidRequest, "there are %d keys that count already; revoke some first", maxKeys)
			}
			doc.Keys = slices.Delete(doc.Keys, i, i+1)
		}
		doc.Keys = append(doc.Keys, made)
		return true, nil
	})
	if err != nil {
		return api.CreatedKey{}, err
	}
	return api.CreatedKey{Key: made.wire(now), Secret: text}, nil
}

// List returns every key as the store has it, oldest first.
func (k *Keyring) List(ctx context.Context) ([]api.Key, error) {
	doc, _, err := k.read(ctx)
	if err != nil {
		return nil, err
	}
	out := make([]api.Key, len(doc.Keys))
	for i := range doc.Keys {
		out[i] = doc.Keys[i].wire(k.cfg.Clock.Now())
	}
	return out, nil
}

// Revoke ends a key, on every server within about a second. Revoking it again
// changes nothing. The last key with the role admin is revoked only with force,
// else no_admin_key; key_not_found when there is none with the id.
func (k *Keyring) Revoke(ctx context.Context, by Actor, id string, force bool) (api.Key, error) {
	now := k.cfg.Clock.Now()
	var out api.Key
	act, err := k.act(audit.KeyRevoked, by, key{ID: id}, now)
	if err != nil {
		return out, err
	}
	err = k.change(ctx, act, func(doc *document) (bool, error) {
		i := slices.IndexFunc(doc.Keys, func(each key) bool { return each.ID == id })
		if i < 0 {
			return false, problem.New(problem.KeyNotFound, "there is no API key with this id; agentos keys list shows them")
		}
		each := &doc.Keys[i]
		if !each.RevokedAt.IsZero() {
			out = each.wire(now)
			return false, nil
		}
		last := each.activeAdmin(now)
		each.RevokedAt, each.RevokedBy = now.UTC().Truncate(time.Millisecond), by.Name
		if last && !force && !slices.ContainsFunc(doc.Keys, func(other key) bool { return other.activeAdmin(now) }) {
			return false, problem.New(problem.NoAdminKey,
				"%s is the last key with the role admin; make another one first, or force it: then only agentos keys create --store can make keys", id)
		}
		out = each.wire(now)
		act.Entry.Detail, err = detail(*each)
		return true, err
	})
	return out, err
}

// act is the audit's entry about a key. It has its own name in the chain, so that a
// change which is tried again is told of once.
func (k *Keyring) act(event audit.Event, by Actor, about key, now time.Time) (*audit.Keyed, error) {
	text, err := detail(about)
	return &audit.Keyed{Key: string(event) + "/" + k.cfg.IDs.Token(), Entry: audit.Entry{
		At: now.UTC().Truncate(time.Millisecond), Env: k.cfg.Env, Event: event, By: by.Name, From: by.From, Detail: text,
	}}, err
}

// detail is what the audit tells of a key.
func detail(k key) (json.RawMessage, error) {
	return rawjson.Marshal(struct {
		ID        string    `json:"key_id"`
		Name      string    `json:"name"`
		Roles     []Role    `json:"roles"`
		Groups    []string  `json:"groups,omitempty"`
		ExpiresAt time.Time `json:"expires_at,omitzero"`
	}{k.ID, k.Name, k.Roles, k.Groups, k.ExpiresAt})
}

// change replaces the document by what edit makes of it, when the audit has kept
// act. edit reports whether it changed anything; it may be called several times.
func (k *Keyring) change(ctx context.Context, act *audit.Keyed, edit func(*document) (bool, error)) error {
	for range maxRaces {
		doc, version, err := k.read(ctx)
		if err != nil {
			return err
		}
		changed, err := edit(&doc)
		if err != nil || !changed {
			return err
		}
		raw, err := rawjson.Marshal(doc)
		if err != nil {
			return err
		}
		if k.cfg.Record != nil {
			if err := k.cfg.Record(ctx, *act); err != nil {
				return unavailable(err)
			}
		}
		err = k.cfg.Store.SetDocument(ctx, k.cfg.Env, documentName, store.Document{Version: version + 1, Text: raw})
		if errors.Is(err, store.ErrConflict) {
			continue
		}
		if err != nil {
			return unavailable(err)
		}
		if err := k.learn(ctx, always); err == nil {
			k.sweep()
		}
		return nil
	}
	return retryAfter(problem.New(problem.StoreUnavailable, "the keys kept changing; try again"), time.Second)
}
