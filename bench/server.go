package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"agentos/internal/clock"
)

// server is a private redis-server with an append-only file.
type server struct {
	addr   string
	client *goredis.Client
	cmd    *exec.Cmd
	output bytes.Buffer
}

// startServer starts one that keeps its files in dir. Snapshots and rewrites of
// the append-only file are off: they would come at random moments.
func startServer(ctx context.Context, dir, fsync string) (*server, error) {
	port, err := freePort(ctx)
	if err != nil {
		return nil, err
	}
	s := &server{addr: "127.0.0.1:" + port}
	s.cmd = exec.Command("redis-server", "--port", port, "--bind", "127.0.0.1", "--dir", dir, "--save", "",
		"--appendonly", "yes", "--appendfsync", fsync, "--auto-aof-rewrite-percentage", "0", "--maxmemory-policy", "noeviction")
	s.cmd.Dir = dir
	s.cmd.Stdout, s.cmd.Stderr = &s.output, &s.output
	s.cmd.SysProcAttr = apart()
	if err := s.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start redis-server (apt-get install redis-server): %w", err)
	}
	s.client = goredis.NewClient(&goredis.Options{Addr: s.addr, Protocol: 2, PoolSize: 128, DisableIdentity: true})
	for range 400 {
		if err = s.client.Ping(ctx).Err(); err == nil {
			return s, nil
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(ctx.Err(), s.close())
		case <-clock.System{}.After(10 * time.Millisecond):
		}
	}
	return nil, errors.Join(fmt.Errorf("redis-server does not answer: %w", err), s.close())
}

// close ends the server without saving anything.
func (s *server) close() error {
	err := s.client.Close()
	if kill := s.cmd.Process.Signal(os.Kill); kill != nil {
		return errors.Join(err, kill)
	}
	var exit *exec.ExitError
	if wait := s.cmd.Wait(); !errors.As(wait, &exit) {
		return errors.Join(err, wait)
	}
	return err
}

// info reads the numbers of a section of INFO.
func (s *server) info(ctx context.Context, section string) (map[string]int64, error) {
	text, err := s.client.Info(ctx, section).Result()
	if err != nil {
		return nil, err
	}
	out := map[string]int64{}
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		if n, err := strconv.ParseInt(value, 10, 64); err == nil {
			out[name] = n
		}
	}
	return out, nil
}

// cpu is the processor time of the server so far, in microseconds.
func (s *server) cpu(ctx context.Context) (int64, error) {
	text, err := s.client.Info(ctx, "cpu").Result()
	if err != nil {
		return 0, err
	}
	var sum float64
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		if n, err := strconv.ParseFloat(value, 64); err == nil && (name == "used_cpu_sys" || name == "used_cpu_user") {
			sum += n
		}
	}
	return int64(sum * 1e6), nil
}

// alone waits until the server has let go of every connection but one: what it
// keeps for a connection counts as its memory.
func (s *server) alone(ctx context.Context) error {
	for range 500 {
		info, err := s.info(ctx, "clients")
		if err != nil || info["connected_clients"] <= 1 {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-clock.System{}.After(10 * time.Millisecond):
		}
	}
	return errors.New("redis-server still has connections of a closed store")
}

// calls reads how often each command was called, those inside scripts included.
func (s *server) calls(ctx context.Context) (map[string]int64, error) {
	text, err := s.client.Info(ctx, "commandstats").Result()
	if err != nil {
		return nil, err
	}
	out := map[string]int64{}
	for line := range strings.Lines(text) {
		name, rest, ok := strings.Cut(strings.TrimPrefix(line, "cmdstat_"), ":calls=")
		count, _, _ := strings.Cut(rest, ",")
		if n, err := strconv.ParseInt(count, 10, 64); ok && err == nil {
			out[name] = n
		}
	}
	return out, nil
}

// freePort returns a port that was free a moment ago.
func freePort(ctx context.Context) (string, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	_, port, err := net.SplitHostPort(l.Addr().String())
	return port, errors.Join(err, l.Close())
}
