// Package process is what the commands of ours that keep running have in common: how they start and end, and how they are
// observed, by flags that are the same in all of them. It links the exporter of traces, which nothing but such commands
// should.
package process

import (
	"context"
	"fmt"
	"io"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
	"golang.org/x/sync/errgroup"

	"github.com/afterwrite/afterwrite/internal/flags"
	"github.com/afterwrite/afterwrite/internal/gc"
	"github.com/afterwrite/afterwrite/internal/observability"
)

// Flags are embedded in each command's.
type Flags struct {
	flags.Log    `embed:""`
	Listen       string `env:"AFTERWRITE_LISTEN" default:":8080" help:"Address for health and metrics; empty for none."`
	Debug        bool   `env:"AFTERWRITE_DEBUG" help:"Serve profiles and the log level there too, under /debug/. Without it, SIGUSR1 switches the debug level on and off."`
	OTLPEndpoint string `name:"otlp-endpoint" env:"AFTERWRITE_OTLP_ENDPOINT" placeholder:"URL" help:"Where traces are sent over OTLP/HTTP, as in http://collector:4318; by default where the variables of OpenTelemetry say, and nowhere without them."`
}

// Problems are what is wrong with the flags, one sentence each.
func (f Flags) Problems() []string {
	var problems []string
	if f.LogBurst < 0 {
		problems = append(problems, "--log-burst must not be negative")
	}
	if f.OTLPEndpoint != "" {
		if _, err := parseEndpoint(f.OTLPEndpoint); err != nil {
			problems = append(problems, err.Error())
		}
	}
	return problems
}

// Process is what the flags open.
type Process struct {
	Log *observability.Logger
	// Metrics holds what Go and the operating system say, and takes the component's own.
	Metrics *prometheus.Registry
	// Tracing is nil where traces go nowhere.
	Tracing trace.TracerProvider
	// Debug is nil without the flag.
	Debug http.Handler
	flush func()
}

// Open opens everything but the listener, for the component's command, until ctx is done. Logs go to w.
func (f Flags) Open(ctx context.Context, component string, w io.Writer) (*Process, error) {
	gc.Tune()
	p := &Process{Log: f.Log.Open(w), Metrics: observability.NewRegistry()}
	if err := p.Log.Register(observability.For(component, p.Metrics)); err != nil {
		return nil, fmt.Errorf("register the metrics of the log: %w", err)
	}
	if f.Debug {
		p.Debug = observability.Debug(p.Log.Level)
	}
	var err error
	if p.Tracing, p.flush, err = openTracing(ctx, f.OTLPEndpoint, component, p.Log.Logger); err != nil {
		return nil, err
	}
	observability.LevelBySignal(ctx, p.Log)
	return p, nil
}

// Serve serves health and metrics beside the run of a component that does not do so itself.
func (f Flags) Serve(ctx context.Context, p *Process, reasons func() []string, run func(context.Context) error) error {
	server, err := observability.Listen(f.Listen, observability.Endpoints{Reasons: reasons, Metrics: p.Metrics, Debug: p.Debug})
	if err != nil {
		return err
	}
	group, running := errgroup.WithContext(ctx)
	// It can be seen until the end that it stops.
	serving, served := context.WithCancel(context.WithoutCancel(ctx))
	group.Go(func() error { return server.Serve(serving) })
	group.Go(func() error {
		defer served()
		return run(running)
	})
	return group.Wait()
}

// Close sends what spans there are, and ends the log. It waits a few seconds at most.
func (p *Process) Close() {
	p.flush()
	_ = p.Log.Sync() // fails on a terminal, which needs no sync
}
