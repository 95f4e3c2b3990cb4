package main

import (
	"context"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	wmnats "github.com/ThreeDotsLabs/watermill-nats/v2/pkg/nats"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/nats-io/nats.go"

	"github.com/afterwrite/afterwrite/streams"
)

// watermillID is the header in which Watermill keeps a message's id.
const watermillID = wmnats.WatermillUUIDHdr

// watermillHandlers of the tuned router work at once.
const watermillHandlers = 128

// A durable consumer and a queue group, as the documentation asks of who has replicas.
const watermillGroup = "watermill"

// serveWatermill runs a router as its documentation has it: one subscriber, exactly-once settings (message ids, and
// acknowledgements that are themselves acknowledged), a handler that gives the router what it is to publish. What
// would be the provider is a function of the handler.
func serveWatermill(ctx context.Context, j job) (*served, error) {
	js := wmnats.JetStreamConfig{TrackMsgId: true, DurablePrefix: watermillGroup}
	return runWatermill(ctx, j, 1, js, func(r *message.Router, sub message.Subscriber, pub message.Publisher, _ *nats.Conn) {
		journal := streams.JournalSubject("watermill", "all")
		intents := streams.IntentSubject("watermill", "all")
		r.AddHandler("dispatch", streams.ReceiptSubject(kind), sub, intents, pub, func(m *message.Message) ([]*message.Message, error) {
			record := message.NewMessage(m.UUID, m.Payload)
			if err := pub.Publish(journal, record); err != nil {
				return nil, fmt.Errorf("publish the record: %w", err)
			}
			return message.Messages{message.NewMessage(m.UUID, m.Payload)}, nil
		})
	})
}

// serveWatermillTuned runs a router tuned to what we promise: many handlers, the provider over NATS, every record and
// intent on a subject of its own that it must be the first on, plain acknowledgements.
func serveWatermillTuned(ctx context.Context, j job) (*served, error) {
	js := wmnats.JetStreamConfig{
		AckAsync:       true,
		DurablePrefix:  watermillGroup,
		PublishOptions: []nats.PubOpt{nats.ExpectLastSequencePerSubject(0)},
	}
	return runWatermill(ctx, j, watermillHandlers, js, func(r *message.Router, sub message.Subscriber, pub message.Publisher, nc *nats.Conn) {
		r.AddConsumerHandler("dispatch", streams.ReceiptSubject(kind), sub, func(m *message.Message) error {
			reply, err := nc.Request(streams.CallSubject(hookID(0)), m.Payload, callTimeout)
			if err != nil {
				return fmt.Errorf("call the hook: %w", err)
			}
			id := "pwh_sha256_" + hash(m.UUID)
			if err := pub.Publish(streams.JournalSubject(id, hookID(0)), message.NewMessage(m.UUID, reply.Data)); err != nil {
				return fmt.Errorf("publish the record: %w", err)
			}
			return pub.Publish(intentSubject(id), message.NewMessage(m.UUID, reply.Data))
		})
	})
}

func runWatermill(
	ctx context.Context, j job, subscribers int, js wmnats.JetStreamConfig,
	handle func(*message.Router, message.Subscriber, message.Publisher, *nats.Conn),
) (*served, error) {
	log := watermillLog{}
	sub, err := wmnats.NewSubscriber(wmnats.SubscriberConfig{
		URL: j.URL, QueueGroupPrefix: watermillGroup, SubscribersCount: subscribers, CloseTimeout: time.Second, JetStream: js,
	}, log)
	if err != nil {
		return nil, fmt.Errorf("make the subscriber: %w", err)
	}
	pub, err := wmnats.NewPublisher(wmnats.PublisherConfig{URL: j.URL, JetStream: js}, log)
	if err != nil {
		return nil, fmt.Errorf("make the publisher: %w", err)
	}
	calls, err := dial(j.URL, "watermill")
	if err != nil {
		return nil, err
	}
	router, err := message.NewRouter(message.RouterConfig{CloseTimeout: 5 * time.Second}, log)
	if err != nil {
		return nil, fmt.Errorf("make the router: %w", err)
	}
	handle(router, sub, pub, calls.nc)
	ended := make(chan error, 1)
	go func() { ended <- router.Run(ctx) }()
	select {
	case <-router.Running():
	case err := <-ended:
		return nil, fmt.Errorf("the router ended: %w", err)
	}
	return &served{stop: func() error {
		defer calls.nc.Close()
		return router.Close()
	}}, nil
}

// watermillLog keeps to itself what is no error, and ends the process at the first that is one: the broker would
// deliver the message again, and the measurement would be of something else.
type watermillLog struct{ watermill.NopLogger }

func (watermillLog) Error(text string, err error, _ watermill.LogFields) {
	crash(fmt.Errorf("watermill: %s: %w", text, err))
}

func (l watermillLog) With(watermill.LogFields) watermill.LoggerAdapter { return l }
