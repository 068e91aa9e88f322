package file

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"

	"agentos/internal/problem"
	"agentos/runtime/store"
)

// place makes the directory and the file of a store, readable by the owner only,
// and returns the one path under which the file is locked. SQLite gives its side
// files the mode of the file.
func place(path string) (string, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return "", err
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return "", err
	}
	if err := f.Close(); err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(path)
}

// lock takes the side file of path for this process. The kernel gives it back
// when the process ends, however it ends. The store's own file will not do:
// closing it would drop the locks SQLite has on it (fcntl(2), "POSIX locks").
func lock(path string) (*os.File, error) {
	f, err := os.OpenFile(path+".lock", os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if err == nil {
		return f, nil
	}
	_ = f.Close()
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, problem.Wrap(store.ErrLocked, problem.StoreLocked,
			"the store file %s is in use by another process; stop that process, give this one another file, or use Redis for several processes", path)
	}
	return nil, err
}
