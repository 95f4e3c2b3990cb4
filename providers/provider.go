package providers

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"
	"go.uber.org/zap"

	"github.com/afterwrite/afterwrite/events"
	"github.com/afterwrite/afterwrite/streams"
)

// ErrConnectionClosed is returned by [Serve] when the connection was closed under it, for good: by its owner, by the
// server refusing its credentials, or because reconnecting was given up. A connection that is only lost comes back by
// itself and is no error.
var ErrConnectionClosed = errors.New("providers: the connection was closed")

// ErrDrainTimeout is returned when calls were still running after the drain timeout. Their callers time out.
var ErrDrainTimeout = errors.New("providers: calls were still running after the drain timeout")

// Serve serves a capability's hooks and services until ctx ends, then drains: it takes no new calls, answers those it
// has, and returns nil. nc remains the caller's.
func Serve(ctx context.Context, nc *nats.Conn, capability events.CapabilityID, opts ...Option) error {
	closed := nc.StatusChanged(nats.CLOSED)
	defer nc.RemoveStatusListener(closed)

	p, err := Start(nc, capability, opts...)
	if err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return p.Stop(context.WithoutCancel(ctx))
	case <-closed:
		return errors.Join(ErrConnectionClosed, p.Stop(context.WithoutCancel(ctx)))
	}
}

// broker takes the answers: a [*nats.Conn].
type broker interface {
	PublishMsg(msg *nats.Msg) error
	MaxPayload() int64
}

// Provider is a capability being served.
type Provider struct {
	opts   *options
	nc     *nats.Conn
	broker broker
	// source names the component in the envelopes of its answers.
	source    string
	endpoints []*endpoint
	micro     micro.Service
	running   context.Context
	abort     context.CancelCauseFunc
	drain     sync.Once
	workers   sync.WaitGroup
}

// newProvider is one that is not on the broker yet.
func newProvider(b broker, capability events.CapabilityID, opts []Option) (*Provider, error) {
	o, err := newOptions(capability, opts)
	if err != nil {
		return nil, err
	}
	m, err := newMetrics(o.registry)
	if err != nil {
		return nil, fmt.Errorf("providers: register the metrics: %w", err)
	}
	p := &Provider{opts: o, broker: b, source: "afterwrite/provider/" + capability}
	p.running, p.abort = context.WithCancelCause(context.Background())
	for _, h := range o.hooks {
		id := h.registration.HookID
		p.endpoints = append(p.endpoints, p.endpoint(m, id, streams.CallSubject(id), h.serve))
	}
	for _, s := range o.services {
		p.endpoints = append(p.endpoints, p.endpoint(m, s.name, streams.ServiceSubject(s.name), s.serve))
	}
	return p, nil
}

// Start begins to serve. On a connected nc, calls made after it returns are answered.
func Start(nc *nats.Conn, capability events.CapabilityID, opts ...Option) (*Provider, error) {
	p, err := newProvider(nc, capability, opts)
	if err != nil {
		return nil, err
	}
	p.nc = nc
	o := p.opts
	byName := make(map[string]*endpoint, len(p.endpoints))
	for _, e := range p.endpoints {
		byName[streams.Token(e.name)] = e
	}
	p.micro, err = micro.AddService(nc, micro.Config{
		Name:         streams.Token(capability),
		Version:      o.version,
		StatsHandler: func(e *micro.Endpoint) any { return byName[e.Name].counts.snapshot() },
		ErrorHandler: func(_ micro.Service, err *micro.NATSError) {
			o.log.Warn("subscription failed", zap.String("subject", err.Subject), zap.Error(err))
		},
	})
	if err != nil {
		return nil, fmt.Errorf("providers: add the micro service: %w", err)
	}
	for _, e := range p.endpoints {
		// The queue group is named, not micro's default, so that grants can name it, and is the endpoint's own.
		err := p.micro.AddEndpoint(streams.Token(e.name), micro.HandlerFunc(e.take),
			micro.WithEndpointSubject(e.subject), micro.WithEndpointQueueGroup(e.name))
		if err != nil {
			return nil, errors.Join(fmt.Errorf("providers: add the endpoint %s: %w", e.name, err), p.micro.Stop())
		}
	}
	for _, e := range p.endpoints {
		for range o.concurrency {
			p.workers.Go(e.work)
		}
	}
	if nc.IsConnected() {
		if err := nc.Flush(); err != nil {
			return nil, errors.Join(fmt.Errorf("providers: subscribe: %w", err), p.Stop(context.Background()))
		}
	}
	o.log.Info("serving", zap.String("capability", capability), zap.String("version", o.version),
		zap.Int("hooks", len(o.hooks)), zap.Int("services", len(o.services)))
	o.ready()
	return p, nil
}

// Stop takes no new calls, answers those it has, and flushes the answers. It waits for at most the drain timeout, or
// less if ctx ends before.
func (p *Provider) Stop(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, p.opts.drainTimeout)
	defer cancel()
	defer p.abort(errStopping)

	failed := p.micro.Stop()
	// After the flush the broker sends no more; after the barrier every subscription has handed on what it was sent.
	// Without a connection there is nothing to wait for.
	if failed == nil && p.nc.IsConnected() && p.nc.FlushWithContext(ctx) == nil {
		handedOn := make(chan struct{})
		if p.nc.Barrier(func() { close(handedOn) }) == nil {
			await(ctx, handedOn)
		}
	}
	idle := make(chan struct{})
	go func() {
		p.drain.Do(func() {
			for _, e := range p.endpoints {
				go e.dismiss() // a hook that hangs with a full queue keeps only its own workers
			}
		})
		p.workers.Wait()
		close(idle)
	}()
	if !await(ctx, idle) {
		return errors.Join(failed, ErrDrainTimeout)
	}
	if p.nc.IsConnected() {
		if err := p.nc.FlushWithContext(ctx); err != nil {
			failed = errors.Join(failed, fmt.Errorf("providers: flush the last answers: %w", err))
		}
	}
	p.opts.log.Info("stopped", zap.String("capability", p.opts.capability))
	return failed
}

func await(ctx context.Context, done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	case <-ctx.Done():
		return false
	}
}
