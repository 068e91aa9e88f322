package auth

import (
	"net/netip"
	"sync"
	"time"
)

// bucket is a token bucket: burst at once, then one in each of every.
type bucket struct {
	left int
	// at is up to when the bucket has been filled.
	at time.Time
}

// take takes one token, or returns how long it is until there is one.
func (b *bucket) take(now time.Time, burst int, every time.Duration) time.Duration {
	b.fill(now, burst, every)
	if b.left > 0 {
		b.left--
		return 0
	}
	return b.at.Add(every).Sub(now)
}

func (b *bucket) fill(now time.Time, burst int, every time.Duration) {
	since := now.Sub(b.at)
	if b.at.IsZero() || since < 0 || since >= time.Duration(burst)*every {
		b.left, b.at = burst, now // new, full again, or a clock that was set back
		return
	}
	n := int(since / every)
	b.left, b.at = min(burst, b.left+n), b.at.Add(time.Duration(n)*every)
}

// How many credentials from one address may fail.
const (
	attemptBurst = 10
	attemptEvery = 6 * time.Second
	// maxAddresses bounds the memory; beyond it new addresses are refused, which
	// only those notice whose credential does not count.
	maxAddresses = 10_000
)

// attempts counts failed authentications by address. Credentials that count are
// never refused: many people may stand behind the address of one proxy.
type attempts struct {
	mu sync.Mutex
	by map[string]*bucket
}

// fail counts one failure, and returns how long the address must wait when these
// were too many.
func (a *attempts) fail(address string, now time.Time) time.Duration {
	address = network(address)
	a.mu.Lock()
	defer a.mu.Unlock()
	b := a.by[address]
	if b == nil {
		if len(a.by) >= maxAddresses {
			a.forget(now)
		}
		if len(a.by) >= maxAddresses {
			return attemptEvery
		}
		if a.by == nil {
			a.by = map[string]*bucket{}
		}
		b = &bucket{}
		a.by[address] = b
	}
	return b.take(now, attemptBurst, attemptEvery)
}

// forget drops addresses that have waited long enough.
func (a *attempts) forget(now time.Time) {
	for address, b := range a.by {
		if b.fill(now, attemptBurst, attemptEvery); b.left == attemptBurst {
			delete(a.by, address)
		}
	}
}

// network is what stands for an address: of IPv6 the /64 that one subscriber has
// at least (RFC 6177).
func network(address string) string {
	a, err := netip.ParseAddr(address)
	if err != nil {
		return address
	}
	if a = a.Unmap(); a.Is6() {
		if p, err := a.WithZone("").Prefix(64); err == nil {
			return p.String()
		}
	}
	return a.String()
}
