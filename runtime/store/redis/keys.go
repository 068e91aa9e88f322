package redis

import (
	"hash/crc32"
	"net/url"
	"strconv"
	"strings"

	"agentos/holds"
	"agentos/internal/ids"
	"agentos/runtime/store"
)

// maxPartitions is far more than a cluster has use for; claiming asks each
// partition in turn.
const maxPartitions = 1024

// keys makes the keys of one partition. base is "<prefix>:{p<k>}:"; scripts make
// the keys they alone can know from it. The keys of a run are
//
//	r:<run>    hash: all of the run, its fields below
//	s:r:<run>  hash: state of the run
//	t:<run>    hash: telling others of the run: "n" the number of claims, "c" the end
//	           of the last one or 0, "x" what was told
//	k:<key>    string: the run of an idempotency key
//
// and the fields of r:<run>
//
//	f      what never changes
//	v      what does
//	s      the summary
//	o      the last operations
//	<n>    entry n of the journal, "<ms> <type> <data>"
//	h<n>   hold n, "<status> <revision> <expiry> <creation> <agent> <JSON>"
//
// A transition writes all its fields with one command. Redis logs each command of a
// script by itself and keeps a log that was cut off within a script up to the last
// whole one, which comes to life at the next restart (7.0): a run in several keys
// would be torn then, indexes can be made anew. For the same reason v has the last
// word: entries and holds beyond its counts are not there.
//
// and of a partition
//
//	due                                 zset: unfinished runs by time
//	aside                               zset: those among them that could not be read, by when
//	envs                                set: the environments that have runs
//	runs:<env>, runs:<env>:<status>     zset: runs by creation
//	holds:<env>, holds:<env>:<status>   zset: holds by creation
//	notices                             zset: runs of which others are to be told, by time
//	log:<name>, logged:<name>           list: a log; hash: the place of each of its keys
//	retire                              zset: finished runs by the end of their retention
//	s:s:<scope>                         hash: state of a session
//	orders                              hash: of each environment "<env> n" the version, "<env> o" the orders
//	docs:<env>:<name>                   hash: in p0 only, n the version, t the text of a document
//	layout                              hash: in p0 only, format and partitions
//
// Channels: w:<run> with base, and "<prefix>:wake". Parts that come from users
// are last, or escaped.
type keys struct{ base string }

func (s *Store) partition(k int) keys {
	return keys{s.cfg.Prefix + ":{p" + strconv.Itoa(k) + "}:"}
}

// keysOf returns the keys of the partition that id belongs to: a run id, or the
// scope of a session's state.
func (s *Store) keysOf(id string) keys { return s.partition(s.partitionOf(id)) }

// partitionOf tells the partition by the end of id, which is the idempotency key
// of a run that has one.
func (s *Store) partitionOf(id string) int {
	if s.cfg.Partitions == 1 {
		return 0
	}
	if len(id) > ids.KeyLength {
		id = id[len(id)-ids.KeyLength:]
	}
	return int(int64(crc32.ChecksumIEEE([]byte(id))) % int64(s.cfg.Partitions))
}

func (k keys) run(id string) string      { return k.base + "r:" + id }
func (k keys) runState(id string) string { return k.base + "s:r:" + id }
func (k keys) told(id string) string     { return k.base + "t:" + id }
func (k keys) notices() string           { return k.base + "notices" }
func (k keys) log(name string) string    { return k.base + "log:" + escape(name) }
func (k keys) logged(name string) string { return k.base + "logged:" + escape(name) }
func (k keys) scope(scope string) string { return k.base + "s:s:" + scope }
func (k keys) due() string               { return k.base + "due" }
func (k keys) aside() string             { return k.base + "aside" }
func (k keys) envs() string              { return k.base + "envs" }
func (k keys) orders() string            { return k.base + "orders" }
func (k keys) document(env, name string) string {
	return k.base + "docs:" + escape(env) + ":" + escape(name)
}
func (k keys) byKey(key string) string     { return k.base + "k:" + key }
func (k keys) layout() string              { return k.base + "layout" }
func (k keys) watch(id string) string      { return k.base + "w:" + id }
func (s *Store) wakeChannel() string       { return s.cfg.Prefix + ":wake" }
func (k keys) runIndex(env string) string  { return k.base + "runs:" + escape(env) }
func (k keys) holdIndex(env string) string { return k.base + "holds:" + escape(env) }

func (k keys) runsBy(env string, status store.Status) string {
	return k.runIndex(env) + ":" + string(status)
}

func (k keys) holdsBy(env string, status holds.Status) string {
	return k.holdIndex(env) + ":" + string(status)
}

// escape returns s in characters that have no meaning in keys and in the fields
// scripts take apart: letters, digits, and - _ . are kept, every other byte
// becomes %XX.
func escape(s string) string {
	plain := true
	for i := range len(s) {
		plain = plain && isPlain(s[i])
	}
	if plain {
		return s
	}
	const hex = "0123456789ABCDEF"
	var b strings.Builder
	for i := range len(s) {
		if c := s[i]; isPlain(c) {
			b.WriteByte(c)
		} else {
			b.Write([]byte{'%', hex[c>>4], hex[c&15]})
		}
	}
	return b.String()
}

func unescape(s string) string {
	if !strings.Contains(s, "%") {
		return s
	}
	out, err := url.PathUnescape(s)
	if err != nil {
		return s // not made by escape; better shown as it is than not at all
	}
	return out
}

func isPlain(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-' || c == '_' || c == '.'
}
