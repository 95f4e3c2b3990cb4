package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/afterwrite/afterwrite/streams"
)

// serving is who answers on each subject: the micro services that told of themselves.
type serving map[string][]answerer

// answerer is one process's endpoint on a subject.
type answerer struct {
	service micro.ServiceIdentity
	stats   *micro.EndpointStats
}

const (
	// servicesWait bounds the wait for services to tell of themselves: nobody knows how many there are.
	servicesWait = 2 * time.Second
	// servicesQuiet is how long it must be quiet once everybody who is wanted has told.
	servicesQuiet = 150 * time.Millisecond
)

// dispatcherSubject is what every dispatcher answers on.
func dispatcherSubject() string { return streams.ServiceSubject(streams.RedriveService) }

// askServices asks every micro service to tell of itself, and waits longer for those on the wanted subjects.
func askServices(ctx context.Context, nc *nats.Conn, wanted ...string) (serving, error) {
	everybody, err := micro.ControlSubject(micro.StatsVerb, "", "")
	if err != nil {
		return nil, fmt.Errorf("ask the services: %w", err)
	}
	replies, err := nc.SubscribeSync(nc.NewInbox())
	if err != nil {
		return nil, fmt.Errorf("ask the services: %w", err)
	}
	defer func() { _ = replies.Unsubscribe() }() // a reply that comes later is nobody's
	if err := nc.PublishRequest(everybody, replies.Subject, nil); err != nil {
		return nil, fmt.Errorf("ask the services: %w", err)
	}
	found := serving{}
	asking, cancel := context.WithTimeout(ctx, servicesWait)
	defer cancel()
	for {
		m, err := next(asking, replies, found.all(wanted))
		switch {
		case ctx.Err() != nil:
			return nil, fmt.Errorf("ask the services: %w", context.Cause(ctx))
		case errors.Is(err, context.DeadlineExceeded), errors.Is(err, nats.ErrNoResponders):
			return found, nil
		case err != nil:
			return nil, fmt.Errorf("ask the services: %w", err)
		}
		var told micro.Stats // whose durations are numbers, which the strict decoder takes for a mistake
		if json.Unmarshal(m.Data, &told) != nil {
			continue // it speaks another protocol, and is none of ours
		}
		for _, endpoint := range told.Endpoints {
			found[endpoint.Subject] = append(found[endpoint.Subject], answerer{told.ServiceIdentity, endpoint})
		}
	}
}

// next is the next reply, for which it waits only shortly if all is there.
func next(ctx context.Context, replies *nats.Subscription, all bool) (*nats.Msg, error) {
	if all {
		quiet, cancel := context.WithTimeout(ctx, servicesQuiet)
		defer cancel()
		ctx = quiet
	}
	return replies.NextMsgWithContext(ctx)
}

func (s serving) all(subjects []string) bool {
	for _, subject := range subjects {
		if len(s[subject]) == 0 {
			return false
		}
	}
	return true
}
