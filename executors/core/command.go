package core

import (
	"time"

	"github.com/afterwrite/afterwrite/events"
)

// Command asks for a decision about an execution.
type Command interface {
	key() Key
	commit(s State, a Actor) (*Result, error)
}

// AdmitIntent: an intent came from the intents stream, for the first time or again.
type AdmitIntent struct {
	// Key of the execution; its intent id is the one that the message's subject names.
	Key Key
	// SubjectKind is the intent kind that the message's subject names.
	SubjectKind events.IntentKind
	// BadEnvelope is set where the message is no CloudEvent with a time.
	BadEnvelope bool
	// Data of the event, as it was sent.
	Data []byte
	// ProposedAt is the time of the intent's event: when the record that accepted it was written.
	ProposedAt events.Timestamp
	// RunID names the run that begins if one does.
	RunID string
	Now   time.Time
}

// AcceptIntent: a person accepts an awaiting intent, as granted or narrower.
type AcceptIntent struct {
	Key Key
	// Budget accepted; zero members accept what was granted.
	Budget events.IntentBudget
	// WriteScope accepted; nil accepts what was granted.
	WriteScope []string
	Now        time.Time
}

// RefuseIntent: a person refuses an awaiting intent.
type RefuseIntent struct {
	Key Key
	Now time.Time
}

// CompleteExecution: the run's effect took place, and everything that was to be done with its result.
type CompleteExecution struct {
	Run Run
	// Result is the packet document as the effect gave it. Nil stands for the one in a returned record.
	Result []byte
	Now    time.Time
}

// FailExecution: the run's effect ended without a result.
type FailExecution struct {
	Run   Run
	Cause Cause
	// ResumeAt is when the effect asked to be called, for [CauseLater].
	ResumeAt time.Time
	Now      time.Time
}

// Run names one run of an execution.
type Run struct {
	Key Key
	ID  string
}

// Cause is why an effect ended without a result.
type Cause string

const (
	// CauseNever: it will never take place.
	CauseNever Cause = "never"
	// CauseFailed: it gave an error and may be tried again.
	CauseFailed Cause = "failed"
	// CauseTimedOut: it did not end in time.
	CauseTimedOut Cause = "timed_out"
	// CauseLater: it asks to be called at a later time.
	CauseLater Cause = "later"
)

func (c AdmitIntent) key() Key       { return c.Key }
func (c AcceptIntent) key() Key      { return c.Key }
func (c RefuseIntent) key() Key      { return c.Key }
func (c CompleteExecution) key() Key { return c.Run.Key }
func (c FailExecution) key() Key     { return c.Run.Key }

// Subject is a command or a fact: what [Needs] can be asked about.
type Subject interface{ key() Key }

// Needs gives the keys that [Commit] or [Record] would look at and that state lacks.
func Needs(subject Subject, state State, _ Actor) []Key {
	key := subject.key()
	if _, loaded := state.Executions[key]; loaded {
		return nil
	}
	return []Key{key}
}

// Commit decides the command. The error is [ErrNotLoaded] or a [*Rejection].
func Commit(command Command, state State, actor Actor) (*Result, error) {
	return command.commit(state, actor)
}
