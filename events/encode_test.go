package events_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	stdjson "encoding/json"
	"reflect"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"
	"github.com/gowebpki/jcs"
	"pgregory.net/rapid"

	"github.com/afterwrite/afterwrite/events"
)

// anyDocument draws a document of any strings, numbers and payloads, whether it would decode or not.
func anyDocument[T any]() *rapid.Generator[*T] {
	return rapid.Custom(func(t *rapid.T) *T {
		doc := rapid.Make[*T]().Filter(func(doc *T) bool { return doc != nil }).Draw(t, "document")
		setPayloads(t, reflect.ValueOf(doc))
		return doc
	})
}

// setPayloads replaces what are only bytes by canonical JSON.
func setPayloads(t *rapid.T, v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			setPayloads(t, v.Elem())
		}
	case reflect.Struct:
		for _, field := range v.Fields() {
			setPayloads(t, field)
		}
	case reflect.Slice:
		if v.Type() == reflect.TypeFor[jsontext.Value]() {
			payload, err := events.Canonicalize([]byte(anyJSON(2).Draw(t, "payload")))
			if err != nil {
				t.Fatal(err)
			}
			v.SetBytes(payload)
			return
		}
		for i := range v.Len() {
			setPayloads(t, v.Index(i))
		}
	}
}

func TestEncodingIsThatOfAnotherLibrary(t *testing.T) {
	t.Run("receipt", func(t *testing.T) {
		checkEncoding[events.Receipt](t, events.Encode, events.Canonical)
	})
	t.Run("input", func(t *testing.T) {
		checkEncoding[events.HookInput](t, events.Encode, events.Canonical)
	})
	t.Run("result", func(t *testing.T) {
		checkEncoding[events.HookResult](t, events.Encode, events.Canonical)
	})
	t.Run("record", func(t *testing.T) {
		checkEncoding[events.DispatchReceipt](t, events.Encode, events.Canonical)
	})
	t.Run("execution", func(t *testing.T) {
		checkEncoding[events.Execution](t, events.Encode, events.Canonical)
	})
}

func checkEncoding[T any](t *testing.T, encode func(*T) ([]byte, error), canonical func(*T) []byte) {
	rapid.Check(t, func(t *rapid.T) {
		doc := anyDocument[T]().Draw(t, "document")
		want, err := json.Marshal(doc)
		if err != nil {
			t.Fatal(err)
		}
		got, err := encode(doc)
		if diff := cmp.Diff(string(want), string(got)); diff != "" || err != nil {
			t.Fatalf("%v (-want +got):\n%s", err, diff)
		}
		if diff := cmp.Diff(string(want), string(canonical(doc))); diff != "" {
			t.Fatalf("trusted (-want +got):\n%s", diff)
		}
		if got, want := events.DigestOf(canonical(doc)), "sha256_"+hexSHA256(want); got != want {
			t.Fatalf("digest %s, want %s", got, want)
		}
	})
}

func hexSHA256(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

func TestEncodeBringsPayloadsIntoCanonicalForm(t *testing.T) {
	got, err := events.Encode(&events.Intent{Payload: jsontext.Value(` { "b" : [ 1 ] , "a" : "\u20ac" } `)})
	if err != nil {
		t.Fatal(err)
	}
	if want, err := jcs.Transform(got); err != nil || string(want) != string(got) {
		t.Errorf("got %s, its canonical form is %s, %v", got, want, err)
	}
}

func TestEncodeSaysWhatItCannotWrite(t *testing.T) {
	for want, intent := range map[string]*events.Intent{
		"events: encode *events.Intent: operation must be valid UTF-8":                                   {Operation: "\xff", Payload: jsontext.Value("{}")},
		"events: encode *events.Intent: requested_write_scope[1] must be valid UTF-8":                    {RequestedWriteScope: []string{"a", "\xff"}},
		"events: encode *events.Intent: payload must be valid JSON":                                      {Payload: jsontext.Value("{")},
		"events: encode *events.Intent: payload must hold no number but plain integers within ±(2^53−1)": {Payload: jsontext.Value(`{"a":0.5}`)},
		"events: encode *events.Intent: payload must not have a member twice":                            {Payload: jsontext.Value(`{"a":1,"a":1}`)},
	} {
		data, err := events.Encode(intent)
		if err == nil {
			t.Errorf("want %s, got %s", want, data)
		} else if diff := cmp.Diff(want, err.Error()); diff != "" {
			t.Errorf("sentence (-want +got):\n%s", diff)
		}
	}
}

func TestCanonicalWritesNoStringThatIsNotUTF8(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("it was written")
		}
	}()
	events.Canonical(&events.Intent{Operation: "\xff", Payload: jsontext.Value("{}")})
}

// The first two test vectors of FIPS 180-2 for SHA-256, and its value of nothing.
func TestSHA256IsLowercaseHex(t *testing.T) {
	for data, want := range map[string]string{
		"":    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
		"abc": "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
		"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq": "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1",
	} {
		if got := events.SHA256([]byte(data)); got != want {
			t.Errorf("SHA256(%q) = %s, want %s", data, got, want)
		}
	}
}

// The identities of whatever a receipt may hold are those of its canonical form by another library.
func TestIdentitiesAreOverTheCanonicalFormOfAnotherLibrary(t *testing.T) {
	over := func(t *rapid.T, members map[string]any) string {
		canonical, err := jcs.Transform(jsonOf(members))
		if err != nil {
			t.Fatal(err)
		}
		return hexSHA256(canonical)
	}
	rapid.Check(t, func(t *rapid.T) {
		r := rapid.Make[events.Receipt]().Draw(t, "receipt")
		if got, want := r.Identity(), "pwr_sha256_"+over(t, map[string]any{
			"receipt_id": r.Receipt.ReceiptID, "step_kind": r.Receipt.StepKind, "effect_id": r.Receipt.EffectID,
			"goal_id": r.Plan.GoalID, "agent_id": r.Plan.AgentID, "todo_id": r.Plan.TodoID,
			"turn_instance_id": r.Plan.TurnInstanceID, "event_kind": r.EventKind, "state_revision": r.Receipt.StateRevision,
		}); got != want {
			t.Fatalf("receipt identity %s, want %s", got, want)
		}
		text := rapid.String()
		receipt, hook, capability := text.Draw(t, "receipt"), text.Draw(t, "hook"), text.Draw(t, "capability")
		registration, kind := text.Draw(t, "registration"), text.Draw(t, "kind")
		if got, want := events.DispatchIdentity(receipt, hook, capability, registration, events.EventKind(kind)), "pwh_sha256_"+over(t, map[string]any{
			"receipt": receipt, "hook_id": hook, "capability_id": capability, "registration_digest": registration,
			"registration_schema": "loopx_post_writeback_capability_hook_registration_v0", "event_kind": kind,
		}); got != want {
			t.Fatalf("dispatch id %s, want %s", got, want)
		}
		payload, err := events.Canonicalize([]byte(anyJSON(2).Draw(t, "payload")))
		if err != nil {
			t.Fatal(err)
		}
		if got, want := events.IntentIdentity(receipt, kind, hook, payload), "pwi_sha256_"+over(t, map[string]any{
			"dispatch_id": receipt, "intent_kind": kind, "policy_version": hook, "payload": stdjson.RawMessage(payload),
		}); got != want {
			t.Fatalf("intent id %s, want %s", got, want)
		}
	})
}

// What is canonical already is not encoded again for its digest.
func TestACanonicalDocumentIsItsOwnCanonicalForm(t *testing.T) {
	data := readFile(t, "testdata/valid/receipt-replan_recorded.json")
	receipt, err := events.Decode[events.Receipt](data)
	if err != nil {
		t.Fatal(err)
	}
	want := events.Canonical(receipt)
	for name, in := range map[string][]byte{"canonical": want, "with a blank": append([]byte{' '}, want...)} {
		_, got, err := events.DecodeCanonical[events.Receipt](in)
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: the canonical form is %s, %v; want %s", name, got, err, want)
		}
		if itself := err == nil && &got[0] == &in[0]; itself != (name == "canonical") {
			t.Errorf("%s: its canonical form is the data itself: %t", name, itself)
		}
	}
}
