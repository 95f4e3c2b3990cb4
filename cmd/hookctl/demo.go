package main

import (
	"context"
	_ "embed"
	"fmt"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/afterwrite/afterwrite/internal/flags"
	"github.com/afterwrite/afterwrite/internal/natsembed"
	"github.com/afterwrite/afterwrite/internal/stack"
)

// demoReceipts show each outcome once.
//
//go:embed demo.jsonl
var demoReceipts []byte

// demoProfiles are the profile that the receipts name, and one that is switched off.
//
//go:embed profiles.yaml
var demoProfiles []byte

type demoCommand struct {
	Receipts string        `placeholder:"FILE" help:"Receipts, one JSON document a line; by default a built-in set; - is standard input."`
	JSON     bool          `name:"json" help:"Print one JSON object a line and a last one with the summary."`
	Verbose  bool          `short:"v" help:"Log what every part does, on the standard error stream."`
	Timeout  time.Duration `default:"1m" help:"Give up after this long."`
}

// Run starts the stack in a temporary directory, feeds it, and ends it.
func (c *demoCommand) Run(ctx context.Context, std stdio) error {
	lines, err := c.lines(std)
	if err != nil {
		return err
	}
	dir, remove, err := temporaryDir()
	if err != nil {
		return err
	}
	defer remove()
	ctx, cancel := context.WithTimeoutCause(ctx, c.Timeout, fmt.Errorf("not done within --timeout, %s", c.Timeout))
	defer cancel()

	logger := zap.NewNop()
	if c.Verbose {
		logger = flags.Log{LogLevel: zapcore.InfoLevel, LogFormat: flags.LogConsole}.Logger(std.err)
	}
	s, err := stack.Start(ctx, stack.Options{Broker: natsembed.Options{StoreDir: dir}, Profiles: demoProfiles, Logger: logger})
	if err != nil {
		return err
	}
	report, err := feed(ctx, s, lines)
	if stopErr := s.Stop(); err == nil {
		err = stopErr
	}
	if err != nil {
		return err
	}
	if err := report.print(std.out, format{c.JSON}); err != nil {
		return err
	}
	if !report.met() {
		return errUnmet
	}
	return nil
}

func (c *demoCommand) lines(std stdio) ([]line, error) {
	if c.Receipts == "" {
		return parseReceipts("the built-in set", demoReceipts)
	}
	return readReceipts(c.Receipts, std.in)
}
