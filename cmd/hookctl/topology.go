package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/afterwrite/afterwrite/dispatcher/registry"
	"github.com/afterwrite/afterwrite/events"
	"github.com/afterwrite/afterwrite/executors"
	"github.com/afterwrite/afterwrite/internal/flags"
	"github.com/afterwrite/afterwrite/streams"
)

// topology is what the flags say that the broker is to hold.
type topology struct {
	Streams   flags.Streams   `embed:"" group:"Streams:"`
	Installed flags.Installed `embed:"" group:"What is installed:"`
	Grants    []string        `type:"existingfile" placeholder:"FILE" group:"What is installed:" help:"Grants files of executors whose consumers are to be created; without, each executor creates its own."`
	Format    format          `embed:""`
	Broker    broker          `embed:""`
}

func (t topology) build() (streams.Topology, error) {
	files, err := readInstalled(t.Installed)
	if err != nil {
		return streams.Topology{}, err
	}
	installed, err := registry.Load(files)
	if err != nil {
		return streams.Topology{}, err
	}
	settings := t.Streams.Settings()
	settings.RetryHorizon = installed.RetryHorizon()
	settings.Hooks = slices.Sorted(maps.Keys(installed.Hooks))
	for _, name := range t.Grants {
		data, err := os.ReadFile(name)
		if err != nil {
			return streams.Topology{}, fmt.Errorf("read the grants: %w", err)
		}
		file, err := executors.ParseGrants(data)
		if err != nil {
			return streams.Topology{}, fmt.Errorf("%s: %w", name, err)
		}
		for _, grant := range file.Grants {
			settings.Executors = append(settings.Executors, streams.Executor{
				Executor: file.Executor, Kind: grant.IntentKind, Start: grant.From,
			})
		}
	}
	if err := settings.Validate(); err != nil {
		return streams.Topology{}, flags.Named(err)
	}
	return streams.Default(settings), nil
}

// change is one step of apply, or what it leaves alone.
type change struct {
	Action string `json:"action"`
	Stream string `json:"stream"`
	// Consumer is null for the stream itself.
	Consumer events.Optional `json:"consumer"`
	// Fields that differ, none where the whole thing is created, deleted or left alone.
	Fields []fieldChange `json:"fields"`
	// Remedy is what to do about what apply does not do.
	Remedy events.Optional `json:"remedy"`
}

type fieldChange struct {
	Field string `json:"field"`
	Have  string `json:"have"`
	Want  string `json:"want"`
}

// leaveAlone is a consumer that is not of the topology. It hinders nobody.
const leaveAlone = "leave_alone"

func changeOf(c streams.Change) change {
	out := change{Action: string(c.Action), Stream: c.Stream, Consumer: events.Optional(c.Consumer)}
	var remedies []string
	for _, d := range c.Differences {
		out.Fields = append(out.Fields, fieldChange{d.Field, d.Have, d.Want})
		if c.Action == streams.Refuse && !slices.Contains(remedies, d.Remedy) {
			remedies = append(remedies, d.Remedy)
		}
	}
	out.Remedy = events.Optional(strings.Join(remedies, "; "))
	return out
}

func (c change) cells() []string {
	var fields []string
	for _, f := range c.Fields {
		fields = append(fields, fmt.Sprintf("%s %s → %s", f.Field, f.Have, f.Want))
	}
	return []string{
		strings.ReplaceAll(c.Action, "_", " "), c.Stream, string(c.Consumer),
		join(strings.Join(fields, ", "), string(c.Remedy), "; "),
	}
}

var changeHeadings = []string{"ACTION", "STREAM", "CONSUMER", "WHAT"}

type streamsPlan struct {
	Topology           topology `embed:""`
	Rate               float64  `default:"10" group:"Load:" help:"Dispatches a second, to estimate the broker's memory."`
	IntentsPerDispatch float64  `default:"1" group:"Load:" help:"Intents of a dispatch, on the mean."`
	ExecutorsPerIntent float64  `default:"1" group:"Load:" help:"Executors that take each intent."`
}

// planned is the last line of a plan.
type planned struct {
	Changes      int   `json:"changes"`
	Refused      int   `json:"refused"`
	BrokerMemory int64 `json:"broker_memory_bytes"`
}

// Run lists what differs. A broker that is as the topology says is as expected.
func (c *streamsPlan) Run(ctx context.Context, std stdio) error {
	if c.Rate < 0 || c.IntentsPerDispatch < 0 || c.ExecutorsPerIntent < 0 {
		return errors.New("--rate, --intents-per-dispatch and --executors-per-intent must not be negative")
	}
	t, err := c.Topology.build()
	if err != nil {
		return err
	}
	return c.Topology.Broker.ask(ctx, func(ctx context.Context, js jetstream.JetStream) error {
		steps, err := streams.Plan(ctx, js, t)
		if err != nil {
			return err
		}
		differences, err := streams.Check(ctx, js, t)
		if err != nil {
			return err
		}
		l := listing[change]{headings: changeHeadings, cells: change.cells, nothing: "The broker holds the topology: nothing to do."}
		summary := planned{Changes: len(steps), BrokerMemory: t.BrokerMemory(streams.Load{
			DispatchesPerSecond: c.Rate, IntentsPerDispatch: c.IntentsPerDispatch, ExecutorsPerIntent: c.ExecutorsPerIntent,
		})}
		for _, step := range steps {
			l.found = append(l.found, changeOf(step))
			if step.Action == streams.Refuse {
				summary.Refused++
				summary.Changes--
			}
		}
		for _, d := range differences {
			if d.Kind == streams.Extra {
				l.found = append(l.found, change{
					Action: leaveAlone, Stream: d.Stream, Consumer: events.Optional(d.Consumer), Remedy: events.Optional(d.Remedy),
				})
			}
		}
		if err := l.print(std.out, c.Topology.Format); err != nil {
			return err
		}
		if c.Topology.Format.JSON {
			err = printLines(std.out, []map[string]planned{{"summary": summary}})
		} else {
			_, err = fmt.Fprintf(std.out, "\n%g dispatches/s × %g intents/dispatch × %g executors/intent: "+
				"about %s of memory at each replica of the broker.\n",
				c.Rate, c.IntentsPerDispatch, c.ExecutorsPerIntent, bytesText(summary.BrokerMemory))
		}
		if err == nil && len(steps) > 0 {
			return errUnmet
		}
		return err
	})
}

type streamsApply struct {
	Topology topology `embed:""`
}

// Run applies the topology. If a difference is refused, it changes nothing.
func (c *streamsApply) Run(ctx context.Context, std stdio) error {
	t, err := c.Topology.build()
	if err != nil {
		return err
	}
	return c.Topology.Broker.ask(ctx, func(ctx context.Context, js jetstream.JetStream) error {
		steps, err := streams.Apply(ctx, js, t)
		l := listing[change]{headings: changeHeadings, cells: change.cells, nothing: "The broker holds the topology: nothing to do."}
		for _, step := range steps {
			l.found = append(l.found, changeOf(step))
		}
		return l.tell(std.out, c.Topology.Format, err)
	})
}

// bytesText is a number of bytes as people are told it.
func bytesText(n int64) string {
	units := []string{"bytes", "KiB", "MiB", "GiB", "TiB"}
	value, at := float64(n), 0
	for value >= 1024 && at < len(units)-1 {
		value, at = value/1024, at+1
	}
	return fmt.Sprintf("%.3g %s", value, units[at])
}
