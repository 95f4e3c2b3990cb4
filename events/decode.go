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

// decodeInto reads data into v without asking what its values mean.
//
// It walks the tokens once and fills v as it goes. A typed decoder of JSON would not do: it takes null for a string and
// cannot tell that a member is missing, so the document would be walked twice.
func decodeInto[T any](data []byte, v *T) error {
	r := readers.Get().(*reader)
	defer r.release()
	r.reset(data)
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
	data []byte
	// text is the data, once it is needed. Strings without escapes are parts of it, so that all of them cost one allocation.
	text string
}

var readers = sync.Pool{New: func() any { return new(reader) }}

func (r *reader) reset(data []byte) {
	r.buf = *bytes.NewBuffer(data)
	r.data, r.text = data, ""
	// Duplicates are seen by who knows the members: object for a document's, the canonical form for a payload's.
	r.dec.Reset(&r.buf, jsontext.AllowDuplicateNames(true))
}

// release keeps the reader for the next document, and nothing of this one.
func (r *reader) release() {
	r.reset(nil)
	readers.Put(r)
}

// value reads the next value into v, whose shape is s. Faults get their path on the way out.
func (r *reader) value(s *shape, v reflect.Value, depth int) *DecodeError {
	kind := r.dec.PeekKind()
	if kind == 0 {
		_, err := r.dec.ReadToken()
		return syntaxFault(err)
	}
	if s.kind == shapeAny {
		return r.any(v, depth)
	}
	if kind == 'n' {
		if !s.nullable {
			return here.fault(FaultWrongType, "must not be null")
		}
		_, err := r.dec.ReadToken()
		v.SetZero()
		return syntaxFault(err)
	}
	if kind != s.kind.json() && (s.kind != shapeBoolean || kind != 'f') {
		return here.fault(FaultWrongType, s.kind.wanted())
	}
	if s.pointer {
		v.Set(reflect.New(s.goType))
		v = v.Elem()
	}
	switch s.kind {
	case shapeObject:
		return r.object(s, v, depth)
	case shapeArray:
		return r.array(s, v, depth)
	case shapeAny, shapeString, shapeInteger, shapeBoolean:
	}
	raw, err := r.dec.ReadValue()
	if err != nil {
		return syntaxFault(err)
	}
	return r.scalar(s, v, raw)
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

func (r *reader) object(s *shape, v reflect.Value, depth int) *DecodeError {
	if err := r.enter(depth); err != nil {
		return err
	}
	var seen memberSet
	for r.dec.PeekKind() != '}' {
		raw, err := r.dec.ReadValue()
		if err != nil {
			return syntaxFault(err)
		}
		i, known := s.index[string(raw[1:len(raw)-1])]
		if !known {
			name, err := r.unquote(raw)
			if err != nil {
				return syntaxFault(err)
			}
			if i, known = s.index[name]; !known {
				return here.fault(FaultUnknownMember, "must not have members that the document does not know")
			}
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

func (r *reader) array(s *shape, v reflect.Value, depth int) *DecodeError {
	if err := r.enter(depth); err != nil {
		return err
	}
	v.Set(reflect.MakeSlice(s.goType, 0, 0))
	for i := 0; r.dec.PeekKind() != ']'; i++ {
		if i == v.Cap() {
			v.Grow(1)
		}
		v.SetLen(i + 1)
		if err := r.value(s.elem, v.Index(i), depth+1); err != nil {
			return err.within(here.index(i))
		}
	}
	_, err := r.dec.ReadToken()
	return syntaxFault(err)
}

// enter reads the beginning of an object or array that stands within depth others.
func (r *reader) enter(depth int) *DecodeError {
	if depth == maxDepth {
		return here.fault(FaultTooDeep, ruleDepth)
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
	if err := checkLimits(raw, depth); err != nil {
		return err
	}
	value := raw.Clone()
	if err := value.Canonicalize(); err != nil {
		return syntaxFault(err)
	}
	v.SetBytes(value)
	return nil
}

// last is raw, the value just read, as a part of the data: it stays when the next one is read.
func (r *reader) last(raw jsontext.Value) []byte {
	end := int(r.dec.InputOffset())
	return r.data[end-len(raw) : end]
}

// unquote gives the string that raw, the value just read, stands for.
func (r *reader) unquote(raw jsontext.Value) (string, error) {
	if bytes.IndexByte(raw, '\\') < 0 {
		if r.text == "" {
			r.text = string(r.data)
		}
		end := int(r.dec.InputOffset()) - 1
		return r.text[end-len(raw)+2 : end], nil
	}
	text, err := jsontext.AppendUnquote(nil, raw)
	return string(text), err
}

// checkLimits finds numbers and depths that the contract does not have in raw, which is valid JSON.
func checkLimits(raw jsontext.Value, depth int) *DecodeError {
	for i := 0; i < len(raw); i++ {
		switch c := raw[i]; c {
		case '"':
			for i++; raw[i] != '"'; i++ {
				if raw[i] == '\\' {
					i++
				}
			}
		case '{', '[':
			if depth++; depth > maxDepth {
				return here.fault(FaultTooDeep, ruleDepth)
			}
		case '}', ']':
			depth--
		case '-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9':
			end := i
			for end < len(raw) && strings.IndexByte("+-.eE0123456789", raw[end]) >= 0 {
				end++
			}
			if _, ok := plainInteger(raw[i:end]); !ok {
				return here.fault(FaultNumber, "must hold no number but "+ruleInteger)
			}
			i = end - 1
		}
	}
	return nil
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
