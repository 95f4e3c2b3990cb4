package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/afterwrite/afterwrite/streams"
)

const (
	// benchStreams and benchSubjects begin the names of everything that a bench creates, and of nothing else.
	benchStreams  = "AFTERWRITE_BENCH_"
	benchSubjects = "afterwrite.bench."

	// benchAge is how long a message of an abandoned bench stays, and after which its streams are taken for abandoned.
	benchAge   = time.Hour
	benchBytes = 256 << 20
	// benchMost receipts fit into benchBytes, and their records too.
	benchMost = 60_000
	// benchOutstanding publishes may be unanswered.
	benchOutstanding = 1 << 16
)

// benchSet is the streams of one measurement: those of the topology that a dispatch touches, under names of its own.
type benchSet struct {
	js jetstream.JetStream
	id string
	// receipts, journal and intents are their names.
	receipts, journal, intents string
	created                    []string
}

func newBenchSet(js jetstream.JetStream) *benchSet {
	var random [6]byte
	_, _ = rand.Read(random[:]) // never fails: it ends the process instead
	id := hex.EncodeToString(random[:])
	name := func(part string) string { return benchStreams + strings.ToUpper(id) + "_" + part }
	return &benchSet{js: js, id: id, receipts: name("RECEIPTS"), journal: name("JOURNAL"), intents: name("INTENTS")}
}

// subject is one of the set's own.
func (s *benchSet) subject(parts ...string) string {
	return benchSubjects + s.id + "." + strings.Join(parts, ".")
}

const (
	benchReceipts = "receipts"
	benchJournal  = "journal"
	benchIntents  = "intents"
	benchCall     = "call" // no stream's
)

func (s *benchSet) create(ctx context.Context, settings streams.Settings) error {
	topology := streams.Default(settings)
	for _, own := range []struct{ like, name, subjects string }{
		{streams.Receipts, s.receipts, benchReceipts},
		{streams.Journal, s.journal, benchJournal},
		{streams.Intents, s.intents, benchIntents},
	} {
		stream, _ := topology.Stream(own.like)
		config := stream.Config
		config.Name = own.name
		config.Description = "Temporary, of hookctl bench. If none is running, delete it."
		config.Subjects = []string{s.subject(own.subjects, ">")}
		config.MaxAge = benchAge
		config.MaxBytes = benchBytes
		if err := ctx.Err(); err != nil {
			return err
		}
		// The broker carries out a request that was sent, whether or not its answer is waited for: wait, to delete it.
		s.created = append(s.created, own.name)
		if _, err := s.js.CreateStream(context.WithoutCancel(ctx), config); err != nil {
			return fmt.Errorf("create the temporary stream %s: %w", own.name, err)
		}
		for _, consumer := range stream.Consumers {
			if _, err := s.js.CreateConsumer(ctx, own.name, consumer); err != nil {
				return fmt.Errorf("create the consumer of %s: %w", own.name, err)
			}
		}
	}
	return nil
}

// delete deletes what was created. The error names what is left.
func (s *benchSet) delete(ctx context.Context) error {
	var errs []error
	for _, name := range s.created {
		if err := s.js.DeleteStream(ctx, name); err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
			errs = append(errs, fmt.Errorf("delete the temporary stream %s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

// deleteLeftovers deletes the streams of benches that were killed. One that is younger than a bench can be is left.
func deleteLeftovers(ctx context.Context, js jetstream.JetStream, now time.Time) error {
	list := js.ListStreams(ctx)
	for info := range list.Info() {
		if strings.HasPrefix(info.Config.Name, benchStreams) && now.Sub(info.Created) > benchAge {
			if err := js.DeleteStream(ctx, info.Config.Name); err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
				return fmt.Errorf("delete %s, which an earlier bench left: %w", info.Config.Name, err)
			}
		}
	}
	if err := list.Err(); err != nil {
		return fmt.Errorf("look for what earlier benches left: %w", err)
	}
	return nil
}

// publish stores receipts for as long as given, and says how many.
func (s *benchSet) publish(ctx context.Context, longest time.Duration, receipt func(i int) *nats.Msg) (int, error) {
	const unanswered = 2048
	futures := make([]jetstream.PubAckFuture, 0, benchMost)
	settle := func(f jetstream.PubAckFuture) error {
		select {
		case <-f.Ok():
			return nil
		case err := <-f.Err():
			return fmt.Errorf("publish a receipt: %w", err)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	settled := 0
	for began := time.Now(); time.Since(began) < longest && len(futures) < benchMost; {
		future, err := s.js.PublishMsgAsync(receipt(len(futures)))
		if err != nil {
			return 0, fmt.Errorf("publish a receipt: %w", err)
		}
		if futures = append(futures, future); len(futures)-settled > unanswered {
			if err := settle(futures[settled]); err != nil {
				return 0, err
			}
			settled++
		}
	}
	for _, future := range futures[settled:] {
		if err := settle(future); err != nil {
			return 0, err
		}
	}
	return len(futures), nil
}
