package main

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"time"

	"go.uber.org/zap"

	"github.com/afterwrite/afterwrite/internal/natsembed"
	"github.com/afterwrite/afterwrite/internal/stack"
	"github.com/afterwrite/afterwrite/streams"
)

//go:embed demo.jsonl
var demoReceipts []byte

type demoCommand struct {
	Receipts string        `type:"existingfile" help:"A file of receipts, one JSON document a line; by default a built-in set."`
	JSON     bool          `name:"json" help:"Print one JSON object a line and a last one with the summary."`
	Verbose  bool          `short:"v" help:"Log what every part does, on the standard error stream."`
	Timeout  time.Duration `default:"1m" help:"Give up after this long."`
}

// Run starts the stack in a temporary directory, feeds it, and ends it.
func (c *demoCommand) Run(ctx context.Context, std streamsIO) error {
	lines, err := readLines(c.Receipts)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "afterwrite-demo-")
	if err != nil {
		return fmt.Errorf("make a directory for the demo: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }() // it is under the system's own for temporary files
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()

	s, err := stack.Start(ctx, stack.Options{
		Broker: natsembed.Options{StoreDir: dir},
		Logger: newLogger(std, c.Verbose),
	})
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
	if err := report.print(std.out, c.JSON); err != nil {
		return err
	}
	if !report.met() {
		return errUnmet
	}
	return nil
}

func newLogger(std streamsIO, verbose bool) *zap.Logger {
	if !verbose {
		return zap.NewNop()
	}
	config := zap.NewDevelopmentConfig()
	config.DisableStacktrace = true
	return zap.New(newConsoleCore(std.err, config))
}

type devCommand struct {
	Dir             string        `type:"path" help:"Where to keep the streams; by default a temporary directory that is removed at the end."`
	Host            string        `default:"127.0.0.1" help:"Address to listen on."`
	Port            int           `default:"4222" help:"Port to listen on; 0 takes a free one."`
	DuplicateWindow time.Duration `default:"10m" help:"How long the broker drops a receipt that it has already taken; at least 100ms."`
	Listen          string        `default:"127.0.0.1:0" help:"Address for the dispatcher's health and metrics."`
	NoProvider      bool          `help:"Leave the periodic-report provider out, to run your own."`
	NoExecutor      bool          `help:"Leave the periodic-report executor out, to run your own."`
}

// Run starts the stack and stays up until it is interrupted.
func (c *devCommand) Run(ctx context.Context, std streamsIO) error {
	dir := c.Dir
	if dir == "" {
		temporary, err := os.MkdirTemp("", "afterwrite-dev-")
		if err != nil {
			return fmt.Errorf("make a directory for the streams: %w", err)
		}
		defer func() { _ = os.RemoveAll(temporary) }() // it is under the system's own for temporary files
		dir = temporary
	}
	port := c.Port
	if port == 0 {
		port = -1
	}
	options := stack.Options{
		Broker:     natsembed.Options{StoreDir: dir, Host: c.Host, Port: port},
		Streams:    streams.Settings{DuplicateWindow: c.DuplicateWindow},
		NoProvider: c.NoProvider,
		NoExecutor: c.NoExecutor,
		Logger:     newLogger(std, true),
	}
	options.Dispatcher.Listen = c.Listen
	s, err := stack.Start(ctx, options)
	if err != nil {
		return err
	}
	_, _ = fmt.Fprintf(std.out, "broker   %s\nhealth   http://%s/readyz\nstore    %s\nReady. Interrupt to stop.\n",
		s.URL(), s.Dispatcher.Addr(), dir)
	failed := make(chan error, 1)
	go func() { failed <- s.Wait() }()
	select {
	case <-ctx.Done():
		return s.Stop()
	case err := <-failed:
		_ = s.Stop() // what failed is what there is to say
		return err
	}
}
