package core

import (
	"time"

	"github.com/afterwrite/afterwrite/events"
)

// Command is one thing that happened to a receipt or a dispatch.
type Command interface {
	// permits reports whether the command is the actor's to give.
	permits(a Actor) bool
	// key is the dispatch the command is about; ok is false where the journal has no say.
	key() (k Key, ok bool)
	// commit decides, on what the journal holds for key.
	commit(in *Installed, found Entry, a Actor) (*Result, error)
}

// AdmitReceipt: a message came from the receipts stream. It plans one dispatch per admitted hook, or refuses.
type AdmitReceipt struct {
	// SubjectKind is the event kind that the message's subject names.
	SubjectKind events.EventKind
	// BadEnvelope is set where the message is no CloudEvent; Data is then the whole payload.
	BadEnvelope bool
	// Data of the event, as it was sent.
	Data []byte
	// MessageID is the id the message was published under, empty if none.
	MessageID string
	// Deliveries counts the deliveries of the message, this one included.
	Deliveries int
	// StreamTime is when the stream took the message.
	StreamTime time.Time
	Now        time.Time
}

// RefusePoisoned: handling a receipt panicked as often as is bearable.
type RefusePoisoned struct {
	Data []byte
	Now  time.Time
}

// RefuseRegistration: a registration file is malformed or above a ceiling.
type RefuseRegistration struct {
	// File is the raw file.
	File []byte
	// Hook is the registration's hook id where it could be read.
	Hook   events.HookID
	Reason events.RefusalReason
	Now    time.Time
}

// BeginDispatch: a planned dispatch is up.
type BeginDispatch struct {
	Dispatch *Dispatch
	// Fresh dispatches are decided as if the journal were empty; the write proves it.
	Fresh bool
	// Deliveries of the receipt's message.
	Deliveries int
	Pressure   Pressure
	Now        time.Time
}

// DecideAttempt: the attempt begun by a [Call] ended.
type DecideAttempt struct {
	Dispatch *Dispatch
	// Fresh as in [BeginDispatch], until a write lost.
	Fresh bool
	// Call is the effect that began the attempt.
	Call  Call
	Reply Reply
	Now   time.Time
}

// WakeDispatch: a wake-up came. It carries nothing but the key; the record says what to do.
type WakeDispatch struct {
	Key Key
	// Deliveries of the wake-up's message.
	Deliveries int
	Pressure   Pressure
	// WokenAt is when the wake-up's schedule fired.
	WokenAt time.Time
	Now     time.Time
}

// PrepareRedrive: an operator asks to redrive a dispatch. It secures a wake-up before anything is written.
type PrepareRedrive struct {
	Key Key
	Now time.Time
}

// RedriveDispatch: the prepared redrive is written, and the dispatch is woken now.
type RedriveDispatch struct {
	Key Key
	Now time.Time
}

// Pressure is what keeps a hook from being called at this moment.
type Pressure string

const (
	// PressureNone: there is a free place.
	PressureNone Pressure = ""
	// PressureSaturated: every place of the hook is taken.
	PressureSaturated Pressure = "saturated"
	// PressureSuspended: the hook's breaker is open.
	PressureSuspended Pressure = "suspended"
	// PressureBacklogFull: more work of the hook waits than its ceiling allows.
	PressureBacklogFull Pressure = "backlog_full"
)

// ReplyKind is how an attempt ended.
type ReplyKind string

const (
	// ReplyResult: the provider answered; the bytes are its claim to a result.
	ReplyResult ReplyKind = "result"
	// ReplyNoResponder: the broker said that nobody serves the subject.
	ReplyNoResponder ReplyKind = "no_responder"
	// ReplyProviderError: the provider answered with an error.
	ReplyProviderError ReplyKind = "provider_error"
	// ReplyNone: nothing came in time.
	ReplyNone ReplyKind = "none"
)

// Reply is what became of a call.
type Reply struct {
	Kind ReplyKind
	// Data is the result as it was sent, for [ReplyResult].
	Data []byte
}

// Dispatch is one admitted hook applied to one receipt.
type Dispatch struct {
	Key             Key
	Capability      events.CapabilityID
	Profile         string
	EventKind       events.EventKind
	ReceiptIdentity events.ReceiptIdentity
	Registration    events.Digest
	// Input is what the hook would be called with.
	Input       *events.HookInput
	InputDigest events.Digest
	// InputData is the input in its canonical form: the body of every call.
	InputData []byte
	// Outside is the rule by which the input is not public-safe; the hook is then never called.
	Outside events.BoundaryRule
}

func (AdmitReceipt) permits(a Actor) bool       { return a == System }
func (RefusePoisoned) permits(a Actor) bool     { return a == System }
func (RefuseRegistration) permits(a Actor) bool { return a == System }
func (BeginDispatch) permits(a Actor) bool      { return a == System }
func (DecideAttempt) permits(a Actor) bool      { return a == System }
func (WakeDispatch) permits(a Actor) bool       { return a == System }
func (PrepareRedrive) permits(a Actor) bool     { return events.IsOpaqueID(a.Operator) }
func (RedriveDispatch) permits(a Actor) bool    { return events.IsOpaqueID(a.Operator) }

func (AdmitReceipt) key() (Key, bool)       { return Key{}, false }
func (RefusePoisoned) key() (Key, bool)     { return Key{}, false }
func (RefuseRegistration) key() (Key, bool) { return Key{}, false }
func (c BeginDispatch) key() (Key, bool)    { return c.Dispatch.Key, !c.Fresh }
func (c DecideAttempt) key() (Key, bool)    { return c.Dispatch.Key, !c.Fresh }
func (c WakeDispatch) key() (Key, bool)     { return c.Key, true }
func (c PrepareRedrive) key() (Key, bool)   { return c.Key, true }
func (c RedriveDispatch) key() (Key, bool)  { return c.Key, true }

// Needs gives the keys that [Commit] would look at and that state lacks.
func Needs(command Command, state State, actor Actor) []Key {
	key, ok := command.key()
	if !ok || !command.permits(actor) {
		return nil
	}
	if _, loaded := state.Journal[key]; loaded {
		return nil
	}
	return []Key{key}
}

// Commit decides the command. The error is [ErrNotLoaded], exactly where [Needs] gives a key, or a [*Rejection].
func Commit(command Command, state State, actor Actor) (*Result, error) {
	if !command.permits(actor) {
		return nil, &Rejection{Reason: RejectedActor}
	}
	var found Entry
	if key, ok := command.key(); ok {
		var loaded bool
		if found, loaded = state.Journal[key]; !loaded {
			return nil, ErrNotLoaded
		}
	}
	return command.commit(state.Installed, found, actor)
}
