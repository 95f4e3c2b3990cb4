// Command dispatcher decides what a committed writeback may lead to, and records it exactly once.
package main

import (
	"context"
	"io"
	"slices"
	"time"

	"github.com/alecthomas/kong"

	"github.com/afterwrite/afterwrite/dispatcher"
	"github.com/afterwrite/afterwrite/dispatcher/registry"
	"github.com/afterwrite/afterwrite/internal/flags"
	"github.com/afterwrite/afterwrite/internal/natsconn"
	"github.com/afterwrite/afterwrite/internal/observability/process"
)

type settings struct {
	NATS      natsconn.Flags  `embed:"" group:"Broker:"`
	Installed flags.Installed `embed:"" group:"What is installed:"`
	Streams   flags.Streams   `embed:"" group:"Streams, as they were applied:"`
	Observed  process.Flags   `embed:"" group:"Health, metrics, traces and log:"`

	MaxReceiptAge    *time.Duration `placeholder:"DURATION" help:"How old a receipt may be, by default the journal's age less a tenth; 0 accepts any age, to import history."`
	SkewAllowance    time.Duration  `default:"5s" help:"How far the clocks of orchestrators, broker and dispatcher may differ."`
	Lanes            int            `default:"0" help:"Event loops that run side by side; 0 is one a core."`
	ReceiptsInFlight int            `default:"512" help:"Receipts under way in one lane."`
	TripAfter        int            `default:"10" help:"Failures of a hook in a row that suspend it in a lane."`
	OpenFor          time.Duration  `default:"5s" help:"How long a hook stays suspended before it is probed."`
	StopGrace        time.Duration  `default:"25s" help:"How long a stop waits for what is under way before it is handed back."`

	Check   bool             `env:"-" help:"Check the settings and the installed files, and exit."`
	Version kong.VersionFlag `env:"-" help:"Print the version and exit."`
}

func main() { command(new(settings)).Main() }

func command(s *settings) process.Command {
	return process.Command{
		Name:        "dispatcher",
		Description: "Decides what a committed writeback may lead to, and records it exactly once.",
		Settings:    s,
		Vars:        flags.StreamsVars(),
		Prepare:     s.prepare,
	}
}

func (s *settings) prepare() (run func(context.Context, io.Writer) error, problems []string) {
	options, problems := s.options()
	if len(problems) > 0 || s.Check {
		return nil, problems
	}
	return func(ctx context.Context, stderr io.Writer) error { return dispatch(ctx, s.Observed, options, stderr) }, nil
}

func dispatch(ctx context.Context, observed process.Flags, options dispatcher.Options, stderr io.Writer) error {
	p, err := observed.Open(ctx, "dispatcher", stderr)
	if err != nil {
		return err
	}
	defer p.Close()
	options.Logger, options.Metrics, options.Tracing, options.Debug = p.Log.Logger, p.Metrics, p.Tracing, p.Debug
	d, err := dispatcher.New(options)
	if err != nil {
		return err
	}
	return d.Run(ctx)
}

// options are the dispatcher's, and everything that is wrong with them, a sentence each.
func (s *settings) options() (options dispatcher.Options, problems []string) {
	installed, problems := s.load()
	if installed == nil {
		// Nothing is installed, but everything else can still be looked at.
		installed = new(registry.Installed)
	}
	options = dispatcher.Options{
		NATS:             natsconn.Options{Flags: s.NATS},
		Streams:          s.Streams.Settings(),
		Registry:         installed,
		SkewAllowance:    positive(&problems, "--skew-allowance", s.SkewAllowance),
		Lanes:            s.Lanes,
		ReceiptsInFlight: positive(&problems, "--receipts-in-flight", s.ReceiptsInFlight),
		TripAfter:        positive(&problems, "--trip-after", s.TripAfter),
		OpenFor:          positive(&problems, "--open-for", s.OpenFor),
		StopGrace:        positive(&problems, "--stop-grace", s.StopGrace),
		Listen:           s.Observed.Listen,
	}
	problems = append(problems, s.Observed.Problems()...)
	if s.MaxReceiptAge != nil {
		options.MaxReceiptAge, options.AnyReceiptAge = *s.MaxReceiptAge, *s.MaxReceiptAge == 0
	}
	// To the options a 0 is the default, to whoever wrote it as a flag it is not: so the settings are asked as they are.
	for _, err := range []error{flags.Named(options.Streams.Validate()), flags.Named(options.WithDefaults().Validate())} {
		for _, sentence := range process.Sentences(err) {
			if !slices.Contains(problems, sentence) {
				problems = append(problems, sentence)
			}
		}
	}
	return options, problems
}

// positive gives value, or 0 and a problem.
func positive[T int | time.Duration](problems *[]string, flag string, value T) T {
	if value <= 0 {
		*problems = append(*problems, flag+" must be positive")
		return 0
	}
	return value
}

// load reads the installed files.
func (s *settings) load() (installed *registry.Installed, problems []string) {
	for _, missing := range s.Installed.Missing() {
		problems = append(problems, missing+" must be given")
	}
	if len(problems) > 0 {
		return nil, problems
	}
	files, err := registry.ReadFiles(s.Installed.Hooks, s.Installed.Profiles)
	if err != nil {
		return nil, process.Sentences(err)
	}
	installed, err = registry.Load(files)
	return installed, process.Sentences(err)
}
