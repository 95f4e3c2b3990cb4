package events

import "slices"

// Schema versions of the documents between the dispatcher and a provider.
const (
	HookInputSchema  = "loopx_post_writeback_hook_input_v0"
	HookResultSchema = "loopx_post_writeback_hook_result_v0"
)

// HookInput is what a hook is called with. It is strict: opaque ids only, every boundary flag false.
// Equal dispatches get byte-identical inputs, whatever the attempt.
type HookInput struct {
	Boundary     Boundary     `json:"boundary"`
	CapabilityID CapabilityID `json:"capability_id"`
	DispatchID   DispatchID   `json:"dispatch_id"`
	HookID       HookID       `json:"hook_id"`
	// Projection is null unless the hook reads bounded_event_projection.
	Projection    *Projection `json:"projection"`
	SchemaVersion string      `json:"schema_version"`
	// Source is null unless the hook reads settlement_identity.
	Source *HookSource `json:"source"`
}

// HookSource names the settlement that the dispatch is about.
type HookSource struct {
	AgentID        string    `json:"agent_id"`
	CommittedAt    Timestamp `json:"committed_at"`
	EffectID       string    `json:"effect_id"`
	EventKind      EventKind `json:"event_kind"`
	GoalID         string    `json:"goal_id"`
	ReceiptID      string    `json:"receipt_id"`
	StateRevision  string    `json:"state_revision"`
	StepKind       string    `json:"step_kind"`
	TodoID         string    `json:"todo_id"`
	TurnInstanceID string    `json:"turn_instance_id"`
}

// ResultStatus is a provider's verdict.
type ResultStatus string

const (
	// ResultNotApplicable: the receipt does not matter to this hook; there are no intents.
	ResultNotApplicable ResultStatus = "not_applicable"
	// ResultProposed: there is at least one intent.
	ResultProposed ResultStatus = "proposed"
)

// HookResult is what a provider answers.
type HookResult struct {
	CapabilityID  CapabilityID `json:"capability_id"`
	DispatchID    DispatchID   `json:"dispatch_id"`
	HookID        HookID       `json:"hook_id"`
	Intents       []Intent     `json:"intents"`
	SchemaVersion string       `json:"schema_version"`
	Status        ResultStatus `json:"status"`
}

func (in *HookInput) validate(at path) *DecodeError {
	if err := wantSchema(at, in.SchemaVersion, HookInputSchema); err != nil {
		return err
	}
	if err := wantHook(at, "dispatch_id", in.DispatchID, in.HookID, in.CapabilityID); err != nil {
		return err
	}
	transitions := allTransitions
	if s := in.Source; s != nil {
		at := at.member("source")
		if err := s.CommittedAt.validate(at.member("committed_at")); err != nil {
			return err
		}
		if transitions = s.EventKind.transitions(); transitions == nil {
			return at.member("event_kind").bad("must be a known event kind")
		}
	}
	if p := in.Projection; p != nil {
		at := at.member("projection")
		if err := p.validate(at); err != nil {
			return err
		}
		if !slices.Contains(transitions, p.Transition) {
			return at.member("transition").bad("must be a transition of the event kind")
		}
	}
	if where, rule := in.outsideBoundary(); rule != "" {
		return at.member(where).bad("must be public-safe: " + string(rule))
	}
	return nil
}

func (r *HookResult) validate(at path) *DecodeError {
	if err := wantSchema(at, r.SchemaVersion, HookResultSchema); err != nil {
		return err
	}
	if err := wantHook(at, "dispatch_id", r.DispatchID, r.HookID, r.CapabilityID); err != nil {
		return err
	}
	switch r.Status {
	case ResultNotApplicable:
		if len(r.Intents) != 0 {
			return at.member("intents").bad("must be empty unless proposed")
		}
	case ResultProposed:
		if len(r.Intents) == 0 {
			return at.member("intents").bad("must hold an intent when proposed")
		}
	default:
		return at.member("status").bad(`must be "not_applicable" or "proposed"`)
	}
	for i := range r.Intents {
		if err := r.Intents[i].validate(at.member("intents").index(i)); err != nil {
			return err
		}
	}
	return nil
}

// wantHook checks who a document is from or for; member is where its dispatch id stands.
func wantHook(at path, member string, dispatch DispatchID, hook HookID, capability CapabilityID) *DecodeError {
	if !IsDispatchID(dispatch) {
		return at.member(member).bad("must be a dispatch id")
	}
	if err := wantName(at.member("hook_id"), hook); err != nil {
		return err
	}
	return wantName(at.member("capability_id"), capability)
}
