package server

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"strconv"
	"strings"

	"agentos/internal/ids"
)

// tokenPrefix starts every run token; the number is the version of its form.
const tokenPrefix = "rt1"

// RunTokens makes and checks the tokens with which programs of a run call back.
// A token is "rt1.<run>.<epoch>.<mac>": bound to one run and one lease of it,
// signed with HMAC-SHA256. That the run still is at that epoch is for the caller
// to check.
type RunTokens struct{ key []byte }

// NewRunTokens returns RunTokens with a key of random from source. Tokens of one
// process are worth nothing in another.
func NewRunTokens(source ids.Source) *RunTokens {
	return &RunTokens{key: []byte(source.Token() + source.Token())}
}

// Issue returns the token of a run at an epoch.
func (t *RunTokens) Issue(run string, epoch int64) string {
	said := tokenPrefix + "." + run + "." + strconv.FormatInt(epoch, 10)
	return said + "." + t.mac(said)
}

// Verify returns what token was issued for. The error does not tell what is wrong
// with it.
func (t *RunTokens) Verify(token string) (run string, epoch int64, err error) {
	i := strings.LastIndexByte(token, '.')
	if i < 0 || !hmac.Equal([]byte(token[i+1:]), []byte(t.mac(token[:i]))) {
		return "", 0, errBadToken
	}
	parts := strings.Split(token[:i], ".")
	if len(parts) != 3 || parts[0] != tokenPrefix {
		return "", 0, errBadToken
	}
	if epoch, err = strconv.ParseInt(parts[2], 10, 64); err != nil {
		return "", 0, errBadToken
	}
	return parts[1], epoch, nil
}

var errBadToken = errors.New("not a run token of this server")

func (t *RunTokens) mac(said string) string {
	h := hmac.New(sha256.New, t.key)
	h.Write([]byte(said))
	return base64.RawURLEncoding.EncodeToString(h.Sum(nil))
}
