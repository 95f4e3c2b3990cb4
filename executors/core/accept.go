package core

import (
	"cmp"
	"slices"

	"github.com/afterwrite/afterwrite/events"
)

// commit records the acceptance. Repeated in the same words, it answers the same and writes nothing.
func (c AcceptIntent) commit(s State, a Actor) (*Result, error) {
	entry, err := answerable(s, c.Key, a)
	if err != nil {
		return nil, err
	}
	record := entry.Record
	if record.Granted == nil {
		return reject(RejectedNotAwaiting, record)
	}
	accepted := &events.Acceptance{
		Authority: events.AuthorityPerson, By: a.ID, WriteScope: record.Granted.WriteScope,
		Budget: events.IntentBudget{
			MaxAttempts:    cmp.Or(c.Budget.MaxAttempts, record.Granted.Budget.MaxAttempts),
			MaxResultBytes: cmp.Or(c.Budget.MaxResultBytes, record.Granted.Budget.MaxResultBytes),
		},
	}
	if c.WriteScope != nil {
		accepted.WriteScope = c.WriteScope
	}
	switch {
	case !within(accepted.WriteScope, record.Granted.WriteScope) || repeats(accepted.WriteScope):
		return reject(RejectedWiderScope, record)
	case !fits(accepted.Budget, record.Granted.Budget) || accepted.Budget.MaxAttempts < 1 || accepted.Budget.MaxResultBytes < 1:
		return reject(RejectedLargerBudget, record)
	case record.Status == events.ExecutionAwaiting:
		next := entry.follow(a, c.Now)
		next.record.Status, next.record.Accepted = events.ExecutionAccepted, accepted
		return next.save(OutcomeAccepted)
	case record.Accepted != nil && same(record.Accepted, accepted):
		return without(OutcomeAccepted)
	}
	return reject(RejectedNotAwaiting, record)
}

// commit records the refusal. Repeated by the same person, it answers the same and writes nothing.
func (c RefuseIntent) commit(s State, a Actor) (*Result, error) {
	entry, err := answerable(s, c.Key, a)
	if err != nil {
		return nil, err
	}
	record := entry.Record
	switch {
	case record.Status == events.ExecutionAwaiting:
		next := entry.follow(a, c.Now)
		next.record.Status, next.record.Reason = events.ExecutionRefused, events.ExecutionRefusedByPerson
		return next.save(OutcomeRefused)
	case record.Reason == events.ExecutionRefusedByPerson && record.Actor == a.ID:
		return without(OutcomeRefused)
	}
	return reject(RejectedNotAwaiting, record)
}

// answerable gives the entry that a person answers about.
func answerable(s State, key Key, a Actor) (Entry, error) {
	if a.Kind != events.ActorPerson || !events.IsOpaqueID(a.ID) {
		return Entry{}, &Rejection{Reason: RejectedActor}
	}
	entry, err := s.entry(key)
	if err == nil && entry.Record == nil {
		err = &Rejection{Reason: RejectedNotFound}
	}
	return entry, err
}

func same(a, b *events.Acceptance) bool {
	return a.Authority == b.Authority && a.By == b.By && a.Budget == b.Budget && slices.Equal(a.WriteScope, b.WriteScope)
}

func repeats(scope []string) bool {
	sorted := slices.Sorted(slices.Values(scope))
	return len(slices.Compact(sorted)) != len(scope)
}
