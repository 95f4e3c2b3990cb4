package core

import (
	"time"

	"github.com/afterwrite/afterwrite/events"
)

// prepareAhead is how long a prepared redrive may take to be written before its wake-up fires.
const prepareAhead = time.Minute

func (c PrepareRedrive) commit(s State, a Actor) (*Result, error) {
	record, _, err := redrivable(c.Key, s, a)
	if err != nil {
		return nil, err
	}
	schedule := Schedule{Key: c.Key, At: c.Now.Add(prepareAhead)}
	return &Result{Outcome: OutcomePrepared, State: record, after: []Effect{schedule}}, nil
}

func (c RedriveDispatch) commit(s State, a Actor) (*Result, error) {
	record, entry, err := redrivable(c.Key, s, a)
	if err != nil {
		return nil, err
	}
	wake := Schedule{Key: c.Key, At: c.Now, Replace: true}
	if record.Status == events.StatusRedriven {
		return &Result{Outcome: OutcomeRedriven, State: record, after: []Effect{wake}}, nil
	}
	save := dispatchOf(record).record(entry, c.Now, decision{status: events.StatusRedriven, actor: a.Operator})
	return saved(OutcomeRedriven, save, wake), nil
}

// redrivable gives the record of a dispatch that may be redriven: failed with its input kept, under a registration
// that is installed. One that is redriven already is too, so that a repeated request gets the same answer.
func redrivable(key Key, s State, a Actor) (*events.DispatchReceipt, Entry, error) {
	if !events.IsOpaqueID(a.Operator) {
		return nil, Entry{}, &Rejection{Reason: RejectedActor}
	}
	entry, err := s.entry(key)
	if err != nil {
		return nil, Entry{}, err
	}
	record := entry.Record
	if record == nil {
		return nil, Entry{}, &Rejection{Reason: RejectedNotFound}
	}
	hook, installed := s.Installed.Hooks[record.HookID]
	switch {
	case record.Status == events.StatusRedriven:
	case record.Status != events.StatusFailed:
		return nil, Entry{}, &Rejection{RejectedNotFailed, record.Status}
	case record.Input == nil:
		return nil, Entry{}, &Rejection{RejectedInputNotKept, record.Status}
	}
	if !installed || hook.Digest != record.RegistrationDigest {
		return nil, Entry{}, &Rejection{RejectedNotInstalled, record.Status}
	}
	return record, entry, nil
}
