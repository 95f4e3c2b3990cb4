package core

import (
	"time"

	"github.com/afterwrite/afterwrite/events"
)

// Outcome says in one word what was decided. It is a metric label and what a log line says.
type Outcome string

const (
	// OutcomeRefused: the intent is not admitted; a refusal is recorded.
	OutcomeRefused Outcome = "refused"
	// OutcomeAwaiting: admissible, and waits for a person.
	OutcomeAwaiting Outcome = "awaiting"
	// OutcomeAccepted: a person's acceptance is recorded.
	OutcomeAccepted Outcome = "accepted"
	// OutcomeGrantOff: the grant is off; nothing is recorded and the intent waits.
	OutcomeGrantOff Outcome = "grant_off"
	// OutcomeClaimed: a run begins.
	OutcomeClaimed Outcome = "claimed"
	// OutcomeDue: the record asks for a fact first: that a run begins, or that the execution is over.
	OutcomeDue Outcome = "due"
	// OutcomeHeld: another run holds the execution, or it is paused.
	OutcomeHeld Outcome = "held"
	// OutcomeSettled: the execution is over; there is nothing left to do.
	OutcomeSettled Outcome = "settled"
	// OutcomeCalled: the effect may be called now.
	OutcomeCalled Outcome = "called"
	// OutcomeReturned: the effect's result is recorded, and something is left to do with it.
	OutcomeReturned Outcome = "returned"
	// OutcomePaused: the run ended without an outcome; another is due later.
	OutcomePaused Outcome = "paused"
	// OutcomeCompleted: the result is recorded. Final.
	OutcomeCompleted Outcome = "completed"
	// OutcomeFailed: given up. Final.
	OutcomeFailed Outcome = "failed"
)

// Result is what a command or a fact comes to.
type Result struct {
	Outcome Outcome
	// Save must be durable before anything in After happens. Nil if there is nothing to write.
	Save *Save

	after []Effect
}

// Save is one append. The write carries Expect as the expected last sequence of its subject.
type Save struct {
	Record *events.Execution
	Expect uint64
}

// Durable proves that a [Save] was acknowledged by the broker.
type Durable struct{ save *Save }

// Stored is what the host says once the broker acknowledged the write.
func (s *Save) Stored() Durable { return Durable{s} }

// After gives the effects that may happen once Save is durable, in their order. The zero proof fits a result that
// saves nothing. It panics on the proof of another save: acting before the record is durable is the one thing that
// this package exists to prevent.
func (r *Result) After(proof Durable) []Effect {
	if proof.save != r.Save {
		panic("core: effects asked for before their record is durable")
	}
	return r.after
}

// Effect is something the host does. An execution's message is acknowledged or handed back by the last of them.
type Effect interface{ effect() }

// Begin prepares the run: gathers what its effect needs. Nothing has been called yet.
type Begin struct {
	Run    Run
	Record *events.Execution
}

// CallEffect calls the effect, with the intent's id as its idempotency key.
type CallEffect struct {
	Run    Run
	Record *events.Execution
}

// Finish does what is left to do with the result in Record. The effect is not called.
type Finish struct {
	Run    Run
	Record *events.Execution
}

// Tell records the fact before anything else.
type Tell struct {
	Actor Actor
	Fact  Fact
}

// Acknowledge settles the intent's message.
type Acknowledge struct{}

// HandBack returns the intent's message to the broker, to come again at the given time, or, where that is zero, after
// the host's own pause.
type HandBack struct{ At time.Time }

func (Begin) effect()       {}
func (CallEffect) effect()  {}
func (Finish) effect()      {}
func (Tell) effect()        {}
func (Acknowledge) effect() {}
func (HandBack) effect()    {}

// RejectionReason is why somebody may not have what they asked for, or say what they said.
type RejectionReason string

const (
	// RejectedActor: the command or fact is not this actor's.
	RejectedActor RejectionReason = "actor_not_permitted"
	// RejectedNotFound: there is no record of the execution.
	RejectedNotFound RejectionReason = "execution_not_found"
	// RejectedEnded: the execution is over.
	RejectedEnded RejectionReason = "execution_ended"
	// RejectedNotCurrent: the run is not the one that holds the execution.
	RejectedNotCurrent RejectionReason = "run_not_current"
	// RejectedOutOfOrder: it cannot follow what is recorded.
	RejectedOutOfOrder RejectionReason = "out_of_order"
	// RejectedNotAwaiting: nobody is asked to accept or refuse this.
	RejectedNotAwaiting RejectionReason = "not_awaiting"
	// RejectedWiderScope: the acceptance asks for more scope than was granted.
	RejectedWiderScope RejectionReason = "wider_scope"
	// RejectedLargerBudget: the acceptance asks for more budget than was granted, or for none.
	RejectedLargerBudget RejectionReason = "larger_budget"
)

// Rejection is a verdict on the one who asked, and not a failure: nothing is written and nothing happens.
type Rejection struct {
	Reason RejectionReason
	// Status is the execution's, where it has a record.
	Status events.ExecutionStatus
}

func (r *Rejection) Error() string {
	switch r.Reason {
	case RejectedActor:
		return "this needs another actor"
	case RejectedNotFound:
		return "there is no record of this execution"
	case RejectedEnded:
		return "this execution is over: " + string(r.Status)
	case RejectedNotCurrent:
		return "another run holds this execution"
	case RejectedOutOfOrder:
		return "this cannot follow " + string(r.Status)
	case RejectedNotAwaiting:
		return "only an awaiting execution can be accepted or refused; this one is " + string(r.Status)
	case RejectedWiderScope:
		return "write_scope must be within what was granted"
	case RejectedLargerBudget:
		return "budget must be at least 1 and within what was granted"
	}
	return string(r.Reason)
}

func reject(reason RejectionReason, record *events.Execution) (*Result, error) {
	r := &Rejection{Reason: reason}
	if record != nil {
		r.Status = record.Status
	}
	return nil, r
}

func without(outcome Outcome, after ...Effect) (*Result, error) {
	return &Result{Outcome: outcome, after: after}, nil
}
