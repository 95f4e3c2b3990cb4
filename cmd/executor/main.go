// Command executor admits intents against its own grants, calls the service that a grant names, and records what came
// of it. It knows no capability, and no sink: it stops at the recorded decision.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kong"

	"github.com/afterwrite/afterwrite/executors"
	"github.com/afterwrite/afterwrite/internal/natsconn"
	"github.com/afterwrite/afterwrite/internal/observability"
	"github.com/afterwrite/afterwrite/internal/observability/process"
	"github.com/afterwrite/afterwrite/internal/version"
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
	Grants   string         `required:"" type:"existingfile" help:"Grants file: who this executor is, and what it may do."`
	NATS     natsconn.Flags `embed:"" group:"Broker:"`
	Observed process.Flags  `embed:"" group:"Health, metrics, traces and log:"`

	HandBack     time.Duration `default:"${handBack}" help:"Pause before an intent that awaits a person is looked at again."`
	DrainTimeout time.Duration `default:"${drain}" help:"How long a stop waits for executions that have called their effect."`

	Check   bool             `env:"-" help:"Check the settings and the grants file, and exit."`
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
		kong.Name("executor"),
		kong.Description("Admits intents against its own grants, calls the service that a grant names, and records what came of it."),
		kong.DefaultEnvars("AFTERWRITE"),
		kong.Vars{
			"version": version.String(), "handBack": executors.DefaultHandBack.String(), "drain": executors.DefaultDrainTimeout.String(),
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
		_, _ = fmt.Fprintln(stderr, "executor:", err)
		return exitRefused
	}
	options, err := s.options()
	if err != nil {
		_, _ = fmt.Fprintln(stderr, "executor: will not start with these settings")
		for problem := range strings.Lines(err.Error()) {
			_, _ = fmt.Fprintln(stderr, " ", strings.TrimSpace(problem))
		}
		return exitRefused
	}
	if s.Check {
		return exitStopped
	}
	if err := s.execute(ctx, options, stderr); err != nil {
		_, _ = fmt.Fprintln(stderr, "executor:", err)
		return exitFailed
	}
	return exitStopped
}

// options are the executor's. The error lists everything that is wrong with them, a line each.
func (s *settings) options() (executors.Options, error) {
	data, err := os.ReadFile(s.Grants)
	if err != nil {
		return executors.Options{}, fmt.Errorf("read the grants file: %w", err)
	}
	file, err := executors.ParseGrants(data)
	if err != nil {
		return executors.Options{}, err
	}
	options := executors.Options{Executor: file.Executor, Grants: file.Grants, HandBack: s.HandBack, DrainTimeout: s.DrainTimeout}
	problems := []error{options.WithDefaults().Validate(), natsconn.Options{Flags: s.NATS}.Validate()}
	for _, problem := range s.Observed.Problems() {
		problems = append(problems, errors.New(problem))
	}
	return options, errors.Join(problems...)
}

func (s *settings) execute(ctx context.Context, options executors.Options, stderr io.Writer) error {
	p, err := s.Observed.Open(ctx, component, stderr)
	if err != nil {
		return err
	}
	defer p.Close()
	nc, err := natsconn.Connect(natsconn.Options{
		Flags: s.NATS, Name: "executor " + options.Executor, Logger: p.Log.Logger, Metrics: observability.For(component, p.Metrics),
	})
	if err != nil {
		return err
	}
	defer nc.Close()
	options.Conn, options.Log, options.Metrics, options.Tracing = nc, p.Log.Logger, p.Metrics, p.Tracing
	executor, err := executors.New(options)
	if err != nil {
		return err
	}
	return s.Observed.Serve(ctx, p, executor.Reasons, executor.Run)
}

// component is what its metrics and traces call it.
const component = "executor"
