package auth

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"agentos/api"
	"agentos/audit"
	"agentos/internal/problem"
	"agentos/internal/rawjson"
	"agentos/runtime/store"
)

// Without keys everybody is local. From the first key on nobody is, on another
// server of the store neither.
func TestTheFirstKeyEndsLocal(t *testing.T) {
	t.Parallel()
	docs, c := newDocuments(t), &shifted{}
	a, b := open(t, docs, c), open(t, docs, c)
	if p := comesIn(t, a, "", ""); p.Name != "local" || p.KeyID != "" {
		t.Errorf("%+v", p)
	}
	comesIn(t, b, "", "")
	comesIn(t, a, "aos_x_y", problem.Unauthorized) // a key of another server is not local
	if _, err := a.Create(t.Context(), Actor{Name: "local"}, api.CreateKey{Name: "ann", Roles: []string{"viewer", "runner", "reviewer"}}); problem.CodeOf(err) != problem.NoAdminKey {
		t.Errorf("the first key is no admin's: %v", err)
	}
	comesIn(t, a, "", "")
	made := create(t, a, api.CreateKey{Name: "ann", Roles: []string{"admin"}, Groups: []string{"finance"}})
	comesIn(t, a, "", problem.Unauthorized)
	if p := comesIn(t, a, made.Secret, ""); p.Name != "ann" || p.KeyID != made.Key.ID || strings.Join(p.Words(), " ") != "viewer runner reviewer admin finance" {
		t.Errorf("%+v", p)
	}
	comesIn(t, b, made.Secret, "") // at once: what is unknown is looked up
	c.move(fresh)
	comesIn(t, b, "", problem.Unauthorized)
	for _, wrong := range []string{
		made.Secret + "x", made.Secret[:len(made.Secret)-1], strings.ToUpper(made.Secret), "aos_" + made.Key.ID + "_", "aos_" + made.Key.ID + "_" + strings.Repeat("a", 52),
	} {
		comesIn(t, open(t, docs, c), wrong, problem.Unauthorized)
	}
	if need, err := b.Required(t.Context()); err != nil || !need {
		t.Errorf("required: %v %v", need, err)
	}
}

func TestExpiryAndRevocation(t *testing.T) {
	t.Parallel()
	docs, c := newDocuments(t), &shifted{}
	k := open(t, docs, c)
	first := create(t, k, admin("ann"))
	short := create(t, k, api.CreateKey{Name: "bob", Roles: []string{"admin"}, ExpiresIn: "1h"})
	comesIn(t, k, short.Secret, "")
	if _, err := k.Revoke(t.Context(), Actor{Name: "local"}, "k-none", false); problem.CodeOf(err) != problem.KeyNotFound {
		t.Errorf("revoke nothing: %v", err)
	}
	got, err := k.Revoke(t.Context(), Actor{Name: "bob"}, first.Key.ID, false)
	if err != nil || got.Status != "revoked" || got.RevokedBy != "bob" {
		t.Fatalf("%v %+v", err, got)
	}
	again, err := k.Revoke(t.Context(), Actor{Name: "eve"}, first.Key.ID, true)
	if err != nil || again.RevokedBy != "bob" || !again.RevokedAt.Equal(got.RevokedAt.Time) {
		t.Errorf("a repeat: %v %+v", err, again)
	}
	if _, err := k.Authenticate(t.Context(), first.Secret, ""); err == nil || !strings.Contains(err.Error(), first.Key.ID+" was revoked") {
		t.Errorf("the revoked key: %v", err)
	}
	c.move(time.Hour)
	if _, err := k.Authenticate(t.Context(), short.Secret, ""); err == nil || !strings.Contains(err.Error(), "expired") {
		t.Errorf("the expired key: %v", err)
	}
	list, err := k.List(t.Context())
	if err != nil || len(list) != 2 || list[0].Status != "revoked" || list[1].Status != "expired" || list[1].ExpiresAt == nil {
		t.Errorf("%v %+v", err, list)
	}
	// Nobody is left, and still nobody is local.
	comesIn(t, k, "", problem.Unauthorized)
	c.move(fresh)
	comesIn(t, k, "", problem.Unauthorized)
	if _, err := k.Create(t.Context(), Actor{Name: "local"}, api.CreateKey{Name: "eve", Roles: []string{"runner"}}); problem.CodeOf(err) != problem.NoAdminKey {
		t.Errorf("a key while there is no admin: %v", err)
	}
	last := create(t, k, admin("eve"))
	if _, err := k.Revoke(t.Context(), Actor{Name: "local"}, last.Key.ID, false); problem.CodeOf(err) != problem.NoAdminKey {
		t.Errorf("revoke the last admin: %v", err)
	}
	comesIn(t, k, last.Secret, "")
	if _, err := k.Revoke(t.Context(), Actor{Name: "local"}, last.Key.ID, true); err != nil {
		t.Errorf("force: %v", err)
	}
	comesIn(t, k, last.Secret, problem.Unauthorized)
}

// A revoked key stops working within two seconds on another server, whatever
// requests come meanwhile; what was begun with it ends too.
func TestRevocationReachesOtherServers(t *testing.T) {
	t.Parallel()
	docs, c := newDocuments(t), &shifted{}
	a, b := open(t, docs, c), open(t, docs, c)
	follow(t, a)
	follow(t, b)
	boss := create(t, a, admin("ann"))
	made := create(t, a, api.CreateKey{Name: "bob", Roles: []string{"viewer"}})
	who := comesIn(t, b, made.Secret, "")
	long, end := b.While(t.Context(), who)
	defer end()
	stays, end := b.While(t.Context(), comesIn(t, b, boss.Secret, ""))
	defer end()
	stop := make(chan struct{})
	var busy sync.WaitGroup
	for range 4 {
		busy.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					_, _ = b.Authenticate(context.Background(), boss.Secret, "192.0.2.9")
				}
			}
		})
	}
	if _, err := a.Revoke(t.Context(), Actor{Name: "local"}, made.Key.ID, false); err != nil {
		t.Fatal(err)
	}
	comesIn(t, a, made.Secret, problem.Unauthorized)
	eventually(t, 2*time.Second, "the other server refuses the key", func() bool {
		_, err := b.Authenticate(context.Background(), made.Secret, "192.0.2.2")
		return err != nil
	})
	select {
	case <-long.Done():
	case <-time.After(2 * time.Second):
		t.Error("what was begun with the key goes on")
	}
	close(stop)
	busy.Wait()
	if !errors.Is(context.Cause(long), ErrEnded) || stays.Err() != nil {
		t.Errorf("ended with %v, the other is %v", context.Cause(long), stays.Err())
	}
}

// What began before the first key ends with it.
func TestLocalEndsWhatItBegan(t *testing.T) {
	t.Parallel()
	docs, c := newDocuments(t), &shifted{}
	k := open(t, docs, c)
	long, end := k.While(t.Context(), comesIn(t, k, "", ""))
	defer end()
	create(t, k, admin("ann"))
	if !errors.Is(context.Cause(long), ErrEnded) {
		t.Errorf("cause %v", context.Cause(long))
	}
	again, end := k.While(t.Context(), Local())
	end()
	if again.Err() == nil || errors.Is(context.Cause(again), ErrEnded) {
		t.Errorf("an end of one's own has the cause %v", context.Cause(again))
	}
}

// A store that does not answer lets nobody in who was not known, and those who
// were only for a while.
func TestStoreAway(t *testing.T) {
	t.Parallel()
	docs, c := newDocuments(t), &shifted{}
	k := open(t, docs, c)
	docs.set(errAway)
	if p := comesIn(t, k, "", problem.StoreUnavailable); p.Name != "" {
		t.Errorf("before anything was read it is %+v", p)
	}
	if _, err := k.Authenticate(t.Context(), "", ""); problem.From(err).RetryAfter == 0 || strings.Contains(problem.From(err).Message, "redis.internal") {
		t.Errorf("%+v", problem.From(err))
	}
	docs.set(nil)
	made := create(t, k, admin("ann"))
	docs.set(errAway)
	c.move(trusted - time.Second)
	comesIn(t, k, made.Secret, "")
	c.move(time.Second)
	if p := comesIn(t, k, made.Secret, problem.StoreUnavailable); p.Name != "ann" {
		t.Errorf("lately it was %+v", p)
	}
	for _, secret := range []string{"", made.Secret + "x"} {
		if p := comesIn(t, k, secret, problem.StoreUnavailable); p.Name != "" {
			t.Errorf("lately it was %+v", p)
		}
	}
	if _, err := k.Create(t.Context(), Actor{Name: "local"}, admin("bob")); problem.CodeOf(err) != problem.StoreUnavailable {
		t.Errorf("create: %v", err)
	}
	docs.set(nil)
	comesIn(t, k, made.Secret, "")
}

// A store that lost its keys opens nothing; nor does a damaged document.
func TestLostKeysOpenNothing(t *testing.T) {
	t.Parallel()
	docs, c := newDocuments(t), &shifted{}
	k := open(t, docs, c)
	made := create(t, k, admin("ann"))
	empty := newDocuments(t)
	k.cfg.Store = empty
	c.move(fresh)
	comesIn(t, k, "", problem.Unauthorized)
	comesIn(t, k, made.Secret, problem.Unauthorized)

	if err := empty.SetDocument(t.Context(), "default", "keys", store.Document{Version: 1, Text: json.RawMessage(`{"keys":7}`)}); err != nil {
		t.Fatal(err)
	}
	comesIn(t, open(t, empty, c), "", problem.StoreUnavailable)

	always, err := New(Config{Store: newDocuments(t), Env: "default", Clock: c, IDs: k.cfg.IDs, Log: k.cfg.Log, Required: true})
	if err != nil {
		t.Fatal(err)
	}
	comesIn(t, always, "", problem.Unauthorized)
}

// What somebody wrote into the document by hand counts only as far as a key may be
// so.
func TestForgedKeysDoNotCount(t *testing.T) {
	t.Parallel()
	docs, c := newDocuments(t), &shifted{}
	var d document
	texts := map[string]key{
		"aos_k1_a": {ID: "k1", Name: "eve", Roles: []Role{"*"}},
		"aos_k2_a": {ID: "k2", Name: "eve", Roles: []Role{Viewer}, Groups: []string{"*"}},
		"aos_k3_a": {ID: "k3", Name: "local", Roles: []Role{Admin}},
		"aos_k4_a": {ID: "k4", Name: "eve", Roles: []Role{Viewer}, Groups: []string{"admin"}},
		"aos_k5_a": {ID: "k5", Name: "eve"},
	}
	for text, each := range texts {
		each.Hash = digest(text)
		d.Keys = append(d.Keys, each)
	}
	d.Keys = append(d.Keys, key{ID: "k6", Name: "eve", Roles: []Role{Viewer}, Hash: digest("aos_k6_a")}, key{ID: "k7", Name: "eve", Roles: []Role{Viewer}})
	raw, err := rawjson.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	if err := docs.SetDocument(t.Context(), "default", "keys", store.Document{Version: 1, Text: raw}); err != nil {
		t.Fatal(err)
	}
	k := open(t, docs, c)
	for text := range texts {
		comesIn(t, k, text, problem.Unauthorized)
	}
	comesIn(t, k, "aos_k6_a", "")
	comesIn(t, k, "aos_k7_a", problem.Unauthorized) // without a hash
}

// Failures are counted by address; a key that counts is never refused for them,
// and unknown keys do not make the store work.
func TestFailuresAreLimited(t *testing.T) {
	t.Parallel()
	docs, c := newDocuments(t), &shifted{}
	k := open(t, docs, c)
	made := create(t, k, admin("ann"))
	from := func(address, secret string) problem.Code {
		_, err := k.Authenticate(t.Context(), secret, address)
		if p := problem.From(err); p != nil && p.Code == problem.RateLimited && (p.RetryAfter <= 0 || p.RetryAfter > attemptEvery) {
			t.Errorf("retry after %s", p.RetryAfter)
		}
		return problem.CodeOf(err)
	}
	for i := range attemptBurst {
		if got := from("192.0.2.7", "aos_k_x"); got != problem.Unauthorized {
			t.Fatalf("failure %d: %s", i+1, got)
		}
	}
	if got := from("192.0.2.7", "aos_k_x"); got != problem.RateLimited {
		t.Errorf("one too many: %s", got)
	}
	if got := from("192.0.2.7", made.Secret); got != "" {
		t.Errorf("a good key behind the same address: %s", got)
	}
	if got := from("192.0.2.7", ""); got != problem.Unauthorized {
		t.Errorf("no key at all: %s", got)
	}
	if got := from("192.0.2.8", "aos_k_x"); got != problem.Unauthorized {
		t.Errorf("another address: %s", got)
	}
	before := docs.count()
	for i := range 200 {
		from(fmt.Sprintf("198.51.100.%d", i), "aos_k_x")
	}
	if n := docs.count() - before; n > missBurst+2 {
		t.Errorf("200 unknown keys made %d reads", n)
	}
	c.move(attemptEvery)
	if got := from("192.0.2.7", "aos_k_x"); got != problem.Unauthorized {
		t.Errorf("after a while: %s", got)
	}
	if got := from("192.0.2.7", "aos_k_x"); got != problem.RateLimited {
		t.Errorf("after a while, twice: %s", got)
	}
}

func TestAddresses(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{
		"192.0.2.1": "192.0.2.1", "::ffff:192.0.2.1": "192.0.2.1", "2001:db8:1:2:3::4": "2001:db8:1:2::/64", "2001:db8:1:2:ffff::": "2001:db8:1:2::/64",
		"fe80::1%eth0": "fe80::/64", "": "", "pipe": "pipe",
	} {
		if got := network(address); got != want {
			t.Errorf("network(%q) = %q, want %q", address, got, want)
		}
	}
	var a attempts
	now := time.Now()
	for i := range maxAddresses + 100 {
		a.fail(fmt.Sprintf("10.%d.%d.%d", i>>16, i>>8&255, i&255), now)
	}
	if len(a.by) != maxAddresses {
		t.Errorf("%d addresses are kept", len(a.by))
	}
	if a.fail("203.0.113.1", now) == 0 {
		t.Error("an address that is not kept may fail for ever")
	}
	if a.fail("203.0.113.1", now.Add(time.Hour)) != 0 || len(a.by) != 1 {
		t.Errorf("old addresses are not forgotten: %d", len(a.by))
	}
}

// Changes at the same time from several servers are all kept, and the bound holds.
func TestConcurrentChanges(t *testing.T) {
	t.Parallel()
	docs, c := newDocuments(t), &shifted{}
	boss := create(t, open(t, docs, c), admin("ann"))
	var done sync.WaitGroup
	for i := range 8 {
		done.Go(func() {
			k := open(t, docs, c)
			made, err := k.Create(context.Background(), Actor{Name: "local"}, api.CreateKey{Name: fmt.Sprintf("p%d", i), Roles: []string{"viewer"}})
			if err == nil && i%2 == 0 {
				_, err = k.Revoke(context.Background(), Actor{Name: "local"}, made.Key.ID, false)
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	done.Wait()
	k := open(t, docs, c)
	list, err := k.List(t.Context())
	if err != nil || len(list) != 9 {
		t.Fatalf("%v, %d keys", err, len(list))
	}
	revoked := 0
	for _, each := range list {
		if each.Status == "revoked" {
			revoked++
		}
	}
	if revoked != 4 {
		t.Errorf("%d are revoked", revoked)
	}
	comesIn(t, k, boss.Secret, "")
}

// Keys that ended make room; those that count are never pushed out.
func TestTheNumberOfKeysIsBounded(t *testing.T) {
	t.Parallel()
	docs, c := newDocuments(t), &shifted{}
	k := open(t, docs, c)
	made := create(t, k, admin("ann"))
	version := int64(1)
	var d document
	fill := func(edit func()) {
		t.Helper()
		raw, err := docs.Document(t.Context(), "default", "keys")
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(raw.Text, &d); err != nil {
			t.Fatal(err)
		}
		edit()
		version = raw.Version + 1
		text, err := rawjson.Marshal(d)
		if err == nil {
			err = docs.SetDocument(t.Context(), "default", "keys", store.Document{Version: version, Text: text})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	fill(func() {
		for i := len(d.Keys); i < maxKeys; i++ {
			d.Keys = append(d.Keys, key{ID: fmt.Sprintf("k%d", i), Name: "x", Roles: []Role{Viewer}, Hash: "-"})
		}
	})
	if _, err := k.Create(t.Context(), Actor{Name: "local"}, admin("bob")); problem.CodeOf(err) != problem.InvalidRequest {
		t.Errorf("one too many: %v", err)
	}
	fill(func() { d.Keys[7].RevokedAt = c.Now() })
	create(t, k, admin("bob"))
	list, err := k.List(t.Context())
	if err != nil || len(list) != maxKeys || list[0].ID != made.Key.ID || list[7].ID != "k8" || list[maxKeys-1].Name != "bob" {
		t.Errorf("%v %d keys, %+v", err, len(list), list[7])
	}
}

func TestNewNamesWhatIsMissing(t *testing.T) {
	t.Parallel()
	if _, err := New(Config{}); err == nil || !strings.Contains(err.Error(), "store, environment, clock") {
		t.Errorf("New of nothing: %v", err)
	}
}

func TestBucket(t *testing.T) {
	t.Parallel()
	var b bucket
	now := time.Now()
	for _, step := range []struct {
		after time.Duration
		want  time.Duration
	}{
		{0, 0},
		{0, 0},
		{0, time.Second},
		{time.Second / 4, 3 * time.Second / 4},
		{time.Second, 0},
		{0, 3 * time.Second / 4},
		{time.Hour, 0}, // full, and no more than that
		{0, 0},
		{0, time.Second},
		{-24 * time.Hour, 0}, // a clock that was set back locks nobody out
	} {
		now = now.Add(step.after)
		if got := b.take(now, 2, time.Second); got != step.want {
			t.Fatalf("%s later: wait %s, want %s", step.after, got, step.want)
		}
	}
}

// The audit has what is done to keys, before it is done, and once; what it cannot
// keep is not done.
func TestTheAuditComesFirst(t *testing.T) {
	t.Parallel()
	docs, c := newDocuments(t), &shifted{}
	k := open(t, docs, c)
	var kept []audit.Keyed
	var fault error
	k.cfg.Record = func(_ context.Context, acts ...audit.Keyed) error {
		kept = append(kept, acts...)
		return fault
	}
	by := Actor{Name: "boss", From: "192.0.2.1"}
	made, err := k.Create(t.Context(), by, api.CreateKey{Name: "ann", Roles: []string{"admin"}, Groups: []string{"g"}})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // a repeat changes nothing, and is not told
		if _, err := k.Revoke(t.Context(), by, made.Key.ID, true); err != nil {
			t.Fatal(err)
		}
	}
	want := `{"key_id":"` + made.Key.ID + `","name":"ann","roles":["admin"],"groups":["g"]}`
	if len(kept) != 2 || kept[0].Entry.Event != audit.KeyCreated || kept[1].Entry.Event != audit.KeyRevoked {
		t.Fatalf("%+v", kept)
	}
	for _, act := range kept {
		if e := act.Entry; e.By != "boss" || e.From != "192.0.2.1" || e.Env != "default" || e.At.IsZero() || string(e.Detail) != want || act.Key == "" {
			t.Errorf("%+v %s", e, e.Detail)
		}
	}
	fault = errAway
	if _, err := k.Create(t.Context(), by, admin("bob")); problem.CodeOf(err) != problem.StoreUnavailable {
		t.Errorf("create: %v", err)
	}
	if list, err := k.List(t.Context()); err != nil || len(list) != 1 {
		t.Errorf("%v %+v", err, list)
	}
}
