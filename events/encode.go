package events

import (
	"encoding/binary"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"sync"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// writer writes the canonical form of documents. The fields of a document stand in its order, so it writes them as they
// come.
type writer struct {
	out []byte
	// trusting: payloads are in canonical form, as decoding leaves them, and are written as they stand.
	trusting bool
}

var writers = sync.Pool{New: func() any { return new(writer) }}

// newWriter gives an empty writer, to be released once what it wrote has been copied or hashed.
func newWriter() *writer {
	w := writers.Get().(*writer)
	w.out, w.trusting = w.out[:0], false
	return w
}

func (w *writer) release() { writers.Put(w) }

// write writes v, which is made of what a document can hold.
func write[T any](w *writer, v *T) error {
	if err := w.value(shapeOf(reflect.TypeFor[*T]()), reflect.ValueOf(v)); err != nil {
		return fmt.Errorf("events: encode %T: %w", v, err)
	}
	return nil
}

// mustWrite writes v, whose payloads are in canonical form and whose strings are UTF-8.
func mustWrite[T any](w *writer, v *T) {
	w.trusting = true
	if err := write(w, v); err != nil {
		panic(err)
	}
}

// value writes v, whose shape is s. Faults get their path on the way out.
func (w *writer) value(s *shape, v reflect.Value) *DecodeError {
	if s.pointer {
		if v.IsNil() {
			w.out = append(w.out, "null"...)
			return nil
		}
		v = v.Elem()
	}
	switch s.kind {
	case shapeObject:
		return w.object(s, v)
	case shapeArray:
		return w.array(s, v)
	case shapeAny:
		return w.any(v.Bytes())
	case shapeString:
		if text := v.String(); text != "" || !s.nullable || s.pointer {
			return w.text(text)
		}
		w.out = append(w.out, "null"...)
	case shapeInteger:
		w.out = strconv.AppendInt(w.out, v.Int(), 10)
	case shapeBoolean:
		w.out = strconv.AppendBool(w.out, v.Bool())
	}
	return nil
}

func (w *writer) object(s *shape, v reflect.Value) *DecodeError {
	if len(s.members) == 0 {
		w.out = append(w.out, '{')
	}
	for i := range s.members {
		m := &s.members[i]
		w.out = append(w.out, m.label...)
		if err := w.value(m.shape, v.Field(m.field)); err != nil {
			return err.within(here.member(m.name))
		}
	}
	w.out = append(w.out, '}')
	return nil
}

func (w *writer) array(s *shape, v reflect.Value) *DecodeError {
	w.out = append(w.out, '[')
	for i := range v.Len() {
		if i > 0 {
			w.out = append(w.out, ',')
		}
		if err := w.value(s.elem, v.Index(i)); err != nil {
			return err.within(here.index(i))
		}
	}
	w.out = append(w.out, ']')
	return nil
}

func (w *writer) any(value jsontext.Value) *DecodeError {
	switch {
	case value == nil:
		value = jsontext.Value("null")
	case !w.trusting:
		var err error
		if value, err = Canonicalize(value); err != nil {
			fault, _ := errors.AsType[*DecodeError](err)
			return fault
		}
	}
	w.out = append(w.out, value...)
	return nil
}

func (w *writer) text(s string) *DecodeError {
	start := len(w.out)
	w.out = append(w.out, '"')
	w.out = append(w.out, s...)
	if needsEscape(w.out[start+1:]) {
		var err error
		w.out, err = jsontext.AppendQuote(w.out[:start], s)
		return syntaxFault(err)
	}
	w.out = append(w.out, '"')
	return nil
}

// needsEscape reports whether text is more than characters of ASCII that stand for themselves in JSON. Nearly all that
// is written is no more, so it looks at eight bytes at a time.
func needsEscape(text []byte) bool {
	if len(text) < 8 {
		return slices.ContainsFunc(text, func(c byte) bool {
			return c < ' ' || c == '"' || c == '\\' || c >= utf8.RuneSelf
		})
	}
	for ; len(text) > 8; text = text[min(8, len(text)-8):] {
		if anyNeedsEscape(text) {
			return true
		}
	}
	return anyNeedsEscape(text)
}

// anyNeedsEscape looks at the first eight bytes of text.
func anyNeedsEscape(text []byte) bool {
	const ones, high = 0x0101010101010101, 0x8080808080808080
	x := binary.LittleEndian.Uint64(text)
	// In a byte below 0x80, each difference has the high bit if the byte is below a space, a quote, a backslash.
	control, quote, backslash := x-' '*ones, (x^'"'*ones)-ones, (x^'\\'*ones)-ones
	return (x|control|quote|backslash)&high != 0
}
