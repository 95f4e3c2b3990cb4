package process

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/alecthomas/kong"

	"github.com/afterwrite/afterwrite/internal/version"
)

// Exit codes. Zero is an orderly stop.
const (
	ExitStopped = iota
	// ExitFailed: it ran, or tried to, and could not go on.
	ExitFailed
	// ExitRefused: the settings are not ones to start with.
	ExitRefused
)

// Command is a command that runs until it is told to stop.
type Command struct {
	Name        string
	Description string
	// Settings points to the struct of its flags. Vars are the variables in their tags, beside the version.
	Settings any
	Vars     kong.Vars
	// Prepare is called once the settings are read. It gives what is wrong with them, a sentence each, or what to run, which
	// is nil if there was something to check and nothing to run. The run ends with ctx; its log goes to stderr.
	Prepare func() (run func(ctx context.Context, stderr io.Writer) error, problems []string)
}

// Main runs the command as this process, until a signal asks it to stop. A second one ends it at once.
func (c Command) Main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	os.Exit(c.Run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// Run runs the command until ctx ends, and gives its exit code.
func (c Command) Run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	exit := -1
	parser, err := kong.New(c.Settings,
		kong.Name(c.Name),
		kong.Description(c.Description),
		kong.DefaultEnvars("AFTERWRITE"),
		kong.Vars{"version": version.String()},
		c.Vars,
		kong.Writers(stdout, stderr),
		kong.Exit(func(code int) { exit = code }),
	)
	if err != nil {
		panic(err) // the grammar of the settings is wrong, which every test sees
	}
	_, err = parser.Parse(args)
	if exit >= 0 {
		return exit // help or version was printed
	}
	if err != nil {
		c.say(stderr, err)
		return ExitRefused
	}
	run, problems := c.Prepare()
	if len(problems) > 0 {
		_, _ = fmt.Fprintln(stderr, c.Name+": will not start with these settings")
		for _, problem := range problems {
			_, _ = fmt.Fprintln(stderr, " ", problem)
		}
		return ExitRefused
	}
	if run == nil {
		return ExitStopped
	}
	if err := run(ctx, stderr); err != nil {
		c.say(stderr, err)
		return ExitFailed
	}
	return ExitStopped
}

// say writes an error under the command's name, which those of the package of that name bear already.
func (c Command) say(w io.Writer, err error) {
	prefix := c.Name + ": "
	_, _ = fmt.Fprintln(w, prefix+strings.TrimPrefix(err.Error(), prefix))
}

// Sentences takes apart an error that lists everything that is wrong, a line each.
func Sentences(err error) []string {
	if err == nil {
		return nil
	}
	var all []string
	for line := range strings.Lines(err.Error()) {
		all = append(all, strings.TrimSpace(line))
	}
	return all
}
