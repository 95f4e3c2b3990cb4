// Command provider-periodic-report serves the capability periodic_report: its hook and its trigger reducer.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"github.com/alecthomas/kong"
	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/afterwrite/afterwrite/internal/natsconn"
	"github.com/afterwrite/afterwrite/internal/observability"
	"github.com/afterwrite/afterwrite/internal/observability/process"
	"github.com/afterwrite/afterwrite/internal/version"
	"github.com/afterwrite/afterwrite/providers"
	"github.com/afterwrite/afterwrite/providers/periodicreport"
)

// Exit codes. Zero is an orderly stop.
const (
	exitStopped = iota
	// exitFailed: it ran, or tried to, and could not go on.
	exitFailed
	// exitRefused: the settings are not ones to start with.
	exitRefused
)

type settings struct {
	NATS     natsconn.Flags `embed:"" group:"Broker:"`
	Observed process.Flags  `embed:"" group:"Health, metrics, traces and log:"`

	Concurrency  int           `default:"${processors}" help:"Calls of the hook, and of the service, that run at once."`
	Queue        int           `default:"${queue}" help:"Calls of the hook, and of the service, that may wait; one more is refused as overloaded."`
	DrainTimeout time.Duration `default:"${drain}" help:"How long a stop waits for calls in flight."`

	Version kong.VersionFlag `env:"-" help:"Print the version and exit."`
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// Once stopping has begun, a second signal ends the process at once.
	context.AfterFunc(ctx, stop)
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	var s settings
	exit := -1
	parser, err := kong.New(&s,
		kong.Name("provider-periodic-report"),
		kong.Description("Serves the periodic_report capability: proposes trigger evaluations, and decides whether a report is due."),
		kong.DefaultEnvars("AFTERWRITE"),
		kong.Vars{
			"version":    version.String(),
			"processors": strconv.Itoa(runtime.GOMAXPROCS(0)),
			"queue":      strconv.Itoa(providers.DefaultQueue),
			"drain":      providers.DefaultDrainTimeout.String(),
		},
		kong.Writers(stdout, stderr),
		kong.Exit(func(code int) { exit = code }),
	)
	if err != nil {
		panic(err) // the grammar above is wrong, which every test sees
	}
	_, err = parser.Parse(args)
	if exit >= 0 {
		return exit // help or version was printed
	}
	if err != nil {
		_, _ = fmt.Fprintln(stderr, "provider-periodic-report:", err)
		return exitRefused
	}
	if problems := s.problems(); len(problems) > 0 {
		_, _ = fmt.Fprintln(stderr, "provider-periodic-report: will not start with these settings")
		for _, problem := range problems {
			_, _ = fmt.Fprintln(stderr, " ", problem)
		}
		return exitRefused
	}
	if err := s.serve(ctx, stderr); err != nil {
		_, _ = fmt.Fprintln(stderr, "provider-periodic-report:", err)
		return exitFailed
	}
	return exitStopped
}

// problems are what is wrong with the settings, one sentence each.
func (s *settings) problems() []string {
	problems := s.Observed.Problems()
	bad := func(is bool, sentence string) {
		if is {
			problems = append(problems, sentence)
		}
	}
	if err := (natsconn.Options{Flags: s.NATS}).Validate(); err != nil {
		problems = append(problems, err.Error())
	}
	bad(s.Concurrency < 1, "--concurrency must be at least 1")
	bad(s.Queue < 1, "--queue must be at least 1")
	bad(s.DrainTimeout <= 0, "--drain-timeout must be positive")
	return problems
}

// component is what its metrics and traces call it.
const component = "provider"

func (s *settings) serve(ctx context.Context, stderr io.Writer) error {
	p, err := s.Observed.Open(ctx, component, stderr)
	if err != nil {
		return err
	}
	defer p.Close()
	shared := observability.For(component, p.Metrics)
	nc, err := natsconn.Connect(natsconn.Options{
		Flags: s.NATS, Name: "provider-periodic-report", Logger: p.Log.Logger, Metrics: shared,
	})
	if err != nil {
		return err
	}
	defer nc.Close()
	health, err := healthOf(ctx, nc, shared)
	if err != nil {
		return err
	}
	capability, err := periodicreport.Provider()
	if err != nil {
		return err
	}
	return s.Observed.Serve(ctx, p, health.Reasons, func(ctx context.Context) error {
		return providers.Serve(ctx, nc, periodicreport.CapabilityID,
			capability,
			providers.WithVersion(version.Semantic()),
			providers.WithConcurrency(s.Concurrency),
			providers.WithQueue(s.Queue),
			providers.WithDrainTimeout(s.DrainTimeout),
			providers.WithLogger(p.Log.Logger),
			providers.WithMetrics(p.Metrics),
			providers.WithTracing(p.Tracing),
			providers.WithReady(func() { health.Clear(observability.NotStarted) }),
		)
	})
}

// healthOf is that of a provider with the connection: not ready before it serves, while it stops, and without a broker.
func healthOf(ctx context.Context, nc *nats.Conn, registry prometheus.Registerer) (*observability.Health, error) {
	health := observability.NewHealth(observability.BrokerDisconnected)
	health.Check(observability.BrokerDisconnected, natsconn.Disconnected(nc))
	context.AfterFunc(ctx, func() { health.Set(observability.NotStarted, "stopping") })
	if err := registry.Register(health); err != nil {
		return nil, fmt.Errorf("register the metrics of health: %w", err)
	}
	return health, nil
}
