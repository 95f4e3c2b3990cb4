package executors

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/afterwrite/afterwrite/events"
	"github.com/afterwrite/afterwrite/streams"
)

// Latest reads the last record of every execution, in the order in which they were written. It ends with what is
// stored when it begins.
func Latest(ctx context.Context, js jetstream.JetStream) iter.Seq2[*events.Execution, error] {
	return read(ctx, js, streams.ExecutionFilter(), jetstream.DeliverLastPerSubjectPolicy)
}

// History reads every record about one intent, of all its executors, in the order in which they were written.
func History(ctx context.Context, js jetstream.JetStream, intentID events.IntentID) iter.Seq2[*events.Execution, error] {
	return read(ctx, js, streams.ExecutionFilterFor(intentID), jetstream.DeliverAllPolicy)
}

func read(ctx context.Context, js jetstream.JetStream, filter string, policy jetstream.DeliverPolicy) iter.Seq2[*events.Execution, error] {
	return func(yield func(*events.Execution, error) bool) {
		err := func() error {
			consumer, err := js.OrderedConsumer(ctx, streams.Executions, jetstream.OrderedConsumerConfig{
				FilterSubjects: []string{filter}, DeliverPolicy: policy,
			})
			if errors.Is(err, jetstream.ErrStreamNotFound) {
				return fmt.Errorf("%w: %s", ErrStreamMissing, streams.Executions)
			}
			if err != nil {
				return fmt.Errorf("executors: read executions: %w", err)
			}
			info, err := consumer.Info(ctx)
			if err != nil {
				return fmt.Errorf("executors: read executions: %w", err)
			}
			if info.NumPending == 0 {
				return nil
			}
			messages, err := consumer.Messages()
			if err != nil {
				return fmt.Errorf("executors: read executions: %w", err)
			}
			defer messages.Stop()
			for {
				msg, err := messages.Next(jetstream.NextContext(ctx))
				if err != nil {
					return fmt.Errorf("executors: read executions: %w", err)
				}
				meta, err := msg.Metadata()
				if err != nil {
					return fmt.Errorf("executors: read executions: %w", err)
				}
				record, err := decodeExecution(msg.Headers(), msg.Data())
				if err != nil {
					err = fmt.Errorf("executors: the record at sequence %d: %w", meta.Sequence.Stream, err)
				}
				if !yield(record, err) || meta.NumPending == 0 {
					return nil
				}
			}
		}()
		if err != nil {
			yield(nil, err)
		}
	}
}
