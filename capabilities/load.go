package capabilities

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"agentos/internal/strictyaml"
)

// Load reads and checks the manifest at path. The error is of type
// strictyaml.Errors and holds every problem of the file.
func Load(path string) (*Agent, error) {
	fail := func(format string, args ...any) (*Agent, error) {
		return nil, strictyaml.Errors{{File: path, Message: fmt.Sprintf(format, args...)}}
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return fail("%s", err)
	}
	f, err := os.Open(abs) //nolint:gosec // the caller names the file
	if errors.Is(err, fs.ErrNotExist) {
		return fail("the file does not exist")
	}
	if err != nil {
		return fail("%s", cause(err))
	}
	defer f.Close() //nolint:errcheck // only read
	// One byte over the limit, so that Parse sees that it was passed.
	data, err := io.ReadAll(io.LimitReader(f, strictyaml.MaxBytes+1))
	if err != nil {
		return fail("%s", cause(err))
	}
	return Parse(path, data, filepath.Dir(abs))
}

// cause drops operation and path, which the message has already.
func cause(err error) error {
	if pe := (*fs.PathError)(nil); errors.As(err, &pe) {
		return pe.Err
	}
	return err
}

// Parse checks a manifest. file is its name in messages, dir the absolute folder
// that relative commands and working directories start from. The error is of
// type strictyaml.Errors and holds every problem. Nothing is read from dir but
// the files that count for the digest.
func Parse(file string, data []byte, dir string) (*Agent, error) {
	doc, err := strictyaml.Parse(file, data)
	if err != nil {
		return nil, err
	}
	r := &reader{dir: dir, ruleIDs: map[string]bool{}}
	agent := r.agent(doc.Root())
	if err := doc.Err(); err != nil {
		return nil, err
	}
	agent.Digest, err = digest(agent, data)
	if err != nil {
		return nil, strictyaml.Errors{{File: file, Message: err.Error()}}
	}
	return agent, nil
}
