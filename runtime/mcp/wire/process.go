package wire

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	goruntime "runtime"
	"strings"
	"sync"
	"syscall"
)

// process is a child in a process group of its own. One goroutine starts it,
// waits for it and reaps it, whoever else asks for its end.
type process struct {
	cmd    *exec.Cmd
	exited chan struct{} // closed once the child is reaped
	err    error         // of Wait; read it after exited

	mu     sync.Mutex
	reaped bool // the process id may belong to somebody else
}

// startProcess starts cmd and returns when it runs or cannot run. The child's
// life is tied to this process only: it is killed when this one dies.
func startProcess(cmd *exec.Cmd) (*process, error) {
	p := &process{cmd: cmd, exited: make(chan struct{})}
	cmd.SysProcAttr = childAttributes()
	started := make(chan error)
	go p.run(started)
	if err := <-started; err != nil {
		return nil, err
	}
	return p, nil
}

// run stays on one thread for the child's whole life, because the kernel sends
// the parent-death signal when the starting thread ends, not the process
// (prctl(2), PR_SET_PDEATHSIG).
func (p *process) run(started chan<- error) {
	goruntime.LockOSThread()
	defer goruntime.UnlockOSThread()
	err := p.cmd.Start()
	started <- err
	if err != nil {
		return
	}
	p.reap()
	close(p.exited)
}

// signal sends sig to the whole process group.
func (p *process) signal(sig syscall.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.reaped {
		_ = syscall.Kill(-p.cmd.Process.Pid, sig) //nolint:errcheck // it may have ended just now
	}
}

// exitText says how the process ended.
func (p *process) exitText() string {
	var exit *exec.ExitError
	switch {
	case p.err == nil:
		return "the process exited with status 0"
	case !errors.As(p.err, &exit):
		return "the process ended: " + p.err.Error()
	case exit.Exited():
		return fmt.Sprintf("the process exited with status %d", exit.ExitCode())
	}
	return "the process was ended by " + exit.String()
}

// lookPath finds the executable called name the way execvp does, but with the
// PATH the child will have, and without ever taking a relative folder of it. A
// name with a slash is taken relative to dir.
func lookPath(name, dir string, env []string) (string, error) {
	if strings.ContainsRune(name, filepath.Separator) {
		path := name
		if !filepath.IsAbs(path) {
			path = filepath.Join(dir, path)
		}
		if err := executable(path); err != nil {
			return "", fmt.Errorf("executable %q: %w", name, err)
		}
		return path, nil
	}
	path := ""
	for _, kv := range env {
		if v, ok := strings.CutPrefix(kv, "PATH="); ok {
			path = v
		}
	}
	for _, folder := range filepath.SplitList(path) {
		if !filepath.IsAbs(folder) {
			continue
		}
		if full := filepath.Join(folder, name); executable(full) == nil {
			return full, nil
		}
	}
	return "", fmt.Errorf("executable %q not found in any folder of PATH (%s)", name, path)
}

func executable(path string) error {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return errors.New("not found")
	case err != nil:
		return errors.Unwrap(err)
	case info.IsDir():
		return errors.New("it is a folder")
	case info.Mode()&0o111 == 0:
		return errors.New("it may not be executed")
	}
	return nil
}
