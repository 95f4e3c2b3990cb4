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
	"github.com/afterwrite/afterwrite/internal/natsconn"
	"github.com/afterwrite/afterwrite/internal/version"
)

// Exit codes. Zero is a clean drain after a signal.
const (
	exitFailed = 1
	exitUsage  = 2
)

type flags struct {
	Grants string `name:"grants" required:"" type:"existingfile" help:"Grants file: who this executor is, and what it may do."`
	natsconn.Flags
	HandBack     time.Duration    `default:"${handBack}" help:"Pause before an intent that awaits a person is looked at again."`
	DrainTimeout time.Duration    `default:"${drain}" help:"How long to wait for executions in flight when stopping."`
	LogLevel     zapcore.Level    `default:"info" help:"One of debug, info, warn, error."`
	Check        bool             `env:"-" help:"Check the grants file and exit."`
	Version      kong.VersionFlag `env:"-" help:"Print the version and exit."`
}

func main() {
	var f flags
	parser := kong.Must(&f,
		kong.Name("executor"),
		kong.Description("Admits intents against its own grants, calls the service that a grant names, and records what came of it."),
		kong.DefaultEnvars("AFTERWRITE"),
		kong.Vars{
			"version": version.String(), "handBack": executors.DefaultHandBack.String(), "drain": executors.DefaultDrainTimeout.String(),
		},
	)
	if _, err := parser.Parse(os.Args[1:]); err != nil {
		exit(exitUsage, err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// Once stopping has begun, a second signal ends the process at once.
	context.AfterFunc(ctx, stop)
	if code, err := run(ctx, f); err != nil {
		exit(code, err)
	}
}

func exit(code int, err error) {
	fmt.Fprintln(os.Stderr, "executor:", err)
	os.Exit(code)
}

func run(ctx context.Context, f flags) (code int, err error) {
	data, err := os.ReadFile(f.Grants)
	if err != nil {
		return exitUsage, fmt.Errorf("read the grants file: %w", err)
	}
	file, err := executors.ParseGrants(data)
	if err != nil || f.Check {
		return exitUsage, err
	}
	config := zap.NewProductionConfig()
	config.Level = zap.NewAtomicLevelAt(f.LogLevel)
	config.EncoderConfig.EncodeTime = zapcore.RFC3339NanoTimeEncoder
	log, err := config.Build()
	if err != nil {
		return exitFailed, fmt.Errorf("build the logger: %w", err)
	}
	defer func() { _ = log.Sync() }() // fails on a terminal, which needs no sync

	nc, err := natsconn.Connect(natsconn.Options{Flags: f.Flags, Name: "executor " + file.Executor, Logger: log})
	if err != nil {
		return exitFailed, err
	}
	defer nc.Close()
	process, err := executors.New(executors.Options{
		Executor: file.Executor, Grants: file.Grants, Conn: nc, DrainTimeout: f.DrainTimeout,
		HandBack: f.HandBack, Log: log,
	})
	if err != nil {
		return exitUsage, err
	}
	return exitFailed, process.Run(ctx)
}
