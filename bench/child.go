package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"agentos/internal/clock"
)

// child is a process that serves HTTP.
type child struct {
	cmd *exec.Cmd
	url string
	// told is everything it has written, once it has ended.
	told chan string
}

// How long a child may take to say where it serves, and to end.
const (
	startTime = 30 * time.Second
	stopTime  = 20 * time.Second
)

// startChild starts a command and waits for the line in which it says where it
// serves: the first that has a URL of this machine.
func startChild(ctx context.Context, cmd *exec.Cmd) (*child, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	cmd.Stdout, cmd.Stderr = w, w
	cmd.SysProcAttr = apart()
	if err := errors.Join(cmd.Start(), w.Close()); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	c := &child{cmd: cmd, told: make(chan string, 1)}
	urls := make(chan string, 1)
	go func() {
		c.told <- listen(bufio.NewScanner(r), urls)
		close(urls)
		_ = r.Close() // read to its end
	}()
	select {
	case c.url = <-urls:
	case <-ctx.Done():
		err = ctx.Err()
	case <-clock.System{}.After(startTime):
		err = fmt.Errorf("it does not serve after %s", startTime)
	}
	if c.url == "" {
		kill := c.cmd.Process.Kill()
		_ = c.cmd.Wait() // it was killed or has failed
		return nil, fmt.Errorf("start %s: %w\n%s", cmd.Path, errors.Join(err, kill), <-c.told)
	}
	return c, nil
}

// maxTold bounds what is kept of a child's words, in bytes.
const maxTold = 4 << 10

// listen reads lines to their end, sends the first URL, and returns the beginning
// of what was said.
func listen(lines *bufio.Scanner, urls chan<- string) string {
	var told strings.Builder
	found := false
	for lines.Scan() {
		line := lines.Text()
		if at := strings.Index(line, "http://127.0.0.1:"); at >= 0 && !found {
			found = true
			urls <- strings.Fields(line[at:])[0]
		}
		if told.Len() < maxTold {
			fmt.Fprintln(&told, line)
		}
	}
	return told.String()
}

// stop ends the child in its own way; one that does not end is killed.
func (c *child) stop() error {
	err := c.cmd.Process.Signal(syscall.SIGTERM)
	late := time.AfterFunc(stopTime, func() { _ = c.cmd.Process.Kill() }) // Wait tells
	wait := c.cmd.Wait()
	late.Stop()
	if err = errors.Join(err, wait); err != nil {
		return fmt.Errorf("%s: %w\n%s", c.cmd.Path, err, <-c.told)
	}
	<-c.told
	return nil
}

// kill ends the child at once, as a crash would.
func (c *child) kill() error {
	err := c.cmd.Process.Kill()
	var exit *exec.ExitError
	if wait := c.cmd.Wait(); !errors.As(wait, &exit) {
		err = errors.Join(err, wait)
	}
	<-c.told
	return err
}

// cpu is the processor time of the child so far, in microseconds. The system counts
// it in hundredths of a second.
func (c *child) cpu() (int64, error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", c.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	// The name, in brackets, may have anything in it; the times are the 12th and
	// 13th field after it.
	text := string(raw)
	fields := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
	if len(fields) < 13 {
		return 0, fmt.Errorf("unexpected %q", text)
	}
	var user, system int64
	if _, err := fmt.Sscan(fields[11]+" "+fields[12], &user, &system); err != nil {
		return 0, err
	}
	return (user + system) * 10_000, nil
}
