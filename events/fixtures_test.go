package events_test

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"
	"github.com/gowebpki/jcs"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/afterwrite/afterwrite/events"
)

// A kind is one kind of document: its fixtures' name, its published schema, and how it is read and written.
type kind struct {
	name          string
	schemaVersion string
	// recode decodes data and gives the document and its encoding.
	recode func(data []byte) (doc any, encoded []byte, err error)
}

func recode[T any](decode func([]byte) (*T, error), encode func(*T) ([]byte, error)) func([]byte) (any, []byte, error) {
	return func(data []byte) (any, []byte, error) {
		doc, err := decode(data)
		if err != nil {
			return nil, nil, err
		}
		encoded, err := encode(doc)
		return doc, encoded, err
	}
}

var kinds = []kind{
	{"receipt", events.ReceiptSchema, recode(events.Decode[events.Receipt], events.Encode[events.Receipt])},
	{"registration", events.RegistrationSchema, recode(events.Decode[events.Registration], events.Encode[events.Registration])},
	{"hook_input", events.HookInputSchema, recode(events.Decode[events.HookInput], events.Encode[events.HookInput])},
	{"hook_result", events.HookResultSchema, recode(events.Decode[events.HookResult], events.Encode[events.HookResult])},
	{"intent", events.IntentSchema, recode(events.Decode[events.Intent], events.Encode[events.Intent])},
	{"dispatch_receipt", events.DispatchReceiptSchema, recode(events.Decode[events.DispatchReceipt], events.Encode[events.DispatchReceipt])},
	{"refusal", events.RefusalSchema, recode(events.Decode[events.Refusal], events.Encode[events.Refusal])},
	{"conflict", events.ConflictSchema, recode(events.Decode[events.Conflict], events.Encode[events.Conflict])},
	{"service_request", events.ServiceRequestSchema, recode(events.Decode[events.ServiceRequest], events.Encode[events.ServiceRequest])},
	{"service_response", events.ServiceResponseSchema, recode(events.Decode[events.ServiceResponse], events.Encode[events.ServiceResponse])},
}

func kindOf(tb testing.TB, fixture string) kind {
	tb.Helper()
	name, _, _ := strings.Cut(fixture, "-")
	i := slices.IndexFunc(kinds, func(k kind) bool { return k.name == name })
	if i < 0 {
		tb.Fatalf("fixture %s is of no known document", fixture)
	}
	return kinds[i]
}

// schemas compiles everything that is published, with the formats asserted.
func schemas(tb testing.TB) func(version string) *jsonschema.Schema {
	tb.Helper()
	compiler := jsonschema.NewCompiler()
	compiler.AssertFormat()
	for _, version := range events.SchemaVersions() {
		schema, ok := events.Schema(version)
		if !ok {
			tb.Fatalf("%s is listed and not published", version)
		}
		doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(schema))
		if err != nil {
			tb.Fatalf("%s: %v", version, err)
		}
		if err := compiler.AddResource(events.SchemaID(version), doc); err != nil {
			tb.Fatalf("%s: %v", version, err)
		}
	}
	compiled := map[string]*jsonschema.Schema{}
	for _, version := range events.SchemaVersions() {
		schema, err := compiler.Compile(events.SchemaID(version))
		if err != nil {
			tb.Fatalf("%s: %v", version, err)
		}
		compiled[version] = schema
	}
	return func(version string) *jsonschema.Schema { return compiled[version] }
}

func validFixtures(tb testing.TB) []string {
	tb.Helper()
	files, err := filepath.Glob("testdata/valid/*.json")
	if err != nil || len(files) == 0 {
		tb.Fatalf("no valid fixtures: %v", err)
	}
	return files
}

func TestValidDocumentsDecodeSatisfyTheirSchemaAndEncodeCanonically(t *testing.T) {
	schema := schemas(t)
	covered := map[string]bool{}
	for _, file := range validFixtures(t) {
		name := strings.TrimSuffix(filepath.Base(file), ".json")
		t.Run(name, func(t *testing.T) {
			k := kindOf(t, name)
			covered[k.name] = true
			data := readFile(t, file)
			_, encoded, err := k.recode(data)
			if err != nil {
				t.Fatal(err)
			}
			want, err := jcs.Transform(data)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), string(encoded)); diff != "" {
				t.Errorf("encoding (-canonical by another library +got):\n%s", diff)
			}
			value, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
			if err != nil {
				t.Fatal(err)
			}
			if err := schema(k.schemaVersion).Validate(value); err != nil {
				t.Errorf("the published schema refuses what decodes: %v", err)
			}
		})
	}
	for _, k := range kinds {
		if !covered[k.name] {
			t.Errorf("%s has no valid fixture", k.name)
		}
	}
}

// expectation stands in testdata/invalid/expected.json for every invalid fixture.
type expectation struct {
	Fault events.Fault `json:"fault"`
	Error string       `json:"error"`
	// BeyondSchema says why a JSON Schema cannot refuse the document; "" where the published one must.
	BeyondSchema string `json:"beyond_schema"`
}

func expectations(tb testing.TB) map[string]expectation {
	tb.Helper()
	var expected map[string]expectation
	if err := json.Unmarshal(readFile(tb, "testdata/invalid/expected.json"), &expected); err != nil {
		tb.Fatal(err)
	}
	return expected
}

func TestInvalidDocumentsAreRefusedForExactlyTheirReason(t *testing.T) {
	schema := schemas(t)
	for name, want := range expectations(t) {
		t.Run(name, func(t *testing.T) {
			k := kindOf(t, filepath.Dir(name))
			data := readFile(t, "testdata/invalid/"+name+".json")
			_, _, err := k.recode(data)
			var refused *events.DecodeError
			if !errors.As(err, &refused) {
				t.Fatalf("got %v, want a DecodeError", err)
			}
			got := expectation{Fault: refused.Fault, Error: refused.Error(), BeyondSchema: want.BeyondSchema}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("refused (-want +got):\n%s", diff)
			}
			value, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
			accepted := err == nil && schema(k.schemaVersion).Validate(value) == nil
			switch {
			case want.BeyondSchema == "" && accepted:
				t.Error("the published schema accepts it")
			case want.BeyondSchema != "" && err == nil && !accepted:
				t.Errorf("the published schema refuses it although %s", want.BeyondSchema)
			}
		})
	}
}

func TestEveryInvalidFixtureIsExpectedAndEveryFaultHasOne(t *testing.T) {
	expected := expectations(t)
	err := fs.WalkDir(os.DirFS("testdata/invalid"), ".", func(path string, entry fs.DirEntry, err error) error {
		if name, fixture := strings.CutSuffix(path, ".json"); err == nil && fixture && name != "expected" {
			if _, there := expected[name]; !there {
				t.Errorf("nothing is expected of %s", path)
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	faults := map[events.Fault]bool{}
	for _, e := range expected {
		faults[e.Fault] = true
	}
	for _, fault := range []events.Fault{
		events.FaultSyntax, events.FaultEncoding, events.FaultDuplicateMember, events.FaultUnknownMember,
		events.FaultMissingMember, events.FaultTooDeep, events.FaultNumber, events.FaultWrongType, events.FaultValue,
	} {
		if !faults[fault] {
			t.Errorf("no fixture is refused for %s", fault)
		}
	}
}

func TestEveryMemberIsRequiredAndNoneMayBeAdded(t *testing.T) {
	for _, file := range validFixtures(t) {
		name := strings.TrimSuffix(filepath.Base(file), ".json")
		k := kindOf(t, name)
		var members map[string]any
		if err := json.Unmarshal(readFile(t, file), &members); err != nil {
			t.Fatal(err)
		}
		for member, value := range members {
			delete(members, member)
			if _, _, err := k.recode(encodeAny(t, members)); !isFault(err, events.FaultMissingMember, member) {
				t.Errorf("%s without %s: %v", name, member, err)
			}
			members[member] = value
		}
		members["surplus_secret"] = 1
		_, _, err := k.recode(encodeAny(t, members))
		if !isFault(err, events.FaultUnknownMember, "") || strings.Contains(err.Error(), "surplus") {
			t.Errorf("%s with an unknown member: %v", name, err)
		}
	}
}

func encodeAny(tb testing.TB, value any) []byte {
	tb.Helper()
	data, err := json.Marshal(value)
	if err != nil {
		tb.Fatal(err)
	}
	return data
}

func isFault(err error, fault events.Fault, path string) bool {
	var refused *events.DecodeError
	return errors.As(err, &refused) && refused.Fault == fault && refused.Path == path
}

// The published schema says what a proposal must say. The decoder lets a claim through, so that the journal can name
// it as the reason.
func TestAClaimIsRefusedByTheSchemaAndSeenByTheDecoder(t *testing.T) {
	schema := schemas(t)(events.IntentSchema)
	for _, claim := range []string{"grants_new_action_authority", "external_write_performed"} {
		data := bytes.Replace(readFile(t, "testdata/valid/intent-plain.json"),
			[]byte(`"`+claim+`": false`), []byte(`"`+claim+`": true`), 1)
		intent, err := events.Decode[events.Intent](data)
		if err != nil {
			t.Fatal(err)
		}
		if !intent.Claims() {
			t.Errorf("%s is not seen as a claim", claim)
		}
		value, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
		if err != nil {
			t.Fatal(err)
		}
		if schema.Validate(value) == nil {
			t.Errorf("the published schema accepts %s", claim)
		}
	}
}

// The enumerations of the contract stand in Go and in the schemas. This reads the schemas' side.
func TestTheSchemaOfADispatchReceiptAllowsExactlyTheReasonsOfTheTable(t *testing.T) {
	data, _ := events.Schema(events.DispatchReceiptSchema)
	type enum struct {
		Const *string   `json:"const"`
		Enum  []*string `json:"enum"`
	}
	var published struct {
		OneOf []struct {
			Properties struct{ Status, Code, Reason enum } `json:"properties"`
		} `json:"oneOf"`
	}
	if err := json.Unmarshal(data, &published, json.MatchCaseInsensitiveNames(true)); err != nil {
		t.Fatal(err)
	}
	text := func(s *string) string {
		if s == nil {
			return ""
		}
		return *s
	}
	rows := 0
	for _, row := range published.OneOf {
		status, code := events.Status(text(row.Properties.Status.Const)), events.Code(text(row.Properties.Code.Const))
		want := []events.Reason{}
		for _, reason := range row.Properties.Reason.Enum {
			want = append(want, events.Reason(text(reason)))
		}
		if len(want) == 0 {
			want = append(want, events.Reason(text(row.Properties.Reason.Const)))
		}
		if diff := cmp.Diff(want, events.Reasons(status, code)); diff != "" {
			t.Errorf("reasons of %s, %q (-schema +table):\n%s", status, code, diff)
		}
		rows++
	}
	allowed := 0
	for _, status := range []events.Status{
		events.StatusProposed, events.StatusNotApplicable, events.StatusRetrying, events.StatusFailed, events.StatusRedriven,
	} {
		for _, code := range []events.Code{
			"", events.CodeRegistrationRejected, events.CodeInputBoundaryRejected, events.CodeProducerFailed,
			events.CodeProducerTimedOut, events.CodeResultContractRejected, events.CodeIntentConflict,
			events.CodeDispatchBudgetExhausted,
		} {
			if events.Reasons(status, code) != nil {
				allowed++
			}
		}
	}
	if rows != allowed {
		t.Errorf("the schema has %d rows of statuses and codes, the table %d", rows, allowed)
	}
}
