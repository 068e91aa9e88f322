package redis

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	goruntime "runtime"
	"strconv"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// Timeouts of one attempt. Callers bound the whole operation by their context.
const (
	dialTimeout = 2 * time.Second
	ioTimeout   = 3 * time.Second
	poolTimeout = 4 * time.Second
)

const urlHelp = "write redis://host:6379/0, rediss://…, redis+sentinel://host:26379,host:26379/0?master=name or redis+cluster://host:6379,host:6379"

// parseURL returns the options of the client for raw. Errors never contain raw,
// which may hold a password.
func parseURL(raw string) (*goredis.UniversalOptions, error) {
	// url.Parse refuses several hosts with ports, so they are cut out first.
	scheme, rest, ok := strings.Cut(raw, "://")
	if !ok {
		return nil, errors.New("redis: the URL has no scheme; " + urlHelp)
	}
	authority, path := rest, ""
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		authority, path = rest[:i], rest[i:]
	}
	user, hosts := "", authority
	if i := strings.LastIndexByte(authority, '@'); i >= 0 {
		user, hosts = authority[:i+1], authority[i+1:]
	}
	u, err := url.Parse("redis://" + user + "host" + path)
	if err != nil {
		return nil, errors.New("redis: the URL is malformed; escape special characters of the password, and " + urlHelp)
	}
	kind, err := schemeKind(scheme)
	if err != nil {
		return nil, err
	}
	opts := baseOptions()
	if opts.Addrs, err = addresses(hosts, kind); err != nil {
		return nil, err
	}
	opts.Username = u.User.Username()
	opts.Password, _ = u.User.Password()
	opts.IsClusterMode = kind == "cluster"
	if strings.HasPrefix(scheme, "rediss") {
		host, _, _ := net.SplitHostPort(opts.Addrs[0]) //nolint:errcheck // made by addresses
		opts.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12}
		if kind == "" {
			opts.TLSConfig.ServerName = host
		}
	}
	return opts, readQuery(opts, u, kind)
}

func schemeKind(scheme string) (string, error) {
	base, kind, _ := strings.Cut(scheme, "+")
	if (base != "redis" && base != "rediss") || (kind != "" && kind != "sentinel" && kind != "cluster") {
		return "", fmt.Errorf("redis: unknown scheme %q; %s", scheme, urlHelp)
	}
	return kind, nil
}

func baseOptions() *goredis.UniversalOptions {
	return &goredis.UniversalOptions{
		Protocol:              2,
		ContextTimeoutEnabled: true,
		MaxRetries:            -1,
		DialTimeout:           dialTimeout,
		DialerRetries:         1,
		ReadTimeout:           ioTimeout,
		WriteTimeout:          ioTimeout,
		PoolTimeout:           poolTimeout,
		PoolSize:              poolSize(),
		PipelinePoolSize:      -1,
		DisableIdentity:       true,
		MaintNotificationsConfig: &maintnotifications.Config{
			Mode: maintnotifications.ModeDisabled,
		},
	}
}

// poolSize is how many connections a process has to each server.
func poolSize() int { return max(32, 16*goruntime.GOMAXPROCS(0)) }

func addresses(hosts, kind string) ([]string, error) {
	port := "6379"
	if kind == "sentinel" {
		port = "26379"
	}
	var addrs []string
	for host := range strings.SplitSeq(hosts, ",") {
		if host == "" || host[0] == ':' {
			return nil, errors.New("redis: the URL names no host; " + urlHelp)
		}
		if _, _, err := net.SplitHostPort(host); err != nil {
			host = net.JoinHostPort(strings.Trim(host, "[]"), port)
		}
		addrs = append(addrs, host)
	}
	if kind == "" && len(addrs) > 1 {
		return nil, errors.New("redis: several hosts need redis+sentinel:// or redis+cluster://")
	}
	return addrs, nil
}

func readQuery(opts *goredis.UniversalOptions, u *url.URL, kind string) error {
	for name := range u.Query() {
		if name != "master" || kind != "sentinel" {
			return fmt.Errorf("redis: unknown parameter %q in the URL; only redis+sentinel takes one, master", name)
		}
	}
	opts.MasterName = u.Query().Get("master")
	if kind == "sentinel" && opts.MasterName == "" {
		return errors.New("redis: the sentinel URL does not say which master; add ?master=name")
	}
	db := strings.Trim(u.Path, "/")
	if db == "" {
		return nil
	}
	n, err := strconv.Atoi(db)
	if err != nil || n < 0 {
		return fmt.Errorf("redis: the database in the URL must be a number, not %q", db)
	}
	if kind == "cluster" && n != 0 {
		return errors.New("redis: a cluster has only database 0")
	}
	opts.DB = n
	return nil
}
