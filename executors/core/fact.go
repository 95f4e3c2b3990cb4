package core

import (
	"time"
)

// Fact tells what happened to a run. It is not asked for: whoever tells it knows.
type Fact interface {
	key() Key
	record(s State, a Actor) (*Result, error)
}

// ExecutionStarted: a run begins on a record that is accepted, paused and due, or held by a run whose lease passed.
type ExecutionStarted struct {
	Run Run
	Now time.Time
}

// EffectCalled: the run is about to call its effect.
type EffectCalled struct {
	Run Run
	Now time.Time
}

// EffectReturned: the effect gave a result, and something is left to do with it.
type EffectReturned struct {
	Run Run
	// Result is the packet document as the effect gave it.
	Result []byte
	Now    time.Time
}

// ExecutionPaused: the run ended and its effect was certainly not called. It is not counted as an attempt.
type ExecutionPaused struct {
	Run    Run
	Reason PauseReason
	Now    time.Time
}

// ExecutionEnded: no run may begin any more.
type ExecutionEnded struct {
	Key    Key
	Reason EndReason
	Now    time.Time
}

// PauseReason is why a run ended before its effect.
type PauseReason string

const (
	// PauseNotStarted: nobody was there to take the call.
	PauseNotStarted PauseReason = "effect_not_started"
	// PauseStateReserved: another intent with the same state is being executed.
	PauseStateReserved PauseReason = "state_reserved"
	// PauseStopping: the executor stops.
	PauseStopping PauseReason = "stopping"
)

// EndReason is why no run may begin any more.
type EndReason string

const (
	// EndOutcomeUnknown: the last run was interrupted, and no attempt is left.
	EndOutcomeUnknown EndReason = "outcome_unknown"
	// EndTooOld: older than the grant's max_age.
	EndTooOld EndReason = "too_old"
	// EndIntentDiffers: the intent is not the document that was admitted.
	EndIntentDiffers EndReason = "intent_differs"
)

func (f ExecutionStarted) key() Key { return f.Run.Key }
func (f EffectCalled) key() Key     { return f.Run.Key }
func (f EffectReturned) key() Key   { return f.Run.Key }
func (f ExecutionPaused) key() Key  { return f.Run.Key }
func (f ExecutionEnded) key() Key   { return f.Key }

// Record takes the fact down. The error is [ErrNotLoaded] or a [*Rejection].
//
// Only the executor of the key, or the system, may tell facts about it.
func Record(fact Fact, state State, actor Actor) (*Result, error) {
	if actor != System && actor != Executor(fact.key().Executor) {
		return reject(RejectedActor, nil)
	}
	return fact.record(state, actor)
}
