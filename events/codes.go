package events

import (
	"slices"

	"github.com/go-json-experiment/json/jsontext"
)

// Optional is a string that travels as null when it is empty.
type Optional string

// MarshalJSONTo writes null for "".
func (o Optional) MarshalJSONTo(enc *jsontext.Encoder) error {
	if o == "" {
		return enc.WriteToken(jsontext.Null)
	}
	return enc.WriteToken(jsontext.String(string(o)))
}

// Status is where a dispatch stands.
type Status string

const (
	// StatusProposed: the provider proposed intents. Final.
	StatusProposed Status = "proposed"
	// StatusNotApplicable: the provider had nothing to propose. Final.
	StatusNotApplicable Status = "not_applicable"
	// StatusRetrying: another attempt is due at retry_at. Any status may follow.
	StatusRetrying Status = "retrying"
	// StatusFailed: given up. Only redriven may follow, and only if the record holds its input.
	StatusFailed Status = "failed"
	// StatusRedriven: an operator asked for a new series of attempts. Any status may follow.
	StatusRedriven Status = "redriven"
)

// Terminal reports whether nothing happens to the dispatch by itself any more.
func (s Status) Terminal() bool {
	switch s {
	case StatusProposed, StatusNotApplicable, StatusFailed:
		return true
	case StatusRetrying, StatusRedriven:
		return false
	}
	return false
}

// Code says, coarsely, why a dispatch is retrying or failed. It travels as null where there is none.
type Code = Optional

const (
	// CodeRegistrationRejected: the hook's registration is malformed, above a ceiling, gone or changed.
	CodeRegistrationRejected Code = "registration_rejected"
	// CodeInputBoundaryRejected: the hook's input would not be public-safe.
	CodeInputBoundaryRejected Code = "input_boundary_rejected"
	// CodeProducerFailed: no provider answered the subject, or the provider answered with an error. Retryable.
	CodeProducerFailed Code = "producer_failed"
	// CodeProducerTimedOut: no answer within the registration's timeout. Retryable.
	CodeProducerTimedOut Code = "producer_timed_out"
	// CodeResultContractRejected: the answer breaks the contract.
	CodeResultContractRejected Code = "result_contract_rejected"
	// CodeIntentConflict: a second, different telling of a dispatch; only on conflict records.
	CodeIntentConflict Code = "intent_conflict"
	// CodeDispatchBudgetExhausted: no invocation is left, or the hook's backlog is full.
	CodeDispatchBudgetExhausted Code = "dispatch_budget_exhausted"
)

// Reason is the closed, finer cause beneath a code. It travels as null where there is none.
type Reason = Optional

// Reasons of a dispatch receipt, by code.
const (
	// registration_rejected

	// ReasonHookRemoved: the hook is not installed, or not allowed by the profile, any more.
	ReasonHookRemoved Reason = "hook_removed"
	// ReasonRegistrationChanged: the hook is installed with another registration digest.
	ReasonRegistrationChanged Reason = "registration_changed"

	// input_boundary_rejected: a [BoundaryRule], see [BoundaryRules].

	// producer_failed, producer_timed_out

	// ReasonNoResponder: nobody serves the hook's subject. Not an invocation.
	ReasonNoResponder Reason = "no_responder"
	// ReasonProviderError: the provider answered with an error.
	ReasonProviderError Reason = "provider_error"
	// ReasonNoReply: the provider did not answer in time.
	ReasonNoReply Reason = "no_reply"
	// ReasonInvocationsExhausted: failed, the registration's invocations are used up.
	ReasonInvocationsExhausted Reason = "invocations_exhausted"
	// ReasonAttemptsExhausted: failed, the profile's attempts are used up.
	ReasonAttemptsExhausted Reason = "attempts_exhausted"

	// result_contract_rejected

	// ReasonResultTooLarge: more bytes than the registration's budget.
	ReasonResultTooLarge Reason = "result_too_large"
	// ReasonResultMalformed: not a result document.
	ReasonResultMalformed Reason = "result_malformed"
	// ReasonResultIdentity: the result, or an intent of it, names another dispatch, hook or capability.
	ReasonResultIdentity Reason = "result_identity"
	// ReasonTooManyIntents: more intents than the registration's budget.
	ReasonTooManyIntents Reason = "too_many_intents"
	// ReasonIntentKind: an intent of a kind that the registration does not declare.
	ReasonIntentKind Reason = "intent_kind"
	// ReasonIntentPayload: a payload that its installed schema refuses.
	ReasonIntentPayload Reason = "intent_payload"
	// ReasonIntentClaims: an intent claims an authority or an effect.
	ReasonIntentClaims Reason = "intent_claims"
	// ReasonIntentID: an intent id is not the one recomputed.
	ReasonIntentID Reason = "intent_id"
	// ReasonIntentRepeated: two intents have one id.
	ReasonIntentRepeated Reason = "intent_repeated"
	// ReasonResultBoundary: a string of an intent is not public-safe.
	ReasonResultBoundary Reason = "result_boundary"

	// intent_conflict

	// ReasonInputDiffers: the same receipt identity came with another input.
	ReasonInputDiffers Reason = "input_differs"
	// ReasonResultDiffers: a second, different result came for a decided dispatch.
	ReasonResultDiffers Reason = "result_differs"

	// dispatch_budget_exhausted

	// ReasonInterrupted: the last invocation was started and its end was never seen.
	ReasonInterrupted Reason = "interrupted"
	// ReasonBacklogFull: the hook's backlog was at its ceiling.
	ReasonBacklogFull Reason = "backlog_full"

	// no code, retrying

	// ReasonHookSaturated: deferred, the hook had no free place.
	ReasonHookSaturated Reason = "hook_saturated"
	// ReasonHookSuspended: deferred, the hook's breaker was open.
	ReasonHookSuspended Reason = "hook_suspended"
	// ReasonInvocationStarted: written before a call whose predecessors were interrupted; the invocation is spent.
	ReasonInvocationStarted Reason = "invocation_started"
)

// reasons are the codes and reasons that a dispatch receipt of a status may have. intent_conflict is not among them:
// it stands in a [Conflict].
var reasons = []struct {
	status  Status
	code    Code
	reasons []Reason
}{
	{StatusProposed, "", []Reason{""}},
	{StatusNotApplicable, "", []Reason{""}},
	{StatusRedriven, "", []Reason{""}},
	{StatusRetrying, "", []Reason{ReasonHookSaturated, ReasonHookSuspended, ReasonInvocationStarted}},
	{StatusRetrying, CodeProducerFailed, []Reason{ReasonNoResponder, ReasonProviderError}},
	{StatusRetrying, CodeProducerTimedOut, []Reason{ReasonNoReply}},
	{StatusFailed, CodeRegistrationRejected, []Reason{ReasonHookRemoved, ReasonRegistrationChanged}},
	{StatusFailed, CodeInputBoundaryRejected, boundaryReasons()},
	{StatusFailed, CodeProducerFailed, []Reason{ReasonInvocationsExhausted, ReasonAttemptsExhausted}},
	{StatusFailed, CodeProducerTimedOut, []Reason{ReasonInvocationsExhausted, ReasonAttemptsExhausted}},
	{StatusFailed, CodeResultContractRejected, []Reason{
		ReasonResultTooLarge, ReasonResultMalformed, ReasonResultIdentity, ReasonTooManyIntents, ReasonIntentKind,
		ReasonIntentPayload, ReasonIntentClaims, ReasonIntentID, ReasonIntentRepeated, ReasonResultBoundary,
	}},
	{StatusFailed, CodeDispatchBudgetExhausted, []Reason{ReasonInterrupted, ReasonBacklogFull}},
}

func boundaryReasons() []Reason {
	reasons := make([]Reason, 0, len(boundaryRules))
	for _, rule := range boundaryRules {
		reasons = append(reasons, Reason(rule))
	}
	return reasons
}

// Reasons are the reasons that a dispatch receipt of this status and code may have, "" for none; nil if a record of
// the status never has the code.
func Reasons(status Status, code Code) []Reason {
	for i := range reasons {
		if reasons[i].status == status && reasons[i].code == code {
			return slices.Clone(reasons[i].reasons)
		}
	}
	return nil
}
