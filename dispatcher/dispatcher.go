package dispatcher

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nats.go/micro"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/afterwrite/afterwrite/dispatcher/core"
	"github.com/afterwrite/afterwrite/dispatcher/lane"
	"github.com/afterwrite/afterwrite/events"
	"github.com/afterwrite/afterwrite/internal/natsconn"
	"github.com/afterwrite/afterwrite/internal/observability"
	"github.com/afterwrite/afterwrite/internal/version"
	"github.com/afterwrite/afterwrite/streams"
)

// Dispatcher is one process's dispatcher. Any number of them share the work.
type Dispatcher struct {
	options   Options
	log       *zap.Logger
	topology  streams.Topology
	installed *core.Installed
	metrics   *metrics
	health    *observability.Health
	server    *observability.Server

	nc   *nats.Conn
	js   jetstream.JetStream
	kick chan struct{} // asks the watch to look now

	began time.Time // when the journal was created, the one that this process began with

	lastFailure atomic.Int64 // when a lane last failed to load or write, in ns since 1970

	mu      sync.Mutex // the client's goroutine tells of reconnections at any time
	runners []*runner
}

// New checks the options and claims the listening address. The error lists everything that is wrong.
func New(options Options) (*Dispatcher, error) {
	options = options.WithDefaults()
	if err := options.Validate(); err != nil {
		return nil, fmt.Errorf("dispatcher: %w", err)
	}
	d := &Dispatcher{
		options: options,
		log:     options.Logger,
		health:  newHealth(),
		kick:    make(chan struct{}, 1),
	}
	for id := range options.Registry.Hooks {
		options.Streams.Hooks = append(options.Streams.Hooks, id)
	}
	slices.Sort(options.Streams.Hooks)
	d.topology = streams.Default(options.Streams).Only(streams.Receipts, streams.Journal, streams.Retries, streams.Intents)
	for i := range d.topology.Streams {
		if d.topology.Streams[i].Config.Name == streams.Intents {
			d.topology.Streams[i].Consumers = nil // the executors' own
		}
	}
	d.installed = &core.Installed{
		Hooks:           options.Registry.Hooks,
		Profiles:        options.Registry.Profiles,
		MaxReceiptAge:   options.MaxReceiptAge,
		SkewAllowance:   options.SkewAllowance,
		DuplicateWindow: options.Streams.DuplicateWindow,
		JournalAge:      options.Streams.JournalAge,
	}
	if err := d.observe(); err != nil {
		return nil, fmt.Errorf("dispatcher: %w", err)
	}
	return d, nil
}

// observe registers the metrics and claims the listening address.
func (d *Dispatcher) observe() (err error) {
	if d.metrics, err = newMetrics(d.options.Metrics); err != nil {
		return fmt.Errorf("register the metrics: %w", err)
	}
	d.metrics.begin(d.installed.Hooks)
	shared := &observability.Factory{Registry: observability.For(component, d.options.Metrics)}
	shared.Replace(d.health)
	own := &observability.Factory{Registry: d.options.Metrics}
	own.Replace(newInFlight(d))
	if err := cmp.Or(shared.Err, own.Err); err != nil {
		return fmt.Errorf("register the metrics: %w", err)
	}
	d.server, err = observability.Listen(d.options.Listen, observability.Endpoints{
		Reasons: d.health.Reasons, Metrics: d.options.Metrics, Debug: d.options.Debug,
	})
	return err
}

// Addr is where health and metrics are served, nil without [Options.Listen].
func (d *Dispatcher) Addr() net.Addr { return d.server.Addr() }

// Ready is closed once the dispatcher takes receipts for the first time.
func (d *Dispatcher) Ready() <-chan struct{} { return d.health.Ready() }

// Run dispatches until ctx is done, then stops in order: it takes nothing more, finishes what is under way or hands
// it back, and closes. The error says why it could not go on; nil after a stop.
func (d *Dispatcher) Run(ctx context.Context) error {
	group, inner := errgroup.WithContext(ctx)
	// It can be seen until the end that it stops.
	serving, served := context.WithCancel(context.WithoutCancel(ctx))
	group.Go(func() error { return d.server.Serve(serving) })
	group.Go(func() error {
		defer served()
		return d.dispatch(inner)
	})
	if err := group.Wait(); err != nil && ctx.Err() == nil {
		return fmt.Errorf("dispatcher: %w", err)
	}
	return nil
}

func (d *Dispatcher) dispatch(ctx context.Context) error {
	if err := d.connect(); err != nil {
		return err
	}
	defer d.nc.Close()
	if err := d.awaitTopology(ctx); err != nil {
		return err
	}
	journal, err := d.js.Stream(ctx, streams.Journal)
	if err != nil {
		return fmt.Errorf("look at the journal: %w", err)
	}
	d.began = journal.CachedInfo().Created
	retired, err := streams.LeftoverHooks(ctx, d.js, d.topology)
	if err != nil {
		return err
	}
	if err := d.recordRefusals(ctx); err != nil {
		return err
	}
	if err := d.startLanes(retired); err != nil {
		return err
	}
	service, err := d.serveRedrive(ctx)
	if err != nil {
		return err
	}
	stop := make(chan struct{})
	var lanes sync.WaitGroup
	for _, r := range d.runners {
		lanes.Go(func() { r.run(stop, d.options.StopGrace) })
	}
	d.health.Clear(observability.NotStarted)
	d.log.Info("dispatching", zap.Int("lanes", len(d.runners)), zap.Int("hooks", len(d.installed.Hooks)))
	err = d.watch(ctx)

	d.health.Set(observability.NotStarted, "stopping")
	_ = service.Stop() // the connection is closed below, whatever it says
	close(stop)
	lanes.Wait()
	if flushErr := d.nc.FlushTimeout(flushWait); err == nil && flushErr != nil && ctx.Err() == nil {
		err = fmt.Errorf("flush: %w", flushErr)
	}
	d.log.Info("stopped")
	return err
}

const flushWait = 5 * time.Second

func (d *Dispatcher) connect() error {
	options := d.options.NATS
	options.Logger = d.log
	options.InboxPrefix = streams.DispatcherInbox()
	options.Metrics = observability.For(component, d.options.Metrics)
	options.Reconnected = func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		for _, r := range d.runners {
			r.reconnected()
		}
		d.look()
	}
	nc, err := natsconn.Connect(options)
	if err != nil {
		return err
	}
	js, err := jetstream.New(nc)
	if err != nil {
		nc.Close()
		return fmt.Errorf("open JetStream: %w", err)
	}
	d.nc, d.js = nc, js
	return nil
}

func (d *Dispatcher) startLanes(retired []events.HookID) error {
	receipts, limits := d.options.laneLimits()
	d.mu.Lock()
	defer d.mu.Unlock()
	for range d.options.Lanes {
		r, err := newRunner(d.nc, d.log, streams.DispatcherInbox(), lane.Options{
			Installed: d.installed,
			Hooks:     limits,
			Retired:   retired,
			Receipts:  receipts,
			AckWait:   d.options.Streams.AckWait,
		}, newObserver(d.metrics, d.log, d.failed, d.installed.Hooks), d.options.Tracing)
		if err != nil {
			return err
		}
		d.runners = append(d.runners, r)
	}
	return nil
}

// recordRefusals records the registrations that were not taken. One that is recorded already stays as it is.
func (d *Dispatcher) recordRefusals(ctx context.Context) error {
	for _, rejection := range d.options.Registry.Rejections {
		for _, problem := range rejection.Problems {
			d.log.Warn("registration rejected", zap.String("file", rejection.File), zap.String("hook", rejection.HookID),
				zap.String("profile", rejection.Profile), zap.Stringer("problem", problem))
		}
	}
	for _, command := range d.options.Registry.Refusals(time.Now()) {
		result, err := core.Commit(command, core.State{Installed: d.installed}, core.System)
		if err != nil {
			return fmt.Errorf("refuse a registration: %w", err)
		}
		subject, envelope := appendTarget(result.Save)
		m := &nats.Msg{Subject: subject, Header: envelope.Header(), Data: events.Canonical(result.Save.Refusal)}
		m.Header[streams.HeaderExpectedSequence] = expect(result.Save.Expect)
		if err := d.create(ctx, m); err != nil {
			return fmt.Errorf("record a refused registration: %w", err)
		}
	}
	return nil
}

// create publishes a message that expects nothing on its subject, outside of any lane. One that is there is as good,
// and one that is only in flight may come to nothing, so that is waited for.
func (d *Dispatcher) create(ctx context.Context, m *nats.Msg) error {
	for {
		_, err := d.js.PublishMsg(ctx, m)
		api := (*jetstream.APIError)(nil)
		switch {
		case err == nil:
			return nil
		case !errors.As(err, &api):
			return err
		case api.ErrorCode == codeWrongLastSequence:
			return nil
		case api.ErrorCode != codeWrongLastSequenceConstant:
			return err
		}
		select {
		case <-time.After(inFlightWait):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// inFlightWait is how long a rival write gets to be stored.
const inFlightWait = 100 * time.Millisecond

// serveRedrive answers operators' requests. Every dispatcher does, and the broker gives each request to one.
func (d *Dispatcher) serveRedrive(ctx context.Context) (micro.Service, error) {
	service, err := micro.AddService(d.nc, micro.Config{
		Name:        "afterwrite-dispatcher",
		Version:     version.Semantic(),
		Description: "Redrives failed dispatches.",
	})
	if err != nil {
		return nil, fmt.Errorf("serve redrive: %w", err)
	}
	next := 0
	handler := micro.HandlerFunc(func(request micro.Request) {
		redrive, err := parseRedrive(request.Data(), request.Reply())
		if err != nil {
			_ = request.Error("400", err.Error(), nil) // the caller is gone, or will ask again
			return
		}
		next++
		d.runners[next%len(d.runners)].tell(ctx.Done(), func(now time.Time, l *lane.Lane) { l.Redrive(now, redrive) })
	})
	err = service.AddEndpoint("redrive", handler,
		micro.WithEndpointSubject(streams.ServiceSubject(streams.RedriveService)), micro.WithEndpointQueueGroup("dispatcher"))
	if err != nil {
		return nil, fmt.Errorf("serve redrive: %w", err)
	}
	return service, nil
}
