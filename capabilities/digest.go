package capabilities

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"agentos/internal/rawjson"
)

// digest covers the manifest and the bundled files that its commands name, such
// as "orders_server.py" in [python, orders_server.py]: a changed server script
// is another agent. Files outside a server's working directory do not count.
func digest(a *Agent, manifest []byte) (string, error) {
	parts := [][]byte{manifest}
	for _, alias := range slices.Sorted(maps.Keys(a.Servers)) {
		s := a.Servers[alias]
		if s.Command == nil || s.Cwd == "" {
			continue
		}
		for _, arg := range s.Argv("") {
			sum, err := fileDigest(s.Cwd, arg)
			if err != nil {
				return "", fmt.Errorf("mcp_servers.%s: %s cannot be read: %w", alias, arg, cause(err))
			}
			if sum != "" {
				parts = append(parts, []byte(alias+"/"+arg), []byte(sum))
			}
		}
	}
	return rawjson.Digest(parts...), nil
}

// fileDigest returns "" when name is no regular file inside dir.
func fileDigest(dir, name string) (string, error) {
	name = filepath.FromSlash(name)
	if !filepath.IsLocal(name) {
		return "", nil
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return "", nil
	}
	defer root.Close() //nolint:errcheck // only read
	info, err := root.Stat(name)
	if err != nil || !info.Mode().IsRegular() {
		return "", nil
	}
	f, err := root.Open(name)
	if err != nil {
		return "", err
	}
	defer f.Close() //nolint:errcheck // only read
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
