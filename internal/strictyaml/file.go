package strictyaml

import (
	"errors"
	"io"
	"io/fs"
	"os"
)

// ReadFile returns the bytes of a file for Parse, which refuses those of a file that
// is too large. The error is of type Errors.
func ReadFile(path string) ([]byte, error) {
	data, err := readFile(path)
	if err == nil {
		return data, nil
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, Errors{{File: path, Message: "the file does not exist"}}
	}
	// Operation and path are in the message already.
	if pe := (*fs.PathError)(nil); errors.As(err, &pe) {
		err = pe.Err
	}
	return nil, Errors{{File: path, Message: err.Error()}}
}

func readFile(path string) ([]byte, error) {
	f, err := os.Open(path) //nolint:gosec // the caller names the file
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // only read
	// One byte over the limit, so that Parse sees that it was passed.
	return io.ReadAll(io.LimitReader(f, MaxBytes+1))
}
