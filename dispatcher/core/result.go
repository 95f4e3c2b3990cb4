package core

import (
	"time"

	"github.com/afterwrite/afterwrite/events"
)

// Outcome says in one word what was decided. It is a metric label and what a log line says.
type Outcome string

const (
	// OutcomeRefused: the document was not taken; a refusal is recorded.
	OutcomeRefused Outcome = "refused"
	// OutcomeIgnored: the profile is disabled or has no hook for the event kind; nothing is left behind.
	OutcomeIgnored Outcome = "ignored"
	// OutcomeAdmitted: the receipt's dispatches are planned.
	OutcomeAdmitted Outcome = "admitted"
	// OutcomeCalling: an attempt begins.
	OutcomeCalling Outcome = "calling"
	// OutcomeDeferred: the hook is under pressure; the dispatch waits for its wake-up.
	OutcomeDeferred Outcome = "deferred"
	// OutcomeDecided: the attempt's end is recorded, final or not.
	OutcomeDecided Outcome = "decided"
	// OutcomeFailed: the dispatch was given up without an attempt.
	OutcomeFailed Outcome = "failed"
	// OutcomeReplayed: the journal already has the answer.
	OutcomeReplayed Outcome = "replayed"
	// OutcomeWaiting: the journal says that another attempt is due; its wake-up is seen to.
	OutcomeWaiting Outcome = "waiting"
	// OutcomeConflict: a second, different telling; a conflict is recorded and the record stands.
	OutcomeConflict Outcome = "conflict"
	// OutcomeLate: the attempt ended after its dispatch had moved on, and changes nothing.
	OutcomeLate Outcome = "late"
	// OutcomeRescheduled: the wake-up came before its time.
	OutcomeRescheduled Outcome = "rescheduled"
	// OutcomeHandedBack: the wake-up finds no free place, or no record yet, and comes again.
	OutcomeHandedBack Outcome = "handed_back"
	// OutcomeExpired: the wake-up's record is gone by age; there is nothing left to do.
	OutcomeExpired Outcome = "expired"
	// OutcomePrepared: the redrive has its wake-up.
	OutcomePrepared Outcome = "prepared"
	// OutcomeRedriven: the redrive is recorded.
	OutcomeRedriven Outcome = "redriven"
)

// Result is what a command comes to.
type Result struct {
	Outcome Outcome
	// Plan is the receipt's dispatches in hook id order, of [OutcomeAdmitted].
	Plan []Dispatch
	// Fresh says that the plan's dispatches may be decided as if the journal were empty.
	Fresh bool
	// Save must be durable before anything in After happens. Nil if there is nothing to write.
	Save *Save
	// State is the record that stands once Save is durable, nil where there is none.
	State *events.DispatchReceipt

	after []Effect
}

// Save is one append: exactly one of its documents is set. The write carries Expect as the expected last sequence
// of its subject. Refusals and conflicts expect 0, and losing there means that the same is already recorded.
type Save struct {
	Record   *events.DispatchReceipt
	Refusal  *events.Refusal
	Conflict *events.Conflict
	Expect   uint64
}

// Durable proves that a [Save] was acknowledged by the broker.
type Durable struct{ save *Save }

// Stored is what the host says once the broker acknowledged the write.
func (s *Save) Stored() Durable { return Durable{s} }

// After gives the effects that may happen once Save is durable, in their order.
// It panics on the proof of another save: that is the order of section 4, not a matter of taste.
func (r *Result) After(proof Durable) []Effect {
	if proof.save != r.Save {
		panic("core: effects asked for before their record is durable")
	}
	return r.after
}

// Effect is something the host does for a dispatch. Effects come in this order: what makes later work certain
// (publish, schedule), then what begins it (call) or postpones it (hand back). Where neither a call nor a hand-back
// comes, the dispatch is settled and its message may be acknowledged.
type Effect interface{ effect() }

// PublishIntents publishes intents, each created with expected sequence 0; losing means that it is there.
type PublishIntents struct {
	Intents []events.Intent
	// AcceptedAt is when the record that accepted them was written: the time of their events.
	AcceptedAt events.Timestamp
}

// Schedule sees that the dispatch has a wake-up.
type Schedule struct {
	Key Key
	At  time.Time
	// Replace the schedule that is there. Otherwise it is created with expected sequence 0; losing means one exists.
	Replace bool
}

// Call publishes the dispatch's input to its hook and awaits the answer for Timeout.
type Call struct {
	Dispatch *Dispatch
	// Attempt is the number of this attempt.
	Attempt int
	// Invocations is their number, this call counted as one.
	Invocations int
	// Base is the number of the record that the attempt begins on, 0 if there is none.
	Base    int
	Timeout time.Duration
}

// HandBack returns the message to the broker, to come again after a pause.
type HandBack struct{}

func (PublishIntents) effect() {}
func (Schedule) effect()       {}
func (Call) effect()           {}
func (HandBack) effect()       {}

// RejectionReason is why somebody may not have what they asked for.
type RejectionReason string

const (
	// RejectedActor: the command is not this actor's to give.
	RejectedActor RejectionReason = "actor_not_permitted"
	// RejectedNotFound: no record of the dispatch.
	RejectedNotFound RejectionReason = "dispatch_not_found"
	// RejectedNotFailed: only a failed dispatch can be redriven.
	RejectedNotFailed RejectionReason = "not_failed"
	// RejectedInputNotKept: the record does not hold its input.
	RejectedInputNotKept RejectionReason = "input_not_kept"
	// RejectedNotInstalled: the hook is not installed with the record's registration.
	RejectedNotInstalled RejectionReason = "registration_not_installed"
)

// Rejection is a verdict on the one who asked, and not a failure: nothing is written and nothing happens.
type Rejection struct {
	Reason RejectionReason
	// Status is the dispatch's, where it has a record.
	Status events.Status
}

func (r *Rejection) Error() string {
	switch r.Reason {
	case RejectedActor:
		return "a redrive needs an operator named by an opaque id, and any other command the system itself"
	case RejectedNotFound:
		return "there is no record of this dispatch"
	case RejectedNotFailed:
		return "only a failed dispatch can be redriven; this one is " + string(r.Status)
	case RejectedInputNotKept:
		return "the record of this dispatch does not hold its input"
	case RejectedNotInstalled:
		return "the hook is not installed with the registration of this dispatch"
	}
	return string(r.Reason)
}
