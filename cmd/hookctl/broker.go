package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/afterwrite/afterwrite/events"
	"github.com/afterwrite/afterwrite/internal/natsconn"
	"github.com/afterwrite/afterwrite/streams"
)

// broker is how a command reaches the broker.
type broker struct {
	NATS    natsconn.Flags `embed:"" group:"Broker:"`
	Timeout time.Duration  `default:"30s" group:"Broker:" help:"Give up after this long."`
}

// ask connects, and closes the connection when do has asked what it wants.
func (b broker) ask(ctx context.Context, do func(context.Context, jetstream.JetStream) error) error {
	if b.Timeout <= 0 {
		return errors.New("--timeout must be positive")
	}
	late := fmt.Errorf("not done within --timeout, %s", b.Timeout)
	asking, cancel := context.WithTimeoutCause(ctx, b.Timeout, late)
	defer cancel()
	err := follow(asking, b.NATS, do)
	if err != nil && ctx.Err() == nil && asking.Err() != nil {
		return late
	}
	return err
}

// follow is ask without an end.
func follow(ctx context.Context, where natsconn.Flags, do func(context.Context, jetstream.JetStream) error) error {
	nc, err := natsconn.Connect(natsconn.Options{Flags: where, Name: "hookctl"})
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return fmt.Errorf("open JetStream: %w", err)
	}
	return do(ctx, js)
}

// ids are the ids of one kind, as a stream's subjects name them. One may be given by its first digits.
type ids struct {
	noun           string
	is             func(id string) bool
	stream, filter string
	parse          func(subject string) (id, name string, ok bool)
}

var (
	dispatchIDs = ids{"a dispatch", events.IsDispatchID, streams.Journal, streams.JournalFilter(), streams.ParseJournalSubject}
	intentIDs   = ids{"an intent", events.IsIntentID, streams.Intents, streams.IntentFilter(""), streams.ParseIntentSubject}
)

const (
	// leastDigits of an id are worth looking for.
	leastDigits = 4
	// shownDigits of an id tell it from any other that a person will see.
	shownDigits = 12
)

// short is an id that a person can compare and type: its first digits.
func short(id string) string {
	all := digits(id)
	return all[:min(len(all), shownDigits)]
}

func digits(id string) string { return id[strings.LastIndexByte(id, '_')+1:] }

// whole gives the id that is given as it is, or by its beginning.
func (k ids) whole(ctx context.Context, js jetstream.JetStream, given string) (string, error) {
	if k.is(given) {
		return given, nil
	}
	if len(given) < leastDigits {
		return "", fmt.Errorf("%q must be the id of %s, or at least its first %d digits", given, k.noun, leastDigits)
	}
	stream, err := js.Stream(ctx, k.stream)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return "", fmt.Errorf("look for %s: %w", k.noun, streams.ErrMissing)
	}
	if err != nil {
		return "", fmt.Errorf("look for %s: %w", k.noun, err)
	}
	info, err := stream.Info(ctx, jetstream.WithSubjectFilter(k.filter))
	if err != nil {
		return "", fmt.Errorf("look for %s: %w", k.noun, err)
	}
	found := map[string]bool{}
	for subject := range info.State.Subjects {
		if id, _, ok := k.parse(subject); ok && (strings.HasPrefix(digits(id), given) || strings.HasPrefix(id, given)) {
			found[id] = true
		}
	}
	switch whole := slices.Collect(maps.Keys(found)); len(whole) {
	case 0:
		return "", fmt.Errorf("there is no record of %s that begins with %q", k.noun, given)
	case 1:
		return whole[0], nil
	default:
		return "", fmt.Errorf("%q is how %d ids begin: give more digits", given, len(whole))
	}
}
