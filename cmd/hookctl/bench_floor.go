package main

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/afterwrite/afterwrite/events"
	"github.com/afterwrite/afterwrite/streams"
)

const (
	// floorReceipts are under way at once.
	floorReceipts = 512
	floorPrefetch = 2000
	floorBytes    = 900
)

// benchFloor does a dispatch's broker operations the usual way: a goroutine for each receipt, a request awaited, and
// the futures of two publishes. It looks into nothing.
var benchFloor = benchVariant{name: "the floor", receipt: floorReceipt, start: startFloor}

func floorReceipt(set *benchSet, i int) *nats.Msg {
	return &nats.Msg{
		Subject: set.subject(benchReceipts, "any"),
		Header:  nats.Header{streams.HeaderMessageID: {floorID(uint64(i))}},
		Data:    bytes.Repeat([]byte("."), floorBytes),
	}
}

func floorID(n uint64) string { return events.SHA256(strconv.AppendUint(nil, n, 10)) }

func startFloor(ctx context.Context, set *benchSet, done *atomic.Int64, fail context.CancelCauseFunc) (func(), error) {
	nc := set.js.Conn()
	echo, err := nc.QueueSubscribe(set.subject(benchCall), "echo", func(m *nats.Msg) {
		if err := m.Respond(m.Data); err != nil {
			fail(fmt.Errorf("answer a call: %w", err))
		}
	})
	if err != nil {
		return nil, fmt.Errorf("serve calls: %w", err)
	}
	stop := func() { _ = echo.Unsubscribe() } // the connection may be closed already
	consumer, err := set.js.Consumer(ctx, set.receipts, streams.DispatcherConsumer)
	if err != nil {
		stop()
		return nil, fmt.Errorf("find the consumer: %w", err)
	}
	places := make(chan struct{}, floorReceipts)
	consuming, err := consumer.Consume(func(m jetstream.Msg) {
		select {
		case places <- struct{}{}:
		case <-ctx.Done():
			return
		}
		go func() {
			defer func() { <-places }()
			if err := dispatchFloor(ctx, set, m); err != nil {
				fail(err)
				return
			}
			done.Add(1)
		}()
	}, jetstream.PullMaxMessages(floorPrefetch))
	if err != nil {
		stop()
		return nil, fmt.Errorf("consume: %w", err)
	}
	return func() {
		fail(nil) // who waits for a place, a reply or a future waits no longer
		consuming.Stop()
		for range floorReceipts {
			places <- struct{}{} // free once everybody is gone
		}
		stop()
	}, nil
}

const floorWait = 30 * time.Second

func dispatchFloor(ctx context.Context, set *benchSet, m jetstream.Msg) error {
	meta, err := m.Metadata()
	if err != nil {
		return fmt.Errorf("read a delivery: %w", err)
	}
	calling, cancel := context.WithTimeout(ctx, floorWait)
	defer cancel()
	reply, err := set.js.Conn().RequestWithContext(calling, set.subject(benchCall), m.Data())
	if err != nil {
		return fmt.Errorf("call: %w", err)
	}
	id := floorID(meta.Sequence.Stream)
	for _, part := range []string{benchJournal, benchIntents} {
		created := &nats.Msg{Subject: set.subject(part, id), Data: reply.Data}
		future, err := set.js.PublishMsgAsync(created, jetstream.WithExpectLastSequencePerSubject(0))
		if err != nil {
			return fmt.Errorf("publish: %w", err)
		}
		select {
		case <-future.Ok():
		case err := <-future.Err():
			return fmt.Errorf("publish: %w", err)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return m.Ack()
}
