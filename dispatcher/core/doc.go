// Package core decides everything the dispatcher decides, and does nothing.
//
// It is a pure function of its arguments: no I/O, clock, randomness, goroutine, lock, context or log, and no type of
// the broker. Every command carries the ids and the time it needs, so equal commands on equal state give equal
// results, on any machine and for ever. What it may import is held by the architecture test.
//
// # The contract with the host
//
// There is one [Command] for each thing that can happen to a receipt or to a dispatch. The host
//
//  1. asks [Needs] which keys of the journal are missing, loads them into the [State], recording absent ones as
//     absent, and asks again until nothing is missing;
//  2. calls [Commit], which returns a [Result], or a [*Rejection] where somebody asked for what may not be;
//  3. makes Result.Save durable, if there is one. When the write loses, because the subject moved on, it loads again
//     until something newer appears and commits the same command again;
//  4. only then obtains the effects, from [Result.After], which wants the proof of step 3, and carries them out in
//     their order: what is published and scheduled is acknowledged before a call begins, and everything before the
//     message that caused the command is acknowledged.
//
// [Commit] on keys that were not loaded is [ErrNotLoaded], a fault of the host and not a verdict.
//
// # The states of a dispatch
//
// The last record of a dispatch is its state; no record is the state before the first.
//
//	            ┌────────────── retrying ◀─┐
//	            │  ▲          │  │ ▲       │ another attempt, a deferral
//	(no record)─┤  │          │  └─┼───────┘
//	            │  │          ▼    │
//	            ├──┼──▶ proposed, not_applicable      final
//	            │  │          ▲    │
//	            └──┼──▶ failed│────┼── redriven       by a named operator, if the record holds its input
//	               │     │    │    │      │
//	               └─────┼────┴────┴──────┘
//	                     └──────────────▶ (redriven)
//
// A late valid result may follow retrying and redriven; a late failure changes nothing. A second, different telling
// of a dispatch is recorded as a conflict beside it, and the first stands.
//
// # Reading order
//
// command.go and result.go are what goes in and what comes out. admit.go takes a receipt, begin.go starts its
// dispatches, decide.go ends an attempt (contract.go holds what a result must be), wake.go takes a wake-up,
// redrive.go an operator's request. state.go, record.go and backoff.go serve them. The fixtures in testdata are the
// same rules as data, for any language.
package core
