package mock

import (
	"encoding/json"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"agentos/internal/rawjson"
)

// maxPause bounds slow:.
const maxPause = 10 * time.Minute

// step is one answer of a script.
type step struct {
	pause time.Duration
	fail  int             // HTTP status
	raw   json.RawMessage // the message as it stands
	calls []call
	say   string
	said  bool // say: was given, if only with an empty text
}

// call is a tool call to ask for.
type call struct {
	name      string
	arguments json.RawMessage
}

// answers reports whether the step says what to answer, and not only when.
func (s *step) answers() bool {
	return s.fail != 0 || s.raw != nil || len(s.calls) > 0 || s.said
}

// directive finds where a directive begins: its name, a colon and no space. A
// letter before the name ("recall:x") makes it another word.
var directive = regexp.MustCompile(`(?:^|[^A-Za-z0-9_-])(call|say|raw|fail|slow):\S`)

// nextStep is what ends the text of say: other than the end of the message.
var nextStep = regexp.MustCompile(`\s+then\s+(?:call|say|raw|fail|slow):\S`)

// toolName is the name that follows call:. It ends before a full stop or comma
// that belongs to the sentence.
var toolName = regexp.MustCompile(`^[A-Za-z0-9_-]+(?:[./][A-Za-z0-9_-]+)*`)

// parseScript reads the directives of a user message, wherever they stand in it:
//
//	call:<tool> {json}   ask for this call; without {json} its arguments are {}
//	say:<text>           answer the text up to the end of the message or the next step
//	raw:<json>           answer this message as it stands
//	fail:<status>        answer this HTTP status, 400 to 599, at every attempt
//	slow:<duration>      wait (Go syntax, at most 10m), then go on with the rest
//
// Directives side by side make one answer: several call: are calls of one message,
// say: beside them is its content. The word "then" between two directives begins
// the next step, which is taken once the answer before it is in the history:
//
//	call:lookup_order {"order_id":"A-1"} then call:cancel_order {"order_id":"A-1"} then say:done
//
// Arguments and raw messages are kept byte for byte. A directive that cannot be
// read is refused with 400 rather than guessed at. Without any directive there are
// no steps.
func parseScript(text string) ([]step, *refusal) {
	var steps []step
	var s step
	begun := false
	for {
		at := directive.FindStringSubmatchIndex(text)
		if at == nil {
			break
		}
		if begun && endsWithThen(text[:at[2]]) {
			steps, s = append(steps, s), step{}
		}
		begun = true
		name := text[at[2]:at[3]]
		rest, fault := s.read(name, text[at[3]+1:])
		if fault != "" {
			return nil, refuse(http.StatusBadRequest, "mock model: %s: %s", name, fault)
		}
		text = rest
	}
	if begun {
		steps = append(steps, s)
	}
	return steps, nil
}

func endsWithThen(between string) bool {
	words := strings.Fields(between)
	return len(words) > 0 && words[len(words)-1] == "then"
}

// read takes one directive off the front of text, after its colon, and returns
// what follows it, or a fault.
func (s *step) read(name, text string) (rest, fault string) {
	switch name {
	case "call":
		return s.readCall(text)
	case "raw":
		value, rest, fault := takeJSON(text)
		if fault != "" {
			return "", fault
		}
		s.raw = value
		return rest, ""
	case "say":
		end := len(text)
		if at := nextStep.FindStringIndex(text); at != nil {
			end = at[0]
		}
		s.say, s.said = text[:end], true
		return text[end:], ""
	}
	word := text
	if end := strings.IndexAny(text, " \t\r\n"); end >= 0 {
		word = text[:end]
	}
	rest = text[len(word):]
	if name == "fail" {
		status, err := strconv.Atoi(word)
		if err != nil || status < 400 || status > 599 {
			return "", "a status from 400 to 599 must follow"
		}
		s.fail = status
		return rest, ""
	}
	pause, err := time.ParseDuration(word)
	if err != nil || pause < 0 || pause > maxPause {
		return "", "a duration up to " + maxPause.String() + ", such as 2s, must follow"
	}
	s.pause += pause
	return rest, ""
}

func (s *step) readCall(text string) (rest, fault string) {
	name := toolName.FindString(text)
	if name == "" {
		return "", "the name of a tool must follow"
	}
	text = text[len(name):]
	c := call{name: name, arguments: json.RawMessage("{}")}
	if trimmed := strings.TrimLeft(text, " \t\r\n"); strings.HasPrefix(trimmed, "{") {
		c.arguments, text, fault = takeJSON(trimmed)
		if fault != "" {
			return "", fault
		}
	}
	s.calls = append(s.calls, c)
	return text, ""
}

// takeJSON takes one JSON value off the front of text, byte for byte. Duplicate
// names pass, so that a script can send what a careless model sends.
func takeJSON(text string) (value json.RawMessage, rest, fault string) {
	dec := json.NewDecoder(strings.NewReader(text))
	if err := dec.Decode(&value); err != nil {
		return nil, "", "what follows is no JSON: " + err.Error()
	}
	return value, text[dec.InputOffset():], ""
}

// script returns the steps of the last user message that has directives, and how
// many of them the history shows as done. A user message without directives does
// not end a script: the engine adds such messages to correct an answer.
func (r *request) script() (steps []step, done int, refused *refusal) {
	for _, v := range slices.Backward(r.messages) {
		if m := v; m.role == "assistant" {
			done++
			r.callsSoFar += len(m.calls)
			continue
		} else if m.role != "user" {
			continue
		}
		steps, refused = parseScript(scriptText(v.text))
		if refused != nil || len(steps) > 0 {
			return steps, done, refused
		}
	}
	return nil, done, nil
}

// scriptText is where to look for directives. An input with several properties
// arrives as one JSON object: then it is the first text in it with a directive.
func scriptText(text string) string {
	if rawjson.Kind([]byte(text)) != "object" {
		return text
	}
	fields, err := rawjson.Fields([]byte(text))
	if err != nil {
		return text
	}
	for _, f := range fields {
		if s, ok := rawjson.Text(f.Value); ok && directive.MatchString(s) {
			return s
		}
	}
	return ""
}
