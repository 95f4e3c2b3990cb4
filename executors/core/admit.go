package core

import (
	"slices"
	"strings"
	"time"

	"github.com/afterwrite/afterwrite/events"
)

func (c AdmitIntent) commit(s State, a Actor) (*Result, error) {
	if a != Executor(c.Key.Executor) {
		return reject(RejectedActor, nil)
	}
	entry, err := s.entry(c.Key)
	if err != nil {
		return nil, err
	}
	grant, granted := s.Grants[c.SubjectKind]
	if granted && !grant.Enabled {
		return without(OutcomeGrantOff, HandBack{})
	}
	if entry.Record != nil {
		return c.resume(entry.Record, &grant)
	}
	record := &events.Execution{
		Executor: c.Key.Executor, IntentID: c.Key.Intent, IntentKind: c.SubjectKind,
		ProposedAt: events.Optional(c.ProposedAt),
	}
	next := &draft{entry: entry, record: record, actor: a, now: c.Now}
	intent, reason := c.admit(granted, &grant)
	if intent != nil {
		record.CapabilityID = events.Optional(intent.CapabilityID)
		record.DispatchID = events.Optional(intent.SourceDispatchID)
		record.IntentDigest = c.digest()
	}
	if reason != "" {
		record.Status, record.Reason = events.ExecutionRefused, reason
		return next.save(OutcomeRefused, Acknowledge{})
	}
	record.Granted = &events.Allowance{Budget: intent.Budget, WriteScope: intent.RequestedWriteScope}
	if grant.Manual {
		record.Status = events.ExecutionAwaiting
		return next.save(OutcomeAwaiting, HandBack{})
	}
	record.Accepted = &events.Acceptance{
		Authority: events.AuthorityGrant, By: grant.Digest,
		Budget: grant.narrowBudget(intent.Budget), WriteScope: grant.narrowScope(intent.RequestedWriteScope),
	}
	return next.claim(&grant, c.RunID)
}

// admit asks, in order, everything that an intent must be. The intent is nil where nothing of it may be recorded.
func (c AdmitIntent) admit(granted bool, grant *Grant) (*events.Intent, events.ExecutionReason) {
	if c.BadEnvelope {
		return nil, events.ExecutionIntentMalformed
	}
	intent, err := events.Decode[events.Intent](c.Data)
	if err != nil {
		return nil, events.ExecutionIntentMalformed
	}
	identity := events.IntentIdentity(intent.SourceDispatchID, intent.IntentKind, intent.PolicyVersion, intent.Payload)
	switch {
	case intent.IntentID != identity || intent.IntentID != c.Key.Intent || intent.IntentKind != c.SubjectKind:
		return nil, events.ExecutionIntentID
	case intent.Claims():
		return intent, events.ExecutionIntentClaims
	case intent.CheckBoundary() != "":
		return nil, events.ExecutionIntentBoundary
	case !granted:
		return intent, events.ExecutionKindNotGranted
	case !within(intent.RequestedWriteScope, grant.WriteScope):
		return intent, events.ExecutionScopeNotGranted
	case !fits(intent.Budget, grant.Ceilings):
		return intent, events.ExecutionBudgetOverCeiling
	case c.Key.Executor == intent.CapabilityID || strings.HasPrefix(c.Key.Executor, intent.CapabilityID+"."):
		return intent, events.ExecutionExecutorIsProposer
	case grant.tooOld(c.ProposedAt, c.Now):
		return intent, events.ExecutionTooOld
	}
	return intent, ""
}

// resume says what a record asks for when its intent comes again.
func (c AdmitIntent) resume(record *events.Execution, grant *Grant) (*Result, error) {
	end := func(reason EndReason) (*Result, error) {
		return without(OutcomeDue, Tell{System, ExecutionEnded{Key: c.Key, Reason: reason, Now: c.Now}})
	}
	switch {
	case record.Status.Terminal():
		return without(OutcomeSettled, Acknowledge{})
	case record.Status.Running() && c.Now.Before(instant(record.LeaseUntil)):
		return without(OutcomeHeld, HandBack{At: instant(record.LeaseUntil)})
	case record.Status == events.ExecutionPaused && c.Now.Before(instant(record.ResumeAt)):
		return without(OutcomeHeld, HandBack{At: instant(record.ResumeAt)})
	case record.IntentDigest != c.digest() || record.IntentKind != c.SubjectKind:
		return end(EndIntentDiffers)
	case record.Status == events.ExecutionReturned:
		// The effect took place: what is left is finished at any age, and without another attempt.
	case grant.tooOld(events.Timestamp(record.ProposedAt), c.Now) && record.Status == events.ExecutionCalled:
		return end(EndOutcomeUnknown)
	case grant.tooOld(events.Timestamp(record.ProposedAt), c.Now):
		return end(EndTooOld)
	case record.Status == events.ExecutionAwaiting:
		return without(OutcomeAwaiting, HandBack{})
	case record.Attempt >= record.Accepted.Budget.MaxAttempts:
		return end(EndOutcomeUnknown)
	}
	run := Run{Key: c.Key, ID: c.RunID}
	return without(OutcomeDue, Tell{Executor(c.Key.Executor), ExecutionStarted{Run: run, Now: c.Now}})
}

// digest is the intent's as it came, null if that has none.
func (c AdmitIntent) digest() events.Optional {
	canonical, err := events.Canonicalize(c.Data)
	if err != nil {
		return ""
	}
	return events.Optional(events.DigestOf(canonical))
}

// narrowBudget gives what the grant accepts of a budget that it admits.
func (g *Grant) narrowBudget(asked events.IntentBudget) events.IntentBudget {
	if n := g.Narrow.Budget.MaxAttempts; n > 0 {
		asked.MaxAttempts = min(asked.MaxAttempts, n)
	}
	if n := g.Narrow.Budget.MaxResultBytes; n > 0 {
		asked.MaxResultBytes = min(asked.MaxResultBytes, n)
	}
	return asked
}

// narrowScope gives what the grant accepts of a write scope that it admits.
func (g *Grant) narrowScope(asked []string) []string {
	if g.Narrow.WriteScope == nil {
		return asked
	}
	beyond := func(scope string) bool { return !slices.Contains(g.Narrow.WriteScope, scope) }
	return slices.DeleteFunc(slices.Clone(asked), beyond)
}

func within(asked, granted []string) bool {
	return !slices.ContainsFunc(asked, func(scope string) bool { return !slices.Contains(granted, scope) })
}

func fits(asked, ceiling events.IntentBudget) bool {
	return asked.MaxAttempts <= ceiling.MaxAttempts && asked.MaxResultBytes <= ceiling.MaxResultBytes
}

func instant(t events.Optional) time.Time { return events.Timestamp(t).Time() }
