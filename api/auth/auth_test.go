package auth

import (
	"slices"
	"strings"
	"testing"

	"agentos/api"
	"agentos/internal/problem"
)

func TestRoles(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		has  []Role
		can  string
		name string
	}{
		{nil, "", "nobody"},
		{[]Role{Viewer}, "viewer", "viewer"},
		{[]Role{Runner}, "viewer runner", "runner"},
		{[]Role{Reviewer}, "viewer reviewer", "reviewer"},
		{[]Role{Runner, Reviewer}, "viewer runner reviewer", "both"},
		{[]Role{Admin}, "viewer runner reviewer admin", "admin"},
	} {
		p := Principal{Name: "x", Roles: tc.has}
		var can []string
		for _, r := range Roles() {
			if p.Can(r) {
				can = append(can, string(r))
			}
		}
		if got := strings.Join(can, " "); got != tc.can {
			t.Errorf("%s can %q, want %q", tc.name, got, tc.can)
		}
		if tc.name != "admin" && (p.Can("open") || p.Can("")) {
			t.Errorf("%s can what is no role", tc.name)
		}
		p.Groups = []string{"finance"}
		if got, want := strings.Join(p.Words(), " "), strings.TrimSpace(tc.can+" finance"); got != want {
			t.Errorf("%s: words %q, want %q", tc.name, got, want)
		}
	}
	if l := Local(); l.Name != "local" || !l.Can(Admin) || !slices.Contains(l.Words(), "*") {
		t.Errorf("local is %+v", l)
	}
	if p := From(t.Context()); p.Name != "" || p.Can(Viewer) {
		t.Errorf("a context without a principal has %+v", p)
	}
	if p := From(With(t.Context(), Local())); p.Name != "local" {
		t.Errorf("the context lost its principal: %+v", p)
	}
}

// What a key may be: no wildcard, no role in disguise, no name that looks like
// another, nothing without an end in length or number.
func TestWhatAKeyMayBe(t *testing.T) {
	t.Parallel()
	many := func(n int) []string {
		out := make([]string, n)
		for i := range out {
			out[i] = "g" + strings.Repeat("x", i)
		}
		return out
	}
	named := func(name string) api.CreateKey { return admin(name) }
	grouped := func(groups ...string) api.CreateKey {
		return api.CreateKey{Name: "ann", Roles: []string{"admin"}, Groups: groups}
	}
	k := open(t, newDocuments(t), &shifted{})
	for _, good := range []api.CreateKey{
		named("ann"), named("Zoë Müller"), named("ann@shop.example"), named("ci/deploy:eu+1"), named("本田"), named(strings.Repeat("n", 100)),
		grouped(), grouped("finance", "finance"), grouped("Team A", "b"), grouped(many(64)...),
		{Name: "ann", Roles: []string{"viewer", "viewer", "runner", "reviewer", "admin"}},
		{Name: "a", Roles: []string{"viewer"}, ExpiresIn: "1m"},
		{Name: "locals", Roles: []string{"viewer"}, ExpiresIn: "87600h"},
	} {
		if made, err := k.Create(t.Context(), Actor{Name: "local"}, good); err != nil || made.Key.Name != good.Name || made.Key.CreatedBy != "local" {
			t.Errorf("%+v: %v %+v", good, err, made.Key)
		}
	}
	for _, tc := range []struct {
		path string
		bad  api.CreateKey
	}{
		{"/name", named("")},
		{"/name", named("local")},
		{"/name", named("Local")},
		{"/name", named(" ann")},
		{"/name", named("ann ")},
		{"/name", named("ann  b")},
		{"/name", named("*")},
		{"/name", named("ann\n")},
		{"/name", named("ann\x00")},
		{"/name", named("a\u200bnn")},  // zero width space
		{"/name", named("ann\u202e")},  // right-to-left override
		{"/name", named("Zoe\u0308")},  // a mark that joins its letter
		{"/name", named("ann\u00a0b")}, // another space
		{"/name", named("\u115fann")},  // a filler, which is a letter
		{"/name", named("ann\ufe0f")},  // variation selector
		{"/name", named("ann\xff")},    // not UTF-8
		{"/name", named("<b>ann</b>")}, // markup
		{"/name", named("ann,admin")},  // a list
		{"/name", named(`ann" by="bob`)},
		{"/name", named(strings.Repeat("n", 101))},
		{"/roles", api.CreateKey{Name: "ann"}},
		{"/roles/0", api.CreateKey{Name: "ann", Roles: []string{"*"}}},
		{"/roles/0", api.CreateKey{Name: "ann", Roles: []string{"Admin"}}},
		{"/roles/0", api.CreateKey{Name: "ann", Roles: []string{"open"}}},
		{"/roles/1", api.CreateKey{Name: "ann", Roles: []string{"admin", "root"}}},
		{"/groups/0", grouped("*")},
		{"/groups/0", grouped("")},
		{"/groups/0", grouped("admin")},
		{"/groups/1", grouped("a", "Reviewer")},
		{"/groups/0", grouped("fin*")},
		{"/groups/0", grouped("fin\u200bance")},
		{"/groups/0", grouped(strings.Repeat("g", 101))},
		{"/groups", grouped(many(65)...)},
		{"/expires_in", api.CreateKey{Name: "ann", Roles: []string{"admin"}, ExpiresIn: "59s"}},
		{"/expires_in", api.CreateKey{Name: "ann", Roles: []string{"admin"}, ExpiresIn: "-1h"}},
		{"/expires_in", api.CreateKey{Name: "ann", Roles: []string{"admin"}, ExpiresIn: "90d"}},
		{"/expires_in", api.CreateKey{Name: "ann", Roles: []string{"admin"}, ExpiresIn: "87601h"}},
	} {
		_, err := k.Create(t.Context(), Actor{Name: "local"}, tc.bad)
		p := problem.From(err)
		if err == nil || p.Code != problem.InvalidRequest || len(p.Details) == 0 || p.Details[0].Path != tc.path {
			t.Errorf("%q: %v %+v, want a fault at %s", tc.bad, err, p, tc.path)
		}
	}
}

func TestTheTextOfAKey(t *testing.T) {
	t.Parallel()
	docs := newDocuments(t)
	k := open(t, docs, &shifted{})
	made := create(t, k, admin("ann"))
	if !strings.HasPrefix(made.Secret, "aos_"+made.Key.ID+"_") || len(made.Secret) < 4+16+1+52 {
		t.Errorf("text %q of %s", made.Secret, made.Key.ID)
	}
	other := create(t, k, admin("ann"))
	if other.Key.ID == made.Key.ID || other.Secret == made.Secret {
		t.Error("two keys are the same")
	}
	d, err := docs.Document(t.Context(), "default", "keys")
	if err != nil || strings.Contains(string(d.Text), strings.Split(made.Secret, "_")[2]) {
		t.Errorf("the store has the secret: %v %s", err, d.Text)
	}
	for text, want := range map[string]string{
		made.Secret: made.Key.ID, "": "", "aos": "", "aos_": "", "aos_x": "", "aos_x_": "", "aos_x_y": "x", "aos_x_y_z": "", "AOS_x_y": "",
		"aos_x_" + strings.Repeat("y", 300): "", " aos_x_y": "", "rt1.r_x.1.AA": "",
	} {
		if got := idOf(text); got != want {
			t.Errorf("idOf(%q) = %q, want %q", text, got, want)
		}
	}
}
