package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/afterwrite/afterwrite/events"
	"github.com/afterwrite/afterwrite/streams"
)

// recent is what the newest part of the journal says.
type recent struct {
	// Since is where it begins.
	Since events.Timestamp `json:"since"`
	// Read counts the messages that were read.
	Read int `json:"read"`
	// LeftOut counts the messages since then that were not, for there were too many. They are older.
	LeftOut uint64 `json:"left_out"`
	// Unreadable counts messages that are no event of a document of the journal.
	Unreadable int `json:"unreadable"`
	// Failures are the records that say failed, by hook, code and reason.
	Failures []failures `json:"failures"`
	// Conflicts and Refusals are the newest ones, the newest at the end.
	Conflicts []*events.Conflict `json:"conflicts"`
	Refusals  []*events.Refusal  `json:"refusals"`

	byHook    map[events.HookID]map[events.Status]int
	suspended map[events.HookID]int
}

type failures struct {
	HookID events.HookID `json:"hook_id"`
	Code   events.Code   `json:"code"`
	Reason events.Reason `json:"reason"`
	Failed int           `json:"failed"`
}

// shownNewest is how many of the newest conflicts and refusals fit on one screen.
const shownNewest = 5

// readRecent reads the journal's messages since a time, at most that many of the newest.
func readRecent(ctx context.Context, js jetstream.JetStream, since time.Time, most int) (recent, error) {
	r := recent{
		Since:     events.NewTimestamp(since),
		byHook:    map[events.HookID]map[events.Status]int{},
		suspended: map[events.HookID]int{},
	}
	stream, err := js.Stream(ctx, streams.Journal)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return r, nil
	}
	if err != nil {
		return r, fmt.Errorf("read the journal: %w", err)
	}
	if since.After(stream.CachedInfo().State.LastTime) {
		return r, nil
	}
	// The broker counts what is there since the time; a second consumer then leaves out what is too much.
	pending, first, err := r.begin(ctx, js, jetstream.OrderedConsumerConfig{
		DeliverPolicy: jetstream.DeliverByStartTimePolicy, OptStartTime: &since,
	})
	if err != nil {
		return r, err
	}
	defer r.end(ctx, js, first)
	consumer := first
	if surplus := int64(pending) - int64(most); surplus > 0 { //nolint:gosec // no stream has 2^63 messages
		r.LeftOut = uint64(surplus)
		var newest jetstream.Consumer
		// Nothing is deleted from the middle of a journal, so that sequences count messages.
		pending, newest, err = r.begin(ctx, js, jetstream.OrderedConsumerConfig{
			DeliverPolicy: jetstream.DeliverByStartSequencePolicy,
			OptStartSeq:   stream.CachedInfo().State.LastSeq - uint64(most) + 1, //nolint:gosec // most is positive
		})
		if err != nil {
			return r, err
		}
		defer r.end(ctx, js, newest)
		consumer = newest
	}
	if pending == 0 {
		return r, nil
	}
	messages, err := consumer.Messages()
	if err != nil {
		return r, fmt.Errorf("read the journal: %w", err)
	}
	defer messages.Stop()
	for ; pending > 0; pending-- {
		m, err := messages.Next(jetstream.NextContext(ctx))
		if err != nil {
			return r, fmt.Errorf("read the journal: %w", err)
		}
		r.Read++
		if err := r.take(m); err != nil {
			r.Unreadable++
		}
	}
	slices.SortFunc(r.Failures, func(a, b failures) int {
		return cmp.Or(cmp.Compare(b.Failed, a.Failed), cmp.Compare(a.HookID, b.HookID),
			cmp.Compare(a.Code, b.Code), cmp.Compare(a.Reason, b.Reason))
	})
	return r, nil
}

// begin makes a reader and tells how much there is for it.
func (*recent) begin(
	ctx context.Context, js jetstream.JetStream, cfg jetstream.OrderedConsumerConfig,
) (pending uint64, consumer jetstream.Consumer, err error) {
	consumer, err = js.OrderedConsumer(ctx, streams.Journal, cfg)
	if err != nil {
		return 0, nil, fmt.Errorf("read the journal: %w", err)
	}
	return consumer.CachedInfo().NumPending, consumer, nil
}

// end deletes a reader. Should that fail, the broker does so by itself, later.
func (*recent) end(ctx context.Context, js jetstream.JetStream, consumer jetstream.Consumer) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_ = js.DeleteConsumer(ctx, streams.Journal, consumer.CachedInfo().Name)
}

// take counts one message of the journal.
func (r *recent) take(m jetstream.Msg) error {
	_, data, err := events.ReadEvent(m.Headers(), m.Data())
	if err != nil {
		return err
	}
	if _, hook, ok := streams.ParseJournalSubject(m.Subject()); ok {
		record, err := events.Decode[events.DispatchReceipt](data)
		if err == nil {
			r.record(hook, record)
		}
		return err
	}
	if _, _, _, ok := streams.ParseConflictSubject(m.Subject()); ok {
		conflict, err := events.Decode[events.Conflict](data)
		r.Conflicts = newest(r.Conflicts, conflict)
		return err
	}
	refusal, err := events.Decode[events.Refusal](data)
	r.Refusals = newest(r.Refusals, refusal)
	return err
}

func (r *recent) record(hook events.HookID, record *events.DispatchReceipt) {
	if r.byHook[hook] == nil {
		r.byHook[hook] = map[events.Status]int{}
	}
	r.byHook[hook][record.Status]++
	switch {
	case record.Status == events.StatusRetrying && record.Reason == events.ReasonHookSuspended:
		r.suspended[hook]++
	case record.Status == events.StatusFailed:
		same := func(f failures) bool {
			return f.HookID == hook && f.Code == record.Code && f.Reason == record.Reason
		}
		i := slices.IndexFunc(r.Failures, same)
		if i < 0 {
			i = len(r.Failures)
			r.Failures = append(r.Failures, failures{HookID: hook, Code: record.Code, Reason: record.Reason})
		}
		r.Failures[i].Failed++
	}
}

// newest adds to a list that keeps the newest; nil, what could not be read, is not added.
func newest[D any](list []*D, d *D) []*D {
	if d == nil {
		return list
	}
	list = append(list, d)
	return list[max(0, len(list)-shownNewest):]
}

// sentence says what was read.
func (r *recent) sentence() string {
	text := counted(r.Read, "message", "messages") + " of the journal read, since " + second(r.Since)
	if r.LeftOut > 0 {
		text += fmt.Sprintf("; %d older ones left out, --most reads more", r.LeftOut)
	}
	if r.Unreadable > 0 {
		text += fmt.Sprintf("; %d could not be read", r.Unreadable)
	}
	return text + "."
}
