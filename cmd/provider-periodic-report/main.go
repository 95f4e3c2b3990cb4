// Command provider-periodic-report serves the capability periodic_report: its hook and its trigger reducer.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"github.com/alecthomas/kong"
	"github.com/nats-io/nats.go"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/afterwrite/afterwrite/providers"
	"github.com/afterwrite/afterwrite/providers/periodicreport"
)

// version is stamped by the linker.
var version = "0.0.0-dev"

// Exit codes. Zero is a clean drain after a signal.
const (
	exitFailed = 1
	exitUsage  = 2
)

type flags struct {
	NATSURL      string           `name:"nats-url" default:"nats://127.0.0.1:4222" help:"Servers to connect to, separated by commas."`
	NATSCreds    string           `name:"nats-creds" type:"existingfile" help:"Credentials file."`
	Name         string           `default:"provider-periodic-report" help:"Connection name that the server shows."`
	Concurrency  int              `default:"${processors}" help:"Calls of the hook, and of the service, that run at once."`
	Queue        int              `default:"${queue}" help:"Calls of the hook, and of the service, that may wait; one more is refused as overloaded."`
	DrainTimeout time.Duration    `default:"${drain}" help:"How long to wait for calls in flight when stopping."`
	LogLevel     zapcore.Level    `default:"info" help:"One of debug, info, warn, error."`
	Version      kong.VersionFlag `env:"-" help:"Print the version and exit."`
}

func main() {
	f, err := parse(os.Args[1:])
	if err != nil {
		exit(exitUsage, err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// Once stopping has begun, a second signal ends the process at once.
	context.AfterFunc(ctx, stop)

	if err := run(ctx, f); err != nil {
		exit(exitFailed, err)
	}
}

func parse(args []string) (flags, error) {
	var f flags
	parser, err := kong.New(&f,
		kong.Name("provider-periodic-report"),
		kong.Description("Serves the periodic_report capability: proposes trigger evaluations, and decides whether a report is due."),
		kong.DefaultEnvars("AFTERWRITE"),
		kong.Vars{
			"version":    version,
			"processors": strconv.Itoa(runtime.GOMAXPROCS(0)),
			"queue":      strconv.Itoa(providers.DefaultQueue),
			"drain":      providers.DefaultDrainTimeout.String(),
		},
	)
	if err != nil {
		return flags{}, err
	}
	_, err = parser.Parse(args)
	return f, err
}

func exit(code int, err error) {
	fmt.Fprintln(os.Stderr, "provider-periodic-report:", err)
	os.Exit(code)
}

func run(ctx context.Context, f flags) error {
	config := zap.NewProductionConfig()
	config.Level = zap.NewAtomicLevelAt(f.LogLevel)
	config.EncoderConfig.EncodeTime = zapcore.RFC3339NanoTimeEncoder
	log, err := config.Build()
	if err != nil {
		return fmt.Errorf("build the logger: %w", err)
	}
	defer func() { _ = log.Sync() }() // fails on a terminal, which needs no sync

	nc, err := nats.Connect(f.NATSURL, connection(f, log)...)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer nc.Close()

	capability, err := periodicreport.Provider()
	if err != nil {
		return err
	}
	return providers.Serve(ctx, nc, periodicreport.CapabilityID,
		capability,
		providers.WithVersion(version),
		providers.WithConcurrency(f.Concurrency),
		providers.WithQueue(f.Queue),
		providers.WithDrainTimeout(f.DrainTimeout),
		providers.WithLogger(log),
	)
}

func connection(f flags, log *zap.Logger) []nats.Option {
	connected := func(nc *nats.Conn) { log.Info("connected", zap.String("server", nc.ConnectedUrlRedacted())) }
	opts := []nats.Option{
		nats.Name(f.Name),
		nats.MaxReconnects(-1),
		// A provider may be up before its server is.
		nats.RetryOnFailedConnect(true),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) { log.Warn("disconnected", zap.Error(err)) }),
		nats.ConnectHandler(connected),
		nats.ReconnectHandler(connected),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { log.Warn("connection error", zap.Error(err)) }),
	}
	if f.NATSCreds != "" {
		opts = append(opts, nats.UserCredentials(f.NATSCreds))
	}
	return opts
}
