package storetest

import (
	"encoding/json"
	"fmt"
	"strings"

	"agentos/runtime/store"
)

func documentCases() []Case {
	return []Case{
		{"Document/none", documentNone},
		{"Document/replaced_in_turn", documentReplaced},
		{"Document/repeat_of_what_stands", documentRepeated},
		{"Document/one_of_many_wins", documentRace},
		{"Document/refuses_what_is_none", documentRefused},
	}
}

func (k *kit) document(env, name string) store.Document {
	k.Helper()
	d, err := k.s.Document(k.ctx, env, name)
	k.ok(err)
	return d
}

func (k *kit) setDocument(env, name string, version int64, text string) {
	k.Helper()
	k.ok(k.s.SetDocument(k.ctx, env, name, store.Document{Version: version, Text: json.RawMessage(text)}))
}

func documentNone(k *kit) {
	k.setDocument("prod", "keys", 1, `{}`)
	k.equal("of another environment", k.document("dev", "keys"), store.Document{})
	k.equal("of another name", k.document("prod", "key"), store.Document{})
}

func documentReplaced(k *kit) {
	places := [][2]string{{"prod", "keys"}, {"prod", "sessions"}, {"a b:c", "keys"}, {"a b", "c:keys"}, {"é", "%"}}
	for _, p := range places {
		k.setDocument(p[0], p[1], 1, `{"first":true}`)
		k.setDocument(p[0], p[1], 2, awkward)
	}
	k.setDocument("prod", "keys", 3, `[]`)
	for _, version := range []int64{1, 2, 3, 5} {
		err := k.s.SetDocument(k.ctx, "prod", "keys", store.Document{Version: version, Text: json.RawMessage(`{"late":true}`)})
		k.refused(err, store.ErrConflict)
	}
	k.restart()
	for i, p := range places {
		want := store.Document{Version: 2, Text: json.RawMessage(awkward)}
		if i == 0 {
			want = store.Document{Version: 3, Text: json.RawMessage(`[]`)}
		}
		got := k.document(p[0], p[1])
		k.equal("version of "+p[0]+" "+p[1], got.Version, want.Version)
		k.sameBytes("text of "+p[0]+" "+p[1], got.Text, want.Text)
	}
}

func documentRepeated(k *kit) {
	for range 2 {
		k.setDocument("prod", "keys", 1, `{"a":1}`)
	}
	k.refused(k.s.SetDocument(k.ctx, "prod", "keys", store.Document{Version: 1, Text: json.RawMessage(`{"a":2}`)}), store.ErrConflict)
	k.setDocument("prod", "keys", 2, `{"a":2}`)
	k.refused(k.s.SetDocument(k.ctx, "prod", "keys", store.Document{Version: 1, Text: json.RawMessage(`{"a":1}`)}), store.ErrConflict)
	k.equal("version", k.document("prod", "keys").Version, int64(2))
}

func documentRace(k *kit) {
	handles := k.handles()
	won := make([]bool, 8)
	together(len(won), func(i int) {
		err := handles[i%2].SetDocument(k.ctx, "prod", "keys", store.Document{Version: 1, Text: fmt.Appendf(nil, `%d`, i)})
		won[i] = err == nil
		if err != nil {
			k.refused(err, store.ErrConflict)
		}
	})
	n := 0
	for i, w := range won {
		if w {
			n++
			k.sameBytes("text", k.document("prod", "keys").Text, fmt.Appendf(nil, `%d`, i))
		}
	}
	k.equal("winners", n, 1)
}

func documentRefused(k *kit) {
	for what, d := range map[string]store.Document{
		"no version": {Text: json.RawMessage(`{}`)},
		"no text":    {Version: 1},
		"no JSON":    {Version: 1, Text: json.RawMessage(`{`)},
		"too long":   {Version: 1, Text: json.RawMessage(`"` + strings.Repeat("x", 4<<20) + `"`)},
	} {
		if err := k.s.SetDocument(k.ctx, "prod", "keys", d); err == nil {
			k.Errorf("%s: it was set", what)
		}
	}
	if err := k.s.SetDocument(k.ctx, "prod", "", store.Document{Version: 1, Text: json.RawMessage(`{}`)}); err == nil {
		k.Errorf("one without a name was set")
	}
	k.equal("document", k.document("prod", "keys"), store.Document{})
}
