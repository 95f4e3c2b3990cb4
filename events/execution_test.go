package events

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/gowebpki/jcs"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

// executionSchema compiles the published schema, with the format of times asserted.
func executionSchema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	for _, file := range []string{"vocabulary", ExecutionSchema} {
		data, ok := Schema(file)
		if !ok {
			t.Fatalf("%s is not published", file)
		}
		doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
		if err != nil {
			t.Fatal(err)
		}
		if err := c.AddResource(SchemaID(file), doc); err != nil {
			t.Fatal(err)
		}
	}
	s, err := c.Compile(SchemaID(ExecutionSchema))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func satisfies(t *testing.T, s *jsonschema.Schema, data []byte) error {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	return s.Validate(doc)
}

func executionFixture(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", "execution", name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestEveryExecutionStatusHasAFixtureThatTheTypeAndTheSchemaAccept(t *testing.T) {
	schema := executionSchema(t)
	files, err := filepath.Glob("testdata/execution/*.json")
	if err != nil {
		t.Fatal(err)
	}
	var seen []ExecutionStatus
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		record, err := Decode[Execution](data)
		if err != nil {
			t.Errorf("%s: %v", file, err)
			continue
		}
		if err := satisfies(t, schema, data); err != nil {
			t.Errorf("%s: %v", file, err)
		}
		encoded, err := Encode(record)
		if err != nil {
			t.Fatal(err)
		}
		want, err := jcs.Transform(data)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), string(encoded)); diff != "" {
			t.Errorf("%s: not canonical (-want +got):\n%s", file, diff)
		}
		seen = append(seen, record.Status)
	}
	for _, status := range ExecutionStatuses() {
		if !slices.Contains(seen, status) {
			t.Errorf("no fixture of %s", status)
		}
	}
}

func TestAMalformedExecutionIsRefusedByTheTypeAndTheSchema(t *testing.T) {
	schema := executionSchema(t)
	for _, test := range []struct {
		name, fixture, old, new string
		path                    string
		fault                   Fault
	}{
		{"other schema", "called", `_execution_v0"`, `_execution_v1"`, "schema_version", FaultValue},
		{"unknown status", "called", `"called"`, `"begun"`, "status", FaultValue},
		{"unknown member", "called", `"attempt": 1`, `"attempt": 1, "note": "x"`, "", FaultUnknownMember},
		{"missing member", "called", `"attempt": 1,`, ``, "attempt", FaultMissingMember},
		{"executor no name", "called", `"executor": "report_evaluator"`, `"executor": "Report"`, "executor", FaultValue},
		{"intent id", "called", `"intent_id": "pwi_`, `"intent_id": "pwx_`, "intent_id", FaultValue},
		{"intent kind", "called", `"intent_kind": "periodic_report.trigger_evaluation"`, `"intent_kind": "a..b"`, "intent_kind", FaultValue},
		{"capability", "called", `"capability_id": "periodic_report"`, `"capability_id": "9"`, "capability_id", FaultValue},
		{"dispatch", "called", `"dispatch_id": "pwh_`, `"dispatch_id": "pwx_`, "dispatch_id", FaultValue},
		{"digest", "called", `"intent_digest": "sha256_`, `"intent_digest": "sha1_`, "intent_digest", FaultValue},
		{"run id", "called", `"run_a"`, `"run a"`, "run_id", FaultValue},
		{"record number", "called", `"record_number": 2`, `"record_number": 0`, "record_number", FaultValue},
		{"attempt", "called", `"attempt": 1`, `"attempt": 65`, "attempt", FaultValue},
		{"attempt type", "called", `"attempt": 1`, `"attempt": "1"`, "attempt", FaultWrongType},
		{"actor", "called", `"actor": "report_evaluator"`, `"actor": "a b"`, "actor", FaultValue},
		{"actor kind", "called", `"actor_kind": "executor"`, `"actor_kind": "robot"`, "actor_kind", FaultValue},
		{"reason of no status", "failed", `"outcome_unknown"`, `"bad_luck"`, "reason", FaultValue},
		{"reason of another status", "failed", `"outcome_unknown"`, `"stopping"`, "reason", FaultValue},
		{"reason where none is", "called", `"reason": null`, `"reason": "too_old"`, "reason", FaultValue},
		{"no reason", "failed", `"outcome_unknown"`, `null`, "reason", FaultValue},
		{"budget of zero", "called", `"max_attempts": 2`, `"max_attempts": 0`, "granted.budget.max_attempts", FaultValue},
		{"budget too large", "awaiting", `"max_result_bytes": 4096`, `"max_result_bytes": 65537`, "granted.budget.max_result_bytes", FaultValue},
		{"scope no opaque id", "awaiting", `"reports.draft"`, `"/etc"`, "granted.write_scope[0]", FaultValue},
		{"scope repeated", "awaiting", `"reports.draft"`, `"reports.draft", "reports.draft"`, "granted.write_scope[1]", FaultValue},
		{"authority", "claimed", `"authority": "grant"`, `"authority": "luck"`, "accepted.authority", FaultValue},
		{"grant not named", "claimed", `"by": "sha256_`, `"by": "sha1_`, "accepted.by", FaultValue},
		{"person not named", "accepted", `"by": "operator-1"`, `"by": "operator 1"`, "accepted.by", FaultValue},
		{"packet untyped", "completed", `"schema_version": "periodic_report_trigger_decision_v0"`, `"schema_version": ""`, "result.schema_version", FaultValue},
		{"packet no object", "completed", `"data": {`, `"data": 7, "x": {`, "result", FaultUnknownMember},
		{"packet data no object", "completed", "{\n      \"reason\": \"trigger_selected\"\n    }", `[]`, "result.data", FaultValue},
		{"time", "called", `"recorded_at": "2026-06-23T17:13:06Z"`, `"recorded_at": "2026-06-23T17:13:06"`, "recorded_at", FaultValue},
		{"lease no time", "called", `"lease_until": "2026-06-23T17:13:46Z"`, `"lease_until": "soon"`, "lease_until", FaultValue},
		{"no lease where something runs", "called", `"lease_until": "2026-06-23T17:13:46Z"`, `"lease_until": null`, "lease_until", FaultValue},
		{"lease where nothing runs", "awaiting", `"lease_until": null`, `"lease_until": "2026-06-23T17:13:46Z"`, "lease_until", FaultValue},
		{"paused for ever", "paused", `"resume_at": "2026-06-23T17:13:46Z"`, `"resume_at": null`, "resume_at", FaultValue},
		{"resumes what ended", "failed", `"resume_at": null`, `"resume_at": "2026-06-23T17:13:46Z"`, "resume_at", FaultValue},
		{"completed without result", "completed", "{\n    \"data\": {\n      \"reason\": \"trigger_selected\"\n    },\n    \"schema_version\": \"periodic_report_trigger_decision_v0\"\n  }", `null`, "result", FaultValue},
		{"result before the call", "claimed", `"result": null`, `"result": {"data": {}, "schema_version": "x"}`, "result", FaultValue},
		{"admitted without proposer", "awaiting", `"capability_id": "periodic_report"`, `"capability_id": null`, "granted", FaultValue},
		{"accepted by nobody", "awaiting", `"status": "awaiting"`, `"status": "accepted"`, "accepted", FaultValue},
		{"running without a run", "called", `"run_a"`, `null`, "run_id", FaultValue},
		{"empty for null", "awaiting", `"run_id": null`, `"run_id": ""`, "run_id", FaultValue},
	} {
		t.Run(test.name, func(t *testing.T) {
			valid := executionFixture(t, test.fixture)
			data := strings.Replace(valid, test.old, test.new, 1)
			if test.name == "budget of zero" { // the granted budget, and not the accepted one before it
				at := strings.LastIndex(valid, test.old)
				data = valid[:at] + test.new + valid[at+len(test.old):]
			}
			if data == valid {
				t.Fatal("the case changes nothing")
			}
			_, err := Decode[Execution]([]byte(data))
			fault := (*DecodeError)(nil)
			if !errors.As(err, &fault) {
				t.Fatalf("decoded, want %s at %q", test.fault, test.path)
			}
			if fault.Fault != test.fault || fault.Path != test.path {
				t.Errorf("%s at %q (%v), want %s at %q", fault.Fault, fault.Path, err, test.fault, test.path)
			}
			if err := satisfies(t, schema, []byte(data)); err == nil {
				t.Error("the schema accepts it")
			}
		})
	}
}

func TestATerminalExecutionDoesNotRun(t *testing.T) {
	running := []ExecutionStatus{ExecutionClaimed, ExecutionCalled, ExecutionReturned}
	terminal := []ExecutionStatus{ExecutionRefused, ExecutionCompleted, ExecutionFailed}
	for _, status := range ExecutionStatuses() {
		if got, want := status.Running(), slices.Contains(running, status); got != want {
			t.Errorf("%s.Running() = %t, want %t", status, got, want)
		}
		if got, want := status.Terminal(), slices.Contains(terminal, status); got != want {
			t.Errorf("%s.Terminal() = %t, want %t", status, got, want)
		}
	}
}
