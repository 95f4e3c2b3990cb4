package core

import (
	"time"

	"github.com/afterwrite/afterwrite/events"
)

// prepareAhead is how long a prepared redrive may take to be written before its wake-up fires.
const prepareAhead = time.Minute

func (c PrepareRedrive) commit(in *Installed, entry Entry, _ Actor) (*Result, error) {
	record, err := redrivable(in, entry)
	if err != nil {
		return nil, err
	}
	// A wake-up left over from the failed series could fire before the record is written and be spent on it.
	// Once the record is written, whatever wake-up there is will do.
	leftOver := record.Status == events.StatusFailed
	schedule := Schedule{Key: c.Key, At: c.Now.Add(prepareAhead), Replace: leftOver}
	return &Result{Outcome: OutcomePrepared, State: record, after: []Effect{schedule}}, nil
}

func (c RedriveDispatch) commit(in *Installed, entry Entry, a Actor) (*Result, error) {
	record, err := redrivable(in, entry)
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
func redrivable(in *Installed, entry Entry) (*events.DispatchReceipt, error) {
	record := entry.Record
	if record == nil {
		return nil, &Rejection{Reason: RejectedNotFound}
	}
	hook, installed := in.Hooks[record.HookID]
	switch {
	case record.Status == events.StatusRedriven:
	case record.Status != events.StatusFailed:
		return nil, &Rejection{RejectedNotFailed, record.Status}
	case record.Input == nil:
		return nil, &Rejection{RejectedInputNotKept, record.Status}
	}
	if !installed || hook.Digest != record.RegistrationDigest {
		return nil, &Rejection{RejectedNotInstalled, record.Status}
	}
	return record, nil
}
