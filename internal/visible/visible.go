// Package visible makes text fit for the eyes of somebody who decides by it: what
// cannot be seen, moves what stands beside it, or is not the letter it looks like
// is shown for what it is. It is pure, and knows neither terminals nor HTML.
package visible

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Text returns s fit for one line: every character that cannot be seen, moves the
// cursor, or changes the direction of the text around it is written as JSON writes
// it (\u202e), so that a reviewer reads what a program will read. Bytes that are
// not UTF-8 are written as \xff.
func Text(s string) string {
	if utf8.ValidString(s) && !strings.ContainsFunc(s, Hidden) {
		return s
	}
	var b strings.Builder
	for len(s) > 0 {
		r, size := utf8.DecodeRuneInString(s)
		if r == utf8.RuneError && size == 1 || Hidden(r) {
			b.WriteString(escape(r, s[:size]))
		} else {
			b.WriteRune(r)
		}
		s = s[size:]
	}
	return b.String()
}

// escape writes the rune r, whose bytes are raw, in characters that can be seen.
func escape(r rune, raw string) string {
	if r == utf8.RuneError && len(raw) == 1 {
		return fmt.Sprintf(`\x%02x`, raw[0])
	}
	var b strings.Builder
	for _, u := range utf16.Encode([]rune{r}) {
		fmt.Fprintf(&b, `\u%04x`, u)
	}
	return b.String()
}

// Hidden reports whether a person may not see r for what it is. IsPrint refuses
// controls, formats (bidirectional ones among them), spaces but U+0020, private
// and unassigned characters; the tables add letters and marks that fonts leave
// blank: fillers, joiners, variation selectors, the empty Braille pattern.
func Hidden(r rune) bool {
	const brailleBlank = '\u2800'
	return !unicode.IsPrint(r) || r == brailleBlank ||
		unicode.In(r, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector)
}

// JSON returns raw over several lines, each begun with indent. It still is the
// same JSON value: numbers, order and escapes stay, and what Text changes stands in
// strings, where the escape means the same.
func JSON(raw json.RawMessage, indent string) string {
	var buf bytes.Buffer
	if err := json.Indent(&buf, raw, indent, "  "); err != nil {
		return indent + Text(string(raw))
	}
	lines := strings.Split(indent+buf.String(), "\n")
	for i, l := range lines {
		lines[i] = Text(l)
	}
	return strings.Join(lines, "\n")
}

// Mark says what is special about a part of a text.
type Mark string

// The marks.
const (
	// Plain text is what it looks like.
	Plain Mark = ""
	// Unseen is a character nobody would see, written as an escape.
	Unseen Mark = "unseen"
	// Lookalike is a letter that looks like one of the letters around it and is
	// another: of another script in a Latin word, or a mathematical or full-width
	// form.
	Lookalike Mark = "lookalike"
)

// Part is a piece of a text with one mark.
type Part struct {
	Text string
	Mark Mark
	// Name is such as "U+202E" or "U+0430 Cyrillic"; "" of plain text.
	Name string
}

// Parts splits s by what has to be marked. Line breaks and tabs are plain when
// lines is set.
func Parts(s string, lines bool) []Part {
	var out []Part
	for len(s) > 0 {
		end := strings.IndexFunc(s, unicode.IsSpace)
		if end < 0 {
			end = len(s)
		}
		if end == 0 {
			_, end = utf8.DecodeRuneInString(s)
		}
		out = append(out, wordParts(s[:end], lines)...)
		s = s[end:]
	}
	return merge(out)
}

// wordParts splits a text without spaces in it, or one space.
func wordParts(word string, lines bool) []Part {
	latin := strings.ContainsFunc(word, func(r rune) bool { return unicode.Is(unicode.Latin, r) })
	var out []Part
	for len(word) > 0 {
		r, size := utf8.DecodeRuneInString(word)
		raw := word[:size]
		word = word[size:]
		name := fmt.Sprintf("U+%04X", r)
		switch {
		case lines && (r == '\n' || r == '\t'):
			out = append(out, Part{Text: raw})
		case r == utf8.RuneError && size == 1:
			out = append(out, Part{Text: escape(r, raw), Mark: Unseen, Name: "a byte that is no UTF-8"})
		case Hidden(r):
			out = append(out, Part{Text: escape(r, raw), Mark: Unseen, Name: name})
		default:
			if as := lookalike(r, latin); as != "" {
				out = append(out, Part{Text: raw, Mark: Lookalike, Name: name + " " + as})
				continue
			}
			out = append(out, Part{Text: raw})
		}
	}
	return out
}

// lookalike says what r is when it can be taken for another letter, else "". latin
// says that Latin letters stand beside it.
func lookalike(r rune, latin bool) string {
	switch {
	case r >= 0x1D400 && r <= 0x1D7FF:
		return "mathematical"
	case r >= 0xFF01 && r <= 0xFF5E:
		return "full-width"
	case !latin || r < 0x0370:
		return ""
	case unicode.Is(unicode.Cyrillic, r):
		return "Cyrillic"
	case unicode.Is(unicode.Greek, r):
		return "Greek"
	case unicode.Is(unicode.Armenian, r):
		return "Armenian"
	case unicode.Is(unicode.Cherokee, r):
		return "Cherokee"
	case unicode.Is(unicode.Coptic, r):
		return "Coptic"
	case unicode.Is(unicode.Lisu, r):
		return "Lisu"
	}
	return ""
}

// merge joins plain parts that stand side by side.
func merge(parts []Part) []Part {
	var out []Part
	var plain strings.Builder
	flush := func() {
		if plain.Len() > 0 {
			out = append(out, Part{Text: plain.String()})
			plain.Reset()
		}
	}
	for _, p := range parts {
		if p.Mark == Plain {
			plain.WriteString(p.Text)
			continue
		}
		flush()
		out = append(out, p)
	}
	flush()
	return out
}
