package redis

import (
	"hash/fnv"
	"strconv"
	"strings"

	"agentos/holds"
	"agentos/runtime/store"
)

// maxPartitions is far more than a cluster has use for; claiming asks each
// partition in turn.
const maxPartitions = 1024

// keys makes the keys of one partition. base is "<prefix>:{p<k>}:"; scripts make
// the keys they alone can know from it. The keys of a run are
//
//	r:<run>    hash: the record, the last operations, the request digest
//	j:<run>    list: the journal, each entry "<ms> <type> <data>"
//	h:<hold>   hash: status, revision, expiry, agent, and the hold as JSON
//	s:r:<run>  hash: state of the run
//
// and of a partition
//
//	due                                         zset: unfinished runs by time
//	runs, runs:<env>, runs:<env>:<status>       zset: runs by creation
//	holds, holds:<env>, holds:<env>:<status>    zset: holds by creation
//	retire                                      zset: finished runs by the end of their retention
//	s:s:<scope>                                 hash: state of a session
//	layout                                      hash: in p0 only, format and partitions
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

func (s *Store) partitionOf(id string) int {
	if s.cfg.Partitions == 1 {
		return 0
	}
	h := fnv.New32a()
	h.Write([]byte(id)) //nolint:errcheck // never fails
	return int(h.Sum32() % uint32(s.cfg.Partitions))
}

func (k keys) run(id string) string        { return k.base + "r:" + id }
func (k keys) journal(id string) string    { return k.base + "j:" + id }
func (k keys) hold(id string) string       { return k.base + "h:" + id }
func (k keys) runState(id string) string   { return k.base + "s:r:" + id }
func (k keys) scope(scope string) string   { return k.base + "s:s:" + scope }
func (k keys) due() string                 { return k.base + "due" }
func (k keys) layout() string              { return k.base + "layout" }
func (k keys) watch(id string) string      { return k.base + "w:" + id }
func (s *Store) wakeChannel() string       { return s.cfg.Prefix + ":wake" }
func (k keys) runIndex(env string) string  { return index(k.base+"runs", env) }
func (k keys) holdIndex(env string) string { return index(k.base+"holds", env) }

func (k keys) runsBy(env string, status store.Status) string {
	return k.runIndex(env) + ":" + string(status)
}

func (k keys) holdsBy(env string, status holds.Status) string {
	return k.holdIndex(env) + ":" + string(status)
}

func index(all, env string) string {
	if env == "" {
		return all
	}
	return all + ":" + escape(env)
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

func isPlain(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-' || c == '_' || c == '.'
}
