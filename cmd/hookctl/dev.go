package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"go.uber.org/zap/zapcore"

	"github.com/afterwrite/afterwrite/internal/flags"
	"github.com/afterwrite/afterwrite/internal/natsembed"
	"github.com/afterwrite/afterwrite/internal/stack"
	"github.com/afterwrite/afterwrite/streams"
)

type devCommand struct {
	Dir             string          `type:"path" placeholder:"DIR" help:"Where to keep the streams; by default a temporary directory that is removed at the end."`
	Host            string          `default:"127.0.0.1" help:"Address to listen on."`
	Port            int             `default:"4222" help:"Port to listen on; 0 takes a free one."`
	AddressFile     string          `type:"path" placeholder:"FILE" help:"Write the broker's address to this file once everything takes work."`
	Listen          string          `default:"127.0.0.1:0" help:"Address for the dispatcher's health and metrics."`
	DuplicateWindow time.Duration   `default:"10m" help:"How long the broker drops a receipt that it has already taken; at least 100ms."`
	Installed       flags.Installed `embed:"" group:"Beside the periodic report, by default nothing:"`
	NoProvider      bool            `help:"Leave the periodic-report provider out, to run your own."`
	NoExecutor      bool            `help:"Leave the periodic-report executor out, to run your own."`
	LogLevel        zapcore.Level   `default:"info" help:"One of debug, info, warn, error."`
}

// Run starts the stack and stays up until it is interrupted.
func (c *devCommand) Run(ctx context.Context, std stdio) error {
	options, err := c.options(std)
	if err != nil {
		return err
	}
	if options.Broker.StoreDir == "" {
		temporary, remove, err := temporaryDir()
		if err != nil {
			return err
		}
		defer remove()
		options.Broker.StoreDir = temporary
	}
	s, err := stack.Start(ctx, options)
	if err != nil {
		return err
	}
	if err := c.announce(std.out, s, options.Broker.StoreDir); err != nil {
		return errors.Join(err, s.Stop())
	}
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

func (c *devCommand) options(std stdio) (stack.Options, error) {
	if c.Port < 0 || c.Port > 65535 {
		return stack.Options{}, errors.New("--port must be from 0 to 65535")
	}
	if c.DuplicateWindow <= 0 {
		return stack.Options{}, errors.New("--duplicate-window must be at least 100ms")
	}
	options := stack.Options{
		Broker:     natsembed.Options{StoreDir: c.Dir, Host: c.Host, Port: c.Port},
		Streams:    streams.Settings{DuplicateWindow: c.DuplicateWindow},
		Profiles:   demoProfiles,
		NoProvider: c.NoProvider,
		NoExecutor: c.NoExecutor,
		Logger:     flags.Log{LogLevel: c.LogLevel, LogFormat: flags.LogConsole}.Logger(std.err),
	}
	options.Dispatcher.Listen = c.Listen
	if len(c.Installed.Missing()) == 2 {
		return options, nil
	}
	files, err := readInstalled(c.Installed)
	if err != nil {
		return stack.Options{}, err
	}
	options.Hooks, options.Profiles = files.Hooks, files.Profiles.Data
	return options, nil
}

// announce says where everything is, and that it is ready.
func (c *devCommand) announce(w io.Writer, s *stack.Stack, dir string) error {
	facts := [][2]string{{"broker", s.URL()}, {"store", dir}}
	if at := s.Dispatcher.Addr(); at != nil {
		facts = append(facts, [2]string{"health", "http://" + at.String() + "/readyz"})
	}
	if err := printFacts(w, facts); err != nil {
		return err
	}
	if c.AddressFile != "" {
		// Whoever waits for the file must not find half of it.
		half := c.AddressFile + ".half"
		if err := errors.Join(os.WriteFile(half, []byte(s.URL()+"\n"), 0o600), os.Rename(half, c.AddressFile)); err != nil {
			return fmt.Errorf("write --address-file: %w", err)
		}
	}
	_, err := fmt.Fprintln(w, "Ready. Interrupt to stop.")
	return err
}

// temporaryDir makes a directory for the streams, and gives what removes it.
func temporaryDir() (dir string, remove func(), err error) {
	dir, err = os.MkdirTemp("", "afterwrite-")
	if err != nil {
		return "", nil, fmt.Errorf("make a directory for the streams: %w", err)
	}
	return dir, func() { _ = os.RemoveAll(dir) }, nil // what stays is where the system clears up
}
