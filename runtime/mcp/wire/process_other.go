//go:build unix && !linux

package wire

import "syscall"

// childAttributes has no parent-death signal here: a child whose parent is
// killed sees the end of its input and has to leave by itself.
func childAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// reap waits for the child and then kills what it left in its process group. In
// between the group's number could in theory be given to another group.
func (p *process) reap() {
	err := p.cmd.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.err, p.reaped = err, true
	_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL) //nolint:errcheck // nobody may be left
}
