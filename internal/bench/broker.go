package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/afterwrite/afterwrite/internal/natsembed"
	"github.com/afterwrite/afterwrite/streams"
)

// unlimited is more than is ever stored. It is bookkeeping of the broker and not space.
const unlimited = 1 << 40

func serveBroker(_ context.Context, j job) (*served, error) {
	server, err := natsembed.Start(natsembed.Options{
		StoreDir:       j.Store,
		SyncAlways:     j.SyncAlways,
		MaxStoreBytes:  8 * unlimited,
		MaxMemoryBytes: 8 * unlimited,
	})
	if err != nil {
		return nil, err
	}
	return &served{url: server.ClientURL(), stop: func() error { server.Shutdown(); return nil }}, nil
}

// settings are what every variant's streams are made with.
func settings(hooks int, storage streams.Storage) streams.Settings {
	return streams.Settings{
		Storage:            storage,
		ReceiptsMaxBytes:   unlimited,
		JournalMaxBytes:    unlimited,
		IntentsMaxBytes:    unlimited,
		ExecutionsMaxBytes: unlimited,
		Hooks:              hookIDs(hooks),
	}.WithDefaults()
}

// outstanding publishes are more than the floor ever has, so that the client never holds one back.
const outstanding = 1 << 16

// client is a connection and what it speaks.
type client struct {
	nc *nats.Conn
	js jetstream.JetStream
}

func dial(url, name string) (client, error) {
	nc, err := nats.Connect(url, nats.Name("bench "+name))
	if err != nil {
		return client{}, fmt.Errorf("connect to the broker: %w", err)
	}
	js, err := jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(outstanding), jetstream.WithDefaultTimeout(stuckAfter))
	if err != nil {
		nc.Close()
		return client{}, fmt.Errorf("open JetStream: %w", err)
	}
	return client{nc, js}, nil
}

// stored is how many messages a stream holds.
func (c client) stored(ctx context.Context, stream string) (int64, error) {
	s, err := c.js.Stream(ctx, stream)
	if err != nil {
		return 0, fmt.Errorf("look at %s: %w", stream, err)
	}
	return int64(s.CachedInfo().State.Msgs), nil //nolint:gosec // no stream of ours holds 2^63 messages
}

// consumer is the state of the row's consumer of the receipts. Watermill makes one of its own, to which the broker pushes.
func (c client) consumer(ctx context.Context, r row) (*jetstream.ConsumerInfo, error) {
	if r.Role == roleWatermill || r.Role == roleWatermillTuned {
		pushed, err := c.js.PushConsumer(ctx, streams.Receipts, watermillGroup)
		if err != nil {
			return nil, err
		}
		return pushed.CachedInfo(), nil
	}
	pulled, err := c.js.Consumer(ctx, streams.Receipts, streams.DispatcherConsumer)
	if err != nil {
		return nil, err
	}
	return pulled.CachedInfo(), nil
}

// window is how many publishes may be unanswered at once.
const window = 4096

var errUnanswered = errors.New("the broker did not answer")

// flood publishes n messages as fast as the broker takes them, and returns when each is stored.
func (c client) flood(ctx context.Context, n int, message func(i int) *nats.Msg) error {
	inbox := c.nc.NewInbox()
	free := make(chan struct{}, window)
	for range window {
		free <- struct{}{}
	}
	var refused error
	var once sync.Once
	failed := make(chan struct{})
	sub, err := c.nc.Subscribe(inbox, func(m *nats.Msg) {
		if bytes.Contains(m.Data, []byte(`"error"`)) || len(m.Data) == 0 {
			once.Do(func() { refused = errors.New(strings.ToValidUTF8(string(m.Data), "?")); close(failed) })
		}
		free <- struct{}{}
	})
	if err != nil {
		return fmt.Errorf("publish: %w", err)
	}
	defer func() { _ = sub.Unsubscribe() }() // the connection may be closed already
	take := func() error {
		select {
		case <-free:
			return nil
		case <-failed:
			return fmt.Errorf("publish: the broker refuses: %w", refused)
		case <-ctx.Done():
			return errors.Join(errUnanswered, ctx.Err())
		}
	}
	for i := range n {
		if err := take(); err != nil {
			return err
		}
		m := message(i)
		m.Reply = inbox
		if err := c.nc.PublishMsg(m); err != nil {
			return fmt.Errorf("publish: %w", err)
		}
	}
	for range window {
		if err := take(); err != nil {
			return err
		}
	}
	return nil
}
