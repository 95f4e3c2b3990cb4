package core

import (
	"time"

	"github.com/afterwrite/afterwrite/events"
)

// decision is the part of a record that a rule decides.
type decision struct {
	status       events.Status
	code         events.Code
	reason       events.Reason
	attempt      int
	invocations  int
	resultDigest events.Digest
	intents      []events.Intent
	retryAt      time.Time
	actor        string
}

// record writes the decision about d as the record that follows entry.
func (d *Dispatch) record(entry Entry, now time.Time, to decision) *Save {
	number := 1
	if entry.Record != nil {
		number = entry.Record.RecordNumber + 1
	}
	record := &events.DispatchReceipt{
		Actor:              events.Optional(to.actor),
		Attempt:            to.attempt,
		CapabilityID:       d.Capability,
		Code:               to.code,
		DispatchID:         d.Key.Dispatch,
		EventKind:          d.EventKind,
		HookID:             d.Key.Hook,
		InputDigest:        d.InputDigest,
		Intents:            to.intents,
		Invocations:        to.invocations,
		Profile:            d.Profile,
		Reason:             to.reason,
		ReceiptIdentity:    d.ReceiptIdentity,
		RecordNumber:       number,
		RecordedAt:         events.NewTimestamp(now),
		RegistrationDigest: d.Registration,
		ResultDigest:       events.Optional(to.resultDigest),
		SchemaVersion:      events.DispatchReceiptSchema,
		Status:             to.status,
	}
	if to.status == events.StatusRetrying {
		record.RetryAt = events.Optional(events.NewTimestamp(to.retryAt))
	}
	if events.HoldsInput(to.status, to.code) {
		record.Input = d.Input
	}
	return &Save{Record: record, Expect: entry.Sequence}
}

// saved is the result whose Save is a record.
func saved(outcome Outcome, save *Save, after ...Effect) *Result {
	return &Result{Outcome: outcome, Save: save, State: save.Record, after: after}
}

// stands is the result of finding a record that already says what there is to say: its intents are published again
// or its wake-up is seen to, both idempotently.
func stands(outcome Outcome, record *events.DispatchReceipt) *Result {
	r := &Result{Outcome: outcome, State: record}
	switch record.Status {
	case events.StatusProposed:
		r.after = []Effect{PublishIntents{record.Intents, record.RecordedAt}}
	case events.StatusRetrying:
		r.after = []Effect{Schedule{Key: keyOf(record), At: events.Timestamp(record.RetryAt).Time()}}
	case events.StatusRedriven:
		r.after = []Effect{Schedule{Key: keyOf(record), At: record.RecordedAt.Time()}}
	case events.StatusNotApplicable, events.StatusFailed:
	}
	return r
}

// conflict records that loser came second, and otherwise leaves the record standing.
func conflict(record *events.DispatchReceipt, reason events.Reason, loser, standing events.Digest, now time.Time) *Result {
	r := stands(OutcomeConflict, record)
	r.Save = &Save{Conflict: &events.Conflict{
		CapabilityID:    record.CapabilityID,
		Code:            events.CodeIntentConflict,
		DispatchID:      record.DispatchID,
		EventKind:       record.EventKind,
		HookID:          record.HookID,
		LoserDigest:     loser,
		Reason:          reason,
		ReceiptIdentity: record.ReceiptIdentity,
		RecordedAt:      events.NewTimestamp(now),
		SchemaVersion:   events.ConflictSchema,
		StandingDigest:  standing,
		StandingRecord:  record.RecordNumber,
	}}
	return r
}

func keyOf(record *events.DispatchReceipt) Key {
	return Key{Dispatch: record.DispatchID, Hook: record.HookID}
}

// dispatchOf is the dispatch that a record with its input is about.
func dispatchOf(record *events.DispatchReceipt) *Dispatch {
	return &Dispatch{
		Key:             keyOf(record),
		Capability:      record.CapabilityID,
		Profile:         record.Profile,
		EventKind:       record.EventKind,
		ReceiptIdentity: record.ReceiptIdentity,
		Registration:    record.RegistrationDigest,
		Input:           record.Input,
		InputDigest:     record.InputDigest,
	}
}
