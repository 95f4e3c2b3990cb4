// Package core decides everything an executor decides about an intent, and does nothing.
//
// It is a pure function of its arguments: no I/O, clock, randomness, goroutine, lock, context or log, and no type of
// the broker. Commands and facts carry the ids and the time they need, so equal ones on equal state give equal
// results. What it may import is held by the architecture test.
//
// # Authority
//
// An intent grants nothing. What an executor may do comes from its own [Grant] for the intent's kind, and, where the
// grant is manual, from the person who accepted the intent, possibly in a narrower form. Only the executor that
// admitted an intent, or the system on its behalf, may record facts about its runs.
//
// # The contract with the host
//
// A [Command] asks for a decision and goes to [Commit]; a [Fact] tells what happened to a run and goes to [Record].
// For either the host asks what [Needs] is missing, loads it into the [State] (absent ones as absent), and asks again
// until nothing is. It makes Result.Save durable under its expected sequence, and only then obtains the effects, from
// [Result.After], which wants the proof. When the write loses, it loads again and commits the same thing again.
// [ErrNotLoaded] is a fault of the host; a [*Rejection] is a verdict on the one who asked.
//
// # The states of an execution
//
// The last record of an execution is its state.
//
//	(no record) ──▶ refused                            final
//	     │ └──────▶ awaiting ──▶ accepted, refused     by a person, where the grant is manual
//	     ▼                          │
//	  claimed ◀─────────────────────┤ a run begins: first, resumed or taken over
//	     │ └──────▶ paused ─────────┘ resumed at its time
//	     ▼             ▲
//	  called ──────────┘ the effect failed, an attempt is left
//	     │ └──────▶ returned           the effect is done, something remains to do
//	     ▼             ▼
//	  completed, failed                                final
//
// The claimed record is durable before anything is prepared, called before the effect is called, and the result
// before the intent is acknowledged. So a run that was interrupted in called leaves the outcome unknown, and nothing
// else does. It is taken over when its lease has passed; a takeover is an attempt, with the same idempotency key.
// A run of a returned record does not call the effect again and is no attempt.
//
// # Reading order
//
// command.go, fact.go and result.go are what goes in and what comes out. admit.go holds admission, run.go the
// lifecycle, accept.go what persons may do. The fixtures in testdata are the same rules as data, for any language.
package core
