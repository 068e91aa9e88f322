package ids_test

import (
	"regexp"
	"strings"
	"testing"

	"agentos/internal/ids"
)

func TestKeyed(t *testing.T) {
	t.Parallel()
	key := ids.Key("default", "the key")
	if len(key) != ids.KeyLength || key != ids.Key("default", "the key") {
		t.Errorf("key %q", key)
	}
	for _, other := range [][]string{{"default", "another"}, {"defaultt", "he key"}, {"default the key"}, {"the key", "default"}} {
		if ids.Key(other...) == key {
			t.Errorf("%q have the same key", other)
		}
	}
	id := ids.Random{}.Keyed(key)
	if !strings.HasSuffix(id, key) || !regexp.MustCompile(`^r_[0-9a-z]{26}$`).MatchString(id) {
		t.Errorf("id %q", id)
	}
	if plain := (ids.Random{}).Run(); len(plain) != len(id) || plain[:8] != id[:8] {
		t.Errorf("ids %q and %q do not sort by time alike", plain, id)
	}
}
