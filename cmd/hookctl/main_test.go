package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/rogpeppe/go-internal/testscript"
	"go.uber.org/zap"

	"github.com/afterwrite/afterwrite/executors"
	"github.com/afterwrite/afterwrite/internal/flags"
	"github.com/afterwrite/afterwrite/internal/natsembed"
	"github.com/afterwrite/afterwrite/providers"
	"github.com/afterwrite/afterwrite/providers/periodicreport"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"hookctl":  main,
		"provider": func() { joins("provider", serveReport) },
		"executor": func() { joins("executor", executeGrants) },
		"broker":   func() { joins("broker", runBroker) },
	})
}

// joins runs a program that joins a broker, until it is interrupted.
func joins(name string, run func(ctx context.Context, url string, log *zap.Logger) error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	log := flags.Log{LogFormat: flags.LogConsole}.Logger(os.Stderr)
	err := run(ctx, os.Getenv("AFTERWRITE_NATS_URL"), log)
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(1)
	}
}

func serveReport(ctx context.Context, url string, log *zap.Logger) error {
	nc, err := nats.Connect(url)
	if err != nil {
		return err
	}
	defer nc.Close()
	report, err := periodicreport.Provider()
	if err != nil {
		return err
	}
	return providers.Serve(ctx, nc, periodicreport.CapabilityID, report, providers.WithLogger(log))
}

func executeGrants(ctx context.Context, url string, log *zap.Logger) error {
	data, err := os.ReadFile(os.Args[1])
	if err != nil {
		return err
	}
	file, err := executors.ParseGrants(data)
	if err != nil {
		return err
	}
	process, err := executors.New(executors.Options{Executor: file.Executor, Grants: file.Grants, URL: url, Log: log})
	if err != nil {
		return err
	}
	return process.Run(ctx)
}

// runBroker runs a broker that holds nothing, and writes where it is to the file named first.
func runBroker(ctx context.Context, _ string, _ *zap.Logger) error {
	server, err := natsembed.Start(natsembed.Options{StoreDir: os.Args[1] + ".store", MaxStoreBytes: 1 << 40})
	if err != nil {
		return err
	}
	defer server.Shutdown()
	half := os.Args[1] + ".half"
	if err := errors.Join(os.WriteFile(half, []byte(server.ClientURL()), 0o600), os.Rename(half, os.Args[1])); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		Deadline:            time.Now().Add(5 * time.Minute), // what hangs is killed, and told
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(env *testscript.Env) error {
			env.Setenv("USER", "ann")
			for _, name := range []string{"longhorizon.jsonl", "refused.jsonl"} {
				data, err := os.ReadFile("testdata/" + name)
				if err != nil {
					return err
				}
				if err := os.WriteFile(env.WorkDir+"/"+name, data, 0o600); err != nil {
					return err
				}
			}
			return nil
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"join":       joinBroker,
			"exits":      exits,
			"says":       says,
			"eventually": eventually,
		},
	})
}

const patience = 20 * time.Second

// within asks until it is so, or patience is at an end.
func within(ts *testscript.TestScript, what string, so func() bool) {
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	for tick := time.NewTicker(10 * time.Millisecond); ; {
		if so() {
			tick.Stop()
			return
		}
		select {
		case <-tick.C:
		case <-deadline.C:
			ts.Fatalf("%s did not come about", what)
		}
	}
}

// joinBroker waits for the file that a broker writes its address to, and sets PORT too: join FILE.
func joinBroker(ts *testscript.TestScript, _ bool, args []string) {
	name := ts.MkAbs(args[0])
	within(ts, "the file "+args[0], func() bool {
		data, err := os.ReadFile(name)
		address := strings.TrimSpace(string(data))
		ts.Setenv("AFTERWRITE_NATS_URL", address)
		ts.Setenv("PORT", address[strings.LastIndexByte(address, ':')+1:])
		return err == nil
	})
}

// exits holds a command to its exit code: exits CODE COMMAND....
func exits(ts *testscript.TestScript, _ bool, args []string) {
	code := 0
	err := ts.Exec(args[1], args[2:]...)
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		code = exit.ExitCode()
	} else if err != nil {
		ts.Fatalf("%v", err)
	}
	if strconv.Itoa(code) != args[0] {
		ts.Fatalf("exit code %d, want %s; said: %s%s", code, args[0], ts.ReadFile("stdout"), ts.ReadFile("stderr"))
	}
}

// says holds hookctl to failing with one sentence and nothing else: says SENTENCE ARGUMENT....
func says(ts *testscript.TestScript, _ bool, args []string) {
	exits(ts, false, append([]string{strconv.Itoa(exitFailed), "hookctl"}, args[1:]...))
	if got, want := ts.ReadFile("stderr"), "hookctl: "+args[0]+"\n"; got != want || ts.ReadFile("stdout") != "" {
		ts.Fatalf("said %q and printed %q, want to say %q", got, ts.ReadFile("stdout"), want)
	}
}

// eventually repeats a command until it prints what matches: eventually REGEXP COMMAND....
func eventually(ts *testscript.TestScript, _ bool, args []string) {
	want := regexp.MustCompile("(?m)" + args[0])
	within(ts, args[0], func() bool {
		return ts.Exec(args[1], args[2:]...) == nil && want.MatchString(ts.ReadFile("stdout"))
	})
}
