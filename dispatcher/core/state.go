package core

import (
	"errors"

	"github.com/afterwrite/afterwrite/events"
)

// ErrNotLoaded is returned by [Commit] when it would have to decide on a key that the host did not load.
// It is a fault of the host: the keys to load are those [Needs] gives for the same arguments.
var ErrNotLoaded = errors.New("core: commit on a key that was not loaded")

// Key names one dispatch in the journal.
type Key struct {
	Dispatch events.DispatchID
	Hook     events.HookID
}

// Entry is what the journal holds for a key. The zero Entry is a key that was loaded and is absent.
type Entry struct {
	// Sequence of the last record in its stream, and the expected sequence of the next write; 0 if there is none.
	Sequence uint64
	// Record is the last record, nil if there is none.
	Record *events.DispatchReceipt
}

// State is what a decision may look at. Journal holds the loaded keys, absent ones included.
type State struct {
	Installed *Installed
	Journal   map[Key]Entry
}

// Actor is on whose behalf a command is committed.
type Actor struct {
	// Operator names a person; empty is the system itself.
	Operator string
}

// System is the dispatcher itself.
var System = Actor{}
