package wire

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"
)

func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// reap waits for the child, kills what it left in its process group and only
// then gives up the process id, so that the group cannot be somebody else's.
func (p *process) reap() {
	pid := p.cmd.Process.Pid
	for errors.Is(unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil), unix.EINTR) {
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = syscall.Kill(-pid, syscall.SIGKILL) //nolint:errcheck // nobody may be left
	p.err = p.cmd.Wait()
	p.reaped = true
}
