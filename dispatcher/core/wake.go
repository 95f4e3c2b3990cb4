package core

import (
	"slices"

	"github.com/afterwrite/afterwrite/events"
)

func (c WakeDispatch) commit(in *Installed, entry Entry, _ Actor) (*Result, error) {
	record := entry.Record
	switch {
	case record == nil && c.Now.Sub(c.WokenAt) > in.JournalAge:
		return &Result{Outcome: OutcomeExpired}, nil
	case record == nil:
		// A replica that lags, or a redrive that is not written yet: the record is on its way.
		return &Result{Outcome: OutcomeHandedBack, after: []Effect{HandBack{}}}, nil
	case record.Status.Terminal():
		return stands(OutcomeReplayed, record), nil
	}
	d := dispatchOf(record)
	if record.Status == events.StatusRetrying && events.Timestamp(record.RetryAt).Time().After(c.Now) {
		return stands(OutcomeRescheduled, record), nil
	}
	if to, over := c.over(in, record); over {
		return saved(OutcomeFailed, d.record(entry, c.Now, to)), nil
	}
	if c.Pressure == PressureSaturated || c.Pressure == PressureSuspended {
		return &Result{Outcome: OutcomeHandedBack, State: record, after: []Effect{HandBack{}}}, nil
	}
	d.InputData = events.Canonical(d.Input)
	return d.call(in, entry, c.Deliveries, c.Now), nil
}

// over decides whether the dispatch ends here, because its hook is gone or changed or nothing of its budget is left.
func (c WakeDispatch) over(in *Installed, record *events.DispatchReceipt) (decision, bool) {
	to := decision{
		status: events.StatusFailed, code: record.Code,
		attempt: record.Attempt, invocations: record.Invocations,
	}
	hook, installed := in.Hooks[record.HookID]
	profile, known := in.Profiles[record.Profile]
	switch {
	case !installed || !known || !profile.Enabled || !slices.Contains(profile.Hooks, record.HookID):
		to.code, to.reason = events.CodeRegistrationRejected, events.ReasonHookRemoved
	case hook.Digest != record.RegistrationDigest:
		to.code, to.reason = events.CodeRegistrationRejected, events.ReasonRegistrationChanged
	case record.Invocations >= hook.Registration.Budget.MaxInvocationsPerDispatch:
		to.reason = events.ReasonInvocationsExhausted
	case record.Attempt >= profile.Retry.MaxAttempts:
		to.reason = events.ReasonAttemptsExhausted
	default:
		return to, false
	}
	// No code: the last thing known is that an invocation began.
	if to.code == "" {
		to.code, to.reason = events.CodeDispatchBudgetExhausted, events.ReasonInterrupted
	}
	return to, true
}
