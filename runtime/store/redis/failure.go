package redis

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"

	goredis "github.com/redis/go-redis/v9"

	"agentos/runtime/store"
)

// reason is an error code by which a server says that it cannot work now, and
// what that means and asks for. A passing one goes away by itself.
type reason struct {
	code, meaning string
	passing       bool
}

func reasons() []reason {
	return []reason{
		{"LOADING", "it is still loading its data; it answers when that is done", true},
		{"READONLY", "it is a read-only replica; wait for the failover to end, or let the URL name the master or its Sentinels", true},
		{"MASTERDOWN", "the replica has lost its master; let the URL name the master or its Sentinels", true},
		{"CLUSTERDOWN", "the cluster does not serve all slots; see CLUSTER INFO", true},
		{"TRYAGAIN", "the slot is being moved; it works again when that is done", true},
		{"MOVED", "the slot was moved; see CLUSTER SLOTS", true},
		{"ASK", "the slot is being moved; it works again when that is done", true},
		{"BUSY", "a script is running for too long; see SLOWLOG", true},
		{"NOREPLICAS", "too few replicas are connected; see min-replicas-to-write", true},
		{"ERR max number of clients", "it has no room for another client; raise maxclients or end other clients", true},
		{"OOM", "maxmemory is reached; raise it, and keep maxmemory-policy at noeviction", false},
		{"MISCONF", "it cannot save to its disk; make room there and see its log", false},
		{"NOAUTH", "it asks for a password; the URL has none", false},
		{"WRONGPASS", "user or password are wrong; correct the URL", false},
		{"NOPERM", "the user may not run this command; see ACL LOG", false},
		{"DENIED", "it refuses connections from other machines; see protected-mode", false},
	}
}

// refusal returns the reason in err, or ok false.
func refusal(err error) (meaning string, passing, ok bool) {
	if !isReply(err) {
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
// was lost, or the server refused for a reason that goes away. Who has waited for a
// connection in vain has waited long enough.
func passing(err error) bool {
	if _, passing, ok := refusal(err); ok {
		return passing
	}
	return !isReply(err) && !errors.Is(err, goredis.ErrClosed) && !errors.Is(err, goredis.ErrPoolTimeout) && !errors.Is(err, store.ErrUnavailable)
}

// isReply reports whether err is what the server answered; other errors are of
// the way to it, as is what Sentinels say.
func isReply(err error) bool {
	reply := goredis.Error(nil)
	return errors.As(err, &reply) && !ofSentinels(err)
}

// ofSentinels reports whether no Sentinel could say where the master is. The
// library has no type for that.
func ofSentinels(err error) bool {
	return strings.Contains(err.Error(), "all sentinels specified in configuration are unreachable")
}

// mishap says what an error of the way to the server means and asks for, or "".
func mishap(err error) string {
	timeout := net.Error(nil)
	switch {
	case errors.Is(err, store.ErrUnavailable): // of roundTrip
		return "what was written is not on enough replicas; see INFO replication"
	case ofSentinels(err) && errors.Is(err, goredis.Nil):
		return "no Sentinel knows this master; correct master in the URL"
	case ofSentinels(err):
		return "no Sentinel answers; start them, or correct the URL"
	case errors.Is(err, goredis.ErrPoolTimeout):
		return fmt.Sprintf("all %d connections of this process were busy for %s; lower its concurrency, start more processes, or see SLOWLOG for what keeps Redis busy", poolSize(), poolTimeout)
	case errors.Is(err, syscall.ECONNREFUSED):
		return "nothing listens at its address; start it, or correct the URL"
	case errors.As(err, &timeout) && timeout.Timeout():
		return "it did not answer in time; it is overloaded, stopped, or cannot be reached; see SLOWLOG"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return "it closed the connection; it may be restarting, or have reached maxclients"
	case strings.HasPrefix(err.Error(), "redis: can't parse"), strings.HasPrefix(err.Error(), "redis: invalid reply"):
		return "what answers there does not speak as Redis does; correct the URL"
	}
	return ""
}

// trouble is ErrUnavailable with its reason.
type trouble struct {
	what, reason string
	cause        error
}

func (t *trouble) Error() string {
	if t.reason == "" {
		return fmt.Sprintf("redis: %s: %v: %v", t.what, store.ErrUnavailable, t.cause)
	}
	return fmt.Sprintf("redis: %s: %v: %s (%v)", t.what, store.ErrUnavailable, t.reason, t.cause)
}

func (t *trouble) Unwrap() []error { return []error{store.ErrUnavailable, t.cause} }

// Reason says why Redis cannot be used and what to do, or "". It names no address
// and no data, so that it can be shown to whoever asks whether the server is ready.
func (t *trouble) Reason() string { return t.reason }

// failure turns an error of the client library into one of the contract.
func failure(ctx context.Context, what string, err error) error {
	if meaning, _, ok := refusal(err); ok {
		return &trouble{what, meaning, err}
	}
	switch {
	case ctx.Err() != nil:
		cause := context.Cause(ctx)
		if !errors.Is(err, cause) {
			cause = fmt.Errorf("%w: %w", cause, err)
		}
		return &trouble{what, mishap(cause), cause}
	case isReply(err):
		return fmt.Errorf("redis: %s: %w", what, err)
	}
	return &trouble{what, mishap(err), err}
}
