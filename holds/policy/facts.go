package policy

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"strconv"
	"strings"

	"cel.dev/cel-go/cel"

	"agentos/internal/rawjson"
)

// Requester is who asked for a run, from the credential.
type Requester struct {
	Name   string
	Groups []string
}

// Run is what a condition may know of the run a call belongs to.
type Run struct {
	ID, Agent, Capability, SessionID, Env string
}

// facts are the variables of conditions about one call, made when a condition
// first needs them.
type facts struct {
	call  *Call
	args  *object
	input *object
}

// object is a decoded JSON object, or why it cannot be used.
type object struct {
	value any
	err   error
}

// variables returns what c looks at, as CEL takes it.
func (f *facts) variables(c *Condition) (cel.Activation, error) {
	if c.args && f.args == nil {
		f.args = readObject("args", f.call.Args)
	}
	if c.input && f.input == nil {
		f.input = readObject("input", f.call.Input)
	}
	if c.args && f.args.err != nil {
		return nil, f.args.err
	}
	if c.input && f.input.err != nil {
		return nil, f.input.err
	}
	return f, nil
}

// ResolveName returns the variable called name.
func (f *facts) ResolveName(name string) (any, bool) {
	switch name {
	case "args":
		return f.args.get()
	case "input":
		return f.input.get()
	case "requester.name":
		return f.call.Requester.Name, true
	case "requester.groups":
		return f.call.Requester.Groups, true
	case "run.id":
		return f.call.Run.ID, true
	case "run.agent":
		return f.call.Run.Agent, true
	case "run.capability":
		return f.call.Run.Capability, true
	case "run.session_id":
		return f.call.Run.SessionID, true
	case "run.env":
		return f.call.Run.Env, true
	}
	return nil, false
}

// Parent says that there are no other variables.
func (*facts) Parent() cel.Activation { return nil }

func (o *object) get() (any, bool) {
	if o == nil || o.err != nil {
		return nil, false
	}
	return o.value, true
}

func readObject(name string, raw json.RawMessage) *object {
	if rawjson.Kind(raw) != "object" {
		return &object{err: fmt.Errorf("%s is no object", name)}
	}
	v, err := rawjson.Parse(raw)
	if err == nil {
		v, err = exact(v)
	}
	if err != nil {
		return &object{err: fmt.Errorf("%s: %w", name, err)}
	}
	return &object{value: v}
}

// exact replaces the numbers in v by what CEL compares exactly. A number that
// has no such value makes the whole object unusable: a comparison with its
// neighbour would decide about another call than the one that runs.
func exact(v any) (any, error) {
	var err error
	switch v := v.(type) {
	case json.Number:
		return number(string(v))
	case []any:
		for i := range v {
			if v[i], err = exact(v[i]); err != nil {
				return nil, err
			}
		}
	case map[string]any:
		for name := range v {
			if v[name], err = exact(v[name]); err != nil {
				return nil, err
			}
		}
	}
	return v, nil
}

var errInexact = errors.New("a number cannot be compared exactly")

// maxDouble is where doubles begin to lie as far apart as integers.
const maxDouble = 1 << 53

// number returns an int64 or a uint64 for a text that is an integer. For a
// fraction or an exponent it returns a double, provided that the shortest text of
// the double is the same number and comparing it with an integer is exact.
func number(text string) (any, error) {
	if !strings.ContainsAny(text, ".eE") {
		if n, err := strconv.ParseInt(text, 10, 64); err == nil {
			return n, nil
		}
		if n, err := strconv.ParseUint(text, 10, 64); err == nil {
			return n, nil
		}
		return nil, errInexact
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil || f >= maxDouble || f <= -maxDouble {
		return nil, errInexact
	}
	want, ok := new(big.Rat).SetString(text)
	got, same := new(big.Rat).SetString(strconv.FormatFloat(f, 'g', -1, 64))
	if !ok || !same || want.Cmp(got) != 0 {
		return nil, errInexact
	}
	return f, nil
}
