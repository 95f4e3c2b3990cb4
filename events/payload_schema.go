package events

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
)

// draft2020 is the only draft of JSON Schema that the contract knows.
const draft2020 = "https://json-schema.org/draft/2020-12/schema"

// PayloadSchema is a compiled JSON Schema (draft 2020-12) for the payload of one intent kind or service.
// Its formats are checked, not only noted. It may be used by several goroutines at once.
type PayloadSchema struct {
	schema *jsonschema.Schema
	// shape accepts, cheaply, most of what the schema does; nil where the schema has keywords that it does not know.
	shape *payloadShape
}

// CompilePayloadSchema compiles a schema that refers to nothing outside itself. The name, such as the intent kind,
// begins the error's sentence.
func CompilePayloadSchema(name string, schema []byte) (*PayloadSchema, error) {
	compiled, err := compileSchema(schema)
	if err != nil {
		return nil, fmt.Errorf("payload schema of %s: %w", name, err)
	}
	return &PayloadSchema{schema: compiled, shape: shapeOfSchema(compiled)}, nil
}

func compileSchema(schema []byte) (*jsonschema.Schema, error) {
	// The library's own reader would take duplicate members and invalid UTF-8.
	if !jsontext.Value(schema).IsValid() {
		return nil, errors.New("it must be valid JSON without duplicate members")
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(schema))
	if err != nil {
		return nil, fmt.Errorf("it must be valid JSON: %w", err)
	}
	if err := wantDraft(doc); err != nil {
		return nil, err
	}
	compiler := jsonschema.NewCompiler()
	compiler.DefaultDraft(jsonschema.Draft2020)
	compiler.AssertFormat()
	compiler.UseLoader(noLoader{})
	if err := compiler.AddResource(payloadBase, doc); err != nil {
		return nil, errors.New("it must be a JSON Schema of draft 2020-12")
	}
	compiled, err := compiler.Compile(payloadBase)
	if err != nil {
		return nil, schemaFault(err)
	}
	return compiled, nil
}

// payloadBase is what the relative references of a schema resolve against, so that they lead outside and are refused.
const payloadBase = "https://payload.invalid/schema"

// wantDraft refuses any other dialect, at the top and in every resource embedded in it.
func wantDraft(doc any) error {
	switch doc := doc.(type) {
	case map[string]any:
		dialect, named := doc["$schema"].(string)
		if named && strings.TrimSuffix(dialect, "#") != draft2020 {
			return fmt.Errorf("$schema must be %q", draft2020)
		}
		for _, member := range doc {
			if err := wantDraft(member); err != nil {
				return err
			}
		}
	case []any:
		for _, element := range doc {
			if err := wantDraft(element); err != nil {
				return err
			}
		}
	}
	return nil
}

// noLoader refuses what the schema does not hold itself.
type noLoader struct{}

func (noLoader) Load(string) (any, error) { return nil, errors.New("outside") }

// schemaFault makes one sentence of the library's answer about a schema. A schema is the operator's own text, so
// the place may be named.
func schemaFault(err error) error {
	if _, outside := errors.AsType[*jsonschema.LoadURLError](err); outside {
		return errors.New("it must not refer to anything outside itself")
	}
	var invalid *jsonschema.SchemaValidationError
	var broken *jsonschema.ValidationError
	if errors.As(err, &invalid) && errors.As(invalid.Err, &broken) {
		for len(broken.Causes) > 0 {
			broken = broken.Causes[0]
		}
		return fmt.Errorf("it breaks the rules of JSON Schema at /%s", strings.Join(broken.InstanceLocation, "/"))
	}
	text, _, _ := strings.Cut(strings.ReplaceAll(err.Error(), payloadBase, ""), "\n")
	return fmt.Errorf("it must be a JSON Schema of draft 2020-12: %s", text)
}

// PayloadError says which rule of the installed schema a payload breaks. It names places in the schema only, which
// is the operator's text, and nothing of the payload.
type PayloadError struct {
	// Keyword is the schema's keyword, such as "maxLength"; empty where the payload is not JSON.
	Keyword string
	// At is the JSON pointer to the subschema that holds the keyword.
	At string
	// Missing are the members that the schema requires and the payload lacks.
	Missing []string
}

func (e *PayloadError) Error() string {
	switch {
	case e.Keyword == "":
		return "the payload must be valid JSON"
	case len(e.Missing) > 0:
		return "the payload must have " + strings.Join(e.Missing, ", ") + " as its schema requires at #" + e.At
	}
	return "the payload breaks " + e.Keyword + " of its schema at #" + e.At
}

// Check reports the rule of the schema that the payload breaks, as a [*PayloadError].
func (s *PayloadSchema) Check(payload jsontext.Value) error {
	if s.shape != nil && s.shape.accepts(payload) {
		return nil
	}
	return s.judge(payload)
}

// judge has the library judge the payload.
func (s *PayloadSchema) judge(payload jsontext.Value) error {
	var value any
	if err := json.Unmarshal(payload, &value); err != nil {
		return &PayloadError{}
	}
	err := s.schema.Validate(value)
	var broken *jsonschema.ValidationError
	switch {
	case err == nil:
		return nil
	case !errors.As(err, &broken):
		return fmt.Errorf("events: payload schema: %w", err)
	}
	for len(broken.Causes) > 0 {
		broken = broken.Causes[0]
	}
	_, at, _ := strings.Cut(broken.SchemaURL, "#")
	fault := &PayloadError{At: at, Keyword: "its rules"}
	if path := broken.ErrorKind.KeywordPath(); len(path) > 0 {
		fault.Keyword = path[0]
	}
	if required, ok := broken.ErrorKind.(*kind.Required); ok {
		fault.Missing = slices.Clone(required.Missing)
	}
	return fault
}
