package main

import (
	"context"
	"fmt"
	"sync"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/afterwrite/afterwrite/streams"
)

const (
	// floorReceipts are under way at once.
	floorReceipts = 512
	floorPrefetch = 2000
)

// serveFloor does the dispatcher's broker operations the usual way: a goroutine for each receipt and each of its
// hooks, a request awaited, and the futures of two publishes.
func serveFloor(ctx context.Context, j job) (*served, error) {
	c, err := dial(j.URL, "floor")
	if err != nil {
		return nil, err
	}
	consumer, err := c.js.Consumer(ctx, streams.Receipts, streams.DispatcherConsumer)
	if err != nil {
		return nil, fmt.Errorf("find the consumer: %w", err)
	}
	f := &floor{client: c, hooks: j.Hooks}
	places := make(chan struct{}, floorReceipts)
	consuming, err := consumer.Consume(func(m jetstream.Msg) {
		places <- struct{}{}
		go func() {
			defer func() { <-places }()
			if err := f.dispatch(m); err != nil {
				crash(fmt.Errorf("floor: %w", err))
			}
		}()
	}, jetstream.PullMaxMessages(floorPrefetch))
	if err != nil {
		return nil, fmt.Errorf("consume: %w", err)
	}
	return &served{stop: func() error {
		consuming.Drain()
		<-consuming.Closed()
		for range floorReceipts {
			places <- struct{}{}
		}
		c.nc.Close()
		return nil
	}}, nil
}

type floor struct {
	client
	hooks int
}

// dispatch does everything for one receipt.
func (f *floor) dispatch(m jetstream.Msg) error {
	meta, err := m.Metadata()
	if err != nil {
		return fmt.Errorf("read a delivery: %w", err)
	}
	errs := make([]error, f.hooks)
	var hooks sync.WaitGroup
	for i := range f.hooks {
		hooks.Go(func() { errs[i] = f.hook(meta.Sequence.Stream, i, m.Data()) })
	}
	hooks.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return m.Ack()
}

func (f *floor) hook(sequence uint64, hook int, data []byte) error {
	reply, err := f.nc.Request(streams.CallSubject(hookID(hook)), data, callTimeout)
	if err != nil {
		return fmt.Errorf("call a hook: %w", err)
	}
	id := dispatchID(sequence, hook)
	if err := f.create(streams.JournalSubject(id, hookID(hook)), reply.Data); err != nil {
		return err
	}
	return f.create(intentSubject(id), reply.Data)
}

// create publishes the first message of a subject and awaits its acknowledgement.
func (f *floor) create(subject string, data []byte) error {
	m := &nats.Msg{Subject: subject, Data: data}
	future, err := f.js.PublishMsgAsync(m, jetstream.WithExpectLastSequencePerSubject(0))
	if err != nil {
		return fmt.Errorf("publish: %w", err)
	}
	select {
	case <-future.Ok():
		return nil
	case err := <-future.Err():
		return fmt.Errorf("publish: %w", err)
	}
}
