package events

import (
	"reflect"
	"unicode/utf8"
)

// Check says of a document that was made, and not decoded, what [Decode] would say of it: a receiver will take what
// [Canonical] writes of it, if Check finds nothing. Its payloads must be in canonical form, as [EncodeValue] writes them.
// The error is a [*DecodeError].
func Check[T any, D document[T]](doc D) error {
	v := reflect.ValueOf((*T)(doc))
	fault := checkValue(shapeOf(v.Type()), v, 0)
	if fault == nil {
		fault = doc.validate(nil)
	}
	if fault == nil {
		return nil
	}
	return fault
}

// checkValue finds what a Go value of the shape can hold and a document cannot. No shape of ours nests too deep: only a
// payload can.
func checkValue(s *shape, v reflect.Value, depth int) *DecodeError {
	if s.pointer {
		if v.IsNil() {
			return nil
		}
		v = v.Elem()
	}
	switch s.kind {
	case shapeString:
		if !utf8.ValidString(v.String()) {
			return here.fault(FaultEncoding, "must be valid UTF-8")
		}
	case shapeInteger:
		if n := v.Int(); n < -maxInteger || n > maxInteger {
			return here.fault(FaultNumber, ruleNumber)
		}
	case shapeAny:
		_, err := checkLimits(v.Bytes(), depth)
		return err
	case shapeObject:
		for i := range s.members {
			m := &s.members[i]
			if err := checkValue(m.shape, v.Field(m.field), depth+1); err != nil {
				return err.within(here.member(m.name))
			}
		}
	case shapeArray:
		for i := range v.Len() {
			if err := checkValue(s.elem, v.Index(i), depth+1); err != nil {
				return err.within(here.index(i))
			}
		}
	case shapeBoolean:
	}
	return nil
}
