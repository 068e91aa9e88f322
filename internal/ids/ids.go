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
	// Keyed returns a new run id that ends with key, made by Key.
	Keyed(key string) string
	// Token returns a random token of 128 bits or more, for operation tokens
	// and worker names.
	Token() string
}

// Random is the Source used in production.
type Random struct{}

// Run returns a new run id made from the time and 80 random bits.
func (Random) Run() string { return "r_" + strings.ToLower(ulid.Make().String()) }

// Keyed returns a run id of the time and key in place of the random bits: two runs
// of one key differ in the millisecond of their creation.
func (r Random) Keyed(key string) string { return r.Run()[:12] + key }

// Token returns 26 random characters (130 bits).
func (Random) Token() string { return strings.ToLower(rand.Text()) }

// KeyLength is the length of what Key returns.
const KeyLength = 16

// Key returns 80 bits, in the characters of run ids, that stand for the parts of
// an idempotency key.
func Key(parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		sum := sha256.Sum256([]byte(p))
		h.Write(sum[:])
	}
	enc := base32.NewEncoding("0123456789abcdefghjkmnpqrstvwxyz").WithPadding(base32.NoPadding)
	return enc.EncodeToString(h.Sum(nil))[:KeyLength]
}
