package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/afterwrite/afterwrite/events"
	"github.com/afterwrite/afterwrite/internal/stack"
	"github.com/afterwrite/afterwrite/providers/periodicreport"
	"github.com/afterwrite/afterwrite/streams"
)

// feed publishes the lines one by one and finds out what became of each.
func feed(ctx context.Context, s *stack.Stack, lines []line) (*report, error) {
	r := &report{lines: lines}
	for _, l := range lines {
		row, err := feedLine(ctx, s, l.Receipt)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", l.Number, err)
		}
		row.Line = l.Number
		r.rows = append(r.rows, row)
	}
	return r, nil
}

func feedLine(ctx context.Context, s *stack.Stack, data []byte) (row, error) {
	kind, messageID := publishedAs(data)
	header := events.NewEnvelope(messageID, "hookctl/demo", events.ReceiptSchema, "").Header()
	header[streams.HeaderMessageID] = []string{messageID}
	ack, err := s.JS.PublishMsg(ctx, &nats.Msg{Subject: streams.ReceiptSubject(kind), Header: header, Data: data})
	if err != nil {
		return row{}, fmt.Errorf("publish: %w", err)
	}
	out := row{ReceiptID: idOf(data)}
	if ack.Duplicate {
		out.Outcome = duplicate
		return out, nil
	}
	if err := settled(ctx, s.JS, ack.Sequence); err != nil {
		return row{}, err
	}
	if err := out.find(ctx, s, data, ack.Sequence); err != nil {
		return row{}, err
	}
	return out, nil
}

// publishedAs gives the event kind and the message id of a receipt; a malformed one has them all the same.
func publishedAs(data []byte) (events.EventKind, string) {
	if receipt, err := events.Decode[events.Receipt](data); err == nil {
		return receipt.EventKind, receipt.MessageID()
	}
	var loose struct {
		EventKind events.EventKind `json:"event_kind"`
	}
	if json.Unmarshal(data, &loose) != nil || !events.IsName(string(loose.EventKind)) {
		loose.EventKind = "malformed"
	}
	return loose.EventKind, events.SHA256(data)
}

const poll = 2 * time.Millisecond

// until asks again and again, for the broker has no signal to wait for.
func until(ctx context.Context, done func() (bool, error)) error {
	ticker := time.NewTicker(poll)
	defer ticker.Stop()
	for {
		if ok, err := done(); ok || err != nil {
			return err
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// settled waits until the dispatcher has acknowledged the receipt at sequence.
func settled(ctx context.Context, js jetstream.JetStream, sequence uint64) error {
	consumer, err := js.Consumer(ctx, streams.Receipts, streams.DispatcherConsumer)
	if err != nil {
		return fmt.Errorf("look at the dispatcher's consumer: %w", err)
	}
	return until(ctx, func() (bool, error) {
		info, err := consumer.Info(ctx)
		if err != nil {
			return false, fmt.Errorf("look at the dispatcher's consumer: %w", err)
		}
		return info.AckFloor.Stream >= sequence, nil
	})
}

// find reads what became of the receipt from the streams.
func (r *row) find(ctx context.Context, s *stack.Stack, data []byte, sequence uint64) error {
	refusal, err := last(ctx, s.JS, streams.Journal, streams.RefusalSubject(events.SHA256(data)))
	if err != nil {
		return err
	}
	if refusal != nil {
		record, err := events.Decode[events.Refusal](refusal.Data)
		if err != nil {
			return err
		}
		r.Outcome, r.Reason = refused, events.Optional(record.Reason)
		return nil
	}
	receipt, err := events.Decode[events.Receipt](data)
	if err != nil {
		return fmt.Errorf("a malformed receipt was not refused: %w", err)
	}
	published, err := message(ctx, s.JS, streams.Receipts, sequence)
	if err != nil {
		return err
	}
	r.Outcome = disabled
	profile := s.Registry.Profiles[receipt.Profile]
	if !profile.Enabled {
		return nil
	}
	identity := receipt.Identity()
	for _, id := range slices.Sorted(slices.Values(profile.Hooks)) {
		hook := s.Registry.Hooks[id]
		if !slices.Contains(hook.Registration.EventKinds, receipt.EventKind) {
			continue
		}
		dispatch := events.DispatchIdentity(identity, id, hook.Registration.CapabilityID, hook.Digest, receipt.EventKind)
		if err := r.findDispatch(ctx, s.JS, dispatch, id, published.Time); err != nil {
			return err
		}
	}
	return nil
}

func (r *row) findDispatch(
	ctx context.Context, js jetstream.JetStream, id events.DispatchID, hook events.HookID, published time.Time,
) error {
	oldest, err := first(ctx, js, streams.Journal, streams.JournalSubject(id, hook))
	if err != nil {
		return err
	}
	var record *events.DispatchReceipt
	err = until(ctx, func() (bool, error) {
		stored, err := last(ctx, js, streams.Journal, streams.JournalSubject(id, hook))
		if err != nil || stored == nil {
			return false, err
		}
		record, err = events.Decode[events.DispatchReceipt](stored.Data)
		return err == nil && record.Status.Terminal(), err
	})
	if err != nil {
		return fmt.Errorf("wait for dispatch %s: %w", id, err)
	}
	became := admitted
	if oldest.Time.Before(published) {
		became = replayed
	}
	contradicted, err := conflictSince(ctx, js, id, published)
	if err != nil {
		return err
	}
	if contradicted {
		became = conflict
	}
	// A conflict of one dispatch is the receipt's, and one that is new makes the receipt admitted.
	switch {
	case became == conflict || r.Outcome == disabled:
		r.Outcome = became
	case became == admitted && r.Outcome == replayed:
		r.Outcome = admitted
	}
	return r.add(ctx, js, record)
}

func (r *row) add(ctx context.Context, js jetstream.JetStream, record *events.DispatchReceipt) error {
	d := dispatchRow{
		HookID: record.HookID, DispatchID: record.DispatchID, Status: record.Status,
		Code: record.Code, Reason: record.Reason, Attempt: record.Attempt,
	}
	for i := range record.Intents {
		intent := &record.Intents[i]
		d.Intents = append(d.Intents, intentRow{intent.IntentID, intent.IntentKind, intent.Payload})
		if intent.IntentKind != periodicreport.IntentKind {
			continue
		}
		execution, err := executed(ctx, js, intent.IntentID)
		if err != nil {
			return err
		}
		d.Executions = append(d.Executions, execution)
	}
	r.Dispatches = append(r.Dispatches, d)
	return nil
}

// executed waits for the stack's executor to end with the intent.
func executed(ctx context.Context, js jetstream.JetStream, id events.IntentID) (executionRow, error) {
	out := executionRow{Executor: stack.Executor, IntentID: id}
	err := until(ctx, func() (bool, error) {
		stored, err := last(ctx, js, streams.Executions, streams.ExecutionSubject(id, stack.Executor))
		if err != nil || stored == nil {
			return false, err
		}
		record, err := events.Decode[events.Execution](stored.Data)
		if err != nil || !record.Status.Terminal() {
			return false, err
		}
		out.Status = record.Status
		if record.Result == nil {
			return true, nil
		}
		var decision struct {
			Reason events.Optional `json:"reason"`
		}
		if err := json.Unmarshal(record.Result.Data, &decision); err != nil {
			return false, fmt.Errorf("read the decision: %w", err)
		}
		out.Decision = decision.Reason
		return true, nil
	})
	if err != nil {
		return out, fmt.Errorf("wait for the execution of %s: %w", id, err)
	}
	return out, nil
}

// conflictSince reports whether a conflict about the dispatch was recorded after the moment.
func conflictSince(ctx context.Context, js jetstream.JetStream, id events.DispatchID, since time.Time) (bool, error) {
	stored, err := last(ctx, js, streams.Journal, streams.ConflictFilterFor(id))
	return stored != nil && !stored.Time.Before(since), err
}

// last is the last message on the subject, nil if there is none.
func last(ctx context.Context, js jetstream.JetStream, stream, subject string) (*jetstream.RawStreamMsg, error) {
	return found(read(ctx, js, stream, func(s jetstream.Stream) (*jetstream.RawStreamMsg, error) {
		return s.GetLastMsgForSubject(ctx, subject)
	}))
}

// first is the first message on the subject, nil if there is none.
func first(ctx context.Context, js jetstream.JetStream, stream, subject string) (*jetstream.RawStreamMsg, error) {
	return found(read(ctx, js, stream, func(s jetstream.Stream) (*jetstream.RawStreamMsg, error) {
		return s.GetMsg(ctx, 1, jetstream.WithGetMsgSubject(subject))
	}))
}

func message(ctx context.Context, js jetstream.JetStream, stream string, sequence uint64) (*jetstream.RawStreamMsg, error) {
	return read(ctx, js, stream, func(s jetstream.Stream) (*jetstream.RawStreamMsg, error) {
		return s.GetMsg(ctx, sequence)
	})
}

func read(
	ctx context.Context, js jetstream.JetStream, stream string, get func(jetstream.Stream) (*jetstream.RawStreamMsg, error),
) (*jetstream.RawStreamMsg, error) {
	s, err := js.Stream(ctx, stream)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", stream, err)
	}
	m, err := get(s)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", stream, err)
	}
	return m, nil
}

func found(m *jetstream.RawStreamMsg, err error) (*jetstream.RawStreamMsg, error) {
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil, nil
	}
	return m, err
}
