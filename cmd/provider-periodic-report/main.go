// Command provider-periodic-report serves the capability periodic_report: its hook and its trigger reducer.
package main

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"strconv"
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

type settings struct {
	NATS     natsconn.Flags `embed:"" group:"Broker:"`
	Observed process.Flags  `embed:"" group:"Health, metrics, traces and log:"`

	Concurrency  int           `default:"${processors}" help:"Calls of the hook, and of the service, that run at once."`
	Queue        int           `default:"${queue}" help:"Calls of the hook, and of the service, that may wait; one more is refused as overloaded."`
	DrainTimeout time.Duration `default:"${drain}" help:"How long a stop waits for calls in flight."`

	Version kong.VersionFlag `env:"-" help:"Print the version and exit."`
}

func main() { command(new(settings)).Main() }

func command(s *settings) process.Command {
	return process.Command{
		Name:        "provider-periodic-report",
		Description: "Serves the periodic_report capability: proposes trigger evaluations, and decides whether a report is due.",
		Settings:    s,
		Vars: kong.Vars{
			"processors": strconv.Itoa(runtime.GOMAXPROCS(0)),
			"queue":      strconv.Itoa(providers.DefaultQueue),
			"drain":      providers.DefaultDrainTimeout.String(),
		},
		Prepare: func() (run func(context.Context, io.Writer) error, problems []string) { return s.serve, s.problems() },
	}
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
