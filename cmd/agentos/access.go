package main

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"regexp"
	"strings"

	"agentos/api/auth"
	"agentos/audit"
	"agentos/internal/clock"
	"agentos/internal/ids"
	"agentos/runtime/store"
)

// reachable reports whether others than the people of this machine come: the address
// is not of loopback, or clients are expected that know the server by a name, for
// whom a proxy stands before it.
func (s settings) reachable() bool { return !isLoopback(s.addr) || len(s.hosts) > 0 }

// newKeyring makes the keyring of a server. Where others reach it nobody comes in
// without a key, whatever becomes of the store.
func newKeyring(s settings, docs auth.Documents, record func(context.Context, ...audit.Keyed) error, log *slog.Logger) (*auth.Keyring, error) {
	return auth.New(auth.Config{
		Store: docs, Env: environment, Clock: clock.System{}, IDs: ids.Random{}, Log: log, Record: record, Required: s.reachable(),
	})
}

// protected refuses to be reached by others while there is no key.
func (p *parts) protected(ctx context.Context, s settings) error {
	if !s.reachable() {
		return nil
	}
	keys, err := p.keys.List(ctx)
	if err != nil {
		return err
	}
	for _, k := range keys {
		if k.Status == "active" {
			return nil
		}
	}
	const advice = "and the store has no API key that counts; make one with agentos keys create --store URL --name NAME --role admin, or "
	if isLoopback(s.addr) {
		return s.wrong("host", "it means that others come, through a proxy, "+advice+"leave it out")
	}
	return s.wrong("addr", "it can be reached from other machines, "+advice+"use a loopback address such as 127.0.0.1:8080")
}

// hostName is a name of DNS (RFC 1123 section 2.1).
var hostName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)*\.?$`)

// allowedHosts are the names that requests may be for: this machine's own, which
// health checks use, the address, and those of the operator.
func (s settings) allowedHosts() []string {
	out := []string{"localhost", "127.0.0.1", "::1"}
	if host, _, err := net.SplitHostPort(s.addr); err == nil {
		if ip := net.ParseIP(host); ip != nil && !ip.IsUnspecified() {
			out = append(out, ip.String())
		}
	}
	for _, host := range s.hosts {
		out = append(out, strings.ToLower(strings.TrimSuffix(host, ".")))
	}
	return out
}

// words splits a list with commas.
func words(list string) []string {
	return strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ' ' })
}

// noDocuments is a store without keys.
type noDocuments struct{}

// Document implements auth.Documents.
func (noDocuments) Document(context.Context, string, string) (store.Document, error) {
	return store.Document{}, nil
}

// SetDocument implements auth.Documents.
func (noDocuments) SetDocument(context.Context, string, string, store.Document) error {
	return errors.New("there are no keys inside a process")
}
