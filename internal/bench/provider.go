package main

import (
	"context"
	"fmt"

	"github.com/nats-io/nats.go"

	"github.com/afterwrite/afterwrite/internal/gc"
	"github.com/afterwrite/afterwrite/providers"
	"github.com/afterwrite/afterwrite/providers/periodicreport"
	"github.com/afterwrite/afterwrite/streams"
)

// serveProvider serves the hooks by the SDK, as shipped.
func serveProvider(ctx context.Context, j job) (*served, error) {
	gc.Tune()
	c, err := dial(j.URL, "provider")
	if err != nil {
		return nil, err
	}
	var opts []providers.Option
	for i := range j.Hooks {
		r, err := registration(i)
		if err != nil {
			return nil, err
		}
		opts = append(opts, providers.WithHook(r, providers.HookFunc(periodicreport.Hook)))
	}
	p, err := providers.Start(c.nc, periodicreport.CapabilityID, opts...)
	if err != nil {
		return nil, err
	}
	return &served{stop: func() error {
		defer c.nc.Close()
		return p.Stop(ctx)
	}}, nil
}

// serveEcho answers every call with what it was asked, looking into nothing.
func serveEcho(_ context.Context, j job) (*served, error) {
	c, err := dial(j.URL, "echo")
	if err != nil {
		return nil, err
	}
	for i := range j.Hooks {
		subject := streams.CallSubject(hookID(i))
		_, err := c.nc.QueueSubscribe(subject, subject, func(m *nats.Msg) {
			if err := m.Respond(m.Data); err != nil {
				crash(fmt.Errorf("answer a call: %w", err))
			}
		})
		if err != nil {
			return nil, fmt.Errorf("serve %s: %w", subject, err)
		}
	}
	if err := c.nc.Flush(); err != nil {
		return nil, fmt.Errorf("serve the hooks: %w", err)
	}
	return &served{stop: func() error { c.nc.Close(); return nil }}, nil
}
