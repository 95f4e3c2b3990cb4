package events

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"sync"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

const (
	maxDepth   = 32
	maxInteger = 1<<53 - 1
)

// document is what the codec reads and writes. Its struct fields stand in the order of their JSON names, so that
// encoding it yields the canonical form of RFC 8785 and nothing needs to be sorted at run time; a test holds this.
type document[T any] interface {
	*T
	validate(at path) *DecodeError
}

// Encode writes a document in its canonical form (RFC 8785).
//
// It fails only on a string that is not UTF-8 or a payload that is not JSON, which no decoded document holds.
func Encode[T any, D document[T]](doc D) ([]byte, error) {
	return encode(doc)
}

func encode(v any) ([]byte, error) {
	out, err := json.Marshal(v, json.Deterministic(true))
	if err != nil {
		return nil, fmt.Errorf("events: encode %T: %w", v, err)
	}
	return out, nil
}

func mustEncode(v any) []byte {
	out, err := encode(v)
	if err != nil {
		panic(err)
	}
	return out
}

// Decode reads a document strictly: its members exactly, no other and none twice, valid UTF-8, at most 32 levels
// deep, every number a plain integer within ±(2^53−1), every value of its documented form. What it returns encodes
// to the canonical form of data. The error is a [*DecodeError].
func Decode[T any, D document[T]](data []byte) (D, error) {
	doc := D(new(T))
	if err := decodeInto(data, reflect.TypeFor[T](), doc); err != nil {
		return nil, err
	}
	if err := doc.validate(nil); err != nil {
		return nil, err
	}
	return doc, nil
}

// decodeInto reads data into v, a pointer to t, without its validation.
func decodeInto(data []byte, t reflect.Type, v any) error {
	if err := shapeOf(t).check(data); err != nil {
		return err
	}
	// The shape was checked above, so the decoder need not look for duplicates and encoding faults again.
	err := json.Unmarshal(data, v, jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	if err == nil {
		return nil
	}
	at := path(nil)
	if semantic := (*json.SemanticError)(nil); errors.As(err, &semantic) {
		for token := range semantic.JSONPointer.Tokens() {
			at = append(at, token)
		}
	}
	return at.fault(FaultWrongType, "has a value of the wrong type")
}

// Canonicalize gives the canonical form (RFC 8785) of any JSON value that keeps the contract's limits:
// no duplicate members, valid UTF-8, depth, plain integers. The error is a [*DecodeError].
func Canonicalize(data []byte) ([]byte, error) {
	if err := (&shape{kind: shapeAny, nullable: true}).check(data); err != nil {
		return nil, err
	}
	value := jsontext.Value(bytes.Clone(data))
	if err := value.Canonicalize(); err != nil {
		return nil, fmt.Errorf("events: canonicalize: %w", err)
	}
	return value, nil
}

// shape is what the structure of a document must be, compiled once from its Go type.
type shape struct {
	kind     shapeKind
	nullable bool
	members  map[string]*shape
	elem     *shape
}

type shapeKind int

const (
	// shapeLeaf: the typed decoder checks it.
	shapeLeaf shapeKind = iota
	// shapeAny: any JSON within the limits.
	shapeAny
	// shapeObject: exactly these members.
	shapeObject
	// shapeArray: elements of one shape.
	shapeArray
)

var shapes sync.Map // reflect.Type → *shape

func shapeOf(t reflect.Type) *shape {
	if s, ok := shapes.Load(t); ok {
		return s.(*shape)
	}
	s, _ := shapes.LoadOrStore(t, compileShape(t))
	return s.(*shape)
}

func compileShape(t reflect.Type) *shape {
	switch {
	case t == reflect.TypeFor[jsontext.Value]():
		return &shape{kind: shapeAny, nullable: true}
	case t == reflect.TypeFor[Optional]():
		return &shape{kind: shapeLeaf, nullable: true}
	case t.Kind() == reflect.Pointer:
		s := compileShape(t.Elem())
		s.nullable = true
		return s
	case t.Kind() == reflect.Slice:
		return &shape{kind: shapeArray, elem: compileShape(t.Elem())}
	case t.Kind() == reflect.Struct:
		s := &shape{kind: shapeObject, members: make(map[string]*shape, t.NumField())}
		for i := range t.NumField() {
			name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
			s.members[name] = compileShape(t.Field(i).Type)
		}
		return s
	}
	return &shape{kind: shapeLeaf}
}

// check walks data once and finds every fault of structure. Whether a scalar has the right type it leaves to the
// typed decoder, which would take null for any of them.
func (s *shape) check(data []byte) error {
	dec := jsontext.NewDecoder(bytes.NewBuffer(data))
	w := walker{dec: dec}
	if err := w.value(s, 0); err != nil {
		return err
	}
	if _, err := dec.ReadToken(); !errors.Is(err, io.EOF) {
		return path(nil).fault(FaultSyntax, "must be one JSON value and nothing after it")
	}
	return nil
}

type walker struct {
	dec *jsontext.Decoder
	at  path
}

func (w *walker) value(s *shape, depth int) *DecodeError {
	tok, err := w.dec.ReadToken()
	if err != nil {
		return w.syntax(err)
	}
	switch tok.Kind() {
	case '{', '[':
		if depth == maxDepth {
			return w.at.fault(FaultTooDeep, "must not nest deeper than 32 levels")
		}
		if tok.Kind() == '{' {
			return w.object(s, depth+1)
		}
		return w.array(s, depth+1)
	case 'n':
		if !s.nullable {
			return w.at.fault(FaultWrongType, "must not be null")
		}
	case '0':
		if !plainInteger(tok.String()) {
			return w.at.fault(FaultNumber, "must be a plain integer within ±(2^53−1)")
		}
	}
	return nil
}

func (w *walker) object(s *shape, depth int) *DecodeError {
	if s.kind == shapeLeaf || s.kind == shapeArray {
		return w.at.fault(FaultWrongType, "has a value of the wrong type")
	}
	any := s.kind == shapeAny
	count := 0
	for w.dec.PeekKind() != '}' {
		tok, err := w.dec.ReadToken()
		if err != nil {
			return w.syntax(err)
		}
		member := s
		name := "*" // names in a payload are not repeated in errors: they are the provider's text
		if !any {
			name = tok.String()
			if member = s.members[name]; member == nil {
				return w.at.fault(FaultUnknownMember, "has a member that the document does not know")
			}
		}
		count++
		w.at = append(w.at, name)
		if err := w.value(member, depth); err != nil {
			return err
		}
		w.at = w.at[:len(w.at)-1]
	}
	if _, err := w.dec.ReadToken(); err != nil {
		return w.syntax(err)
	}
	// Members are known and distinct, so only a missing one can make the counts differ.
	if !any && count != len(s.members) {
		return w.at.fault(FaultMissingMember, "lacks a member of the document")
	}
	return nil
}

func (w *walker) array(s *shape, depth int) *DecodeError {
	elem := s
	switch s.kind {
	case shapeArray:
		elem = s.elem
	case shapeAny:
	case shapeLeaf, shapeObject:
		return w.at.fault(FaultWrongType, "has a value of the wrong type")
	}
	for i := 0; w.dec.PeekKind() != ']'; i++ {
		w.at = w.at.index(i)
		if err := w.value(elem, depth); err != nil {
			return err
		}
		w.at = w.at[:len(w.at)-1]
	}
	if _, err := w.dec.ReadToken(); err != nil {
		return w.syntax(err)
	}
	return nil
}

func (w *walker) syntax(err error) *DecodeError {
	switch {
	case errors.Is(err, jsontext.ErrDuplicateName):
		return w.at.fault(FaultDuplicateMember, "has a member twice")
	case strings.Contains(err.Error(), "UTF-8") || strings.Contains(err.Error(), "surrogate"):
		return w.at.fault(FaultEncoding, "must be valid UTF-8")
	}
	return w.at.fault(FaultSyntax, "must be valid JSON")
}

// plainInteger reports whether the number token is an integer as RFC 8785 would write it, within ±(2^53−1).
func plainInteger(token string) bool {
	digits := strings.TrimPrefix(token, "-")
	if digits == "0" {
		return len(token) == 1
	}
	if len(digits) > len("9007199254740991") {
		return false
	}
	n := uint64(0)
	for i := range len(digits) {
		if !isDigit(digits[i]) {
			return false
		}
		n = n*10 + uint64(digits[i]-'0')
	}
	return n <= maxInteger
}
