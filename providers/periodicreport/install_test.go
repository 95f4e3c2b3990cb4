package periodicreport_test

import (
	"encoding/json"
	"testing"

	"github.com/afterwrite/afterwrite/events"
	"github.com/afterwrite/afterwrite/providers/periodicreport"
)

func TestTheInstalledRegistrationIsTheGoldenOne(t *testing.T) {
	var golden identities
	read(t, "identities.json", &golden)
	registration, err := periodicreport.Registration()
	if err != nil {
		t.Fatal(err)
	}
	equalJSON(t, golden.Registration, registration)
	if got := registration.Digest(); got != golden.RegistrationDigest {
		t.Errorf("digest %s, want %s", got, golden.RegistrationDigest)
	}
}

func TestTheInstalledPayloadSchemaTakesTheFactsAndNothingElse(t *testing.T) {
	var file struct {
		PayloadSchemas map[string]json.RawMessage `json:"payload_schemas"`
	}
	unmarshal(t, periodicreport.HookFile, &file)
	if len(file.PayloadSchemas) != 1 {
		t.Fatalf("%d payload schemas, want one: that of the one intent kind", len(file.PayloadSchemas))
	}
	schema, err := events.CompilePayloadSchema(periodicreport.IntentKind, file.PayloadSchemas[periodicreport.IntentKind])
	if err != nil {
		t.Fatal(err)
	}
	var golden identities
	read(t, "identities.json", &golden)
	proposed := 0
	for _, v := range golden.Vectors {
		if v.Payload == nil {
			continue
		}
		proposed++
		if err := schema.Check([]byte(v.Payload)); err != nil {
			t.Errorf("%s: %v", v.ReceiptID, err)
		}
		for name, member := range map[string]string{
			"another transition": `{"transition":"segment_advanced"}`,
			"a long segment":     `{"segment_ref":"segment_fa7fe0c3cb9fa4740dee354f0"}`,
			"a time of no zone":  `{"observed_at":"2026-06-23T17:13:00"}`,
			"prose":              `{"goal_id":"do this and that"}`,
			"a member more":      `{"note":"x"}`,
			"a fact of prose":    `{"source_event_refs":["did this and that"]}`,
		} {
			var payload map[string]any
			unmarshal(t, v.Payload, &payload)
			unmarshal(t, []byte(member), &payload)
			if err := schema.Check(marshal(t, payload)); err == nil {
				t.Errorf("%s: %s was accepted", v.ReceiptID, name)
			}
		}
	}
	if proposed == 0 {
		t.Error("no golden payload")
	}
}

func TestTheReturnSchemaTakesTheWorkedDecisions(t *testing.T) {
	schema, err := events.CompilePayloadSchema(periodicreport.ServiceName, periodicreport.ReturnSchema)
	if err != nil {
		t.Fatal(err)
	}
	for _, ex := range examples(t) {
		if err := schema.Check([]byte(ex.Decision)); err != nil {
			t.Errorf("%s: %v", ex.Name, err)
		}
	}
	for name, broken := range map[string]string{
		"selected without a trigger": `"selected": null`,
		"an unknown reason":          `"reason": "because"`,
		"a member more":              `"text": "prose"`,
	} {
		var decision map[string]any
		unmarshal(t, examples(t)[0].Decision, &decision)
		unmarshal(t, []byte("{"+broken+"}"), &decision)
		if err := schema.Check(marshal(t, decision)); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}
