//go:build !linux

package main

import "syscall"

// apart gives a child a process group of its own, so that an interrupt of the
// terminal is ours to handle.
func apart() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
