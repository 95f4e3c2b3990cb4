// Package executors is for those who act upon intents.
//
// An intent is a proposal: it grants nothing. A [Process] takes the intents of the kinds it has a [Grant] for, admits
// each against that grant, claims it, calls its [Executor] once at a time with the intent's id as idempotency key,
// and records the outcome, so that the author of an executor writes one method. What is admitted, when a run may be
// taken over and what counts as an attempt is decided in the core package beneath; this package carries it out over
// the broker.
//
// # Authority
//
// All authority is the grant's: its kind of intent, its write scope, its ceilings, its age limit. Nothing that an
// intent says widens it, and a person who accepts an intent of a manual grant can only narrow it. A process touches
// nothing but the broker before an intent is admitted. The state of a capability is written only by a [Delivery],
// after what it delivered was read back; a process without one only reads it.
//
// # Failure
//
// At any instruction a process may die. The claim is durable before anything is prepared, a record of the call before
// the effect is called, the outcome before the intent is acknowledged; the intent comes again, to this replica or
// another, and its last record says what is left to do. A run that was cut off is taken over when its lease has
// passed. Two replicas that act on one execution meet at the expected sequence of its subject: one wins.
//
// # Reading order
//
// executor.go and errors.go are what an author writes against, grant.go and grants.go what an operator writes.
// process.go starts and stops, puller.go takes intents, run.go carries an execution through, ledger.go is the
// executions stream, state.go and delivery.go the capability's state. service.go is the executor that calls a
// service, answer.go what persons may say, list.go what can be read. metrics.go and tracing.go tell how it is.
package executors
