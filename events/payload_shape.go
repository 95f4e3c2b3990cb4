package events

import (
	"bytes"
	"encoding/json"
	"math"
	"math/big"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

// payloadShape is a payload schema of common keywords, made for one walk over the tokens of a payload. It is compiled
// from what the library made of the schema, so that no keyword is read in two ways.
//
// It says yes, or it says nothing: whatever it does not accept is the library's to judge. So it may leave out what is
// rare, and only its yes has to be right. It counts on the canonical form, and on plain strings.
type payloadShape struct {
	// never: the schema false.
	never bool
	// kinds are the kinds of token that the value may begin with; any if empty.
	kinds string
	// scalars are what the value may be, as they are spelled; anything if nil.
	scalars []string

	// members are those of an object that the schema names, in order; others is for any other member.
	members []payloadMember
	others  *payloadShape

	minItems, maxItems int
	items              *payloadShape

	minLength, maxLength int
	pattern              *regexp.Regexp
	form                 func([]byte) bool // what it takes, the pattern matches too; may be nil
	dateTime             bool

	minimum, maximum int64
}

type payloadMember struct {
	name     string
	required bool
	shape    *payloadShape
}

// anyPayload accepts every value that keeps the contract's limits.
var anyPayload = func() *payloadShape {
	s := newPayloadShape()
	s.items, s.others = s, s
	return s
}()

func newPayloadShape() *payloadShape {
	return &payloadShape{maxItems: math.MaxInt, maxLength: math.MaxInt, minimum: -maxInteger, maximum: maxInteger}
}

// accepts reports whether the payload certainly satisfies the schema.
func (s *payloadShape) accepts(payload jsontext.Value) bool {
	r := canonicalReader{data: payload}
	return s.value(&r, 0) && r.at == len(payload)
}

func (s *payloadShape) value(r *canonicalReader, depth int) bool {
	kind := jsontext.Value(r.data[r.at:]).Kind()
	if s.never || s.kinds != "" && strings.IndexByte(s.kinds, byte(kind)) < 0 {
		return false
	}
	switch kind {
	case jsontext.KindBeginObject:
		return s.scalars == nil && s.object(r, depth)
	case jsontext.KindBeginArray:
		n, ok := r.elements(depth, func(int) bool { return s.items.value(r, depth+1) })
		return s.scalars == nil && ok && s.minItems <= n && n <= s.maxItems
	default:
		return s.scalar(r, kind)
	}
}

func (s *payloadShape) scalar(r *canonicalReader, kind jsontext.Kind) bool {
	start := r.at
	var fits bool
	switch kind {
	case jsontext.KindString:
		inside, ok := r.string()
		fits = ok && s.text(inside)
	case jsontext.KindNumber:
		n, ok := r.integer()
		fits = ok && s.minimum <= n && n <= s.maximum
	default:
		fits = r.any(0)
	}
	spelled := r.data[start:r.at]
	return fits && (s.scalars == nil || slices.ContainsFunc(s.scalars, func(v string) bool { return v == string(spelled) }))
}

// object walks the members that come and those that the schema names side by side, for both are in order.
func (s *payloadShape) object(r *canonicalReader, depth int) bool {
	named := s.members
	ok := r.members(depth, func(name []byte) bool {
		for len(named) > 0 && named[0].name < string(name) {
			if named[0].required {
				return false
			}
			named = named[1:]
		}
		shape := s.others
		if len(named) > 0 && named[0].name == string(name) {
			shape, named = named[0].shape, named[1:]
		}
		return shape.value(r, depth+1)
	})
	return ok && !slices.ContainsFunc(named, func(m payloadMember) bool { return m.required })
}

// text judges the inside of a string, which holds nothing but plain ASCII.
func (s *payloadShape) text(inside []byte) bool {
	if n := len(inside); n < s.minLength || n > s.maxLength {
		return false
	}
	if s.pattern != nil && (s.form == nil || !s.form(inside)) && !s.pattern.Match(inside) {
		return false
	}
	return !s.dateTime || isTimestamp(string(inside))
}

// shapeOfSchema is the shape of a schema; nil if the schema has, anywhere, a keyword that a shape does not know.
func shapeOfSchema(schema *jsonschema.Schema) *payloadShape {
	shape, ok := payloadShapes{}.of(schema)
	if !ok {
		return nil
	}
	return shape
}

// payloadShapes are the shapes of the schemas that one schema is made of. A shape is entered before its parts are
// known, so that a schema may hold itself.
type payloadShapes map[*jsonschema.Schema]*payloadShape

func (known payloadShapes) of(schema *jsonschema.Schema) (*payloadShape, bool) {
	if schema == nil {
		return anyPayload, true
	}
	if shape, begun := known[schema]; begun {
		return shape, shape != nil
	}
	keywords, ok := keywordsOf(schema)
	if !ok {
		return nil, false
	}
	if schema.Ref != nil {
		if len(keywords) > 1 {
			return nil, false // the value would have to be walked once for each
		}
		known[schema] = nil // for a reference that leads to nothing but itself
		shape, ok := known.of(schema.Ref)
		known[schema] = shape
		return shape, ok
	}
	shape := newPayloadShape()
	known[schema] = shape
	shape.never = schema.Bool != nil && !*schema.Bool
	ok = shape.setKinds(schema) && shape.setScalars(schema) && shape.setText(schema) && shape.setRange(schema) &&
		known.setItems(shape, schema) && known.setMembers(shape, schema)
	return shape, ok
}

// The library's fields of the keywords that a shape knows, and of those that are only notes. Any other, also one that
// the library does not have yet, leaves the schema to the library alone.
var (
	shapedKeywords = []string{
		"Bool", "Ref", "Types", "Enum", "Const", "Format", "Properties", "Required", "AdditionalProperties", "MinItems",
		"MaxItems", "Items2020", "MinLength", "MaxLength", "Pattern", "Minimum", "Maximum",
	}
	notedKeywords = []string{
		"DraftVersion", "Location", "ID", "Anchor", "Title", "Description", "Default", "Comment", "ReadOnly", "WriteOnly",
		"Examples", "Deprecated",
	}
)

// keywordsOf are the keywords of a schema that are not only notes; ok reports whether a shape knows them all.
func keywordsOf(schema *jsonschema.Schema) (keywords []string, ok bool) {
	v := reflect.ValueOf(schema).Elem()
	for i := range v.NumField() {
		field := v.Type().Field(i)
		if !field.IsExported() || v.Field(i).IsZero() || slices.Contains(notedKeywords, field.Name) {
			continue
		}
		if !slices.Contains(shapedKeywords, field.Name) {
			return nil, false
		}
		keywords = append(keywords, field.Name)
	}
	return keywords, true
}

// kindsOfType are the kinds of token that a value of a JSON Schema type may begin with.
var kindsOfType = map[string]string{
	"null": "n", "boolean": "tf", "string": `"`, "array": "[", "object": "{",
	"integer": "0", "number": "0", // the contract has plain integers only
}

func (s *payloadShape) setKinds(schema *jsonschema.Schema) bool {
	if schema.Types == nil {
		return true
	}
	for _, t := range schema.Types.ToStrings() {
		s.kinds += kindsOfType[t]
	}
	return s.kinds != ""
}

func (s *payloadShape) setScalars(schema *jsonschema.Schema) bool {
	var values []any
	switch {
	case schema.Enum != nil && schema.Const != nil:
		return false
	case schema.Enum != nil:
		values = schema.Enum.Values
	case schema.Const != nil:
		values = []any{*schema.Const}
	default:
		return true
	}
	s.scalars = []string{}
	for _, value := range values {
		text, ok := scalarText(value)
		if !ok {
			return false
		}
		s.scalars = append(s.scalars, text)
	}
	return true
}

// scalarText spells a scalar as the canonical form does.
func scalarText(value any) (text string, ok bool) {
	switch value := value.(type) {
	case nil:
		return "null", true
	case bool:
		return strconv.FormatBool(value), true
	case json.Number:
		_, plain := plainInteger([]byte(value))
		return string(value), plain
	case string:
		text, err := jsontext.AppendQuote(nil, value)
		return string(text), err == nil
	}
	return "", false
}

// contractForms are patterns of the contract: payloads are mostly made of such strings, and a regular expression takes
// several times as long to match one.
var contractForms = map[string]func([]byte) bool{
	`^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?(Z|[+-][0-9]{2}:[0-9]{2})$`: func(s []byte) bool {
		return isTimestamp(string(s))
	},
	`^[A-Za-z0-9][A-Za-z0-9._:-]{0,255}$`:   func(s []byte) bool { return isOpaque(s, MaxOpaqueID) },
	`^[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)*$`: isName[[]byte],
}

// formOf is the form of the pattern, nil where it is none of the contract's.
func formOf(pattern *regexp.Regexp) func([]byte) bool {
	if form, known := contractForms[pattern.String()]; known {
		return form
	}
	parts := digestPattern.FindStringSubmatch(pattern.String())
	if parts == nil {
		return nil
	}
	prefix := []byte(parts[1])
	digits, err := strconv.Atoi(parts[2])
	if err != nil {
		return nil
	}
	return func(s []byte) bool {
		rest, ok := bytes.CutPrefix(s, prefix)
		return ok && len(rest) == digits && !slices.ContainsFunc(rest, func(c byte) bool { return !isLowerHex(c) })
	}
}

// digestPattern finds the patterns of ids that are a prefix and so many hex digits, as all that are made by hashing.
var digestPattern = regexp.MustCompile(`^\^([a-z0-9_]*)\[0-9a-f\]\{(0|[1-9][0-9]*)\}\$$`)

func (s *payloadShape) setText(schema *jsonschema.Schema) bool {
	s.minLength, s.maxLength = bound(schema.MinLength, s.minLength), bound(schema.MaxLength, s.maxLength)
	if schema.Pattern != nil {
		var ok bool
		if s.pattern, ok = schema.Pattern.(*regexp.Regexp); !ok {
			return false
		}
		s.form = formOf(s.pattern)
	}
	// Whatever is a timestamp of the contract is what the library takes for a date-time. No other format is so near.
	s.dateTime = schema.Format != nil && schema.Format.Name == "date-time"
	return schema.Format == nil || s.dateTime
}

func (s *payloadShape) setRange(schema *jsonschema.Schema) bool {
	whole := func(bound *big.Rat, unbounded int64) (int64, bool) {
		if bound == nil {
			return unbounded, true
		}
		return bound.Num().Int64(), bound.IsInt() && bound.Num().IsInt64()
	}
	var low, high bool
	s.minimum, low = whole(schema.Minimum, s.minimum)
	s.maximum, high = whole(schema.Maximum, s.maximum)
	return low && high
}

func (known payloadShapes) setItems(s *payloadShape, schema *jsonschema.Schema) (ok bool) {
	s.minItems, s.maxItems = bound(schema.MinItems, s.minItems), bound(schema.MaxItems, s.maxItems)
	s.items, ok = known.of(schema.Items2020)
	return ok
}

func bound(set *int, otherwise int) int {
	if set == nil {
		return otherwise
	}
	return *set
}

func (known payloadShapes) setMembers(s *payloadShape, schema *jsonschema.Schema) (ok bool) {
	switch others := schema.AdditionalProperties.(type) {
	case nil:
		s.others = anyPayload
	case bool:
		if s.others = anyPayload; !others {
			s.others = &payloadShape{never: true}
		}
	case *jsonschema.Schema:
		if s.others, ok = known.of(others); !ok {
			return false
		}
	default:
		return false
	}
	for name, property := range schema.Properties {
		shape, ok := known.of(property)
		if !ok {
			return false
		}
		s.members = append(s.members, payloadMember{name, slices.Contains(schema.Required, name), shape})
	}
	for _, name := range schema.Required {
		if !slices.ContainsFunc(s.members, func(m payloadMember) bool { return m.name == name }) {
			s.members = append(s.members, payloadMember{name, true, s.others})
		}
	}
	slices.SortFunc(s.members, func(a, b payloadMember) int { return strings.Compare(a.name, b.name) })
	return true
}
