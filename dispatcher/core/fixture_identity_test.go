package core_test

import (
	"crypto/sha256"
	"encoding/hex"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/gowebpki/jcs"
)

// A fixture is only worth something if its ids are right, so they are computed here with another implementation of
// the canonical form, and compared with the golden vectors.
func TestGivenIdentitiesAreThoseOfASecondCanonicalForm(t *testing.T) {
	g := readGiven(t)
	for name, in := range g.Installations {
		for id, hook := range in.Hooks {
			var registration map[string]any
			strictly(t, hook.Registration, &registration)
			delete(registration, "budget")
			if want := "sha256_" + sum(t, registration); hook.Digest != want {
				t.Errorf("installations.%s.hooks.%s.digest is %s, want %s", name, id, hook.Digest, want)
			}
		}
	}
	for name, d := range g.Dispatches {
		if want := "sha256_" + sum(t, d.Input); d.InputDigest != want {
			t.Errorf("dispatches.%s.input_digest is %s, want %s", name, d.InputDigest, want)
		}
		if want := "pwh_sha256_" + sum(t, map[string]any{
			"receipt":             d.ReceiptIdentity,
			"hook_id":             d.HookID,
			"capability_id":       d.CapabilityID,
			"registration_digest": d.RegistrationDigest,
			"registration_schema": "loopx_post_writeback_capability_hook_registration_v0",
			"event_kind":          d.EventKind,
		}); d.DispatchID != want {
			t.Errorf("dispatches.%s.dispatch_id is %s, want %s", name, d.DispatchID, want)
		}
		source := d.Input.Source
		if source == nil {
			continue
		}
		if want := "pwr_sha256_" + sum(t, map[string]any{
			"receipt_id":       source.ReceiptID,
			"step_kind":        source.StepKind,
			"effect_id":        source.EffectID,
			"goal_id":          source.GoalID,
			"agent_id":         source.AgentID,
			"todo_id":          source.TodoID,
			"turn_instance_id": source.TurnInstanceID,
			"event_kind":       source.EventKind,
			"state_revision":   source.StateRevision,
		}); d.ReceiptIdentity != want {
			t.Errorf("dispatches.%s.receipt_identity is %s, want %s", name, d.ReceiptIdentity, want)
		}
	}
}

func TestGivenGoldenDispatchesAreTheGoldenVectors(t *testing.T) {
	var golden struct {
		About              string         `json:"about"`
		Registration       jsontext.Value `json:"registration"`
		RegistrationDigest string         `json:"registration_digest"`
		Vectors            []struct {
			ReceiptID       string         `json:"receipt_id"`
			MessageID       string         `json:"message_id"`
			ReceiptIdentity string         `json:"receipt_identity"`
			DispatchID      string         `json:"dispatch_id"`
			Status          string         `json:"status"`
			Payload         jsontext.Value `json:"payload"`
			IntentID        string         `json:"intent_id"`
			InputDigest     string         `json:"input_digest"`
			ResultDigest    string         `json:"result_digest"`
		} `json:"vectors"`
	}
	readJSON(t, identitiesFile, &golden)
	g := readGiven(t)
	for _, v := range golden.Vectors {
		found := false
		for _, d := range g.Dispatches {
			found = found || d.DispatchID == v.DispatchID && d.InputDigest == v.InputDigest &&
				d.ReceiptIdentity == v.ReceiptIdentity && d.RegistrationDigest == golden.RegistrationDigest
		}
		if !found {
			t.Errorf("no dispatch is given for the golden vector %s", v.ReceiptID)
		}
	}
	statuses := map[string][2]string{}
	for _, c := range readFixtures(t, "testdata/decide.json") {
		if c.Installed != "longhorizon" || c.Result == nil || c.Result.Save == nil {
			continue
		}
		record := g.record(t, c.Result.Save.Record)
		intent := ""
		if len(record.Intents) == 1 {
			intent = record.Intents[0].IntentID
		}
		statuses[record.DispatchID+string(record.ResultDigest)] = [2]string{string(record.Status), intent}
	}
	for _, v := range golden.Vectors {
		if got, want := statuses[v.DispatchID+v.ResultDigest], [2]string{v.Status, v.IntentID}; got != want {
			t.Errorf("%s is decided as %v, want %v", v.ReceiptID, got, want)
		}
	}
}

func sum(t *testing.T, v any) string {
	t.Helper()
	data, err := jcs.Transform(canonical(t, v))
	if err != nil {
		t.Fatal(err)
	}
	digest := sha256.Sum256(data)
	return hex.EncodeToString(digest[:])
}
