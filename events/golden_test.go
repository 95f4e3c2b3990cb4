package events_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"github.com/afterwrite/afterwrite/events"
)

// golden holds identities that were computed independently of this code base.
type golden struct {
	Registration       jsontext.Value `json:"registration"`
	RegistrationDigest string         `json:"registration_digest"`
	Vectors            []vector       `json:"vectors"`
}

type vector struct {
	ReceiptID       string         `json:"receipt_id"`
	MessageID       string         `json:"message_id"`
	ReceiptIdentity string         `json:"receipt_identity"`
	DispatchID      string         `json:"dispatch_id"`
	Status          string         `json:"status"`
	Payload         jsontext.Value `json:"payload"`
	IntentID        string         `json:"intent_id"`
	InputDigest     string         `json:"input_digest"`
	ResultDigest    string         `json:"result_digest"`
}

func readGolden(tb testing.TB) golden {
	tb.Helper()
	var g golden
	if err := json.Unmarshal(readFile(tb, "testdata/golden/identities.json"), &g); err != nil {
		tb.Fatal(err)
	}
	return g
}

// readReceipts gives the receipts of longhorizon.jsonl by their receipt id; of a repeated one, the first.
func readReceipts(tb testing.TB) map[string]*events.Receipt {
	tb.Helper()
	receipts := map[string]*events.Receipt{}
	for line := range bytes.Lines(readFile(tb, "testdata/golden/longhorizon.jsonl")) {
		receipt, err := events.Decode[events.Receipt](line)
		if err != nil {
			tb.Fatal(err)
		}
		if _, again := receipts[receipt.Receipt.ReceiptID]; !again {
			receipts[receipt.Receipt.ReceiptID] = receipt
		}
	}
	return receipts
}

func readFile(tb testing.TB, name string) []byte {
	tb.Helper()
	data, err := os.ReadFile(filepath.FromSlash(name))
	if err != nil {
		tb.Fatal(err)
	}
	return data
}

func TestIdentitiesAreThoseOfTheGoldenVectors(t *testing.T) {
	g := readGolden(t)
	receipts := readReceipts(t)
	registration, err := events.Decode[events.Registration](g.Registration)
	if err != nil {
		t.Fatal(err)
	}
	if got := registration.Digest(); got != g.RegistrationDigest {
		t.Errorf("registration digest %s, want %s", got, g.RegistrationDigest)
	}
	for _, want := range g.Vectors {
		t.Run(want.ReceiptID, func(t *testing.T) {
			if diff := cmp.Diff(want, identitiesOf(t, registration, receipts[want.ReceiptID], want)); diff != "" {
				t.Errorf("identities (-want +got):\n%s", diff)
			}
		})
	}
}

// identitiesOf recomputes a vector from the receipt, the registration, and the payload that the vector gives.
func identitiesOf(t *testing.T, registration *events.Registration, receipt *events.Receipt, given vector) vector {
	t.Helper()
	input := inputOf(registration, registration.Digest(), receipt.Identity(), receipt)
	result := &events.HookResult{
		CapabilityID: input.CapabilityID, DispatchID: input.DispatchID, HookID: input.HookID,
		Intents: []events.Intent{}, SchemaVersion: events.HookResultSchema, Status: events.ResultNotApplicable,
	}
	got := given
	got.ReceiptIdentity, got.DispatchID, got.MessageID = receipt.Identity(), input.DispatchID, receipt.MessageID()
	if given.Payload != nil {
		payload, err := events.Canonicalize(given.Payload)
		if err != nil {
			t.Fatal(err)
		}
		intent := intentOf(input, payload)
		got.IntentID = intent.IntentID
		result.Status, result.Intents = events.ResultProposed, []events.Intent{intent}
	}
	got.Status = string(result.Status)
	got.InputDigest, got.ResultDigest = digest(t, input), digest(t, result)
	return got
}

func digest(t *testing.T, doc any) string {
	t.Helper()
	data, err := events.EncodeValue(doc)
	if err != nil {
		t.Fatal(err)
	}
	return events.DigestOf(data)
}

func inputOf(
	registration *events.Registration, digest events.Digest, identity events.ReceiptIdentity, receipt *events.Receipt,
) *events.HookInput {
	return &events.HookInput{
		CapabilityID: registration.CapabilityID,
		DispatchID: events.DispatchIdentity(
			identity, registration.HookID, registration.CapabilityID, digest, receipt.EventKind),
		HookID:        registration.HookID,
		Projection:    &receipt.Projection,
		SchemaVersion: events.HookInputSchema,
		Source: &events.HookSource{
			AgentID:        receipt.Plan.AgentID,
			CommittedAt:    receipt.Receipt.CommittedAt,
			EffectID:       receipt.Receipt.EffectID,
			EventKind:      receipt.EventKind,
			GoalID:         receipt.Plan.GoalID,
			ReceiptID:      receipt.Receipt.ReceiptID,
			StateRevision:  receipt.Receipt.StateRevision,
			StepKind:       receipt.Receipt.StepKind,
			TodoID:         receipt.Plan.TodoID,
			TurnInstanceID: receipt.Plan.TurnInstanceID,
		},
	}
}

func intentOf(input *events.HookInput, payload jsontext.Value) events.Intent {
	intent := events.Intent{
		Budget:              events.IntentBudget{MaxAttempts: 1, MaxResultBytes: 16384},
		CapabilityID:        input.CapabilityID,
		FailurePolicy:       events.Isolate,
		HookID:              input.HookID,
		IntentKind:          "periodic_report.trigger_evaluation",
		Operation:           "evaluate_runtime_trigger",
		Payload:             payload,
		PolicyVersion:       "weekly_v0",
		RequestedWriteScope: []string{},
		SchemaVersion:       events.IntentSchema,
		SourceDispatchID:    input.DispatchID,
	}
	intent.IntentID = intent.Identity()
	return intent
}
