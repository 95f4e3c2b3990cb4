package core

import (
	"slices"
	"time"

	"github.com/afterwrite/afterwrite/events"
)

func (f ExecutionStarted) record(s State, a Actor) (*Result, error) {
	entry, err := s.standing(f.Run.Key)
	if err != nil {
		return nil, err
	}
	record := entry.Record
	grant := s.Grants[record.IntentKind]
	due := false
	switch record.Status {
	case events.ExecutionAccepted:
		due = true
	case events.ExecutionPaused:
		due = !f.Now.Before(instant(record.ResumeAt))
	case events.ExecutionClaimed, events.ExecutionCalled, events.ExecutionReturned:
		due = !f.Now.Before(instant(record.LeaseUntil))
	case events.ExecutionAwaiting, events.ExecutionRefused, events.ExecutionCompleted, events.ExecutionFailed:
	}
	if !due {
		return reject(RejectedOutOfOrder, record)
	}
	next := entry.follow(a, f.Now)
	if record.Status == events.ExecutionReturned {
		next.record.RunID, next.record.LeaseUntil = events.Optional(f.Run.ID), grant.lease(f.Now)
		return next.save(OutcomeReturned, Finish{f.Run, next.record})
	}
	if record.Attempt >= record.Accepted.Budget.MaxAttempts {
		return reject(RejectedOutOfOrder, record)
	}
	return next.claim(&grant, f.Run.ID)
}

func (f EffectCalled) record(s State, a Actor) (*Result, error) {
	entry, err := s.running(f.Run, events.ExecutionClaimed)
	if err != nil {
		return nil, err
	}
	grant := s.Grants[entry.Record.IntentKind]
	next := entry.follow(a, f.Now)
	next.record.Status, next.record.LeaseUntil = events.ExecutionCalled, grant.lease(f.Now)
	return next.save(OutcomeCalled, CallEffect{f.Run, next.record})
}

func (f EffectReturned) record(s State, a Actor) (*Result, error) {
	entry, err := s.running(f.Run, events.ExecutionCalled)
	if err != nil {
		return nil, err
	}
	grant := s.Grants[entry.Record.IntentKind]
	next := entry.follow(a, f.Now)
	packet, reason := checkPacket(f.Result, entry.Record.Accepted.Budget.MaxResultBytes)
	if reason != "" {
		return next.fail(reason)
	}
	next.record.Status, next.record.Result, next.record.LeaseUntil = events.ExecutionReturned, packet, grant.lease(f.Now)
	return next.save(OutcomeReturned, Finish{f.Run, next.record})
}

func (f ExecutionPaused) record(s State, a Actor) (*Result, error) {
	from := []events.ExecutionStatus{events.ExecutionClaimed}
	if f.Reason == PauseNotStarted {
		// Only the attempt to call shows that nobody is there.
		from = append(from, events.ExecutionCalled)
	}
	entry, err := s.running(f.Run, from...)
	if err != nil {
		return nil, err
	}
	next := entry.follow(a, f.Now)
	next.record.Attempt--
	resumeAt := f.Now
	if f.Reason != PauseStopping {
		// Such pauses are not counted, so the records themselves are what makes the next one longer.
		resumeAt = f.Now.Add(backoff(entry.Record.RecordNumber / 2))
	}
	return next.pause(events.ExecutionReason(f.Reason), resumeAt)
}

func (f ExecutionEnded) record(s State, a Actor) (*Result, error) {
	if a != System {
		return reject(RejectedActor, nil)
	}
	entry, err := s.standing(f.Key)
	if err != nil {
		return nil, err
	}
	record := entry.Record
	if record.Status.Running() && f.Now.Before(instant(record.LeaseUntil)) {
		return reject(RejectedOutOfOrder, record)
	}
	next := entry.follow(a, f.Now)
	if record.Accepted == nil {
		next.record.Status, next.record.Reason = events.ExecutionRefused, events.ExecutionReason(f.Reason)
		return next.save(OutcomeRefused, Acknowledge{})
	}
	return next.fail(events.ExecutionReason(f.Reason))
}

func (c CompleteExecution) commit(s State, a Actor) (*Result, error) {
	entry, err := s.owned(c.Run, a, events.ExecutionCalled, events.ExecutionReturned)
	if err != nil {
		return nil, err
	}
	record := entry.Record
	if (c.Result == nil) != (record.Status == events.ExecutionReturned) {
		return reject(RejectedOutOfOrder, record)
	}
	next := entry.follow(a, c.Now)
	next.record.Result = record.Result
	if c.Result != nil {
		packet, reason := checkPacket(c.Result, record.Accepted.Budget.MaxResultBytes)
		if reason != "" {
			return next.fail(reason)
		}
		next.record.Result = packet
	}
	next.record.Status = events.ExecutionCompleted
	return next.save(OutcomeCompleted, Acknowledge{})
}

// causes are the reasons that stand for a cause.
var causes = map[Cause]events.ExecutionReason{
	CauseNever:    events.ExecutionEffectRefused,
	CauseFailed:   events.ExecutionEffectFailed,
	CauseTimedOut: events.ExecutionEffectTimedOut,
	CauseLater:    events.ExecutionEffectLater,
}

func (c FailExecution) commit(s State, a Actor) (*Result, error) {
	from := []events.ExecutionStatus{events.ExecutionCalled}
	if c.Cause == CauseNever {
		// What is left to do with a result can turn out to be impossible; anything else there is tried again.
		from = append(from, events.ExecutionReturned)
	}
	entry, err := s.owned(c.Run, a, from...)
	if err != nil {
		return nil, err
	}
	record := entry.Record
	next := entry.follow(a, c.Now)
	if c.Cause == CauseNever || record.Attempt >= record.Accepted.Budget.MaxAttempts {
		return next.fail(causes[c.Cause])
	}
	resumeAt := c.Now.Add(backoff(record.Attempt))
	if c.Cause == CauseLater && c.ResumeAt.After(c.Now) {
		resumeAt = c.ResumeAt
	}
	return next.pause(causes[c.Cause], resumeAt)
}

// checkPacket decides whether data is a result that may be stored.
func checkPacket(data []byte, maxBytes int) (*events.Packet, events.ExecutionReason) {
	if len(data) > maxBytes {
		return nil, events.ExecutionResultTooLarge
	}
	packet, err := events.Decode[events.Packet](data)
	if err != nil {
		return nil, events.ExecutionResultMalformed
	}
	if packet.CheckBoundary() != "" {
		return nil, events.ExecutionResultBoundary
	}
	return packet, ""
}

// backoff is the pause after n attempts: 1 s doubling up to 5 min.
func backoff(n int) time.Duration {
	const longest = 5 * time.Minute
	return min(time.Second<<min(max(n-1, 0), 9), longest)
}

// standing gives an entry that has a record which another may follow.
func (s State) standing(key Key) (Entry, error) {
	entry, err := s.entry(key)
	switch {
	case err != nil:
		return Entry{}, err
	case entry.Record == nil:
		return Entry{}, &Rejection{Reason: RejectedNotFound}
	case entry.Record.Status.Terminal():
		return Entry{}, &Rejection{Reason: RejectedEnded, Status: entry.Record.Status}
	}
	return entry, nil
}

// running gives the entry that the run holds, in one of the statuses.
func (s State) running(run Run, statuses ...events.ExecutionStatus) (Entry, error) {
	entry, err := s.standing(run.Key)
	if err != nil {
		return Entry{}, err
	}
	if entry.Record.RunID != events.Optional(run.ID) {
		return Entry{}, &Rejection{Reason: RejectedNotCurrent, Status: entry.Record.Status}
	}
	if !slices.Contains(statuses, entry.Record.Status) {
		return Entry{}, &Rejection{Reason: RejectedOutOfOrder, Status: entry.Record.Status}
	}
	return entry, nil
}

// owned is running, for the executor itself.
func (s State) owned(run Run, a Actor, statuses ...events.ExecutionStatus) (Entry, error) {
	if a != Executor(run.Key.Executor) {
		return Entry{}, &Rejection{Reason: RejectedActor}
	}
	return s.running(run, statuses...)
}
