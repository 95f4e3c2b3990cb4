package periodicreport

import (
	"slices"

	"github.com/afterwrite/afterwrite/events"
	"github.com/afterwrite/afterwrite/providers"
)

// The names of the capability's hook, of its intent and of its service.
const (
	CapabilityID  = "periodic_report"
	HookID        = "periodic_report.runtime_trigger"
	IntentKind    = "periodic_report.trigger_evaluation"
	Operation     = "evaluate_runtime_trigger"
	PolicyVersion = "weekly_v0"
	ServiceName   = "periodic_report.evaluate_trigger"
)

// Budget is what the hook thinks an evaluation needs.
var Budget = events.IntentBudget{MaxAttempts: 1, MaxResultBytes: 16384}

// Transitions are those for which the hook proposes an evaluation. For any other it is not applicable.
var Transitions = []events.Transition{events.SegmentCompleted, events.ReplanEntered}

func proposes(t events.Transition) bool { return slices.Contains(Transitions, t) }

// Hook proposes one trigger evaluation for a completed segment and for a replan.
func Hook(in *events.HookInput) ([]providers.Proposal, error) {
	if in.Source == nil {
		return nil, refuse("source", "must be there, as the registration asks")
	}
	if in.Projection == nil {
		return nil, refuse("projection", "must be there, as the registration asks")
	}
	if !proposes(in.Projection.Transition) {
		return nil, nil
	}
	return []providers.Proposal{{
		Kind:          IntentKind,
		Operation:     Operation,
		PolicyVersion: PolicyVersion,
		Budget:        Budget,
		Payload: Facts{
			AgentID:         in.Source.AgentID,
			GoalID:          in.Source.GoalID,
			ObservedAt:      in.Source.CommittedAt,
			SegmentRef:      SegmentRef(in.Source.GoalID, in.Source.AgentID, in.Source.StateRevision),
			SourceEventRefs: in.Projection.FactRefs,
			Transition:      in.Projection.Transition,
		},
	}}, nil
}
