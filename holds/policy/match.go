package policy

import (
	"strings"
	"unicode/utf8"
)

// Match reports whether pattern means the tool called tool of the server with
// the alias server. "*" stands for any run of characters, "?" for one; nothing
// else is special, upper and lower case differ, and the whole name must match.
//
// A pattern without a slash matches the raw tool name on any server. A pattern
// with a slash matches alias and tool name on the two sides of its first slash;
// since raw names may hold slashes too, it also matches a raw name as a whole.
// That second reading only ever adds matches, so use MatchServerTool wherever a
// match opens something instead of closing it.
func Match(pattern, server, tool string) bool {
	return MatchServerTool(pattern, server, tool) ||
		strings.Contains(pattern, "/") && glob(pattern, tool)
}

// MatchServerTool is Match without the second reading of a slash: what stands
// before the first slash is a server alias and nothing else. Otherwise a server
// could reach for what was meant for another by offering a tool called
// "other/tool".
func MatchServerTool(pattern, server, tool string) bool {
	alias, name, ok := strings.Cut(pattern, "/")
	if !ok {
		return glob(pattern, tool)
	}
	return glob(alias, server) && glob(name, tool)
}

// IsGlob reports whether pattern has a wildcard.
func IsGlob(pattern string) bool { return strings.ContainsAny(pattern, "*?") }

// glob matches the whole of name. It remembers only the last star, so its cost
// is at most len(pattern) × len(name) whatever the pattern.
func glob(pattern, name string) bool {
	p, n := 0, 0
	star, retry := -1, 0
	for n < len(name) {
		_, width := utf8.DecodeRuneInString(name[n:])
		switch {
		case p < len(pattern) && pattern[p] == '*':
			star, retry = p, n
			p++
		case p < len(pattern) && pattern[p] == '?':
			p++
			n += width
		case p < len(pattern) && pattern[p] == name[n]:
			p++
			n++
		case star >= 0:
			_, width = utf8.DecodeRuneInString(name[retry:])
			retry += width
			p, n = star+1, retry
		default:
			return false
		}
	}
	return strings.Trim(pattern[p:], "*") == ""
}
