package events_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"github.com/afterwrite/afterwrite/events"
)

func TestAPayloadIsHeldToItsSchema(t *testing.T) {
	schema, err := events.CompilePayloadSchema("report.draft", []byte(chainPayloadSchema))
	if err != nil {
		t.Fatal(err)
	}
	const valid = `{"goal_id":"g","agent_id":"a","segment_ref":"segment_0123456789abcdef01234567","transition":"replan_entered","observed_at":"2026-06-23T17:12:10Z","source_event_refs":["e"]}`
	if err := schema.Check(jsontext.Value(valid)); err != nil {
		t.Errorf("a valid payload: %v", err)
	}
	for want, change := range map[string][2]string{
		"the payload breaks additionalProperties of its schema at #":                    {`"goal_id"`, `"secret_name":"secret_value","goal_id"`},
		"the payload must have goal_id as its schema requires at #":                     {`"goal_id":"g",`, ``},
		"the payload breaks minLength of its schema at #/properties/goal_id":            {`"g"`, `""`},
		"the payload breaks pattern of its schema at #/properties/segment_ref":          {`segment_0`, `secret_value_`},
		"the payload breaks enum of its schema at #/properties/transition":              {`replan_entered`, `secret_value`},
		"the payload breaks format of its schema at #/properties/observed_at":           {`2026-06-23T17:12:10Z`, `secret_value`},
		"the payload breaks type of its schema at #/properties/source_event_refs":       {`["e"]`, `"secret_value"`},
		"the payload breaks type of its schema at #/properties/source_event_refs/items": {`["e"]`, `[7]`},
		"the payload must be valid JSON":                                                {`}`, ``},
	} {
		err := schema.Check(jsontext.Value(strings.Replace(valid, change[0], change[1], 1)))
		if _, ok := errors.AsType[*events.PayloadError](err); !ok {
			t.Errorf("got %v, want %s", err, want)
			continue
		}
		if diff := cmp.Diff(want, err.Error()); diff != "" {
			t.Errorf("sentence (-want +got):\n%s", diff)
		}
		if strings.Contains(err.Error(), "secret") {
			t.Errorf("the error repeats the payload: %v", err)
		}
	}
}

func TestAPayloadSchemaRefersToNothingOutsideItself(t *testing.T) {
	for name, tc := range map[string]struct{ schema, want string }{
		"remote":           {`{"$ref":"https://example.test/schema.json"}`, "it must not refer to anything outside itself"},
		"file":             {`{"$ref":"file:///etc/schema.json"}`, "it must not refer to anything outside itself"},
		"relative":         {`{"properties":{"a":{"$ref":"other.json"}}}`, "it must not refer to anything outside itself"},
		"another draft":    {`{"$schema":"http://json-schema.org/draft-07/schema#"}`, `$schema must be "https://json-schema.org/draft/2020-12/schema"`},
		"unknown dialect":  {`{"$schema":"https://example.test/dialect"}`, `$schema must be "https://json-schema.org/draft/2020-12/schema"`},
		"embedded dialect": {`{"$defs":{"a":{"$id":"urn:a","$schema":"http://json-schema.org/draft-04/schema#"}}}`, `$schema must be "https://json-schema.org/draft/2020-12/schema"`},
		"nowhere":          {`{"$ref":"#/$defs/a"}`, `it must be a JSON Schema of draft 2020-12: json-pointer in "#/$defs/a" not found`},
		"not JSON":         {`{`, "it must be valid JSON without duplicate members"},
		"duplicates":       {`{"type":"object","type":"string"}`, "it must be valid JSON without duplicate members"},
		"no schema":        {`7`, "it breaks the rules of JSON Schema at /"},
		"bad keyword":      {`{"properties":{"a":{"type":"text"}}}`, "it breaks the rules of JSON Schema at /properties/a/type"},
		"bad pattern":      {`{"pattern":"("}`, "it breaks the rules of JSON Schema at /pattern"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := events.CompilePayloadSchema("report.draft", []byte(tc.schema))
			if err == nil {
				t.Fatal("it compiles")
			}
			if diff := cmp.Diff("payload schema of report.draft: "+tc.want, err.Error()); diff != "" {
				t.Errorf("sentence (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAPayloadSchemaMayReferToItself(t *testing.T) {
	schema, err := events.CompilePayloadSchema("report.draft", []byte(
		`{"$id":"urn:example:report","$ref":"#/$defs/a","$defs":{"a":{"required":["a"]}}}`))
	if err != nil {
		t.Fatal(err)
	}
	if schema.Check(jsontext.Value(`{"a":1}`)) != nil || schema.Check(jsontext.Value(`{}`)) == nil {
		t.Error("the reference is not followed")
	}
}
