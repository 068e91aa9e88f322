package policy

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
)

// Limits of a condition. The cost limit counts steps of evaluation, about 70 ns
// each, so that no arguments make a condition take longer than some 15 ms; a
// megabyte of text can still be searched once.
const (
	maxCondition = 4096
	maxDepth     = 60
	costLimit    = 200_000
	maxFaults    = 3
)

// Condition is a compiled `when`: a CEL expression that is true or false for a
// call (https://github.com/google/cel-spec). It is safe for concurrent use.
type Condition struct {
	text    string
	program cel.Program
	// args and input say whether the expression looks at them; what it does not
	// look at need not be readable.
	args, input bool
}

// CompileCondition compiles text, which may use
//
//	args             the arguments of the call, an object
//	input            the input of the run, an object
//	requester.name   who asked for the run
//	requester.groups their groups, a list of strings
//	run.id, run.agent, run.capability, run.session_id, run.env
//
// and must be true or false. The error says where in text the fault is, as
// line:column, both counted from 1.
func CompileCondition(text string) (*Condition, error) {
	if len(text) > maxCondition {
		return nil, fmt.Errorf("is longer than %d bytes", maxCondition)
	}
	if strings.TrimSpace(text) == "" || !utf8.ValidString(text) {
		return nil, errors.New("must be a CEL expression, such as args.amount > 100")
	}
	env, err := cel.NewEnv(
		cel.Variable("args", cel.MapType(cel.StringType, cel.DynType)),
		cel.Variable("input", cel.MapType(cel.StringType, cel.DynType)),
		cel.Variable("requester.name", cel.StringType),
		cel.Variable("requester.groups", cel.ListType(cel.StringType)),
		cel.Variable("run.id", cel.StringType),
		cel.Variable("run.agent", cel.StringType),
		cel.Variable("run.capability", cel.StringType),
		cel.Variable("run.session_id", cel.StringType),
		cel.Variable("run.env", cel.StringType),
		cel.OptionalTypes(),
		cel.ParserRecursionLimit(maxDepth),
	)
	if err != nil {
		return nil, err
	}
	ast, issues := env.Compile(text)
	if issues.Err() != nil {
		return nil, faultsOf(issues)
	}
	if !ast.OutputType().IsExactType(cel.BoolType) {
		return nil, fmt.Errorf("must be true or false, not %s; compare it with something", ast.OutputType())
	}
	program, err := env.Program(ast, cel.CostLimit(costLimit), cel.CostTracking(prices{}), cel.EvalOptions(cel.OptOptimize))
	if err != nil {
		return nil, errors.New(oneLine(err.Error()))
	}
	c := &Condition{text: text, program: program}
	for _, ref := range ast.NativeRep().ReferenceMap() {
		c.args = c.args || ref.Name == "args"
		c.input = c.input || ref.Name == "input"
	}
	return c, nil
}

// String returns the expression as it was written.
func (c *Condition) String() string { return c.text }

// prices says what calls cost that the library has no price for: those whose
// operands have no type before they are evaluated, such as args.a + args.b. Left
// to itself it takes them for a single step, whatever their size.
type prices struct{}

// CallCost returns the price of an untyped call by the size of its operands, and
// nil for every other.
func (prices) CallCost(_, overload string, args []ref.Val, _ ref.Val) *uint64 {
	if overload != "" {
		return nil
	}
	price := 1
	for _, arg := range args {
		switch arg := arg.(type) {
		case types.String:
			price += len(arg) / 10
		case types.Bytes:
			price += len(arg) / 10
		case traits.Sizer:
			if n, ok := arg.Size().(types.Int); ok {
				price += int(n)
			}
		}
	}
	sum := uint64(max(price, 1))
	return &sum
}

func faultsOf(issues *cel.Issues) error {
	var faults []string
	for _, e := range issues.Errors() {
		if len(faults) == maxFaults {
			break
		}
		fault := oneLine(e.Message)
		if at := e.Location; at.Line() > 0 {
			fault = fmt.Sprintf("%d:%d: %s", at.Line(), at.Column()+1, fault)
		}
		faults = append(faults, fault)
	}
	return errors.New(strings.Join(slices.Compact(faults), "; "))
}

// holds reports whether the condition is true for the call. An error means that
// nobody knows: a member is missing or of another type, a number has no exact
// value, or the evaluation took too long.
func (c *Condition) holds(f *facts) (bool, error) {
	vars, err := f.variables(c)
	if err != nil {
		return false, err
	}
	result, _, err := c.program.Eval(vars)
	if err != nil {
		return false, errors.New(oneLine(err.Error()))
	}
	yes, ok := result.(types.Bool)
	if !ok {
		return false, fmt.Errorf("it is neither true nor false but %s", result.Type().TypeName())
	}
	return bool(yes), nil
}

// maxFault bounds, in bytes, what is told of a fault: the text may hold a piece
// of the arguments.
const maxFault = 200

func oneLine(s string) string {
	s = strings.Join(strings.Fields(strings.ToValidUTF8(s, "?")), " ")
	if len(s) > maxFault {
		s = strings.ToValidUTF8(s[:maxFault], "") + "…"
	}
	return s
}
