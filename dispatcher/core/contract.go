package core

import (
	"slices"

	"github.com/afterwrite/afterwrite/events"
)

// checkResult decides whether data is a result of d, in the order of the design: size, strict decode, identity,
// counts, kinds, payload schema, claims, ids, boundary. The reason is that of a result_contract_rejected record: the
// first rule that any intent breaks, whatever the order of the intents.
func checkResult(hook *Hook, d *Dispatch, data []byte) (*events.HookResult, events.Digest, events.Reason) {
	budget := &hook.Registration.Budget
	if len(data) > budget.MaxResultBytes {
		return nil, "", events.ReasonResultTooLarge
	}
	result, canonical, err := events.DecodeCanonical[events.HookResult](data)
	if err != nil {
		return nil, "", events.ReasonResultMalformed
	}
	if !d.owns(result) {
		return nil, "", events.ReasonResultIdentity
	}
	if len(result.Intents) > budget.MaxIntentsPerDispatch {
		return nil, "", events.ReasonTooManyIntents
	}
	for _, rule := range intentRules {
		for i := range result.Intents {
			if rule.broken(hook, result.Intents, i) {
				return nil, "", rule.reason
			}
		}
	}
	return result, events.DigestOf(canonical), ""
}

// owns reports whether the result and each of its intents name the dispatch, its hook and its capability.
func (d *Dispatch) owns(result *events.HookResult) bool {
	named := func(dispatch events.DispatchID, hook events.HookID, capability events.CapabilityID) bool {
		return dispatch == d.Key.Dispatch && hook == d.Key.Hook && capability == d.Capability
	}
	if !named(result.DispatchID, result.HookID, result.CapabilityID) {
		return false
	}
	for i := range result.Intents {
		intent := &result.Intents[i]
		if !named(intent.SourceDispatchID, intent.HookID, intent.CapabilityID) {
			return false
		}
	}
	return true
}

// intentRules are what each intent of a result must keep, in the order in which they are asked.
var intentRules = [...]struct {
	reason events.Reason
	broken func(hook *Hook, intents []events.Intent, i int) bool
}{
	{events.ReasonIntentKind, func(hook *Hook, intents []events.Intent, i int) bool {
		return !slices.Contains(hook.Registration.IntentKinds, intents[i].IntentKind)
	}},
	{events.ReasonIntentPayload, func(hook *Hook, intents []events.Intent, i int) bool {
		return hook.Payloads[intents[i].IntentKind].Check(intents[i].Payload) != nil
	}},
	{events.ReasonIntentClaims, func(_ *Hook, intents []events.Intent, i int) bool {
		return intents[i].Claims()
	}},
	{events.ReasonIntentID, func(_ *Hook, intents []events.Intent, i int) bool {
		return intents[i].IntentID != intents[i].Identity()
	}},
	{events.ReasonIntentRepeated, func(_ *Hook, intents []events.Intent, i int) bool {
		return slices.ContainsFunc(intents[:i], func(before events.Intent) bool {
			return before.IntentID == intents[i].IntentID
		})
	}},
	{events.ReasonResultBoundary, func(_ *Hook, intents []events.Intent, i int) bool {
		return intents[i].CheckBoundary() != ""
	}},
}
