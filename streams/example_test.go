package streams_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/afterwrite/afterwrite/events"
	"github.com/afterwrite/afterwrite/internal/natsembed"
	"github.com/afterwrite/afterwrite/streams"
)

// exampleBroker stands in for a NATS server with JetStream.
func exampleBroker() (js jetstream.JetStream, stop func()) {
	dir, err := os.MkdirTemp("", "afterwrite-example-")
	if err != nil {
		log.Panic(err)
	}
	server, err := natsembed.Start(natsembed.Options{StoreDir: dir, MaxStoreBytes: 64 << 30})
	if err != nil {
		log.Panic(err)
	}
	nc, err := nats.Connect(server.ClientURL())
	if err != nil {
		log.Panic(err)
	}
	js, err = jetstream.New(nc)
	if err != nil {
		log.Panic(err)
	}
	return js, func() {
		nc.Close()
		server.Shutdown()
		if err := os.RemoveAll(dir); err != nil {
			log.Panic(err)
		}
	}
}

// An orchestrator publishes the receipt of a writeback after it has committed. Repeating it, after an error or a
// restart, is safe.
func ExamplePublisher_Publish() {
	js, stop := exampleBroker()
	defer stop()
	ctx := context.Background()
	if _, err := streams.Apply(ctx, js, streams.Default(streams.Settings{})); err != nil {
		log.Panic(err)
	}

	const effect = "goal_1:agent_1:todo_1:turn_1"
	receipt := &events.Receipt{
		SchemaVersion: events.ReceiptSchema,
		Profile:       "default",
		EventKind:     events.TodoCompleted,
		Plan: events.Settlement{
			GoalID: "goal_1", AgentID: "agent_1", TodoID: "todo_1", TurnInstanceID: "turn_1", EffectID: effect,
		},
		Receipt: events.WritebackReceipt{
			ReceiptID: "receipt_1", EffectID: effect, StepKind: events.DurableWriteback, Status: events.Committed,
			StateRevision: "rev_1", CommittedAt: "2026-10-01T08:00:00Z", Checkpointed: true,
		},
		Projection: events.Projection{
			SchemaVersion: events.ProjectionSchema, Transition: events.SegmentCompleted, FactRefs: []string{"fact_1"},
		},
	}
	publisher := streams.NewPublisher(js, streams.PublisherOptions{Source: "my-orchestrator"})
	for range 2 {
		published, err := publisher.Publish(ctx, receipt)
		if err != nil {
			log.Panic(err)
		}
		fmt.Printf("stored at %d, was there before: %v\n", published.Sequence, published.Duplicate)
	}

	receipt.Receipt.Checkpointed = false
	_, err := publisher.Publish(ctx, receipt)
	var refused *streams.ReceiptError
	fmt.Println(errors.As(err, &refused), err)
	// Output:
	// stored at 1, was there before: false
	// stored at 1, was there before: true
	// true the receipt would be refused as not_checkpointed: receipt.checkpointed must be true
}

// Apply changes what can be changed; Check says what differs.
func ExampleApply() {
	js, stop := exampleBroker()
	defer stop()
	ctx := context.Background()
	settings := streams.Settings{Hooks: []events.HookID{"periodic_report.runtime_trigger"}}
	changes, err := streams.Apply(ctx, js, streams.Default(settings))
	if err != nil {
		log.Panic(err)
	}
	fmt.Println(len(changes), "changes, the first:", changes[0])

	settings.MaxAckPending = 500
	differences, err := streams.Check(ctx, js, streams.Default(settings).Only(streams.Receipts))
	if err != nil {
		log.Panic(err)
	}
	for _, d := range differences {
		fmt.Println(d)
	}
	// Output:
	// 8 changes, the first: create stream PWH_RECEIPTS
	// stream PWH_RECEIPTS consumer dispatcher: max_ack_pending must be 500, it is 20000; apply the streams
}
