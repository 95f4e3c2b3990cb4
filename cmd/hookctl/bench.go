package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/afterwrite/afterwrite/internal/flags"
	"github.com/afterwrite/afterwrite/internal/natsconn"
	"github.com/afterwrite/afterwrite/streams"
)

type benchCommand struct {
	format
	NATS     natsconn.Flags  `embed:"" group:"Broker:"`
	Storage  streams.Storage `env:"AFTERWRITE_STORAGE" enum:"file,memory" default:"${storage}" help:"Where the broker keeps the temporary streams: file or memory."`
	Replicas int             `env:"AFTERWRITE_REPLICAS" default:"${replicas}" help:"Replicas of every temporary stream: 1, 3 or 5."`
	Duration time.Duration   `default:"10s" help:"How long to measure, at least 1s."`
}

// Help implements kong.HelpProvider.
func (benchCommand) Help() string {
	return `Measures how many dispatches a second this machine and your broker can do, and how much of that the dispatcher
leaves you. The floor is the broker's operations for a dispatch and nothing else, written the usual way; ours is the
same with a lane of the dispatcher doing all it does. Both run in this process, one after the other, several times.

It touches nothing of Afterwrite's: it creates streams of its own, whose names begin with ` + benchStreams + `, and
deletes them. What a bench that was killed leaves behind is empty after an hour, and the next bench deletes it. It
needs the right to create streams, and takes up to a quarter of a gigabyte for each of three streams.`
}

const (
	leastBench = time.Second
	// benchRounds is how often floor and ours take turns.
	benchRounds = 2
	// preloadShare is the part of a turn in which receipts are published beforehand.
	preloadShare = 4
	cleanUpWait  = 10 * time.Second
)

// benchVariant works off the receipts of a set of streams, and counts those it has acknowledged.
type benchVariant struct {
	name    string
	receipt func(set *benchSet, i int) *nats.Msg
	start   func(ctx context.Context, set *benchSet, done *atomic.Int64, fail context.CancelCauseFunc) (stop func(), err error)
}

// benchReport is what the command prints.
type benchReport struct {
	Floor    float64         `json:"floor_dispatches_per_second"`
	Ours     float64         `json:"ours_dispatches_per_second"`
	Ratio    float64         `json:"ratio"`
	Storage  streams.Storage `json:"storage"`
	Replicas int             `json:"replicas"`
	Cores    int             `json:"cores"`
	Server   string          `json:"server_version"`
}

// Run measures, and cleans up whatever happens.
func (c *benchCommand) Run(ctx context.Context, std stdio) error {
	if c.Duration < leastBench {
		return fmt.Errorf("--duration must be at least %s", leastBench)
	}
	settings := streams.Settings{Storage: c.Storage, Replicas: c.Replicas}.WithDefaults()
	if err := settings.Validate(); err != nil {
		return flags.Named(err)
	}
	nc, err := natsconn.Connect(natsconn.Options{Flags: c.NATS, Name: "hookctl bench"})
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(benchOutstanding))
	if err != nil {
		return fmt.Errorf("open JetStream: %w", err)
	}
	if err := deleteLeftovers(ctx, js, time.Now()); err != nil {
		return err
	}
	report := benchReport{Storage: settings.Storage, Replicas: settings.Replicas, Cores: runtime.NumCPU(), Server: nc.ConnectedServerVersion()}
	turn := c.Duration / (2 * benchRounds)
	for range benchRounds {
		for _, v := range []struct {
			benchVariant
			rate *float64
		}{{benchFloor, &report.Floor}, {benchOurs, &report.Ours}} {
			rate, err := measureVariant(ctx, js, settings, v.benchVariant, turn)
			if err != nil {
				return fmt.Errorf("measure %s: %w", v.name, err)
			}
			*v.rate += rate / benchRounds
		}
	}
	report.Ratio = report.Ours / report.Floor
	return report.print(std, c.format)
}

func (r benchReport) print(std stdio, f format) error {
	if f.JSON {
		return printLines(std.out, []benchReport{r})
	}
	return printFacts(std.out, [][2]string{
		{"floor", fmt.Sprintf("%.0f dispatches/s", r.Floor)},
		{"ours", fmt.Sprintf("%.0f dispatches/s", r.Ours)},
		{"ratio", fmt.Sprintf("%.2f", r.Ratio)},
		{"broker", fmt.Sprintf("%s, %s storage, %s", r.Server, r.Storage, counted(r.Replicas, "replica", "replicas"))},
		{"here", counted(r.Cores, "core", "cores")},
	})
}

var (
	errTooFew = errors.New("the broker took too few receipts to measure anything: give --duration more time")
	errNoneIn = errors.New("no dispatch was done in time: give --duration more time")
)

// measureVariant gives dispatches a second: receipts are published for a part of the turn and worked off in the rest.
func measureVariant(
	ctx context.Context, js jetstream.JetStream, settings streams.Settings, v benchVariant, turn time.Duration,
) (rate float64, err error) {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	set := newBenchSet(js)
	defer func() {
		// An interrupted bench cleans up too.
		cleaning, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUpWait)
		defer cancel()
		err = errors.Join(err, set.delete(cleaning))
	}()
	if err := set.create(ctx, settings); err != nil {
		return 0, err
	}
	n, err := set.publish(ctx, turn/preloadShare, func(i int) *nats.Msg { return v.receipt(set, i) })
	if err != nil {
		return 0, err
	}
	if n < benchFewest {
		return 0, errTooFew
	}
	var done atomic.Int64
	stop, err := v.start(ctx, set, &done, fail)
	if err != nil {
		return 0, err
	}
	defer stop()
	return paceOf(ctx, &done, int64(n), turn-turn/preloadShare)
}

// benchFewest receipts make a measurement.
const benchFewest = 20

// progress is how many dispatches were done by when.
type progress struct {
	at   time.Time
	done int64
}

// paceOf watches done grow to n, for as long as given, or longer where less than a tenth is done by then.
func paceOf(ctx context.Context, done *atomic.Int64, n int64, long time.Duration) (float64, error) {
	const patience = 10
	poll := time.NewTicker(2 * time.Millisecond)
	defer poll.Stop()
	seen := []progress{{time.Now(), done.Load()}}
	for ended := false; !ended; {
		select {
		case <-poll.C:
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
		p := progress{time.Now(), done.Load()}
		seen = append(seen, p)
		took := p.at.Sub(seen[0].at)
		ended = p.done == n || took > patience*long || took > long && p.done >= n/10
	}
	return pace(seen)
}

// pace is that of the middle: from the first tenth, in which things only start, to the last, in which ever less is
// under way. Where there is no middle to be seen, it is of the whole.
func pace(seen []progress) (float64, error) {
	first, last := seen[0], seen[len(seen)-1]
	reached := func(part int64) progress {
		return seen[slices.IndexFunc(seen, func(p progress) bool { return p.done >= last.done*part/10 })]
	}
	if from, to := reached(1), reached(9); to.done > from.done {
		first, last = from, to
	}
	if first.done == last.done {
		return 0, errNoneIn
	}
	return float64(last.done-first.done) / last.at.Sub(first.at).Seconds(), nil
}
