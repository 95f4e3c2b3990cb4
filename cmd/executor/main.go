// Command executor admits intents against its own grants, calls the service that a grant names, and records what came
// of it. It knows no capability, and no sink: it stops at the recorded decision.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/alecthomas/kong"

	"github.com/afterwrite/afterwrite/executors"
	"github.com/afterwrite/afterwrite/internal/natsconn"
	"github.com/afterwrite/afterwrite/internal/observability"
	"github.com/afterwrite/afterwrite/internal/observability/process"
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

func main() { command(new(settings)).Main() }

func command(s *settings) process.Command {
	return process.Command{
		Name:        "executor",
		Description: "Admits intents against its own grants, calls the service that a grant names, and records what came of it.",
		Settings:    s,
		Vars:        kong.Vars{"handBack": executors.DefaultHandBack.String(), "drain": executors.DefaultDrainTimeout.String()},
		Prepare:     s.prepare,
	}
}

func (s *settings) prepare() (run func(context.Context, io.Writer) error, problems []string) {
	options, err := s.options()
	if err != nil || s.Check {
		return nil, process.Sentences(err)
	}
	return func(ctx context.Context, stderr io.Writer) error { return s.execute(ctx, options, stderr) }, nil
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
