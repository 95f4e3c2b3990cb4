package events

import (
	"crypto/sha256"
	"encoding/hex"

	"github.com/go-json-experiment/json/jsontext"
)

const (
	receiptPrefix  = "pwr_sha256_"
	dispatchPrefix = "pwh_sha256_"
	intentPrefix   = "pwi_sha256_"
	digestPrefix   = "sha256_"
)

// SHA256 is the lowercase hex SHA-256 of data, 64 digits.
func SHA256(data []byte) string { return prefixed("", data) }

// DigestOf is the digest of a document given in its canonical form, as [Encode] writes it.
func DigestOf(canonical []byte) Digest { return prefixed(digestPrefix, canonical) }

// digestOf is the id over the canonical form of v, which stands in canonical order.
func digestOf[T any](prefix string, v *T) string {
	w := newWriter()
	defer w.release()
	mustWrite(w, v)
	return prefixed(prefix, w.out)
}

func prefixed(prefix string, canonical []byte) string {
	sum := sha256.Sum256(canonical)
	var out [len(receiptPrefix) + hexDigest]byte
	n := copy(out[:], prefix)
	return string(out[:n+hex.Encode(out[n:], sum[:])])
}

// identified is a member of what an identity is over: a string, or a payload in canonical form.
type identified struct {
	name, text string
	payload    jsontext.Value
}

// identityOf is the id over an object of these members, given in canonical order.
func identityOf(prefix string, members ...identified) string {
	w := newWriter()
	defer w.release()
	open := byte('{')
	for i := range members {
		m := &members[i]
		w.out = append(w.out, open, '"')
		w.out = append(w.out, m.name...)
		w.out = append(w.out, '"', ':')
		open = ','
		if m.payload != nil {
			w.out = append(w.out, m.payload...)
		} else if err := w.text(m.text); err != nil {
			panic(err) // not UTF-8: no decoded document holds such a string
		}
	}
	w.out = append(w.out, '}')
	return prefixed(prefix, w.out)
}

// Identity is the receipt's identity: what makes two receipts the same writeback. It covers neither the clock
// nor the projection, so the same writeback told differently is a conflict and not a second piece of work.
func (r *Receipt) Identity() ReceiptIdentity {
	return identityOf(receiptPrefix,
		identified{name: "agent_id", text: r.Plan.AgentID},
		identified{name: "effect_id", text: r.Receipt.EffectID},
		identified{name: "event_kind", text: string(r.EventKind)},
		identified{name: "goal_id", text: r.Plan.GoalID},
		identified{name: "receipt_id", text: r.Receipt.ReceiptID},
		identified{name: "state_revision", text: r.Receipt.StateRevision},
		identified{name: "step_kind", text: r.Receipt.StepKind},
		identified{name: "todo_id", text: r.Plan.TodoID},
		identified{name: "turn_instance_id", text: r.Plan.TurnInstanceID},
	)
}

// Digest is the registration's digest. The budget is left out: tuning it changes no dispatch's identity.
func (r *Registration) Digest() Digest {
	return digestOf(digestPrefix, &registrationIdentity{
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
	return identityOf(dispatchPrefix,
		identified{name: "capability_id", text: capability},
		identified{name: "event_kind", text: string(kind)},
		identified{name: "hook_id", text: hook},
		identified{name: "receipt", text: receipt},
		identified{name: "registration_digest", text: registration},
		identified{name: "registration_schema", text: RegistrationSchema},
	)
}

// IntentIdentity is the id of an intent. payload must be in canonical form, as [Decode] leaves it.
func IntentIdentity(dispatch DispatchID, kind IntentKind, policyVersion string, payload jsontext.Value) IntentID {
	return identityOf(intentPrefix,
		identified{name: "dispatch_id", text: dispatch},
		identified{name: "intent_kind", text: kind},
		identified{name: "payload", payload: payload},
		identified{name: "policy_version", text: policyVersion},
	)
}

// Identity is the id the intent must have.
func (i *Intent) Identity() IntentID {
	return IntentIdentity(i.SourceDispatchID, i.IntentKind, i.PolicyVersion, i.Payload)
}
