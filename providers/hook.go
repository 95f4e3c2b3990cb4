package providers

import (
	"fmt"
	"slices"

	"github.com/afterwrite/afterwrite/events"
)

// Hook answers the calls of one hook. It must be pure: equal inputs give equal proposals, whenever and wherever.
type Hook interface {
	// Propose answers an input: with proposals, or with none where the receipt does not matter to the hook.
	// The input is the method's own. An [*events.DecodeError] says that the input is at fault, any other error
	// that the hook is.
	Propose(in *events.HookInput) ([]Proposal, error)
}

// HookFunc is a function as a [Hook].
type HookFunc func(in *events.HookInput) ([]Proposal, error)

// Propose calls f.
func (f HookFunc) Propose(in *events.HookInput) ([]Proposal, error) { return f(in) }

// Proposal is an intent as its author writes it. The SDK adds the ids of the dispatch, the hook and the capability,
// the intent's own id, and the canonical form of the payload.
type Proposal struct {
	Kind          events.IntentKind
	Operation     string
	PolicyVersion string
	// Payload is any value that encodes as a JSON object of the schema installed for Kind. A struct whose fields stand
	// in the order of their JSON names is written fastest, see [events.EncodeValue].
	Payload any
	Budget  events.IntentBudget
	// WriteScope is what an executor would have to be granted. It is recorded, never granted.
	WriteScope []string
}

// hook is a [Hook] with the registration it answers for.
type hook struct {
	registration *events.Registration
	propose      Hook
}

// result binds the proposals to the dispatch and holds them against the registration and the contract, which the
// dispatcher does again: a provider should hear of its own mistake before anybody else does.
func (h *hook) result(dispatch events.DispatchID, proposals []Proposal) ([]byte, error) {
	reg := h.registration
	result := &events.HookResult{
		CapabilityID:  reg.CapabilityID,
		DispatchID:    dispatch,
		HookID:        reg.HookID,
		Intents:       make([]events.Intent, len(proposals)),
		SchemaVersion: events.HookResultSchema,
		Status:        events.ResultNotApplicable,
	}
	if len(proposals) > reg.Budget.MaxIntentsPerDispatch {
		return nil, &AnswerError{Rule: "more proposals than the registration's budget"}
	}
	for i, p := range proposals {
		if !slices.Contains(reg.IntentKinds, p.Kind) {
			return nil, &AnswerError{Rule: "a proposal of a kind that the registration does not declare"}
		}
		payload, err := events.EncodeValue(p.Payload)
		if err != nil {
			return nil, &AnswerError{Rule: "a payload that is no JSON of the contract"}
		}
		intent := &result.Intents[i]
		*intent = events.Intent{
			Budget:              p.Budget,
			CapabilityID:        reg.CapabilityID,
			FailurePolicy:       events.Isolate,
			HookID:              reg.HookID,
			IntentID:            events.IntentIdentity(dispatch, p.Kind, p.PolicyVersion, payload),
			IntentKind:          p.Kind,
			Operation:           p.Operation,
			Payload:             payload,
			PolicyVersion:       p.PolicyVersion,
			RequestedWriteScope: p.WriteScope,
			SchemaVersion:       events.IntentSchema,
			SourceDispatchID:    dispatch,
		}
		if slices.ContainsFunc(result.Intents[:i], func(o events.Intent) bool { return o.IntentID == intent.IntentID }) {
			return nil, &AnswerError{Rule: "the same proposal twice"}
		}
		result.Status = events.ResultProposed
	}
	if err := events.Check(result); err != nil {
		return nil, &AnswerError{Rule: fmt.Sprintf("a result in which %v", err)}
	}
	out := events.Canonical(result)
	if len(out) > reg.Budget.MaxResultBytes {
		return nil, &AnswerError{Rule: "more bytes than the registration's budget"}
	}
	return out, nil
}
