package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"agentos/internal/clock"
)

// patience is how long a process may take to answer or to end.
const patience = 30 * time.Second

// process is a child that can be started again and again with the same command.
// Its output is appended to one log file. All but pid belongs to one goroutine.
type process struct {
	name string
	argv []string
	env  []string
	log  string
	// answers reports whether the process does its work.
	answers func(context.Context) bool

	// pid is the child's, 0 before the first start.
	pid  atomic.Int64
	cmd  *exec.Cmd
	done chan struct{} // closed when the child has ended
}

// start starts the child and waits until it answers. One that ends at once, since
// what it needs is not there, is started again.
func (p *process) start(ctx context.Context) error {
	ctx, stop := context.WithTimeoutCause(ctx, patience, errors.New("no answer in time"))
	defer stop()
	for {
		if err := p.launch(); err != nil {
			return err
		}
		if p.await(ctx) {
			return nil
		}
		p.end(syscall.SIGKILL)
		if ctx.Err() != nil {
			return fmt.Errorf("start %s: %w; see %s", p.name, context.Cause(ctx), p.log)
		}
	}
}

func (p *process) launch() error {
	out, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer out.Close()
	p.cmd = exec.Command(p.argv[0], p.argv[1:]...)
	p.cmd.Dir = filepath.Dir(p.log)
	p.cmd.Env = append(os.Environ(), p.env...)
	p.cmd.Stdout, p.cmd.Stderr = out, out
	p.cmd.SysProcAttr = apart()
	if err := p.cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", p.name, err)
	}
	p.pid.Store(int64(p.cmd.Process.Pid))
	cmd, done := p.cmd, make(chan struct{})
	p.done = done
	go func() {
		_ = cmd.Wait()
		close(done)
	}()
	return nil
}

// await reports whether the child answers before it ends.
func (p *process) await(ctx context.Context) bool {
	for {
		if p.answers(ctx) {
			return true
		}
		select {
		case <-p.done:
			pause(ctx, 50*time.Millisecond)
			return false
		case <-ctx.Done():
			return false
		case <-clock.System{}.After(10 * time.Millisecond):
		}
	}
}

// signal sends sig to the child, which may have ended.
func (p *process) signal(sig syscall.Signal) {
	if p.cmd != nil {
		_ = p.cmd.Process.Signal(sig)
	}
}

// end sends sig and waits until the child has ended, by force if need be.
func (p *process) end(sig syscall.Signal) {
	if p.cmd == nil {
		return
	}
	p.signal(sig)
	select {
	case <-p.done:
	case <-clock.System{}.After(patience):
		p.signal(syscall.SIGKILL)
		<-p.done
	}
}

// pause waits for d or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-clock.System{}.After(d):
	}
}

// freePort returns a loopback port that nobody listens on now.
func freePort() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	return port, err
}

// childOf returns the process id of a child of the process parent that was started
// with the argument, or 0. It reads /proc and finds none where there is no such
// thing.
func childOf(parent int, argument string) int {
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return 0
	}
	for _, path := range stats {
		raw, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		// pid (name) state ppid ...; the name may hold anything.
		fields := strings.Fields(string(raw[bytes.LastIndexByte(raw, ')')+1:]))
		if len(fields) < 2 || fields[1] != strconv.Itoa(parent) {
			continue
		}
		argv, err := os.ReadFile(filepath.Join(filepath.Dir(path), "cmdline"))
		if err != nil || !bytes.Contains(argv, []byte(argument)) {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path))); err == nil {
			return pid
		}
	}
	return 0
}
