package events

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"sync"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

const (
	receiptPrefix  = "pwr_sha256_"
	dispatchPrefix = "pwh_sha256_"
	intentPrefix   = "pwi_sha256_"
	digestPrefix   = "sha256_"
)

// SHA256 is the lowercase hex SHA-256 of data, 64 digits.
func SHA256(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// DigestOf is the digest of a document given in its canonical form, as [Encode] writes it.
func DigestOf(canonical []byte) Digest { return digestWith(digestPrefix, canonical) }

func digestWith(prefix string, canonical []byte) string {
	sum := sha256.Sum256(canonical)
	var out [len(receiptPrefix) + hexDigest]byte
	n := copy(out[:], prefix)
	return string(out[:n+hex.Encode(out[n:], sum[:])])
}

// identityOf is the id over the canonical form of fields, a struct that stands in canonical order.
func identityOf(prefix string, fields any) string {
	buf := canonicalBuffers.Get().(*bytes.Buffer)
	defer canonicalBuffers.Put(buf)
	buf.Reset()
	if err := json.MarshalWrite(buf, fields, json.Deterministic(true)); err != nil {
		panic(err) // strings that are not UTF-8 or a payload that is not JSON: no decoded document holds them
	}
	return digestWith(prefix, buf.Bytes())
}

var canonicalBuffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// Identity is the receipt's identity: what makes two receipts the same writeback. It covers neither the clock
// nor the projection, so the same writeback told differently is a conflict and not a second piece of work.
func (r *Receipt) Identity() ReceiptIdentity {
	return identityOf(receiptPrefix, receiptIdentity{
		AgentID:        r.Plan.AgentID,
		EffectID:       r.Receipt.EffectID,
		EventKind:      r.EventKind,
		GoalID:         r.Plan.GoalID,
		ReceiptID:      r.Receipt.ReceiptID,
		StateRevision:  r.Receipt.StateRevision,
		StepKind:       r.Receipt.StepKind,
		TodoID:         r.Plan.TodoID,
		TurnInstanceID: r.Plan.TurnInstanceID,
	})
}

type receiptIdentity struct {
	AgentID        string    `json:"agent_id"`
	EffectID       string    `json:"effect_id"`
	EventKind      EventKind `json:"event_kind"`
	GoalID         string    `json:"goal_id"`
	ReceiptID      string    `json:"receipt_id"`
	StateRevision  string    `json:"state_revision"`
	StepKind       string    `json:"step_kind"`
	TodoID         string    `json:"todo_id"`
	TurnInstanceID string    `json:"turn_instance_id"`
}

// Digest is the registration's digest. The budget is left out: tuning it changes no dispatch's identity.
func (r *Registration) Digest() Digest {
	return identityOf(digestPrefix, registrationIdentity{
		CapabilityID:       r.CapabilityID,
		EventKinds:         r.EventKinds,
		FailurePolicy:      r.FailurePolicy,
		HookID:             r.HookID,
		IntentKinds:        r.IntentKinds,
		Phase:              r.Phase,
		RequestedReadScope: r.RequestedReadScope,
		SchemaVersion:      r.SchemaVersion,
	})
}

type registrationIdentity struct {
	CapabilityID       CapabilityID `json:"capability_id"`
	EventKinds         []EventKind  `json:"event_kinds"`
	FailurePolicy      string       `json:"failure_policy"`
	HookID             HookID       `json:"hook_id"`
	IntentKinds        []IntentKind `json:"intent_kinds"`
	Phase              string       `json:"phase"`
	RequestedReadScope []ReadScope  `json:"requested_read_scope"`
	SchemaVersion      string       `json:"schema_version"`
}

// DispatchIdentity is the id of the dispatch of one hook for one receipt.
func DispatchIdentity(receipt ReceiptIdentity, hook HookID, capability CapabilityID, registration Digest, kind EventKind) DispatchID {
	return identityOf(dispatchPrefix, dispatchIdentity{
		CapabilityID:       capability,
		EventKind:          kind,
		HookID:             hook,
		Receipt:            receipt,
		RegistrationDigest: registration,
		RegistrationSchema: RegistrationSchema,
	})
}

type dispatchIdentity struct {
	CapabilityID       CapabilityID    `json:"capability_id"`
	EventKind          EventKind       `json:"event_kind"`
	HookID             HookID          `json:"hook_id"`
	Receipt            ReceiptIdentity `json:"receipt"`
	RegistrationDigest Digest          `json:"registration_digest"`
	RegistrationSchema string          `json:"registration_schema"`
}

// IntentIdentity is the id of an intent. payload must be in canonical form, as [Decode] leaves it.
func IntentIdentity(dispatch DispatchID, kind IntentKind, policyVersion string, payload jsontext.Value) IntentID {
	return identityOf(intentPrefix, intentIdentity{
		DispatchID:    dispatch,
		IntentKind:    kind,
		Payload:       payload,
		PolicyVersion: policyVersion,
	})
}

// Identity is the id the intent must have.
func (i *Intent) Identity() IntentID {
	return IntentIdentity(i.SourceDispatchID, i.IntentKind, i.PolicyVersion, i.Payload)
}

type intentIdentity struct {
	DispatchID    DispatchID     `json:"dispatch_id"`
	IntentKind    IntentKind     `json:"intent_kind"`
	Payload       jsontext.Value `json:"payload"`
	PolicyVersion string         `json:"policy_version"`
}
