package auth

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"agentos/api"
	"agentos/internal/ids"
	"agentos/internal/problem"
	"agentos/internal/visible"
)

// Limits of a key.
const (
	maxName      = 100 // bytes of a name or group
	maxGroups    = 64
	maxText      = 200 // bytes of the text of a key that are looked at
	minLife      = time.Minute
	maxLife      = 10 * 365 * 24 * time.Hour
	idLength     = 16
	prefix       = "aos"
	separator    = "_"
	namesAllowed = "letters, digits, single spaces inside, and . _ - @ + : /"
)

// key is an API key as it is kept. It never changes, but for its end.
type key struct {
	ID     string   `json:"id"`
	Name   string   `json:"name"`
	Roles  []Role   `json:"roles"`
	Groups []string `json:"groups,omitempty"`
	// Hash is the SHA-256 of the whole text, in hex.
	Hash      string    `json:"hash"`
	CreatedAt time.Time `json:"created_at"`
	CreatedBy string    `json:"created_by"`
	ExpiresAt time.Time `json:"expires_at,omitzero"`
	RevokedAt time.Time `json:"revoked_at,omitzero"`
	RevokedBy string    `json:"revoked_by,omitempty"`
}

// document is the text of the store's document: every key, oldest first.
type document struct {
	Keys []key `json:"keys"`
}

// newKey makes a key and its text.
func newKey(c api.CreateKey, by string, source ids.Source, now time.Time) (key, string, error) {
	random := source.Token()
	out := key{
		ID: "k" + random[:min(len(random), idLength-1)], Name: c.Name, Groups: c.Groups,
		CreatedAt: now.UTC().Truncate(time.Millisecond), CreatedBy: by,
	}
	for _, r := range c.Roles {
		out.Roles = append(out.Roles, Role(r))
	}
	var faults []problem.Detail
	if c.ExpiresIn != "" {
		d, err := time.ParseDuration(c.ExpiresIn)
		if err != nil || d < minLife || d > maxLife {
			faults = append(faults, problem.Detail{Path: "/expires_in", Message: fmt.Sprintf("must be a duration such as 2160h, from %s to %s", minLife, maxLife)})
		}
		out.ExpiresAt = out.CreatedAt.Add(d)
	}
	if faults = append(faults, out.faults()...); len(faults) > 0 {
		return key{}, "", problem.New(problem.InvalidRequest, "the key is not as keys are: %s %s", faults[0].Path, faults[0].Message).With(faults...)
	}
	out.Roles, out.Groups = sorted(out.Roles), sorted(out.Groups)
	text := strings.Join([]string{prefix, out.ID, source.Token() + source.Token()}, separator)
	out.Hash = digest(text)
	return out, text, nil
}

func sorted[S ~string](words []S) []S {
	out := slices.Clone(words)
	slices.Sort(out)
	return slices.Compact(out)
}

// faults are what is wrong with who the key stands for. They are looked for when a
// key is made and when it is read: a document that somebody wrote by hand gives
// nobody what a key cannot have.
func (k *key) faults() []problem.Detail {
	var out []problem.Detail
	fault := func(path, format string, args ...any) {
		out = append(out, problem.Detail{Path: path, Message: fmt.Sprintf(format, args...)})
	}
	if text := wordFault(k.Name); text != "" {
		fault("/name", "%s", text)
	}
	if strings.EqualFold(k.Name, localName) {
		fault("/name", "is taken: %q is everybody on a server without keys", localName)
	}
	if len(k.Roles) == 0 {
		fault("/roles", "is empty; give at least one of %s", roleNames())
	}
	for i, r := range k.Roles {
		if !slices.Contains(Roles(), r) {
			fault("/roles/"+strconv.Itoa(i), "is %q; choose of %s", shown(string(r)), roleNames())
		}
	}
	if len(k.Groups) > maxGroups {
		fault("/groups", "has %d groups; at most %d", len(k.Groups), maxGroups)
		return out
	}
	for i, g := range k.Groups {
		path := "/groups/" + strconv.Itoa(i)
		if text := wordFault(g); text != "" {
			fault(path, "%s", text)
		}
		// Policy compares roles and groups alike.
		if slices.ContainsFunc(Roles(), func(r Role) bool { return strings.EqualFold(string(r), g) }) {
			fault(path, "is the name of a role; give the role instead")
		}
	}
	return out
}

// wordFault returns what is wrong with a name or group, or "". Two names that look
// the same must be the same: characters that cannot be seen, marks that join their
// letter and the wildcard "*" are none of a name.
func wordFault(word string) string {
	switch {
	case word == "":
		return "is empty"
	case len(word) > maxName:
		return fmt.Sprintf("is longer than %d bytes", maxName)
	case !utf8.ValidString(word):
		return "is not UTF-8"
	case strings.TrimSpace(word) != word, strings.Contains(word, "  "):
		return "may have " + namesAllowed
	}
	for _, r := range word {
		if visible.Hidden(r) || !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune(" ._-@+:/", r) {
			return "may have " + namesAllowed
		}
	}
	return ""
}

func shown(word string) string { return visible.Text(word[:min(len(word), maxName)]) }

func roleNames() string {
	var out []string
	for _, r := range Roles() {
		out = append(out, string(r))
	}
	return strings.Join(out, ", ")
}

// idOf returns the id in the text of a key, or "" for a text of another form.
func idOf(text string) string {
	parts := strings.Split(text, separator)
	if len(text) > maxText || len(parts) != 3 || parts[0] != prefix || parts[2] == "" {
		return ""
	}
	return parts[1]
}

func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// fits reports whether text is the text of k, in a time that does not tell how
// much of it is right.
func (k *key) fits(text string) bool {
	return subtle.ConstantTimeCompare([]byte(k.Hash), []byte(digest(text))) == 1
}

// The statuses of a key.
const (
	statusActive  = "active"
	statusExpired = "expired"
	statusRevoked = "revoked"
)

func (k *key) status(now time.Time) string {
	switch {
	case !k.RevokedAt.IsZero():
		return statusRevoked
	case !k.ExpiresAt.IsZero() && !now.Before(k.ExpiresAt):
		return statusExpired
	}
	return statusActive
}

func (k *key) principal() Principal {
	return Principal{Name: k.Name, Roles: k.Roles, Groups: k.Groups, KeyID: k.ID}
}

// activeAdmin reports whether somebody can make keys with k.
func (k *key) activeAdmin(now time.Time) bool {
	return k.status(now) == statusActive && slices.Contains(k.Roles, Admin) && len(k.faults()) == 0
}

func (k *key) wire(now time.Time) api.Key {
	out := api.Key{
		ID: k.ID, Name: k.Name, Roles: []string{}, Groups: k.Groups, Status: k.status(now),
		CreatedAt: api.Time{Time: k.CreatedAt}, CreatedBy: k.CreatedBy, RevokedBy: k.RevokedBy,
	}
	for _, r := range k.Roles {
		out.Roles = append(out.Roles, string(r))
	}
	if !k.ExpiresAt.IsZero() {
		out.ExpiresAt = &api.Time{Time: k.ExpiresAt}
	}
	if !k.RevokedAt.IsZero() {
		out.RevokedAt = &api.Time{Time: k.RevokedAt}
	}
	return out
}
