package events

import "slices"

// RegistrationSchema is the schema version of a [Registration]. It is part of every dispatch's identity.
const RegistrationSchema = "loopx_post_writeback_capability_hook_registration_v0"

// The only phase and the only failure policy there are.
const (
	PostWriteback = "post_writeback"
	Isolate       = "isolate"
)

// ReadScope names a part of the receipt that a hook asks to see. What it does not ask for is null in its input.
type ReadScope string

const (
	// SettlementIdentity: the ids of the settlement and its receipt.
	SettlementIdentity ReadScope = "settlement_identity"
	// BoundedEventProjection: the event's projection.
	BoundedEventProjection ReadScope = "bounded_event_projection"
)

// Bounds of a [Registration].
const (
	MaxTokens         = 16
	MaxInvocations    = 16
	MaxIntents        = 16
	MinResultBytes    = 1 << 10
	MaxResultBytes    = 64 << 10
	MaxTimeoutMillis  = 30_000
	maxIntentAttempts = 64
)

// Registration declares one hook of a capability.
type Registration struct {
	Budget             HookBudget   `json:"budget"`
	CapabilityID       CapabilityID `json:"capability_id"`
	EventKinds         []EventKind  `json:"event_kinds"`
	FailurePolicy      string       `json:"failure_policy"`
	HookID             HookID       `json:"hook_id"`
	IntentKinds        []IntentKind `json:"intent_kinds"`
	Phase              string       `json:"phase"`
	RequestedReadScope []ReadScope  `json:"requested_read_scope"`
	SchemaVersion      string       `json:"schema_version"`
}

// HookBudget bounds one dispatch of a hook.
type HookBudget struct {
	MaxIntentsPerDispatch     int `json:"max_intents_per_dispatch"`
	MaxInvocationsPerDispatch int `json:"max_invocations_per_dispatch"`
	MaxResultBytes            int `json:"max_result_bytes"`
	TimeoutMillis             int `json:"timeout_ms"`
}

// Reads reports whether the hook asked to see scope.
func (r *Registration) Reads(scope ReadScope) bool {
	return slices.Contains(r.RequestedReadScope, scope)
}

func (r *Registration) validate(at path) *DecodeError {
	if err := wantSchema(at, r.SchemaVersion, RegistrationSchema); err != nil {
		return err
	}
	if err := wantName(at.member("hook_id"), r.HookID); err != nil {
		return err
	}
	if err := wantName(at.member("capability_id"), r.CapabilityID); err != nil {
		return err
	}
	if len(r.HookID) <= len(r.CapabilityID)+1 || r.HookID[:len(r.CapabilityID)+1] != r.CapabilityID+"." {
		return at.member("hook_id").bad("must be the capability id, a dot and a name")
	}
	if r.Phase != PostWriteback {
		return at.member("phase").bad(`must be "post_writeback"`)
	}
	if r.FailurePolicy != Isolate {
		return at.member("failure_policy").bad(`must be "isolate"`)
	}
	if err := wantTokens(at.member("event_kinds"), r.EventKinds, EventKind.Known, "a known event kind"); err != nil {
		return err
	}
	if err := wantTokens(at.member("intent_kinds"), r.IntentKinds, IsName, "a name"); err != nil {
		return err
	}
	knownScope := func(s ReadScope) bool { return s == SettlementIdentity || s == BoundedEventProjection }
	if err := wantTokens(at.member("requested_read_scope"), r.RequestedReadScope, knownScope, "a known read scope"); err != nil {
		return err
	}
	return r.Budget.validate(at.member("budget"))
}

func (b *HookBudget) validate(at path) *DecodeError {
	for _, bound := range []struct {
		member      string
		value       int
		low, high   int
		description string
	}{
		{"max_invocations_per_dispatch", b.MaxInvocationsPerDispatch, 1, MaxInvocations, "must be from 1 to 16"},
		{"max_intents_per_dispatch", b.MaxIntentsPerDispatch, 1, MaxIntents, "must be from 1 to 16"},
		{"max_result_bytes", b.MaxResultBytes, MinResultBytes, MaxResultBytes, "must be from 1024 to 65536 bytes"},
		{"timeout_ms", b.TimeoutMillis, 1, MaxTimeoutMillis, "must be from 1 to 30000 ms"},
	} {
		if bound.value < bound.low || bound.value > bound.high {
			return at.member(bound.member).bad(bound.description)
		}
	}
	return nil
}

func wantTokens[T ~string](at path, tokens []T, ok func(T) bool, what string) *DecodeError {
	if len(tokens) == 0 || len(tokens) > MaxTokens {
		return at.bad("must hold 1 to 16 tokens")
	}
	for i, token := range tokens {
		if !ok(token) {
			return at.index(i).bad("must be " + what)
		}
		if slices.Contains(tokens[:i], token) {
			return at.index(i).bad("must not repeat a token")
		}
	}
	return nil
}
