package testenv

import (
	"net"
	"sync"
	"testing"
	"time"
)

// Proxy passes TCP connections on to a server and loses what it is told to. It is
// safe for concurrent use.
type Proxy struct {
	// Addr is where to connect instead of the server.
	Addr string

	target string
	listen net.Listener
	ends   sync.WaitGroup

	mu    sync.Mutex
	conns map[net.Conn]bool
	// cut is how many answers to lose yet; every says that each every-th is lost,
	// and seen counts them; delay is how long each answer waits, down whether
	// connections are refused, spoil what becomes of the next spoiled answers. All
	// are guarded by mu.
	cut     int
	every   int
	seen    int
	delay   time.Duration
	down    bool
	spoil   func(answer []byte) []byte
	spoiled int
	// lost is closed when the last answer to be cut was cut.
	lost chan struct{}
	over chan struct{}
}

// StartProxy starts a proxy before the server at target. It ends with the test.
func StartProxy(tb testing.TB, target string) *Proxy {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	p := &Proxy{Addr: l.Addr().String(), target: target, listen: l, conns: map[net.Conn]bool{}, over: make(chan struct{})}
	p.ends.Go(p.accept)
	tb.Cleanup(func() {
		close(p.over)
		_ = l.Close()
		p.CutAll()
		p.ends.Wait()
	})
	return p
}

// CutReplies has the next n answers thrown away and their connections closed: the
// server has done what it was asked, the client does not know. The channel is
// closed after the last.
func (p *Proxy) CutReplies(n int) <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut, p.lost = n, make(chan struct{})
	return p.lost
}

// CutEvery loses each n-th answer like CutReplies from now on; 0 ends it.
func (p *Proxy) CutEvery(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.every = n
}

// Spoil has f make something else of the next n answers. The connection is closed
// after each: what f leaves of an answer is all that comes.
func (p *Proxy) Spoil(n int, f func(answer []byte) []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.spoil, p.spoiled = f, n
}

// Delay has every answer wait for d from now on.
func (p *Proxy) Delay(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = d
}

// CutAll closes all connections.
func (p *Proxy) CutAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		_ = c.Close()
	}
}

// Down closes all connections and, until Up, every new one.
func (p *Proxy) Down() {
	p.mu.Lock()
	p.down = true
	p.mu.Unlock()
	p.CutAll()
}

// Up ends Down.
func (p *Proxy) Up() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.down = false
}

func (p *Proxy) accept() {
	for {
		client, err := p.listen.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", p.target)
		if err != nil || !p.add(client, server) {
			_ = client.Close()
			if err == nil {
				_ = server.Close()
			}
			continue
		}
		p.ends.Go(func() { p.requests(client, server) })
		p.ends.Go(func() { p.answers(client, server) })
	}
}

func (p *Proxy) add(conns ...net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.over:
		return false
	default:
	}
	for _, c := range conns {
		if !p.down {
			p.conns[c] = true
		}
	}
	return !p.down
}

func (p *Proxy) drop(conns ...net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		_ = c.Close()
		delete(p.conns, c)
	}
}

func (p *Proxy) requests(client, server net.Conn) {
	defer p.drop(client, server)
	buf := make([]byte, 64<<10)
	for {
		n, err := client.Read(buf)
		if err != nil {
			return
		}
		if _, err := server.Write(buf[:n]); err != nil {
			return
		}
	}
}

func (p *Proxy) answers(client, server net.Conn) {
	defer p.drop(client, server)
	buf := make([]byte, 64<<10)
	for {
		n, err := server.Read(buf)
		if err != nil {
			return
		}
		cut, delay := p.next()
		if cut {
			return
		}
		if f := p.bad(); f != nil {
			_, _ = client.Write(f(buf[:n]))
			return
		}
		select {
		case <-time.After(delay):
		case <-p.over:
			return
		}
		if _, err := client.Write(buf[:n]); err != nil {
			return
		}
	}
}

// bad returns what spoils an answer that has come, or nil.
func (p *Proxy) bad() func([]byte) []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.spoiled == 0 {
		return nil
	}
	p.spoiled--
	return p.spoil
}

// next says what happens to an answer that has come.
func (p *Proxy) next() (cut bool, delay time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen++
	if p.every > 0 && p.seen%p.every == 0 {
		return true, 0
	}
	if p.cut == 0 {
		return false, p.delay
	}
	p.cut--
	if p.cut == 0 {
		close(p.lost)
	}
	return true, 0
}
