package events_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
	"pgregory.net/rapid"

	"github.com/afterwrite/afterwrite/events"
)

// What a payload is, told by hand; the library says the same.
func TestAShapeAcceptsWhatItIsSureOf(t *testing.T) {
	const closed = `{"type":"object","additionalProperties":false,"required":["a"],"properties":{"a":{},"b":{"type":"string"}}}`
	for name, tc := range map[string]struct {
		schema, payload string
		accepted, valid bool
	}{
		"a closed object":                     {closed, `{"a":1,"b":"x"}`, true, true},
		"without what is optional":            {closed, `{"a":[{}]}`, true, true},
		"without what is required":            {closed, `{"b":"x"}`, false, false},
		"with more at its end":                {closed, `{"a":1,"c":1}`, false, false},
		"with more before":                    {closed, `{"A":1,"a":1}`, false, false},
		"a member of another type":            {closed, `{"a":1,"b":1}`, false, false},
		"another type":                        {closed, `[]`, false, false},
		"members out of order":                {closed, `{"b":"x","a":1}`, false, true},
		"a member twice":                      {closed, `{"a":1,"a":1}`, false, false},
		"a member twice, deep in what is any": {closed, `{"a":{"x":[{"y":1,"y":1}]}}`, false, false},
		"a member twice by an escape":         {`{}`, `{"a":1,"\u0061":1}`, false, false},
		"a name with an escape":               {closed, `{"\u0061":1}`, false, true},
		"two values":                          {`{}`, `{} {}`, false, false},
		"half a value":                        {`{}`, `{"a":`, false, false},
		"no value":                            {`{}`, ``, false, false},
		"not UTF-8":                           {`{}`, "\"\xff\"", false, false},
		"a lone surrogate":                    {`{}`, `"\ud800"`, false, false},
		"blanks":                              {closed, "{ \"a\" :\n1 } ", false, true},

		"the schema true":                         {`true`, `{"a":1}`, true, true},
		"the schema false":                        {`false`, `{}`, false, false},
		"a member that may not be":                {`{"properties":{"a":false}}`, `{"a":1}`, false, false},
		"a member that may not be, and is not":    {`{"properties":{"a":false}}`, `{"b":1}`, true, true},
		"required and not allowed":                {`{"required":["a"],"additionalProperties":false}`, `{"a":1}`, false, false},
		"required and like all others":            {`{"required":["a"],"additionalProperties":{"type":"null"}}`, `{"a":null}`, true, true},
		"required and unlike all others":          {`{"required":["a"],"additionalProperties":{"type":"null"}}`, `{"a":1}`, false, false},
		"members of no object":                    {`{"required":["a"],"properties":{"a":{}}}`, `[1]`, true, true},
		"one of two types":                        {`{"type":["null","boolean"]}`, `false`, true, true},
		"an integer":                              {`{"type":"integer"}`, `7`, true, true},
		"an integer is a number":                  {`{"type":"number"}`, `7`, true, true},
		"an integer that is spelled as none":      {`{"type":"integer"}`, `7.0`, false, true},
		"a fraction":                              {`{"type":"number"}`, `0.5`, false, true},
		"a fraction is no integer":                {`{"type":"integer"}`, `0.5`, false, false},
		"a number beyond the contract":            {`{}`, `9007199254740993`, false, true},
		"a number beyond all":                     {`{}`, `1e999`, false, false},
		"the least":                               {`{"minimum":-3,"maximum":3}`, `-3`, true, true},
		"below the least":                         {`{"minimum":-3,"maximum":3}`, `-4`, false, false},
		"above the most":                          {`{"minimum":-3,"maximum":3}`, `4`, false, false},
		"a bound that is spelled with a fraction": {`{"maximum":3.0}`, `3`, true, true},
		"bounds bind numbers only":                {`{"minimum":5}`, `"a"`, true, true},

		"as long as may be":             {`{"maxLength":2}`, `"ab"`, true, true},
		"as long in other than bytes":   {`{"maxLength":2}`, `"é😀"`, false, true},
		"too long":                      {`{"maxLength":2}`, `"abc"`, false, false},
		"too short":                     {`{"minLength":3}`, `"é😀"`, false, false},
		"length with an escape":         {`{"maxLength":1}`, `"\n"`, false, true},
		"an escape that does not count": {`{"type":"string"}`, `"\n"`, false, true},
		"a pattern anywhere":            {`{"pattern":"b"}`, `"abc"`, true, true},
		"a pattern nowhere":             {`{"pattern":"^b"}`, `"abc"`, false, false},
		"a pattern of the contract":     {`{"pattern":"^[A-Za-z0-9][A-Za-z0-9._:-]{0,255}$"}`, `"todo:1"`, true, true},
		"no opaque id":                  {`{"pattern":"^[A-Za-z0-9][A-Za-z0-9._:-]{0,255}$"}`, `"a b"`, false, false},
		"a name":                        {`{"pattern":"^[a-z][a-z0-9_]*(\\.[a-z][a-z0-9_]*)*$"}`, `"a.b"`, true, true},
		"a name longer than a name":     {`{"pattern":"^[a-z][a-z0-9_]*(\\.[a-z][a-z0-9_]*)*$"}`, `"` + strings.Repeat("a", 97) + `"`, true, true},
		"a prefix and hex digits":       {`{"pattern":"^segment_[0-9a-f]{4}$"}`, `"segment_09af"`, true, true},
		"too few hex digits":            {`{"pattern":"^segment_[0-9a-f]{4}$"}`, `"segment_09a"`, false, false},
		"a count that is none":          {`{"pattern":"^[0-9a-f]{03}$"}`, `"09a"`, false, false},
		"no hex digit":                  {`{"pattern":"^segment_[0-9a-f]{4}$"}`, `"segment_09ag"`, false, false},
		"another prefix":                {`{"pattern":"^segment_[0-9a-f]{4}$"}`, `"a_segment_09af"`, false, false},
		"a time by its pattern":         {`{"pattern":"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\\.[0-9]+)?(Z|[+-][0-9]{2}:[0-9]{2})$"}`, `"2026-06-23T17:13:00.5+02:00"`, true, true},
		"no time, but by its pattern":   {`{"pattern":"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\\.[0-9]+)?(Z|[+-][0-9]{2}:[0-9]{2})$"}`, `"2026-99-23T17:13:00Z"`, true, true},
		"a time":                        {`{"format":"date-time"}`, `"2026-06-23T17:13:00.5+02:00"`, true, true},
		"a time the contract has not":   {`{"format":"date-time"}`, `"2026-06-23t17:13:00z"`, false, true},
		"no time":                       {`{"format":"date-time"}`, `"2026-02-30T17:13:00Z"`, false, false},
		"a format of strings only":      {`{"format":"date-time"}`, `7`, true, true},
		"a format that is unknown":      {`{"format":"segment"}`, `"a"`, true, true},

		"one of some":              {`{"enum":["a",1,null,true]}`, `null`, true, true},
		"none of some":             {`{"enum":["a",1,null,true]}`, `"1"`, false, false},
		"none of none":             {`{"enum":[]}`, `1`, false, false},
		"one of some, escaped":     {`{"enum":["a"]}`, `"\u0061"`, false, true},
		"one that is escaped":      {`{"const":"\"\n"}`, `"\"\n"`, false, true},
		"null and nothing else":    {`{"const":null}`, `null`, true, true},
		"an object is not null":    {`{"const":null}`, `{}`, false, false},
		"as many as may be":        {`{"minItems":1,"maxItems":2}`, `[1,2]`, true, true},
		"too many":                 {`{"minItems":1,"maxItems":2}`, `[1,2,3]`, false, false},
		"too few":                  {`{"minItems":1,"maxItems":2}`, `[]`, false, false},
		"an element of another":    {`{"items":{"type":"string"}}`, `["a",1]`, false, false},
		"no elements at all":       {`{"items":false}`, `[]`, true, true},
		"a reference":              {`{"$defs":{"a":{"type":"null"}},"items":{"$ref":"#/$defs/a"}}`, `[null]`, true, true},
		"a reference that says no": {`{"$defs":{"a":{"type":"null"}},"items":{"$ref":"#/$defs/a"}}`, `[1]`, false, false},
		"a schema that holds itself": {
			`{"type":"object","properties":{"a":{"$ref":"#"}},"additionalProperties":false}`, `{"a":{"a":{}}}`, true, true,
		},
		"a schema that holds itself and says no": {
			`{"type":"object","properties":{"a":{"$ref":"#"}},"additionalProperties":false}`, `{"a":{"a":{"b":1}}}`, false, false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			schema, err := events.CompilePayloadSchema("a.kind", []byte(tc.schema))
			if err != nil {
				t.Fatal(err)
			}
			shaped, accepted, library := schema.Judges(jsontext.Value(tc.payload))
			if !shaped || accepted != tc.accepted || (library == nil) != tc.valid {
				t.Errorf("has a shape: %v; it accepts: %v, want %v; the library: %v, want validity %v",
					shaped, accepted, tc.accepted, library, tc.valid)
			}
			if err := schema.Check(jsontext.Value(tc.payload)); (err == nil) != tc.valid {
				t.Errorf("checked together: %v, want validity %v", err, tc.valid)
			}
		})
	}
}

func TestASchemaOfOtherKeywordsIsLeftToTheLibrary(t *testing.T) {
	for _, keyword := range []string{
		`"minProperties":1`, `"maxProperties":1`, `"propertyNames":{}`, `"patternProperties":{"a":{}}`,
		`"dependentRequired":{"a":["b"]}`, `"dependentSchemas":{"a":{}}`, `"unevaluatedProperties":false`, `"prefixItems":[{}]`,
		`"uniqueItems":true`, `"contains":{}`, `"unevaluatedItems":false`, `"exclusiveMinimum":1`, `"exclusiveMaximum":1`,
		`"multipleOf":2`, `"minimum":0.5`, `"maximum":1e30`, `"format":"uuid"`, `"enum":[[]]`, `"const":{}`, `"const":0.5`,
		`"enum":[1],"const":1`, `"not":{}`, `"allOf":[{}]`, `"anyOf":[{}]`, `"oneOf":[{}]`, `"if":{}`, `"$dynamicRef":"#"`,
		`"$ref":"#/$defs/a","type":"object"`, `"$ref":"#/$defs/b"`,
	} {
		const defs = `"$defs":{"a":{},"b":{"$ref":"#/$defs/c"},"c":{"$ref":"#/$defs/b"}}}`
		for _, schema := range []string{
			`{` + keyword + `,` + defs,
			`{"properties":{"a":{"items":{"additionalProperties":{` + keyword + `}}}},` + defs,
		} {
			compiled, err := events.CompilePayloadSchema("a.kind", []byte(schema))
			if err != nil {
				t.Fatalf("%s: %v", schema, err)
			}
			if shaped, _, _ := compiled.Judges(jsontext.Value(`{}`)); shaped {
				t.Errorf("%s has a shape", schema)
			}
		}
	}
}

// Text that is an id, a name, a time, none of them, or nearly; nothing in it needs an escape.
var plainText = rapid.OneOf(
	rapid.SampledFrom([]string{
		"", "a", "ab", "abc", "b", "é", "😀", "é😀", "a.b", "a b", "a:1", "segment_0", "2026-06-23T17:13:00Z",
		"2026-06-23T17:13:00.25-07:00", "2026-02-30T17:13:00Z",
	}),
	rapid.StringMatching(`[a-c.:_é-]{0,300}`),
)

var memberNames = []string{"", "a", "ab", "b", "c", "é"}

// shapedSchema draws a schema of the keywords that a shape knows.
func shapedSchema(depth int) *rapid.Generator[any] {
	return rapid.Custom(func(t *rapid.T) any {
		switch rapid.IntRange(0, 15).Draw(t, "sort") {
		case 0:
			return rapid.Bool().Draw(t, "bool")
		case 1:
			return map[string]any{"$ref": rapid.SampledFrom([]string{"#", "#/$defs/id", "#/$defs/tree"}).Draw(t, "ref")}
		case 2:
			return map[string]any{"enum": rapid.SliceOfN(plainScalar, 0, 4).Draw(t, "enum")}
		case 3:
			return map[string]any{"const": plainScalar.Draw(t, "const")}
		}
		schema := map[string]any{"title": "any", "$comment": "any", "default": 1}
		some := func(keyword string, value *rapid.Generator[any]) {
			if rapid.Bool().Draw(t, keyword) {
				schema[keyword] = value.Draw(t, "value of "+keyword)
			}
		}
		kind := rapid.SampledFrom([]string{"", "null", "boolean", "integer", "number", "string", "array", "object"}).Draw(t, "kind")
		if kind != "" {
			schema["type"] = kind
		}
		some("minLength", rapid.IntRange(0, 3).AsAny())
		some("maxLength", rapid.IntRange(0, 300).AsAny())
		some("pattern", rapid.SampledFrom([]string{
			"^a", "b$", "^[a-zé]{1,3}$", ".", "^[A-Za-z0-9][A-Za-z0-9._:-]{0,255}$", `^[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)*$`,
		}).AsAny())
		some("format", rapid.SampledFrom([]string{"date-time", "unheard-of"}).AsAny())
		some("minimum", rapid.IntRange(-2, 1).AsAny())
		some("maximum", rapid.IntRange(0, 3).AsAny())
		if depth == 0 {
			return schema
		}
		some("minItems", rapid.IntRange(0, 1).AsAny())
		some("maxItems", rapid.IntRange(0, 3).AsAny())
		some("items", shapedSchema(depth-1))
		some("required", rapid.SliceOfNDistinct(rapid.SampledFrom(memberNames), 0, 2, rapid.ID[string]).AsAny())
		some("properties", rapid.MapOfN(rapid.SampledFrom(memberNames), shapedSchema(depth-1), 0, 4).AsAny())
		some("additionalProperties", shapedSchema(depth-1))
		return schema
	})
}

var plainScalar = rapid.OneOf(
	plainText.AsAny(), rapid.IntRange(-3, 4).AsAny(), rapid.Bool().AsAny(), rapid.Just[any](nil),
)

// payloadFor draws a value that mostly satisfies the schema.
func payloadFor(t *rapid.T, schema any, depth int) any {
	keywords, _ := schema.(map[string]any)
	if enum, ok := keywords["enum"].([]any); ok && len(enum) > 0 {
		return rapid.SampledFrom(enum).Draw(t, "one of enum")
	}
	if value, ok := keywords["const"]; ok {
		return value
	}
	kind, _ := keywords["type"].(string)
	if kind == "" || rapid.IntRange(0, 31).Draw(t, "other kind") == 0 {
		kind = rapid.SampledFrom([]string{"null", "boolean", "integer", "string", "array", "object"}).Draw(t, "kind of value")
	}
	switch kind {
	case "null":
		return nil
	case "boolean":
		return rapid.Bool().Draw(t, "boolean")
	case "integer", "number":
		return rapid.IntRange(-3, 4).Draw(t, "integer")
	case "array":
		elements := []any{}
		for range rapid.IntRange(0, min(depth, 3)).Draw(t, "elements") {
			elements = append(elements, payloadFor(t, keywords["items"], depth-1))
		}
		return elements
	case "object":
		members := map[string]any{}
		properties, _ := keywords["properties"].(map[string]any)
		for _, name := range memberNames {
			required, _ := keywords["required"].([]string)
			if depth > 0 && (slices.Contains(required, name) || rapid.IntRange(0, 2).Draw(t, "optional") == 0) {
				of, named := properties[name]
				if !named {
					of = keywords["additionalProperties"]
				}
				members[name] = payloadFor(t, of, depth-1)
			}
		}
		return members
	}
	return plainText.Draw(t, "text")
}

func drawPayloadSchema(t *rapid.T) (*events.PayloadSchema, any) {
	root := shapedSchema(3).Draw(t, "schema")
	schema, ok := root.(map[string]any)
	if !ok {
		schema = map[string]any{"items": root}
	}
	schema["$defs"] = map[string]any{
		"id":   map[string]any{"type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9._:-]{0,255}$"},
		"tree": map[string]any{"properties": map[string]any{"a": map[string]any{"$ref": "#/$defs/tree"}}},
	}
	compiled, err := events.CompilePayloadSchema("a.kind", jsonOf(schema))
	if err != nil {
		t.Fatalf("%s: %v", jsonOf(schema), err)
	}
	return compiled, schema
}

// Of canonical payloads of plain ASCII, the shape accepts exactly what the library does.
func TestAShapeAcceptsThePlainPayloadsThatTheLibraryDoes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		compiled, schema := drawPayloadSchema(t)
		payload, err := events.Canonicalize(jsonOf(payloadFor(t, schema, 4)))
		if err != nil {
			t.Fatal(err)
		}
		shaped, accepted, library := compiled.Judges(payload)
		plain := !bytes.ContainsFunc(payload, func(r rune) bool { return r == '\\' || r >= utf8.RuneSelf })
		if shaped && accepted != (library == nil && plain) {
			t.Fatalf("%s\n%s\naccepted: %v, the library: %v", jsonOf(schema), payload, accepted, library)
		}
	})
}

// Of any payload, however it is spelled, the shape accepts nothing that the library does not.
func TestAShapeAcceptsNothingThatTheLibraryDoesNot(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		compiled, schema := drawPayloadSchema(t)
		payload := string(jsonOf(payloadFor(t, schema, 4)))
		if rapid.Bool().Draw(t, "unrelated") {
			payload = anyJSON(3).Draw(t, "payload")
		}
		if at := rapid.IntRange(0, len(payload)).Draw(t, "at"); rapid.Bool().Draw(t, "cut") {
			payload = payload[:at] + rapid.SampledFrom([]string{"", "0", ".5", "e9", `\`, `"`, "{", "]", ",", "\xff", payload}).Draw(t, "put") + payload[at:]
		}
		if _, accepted, library := compiled.Judges(jsontext.Value(payload)); accepted && library != nil {
			t.Fatalf("%s\n%s\naccepted, and the library says: %v", jsonOf(schema), payload, library)
		}
	})
}
