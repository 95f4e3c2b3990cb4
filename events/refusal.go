package events

import "slices"

// Schema versions of the records about what was not taken.
const (
	RefusalSchema  = "loopx_post_writeback_refusal_v0"
	ConflictSchema = "loopx_post_writeback_conflict_v0"
)

// RefusedDocument names the kind of document that a [Refusal] is about.
type RefusedDocument string

const (
	// RefusedReceipt: a receipt that was not admissible.
	RefusedReceipt RefusedDocument = "receipt"
	// RefusedRegistration: a registration file that was not admissible.
	RefusedRegistration RefusedDocument = "registration"
)

// RefusalReason is the first rule that a refused document broke, in the order given here.
type RefusalReason string

const (
	// RefusedTooLarge: a receipt of more than [MaxReceiptBytes], or a registration file of more than is read.
	RefusedTooLarge RefusalReason = "too_large"
	// RefusedMalformed: not such a document, not a CloudEvent, or the subject names another event kind.
	RefusedMalformed RefusalReason = "malformed"
	// RefusedUnknownEventKind: the event kind is not in the table.
	RefusedUnknownEventKind RefusalReason = "unknown_event_kind"
	// RefusedUnknownProfile: no such profile is installed.
	RefusedUnknownProfile RefusalReason = "unknown_profile"
	// RefusedIdentityIncomplete: one of the plan's five ids is empty.
	RefusedIdentityIncomplete RefusalReason = "identity_incomplete"
	// RefusedEffectMismatch: the receipt is about another effect than the plan.
	RefusedEffectMismatch RefusalReason = "effect_mismatch"
	// RefusedNotDurableWriteback: the receipt is about another step.
	RefusedNotDurableWriteback RefusalReason = "not_durable_writeback"
	// RefusedNotCommitted: the writeback is not committed.
	RefusedNotCommitted RefusalReason = "writeback_not_committed"
	// RefusedNotCheckpointed: the writeback is not checkpointed.
	RefusedNotCheckpointed RefusalReason = "not_checkpointed"
	// RefusedTooOld: older than the dispatcher's max_receipt_age.
	RefusedTooOld RefusalReason = "too_old"
	// RefusedFromFuture: committed further ahead than the skew allowance.
	RefusedFromFuture RefusalReason = "from_future"
	// RefusedPoisoned: handling it panicked repeatedly; a fault of ours.
	RefusedPoisoned RefusalReason = "poisoned"
	// RefusedOverCeiling: the registration asks for more than a profile's ceiling.
	RefusedOverCeiling RefusalReason = "over_ceiling"
)

// refusalReasons are the reasons to refuse each kind of document, in the order in which they are asked.
var refusalReasons = map[RefusedDocument][]RefusalReason{
	RefusedReceipt: {
		RefusedTooLarge, RefusedMalformed, RefusedUnknownEventKind, RefusedUnknownProfile, RefusedIdentityIncomplete,
		RefusedEffectMismatch, RefusedNotDurableWriteback, RefusedNotCommitted, RefusedNotCheckpointed, RefusedTooOld,
		RefusedFromFuture, RefusedPoisoned,
	},
	RefusedRegistration: {RefusedTooLarge, RefusedMalformed, RefusedOverCeiling},
}

// Refusal records, under the digest of the raw bytes, that a document was not taken. It holds nothing of it.
type Refusal struct {
	// Code is registration_rejected for a registration, else null.
	Code Code `json:"code"`
	// Digest is the SHA-256 of the raw document, 64 hex digits.
	Digest   string          `json:"digest"`
	Document RefusedDocument `json:"document"`
	// HookID is the registration's hook where it could be read, else null.
	HookID        Optional      `json:"hook_id"`
	Reason        RefusalReason `json:"reason"`
	RecordedAt    Timestamp     `json:"recorded_at"`
	SchemaVersion string        `json:"schema_version"`
	// Size of the raw document in bytes.
	Size int `json:"size"`
}

// Conflict records a second, different telling of a dispatch. The dispatch's own record stands.
type Conflict struct {
	CapabilityID CapabilityID `json:"capability_id"`
	Code         Code         `json:"code"`
	DispatchID   DispatchID   `json:"dispatch_id"`
	EventKind    EventKind    `json:"event_kind"`
	HookID       HookID       `json:"hook_id"`
	// LoserDigest is the input digest (input_differs) or result digest (result_differs) of what came second.
	LoserDigest     Digest          `json:"loser_digest"`
	Reason          Reason          `json:"reason"`
	ReceiptIdentity ReceiptIdentity `json:"receipt_identity"`
	RecordedAt      Timestamp       `json:"recorded_at"`
	SchemaVersion   string          `json:"schema_version"`
	// StandingDigest is the digest of the same kind in the record that stands.
	StandingDigest Digest `json:"standing_digest"`
	// StandingRecord is the number of the record that stands.
	StandingRecord int `json:"standing_record"`
}

func (r *Refusal) validate(at path) *DecodeError {
	if err := wantSchema(at, r.SchemaVersion, RefusalSchema); err != nil {
		return err
	}
	if !IsSHA256(r.Digest) {
		return at.member("digest").bad("must be 64 hex digits")
	}
	switch r.Document {
	case RefusedReceipt:
		if r.Code != "" {
			return at.member("code").bad("must be null for a receipt")
		}
		if r.HookID != "" {
			return at.member("hook_id").bad("must be null for a receipt")
		}
	case RefusedRegistration:
		if r.Code != CodeRegistrationRejected {
			return at.member("code").bad(`must be "registration_rejected" for a registration`)
		}
		if r.HookID != "" && !IsName(string(r.HookID)) {
			return at.member("hook_id").bad("must be a name or null")
		}
	default:
		return at.member("document").bad(`must be "receipt" or "registration"`)
	}
	if !slices.Contains(refusalReasons[r.Document], r.Reason) {
		return at.member("reason").bad("must be a reason to refuse the document")
	}
	if r.Size < 0 {
		return at.member("size").bad("must not be negative")
	}
	return r.RecordedAt.validate(at.member("recorded_at"))
}

func (c *Conflict) validate(at path) *DecodeError {
	if err := wantSchema(at, c.SchemaVersion, ConflictSchema); err != nil {
		return err
	}
	if err := wantHook(at, "dispatch_id", c.DispatchID, c.HookID, c.CapabilityID); err != nil {
		return err
	}
	if c.Code != CodeIntentConflict {
		return at.member("code").bad(`must be "intent_conflict"`)
	}
	if c.Reason != ReasonInputDiffers && c.Reason != ReasonResultDiffers {
		return at.member("reason").bad(`must be "input_differs" or "result_differs"`)
	}
	if !c.EventKind.Known() {
		return at.member("event_kind").bad("must be a known event kind")
	}
	if !isDigestOf(c.ReceiptIdentity, receiptPrefix) {
		return at.member("receipt_identity").bad("must be a receipt identity")
	}
	for _, d := range []struct{ member, value string }{
		{"loser_digest", c.LoserDigest}, {"standing_digest", c.StandingDigest},
	} {
		if !IsDigest(d.value) {
			return at.member(d.member).bad("must be a digest")
		}
	}
	if c.StandingRecord < 1 {
		return at.member("standing_record").bad("must count from 1")
	}
	return c.RecordedAt.validate(at.member("recorded_at"))
}
