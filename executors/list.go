package executors

import (
	"context"
	"iter"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/afterwrite/afterwrite/events"
	"github.com/afterwrite/afterwrite/streams"
)

// Latest reads the last record of every execution, in the order in which they were written. It ends with what is
// stored when it begins.
func Latest(ctx context.Context, js jetstream.JetStream) iter.Seq2[streams.Stored[*events.Execution], error] {
	return streams.Read(ctx, js, streams.Executions, streams.ExecutionFilter(), true, events.Decode[events.Execution])
}

// History reads every record about one intent, of all its executors, in the order in which they were written.
func History(ctx context.Context, js jetstream.JetStream, intentID events.IntentID) iter.Seq2[streams.Stored[*events.Execution], error] {
	return streams.Read(ctx, js, streams.Executions, streams.ExecutionFilterFor(intentID), false, events.Decode[events.Execution])
}
