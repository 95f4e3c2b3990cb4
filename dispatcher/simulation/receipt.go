package simulation

import (
	"fmt"
	"time"

	"github.com/afterwrite/afterwrite/dispatcher/lane"
	"github.com/afterwrite/afterwrite/events"
)

// told is a receipt as an orchestrator tells it, and what must come of it.
type told struct {
	event lane.Event
	// receipt is nil where the event's data is none.
	receipt *events.Receipt
	// refused is why it is not taken.
	refused events.RefusalReason
	// ignored says that its profile is disabled.
	ignored bool
	// outside says that its projection is not public-safe.
	outside bool
	// poisoned says that handling it panics.
	poisoned bool
}

// tell is receipt number i as it should be told.
func tell(i int, committed time.Time, fact string) *told {
	effect := fmt.Sprintf("goal:agent:todo_%d:turn_%d", i, i)
	receipt := &events.Receipt{
		SchemaVersion: events.ReceiptSchema, Profile: profileOn, EventKind: events.ReplanRecorded,
		Plan: events.Settlement{
			AgentID: "agent", EffectID: effect, GoalID: "goal",
			TodoID: fmt.Sprintf("todo_%d", i), TurnInstanceID: fmt.Sprintf("turn_%d", i),
		},
		Receipt: events.WritebackReceipt{
			Checkpointed: true, CommittedAt: events.NewTimestamp(committed), EffectID: effect,
			ReceiptID: fmt.Sprintf("receipt_%d", i), StateRevision: "rev", Status: events.Committed, StepKind: events.DurableWriteback,
		},
		Projection: events.Projection{
			FactRefs: []string{fact}, SchemaVersion: events.ProjectionSchema, Transition: events.ReplanEntered,
		},
	}
	t := &told{receipt: receipt}
	t.encode()
	return t
}

func (t *told) encode() {
	t.event = lane.Event{
		SubjectKind: t.receipt.EventKind, MessageID: t.receipt.MessageID(), Data: events.Canonical(t.receipt),
	}
}

// distort makes the receipt one of those that an orchestrator should not have published.
func (t *told) distort(w *world) {
	r := t.receipt
	switch w.rng.IntN(10) {
	case 0:
		t.event.Data = t.event.Data[1:]
		t.receipt, t.refused = nil, events.RefusedMalformed
		return
	case 1:
		t.event.SubjectKind, t.refused = events.TodoCompleted, events.RefusedMalformed
		return
	case 2:
		t.event.BadEnvelope, t.refused = true, events.RefusedMalformed
		return
	case 3:
		t.event.MessageID = "another" + t.event.MessageID // any id is legal, and makes the receipt not fresh
		return
	case 4:
		t.poisoned, t.refused = true, events.RefusedPoisoned
		return
	case 5:
		r.Profile, t.ignored = profileOff, true
	case 6:
		r.Profile, t.refused = "unknown", events.RefusedUnknownProfile
	case 7:
		r.Receipt.CommittedAt = events.NewTimestamp(r.Receipt.CommittedAt.Time().Add(-2 * maxReceiptAge))
		t.refused = events.RefusedTooOld
	case 8:
		// From so far ahead that no delay of this history makes it present.
		r.Receipt.CommittedAt = events.NewTimestamp(r.Receipt.CommittedAt.Time().Add(24 * time.Hour))
		t.refused = events.RefusedFromFuture
	case 9:
		r.Projection.FactRefs, t.outside = []string{"https://example.com/fact"}, true
	}
	t.encode()
}
