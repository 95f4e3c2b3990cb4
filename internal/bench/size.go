package main

import (
	"bytes"
	"context"
	"fmt"

	"github.com/nats-io/nats.go"

	"github.com/afterwrite/afterwrite/streams"
)

// journaled are sizes of the documents that our dispatcher writes for [document], rounded.
const (
	recordBytes = 1800
	intentBytes = 1000
)

// fill journals dispatches that nobody made: a record and an intent each, of real size and under real subjects. It
// gives what each costs the broker's heap, in bytes.
func (d *bed) fill(ctx context.Context, dispatches int) (float64, error) {
	before, err := d.broker.ask(askLive)
	if err != nil {
		return 0, err
	}
	body := bytes.Repeat([]byte("f"), recordBytes)
	err = d.client.flood(ctx, 2*dispatches, func(i int) *nats.Msg {
		id := dispatchID(uint64(i/2), -1) // of no hook, so that no measured dispatch is among them
		if i%2 == 0 {
			return &nats.Msg{Subject: streams.JournalSubject(id, hookID(0)), Data: body}
		}
		return &nats.Msg{Subject: intentSubject(id), Data: body[:intentBytes]}
	})
	if err != nil {
		return 0, fmt.Errorf("fill the journal: %w", err)
	}
	after, err := d.broker.ask(askLive)
	if err != nil {
		return 0, err
	}
	return (float64(after.Usage.Heap) - float64(before.Usage.Heap)) / float64(dispatches), nil
}
