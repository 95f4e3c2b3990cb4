package events

import (
	"errors"
	"strconv"
	"strings"
)

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

var errOptional = errors.New("must be null or a string that is not empty")

// path leads from the document to a member of it.
type path []string

func (p path) member(name string) path { return append(p[:len(p):len(p)], name) }
func (p path) index(i int) path        { return append(p, "["+strconv.Itoa(i)+"]") }

func (p path) String() string {
	var b strings.Builder
	for i, step := range p {
		if i > 0 && step[0] != '[' {
			b.WriteByte('.')
		}
		b.WriteString(step)
	}
	return b.String()
}

func (p path) fault(fault Fault, rule string) *DecodeError {
	return &DecodeError{Fault: fault, Path: p.String(), Rule: rule}
}

func (p path) bad(rule string) *DecodeError { return p.fault(FaultValue, rule) }

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
