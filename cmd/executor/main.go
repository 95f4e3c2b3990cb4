// Command executor admits intents against its own grants, calls the service that a grant names, and records what came
// of it. It knows no capability, and no sink: it stops at the recorded decision.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/alecthomas/kong"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/afterwrite/afterwrite/executors"
)

// version is stamped by the linker.
var version = "0.0.0-dev"

// Exit codes. Zero is a clean drain after a signal.
const (
	exitFailed = 1
	exitUsage  = 2
)

type flags struct {
	Grants        string           `required:"" type:"existingfile" help:"Grants file: who this executor is, and what it may do."`
	NATSURL       string           `name:"nats-url" default:"nats://127.0.0.1:4222" help:"Servers to connect to, separated by commas."`
	NATSCreds     string           `name:"nats-creds" type:"existingfile" help:"Credentials file."`
	AckWait       time.Duration    `default:"${ackWait}" help:"When an intent goes to another replica if this one is silent; of a consumer that is created."`
	MaxAckPending int              `default:"${pending}" help:"Intents of one kind that may be begun, paused or awaiting a person; of a consumer that is created."`
	HandBack      time.Duration    `default:"${handBack}" help:"Pause before an intent that awaits a person is looked at again."`
	DrainTimeout  time.Duration    `default:"${drain}" help:"How long to wait for executions in flight when stopping."`
	LogLevel      zapcore.Level    `default:"info" help:"One of debug, info, warn, error."`
	Check         bool             `env:"-" help:"Check the grants file and exit."`
	Version       kong.VersionFlag `env:"-" help:"Print the version and exit."`
}

func main() {
	var f flags
	parser := kong.Must(&f,
		kong.Name("executor"),
		kong.Description("Admits intents against its own grants, calls the service that a grant names, and records what came of it."),
		kong.DefaultEnvars("AFTERWRITE"),
		kong.Vars{
			"version": version, "ackWait": executors.DefaultAckWait.String(), "pending": fmt.Sprint(executors.DefaultMaxAckPending),
			"handBack": executors.DefaultHandBack.String(), "drain": executors.DefaultDrainTimeout.String(),
		},
	)
	if _, err := parser.Parse(os.Args[1:]); err != nil {
		exit(exitUsage, err)
	}
	process, log, err := build(f)
	if err != nil {
		exit(exitUsage, err)
	}
	if f.Check {
		return
	}
	defer func() { _ = log.Sync() }() // fails on a terminal, which needs no sync
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// Once stopping has begun, a second signal ends the process at once.
	context.AfterFunc(ctx, stop)
	if err := process.Run(ctx); err != nil {
		exit(exitFailed, err)
	}
}

func exit(code int, err error) {
	fmt.Fprintln(os.Stderr, "executor:", err)
	os.Exit(code)
}

func build(f flags) (*executors.Process, *zap.Logger, error) {
	data, err := os.ReadFile(f.Grants)
	if err != nil {
		return nil, nil, fmt.Errorf("read the grants file: %w", err)
	}
	file, err := executors.ParseGrants(data)
	if err != nil {
		return nil, nil, err
	}
	config := zap.NewProductionConfig()
	config.Level = zap.NewAtomicLevelAt(f.LogLevel)
	config.EncoderConfig.EncodeTime = zapcore.RFC3339NanoTimeEncoder
	log, err := config.Build()
	if err != nil {
		return nil, nil, fmt.Errorf("build the logger: %w", err)
	}
	process, err := executors.New(executors.Options{
		Executor: file.Executor, Grants: file.Grants, URL: f.NATSURL, Credentials: f.NATSCreds,
		DrainTimeout: f.DrainTimeout, AckWait: f.AckWait, HandBack: f.HandBack, MaxAckPending: f.MaxAckPending, Log: log,
	})
	return process, log, err
}
