package main

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"agentos/api/client"
)

// local is an engine with its API inside this process. Commands that run without
// a server use it as they would use one, and nobody else can reach it.
type local struct {
	client *client.Client
	parts  *parts
	// hangUp stops the API, served gets how it ended; end stops the engine.
	hangUp context.CancelFunc
	served chan error
	end    context.CancelFunc
}

// openLocal starts the engine and the API for one run. Nothing else is claimed
// from the store: it may belong to servers.
func openLocal(ctx context.Context, env lookup, logTo io.Writer, o runOptions) (*local, error) {
	s := settings{
		addr: "127.0.0.1:0", store: o.store, config: o.config, concurrency: 1,
		partitions: number(env, "AGENTOS_PARTITIONS", 1), lease: defaultLease, retention: duration(env, "AGENTOS_RETENTION", 30*24*time.Hour),
		logFormat: env.or("AGENTOS_LOG", "text"), logLevel: env.or("AGENTOS_LOG_LEVEL", "error"),
	}
	if err := s.check(); err != nil {
		return nil, err
	}
	// The engine outlives an interrupt, so that the run can be cancelled.
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	p, err := assemble(life, s, env, logTo, []string{o.manifest}, hooks{})
	if err != nil {
		end()
		return nil, err
	}
	// Nobody but this process can dial the API, and it has the store anyway.
	if p.keys, err = newKeyring(s, noDocuments{}, nil, p.log); err != nil {
		end()
		return nil, errors.Join(err, p.close(ctx))
	}
	serving, hangUp := context.WithCancel(life)
	l := &local{parts: p, hangUp: hangUp, served: make(chan error, 1), end: end}
	if err := l.serve(ctx, serving); err != nil {
		l.served <- nil
		return nil, errors.Join(err, l.close(ctx))
	}
	return l, nil
}

// serve starts the API and connects the client to it.
func (l *local) serve(ctx, serving context.Context) error {
	if err := l.parts.settle(ctx); err != nil {
		return err
	}
	srv, err := l.parts.server(serving)
	if err != nil {
		return err
	}
	pipe := newPipe()
	l.client, err = client.New(client.Config{
		URL:  "http://localhost",
		HTTP: &http.Client{Transport: &http.Transport{DialContext: pipe.dial}},
	})
	if err != nil {
		return err
	}
	go func() { l.served <- srv.Serve(serving, pipe) }()
	return nil
}

// close ends the API, then the engine, then what they use.
func (l *local) close(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx)
	l.hangUp()
	err := <-l.served
	l.parts.engine.Drain(ctx, 5*time.Second)
	l.end()
	return errors.Join(err, l.parts.close(ctx))
}

// pipe is a listener that only this process can dial.
type pipe struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func newPipe() *pipe { return &pipe{conns: make(chan net.Conn), done: make(chan struct{})} }

// Accept implements net.Listener.
func (p *pipe) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (p *pipe) Close() error {
	p.once.Do(func() { close(p.done) })
	return nil
}

// Addr implements net.Listener.
func (p *pipe) Addr() net.Addr { return pipeAddr{} }

func (p *pipe) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	mine, theirs := net.Pipe()
	select {
	case p.conns <- theirs:
		return mine, nil
	case <-p.done:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// pipeAddr is the address of both ends of a pipe.
type pipeAddr struct{}

// Network implements net.Addr.
func (pipeAddr) Network() string { return "pipe" }

// String implements net.Addr.
func (pipeAddr) String() string { return "pipe" }
