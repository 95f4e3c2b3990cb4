package events

import (
	"fmt"
	"math/bits"
	"reflect"
	"strings"
	"sync"

	"github.com/go-json-experiment/json/jsontext"
)

// shape is what the structure of a value must be, compiled once from its Go type.
type shape struct {
	kind shapeKind
	// nullable: null is the Go type's zero.
	nullable bool
	// pointer: the Go value points to one of goType.
	pointer bool
	goType  reflect.Type
	// members of an object in canonical order, and where each stands in it.
	members []member
	index   map[string]int
	// elem is the shape of an array's elements, empty an array of none, and few how many to make room for at first.
	elem  *shape
	empty reflect.Value
	few   int
}

type member struct {
	name string
	// label is what stands before the member's value: its name, and the brace or the comma before that.
	label string
	shape *shape
	field int
}

type shapeKind int

const (
	shapeString shapeKind = iota
	shapeInteger
	shapeBoolean
	// shapeAny: any JSON within the limits.
	shapeAny
	// shapeObject: exactly these members.
	shapeObject
	// shapeArray: elements of one shape.
	shapeArray
)

// json is the kind of token that such a value begins with.
func (k shapeKind) json() jsontext.Kind { return [...]jsontext.Kind{'"', '0', 't', 0, '{', '['}[k] }

func (k shapeKind) wanted() string {
	return "must be " + [...]string{"a string", "an integer", "true or false", "a value", "an object", "an array"}[k]
}

var shapes sync.Map // reflect.Type → *shape

func shapeOf(t reflect.Type) *shape {
	if s, ok := shapes.Load(t); ok {
		return s.(*shape)
	}
	s, _ := shapes.LoadOrStore(t, compileShape(t))
	return s.(*shape)
}

// compileShape knows the Go types that documents are made of, and panics on any other: a document's type is ours.
func compileShape(t reflect.Type) *shape {
	switch t {
	case reflect.TypeFor[jsontext.Value]():
		return &shape{kind: shapeAny, goType: t, nullable: true}
	case reflect.TypeFor[Optional]():
		return &shape{kind: shapeString, goType: t, nullable: true}
	}
	switch t.Kind() {
	case reflect.String:
		return &shape{kind: shapeString, goType: t}
	case reflect.Int, reflect.Int64:
		return &shape{kind: shapeInteger, goType: t}
	case reflect.Bool:
		return &shape{kind: shapeBoolean, goType: t}
	case reflect.Pointer:
		s := *compileShape(t.Elem())
		s.nullable, s.pointer = true, true
		return &s
	case reflect.Slice:
		const bytes = 64
		return &shape{
			kind: shapeArray, goType: t, elem: compileShape(t.Elem()), empty: reflect.MakeSlice(t, 0, 0),
			few: max(1, bytes/max(1, int(t.Elem().Size()))),
		}
	case reflect.Struct:
		return compileObject(t)
	}
	panic(fmt.Sprintf("events: a document cannot hold a Go %v", t))
}

func compileObject(t reflect.Type) *shape {
	s := &shape{kind: shapeObject, goType: t, index: make(map[string]int, t.NumField())}
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		if name == "" || i == maxMembers {
			panic(fmt.Sprintf("events: a document cannot hold a Go %v", t))
		}
		s.index[name] = len(s.members)
		label := `,"` + name + `":`
		if i == 0 {
			label = `{"` + name + `":`
		}
		s.members = append(s.members, member{name: name, label: label, shape: compileShape(t.Field(i).Type), field: i})
	}
	return s
}

// memberSet holds, by their places, the members of an object that have been seen.
type memberSet uint64

const maxMembers = 64

func (s *memberSet) add(i int) bool {
	before := *s
	*s |= 1 << i
	return *s != before
}

// first is the first of n members that the set lacks, or -1.
func (s memberSet) first(n int) int {
	if lacking := bits.TrailingZeros64(^uint64(s)); lacking < n {
		return lacking
	}
	return -1
}
