// Package testenv gives tests the real things they talk to: private servers of
// Redis, alone, with replicas and Sentinels, or as a cluster, and a TCP proxy that
// loses what it is told to lose. Everything is on loopback, in a directory of the
// test, and gone with it. Only tests import it.
package testenv

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// patience is how long a server may take to start or to stop. Sentinels that a busy
// machine kept waiting for two seconds do nothing for thirty.
const patience = 50 * time.Second

// Redis is a private redis-server on a free loopback port. Its methods fail the
// test it was started for, and are not safe for concurrent use.
type Redis struct {
	// Addr is host:port, the same after a Restart.
	Addr string
	// Dir is where the server keeps its files.
	Dir string

	t testing.TB
	// program is redis-server or redis-sentinel; args are lines of its config.
	program string
	args    []string
	proc    *process
}

// process is one running server.
type process struct {
	cmd    *exec.Cmd
	output bytes.Buffer
	// done is closed when the process has ended and output is complete.
	done chan struct{}
}

// StartRedis starts a redis-server with the config lines given, such as
// "appendonly yes"; without any it keeps nothing on disk. It ends with the test.
// A machine without redis-server fails the test: a store that was not tried is
// not tested.
func StartRedis(tb testing.TB, config ...string) *Redis {
	tb.Helper()
	return startProgram(tb, "redis-server", append([]string{"appendonly no", `save ""`, "enable-debug-command local"}, config...))
}

// startProgram starts a program of Redis's on a free port.
func startProgram(tb testing.TB, program string, config []string) *Redis {
	tb.Helper()
	if _, err := exec.LookPath(program); err != nil {
		tb.Fatalf("testenv: %s is not installed; apt-get install %s", program, program)
	}
	r := &Redis{Dir: tb.TempDir(), t: tb, program: program, args: config}
	// Another process can take a free port before the server has it.
	for range 5 {
		r.Addr = "127.0.0.1:" + strconv.Itoa(freePort(tb))
		err := r.start(ready)
		if err == nil {
			tb.Cleanup(func() { r.end(os.Kill) })
			return r
		}
		if !strings.Contains(err.Error(), "Address already in use") {
			tb.Fatal(err)
		}
	}
	tb.Fatalf("testenv: found no free port for %s", program)
	return nil
}

// StartReplica starts a redis-server that follows master, and returns it once it
// has all data.
func StartReplica(tb testing.TB, master *Redis, config ...string) *Redis {
	tb.Helper()
	master.must("CONFIG", "SET", "repl-diskless-sync-delay", "0")
	host, port, _ := net.SplitHostPort(master.Addr)
	r := StartRedis(tb, append([]string{"replicaof " + host + " " + port}, config...)...)
	r.Await("master_link_status:up", "INFO", "replication")
	_, port, _ = net.SplitHostPort(r.Addr)
	master.Await("port="+port+",state=online", "INFO", "replication")
	return r
}

// URL is the address as the redis driver takes it.
func (r *Redis) URL() string { return "redis://" + r.Addr }

// Kill ends the server as kill -9 does.
func (r *Redis) Kill() {
	r.t.Helper()
	r.end(os.Kill)
}

// Stop ends the server as SIGTERM does: it saves what its config says.
func (r *Redis) Stop() {
	r.t.Helper()
	r.end(os.Interrupt)
}

// Restart starts the server again on the same port and files, after ending it
// with Kill if it runs. More config lines replace earlier ones.
func (r *Redis) Restart(config ...string) {
	r.t.Helper()
	r.end(os.Kill)
	r.args = append(r.args, config...)
	if err := r.start(ready); err != nil {
		r.t.Fatal(err)
	}
}

// RestartLoading is Restart without waiting for the data: it returns as soon as
// the server answers, if only that it is loading.
func (r *Redis) RestartLoading(config ...string) {
	r.t.Helper()
	r.end(os.Kill)
	r.args = append(r.args, config...)
	if err := r.start(func(string) bool { return true }); err != nil {
		r.t.Fatal(err)
	}
}

// Freeze stops the server as kill -STOP does: connections stay, nothing answers.
func (r *Redis) Freeze() {
	r.t.Helper()
	r.signal(syscall.SIGSTOP)
}

// Thaw ends Freeze.
func (r *Redis) Thaw() {
	r.t.Helper()
	r.signal(syscall.SIGCONT)
}

func (r *Redis) signal(s os.Signal) {
	r.t.Helper()
	if err := r.proc.cmd.Process.Signal(s); err != nil {
		r.t.Fatalf("testenv: signal %s: %v", s, err)
	}
}

// Await repeats a command until its answer contains part.
func (r *Redis) Await(part string, args ...string) {
	r.t.Helper()
	deadline := time.Now().Add(patience)
	for !strings.Contains(r.Command(args...), part) {
		if time.Now().After(deadline) {
			r.t.Fatalf("testenv: redis %v does not say %q after %s:\n%s", args, part, patience, r.Command(args...))
		}
		<-time.After(10 * time.Millisecond)
	}
}

func ready(answer string) bool { return !strings.HasPrefix(answer, "-LOADING") }

// Command sends one command and returns the answer in Redis's own encoding
// without its last line end: "+OK", ":1", "$-1". An error answer is returned, not
// failed on.
func (r *Redis) Command(args ...string) string {
	r.t.Helper()
	reply, err := command(r.t.Context(), r.Addr, args)
	if err != nil {
		r.t.Fatalf("testenv: redis %s: %v", args[0], err)
	}
	return reply
}

// start runs the server and waits until what it answers to PING is enough.
func (r *Redis) start(enough func(answer string) bool) error {
	_, port, _ := net.SplitHostPort(r.Addr)
	lines := append(slices.Clone(r.args), "bind 127.0.0.1", "port "+port, "dir "+r.Dir, "daemonize no", "loglevel notice", "logfile \"\"")
	conf := filepath.Join(r.Dir, "redis.conf")
	if err := os.WriteFile(conf, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		return err
	}
	p := &process{cmd: exec.Command(r.program, conf), done: make(chan struct{})}
	p.cmd.Dir = r.Dir
	p.cmd.Stdout, p.cmd.Stderr = &p.output, &p.output
	if err := p.cmd.Start(); err != nil {
		return fmt.Errorf("testenv: start %s: %w", r.program, err)
	}
	go func() {
		_ = p.cmd.Wait()
		close(p.done)
	}()
	r.proc = p
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for {
		if reply, err := command(ctx, r.Addr, []string{"PING"}); err == nil && enough(reply) {
			return nil
		}
		select {
		case <-p.done:
			return fmt.Errorf("testenv: %s ended at once:\n%s", r.program, p.output.String())
		case <-ctx.Done():
			r.end(os.Kill)
			return fmt.Errorf("testenv: %s did not answer within %s:\n%s", r.program, patience, p.output.String())
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func (r *Redis) end(how os.Signal) {
	if r.proc == nil {
		return
	}
	_ = r.proc.cmd.Process.Signal(how)
	_ = r.proc.cmd.Process.Signal(syscall.SIGCONT) // one that is frozen gets no SIGTERM
	select {
	case <-r.proc.done:
	case <-time.After(patience):
		_ = r.proc.cmd.Process.Kill()
		<-r.proc.done
	}
	r.proc = nil
}

func freePort(tb testing.TB) int {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// command speaks just enough of the protocol for tests to look behind a driver.
func command(ctx context.Context, addr string, args []string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	deadline, _ := ctx.Deadline()
	if err := conn.SetDeadline(deadline); err != nil {
		return "", err
	}
	var request bytes.Buffer
	fmt.Fprintf(&request, "*%d\r\n", len(args))
	for _, a := range args {
		fmt.Fprintf(&request, "$%d\r\n%s\r\n", len(a), a)
	}
	if _, err := conn.Write(request.Bytes()); err != nil {
		return "", err
	}
	reply, err := readReply(bufio.NewReader(conn))
	return strings.TrimSuffix(reply, "\n"), err
}

// readReply reads one answer: the line of a simple one, the text of a string, the
// lines of a list.
func readReply(r *bufio.Reader) (string, error) {
	line, err := r.ReadString('\n')
	if err != nil {
		return "", err
	}
	line = strings.TrimSuffix(line, "\r\n")
	if line == "" {
		return "", errors.New("empty answer")
	}
	n, _ := strconv.Atoi(line[1:])
	switch {
	case line[0] == '$' && n >= 0:
		text := make([]byte, n+2)
		_, err := io.ReadFull(r, text)
		return string(text[:n]) + "\n", err
	case line[0] == '*' && n > 0:
		var all strings.Builder
		for range n {
			item, err := readReply(r)
			if err != nil {
				return "", err
			}
			all.WriteString(item)
		}
		return all.String(), nil
	}
	return line + "\n", nil
}
