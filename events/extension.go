package events

import (
	"bytes"
	"encoding"
	"fmt"
	"reflect"
	"slices"
	"sync"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// What a capability needs to keep its own documents (payloads, policies, decisions) under the rules of the contract.

// DecodeValue reads a document of a capability as strictly as [Decode], shaped by the fields of T: its members
// exactly, none twice, plain integers. A pointer, a [jsontext.Value] or an [Optional] may be null, nothing else.
// The values themselves are for the caller to check. The error is a [*DecodeError].
func DecodeValue[T any](data []byte) (*T, error) {
	v := new(T)
	if _, err := decodeInto(data, v); err != nil {
		return nil, err
	}
	return v, nil
}

// EncodeValue writes any value in canonical form (RFC 8785), under the contract's limits on depth and numbers.
//
// A struct whose fields stand in canonical order, made of what documents are made of (strings, integers, flags, slices,
// other structs), is written at once. Anything else costs several times as much.
func EncodeValue(v any) ([]byte, error) {
	if out, ok := encodeShaped(v); ok {
		return out, nil
	}
	out, err := json.Marshal(v, json.Deterministic(true))
	if err != nil {
		return nil, fmt.Errorf("events: encode %T: %w", v, err)
	}
	return Canonicalize(out)
}

// encodeShaped writes v as a document is written. It never finds a fault: what it does not write, for whatever reason,
// is for the JSON library, which writes what this does as this does; a test holds that.
func encodeShaped(v any) ([]byte, bool) {
	t := reflect.TypeOf(v)
	if !isShaped(t) {
		return nil, false
	}
	w := newWriter()
	defer w.release()
	if err := w.value(shapeOf(t), reflect.ValueOf(v)); err != nil {
		return nil, false
	}
	// The fields of a type that is not ours may stand in any order, and its integers be of any size.
	if canonical, fault := checkLimits(w.out, 0); fault != nil || !canonical {
		return nil, false
	}
	return bytes.Clone(w.out), true
}

var shaped sync.Map // reflect.Type → bool

// isShaped reports whether t is a struct, or a pointer to one, whose JSON its fields and their tags say all about.
func isShaped(t reflect.Type) bool {
	if t == nil {
		return false
	}
	if is, ok := shaped.Load(t); ok {
		return is.(bool)
	}
	target := t
	if t.Kind() == reflect.Pointer {
		target = t.Elem()
	}
	is := target.Kind() == reflect.Struct && canShape(t, nil)
	shaped.Store(t, is)
	return is
}

// canShape reports whether the shape of t says how the JSON library writes one: that of no type that writes itself, and
// of no tag but a plain name, and of none that holds itself. around are the types that t stands in.
func canShape(t reflect.Type, around []reflect.Type) bool {
	if slices.Contains(around, t) {
		return false
	}
	around = append(slices.Clip(around), t)
	if t == reflect.TypeFor[jsontext.Value]() || t == reflect.TypeFor[Optional]() {
		return true
	}
	if writesItself(t) {
		return false
	}
	switch t.Kind() {
	case reflect.String, reflect.Bool, reflect.Int, reflect.Int64:
		return true
	case reflect.Slice:
		return canShape(t.Elem(), around)
	case reflect.Pointer:
		return t.Elem().Kind() == reflect.Struct && canShape(t.Elem(), around)
	case reflect.Struct:
		return canShapeFields(t, around)
	default:
		return false
	}
}

func canShapeFields(t reflect.Type, around []reflect.Type) bool {
	for f := range t.Fields() {
		name := f.Tag.Get("json")
		plain := name != "" && leading(name, func(c byte) bool { return isAlnum(c) || c == '_' }) == name
		if f.Anonymous || !f.IsExported() || !plain || !canShape(f.Type, around) {
			return false
		}
	}
	return 0 < t.NumField() && t.NumField() <= maxMembers
}

// writesItself reports whether the JSON library would ask t, or knows it by name.
func writesItself(t reflect.Type) bool {
	pointer := reflect.PointerTo(t)
	return t.PkgPath() == "time" ||
		pointer.Implements(reflect.TypeFor[json.MarshalerTo]()) || pointer.Implements(reflect.TypeFor[json.Marshaler]()) ||
		pointer.Implements(reflect.TypeFor[encoding.TextMarshaler]()) || pointer.Implements(reflect.TypeFor[encoding.TextAppender]())
}

// IsTimestamp reports whether s is an RFC 3339 time with an offset.
func IsTimestamp(s string) bool { return Timestamp(s).validate(nil) == nil }
