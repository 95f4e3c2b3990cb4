package e2e

import (
	"errors"
	"time"

	"github.com/afterwrite/afterwrite/events"
)

// turn is one Turn of a synthetic orchestrator, about to be settled.
type turn struct {
	// name makes every id of the Turn its own.
	name    string
	profile string
	// transition that the Turn's work made; the event kind follows from it.
	transition events.Transition
	facts      []string
	committed  time.Time
	// invalid work does not pass the orchestrator's validation, and is never written back.
	invalid bool
	// torn writebacks do not commit.
	torn bool
	// edit changes the finished receipt.
	edit func(*events.Receipt)
}

// settlement is what is known once a Turn is settled. The receipt is all of it that counts.
type settlement struct {
	receipt *events.Receipt // nil where validation failed: nothing was written, and nothing proves anything
}

var errInvalid = errors.New("the work does not pass validation")

// settle runs the steps in their order: validation, durable writeback, receipt.
func (t turn) settle() (settlement, error) {
	if t.invalid {
		return settlement{}, errInvalid
	}
	kind := events.TodoCompleted
	if t.transition == events.ReplanEntered {
		kind = events.ReplanRecorded
	}
	if t.committed.IsZero() {
		t.committed = time.Now()
	}
	if t.profile == "" {
		t.profile = "default"
	}
	if t.facts == nil {
		t.facts = []string{"fact_" + t.name}
	}
	effect := "goal_a:agent_a:todo_" + t.name + ":turn_" + t.name
	receipt := &events.Receipt{
		SchemaVersion: events.ReceiptSchema,
		Profile:       t.profile,
		EventKind:     kind,
		Plan: events.Settlement{
			GoalID: "goal_a", AgentID: "agent_a", TodoID: "todo_" + t.name, TurnInstanceID: "turn_" + t.name, EffectID: effect,
		},
		Receipt: events.WritebackReceipt{
			ReceiptID: "receipt_" + t.name, EffectID: effect, StepKind: events.DurableWriteback, Status: events.Committed,
			StateRevision: "rev_" + t.name, CommittedAt: events.NewTimestamp(t.committed), Checkpointed: true,
		},
		Projection: events.Projection{
			SchemaVersion: events.ProjectionSchema, Transition: t.transition, FactRefs: t.facts,
		},
	}
	if t.torn {
		receipt.Receipt.Status, receipt.Receipt.Checkpointed = "failed", false
	}
	if t.edit != nil {
		t.edit(receipt)
	}
	return settlement{receipt}, nil
}

// spends decides whether the Turn's quota is spent: from the primary receipt, and from nothing that came after it.
func (s settlement) spends() bool {
	r := s.receipt
	return r != nil && r.Receipt.StepKind == events.DurableWriteback && r.Receipt.Status == events.Committed &&
		r.Receipt.Checkpointed && r.Receipt.EffectID == r.Plan.EffectID
}

// completed is a Turn that completes its segment.
func completed(name string) turn { return turn{name: name, transition: events.SegmentCompleted} }
