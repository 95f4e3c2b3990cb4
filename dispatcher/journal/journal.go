// Package journal reads what dispatchers decided. It writes nothing: only a lane appends to the journal, under the
// expected sequence of the record's subject.
package journal

import (
	"context"
	"iter"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/afterwrite/afterwrite/events"
	"github.com/afterwrite/afterwrite/streams"
)

// Record is a dispatch receipt as the journal holds it.
type Record = streams.Stored[*events.DispatchReceipt]

// States reads the last record of every dispatch.
func States(ctx context.Context, js jetstream.JetStream) iter.Seq2[Record, error] {
	return records(ctx, js, streams.JournalFilter(), true)
}

// History reads every record of the dispatches with this id.
func History(ctx context.Context, js jetstream.JetStream, dispatch events.DispatchID) iter.Seq2[Record, error] {
	return records(ctx, js, streams.JournalFilterFor(dispatch), false)
}

func records(ctx context.Context, js jetstream.JetStream, filter string, latest bool) iter.Seq2[Record, error] {
	return streams.Read(ctx, js, streams.Journal, filter, latest, events.Decode[events.DispatchReceipt])
}

// Conflicts reads the conflicts of one dispatch, or of all where dispatch is empty.
func Conflicts(ctx context.Context, js jetstream.JetStream, dispatch events.DispatchID) iter.Seq2[streams.Stored[*events.Conflict], error] {
	filter := streams.ConflictFilter()
	if dispatch != "" {
		filter = streams.ConflictFilterFor(dispatch)
	}
	return streams.Read(ctx, js, streams.Journal, filter, false, events.Decode[events.Conflict])
}

// Refusals reads what was not taken.
func Refusals(ctx context.Context, js jetstream.JetStream) iter.Seq2[streams.Stored[*events.Refusal], error] {
	return streams.Read(ctx, js, streams.Journal, streams.RefusalFilter(), false, events.Decode[events.Refusal])
}
