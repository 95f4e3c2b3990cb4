package events

import "strconv"

// Fault is the kind of rule that a refused document breaks.
type Fault string

const (
	// FaultSyntax: not one JSON value.
	FaultSyntax Fault = "syntax"
	// FaultEncoding: not valid UTF-8, or a lone surrogate.
	FaultEncoding Fault = "encoding"
	// FaultDuplicateMember: a member stands twice in an object.
	FaultDuplicateMember Fault = "duplicate_member"
	// FaultUnknownMember: a member that the document does not have.
	FaultUnknownMember Fault = "unknown_member"
	// FaultMissingMember: a member that the document has is absent.
	FaultMissingMember Fault = "missing_member"
	// FaultTooDeep: more than 32 levels.
	FaultTooDeep Fault = "too_deep"
	// FaultNumber: a number token that is not a plain integer within ±(2^53−1).
	FaultNumber Fault = "number"
	// FaultWrongType: another JSON type than the member has.
	FaultWrongType Fault = "wrong_type"
	// FaultValue: the right type and a value outside its documented form.
	FaultValue Fault = "value"
)

// DecodeError says which member of a document breaks which rule. It never repeats a value of the document, nor a
// name that the document does not know, so it may be logged and shown.
type DecodeError struct {
	Fault Fault
	// Path is the member, as in receipt.committed_at or intents[0].payload; empty for the document itself.
	Path string
	// Rule is the rule, as in "must be a name".
	Rule string
}

func (e *DecodeError) Error() string {
	if e.Path == "" {
		return "the document " + e.Rule
	}
	return e.Path + " " + e.Rule
}

// path leads from the document to a member of it; nil is the document. It is a chain that grows at its end, and that
// the compiler can keep on the stack: a document that breaks no rule pays nothing for the paths to its members.
type path = *step

type step struct {
	parent  path
	name    string // of a member; "" for an element
	element int
}

// here is the path to what is looked at, from itself.
var here path

func (p *step) member(name string) path { return &step{parent: p, name: name} }
func (p *step) index(i int) path        { return &step{parent: p, element: i} }

func (p *step) String() string { return string(p.appendTo(nil)) }

// appendTo copies the names. Were it to return one, the compiler would have to keep every path on the heap.
func (p *step) appendTo(b []byte) []byte {
	if p == nil {
		return b
	}
	b = p.parent.appendTo(b)
	if p.name == "" {
		b = append(b, '[')
		b = strconv.AppendInt(b, int64(p.element), 10)
		return append(b, ']')
	}
	if len(b) > 0 {
		b = append(b, '.')
	}
	return append(b, p.name...)
}

func (p *step) fault(fault Fault, rule string) *DecodeError {
	return &DecodeError{Fault: fault, Path: p.String(), Rule: rule}
}

// within says that the member of the fault stands in what p leads to.
func (e *DecodeError) within(p path) *DecodeError {
	outer := p.String()
	if e.Path != "" && e.Path[0] != '[' {
		outer += "."
	}
	e.Path = outer + e.Path
	return e
}

func (p *step) missing() *DecodeError { return p.fault(FaultMissingMember, "must be present") }

func (p *step) bad(rule string) *DecodeError { return p.fault(FaultValue, rule) }

// wantSchema checks a schema version.
func wantSchema(at path, got, want string) *DecodeError {
	if got != want {
		return at.member("schema_version").bad("must be " + strconv.Quote(want))
	}
	return nil
}

func wantName(at path, s string) *DecodeError {
	if !IsName(s) {
		return at.bad("must be a name")
	}
	return nil
}
