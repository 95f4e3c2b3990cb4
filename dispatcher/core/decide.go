package core

import "github.com/afterwrite/afterwrite/events"

func (c DecideAttempt) commit(in *Installed, entry Entry, _ Actor) (*Result, error) {
	to := c.verdict(in)
	if record := entry.Record; record != nil && record.RecordNumber > c.Call.Base {
		return c.overtaken(entry, to), nil
	}
	if to.status == events.StatusFailed && to.retryable() {
		c.again(in, &to)
	}
	return c.write(entry, to), nil
}

// verdict is what the reply says about the dispatch, retries not yet considered.
func (c DecideAttempt) verdict(in *Installed) decision {
	to := decision{attempt: c.Call.Attempt, invocations: c.Call.Invocations}
	switch c.Reply.Kind {
	case ReplyResult:
		hook := in.Hooks[c.Dispatch.Key.Hook]
		result, digest, reason := checkResult(&hook, c.Dispatch, c.Reply.Data)
		if reason != "" {
			to.status, to.code, to.reason = events.StatusFailed, events.CodeResultContractRejected, reason
			return to
		}
		to.status, to.intents, to.resultDigest = events.StatusNotApplicable, result.Intents, digest
		if result.Status == events.ResultProposed {
			to.status = events.StatusProposed
		}
	case ReplyNoResponder:
		to.status, to.code, to.reason = events.StatusFailed, events.CodeProducerFailed, events.ReasonNoResponder
		to.invocations--
	case ReplyProviderError:
		to.status, to.code, to.reason = events.StatusFailed, events.CodeProducerFailed, events.ReasonProviderError
	case ReplyNone:
		to.status, to.code, to.reason = events.StatusFailed, events.CodeProducerTimedOut, events.ReasonNoReply
	}
	return to
}

func (d decision) retryable() bool {
	return d.code == events.CodeProducerFailed || d.code == events.CodeProducerTimedOut
}

// again turns a retryable failure into the next attempt, unless a budget is used up.
func (c DecideAttempt) again(in *Installed, to *decision) {
	retry := in.Profiles[c.Dispatch.Profile].Retry
	switch {
	case to.invocations >= in.Hooks[c.Dispatch.Key.Hook].Registration.Budget.MaxInvocationsPerDispatch:
		to.reason = events.ReasonInvocationsExhausted
	case to.attempt >= retry.MaxAttempts:
		to.reason = events.ReasonAttemptsExhausted
	default:
		to.status = events.StatusRetrying
		to.retryAt = c.Now.Add(retry.backoff(c.Dispatch.Key.Dispatch, to.attempt))
	}
}

func (c DecideAttempt) write(entry Entry, to decision) *Result {
	r := saved(OutcomeDecided, c.Dispatch.record(entry, c.Now, to))
	switch to.status {
	case events.StatusProposed:
		r.after = []Effect{PublishIntents{to.intents, r.Save.Record.RecordedAt}}
	case events.StatusRetrying:
		r.after = []Effect{Schedule{Key: c.Dispatch.Key, At: to.retryAt}}
	case events.StatusNotApplicable, events.StatusFailed, events.StatusRedriven:
	}
	return r
}

// overtaken is an attempt that ends on a dispatch which has moved on since it began. Only a valid result still
// counts: it may follow a record that waits for one, and it may contradict another result.
func (c DecideAttempt) overtaken(entry Entry, to decision) *Result {
	record := entry.Record
	switch {
	case record.InputDigest != c.Dispatch.InputDigest:
		return conflict(record, events.ReasonInputDiffers, c.Dispatch.InputDigest, record.InputDigest, c.Now)
	case to.resultDigest == "" || record.Status == events.StatusFailed:
		return stands(OutcomeLate, record)
	case !record.Status.Terminal():
		to.attempt = max(to.attempt, record.Attempt)
		to.invocations = max(to.invocations, record.Invocations)
		return c.write(entry, to)
	case record.ResultDigest == events.Optional(to.resultDigest):
		return stands(OutcomeReplayed, record)
	}
	return conflict(record, events.ReasonResultDiffers, to.resultDigest, string(record.ResultDigest), c.Now)
}
