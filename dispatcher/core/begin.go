package core

import (
	"time"

	"github.com/afterwrite/afterwrite/events"
)

// interruptedFrom is the delivery of a message from which on an invocation is journaled as spent before its call:
// whatever interrupted the ones before may well interrupt this one too, and must not do so for ever.
const interruptedFrom = 4

func (c BeginDispatch) commit(in *Installed, entry Entry, _ Actor) (*Result, error) {
	d := c.Dispatch
	if record := entry.Record; record != nil {
		return c.found(record), nil
	}
	if d.Outside != "" {
		return saved(OutcomeFailed, d.record(entry, c.Now, decision{
			status: events.StatusFailed, code: events.CodeInputBoundaryRejected, reason: events.Reason(d.Outside),
		})), nil
	}
	switch c.Pressure {
	case PressureBacklogFull:
		return saved(OutcomeFailed, d.record(entry, c.Now, decision{
			status: events.StatusFailed, code: events.CodeDispatchBudgetExhausted, reason: events.ReasonBacklogFull,
		})), nil
	case PressureSaturated:
		return d.deferred(entry, c.Now, events.ReasonHookSaturated), nil
	case PressureSuspended:
		return d.deferred(entry, c.Now, events.ReasonHookSuspended), nil
	case PressureNone:
	}
	return d.call(in, entry, c.Deliveries, c.Now), nil
}

// found is a dispatch that the journal already knows.
func (c BeginDispatch) found(record *events.DispatchReceipt) *Result {
	switch {
	case record.InputDigest != c.Dispatch.InputDigest:
		return conflict(record, events.ReasonInputDiffers, c.Dispatch.InputDigest, record.InputDigest, c.Now)
	case record.Status.Terminal():
		return stands(OutcomeReplayed, record)
	}
	return stands(OutcomeWaiting, record)
}

// deferred journals that the dispatch waits for its hook: no attempt is spent and it may be woken at once.
func (d *Dispatch) deferred(entry Entry, now time.Time, reason events.Reason) *Result {
	save := d.record(entry, now, decision{status: events.StatusRetrying, reason: reason, retryAt: now})
	return saved(OutcomeDeferred, save, Schedule{Key: d.Key, At: now})
}

// call begins the attempt after entry's. From the fourth delivery on, the invocation is journaled as spent first.
func (d *Dispatch) call(in *Installed, entry Entry, deliveries int, now time.Time) *Result {
	timeout := time.Duration(in.Hooks[d.Key.Hook].Registration.Budget.TimeoutMillis) * time.Millisecond
	call := Call{Dispatch: d, Attempt: 1, Invocations: 1, Timeout: timeout}
	if record := entry.Record; record != nil {
		call.Attempt, call.Invocations, call.Base = record.Attempt+1, record.Invocations+1, record.RecordNumber
	}
	if deliveries < interruptedFrom {
		return &Result{Outcome: OutcomeCalling, State: entry.Record, after: []Effect{call}}
	}
	// The wake-up comes after the call must have ended, and only matters if nobody is left to see that.
	wakeAt := now.Add(timeout + in.Profiles[d.Profile].Retry.backoff(d.Key.Dispatch, call.Attempt))
	save := d.record(entry, now, decision{
		status: events.StatusRetrying, reason: events.ReasonInvocationStarted,
		attempt: call.Attempt, invocations: call.Invocations, retryAt: wakeAt,
	})
	call.Base = save.Record.RecordNumber
	return saved(OutcomeCalling, save, Schedule{Key: d.Key, At: wakeAt}, call)
}
