package core

import (
	"slices"

	"github.com/afterwrite/afterwrite/events"
)

// checkResult decides whether data is a result of d, in the order of the design: size, strict decode, identity,
// counts, kinds, payload schema, claims, ids, boundary. The reason is that of a result_contract_rejected record.
func checkResult(hook *Hook, d *Dispatch, data []byte) (*events.HookResult, events.Digest, events.Reason) {
	budget := &hook.Registration.Budget
	if len(data) > budget.MaxResultBytes {
		return nil, "", events.ReasonResultTooLarge
	}
	result, err := events.Decode[events.HookResult](data)
	if err != nil {
		return nil, "", events.ReasonResultMalformed
	}
	if result.DispatchID != d.Key.Dispatch || result.HookID != d.Key.Hook || result.CapabilityID != d.Capability {
		return nil, "", events.ReasonResultIdentity
	}
	if len(result.Intents) > budget.MaxIntentsPerDispatch {
		return nil, "", events.ReasonTooManyIntents
	}
	for i := range result.Intents {
		if reason := checkIntent(hook, d, result.Intents[:i], &result.Intents[i]); reason != "" {
			return nil, "", reason
		}
	}
	return result, events.DigestOf(events.Canonical(result)), ""
}

func checkIntent(hook *Hook, d *Dispatch, before []events.Intent, intent *events.Intent) events.Reason {
	switch {
	case intent.SourceDispatchID != d.Key.Dispatch || intent.HookID != d.Key.Hook || intent.CapabilityID != d.Capability:
		return events.ReasonResultIdentity
	case !slices.Contains(hook.Registration.IntentKinds, intent.IntentKind):
		return events.ReasonIntentKind
	case hook.Payloads[intent.IntentKind].Check(intent.Payload) != nil:
		return events.ReasonIntentPayload
	case intent.Claims():
		return events.ReasonIntentClaims
	case intent.IntentID != intent.Identity():
		return events.ReasonIntentID
	case slices.ContainsFunc(before, func(other events.Intent) bool { return other.IntentID == intent.IntentID }):
		return events.ReasonIntentRepeated
	case intent.CheckBoundary() != "":
		return events.ReasonResultBoundary
	}
	return ""
}
