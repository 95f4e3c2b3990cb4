package events

import "slices"

// DispatchReceiptSchema is the schema version of a [DispatchReceipt].
const DispatchReceiptSchema = "loopx_post_writeback_dispatch_receipt_v0"

// DispatchReceipt is one journal record about a dispatch. The last one is the dispatch's state.
type DispatchReceipt struct {
	// Actor names the operator of a redriven record, else null.
	Actor Optional `json:"actor"`
	// Attempt counts the attempts of this series, calls that found no responder included.
	Attempt      int          `json:"attempt"`
	CapabilityID CapabilityID `json:"capability_id"`
	Code         Code         `json:"code"`
	DispatchID   DispatchID   `json:"dispatch_id"`
	EventKind    EventKind    `json:"event_kind"`
	HookID       HookID       `json:"hook_id"`
	// Input is whole where another attempt may need it, else null. See [DispatchReceipt.HoldsInput].
	Input       *HookInput `json:"input"`
	InputDigest Digest     `json:"input_digest"`
	Intents     []Intent   `json:"intents"`
	// Invocations counts the calls that reached a provider, or may have.
	Invocations     int             `json:"invocations"`
	Profile         string          `json:"profile"`
	Reason          Reason          `json:"reason"`
	ReceiptIdentity ReceiptIdentity `json:"receipt_identity"`
	// RecordNumber counts the records of the dispatch from 1.
	RecordNumber       int       `json:"record_number"`
	RecordedAt         Timestamp `json:"recorded_at"`
	RegistrationDigest Digest    `json:"registration_digest"`
	ResultDigest       Optional  `json:"result_digest"`
	// RetryAt is when the next attempt is due, in retrying, else null.
	RetryAt       Optional `json:"retry_at"`
	SchemaVersion string   `json:"schema_version"`
	Status        Status   `json:"status"`
}

// HoldsInput reports whether a record of this status and code carries its input whole: so that work can go on
// without its receipt, and so that nothing refused is ever stored.
func HoldsInput(status Status, code Code) bool {
	switch status {
	case StatusRetrying, StatusRedriven:
		return true
	case StatusFailed:
		return code != CodeInputBoundaryRejected && code != CodeResultContractRejected
	case StatusProposed, StatusNotApplicable:
		return false
	}
	return false
}

func (r *DispatchReceipt) validate(at path) *DecodeError {
	if err := wantSchema(at, r.SchemaVersion, DispatchReceiptSchema); err != nil {
		return err
	}
	if err := wantHook(at, "dispatch_id", r.DispatchID, r.HookID, r.CapabilityID); err != nil {
		return err
	}
	if err := wantName(at.member("profile"), r.Profile); err != nil {
		return err
	}
	if !r.EventKind.Known() {
		return at.member("event_kind").bad("must be a known event kind")
	}
	if !isDigestOf(r.ReceiptIdentity, receiptPrefix) {
		return at.member("receipt_identity").bad("must be a receipt identity")
	}
	for _, d := range []struct{ member, value string }{
		{"input_digest", r.InputDigest}, {"registration_digest", r.RegistrationDigest},
	} {
		if !IsDigest(d.value) {
			return at.member(d.member).bad("must be a digest")
		}
	}
	if r.ResultDigest != "" && !IsDigest(string(r.ResultDigest)) {
		return at.member("result_digest").bad("must be a digest or null")
	}
	if r.RecordNumber < 1 {
		return at.member("record_number").bad("must count from 1")
	}
	if r.Attempt < 0 {
		return at.member("attempt").bad("must not be negative")
	}
	if r.Invocations < 0 || r.Invocations > r.Attempt {
		return at.member("invocations").bad("must be from 0 to the attempts")
	}
	if err := r.RecordedAt.validate(at.member("recorded_at")); err != nil {
		return err
	}
	if err := r.validateStatus(at); err != nil {
		return err
	}
	if r.Input != nil {
		if err := r.Input.validate(at.member("input")); err != nil {
			return err
		}
	}
	for i := range r.Intents {
		if err := r.Intents[i].validate(at.member("intents").index(i)); err != nil {
			return err
		}
	}
	return nil
}

// validateStatus checks the members that depend on the status.
func (r *DispatchReceipt) validateStatus(at path) *DecodeError {
	decided := false // by a result
	switch r.Status {
	case StatusProposed, StatusNotApplicable:
		decided = true
	case StatusRetrying, StatusFailed, StatusRedriven:
	default:
		return at.member("status").bad("must be a known status")
	}
	if err := wantReason(at, r.Status, r.Code, r.Reason); err != nil {
		return err
	}
	if (r.RetryAt != "") != (r.Status == StatusRetrying) {
		return at.member("retry_at").bad("must stand exactly in a retrying record")
	}
	if r.RetryAt != "" {
		if err := Timestamp(r.RetryAt).validate(at.member("retry_at")); err != nil {
			return err
		}
	}
	if (r.Actor != "") != (r.Status == StatusRedriven) {
		return at.member("actor").bad("must stand exactly in a redriven record")
	}
	if r.Actor != "" && !IsOpaqueID(string(r.Actor)) {
		return at.member("actor").bad("must be an opaque id or null")
	}
	if (r.Input != nil) != HoldsInput(r.Status, r.Code) {
		return at.member("input").bad("must stand exactly where the status and code say so")
	}
	if (len(r.Intents) > 0) != (r.Status == StatusProposed) {
		return at.member("intents").bad("must be there exactly when proposed")
	}
	if (r.ResultDigest != "") != decided {
		return at.member("result_digest").bad("must stand exactly where there is a result")
	}
	return nil
}

func wantReason(at path, status Status, code Code, reason Reason) *DecodeError {
	for i := range reasons {
		if reasons[i].status != status || reasons[i].code != code {
			continue
		}
		if !slices.Contains(reasons[i].reasons, reason) {
			return at.member("reason").bad("must be a reason of the code")
		}
		return nil
	}
	return at.member("code").bad("must be a code of the status")
}
