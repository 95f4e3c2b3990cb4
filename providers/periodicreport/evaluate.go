package periodicreport

import (
	"context"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/afterwrite/afterwrite/events"
)

// Evaluation is the payload of a request to the service [ServiceName].
type Evaluation struct {
	// EvaluatedAt is the newest observed_at of the intents, never a clock's time: a replay decides the same.
	EvaluatedAt events.Timestamp `json:"evaluated_at"`
	// Intents are 1 to 64 whole intent documents of one goal.
	Intents []jsontext.Value `json:"intents"`
	Policy  Policy           `json:"policy"`
	// State is null before the goal's first report.
	State *LastReport `json:"state"`
}

// Service answers a request with a [Decision].
func Service(_ context.Context, r *events.ServiceRequest) (any, error) { return Evaluate(r.Payload) }

// Evaluate decides from intents whether a report is due. The error is an [*events.DecodeError].
func Evaluate(payload []byte) (*Decision, error) {
	r, err := decodeEvaluation(payload)
	if err != nil {
		return nil, err
	}
	return Reduce(*r)
}

func decodeEvaluation(payload []byte) (*Request, error) {
	e, err := events.DecodeValue[Evaluation](payload)
	if err != nil {
		return nil, err
	}
	// Before the candidates are made from it: a threshold outside its bounds would judge them wrongly.
	if err := e.Policy.check(); err != nil {
		return nil, under("policy", err)
	}
	if err := e.State.check(); err != nil {
		return nil, under("state", err)
	}
	if len(e.Intents) == 0 || len(e.Intents) > MaxCandidates {
		return nil, refuse("intents", "must hold 1 to 64 intents")
	}
	facts := make([]*Facts, len(e.Intents))
	newest := events.Timestamp("")
	for i, document := range e.Intents {
		f, err := decodeIntent(document)
		if err != nil {
			return nil, under(index("intents", i), err)
		}
		if i > 0 && f.GoalID != facts[0].GoalID {
			return nil, refuse(index("intents", i)+".payload.goal_id", "must be the goal of the other intents")
		}
		if i == 0 || f.ObservedAt.Time().After(newest.Time()) {
			newest = f.ObservedAt
		}
		facts[i] = f
	}
	if !events.IsTimestamp(string(e.EvaluatedAt)) || !e.EvaluatedAt.Time().Equal(newest.Time()) {
		return nil, refuse("evaluated_at", "must be the newest observed_at of the intents")
	}
	return &Request{
		Candidates:  candidates(facts, &e.Policy),
		EvaluatedAt: e.EvaluatedAt,
		GoalID:      facts[0].GoalID,
		LastReport:  e.State,
		Policy:      e.Policy,
	}, nil
}

// decodeIntent reads an intent of this capability and the facts it froze, which its id must cover.
func decodeIntent(document []byte) (*Facts, error) {
	intent, err := events.Decode[events.Intent](document)
	if err != nil {
		return nil, err
	}
	for _, want := range []struct{ member, got, want string }{
		{"capability_id", intent.CapabilityID, CapabilityID},
		{"hook_id", intent.HookID, HookID},
		{"intent_kind", intent.IntentKind, IntentKind},
		{"operation", intent.Operation, Operation},
		{"policy_version", intent.PolicyVersion, PolicyVersion},
	} {
		if want.got != want.want {
			return nil, refuse(want.member, "must be "+want.want)
		}
	}
	if intent.Claims() {
		return nil, refuse("grants_new_action_authority", "and external_write_performed must be false")
	}
	facts, err := decodeFacts(intent.Payload)
	if err != nil {
		return nil, under("payload", err)
	}
	if intent.IntentID != events.IntentIdentity(intent.SourceDispatchID, intent.IntentKind, intent.PolicyVersion, intent.Payload) {
		return nil, refuse("intent_id", "must be the one computed from the intent")
	}
	return facts, nil
}
