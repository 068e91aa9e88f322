// Package ids is the one source of identifiers and randomness.
package ids

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"strings"

	"github.com/oklog/ulid/v2"
)

// Source makes identifiers. Tests inject one that counts.
type Source interface {
	// Run returns a new run id: "r_" and 26 characters that sort by time.
	Run() string
	// Token returns a random token of 128 bits or more, for operation tokens
	// and worker names.
	Token() string
}

// Random is the Source used in production.
type Random struct{}

// Run returns a new run id made from the time and 80 random bits.
func (Random) Run() string { return "r_" + strings.ToLower(ulid.Make().String()) }

// Token returns 26 random characters (130 bits).
func (Random) Token() string { return strings.ToLower(rand.Text()) }

// Derived returns the run id that belongs to an idempotency key: the same parts
// always give the same id, so the run itself is the record of the key and no
// second index can disagree with it.
func Derived(parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		sum := sha256.Sum256([]byte(p))
		h.Write(sum[:])
	}
	enc := base32.NewEncoding("0123456789abcdefghjkmnpqrstvwxyz").WithPadding(base32.NoPadding)
	return "r_" + enc.EncodeToString(h.Sum(nil))[:26]
}
