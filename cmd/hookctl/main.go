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

	"github.com/afterwrite/afterwrite/internal/version"
)

type commands struct {
	Demo    demoCommand      `cmd:"" help:"Start everything in one process, feed it receipts, and print what became of each."`
	Dev     devCommand       `cmd:"" help:"Start everything in one process and stay up, for other programs to join."`
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

// streamsIO are the command's standard streams.
type streamsIO struct {
	in       io.Reader
	out, err io.Writer
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], streamsIO{os.Stdin, os.Stdout, os.Stderr})
	stop()
	os.Exit(code)
}

func run(ctx context.Context, args []string, std streamsIO) int {
	exit := -1
	parser, err := kong.New(new(commands),
		kong.Name("hookctl"),
		kong.Description("Look at, feed and operate Afterwrite."),
		kong.UsageOnError(),
		kong.Vars{"version": version.String()},
		kong.Writers(std.out, std.err),
		kong.Exit(func(code int) { exit = code }),
		kong.BindTo(ctx, (*context.Context)(nil)),
		kong.Bind(std),
	)
	if err != nil {
		panic(err) // the grammar above is wrong, which every test sees
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
	}
	_, _ = fmt.Fprintf(std.err, "hookctl: %v\n", err)
	return exitFailed
}
