package core

import (
	"errors"
	"time"

	"github.com/afterwrite/afterwrite/events"
)

// ErrNotLoaded is returned by [Commit] and [Record] when they would have to decide on a key that the host did not
// load. It is a fault of the host: the keys to load are those [Needs] gives for the same arguments.
var ErrNotLoaded = errors.New("core: decision on a key that was not loaded")

// Key names one execution: an intent, and who executes it.
type Key struct {
	Intent   events.IntentID
	Executor events.ExecutorID
}

// Entry is what is recorded for a key. The zero Entry is a key that was loaded and is absent.
type Entry struct {
	// Sequence of the last record in its stream, and the expected sequence of the next write; 0 if there is none.
	Sequence uint64
	// Record is the last record, nil if there is none.
	Record *events.Execution
}

// State is what a decision may look at. Executions holds the loaded keys, absent ones included.
type State struct {
	// Grants are the executor's own, by intent kind.
	Grants     map[events.IntentKind]Grant
	Executions map[Key]Entry
}

// Grant is an executor's authority over one kind of intent.
type Grant struct {
	// Digest names the grant in the records that rely on it.
	Digest events.Digest
	// Enabled is false where intents of the kind wait, and nothing is recorded about them.
	Enabled bool
	// Manual grants want a person to accept each intent.
	Manual bool
	// WriteScope is all that an intent of the kind may be granted.
	WriteScope []string
	// Ceilings of the budget that an intent may ask for.
	Ceilings events.IntentBudget
	// Narrow bounds what is accepted, without refusing an intent that asks for more. Zero members of the budget bound
	// nothing, and neither does a nil write scope.
	Narrow events.Allowance
	// MaxAge is how long after the intent was proposed a run may begin. Zero is any age.
	MaxAge time.Duration
	// Timeout bounds one call of the effect.
	Timeout time.Duration
}

// LeaseMargin is what a run has beyond its timeout before another replica takes it over.
const LeaseMargin = 30 * time.Second

// lease is until when a run that begins, or calls its effect, at now holds the execution.
func (g *Grant) lease(now time.Time) events.Optional {
	return events.Optional(events.NewTimestamp(now.Add(g.Timeout + LeaseMargin)))
}

// tooOld reports whether no run may begin at now.
func (g *Grant) tooOld(proposedAt events.Timestamp, now time.Time) bool {
	return g.MaxAge > 0 && now.Sub(proposedAt.Time()) > g.MaxAge
}

// Actor is on whose behalf something is decided or told.
type Actor struct {
	Kind events.ActorKind
	ID   string
}

// System tells about runs that can speak for themselves no longer.
var System = Actor{Kind: events.ActorSystem, ID: "system"}

// Executor is the actor that an executor is.
func Executor(id events.ExecutorID) Actor { return Actor{Kind: events.ActorExecutor, ID: id} }

// Person is the actor that a person, or a policy that accepts like one, is.
func Person(id string) Actor { return Actor{Kind: events.ActorPerson, ID: id} }

func (s State) entry(key Key) (Entry, error) {
	entry, loaded := s.Executions[key]
	if !loaded {
		return Entry{}, ErrNotLoaded
	}
	return entry, nil
}
