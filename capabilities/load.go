package capabilities

import (
	"errors"
	"io/fs"
	"path/filepath"

	"agentos/holds/policyfile"
	"agentos/internal/strictyaml"
)

// Load reads and checks the manifest at path. The error is of type
// strictyaml.Errors and holds every problem of the file.
func Load(path string) (*Agent, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, strictyaml.Errors{{File: path, Message: err.Error()}}
	}
	data, err := strictyaml.ReadFile(path)
	if err != nil {
		return nil, err
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
	r := &reader{dir: dir}
	r.rules = policyfile.NewReader(func(v strictyaml.Value) string { return r.text(v, none) })
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
