package file

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"agentos/internal/clock"
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
	info, err := f.Stat()
	if err := errors.Join(err, f.Close()); err != nil {
		return "", err
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok && st.Nlink > 1 {
		// The lock and SQLite's side files go by the name of the file.
		return "", problem.New(problem.InvalidSettings, "the store file %s has more than one name (hard links); copy it instead", path)
	}
	return filepath.EvalSymlinks(path)
}

// A process killed while it starts a child leaves its lock with the child for the
// moment until the child becomes another program; so a taken lock is tried again
// for a little while before it counts.
const (
	lockTries = 20
	lockPause = 25 * time.Millisecond
)

// lock takes the side file of path for this process. The kernel gives it back
// when the process ends, however it ends. The store's own file will not do:
// closing it would drop the locks SQLite has on it (fcntl(2), "POSIX locks").
func lock(ctx context.Context, path string) (*os.File, error) {
	f, err := os.OpenFile(path+".lock", os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	for try := 1; ; try++ {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		switch {
		case err == nil:
			return f, nil
		case errors.Is(err, syscall.EWOULDBLOCK) && try < lockTries:
			select {
			case <-clock.System{}.After(lockPause): // about processes, not about the store's time
				continue
			case <-ctx.Done():
				err = ctx.Err()
			}
		case errors.Is(err, syscall.EWOULDBLOCK):
			err = problem.Wrap(store.ErrLocked, problem.StoreLocked,
				"the store file %s is in use by another process; stop that process, give this one another file, or use Redis for several processes", path)
		}
		return nil, errors.Join(err, f.Close())
	}
}
