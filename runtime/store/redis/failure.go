package redis

import (
	"context"
	"errors"
	"fmt"
	"strings"

	goredis "github.com/redis/go-redis/v9"

	"agentos/runtime/store"
)

// reason is an error code by which a server says that it cannot work now, and
// what that means. A passing one goes away by itself.
type reason struct {
	code, meaning string
	passing       bool
}

func reasons() []reason {
	return []reason{
		{"LOADING", "it is still loading its data", true},
		{"READONLY", "it is a read-only replica", true},
		{"MASTERDOWN", "the replica has lost its master", true},
		{"CLUSTERDOWN", "the cluster does not serve all slots", true},
		{"TRYAGAIN", "the slot is being moved", true},
		{"MOVED", "the slot was moved", true},
		{"ASK", "the slot is being moved", true},
		{"BUSY", "a script is running for too long", true},
		{"NOREPLICAS", "too few replicas are connected", true},
		{"OOM", "maxmemory is reached; raise it or delete data", false},
		{"MISCONF", "it cannot save to its disk", false},
		{"NOAUTH", "it asks for a password", false},
		{"WRONGPASS", "user or password are wrong", false},
		{"NOPERM", "the user may not run this command", false},
		{"DENIED", "it refuses connections", false},
	}
}

// refusal returns the reason in err, or ok false.
func refusal(err error) (meaning string, passing, ok bool) {
	if reply := goredis.Error(nil); !errors.As(err, &reply) {
		return "", false, false
	}
	for _, r := range reasons() {
		// Redis before 7 puts the code of a failed command inside its own text.
		if strings.HasPrefix(err.Error(), r.code+" ") || strings.Contains(err.Error(), ": -"+r.code+" ") {
			return r.meaning, r.passing, true
		}
	}
	return "", false, false
}

// passing reports whether the same request can succeed if sent again: the answer
// was lost, or the server refused for a reason that goes away.
func passing(err error) bool {
	if _, passing, ok := refusal(err); ok {
		return passing
	}
	return !isReply(err) && !errors.Is(err, goredis.ErrClosed) && !errors.Is(err, store.ErrUnavailable)
}

// isReply reports whether err is what the server answered; other errors are of
// the way to it.
func isReply(err error) bool {
	reply := goredis.Error(nil)
	return errors.As(err, &reply)
}

// failure turns an error of the client library into one of the contract.
func failure(ctx context.Context, what string, err error) error {
	if meaning, _, ok := refusal(err); ok {
		return fmt.Errorf("redis: %s: %w: %s (%w)", what, store.ErrUnavailable, meaning, err)
	}
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("redis: %s: %w: %w", what, store.ErrUnavailable, context.Cause(ctx))
	case isReply(err):
		return fmt.Errorf("redis: %s: %w", what, err)
	case errors.Is(err, store.ErrUnavailable):
		return fmt.Errorf("redis: %s: %w", what, err)
	}
	return fmt.Errorf("redis: %s: %w: %w", what, store.ErrUnavailable, err)
}
