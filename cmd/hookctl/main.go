// Command hookctl is the operator's and the newcomer's tool.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/alecthomas/kong"

	"github.com/afterwrite/afterwrite/events"
	"github.com/afterwrite/afterwrite/internal/flags"
	"github.com/afterwrite/afterwrite/internal/version"
)

type commands struct {
	Demo demoCommand `cmd:"" help:"Start everything in one process, feed it receipts, and print what became of each."`
	Dev  devCommand  `cmd:"" help:"Start everything in one process and stay up, for other programs to join."`

	Receipt struct {
		Publish receiptPublish `cmd:"" help:"Publish receipts, each once."`
		Check   receiptCheck   `cmd:"" help:"Say what would become of receipts, without a broker."`
	} `cmd:"" help:"Receipts of durable writebacks."`
	Dispatch struct {
		List    dispatchList    `cmd:"" help:"List dispatches by their last record."`
		Show    dispatchShow    `cmd:"" help:"Show everything that is recorded about a dispatch."`
		Redrive dispatchRedrive `cmd:"" help:"Have failed dispatches tried anew."`
	} `cmd:"" help:"Dispatches: hooks applied to receipts."`
	Intent struct {
		List   intentList   `cmd:"" help:"List intents."`
		Watch  intentWatch  `cmd:"" help:"Print intents as they come, until interrupted."`
		Accept intentAccept `cmd:"" help:"Accept an intent that waits for a person, as granted or narrower."`
		Refuse intentRefuse `cmd:"" help:"Refuse an intent that waits for a person, for good."`
	} `cmd:"" help:"Intents: what was proposed."`
	Execution struct {
		List executionList `cmd:"" help:"List executions by their last record."`
		Show executionShow `cmd:"" help:"Show everything that executors recorded about an intent."`
	} `cmd:"" help:"Executions: what executors did about intents."`
	Hooks struct {
		Check hooksCheck `cmd:"" help:"Check hook files and the profiles file before they are installed."`
	} `cmd:"" help:"Hook files and profiles."`
	Streams struct {
		Plan  streamsPlan  `cmd:"" help:"Say how the broker differs from the topology, and what apply would do."`
		Apply streamsApply `cmd:"" help:"Make the broker hold the topology, losing nothing."`
	} `cmd:"" help:"The streams and their consumers."`
	Status statusCommand `cmd:"" help:"Show how everything is: streams, consumers, dispatchers, hooks, failures, conflicts."`
	Doctor doctorCommand `cmd:"" help:"Look for what is wrong, and say what to do about it."`
	Bench  benchCommand  `cmd:"" help:"Measure what this machine and a broker can do, touching nothing that is there."`

	Version kong.VersionFlag `help:"Print the version and exit."`
}

// Exit codes.
const (
	exitOK = iota
	// exitUnmet: the command worked, and what it found is not as expected.
	exitUnmet
	// exitFailed: the command could not do its work.
	exitFailed
)

// errUnmet ends a command that has already said what is not as expected.
var errUnmet = errors.New("not as expected")

// stdio are the command's standard streams.
type stdio struct {
	in       io.Reader
	out, err io.Writer
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// Once stopping has begun, a second signal ends the process at once.
	context.AfterFunc(ctx, stop)
	os.Exit(run(ctx, os.Args[1:], stdio{os.Stdin, os.Stdout, os.Stderr}))
}

func run(ctx context.Context, args []string, std stdio) int {
	exit := -1
	parser, err := newParser(ctx, std, func(code int) { exit = code })
	if err != nil {
		panic(err) // the grammar above is wrong, which every test sees
	}
	if len(args) == 0 {
		args = []string{"--help"}
	}
	parsed, err := parser.Parse(args)
	if exit >= 0 {
		return exit // help or version was printed
	}
	if err == nil {
		err = parsed.Run()
	}
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, errUnmet):
		return exitUnmet
	case errors.Is(err, context.Canceled) && ctx.Err() != nil:
		err = errors.New("interrupted")
	}
	_, _ = fmt.Fprintf(std.err, "hookctl: %v\n", err)
	return exitFailed
}

func newParser(ctx context.Context, std stdio, exit func(int)) (*kong.Kong, error) {
	return kong.New(new(commands),
		kong.Name("hookctl"),
		kong.Description("Look at, feed and operate Afterwrite. Exits with 0 if all is as expected, 1 if not, "+
			"and 2 if a command could not do its work."),
		kong.ConfigureHelp(kong.HelpOptions{NoExpandSubcommands: true}),
		flags.StreamsVars(),
		kong.Vars{
			"version":              version.String(),
			"executionStatuses":    joined(events.ExecutionStatuses(), ","),
			"executionStatusNames": joined(events.ExecutionStatuses(), ", "),
		},
		kong.Writers(std.out, std.err),
		kong.Exit(exit),
		kong.BindTo(ctx, (*context.Context)(nil)),
		kong.Bind(std),
	)
}
