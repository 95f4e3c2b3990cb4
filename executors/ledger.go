package executors

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/afterwrite/afterwrite/events"
	"github.com/afterwrite/afterwrite/executors/core"
	"github.com/afterwrite/afterwrite/streams"
)

// ledger is the executions stream, as one executor uses it.
type ledger struct {
	js jetstream.JetStream
	// leader reads from the stream's leader. A direct get, as the newer client makes it, may ask a replica that has
	// not seen the record that was just lost to.
	leader nats.JetStreamContext
	source string
}

func newLedger(nc *nats.Conn, js jetstream.JetStream, executor events.ExecutorID) (*ledger, error) {
	leader, err := nc.JetStream()
	if err != nil {
		return nil, fmt.Errorf("executors: %w", err)
	}
	return &ledger{js: js, leader: leader, source: "afterwrite/executor/" + executor}, nil
}

// load reads the last record of the key from the stream's leader, and the envelope that names the span of who wrote it.
func (l *ledger) load(ctx context.Context, key core.Key) (core.Entry, events.Envelope, error) {
	raw, err := l.leader.GetLastMsg(streams.Executions, streams.ExecutionSubject(key.Intent, key.Executor), nats.Context(ctx))
	if errors.Is(err, nats.ErrMsgNotFound) {
		return core.Entry{}, events.Envelope{}, nil
	}
	if err != nil {
		return core.Entry{}, events.Envelope{}, fmt.Errorf("executors: load %s: %w", key.Intent, err)
	}
	envelope, record, err := decodeExecution(raw.Header, raw.Data)
	if err != nil {
		return core.Entry{}, events.Envelope{}, fmt.Errorf("executors: load %s: %w", key.Intent, err)
	}
	return core.Entry{Sequence: raw.Sequence, Record: record}, envelope, nil
}

// append writes the save under its expected sequence and gives the entry that then stands. A write that is not
// answered is repeated byte for byte until it is, or ctx ends; losing to it is a win. The error is errLost, with the
// entry that won, where another record was written first.
func (l *ledger) append(ctx context.Context, save *core.Save, trace events.Envelope) (core.Entry, error) {
	r := save.Record
	data, err := events.Encode(r)
	if err != nil {
		return core.Entry{}, err
	}
	envelope := events.NewEnvelope(fmt.Sprintf("%s.%s.%d", r.IntentID, r.Executor, r.RecordNumber), l.source, events.ExecutionSchema, r.RecordedAt)
	envelope.TraceParent, envelope.TraceState = trace.TraceParent, trace.TraceState
	msg := &nats.Msg{
		Subject: streams.ExecutionSubject(r.IntentID, r.Executor), Header: nats.Header(envelope.Header()), Data: data,
	}
	key := core.Key{Intent: r.IntentID, Executor: r.Executor}
	for pause := firstPause; ; pause = longer(pause) {
		ack, err := l.js.PublishMsg(ctx, msg, jetstream.WithExpectLastSequencePerSubject(save.Expect), jetstream.WithRetryAttempts(0))
		if err == nil {
			return core.Entry{Sequence: ack.Sequence, Record: r}, nil
		}
		if lost(err) {
			entry, ours, err := l.winner(ctx, key, data)
			switch {
			case err != nil || ours:
				return entry, err
			case entry.Sequence != save.Expect:
				return entry, errLost
			}
			// The rival is only in flight: ask the write itself again.
		} else if !unanswered(err) && !full(err) {
			return core.Entry{}, fmt.Errorf("executors: record %s: %w", r.IntentID, err)
		}
		if err := wait(ctx, pause); err != nil {
			return core.Entry{}, fmt.Errorf("executors: record %s: %w", r.IntentID, err)
		}
	}
}

// winner gives the record that a write lost to, and whether it is that write itself.
func (l *ledger) winner(ctx context.Context, key core.Key, data []byte) (core.Entry, bool, error) {
	entry, _, err := l.load(ctx, key)
	if err != nil || entry.Record == nil {
		return entry, false, err
	}
	stored, err := events.Encode(entry.Record)
	if err != nil {
		return core.Entry{}, false, err
	}
	return entry, bytes.Equal(stored, data), nil
}

// lost reports whether the broker refused a write because of its expected sequence. Replicated streams use a code of
// their own, also while the rival is only in flight.
func lost(err error) bool {
	api := (*jetstream.APIError)(nil)
	return errors.As(err, &api) && (api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence ||
		api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequenceConstant)
}

// full reports whether the stream or the account has no room. What was done must be recorded once there is: the effect
// may not be called again for it.
func full(err error) bool {
	api := (*jetstream.APIError)(nil)
	return errors.As(err, &api) && slices.Contains(noRoom, api.ErrorCode)
}

// noRoom are the broker's codes for insufficient resources, memory and storage exceeded, and a store that refused.
var noRoom = []jetstream.ErrorCode{10023, 10028, 10047, 10077}

// unanswered reports whether the write may have been stored nevertheless.
func unanswered(err error) bool {
	return errors.Is(err, nats.ErrTimeout) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, nats.ErrNoResponders) ||
		errors.Is(err, jetstream.ErrNoStreamResponse) || errors.Is(err, nats.ErrReconnectBufExceeded) || errors.Is(err, nats.ErrDisconnected)
}

const (
	firstPause   = 10 * time.Millisecond
	longestPause = time.Second
)

func longer(pause time.Duration) time.Duration { return min(2*pause, longestPause) }

func wait(ctx context.Context, pause time.Duration) error {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func decodeExecution(header nats.Header, payload []byte) (events.Envelope, *events.Execution, error) {
	envelope, data, err := events.ReadEvent(events.Header(header), payload)
	if err != nil {
		return events.Envelope{}, nil, err
	}
	record, err := events.Decode[events.Execution](data)
	return envelope, record, err
}
