package streams

import (
	"strings"

	"github.com/afterwrite/afterwrite/events"
)

// Streams.
const (
	// Receipts holds what orchestrators published.
	Receipts = "PWH_RECEIPTS"
	// Journal holds what was decided: dispatch receipts, conflicts and refusals.
	Journal = "PWH_JOURNAL"
	// Retries holds the wake-ups of dispatches, scheduled and due.
	Retries = "PWH_RETRIES"
	// Intents holds what providers proposed.
	Intents = "PWH_INTENTS"
	// Executions holds what executors claimed and what came of it.
	Executions = "PWH_EXECUTIONS"
	// State holds the capabilities' opaque states.
	State = "PWH_STATE"
)

// RedriveService is the service by which an operator asks the dispatcher to take up a failed dispatch again.
const RedriveService = "dispatcher.redrive"

const (
	receiptPrefix   = "pwh.receipts."
	journalPrefix   = "pwh.journal."
	conflictPrefix  = "pwh.conflicts."
	refusalPrefix   = "pwh.refused."
	retryAtPrefix   = "pwh.retries.at."
	retryDuePrefix  = "pwh.retries.due."
	intentPrefix    = "pwh.intents."
	executionPrefix = "pwh.executions."
	statePrefix     = "pwh.state."
	callPrefix      = "pwh.call."
	servicePrefix   = "pwh.service."
)

// Token writes a name as one token, for where NATS takes no dot: consumers, micro services, and a name that is not
// the last part of its subject. No name contains "-", so it can be read back with [Name].
func Token(name string) string { return strings.ReplaceAll(name, ".", "-") }

// Name reads a [Token] back.
func Name(token string) (name string, ok bool) {
	name = strings.ReplaceAll(token, "-", ".")
	return name, events.IsName(name) && !strings.Contains(token, ".")
}

// ReceiptSubject is where receipts of an event kind are published.
func ReceiptSubject(kind events.EventKind) string { return receiptPrefix + string(kind) }

// ParseReceiptSubject reads the event kind of a receipt's subject. It may be one that nobody knows: what arrives on
// the stream has been checked by no one.
func ParseReceiptSubject(subject string) (kind events.EventKind, ok bool) {
	token, ok := strings.CutPrefix(subject, receiptPrefix)
	return events.EventKind(token), ok && token != "" && !strings.Contains(token, ".")
}

// ReceiptFilter matches the receipts of every event kind.
func ReceiptFilter() string { return receiptPrefix + "*" }

// JournalSubject is where the records of a dispatch are, the last one being its state.
func JournalSubject(dispatchID events.DispatchID, hookID events.HookID) string {
	return journalPrefix + dispatchID + "." + hookID
}

// ParseJournalSubject reads a [JournalSubject].
func ParseJournalSubject(subject string) (dispatchID events.DispatchID, hookID events.HookID, ok bool) {
	return parsePair(subject, journalPrefix, events.IsDispatchID)
}

// JournalFilter matches the records of every dispatch.
func JournalFilter() string { return journalPrefix + "*.>" }

// JournalFilterFor matches the records of one dispatch whose hook is not known.
func JournalFilterFor(dispatchID events.DispatchID) string { return journalPrefix + dispatchID + ".>" }

// ConflictSubject is where the conflict of a dispatch with one other telling of it is recorded.
func ConflictSubject(dispatchID events.DispatchID, loserDigest events.Digest, hookID events.HookID) string {
	return conflictPrefix + dispatchID + "." + loserDigest + "." + hookID
}

// ParseConflictSubject reads a [ConflictSubject].
func ParseConflictSubject(subject string) (dispatchID events.DispatchID, loserDigest events.Digest, hookID events.HookID, ok bool) {
	rest, ok := strings.CutPrefix(subject, conflictPrefix)
	dispatchID, rest, _ = strings.Cut(rest, ".")
	loserDigest, hookID, _ = strings.Cut(rest, ".")
	ok = ok && events.IsDispatchID(dispatchID) && events.IsDigest(loserDigest) && events.IsName(hookID)
	return dispatchID, loserDigest, hookID, ok
}

// ConflictFilter matches the conflicts of every dispatch.
func ConflictFilter() string { return conflictPrefix + "*.*.>" }

// ConflictFilterFor matches the conflicts of one dispatch.
func ConflictFilterFor(dispatchID events.DispatchID) string {
	return conflictPrefix + dispatchID + ".*.>"
}

// RefusalSubject is where the refusal of a document is recorded, by the SHA-256 of its raw bytes in hex.
func RefusalSubject(sha256hex string) string { return refusalPrefix + sha256hex }

// ParseRefusalSubject reads a [RefusalSubject].
func ParseRefusalSubject(subject string) (sha256hex string, ok bool) {
	sha256hex, ok = strings.CutPrefix(subject, refusalPrefix)
	return sha256hex, ok && events.IsSHA256(sha256hex)
}

// RefusalFilter matches every refusal.
func RefusalFilter() string { return refusalPrefix + "*" }

// RetryAtSubject is where a wake-up is scheduled, see [ScheduleHeader].
func RetryAtSubject(dispatchID events.DispatchID, hookID events.HookID) string {
	return retryAtPrefix + dispatchID + "." + hookID
}

// ParseRetryAtSubject reads a [RetryAtSubject].
func ParseRetryAtSubject(subject string) (dispatchID events.DispatchID, hookID events.HookID, ok bool) {
	return parsePair(subject, retryAtPrefix, events.IsDispatchID)
}

// RetryAtFilter matches every scheduled wake-up.
func RetryAtFilter() string { return RetryAtHookFilter("") }

// RetryAtHookFilter matches the scheduled wake-ups of one hook, or, given "", of all.
func RetryAtHookFilter(hookID events.HookID) string { return retryAtPrefix + "*." + orAll(hookID) }

// RetryDueSubject is where the broker, and nobody else, publishes a wake-up when its time has come.
func RetryDueSubject(dispatchID events.DispatchID, hookID events.HookID) string {
	return retryDuePrefix + dispatchID + "." + hookID
}

// ParseRetryDueSubject reads a [RetryDueSubject].
func ParseRetryDueSubject(subject string) (dispatchID events.DispatchID, hookID events.HookID, ok bool) {
	return parsePair(subject, retryDuePrefix, events.IsDispatchID)
}

// RetryDueFilter matches the due wake-ups of one hook, or, given "", of all.
func RetryDueFilter(hookID events.HookID) string { return retryDuePrefix + "*." + orAll(hookID) }

// IntentSubject is where an intent is published.
func IntentSubject(intentID events.IntentID, kind events.IntentKind) string {
	return intentPrefix + intentID + "." + kind
}

// ParseIntentSubject reads an [IntentSubject].
func ParseIntentSubject(subject string) (intentID events.IntentID, kind events.IntentKind, ok bool) {
	return parsePair(subject, intentPrefix, events.IsIntentID)
}

// IntentFilter matches the intents of one kind, or, given "", of all.
func IntentFilter(kind events.IntentKind) string { return intentPrefix + "*." + orAll(kind) }

// IntentFilterFor matches one intent whose kind is not known.
func IntentFilterFor(intentID events.IntentID) string { return intentPrefix + intentID + ".>" }

// ExecutionSubject is where an executor records what it does about an intent.
func ExecutionSubject(intentID events.IntentID, executor events.ExecutorID) string {
	return executionPrefix + intentID + "." + executor
}

// ParseExecutionSubject reads an [ExecutionSubject].
func ParseExecutionSubject(subject string) (intentID events.IntentID, executor events.ExecutorID, ok bool) {
	return parsePair(subject, executionPrefix, events.IsIntentID)
}

// ExecutionFilter matches the records of every execution.
func ExecutionFilter() string { return executionPrefix + "*.>" }

// ExecutionFilterFor matches what any executor recorded about one intent.
func ExecutionFilterFor(intentID events.IntentID) string { return executionPrefix + intentID + ".>" }

// StateSubject is where the state that a capability keeps under key, for one executor and intent kind, is held.
// The executor is one [Token]: spelled with its dots, executor "a" with kind "b.c" would share the state of
// executor "a.b" with kind "c".
func StateSubject(key string, executor events.ExecutorID, kind events.IntentKind) string {
	return statePrefix + events.SHA256([]byte(key)) + "." + Token(executor) + "." + kind
}

// ParseStateSubject reads a [StateSubject]; of the key there is only its SHA-256 in hex.
func ParseStateSubject(subject string) (keySHA256 string, executor events.ExecutorID, kind events.IntentKind, ok bool) {
	rest, ok := strings.CutPrefix(subject, statePrefix)
	keySHA256, rest, _ = strings.Cut(rest, ".")
	token, kind, _ := strings.Cut(rest, ".")
	executor, named := Name(token)
	return keySHA256, executor, kind, ok && named && events.IsSHA256(keySHA256) && events.IsName(kind)
}

// StateFilter matches every state.
func StateFilter() string { return statePrefix + "*.*.>" }

// CallSubject is where the provider of a hook is called.
func CallSubject(hookID events.HookID) string { return callPrefix + hookID }

// ParseCallSubject reads a [CallSubject].
func ParseCallSubject(subject string) (hookID events.HookID, ok bool) {
	return parseName(subject, callPrefix)
}

// ServiceSubject is where a service is asked.
func ServiceSubject(name string) string { return servicePrefix + name }

// ParseServiceSubject reads a [ServiceSubject].
func ParseServiceSubject(subject string) (name string, ok bool) {
	return parseName(subject, servicePrefix)
}

func orAll(name string) string {
	if name == "" {
		return ">"
	}
	return name
}

func parsePair(subject, prefix string, isID func(string) bool) (id, name string, ok bool) {
	rest, ok := strings.CutPrefix(subject, prefix)
	id, name, _ = strings.Cut(rest, ".")
	return id, name, ok && isID(id) && events.IsName(name)
}

func parseName(subject, prefix string) (name string, ok bool) {
	name, ok = strings.CutPrefix(subject, prefix)
	return name, ok && events.IsName(name)
}
