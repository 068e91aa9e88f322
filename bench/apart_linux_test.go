package main

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"
)

// A measurement that is ended by a signal leaves no child behind, though each has a
// process group of its own.
func TestChildrenDieWithTheirParent(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), envParent+"=1")
	cmd.Stdout = w
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = w.Close()
	lines := bufio.NewReader(r)
	if line, err := lines.ReadString('\n'); line != "started\n" {
		t.Errorf("the parent says %q, %v", line, err)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it was ended by the signal
	if err := r.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	// The output ends when nobody has it open any more.
	if rest, err := io.ReadAll(lines); err != nil {
		t.Errorf("the child is still there: %v %q", err, rest)
	}
}
