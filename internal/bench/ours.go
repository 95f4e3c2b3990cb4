package main

import (
	"context"
	"fmt"

	"github.com/afterwrite/afterwrite/dispatcher"
	"github.com/afterwrite/afterwrite/internal/gc"
	"github.com/afterwrite/afterwrite/internal/natsconn"
)

// serveOurs runs the dispatcher with the options it is shipped with.
func serveOurs(ctx context.Context, j job) (*served, error) {
	gc.Tune()
	hooks, err := installed(j.Hooks)
	if err != nil {
		return nil, err
	}
	d, err := dispatcher.New(dispatcher.Options{
		NATS:     natsconn.Options{Flags: natsconn.Flags{URL: j.URL}},
		Streams:  settings(j.Hooks, j.Storage),
		Registry: hooks,
	})
	if err != nil {
		return nil, err
	}
	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- d.Run(running) }()
	select {
	case <-d.Ready():
	case err := <-ended:
		stop()
		return nil, fmt.Errorf("the dispatcher ended: %w", err)
	}
	return &served{stop: func() error {
		stop()
		return <-ended
	}}, nil
}
