package main

import "syscall"

// apart gives a child a process group of its own, so that an interrupt of the
// terminal is ours to handle, and ends it when this process dies in any way.
func apart() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
