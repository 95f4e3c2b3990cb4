package events

import (
	"bytes"
	"reflect"
)

// canonicalReader reads a document that is in canonical form and plain besides: no character but those of ASCII that
// stand for themselves. That is the form in which our own software writes nearly all documents, and it leaves nothing to
// interpret: every member has its place and every value one spelling.
//
// It never finds a fault. What it does not take, for whatever reason, is for reader to judge, which takes everything
// that this one takes; a test holds that.
type canonicalReader struct {
	data []byte
	text string // the data, where strings are kept of it
	at   int
}

// readCanonical fills v from data if that is a document in canonical form and plain. If not, v is left in between.
// text is the data.
func readCanonical[T any](data []byte, text string, v *T) bool {
	r := canonicalReader{data: data, text: text}
	return r.value(shapeOf(reflect.TypeFor[T]()), reflect.ValueOf(v).Elem(), 0) && r.at == len(data)
}

// take skips what stands next, if that is it.
func (r *canonicalReader) take(token string) bool {
	if len(r.data)-r.at < len(token) || string(r.data[r.at:r.at+len(token)]) != token {
		return false
	}
	r.at += len(token)
	return true
}

// next is the byte that stands next, 0 at the end.
func (r *canonicalReader) next() byte {
	if r.at == len(r.data) {
		return 0
	}
	return r.data[r.at]
}

// value reads the next value into v, which is zero and whose shape is s.
func (r *canonicalReader) value(s *shape, v reflect.Value, depth int) bool {
	if s.kind != shapeAny && s.nullable && r.take("null") {
		return true
	}
	if s.pointer {
		v.Set(reflect.New(s.goType))
		v = v.Elem()
	}
	switch s.kind {
	case shapeString:
		inside, ok := r.string()
		if !ok || len(inside) == 0 && s.nullable && !s.pointer {
			return false
		}
		end := r.at - len(`"`)
		v.SetString(r.text[end-len(inside) : end])
		return true
	case shapeBoolean:
		if r.take("true") {
			v.SetBool(true)
			return true
		}
		return r.take("false")
	case shapeInteger:
		n, ok := r.integer()
		v.SetInt(n)
		return ok && !v.OverflowInt(n)
	case shapeObject:
		return depth < maxDepth && r.object(s, v, depth)
	case shapeArray:
		return r.array(s, v, depth)
	case shapeAny:
		start := r.at
		if !r.any(depth) {
			return false
		}
		v.SetBytes(bytes.Clone(r.data[start:r.at]))
		return true
	}
	return false
}

func (r *canonicalReader) object(s *shape, v reflect.Value, depth int) bool {
	if len(s.members) == 0 {
		return r.take("{}")
	}
	for i := range s.members {
		m := &s.members[i]
		if !r.take(m.label) || !r.value(m.shape, v.Field(m.field), depth+1) {
			return false
		}
	}
	return r.take("}")
}

func (r *canonicalReader) array(s *shape, v reflect.Value, depth int) bool {
	v.Set(s.empty)
	_, ok := r.elements(depth, func(i int) bool {
		if i == v.Cap() {
			v.Grow(max(i, s.few))
		}
		v.SetLen(i + 1)
		return r.value(s.elem, v.Index(i), depth+1)
	})
	return ok
}

// elements reads an array, each element by the function, and counts them.
func (r *canonicalReader) elements(depth int, element func(i int) bool) (n int, ok bool) {
	if depth == maxDepth || !r.take("[") {
		return 0, false
	}
	if r.take("]") {
		return 0, true
	}
	for ; element(n); n++ {
		if !r.take(",") {
			return n + 1, r.take("]")
		}
	}
	return n, false
}

// members reads an object whose members stand in order, the value of each by the function.
func (r *canonicalReader) members(depth int, value func(name []byte) bool) bool {
	if depth == maxDepth || !r.take("{") {
		return false
	}
	if r.take("}") {
		return true
	}
	var last []byte
	for first := true; ; first = false {
		name, ok := r.string()
		// The order is that of UTF-16, which is that of the bytes in ASCII.
		if !ok || !first && bytes.Compare(name, last) <= 0 || !r.take(":") || !value(name) {
			return false
		}
		last = name
		if !r.take(",") {
			return r.take("}")
		}
	}
}

// string reads a string without anything that would have to be escaped, and gives what is inside.
func (r *canonicalReader) string() (inside []byte, ok bool) {
	if !r.take(`"`) {
		return nil, false
	}
	length := bytes.IndexByte(r.data[r.at:], '"')
	if length < 0 {
		return nil, false
	}
	inside = r.data[r.at : r.at+length]
	r.at += length + 1
	return inside, !needsEscape(inside)
}

// integer reads a plain integer.
func (r *canonicalReader) integer() (int64, bool) {
	start := r.at
	if r.next() == '-' {
		r.at++
	}
	for isDigit(r.next()) {
		r.at++
	}
	if r.at == start {
		return 0, false
	}
	return plainInteger(r.data[start:r.at])
}

// any skips a value of any shape, and objects in it whose members do not stand in order.
func (r *canonicalReader) any(depth int) bool {
	switch r.next() {
	case '"':
		_, ok := r.string()
		return ok
	case 't':
		return r.take("true")
	case 'f':
		return r.take("false")
	case 'n':
		return r.take("null")
	case '{':
		return r.members(depth, func([]byte) bool { return r.any(depth + 1) })
	case '[':
		_, ok := r.elements(depth, func(int) bool { return r.any(depth + 1) })
		return ok
	}
	_, ok := r.integer()
	return ok
}
