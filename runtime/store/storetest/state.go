package storetest

import (
	"encoding/json"

	"agentos/runtime/store"
)

func stateCases() []Case {
	return []Case{
		{"State/values_by_scope_and_key", stateValues},
		{"State/scopes_are_apart", stateScopes},
	}
}

func stateValues(k *kit) {
	scope := "run/" + runID(1)
	_, err := k.s.GetState(k.ctx, scope, "a")
	k.refused(err, store.ErrNotFound)
	for _, v := range []string{awkward, `null`, `""`, "[ 1 ,\n2 ]", `9007199254740993`} {
		k.ok(k.s.PutState(k.ctx, scope, "a", json.RawMessage(v)))
		k.restart()
		got, err := k.s.GetState(k.ctx, scope, "a")
		k.ok(err)
		k.sameBytes("value", got, []byte(v))
	}
	for range 2 {
		k.ok(k.s.DeleteState(k.ctx, scope, "a"))
		_, err = k.s.GetState(k.ctx, scope, "a")
		k.refused(err, store.ErrNotFound)
	}
}

func stateScopes(k *kit) {
	places := [][2]string{
		{"run/" + runID(1), "a"},
		{"run/" + runID(1), "b"},
		{"run/" + runID(1), "a/b"},
		{"run/" + runID(2), "a"},
		{"session/prod/clerk/s1", "a"},
		{"session/prod/clerk/s2", "a"},
		{"session/dev/clerk/s1", "a"},
		{"session/prod/clerk/s1/a", "b"},
		{"session/prod/clerk/s1", "a/b"},
		{"session/prod/clerk", "s1/a"},
		{"session/prod/é {}*", "🦊 :"},
	}
	for i, p := range places {
		v, err := json.Marshal(i)
		k.ok(err)
		k.ok(k.s.PutState(k.ctx, p[0], p[1], v))
	}
	k.ok(k.s.DeleteState(k.ctx, places[0][0], places[0][1]))
	for i, p := range places {
		got, err := k.s.GetState(k.ctx, p[0], p[1])
		if i == 0 {
			k.refused(err, store.ErrNotFound)
			continue
		}
		k.ok(err)
		want, err := json.Marshal(i)
		k.ok(err)
		k.sameBytes(p[0]+" "+p[1], got, want)
	}
}
