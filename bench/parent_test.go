package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
)

// envParent makes the test binary a process that starts a child and waits.
const envParent = "AGENTOS_BENCH_PARENT"

// parent starts a child that lives for long and has its output open, says so, and
// does nothing more.
func parent() {
	cmd := exec.Command("sh", "-c", "echo http://127.0.0.1:1; exec sleep 600")
	cmd.ExtraFiles = []*os.File{os.Stdout}
	if _, err := startChild(context.Background(), cmd); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("started")
	select {}
}
