package events

import (
	"bytes"
	"errors"
	"io"
	"reflect"
	"strings"
	"sync"

	"github.com/go-json-experiment/json/jsontext"
)

const (
	maxDepth   = 32
	maxInteger = 1<<53 - 1
)

// decodeInto reads data into v, which is zero, without asking what its values mean. canonical says that data is in
// canonical form; where it is not said, it may still be.
func decodeInto[T any](data []byte, v *T) (canonical bool, err error) {
	text := string(data) // strings without escapes are parts of it, so that all of them cost one allocation
	if readCanonical(data, text, v) {
		return true, nil
	}
	var zero T
	*v = zero
	return false, readAny(data, text, v)
}

// readAny reads a document in whatever form JSON has. text is the data.
//
// It walks the tokens once and fills v as it goes. A typed decoder of JSON would not do: it takes null for a string and
// cannot tell that a member is missing, so the document would be walked twice.
func readAny[T any](data []byte, text string, v *T) error {
	r := readers.Get().(*reader)
	defer r.release()
	r.reset(data, text)
	if err := r.value(shapeOf(reflect.TypeFor[T]()), reflect.ValueOf(v).Elem(), 0); err != nil {
		return err
	}
	if _, err := r.dec.ReadToken(); !errors.Is(err, io.EOF) {
		return here.fault(FaultSyntax, "must be one JSON value and nothing after it")
	}
	return nil
}

// reader reads one document.
type reader struct {
	dec  jsontext.Decoder
	buf  bytes.Buffer
	text string
}

var readers = sync.Pool{New: func() any { return new(reader) }}

func (r *reader) reset(data []byte, text string) {
	r.buf = *bytes.NewBuffer(data)
	r.text = text
	// Duplicates are seen by who knows the members: object for a document's, the canonical form for a payload's.
	r.dec.Reset(&r.buf, jsontext.AllowDuplicateNames(true))
}

// release keeps the reader for the next document, and nothing of this one.
func (r *reader) release() {
	r.reset(nil, "")
	readers.Put(r)
}

// value reads the next value into v, whose shape is s. Faults get their path on the way out.
func (r *reader) value(s *shape, v reflect.Value, depth int) *DecodeError {
	switch s.kind {
	case shapeAny:
		return r.any(v, depth)
	case shapeObject, shapeArray:
		return r.composite(s, v, depth)
	case shapeString, shapeInteger, shapeBoolean:
	}
	raw, err := r.dec.ReadValue()
	if err != nil {
		return syntaxFault(err)
	}
	v, fault := s.place(v, raw.Kind())
	if fault != nil || !v.IsValid() {
		return fault
	}
	return r.scalar(s, v, raw)
}

// composite reads an object or an array, or null in its place.
func (r *reader) composite(s *shape, v reflect.Value, depth int) *DecodeError {
	kind := r.dec.PeekKind()
	if kind == jsontext.KindInvalid {
		_, err := r.dec.ReadToken()
		return syntaxFault(err)
	}
	v, fault := s.place(v, kind)
	switch {
	case fault != nil:
		return fault
	case v.IsValid() && depth == maxDepth:
		return here.fault(FaultTooDeep, ruleDepth)
	}
	if _, err := r.dec.ReadToken(); err != nil || !v.IsValid() {
		return syntaxFault(err)
	}
	if s.kind == shapeObject {
		return r.object(s, v, depth)
	}
	return r.array(s, v, depth)
}

// place gives where a value goes that is to go to v and begins with a token of the kind: nowhere, if that is null.
func (s *shape) place(v reflect.Value, kind jsontext.Kind) (reflect.Value, *DecodeError) {
	switch {
	case kind == jsontext.KindNull && s.nullable:
		v.SetZero()
		return reflect.Value{}, nil
	case kind == jsontext.KindNull:
		return v, here.fault(FaultWrongType, "must not be null")
	case kind != s.kind.json() && (s.kind != shapeBoolean || kind != jsontext.KindFalse):
		return v, here.fault(FaultWrongType, s.kind.wanted())
	case s.pointer:
		v.Set(reflect.New(s.goType))
		return v.Elem(), nil
	}
	return v, nil
}

// scalar stores raw, the value just read, in v.
func (r *reader) scalar(s *shape, v reflect.Value, raw jsontext.Value) *DecodeError {
	switch s.kind {
	case shapeString:
		text, err := r.unquote(raw)
		if err != nil {
			return syntaxFault(err)
		}
		if text == "" && s.nullable && !s.pointer {
			return here.bad("must be null or a string that is not empty")
		}
		v.SetString(text)
	case shapeInteger:
		n, ok := plainInteger(raw)
		if !ok || v.OverflowInt(n) {
			return here.fault(FaultNumber, ruleNumber)
		}
		v.SetInt(n)
	case shapeBoolean:
		v.SetBool(raw[0] == 't')
	case shapeAny, shapeObject, shapeArray:
	}
	return nil
}

// object reads the members of an object, its brace read.
func (r *reader) object(s *shape, v reflect.Value, depth int) *DecodeError {
	var seen memberSet
	i := -1
	for r.dec.PeekKind() != '}' {
		raw, err := r.dec.ReadValue()
		if err != nil {
			return syntaxFault(err)
		}
		if i, err = r.member(s, i+1, raw); err != nil {
			return syntaxFault(err)
		}
		if i < 0 {
			return here.fault(FaultUnknownMember, "must not have members that the document does not know")
		}
		m := &s.members[i]
		if !seen.add(i) {
			return here.member(m.name).fault(FaultDuplicateMember, "must not be there twice")
		}
		if err := r.value(m.shape, v.Field(m.field), depth+1); err != nil {
			return err.within(here.member(m.name))
		}
	}
	if missing := seen.first(len(s.members)); missing >= 0 {
		return here.member(s.members[missing].name).missing()
	}
	_, err := r.dec.ReadToken()
	return syntaxFault(err)
}

// member is the place of the member that raw, the value just read, names; -1 if there is none. In canonical form it is
// the next one.
func (r *reader) member(s *shape, next int, raw jsontext.Value) (int, error) {
	inside := raw[1 : len(raw)-1]
	if next < len(s.members) && s.members[next].name == string(inside) {
		return next, nil
	}
	if i, known := s.index[string(inside)]; known {
		return i, nil
	}
	name, err := r.unquote(raw)
	if i, known := s.index[name]; known {
		return i, err
	}
	return -1, err
}

// array reads the elements of an array, its bracket read.
func (r *reader) array(s *shape, v reflect.Value, depth int) *DecodeError {
	v.Set(s.empty)
	for i := 0; r.dec.PeekKind() != ']'; i++ {
		if i == v.Cap() {
			v.Grow(max(i, s.few))
		}
		v.SetLen(i + 1)
		if err := r.value(s.elem, v.Index(i), depth+1); err != nil {
			return err.within(here.index(i))
		}
	}
	_, err := r.dec.ReadToken()
	return syntaxFault(err)
}

// any reads a value of any shape within the limits, and brings it into its canonical form. Its members' names are
// not repeated in errors: they are the sender's text.
func (r *reader) any(v reflect.Value, depth int) *DecodeError {
	raw, err := r.dec.ReadValue()
	if err != nil {
		return syntaxFault(err)
	}
	canonical, fault := checkLimits(raw, depth)
	if fault != nil {
		return fault
	}
	value := raw.Clone()
	if !canonical {
		if err := value.Canonicalize(); err != nil {
			return syntaxFault(err)
		}
	}
	v.SetBytes(value)
	return nil
}

// unquote gives the string that raw, the value just read, stands for.
func (r *reader) unquote(raw jsontext.Value) (string, error) {
	if bytes.IndexByte(raw, '\\') < 0 {
		end := int(r.dec.InputOffset()) - 1
		return r.text[end-len(raw)+2 : end], nil
	}
	text, err := jsontext.AppendUnquote(nil, raw)
	return string(text), err
}

// checkLimits finds numbers and depths that the contract does not have in raw, which is valid JSON. It also reports
// whether raw is certainly in canonical form: no blank, no escape, members in order. So most payloads are not walked
// again to bring them into it.
func checkLimits(raw jsontext.Value, depth int) (canonical bool, _ *DecodeError) {
	canonical = true
	var last [maxDepth + 1][]byte // the last name in each of the objects around
	for i := 0; i < len(raw); i++ {
		switch c := raw[i]; c {
		case ' ', '\t', '\n', '\r':
			canonical = false
		case '"':
			start := i + 1
			i = start + bytes.IndexByte(raw[start:], '"')
			plain := !needsEscape(raw[start:i])
			if !plain { // the quote found may be an escaped one
				for i = start; raw[i] != '"'; i++ {
					if raw[i] == '\\' {
						canonical = false
						i++
					}
				}
			}
			if i+1 == len(raw) || raw[i+1] != ':' {
				break
			}
			// The order is that of UTF-16, which is that of the bytes in ASCII.
			name := raw[start:i]
			canonical = canonical && plain && (last[depth] == nil || bytes.Compare(last[depth], name) < 0)
			last[depth] = name
		case '{', '[':
			if depth++; depth > maxDepth {
				return false, here.fault(FaultTooDeep, ruleDepth)
			}
			last[depth] = nil
		case '}', ']':
			depth--
		case '-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9':
			end := i
			for end < len(raw) && strings.IndexByte("+-.eE0123456789", raw[end]) >= 0 {
				end++
			}
			if _, ok := plainInteger(raw[i:end]); !ok {
				return false, here.fault(FaultNumber, "must hold no number but "+ruleInteger)
			}
			i = end - 1
		}
	}
	return canonical, nil
}

const (
	ruleInteger = "plain integers within ±(2^53−1)"
	ruleNumber  = "must be a plain integer within ±(2^53−1)"
	ruleDepth   = "must not nest deeper than 32 levels"
)

// syntaxFault says what the tokenizer found; nil where it found nothing.
func syntaxFault(err error) *DecodeError {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, jsontext.ErrDuplicateName):
		return here.fault(FaultDuplicateMember, "must not have a member twice")
	case strings.Contains(err.Error(), "UTF-8") || strings.Contains(err.Error(), "surrogate"):
		return here.fault(FaultEncoding, "must be valid UTF-8")
	case strings.Contains(err.Error(), "depth"):
		return here.fault(FaultTooDeep, ruleDepth)
	}
	return here.fault(FaultSyntax, "must be valid JSON")
}

// plainInteger reads a number token that is an integer as RFC 8785 would write it, within ±(2^53−1).
func plainInteger(token []byte) (n int64, ok bool) {
	digits := token
	if len(digits) > 1 && digits[0] == '-' {
		digits = digits[1:]
	}
	if len(digits) > len("9007199254740991") || digits[0] == '0' && len(token) > 1 {
		return 0, false
	}
	for _, c := range digits {
		if !isDigit(c) {
			return 0, false
		}
		n = n*10 + int64(c-'0')
	}
	if len(digits) < len(token) {
		return -n, n <= maxInteger
	}
	return n, n <= maxInteger
}
