package events

import "github.com/go-json-experiment/json/jsontext"

// IntentSchema is the schema version of an [Intent].
const IntentSchema = "loopx_post_writeback_intent_v0"

// Intent is a typed, idempotent proposal. It grants nothing and performs nothing.
type Intent struct {
	Budget                   IntentBudget `json:"budget"`
	CapabilityID             CapabilityID `json:"capability_id"`
	ExternalWritePerformed   bool         `json:"external_write_performed"`
	FailurePolicy            string       `json:"failure_policy"`
	GrantsNewActionAuthority bool         `json:"grants_new_action_authority"`
	HookID                   HookID       `json:"hook_id"`
	IntentID                 IntentID     `json:"intent_id"`
	IntentKind               IntentKind   `json:"intent_kind"`
	Operation                string       `json:"operation"`
	// Payload is an object in canonical form that satisfies the schema installed for the intent kind.
	Payload       jsontext.Value `json:"payload"`
	PolicyVersion string         `json:"policy_version"`
	// RequestedWriteScope is recorded, never granted.
	RequestedWriteScope []string   `json:"requested_write_scope"`
	SchemaVersion       string     `json:"schema_version"`
	SourceDispatchID    DispatchID `json:"source_dispatch_id"`
}

// IntentBudget is what the proposer thinks an execution needs. An executor's grant may allow less.
type IntentBudget struct {
	MaxAttempts    int `json:"max_attempts"`
	MaxResultBytes int `json:"max_result_bytes"`
}

// Claims reports whether the intent claims an authority or an effect, which no proposal may.
func (i *Intent) Claims() bool { return i.GrantsNewActionAuthority || i.ExternalWritePerformed }

func (i *Intent) validate(at path) *DecodeError {
	if err := wantSchema(at, i.SchemaVersion, IntentSchema); err != nil {
		return err
	}
	if err := wantHook(at, "source_dispatch_id", i.SourceDispatchID, i.HookID, i.CapabilityID); err != nil {
		return err
	}
	if !IsIntentID(i.IntentID) {
		return at.member("intent_id").bad("must be an intent id")
	}
	if err := wantName(at.member("intent_kind"), i.IntentKind); err != nil {
		return err
	}
	if err := wantName(at.member("operation"), i.Operation); err != nil {
		return err
	}
	if !IsPolicyVersion(i.PolicyVersion) {
		return at.member("policy_version").bad("must be a policy version")
	}
	if i.Payload.Kind() != '{' {
		return at.member("payload").bad("must be an object")
	}
	if b := i.Budget.MaxAttempts; b < 1 || b > maxIntentAttempts {
		return at.member("budget").member("max_attempts").bad("must be from 1 to 64")
	}
	if b := i.Budget.MaxResultBytes; b < 1 || b > MaxResultBytes {
		return at.member("budget").member("max_result_bytes").bad("must be from 1 to 65536 bytes")
	}
	if len(i.RequestedWriteScope) > MaxTokens {
		return at.member("requested_write_scope").bad("must hold at most 16 tokens")
	}
	if len(i.RequestedWriteScope) > 0 {
		if err := wantTokens(at.member("requested_write_scope"), i.RequestedWriteScope, IsOpaqueID, "an opaque id"); err != nil {
			return err
		}
	}
	if i.FailurePolicy != Isolate {
		return at.member("failure_policy").bad(`must be "isolate"`)
	}
	return nil
}
