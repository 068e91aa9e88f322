package redis

import (
	"testing"
)

func TestWhereIsReadBack(t *testing.T) {
	t.Parallel()
	for _, w := range []where{
		{},
		{partition: 3, hold: 17},
		{env: "prod%20a", key: "0123456789abcdef"},
		{partition: 1, member: "prod:completed:1:r_x y"},
		{partition: 2, hold: 1, env: "e", key: "k", member: "m"},
	} {
		if got := parseWhere(w.String()); got != w {
			t.Errorf("%q is read as %+v, want %+v", w, got, w)
		}
	}
	if got := parseWhere(""); got != (where{}) {
		t.Errorf("nothing is read as %+v", got)
	}
}

func TestSplitKey(t *testing.T) {
	t.Parallel()
	s := &Store{cfg: Config{Prefix: "a[*]", Partitions: 3}}
	for key, want := range map[string]string{
		"a[*]:{p2}:r:r_1": "r:r_1", "a[*]:{p0}:due": "due", "a[*]:{p0}:h:h_}:_1": "h:h_}:_1",
		"a[*]:{p3}:due": "", "a[*]:{p-1}:due": "", "a[*]:{p}:due": "", "b:{p0}:due": "", "a[*]:{p0}due": "", "a[*]:wake": "", "": "",
	} {
		_, rest, ok := s.split(key)
		if ok != (want != "") || ok && rest != want {
			t.Errorf("%q is %q (%t), want %q", key, rest, ok, want)
		}
	}
	if got := escapeGlob(`a[*]?\^`); got != `a\[\*\]\?\\\^` {
		t.Errorf("escaped: %s", got)
	}
}
