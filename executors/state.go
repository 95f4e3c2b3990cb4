package executors

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/afterwrite/afterwrite/events"
	"github.com/afterwrite/afterwrite/streams"
)

// headerReservedBy names the intent that is being executed with the state. The body of such a message is the state
// unchanged.
const headerReservedBy = "Afterwrite-Reserved-By"

// stateEntry is a capability's opaque state, as it is stored under one key.
type stateEntry struct {
	subject  string
	sequence uint64
	// value is nil where there is no state yet.
	value      jsontext.Value
	reservedBy events.IntentID
}

// stateKey gives the key of the intent's state; ok is false where the grant names one and the payload lacks it.
func stateKey(intent *events.Intent, grant *Grant) (key string, ok bool) {
	if grant.StateKey == "" {
		return "", true
	}
	return payloadString(intent, grant.StateKey)
}

func (l *ledger) loadState(ctx context.Context, key string, executor events.ExecutorID, kind events.IntentKind) (*stateEntry, error) {
	entry := &stateEntry{subject: streams.StateSubject(key, executor, kind)}
	raw, err := l.leader.GetLastMsg(streams.State, entry.subject, nats.Context(ctx))
	if errors.Is(err, nats.ErrMsgNotFound) {
		return entry, nil
	}
	if err != nil {
		return nil, fmt.Errorf("executors: load state: %w", err)
	}
	canonical, err := events.Canonicalize(raw.Data)
	if err != nil {
		return nil, fmt.Errorf("executors: load state: %w", err)
	}
	value := jsontext.Value(canonical)
	entry.sequence, entry.reservedBy = raw.Sequence, raw.Header.Get(headerReservedBy)
	if value.Kind() != 'n' {
		entry.value = value
	}
	return entry, nil
}

// writeState replaces the entry under its expected sequence: value is the state from now on, reservedBy who works
// with it. It updates the entry. The error is errLost where somebody else wrote first.
func (l *ledger) writeState(ctx context.Context, entry *stateEntry, value jsontext.Value, reservedBy events.IntentID) error {
	msg := &nats.Msg{Subject: entry.subject, Data: orNull(value)}
	if reservedBy != "" {
		msg.Header = nats.Header{headerReservedBy: {reservedBy}}
	}
	for pause := firstPause; ; pause = longer(pause) {
		ack, err := l.js.PublishMsg(ctx, msg, jetstream.WithExpectLastSequencePerSubject(entry.sequence), jetstream.WithRetryAttempts(0))
		switch {
		case err == nil:
			entry.sequence, entry.value, entry.reservedBy = ack.Sequence, value, reservedBy
			return nil
		case lost(err):
			return errLost
		case !unanswered(err):
			return fmt.Errorf("executors: write state: %w", err)
		}
		// Stored or not, the state is read again by whoever comes next: an unanswered reservation of ours is found
		// to be ours, an unanswered advance is made again by the finishing run.
		if err := wait(ctx, pause); err != nil {
			return fmt.Errorf("executors: write state: %w", err)
		}
	}
}
