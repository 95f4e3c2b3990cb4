package executors

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/afterwrite/afterwrite/events"
	"github.com/afterwrite/afterwrite/executors/core"
	"github.com/afterwrite/afterwrite/internal/natsconn"
	"github.com/afterwrite/afterwrite/internal/observability"
	"github.com/afterwrite/afterwrite/streams"
)

// Options are the settings of a [Process].
type Options struct {
	// Executor is the name under which executions are claimed and recorded. All its replicas share it.
	Executor events.ExecutorID
	Grants   []Grant
	// Executors act, by intent kind. For a kind that is not there, its grant's service is called.
	Executors map[events.IntentKind]Executor
	// Delivery is the authorised sink, if there is one.
	Delivery Delivery

	// Conn is a connection of the caller's, who closes it after Run. Without one the process makes its own, to URL,
	// with Dialer, if that is not nil.
	Conn   *nats.Conn
	URL    string
	Dialer nats.CustomDialer

	// DrainTimeout is how long executions that have begun may take when the process stops.
	DrainTimeout time.Duration
	// AckWait is when the broker gives an intent to another replica if nothing is heard of it, and MaxAckPending
	// bounds the intents of one kind that are begun, paused or awaiting a person. Only a consumer that is created
	// takes them; zero is the topology's default.
	AckWait       time.Duration
	MaxAckPending int
	// HandBack is the pause before an intent that waits for something without a time of its own comes again.
	HandBack time.Duration

	// Observe is called with every record that the process writes, from many goroutines. It must not block.
	Observe func(*events.Execution)
	Log     *zap.Logger
	// Metrics is where the process's metrics are registered, nil for nowhere.
	Metrics prometheus.Registerer
	// Tracing is where spans go, nil for nowhere: the trace of an intent is then passed on as it came.
	Tracing trace.TracerProvider
	// Now is the clock, nil the machine's. A test gives its own, to let a lease pass.
	Now func() time.Time

	// watch is how often the executions stream is looked at.
	watch time.Duration
	// at is for tests: a place where a process may be made to stop.
	at func(point, events.IntentID) error
}

// Defaults of [Options].
const (
	DefaultURL          = nats.DefaultURL
	DefaultDrainTimeout = 40 * time.Second
	DefaultHandBack     = 5 * time.Second
)

// WithDefaults returns a copy that has every optional setting.
func (o Options) WithDefaults() Options {
	if o.URL == "" {
		o.URL = DefaultURL
	}
	if o.DrainTimeout == 0 {
		o.DrainTimeout = DefaultDrainTimeout
	}
	if o.HandBack == 0 {
		o.HandBack = DefaultHandBack
	}
	if o.Log == nil {
		o.Log = zap.NewNop()
	}
	if o.Metrics == nil {
		o.Metrics = prometheus.NewRegistry()
	}
	if o.watch == 0 {
		o.watch = 5 * time.Second
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	grants := make([]Grant, len(o.Grants))
	for i, g := range o.Grants {
		grants[i] = g.WithDefaults()
	}
	o.Grants = grants
	return o
}

// Validate lists everything that is wrong with the options, one clear sentence each.
func (o Options) Validate() error {
	var problems []error
	bad := func(ok bool, field, rule string) {
		if !ok {
			problems = append(problems, fmt.Errorf("%s %s", field, rule))
		}
	}
	bad(events.IsName(o.Executor), "executor", "must be a name")
	bad(len(o.Grants) > 0, "grants", "must hold at least one grant")
	bad(o.Conn == nil || o.Dialer == nil, "dialer", "must not be set beside a connection that is there already")
	bad(o.DrainTimeout > 0, "drain_timeout", "must be positive")
	bad(o.AckWait == 0 || o.AckWait >= 100*time.Millisecond, "ack_wait", "must be at least 100ms")
	bad(o.HandBack >= shortestHandBack, "hand_back", "must be at least 50ms")
	bad(o.MaxAckPending >= 0, "max_ack_pending", "must not be negative")
	kinds := map[events.IntentKind]bool{}
	for i, g := range o.Grants {
		field := fmt.Sprintf("grants[%d]", i)
		for _, err := range unjoin(g.Validate()) {
			problems = append(problems, fmt.Errorf("%s.%w", field, err))
		}
		bad(!kinds[g.IntentKind], field+".intent_kind", "must not repeat another grant's")
		bad(g.Service != "" || o.Executors[g.IntentKind] != nil, field+".service.name", "must name the service to call")
		kinds[g.IntentKind] = true
	}
	for kind := range o.Executors {
		bad(kinds[kind], "executors", "must be of a kind that has a grant: "+kind)
	}
	return errors.Join(problems...)
}

// unjoin gives the errors that errors.Join took.
func unjoin(err error) []error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return joined.Unwrap()
	}
	return nil
}

// Process is an executor that can be run inside any program.
type Process struct {
	opts    Options
	log     *zap.Logger
	actor   core.Actor
	grants  map[events.IntentKind]core.Grant
	service Executor
	nc      *nats.Conn
	js      jetstream.JetStream
	ledger  *ledger
	// born is when the executions stream was created.
	born     time.Time
	health   *observability.Health
	metrics  *metrics
	tracer   trace.Tracer // nil where nothing is traced
	draining atomic.Bool
}

// New checks the options and gives a process that has not connected yet. The error lists all problems at once.
func New(opts Options) (*Process, error) {
	opts = opts.WithDefaults()
	if err := opts.Validate(); err != nil {
		return nil, err
	}
	p := &Process{
		opts: opts, log: opts.Log.With(zap.String("executor", opts.Executor)), actor: core.Executor(opts.Executor),
		grants: make(map[events.IntentKind]core.Grant, len(opts.Grants)),
		health: observability.NewHealth(observability.BrokerDisconnected, intentsUnavailable, intentsAging, streamFilling),
	}
	if opts.Tracing != nil {
		p.tracer = opts.Tracing.Tracer(tracerName)
	}
	var err error
	if p.metrics, err = newMetrics(opts.Metrics, opts.Executor, p.health); err != nil {
		return nil, fmt.Errorf("executors: register the metrics: %w", err)
	}
	for i := range opts.Grants {
		grant, err := opts.Grants[i].core()
		if err != nil {
			return nil, fmt.Errorf("grants[%d].policy: %w", i, err)
		}
		p.grants[opts.Grants[i].IntentKind] = grant
		p.metrics.inFlight.WithLabelValues(opts.Grants[i].IntentKind) // there from the start, at 0
	}
	return p, nil
}

// Ready is closed once the process takes intents.
func (p *Process) Ready() <-chan struct{} { return p.health.Ready() }

// Run takes intents until ctx ends. It then takes no more, lets executions that have called their effect end, gives
// back those that have not, and closes its connection. It may be called once.
func (p *Process) Run(ctx context.Context) error {
	defer p.disconnect()
	defer p.health.Set(observability.NotStarted, stopping)
	if err := p.connect(); err != nil {
		return err
	}
	pullers, err := p.prepare(ctx)
	if err != nil {
		return err
	}
	stopAnswers, err := p.serveAnswers()
	if err != nil {
		return err
	}
	// What has begun goes on after ctx ended, for as long as draining may take.
	working, abandon := context.WithCancelCause(context.WithoutCancel(ctx))
	defer abandon(nil)
	taking, fail := errgroup.WithContext(ctx)
	defer context.AfterFunc(fail, func() {
		p.draining.Store(true)
		p.health.Set(observability.NotStarted, stopping)
		drained := time.AfterFunc(p.opts.DrainTimeout, func() { abandon(errStopped) })
		context.AfterFunc(working, func() { drained.Stop() })
	})()
	for _, puller := range pullers {
		taking.Go(func() error { return puller.pull(fail, working) })
	}
	taking.Go(func() error { return p.watchExecutions(fail) })
	p.health.Check(intentsUnavailable, func() string { return unavailable(pullers) })
	p.health.Clear(observability.NotStarted)
	p.log.Info("taking intents", zap.Int("kinds", len(pullers)))
	err = taking.Wait()
	stopAnswers()
	if flushed := p.nc.FlushTimeout(time.Second); flushed != nil && err == nil && !p.nc.IsClosed() {
		p.log.Warn("stopped without the broker's answer", zap.Error(flushed))
	}
	return err
}

// connect opens the process's own connection, unless it was given one.
func (p *Process) connect() (err error) {
	if p.nc = p.opts.Conn; p.nc == nil {
		p.nc, err = natsconn.Connect(natsconn.Options{
			Flags: natsconn.Flags{URL: p.opts.URL}, Name: "executor " + p.opts.Executor, Dialer: p.opts.Dialer, Logger: p.log,
			Metrics: observability.For(component, p.opts.Metrics),
		})
		if err != nil {
			return fmt.Errorf("executors: %w", err)
		}
	}
	p.health.Check(observability.BrokerDisconnected, natsconn.Disconnected(p.nc))
	if p.js, err = jetstream.New(p.nc); err != nil {
		return fmt.Errorf("executors: %w", err)
	}
	p.service = &serviceCaller{p.nc}
	p.ledger, err = newLedger(p.nc, p.js, p.opts.Executor)
	return err
}

// disconnect closes the process's own connection.
func (p *Process) disconnect() {
	if p.opts.Conn == nil && p.nc != nil {
		p.nc.Close()
	}
}

// prepare checks the streams and finds or creates the consumers, also of grants that are off: their intents wait.
func (p *Process) prepare(ctx context.Context) ([]*puller, error) {
	for _, name := range []string{streams.Intents, streams.State, streams.Executions} {
		stream, err := p.js.Stream(ctx, name)
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			return nil, fmt.Errorf("%w: %s", ErrStreamMissing, name)
		}
		if err != nil {
			return nil, fmt.Errorf("executors: stream %s: %w", name, err)
		}
		if name == streams.Executions {
			p.born = stream.CachedInfo().Created
		}
	}
	var pullers []*puller
	for i := range p.opts.Grants {
		grant := &p.opts.Grants[i]
		consumer, err := p.consumer(ctx, grant, false)
		if err != nil {
			return nil, fmt.Errorf("executors: the consumer of %s: %w", grant.IntentKind, err)
		}
		if !grant.Off {
			pullers = append(pullers, &puller{
				Process: p, grant: grant, pulled: consumer, slots: make(chan struct{}, grant.Concurrency),
			})
		}
	}
	return pullers, nil
}

// watchExecutions ends the process when what it relies on to execute once is gone.
func (p *Process) watchExecutions(ctx context.Context) error {
	tick := time.NewTicker(p.opts.watch)
	defer tick.Stop()
	for {
		switch err := p.look(ctx); {
		case errors.Is(err, ErrExecutionsLost):
			return err
		case err != nil && ctx.Err() == nil:
			// A broker that does not answer is not a stream that is gone.
			p.log.Warn("cannot look at the streams", zap.Error(err))
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// stopping is why a process that was ready takes no more.
const stopping = "stopping"

func (p *Process) stopping() bool { return p.draining.Load() }

// executor is who acts for the grant.
func (p *Process) executor(g *Grant) Executor {
	if e := p.opts.Executors[g.IntentKind]; e != nil {
		return e
	}
	return p.service
}
