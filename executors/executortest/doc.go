// Package executortest is a conformance suite that any [executors.Executor] can be run against: the same intent twice is
// one effect, a crash between effect and record is survived, a refusal is recorded and nothing is called, the deadline
// is honoured, and stopping lets a called effect end.
//
// What may live here is what judges an executor from outside: by its effects, and by what is recorded. Nothing here
// knows a capability.
package executortest
