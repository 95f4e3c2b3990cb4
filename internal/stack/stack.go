// Package stack runs a whole Afterwrite in one process: an embedded broker, and beside it a dispatcher, the
// periodic-report provider and its executor, which know each other only over the broker, as separate processes would.
package stack

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/afterwrite/afterwrite/dispatcher"
	"github.com/afterwrite/afterwrite/dispatcher/registry"
	"github.com/afterwrite/afterwrite/events"
	"github.com/afterwrite/afterwrite/executors"
	"github.com/afterwrite/afterwrite/internal/flags"
	"github.com/afterwrite/afterwrite/internal/natsconn"
	"github.com/afterwrite/afterwrite/internal/natsembed"
	"github.com/afterwrite/afterwrite/internal/observability"
	"github.com/afterwrite/afterwrite/internal/version"
	"github.com/afterwrite/afterwrite/providers"
	"github.com/afterwrite/afterwrite/providers/periodicreport"
	"github.com/afterwrite/afterwrite/streams"
)

// Executor is the name of the stack's executor.
const Executor events.ExecutorID = "report_evaluator"

//go:embed profiles.yaml
var profiles []byte

//go:embed policy.json
var policy []byte

// Options of a stack. What is zero has its default.
type Options struct {
	// Broker is where the embedded server stores and listens.
	Broker natsembed.Options
	// Hooks are installed beside the periodic report's.
	Hooks []registry.File
	// Profiles replaces the profiles file, whose one profile "default" runs the periodic report.
	Profiles []byte
	// Streams are the settings the streams are applied with.
	Streams streams.Settings
	// Dispatcher are further options of the dispatcher. It accepts receipts of any age unless they say otherwise.
	Dispatcher dispatcher.Options
	// NoProvider and NoExecutor leave these out.
	NoProvider, NoExecutor bool
	// Dialer makes every connection of every part.
	Dialer nats.CustomDialer
	Logger *zap.Logger
	// Metrics takes the metrics of every part. The dispatcher serves them, if it listens.
	Metrics *prometheus.Registry
	// Tracing takes the spans of every part, nil for nobody.
	Tracing trace.TracerProvider
}

// Stack is a running Afterwrite.
type Stack struct {
	Registry   *registry.Installed
	Dispatcher *dispatcher.Dispatcher
	// NC and JS are a client's connection, of nobody's authority.
	NC *nats.Conn
	JS jetstream.JetStream

	server *natsembed.Server
	stop   context.CancelFunc
	group  *errgroup.Group
}

// Start returns once everything takes work. The stack then runs until [Stack.Stop].
func Start(ctx context.Context, options Options) (*Stack, error) {
	s := new(Stack)
	if err := s.start(ctx, options); err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	return s, nil
}

func (s *Stack) start(ctx context.Context, o Options) error {
	if o.Logger == nil {
		o.Logger = zap.NewNop()
	}
	if o.Metrics == nil {
		o.Metrics = observability.NewRegistry()
	}
	var err error
	files := registry.Files{
		Hooks:    append([]registry.File{{Name: "periodic_report.runtime_trigger.json", Data: periodicreport.HookFile}}, o.Hooks...),
		Profiles: registry.File{Name: "profiles.yaml", Data: profiles},
	}
	if o.Profiles != nil {
		files.Profiles.Data = o.Profiles
	}
	if s.Registry, err = registry.Load(files); err != nil {
		return err
	}
	if s.server, err = natsembed.Start(o.Broker); err != nil {
		return err
	}
	if s.NC, err = s.connect(o, "afterwrite client"); err != nil {
		return err
	}
	if s.JS, err = jetstream.New(s.NC); err != nil {
		return fmt.Errorf("open JetStream: %w", err)
	}
	if err := s.apply(ctx, o); err != nil {
		return err
	}
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	s.stop = stop
	s.group, running = errgroup.WithContext(running)
	if err := s.runDispatcher(ctx, running, o); err != nil {
		return err
	}
	if !o.NoProvider {
		if err := s.runProvider(running, o); err != nil {
			return err
		}
	}
	if !o.NoExecutor {
		return s.runExecutor(ctx, running, o)
	}
	return nil
}

func (s *Stack) connect(o Options, name string) (*nats.Conn, error) {
	return natsconn.Connect(natsconn.Options{
		Flags: natsconn.Flags{URL: s.server.ClientURL()}, Name: name, Dialer: o.Dialer, Logger: o.Logger,
	})
}

// settings are those that the streams are applied with and that the dispatcher holds them against.
func (s *Stack) settings(o Options) streams.Settings {
	settings := o.Streams
	settings.RetryHorizon = cmp.Or(settings.RetryHorizon, s.Registry.RetryHorizon())
	settings.ReceiptsMaxBytes = cmp.Or(settings.ReceiptsMaxBytes, streamSize)
	settings.JournalMaxBytes = cmp.Or(settings.JournalMaxBytes, streamSize)
	settings.IntentsMaxBytes = cmp.Or(settings.IntentsMaxBytes, streamSize)
	settings.ExecutionsMaxBytes = cmp.Or(settings.ExecutionsMaxBytes, streamSize)
	return settings.WithDefaults()
}

// streamSize is enough to try things out, and is found on every disk: the broker reserves it.
const streamSize = 256 << 20

func (s *Stack) apply(ctx context.Context, o Options) error {
	settings := s.settings(o)
	settings.Hooks = slices.Sorted(maps.Keys(s.Registry.Hooks))
	if !o.NoExecutor {
		settings.Executors = append(settings.Executors, streams.Executor{
			Executor: Executor, Kind: periodicreport.IntentKind, Start: streams.StartAll,
		})
	}
	if err := settings.Validate(); err != nil {
		return flags.Named(err)
	}
	_, err := streams.Apply(ctx, s.JS, streams.Default(settings))
	return err
}

func (s *Stack) runDispatcher(ctx, running context.Context, o Options) error {
	options := o.Dispatcher
	options.NATS.URL = s.server.ClientURL()
	options.NATS.Dialer = o.Dialer
	options.Streams = s.settings(o)
	options.Registry = s.Registry
	options.Metrics, options.Tracing = o.Metrics, o.Tracing
	options.AnyReceiptAge = options.MaxReceiptAge == 0
	if options.Logger == nil {
		options.Logger = o.Logger.Named("dispatcher")
	}
	d, err := dispatcher.New(options)
	if err != nil {
		return err
	}
	s.Dispatcher = d
	s.group.Go(func() error { return d.Run(running) })
	return await(ctx, running, d.Ready(), "dispatcher")
}

func (s *Stack) runProvider(running context.Context, o Options) error {
	nc, err := s.connect(o, "afterwrite provider-periodic-report")
	if err != nil {
		return err
	}
	provider, err := periodicreport.Provider()
	if err != nil {
		nc.Close()
		return err
	}
	started, err := providers.Start(nc, periodicreport.CapabilityID, provider,
		providers.WithVersion(version.Semantic()), providers.WithLogger(o.Logger.Named("provider")),
		providers.WithMetrics(o.Metrics), providers.WithTracing(o.Tracing))
	if err != nil {
		nc.Close()
		return err
	}
	s.group.Go(func() error {
		defer nc.Close()
		<-running.Done()
		drain, cancel := context.WithTimeout(context.WithoutCancel(running), drainWait)
		defer cancel()
		return started.Stop(drain)
	})
	return nil
}

const drainWait = 10 * time.Second

func (s *Stack) runExecutor(ctx, running context.Context, o Options) error {
	process, err := executors.New(executors.Options{
		Executor: Executor,
		Grants: []executors.Grant{{
			IntentKind:  periodicreport.IntentKind,
			From:        streams.StartAll,
			Service:     periodicreport.ServiceName,
			Policy:      policy,
			StateKey:    "goal_id",
			EvaluatedAt: "observed_at",
		}},
		URL:     s.server.ClientURL(),
		Dialer:  o.Dialer,
		Log:     o.Logger.Named("executor"),
		Metrics: o.Metrics,
		Tracing: o.Tracing,
	})
	if err != nil {
		return err
	}
	s.group.Go(func() error { return process.Run(running) })
	return await(ctx, running, process.Ready(), "executor")
}

// await waits until a part is ready, unless one of the parts, or the caller, gives up first.
func await(ctx, running context.Context, ready <-chan struct{}, part string) error {
	select {
	case <-ready:
		return nil
	case <-running.Done():
		return fmt.Errorf("the %s did not start: %w", part, context.Cause(running))
	case <-ctx.Done():
		return fmt.Errorf("the %s did not start: %w", part, ctx.Err())
	}
}

// URL is where clients connect to the broker.
func (s *Stack) URL() string { return s.server.ClientURL() }

// Wait waits until a part gives up, or the stack is stopped.
func (s *Stack) Wait() error { return s.group.Wait() }

// Stop stops every part in order, the broker last, and gives the first error of any of them.
func (s *Stack) Stop() error {
	var err error
	if s.stop != nil {
		s.stop()
		err = s.group.Wait()
	}
	if s.NC != nil {
		s.NC.Close()
	}
	if s.server != nil {
		s.server.Shutdown()
	}
	return err
}
