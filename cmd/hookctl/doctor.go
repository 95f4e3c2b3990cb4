package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/afterwrite/afterwrite/events"
	"github.com/afterwrite/afterwrite/streams"
)

type doctorCommand struct {
	Topology      topology      `embed:""`
	SkewAllowance time.Duration `env:"AFTERWRITE_SKEW_ALLOWANCE" default:"5s" help:"How far the broker's clock and this machine's may differ."`
}

// check is one thing that the doctor looks at.
type check string

const (
	// checkSettings: the flags, the hook files, the profiles and the grants agree.
	checkSettings check = "settings"
	// checkBroker: it is reached, is new enough, and has JetStream.
	checkBroker check = "broker"
	// checkPermissions: these credentials may do what hookctl does.
	checkPermissions check = "permissions"
	// checkTopology: the broker holds the streams and consumers as they should be.
	checkTopology check = "topology"
	// checkClock: the broker's clock and this machine's agree.
	checkClock check = "clock"
	// checkDispatchers: there are some, all of one version.
	checkDispatchers check = "dispatchers"
	// checkProviders: somebody answers for every installed hook, and for every service that a grant names.
	checkProviders check = "providers"
	// checkWakeUps: none is overdue.
	checkWakeUps check = "wake_ups"
	// checkSizes: no stream is nearly full.
	checkSizes check = "sizes"
	// checkAges: no work that nobody took is near the age at which it is dropped.
	checkAges check = "ages"
)

// finding is one thing that is wrong.
type finding struct {
	Check check `json:"check"`
	// About is what it is about: a hook, a stream, a subject; null where the check says it.
	About events.Optional `json:"about"`
	// What is wrong, Why it matters, and what to do: each a sentence.
	What   string `json:"what"`
	Why    string `json:"why"`
	Remedy string `json:"remedy"`
}

// result is what became of a check.
type result struct {
	Check    check `json:"check"`
	Findings int   `json:"findings"`
	// NotAsked says why nobody knows, null for a check that was made.
	NotAsked events.Optional `json:"not_asked"`
	// Note is what was seen.
	Note events.Optional `json:"note"`
}

// examination is what the checks have learned, each for those after it.
type examination struct {
	command *doctorCommand
	now     func() time.Time

	told     *streams.Topology // what the broker is to hold, nil if nobody said
	services []string          // those that grants name

	nc *nats.Conn
	js jetstream.JetStream

	streams   map[string]*jetstream.StreamInfo // those that are there and may be looked at
	consumers map[string][]*jetstream.ConsumerInfo
	serving   serving // nil if they could not be asked
}

// notAsked is why a check could not be made. That is no failure of the command: an earlier finding says more.
type notAsked string

func (n notAsked) Error() string { return string(n) }

// checks are made in this order.
var checks = []struct {
	name check
	make func(*examination, context.Context) (note string, found []finding, err error)
}{
	{checkSettings, (*examination).settings},
	{checkBroker, (*examination).broker},
	{checkPermissions, (*examination).permissions},
	{checkTopology, (*examination).topology},
	{checkClock, (*examination).clock},
	{checkDispatchers, (*examination).dispatchers},
	{checkProviders, (*examination).providers},
	{checkWakeUps, (*examination).wakeUps},
	{checkSizes, (*examination).sizes},
	{checkAges, (*examination).ages},
}

// Run makes every check that can be made. Only a doctor who found nothing is as expected.
func (c *doctorCommand) Run(ctx context.Context, std stdio) error {
	return c.examine(ctx, std.out, time.Now)
}

func (c *doctorCommand) examine(ctx context.Context, out io.Writer, now func() time.Time) error {
	timeout := c.Topology.Broker.Timeout
	switch {
	case timeout <= 0:
		return errors.New("--timeout must be positive")
	case c.SkewAllowance <= 0:
		return errors.New("--skew-allowance must be positive")
	}
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("not done within --timeout, %s", timeout))
	defer cancel()
	e := &examination{
		command: c, now: now,
		streams: map[string]*jetstream.StreamInfo{}, consumers: map[string][]*jetstream.ConsumerInfo{},
	}
	defer func() {
		if e.nc != nil {
			e.nc.Close()
		}
	}()
	var results []result
	var findings []finding
	for _, check := range checks {
		note, found, err := check.make(e, ctx)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		r := result{Check: check.name, Findings: len(found), Note: events.Optional(note)}
		if err != nil {
			r.NotAsked = events.Optional(err.Error())
		}
		results = append(results, r)
		for _, f := range found {
			f.Check = check.name
			findings = append(findings, f)
		}
		if why := notAsked(""); err != nil && !errors.As(err, &why) {
			// Nothing that was found explains it, so that what was found is told and the command has failed.
			return errors.Join(c.print(out, results, findings), err)
		}
	}
	if err := c.print(out, results, findings); err != nil {
		return err
	}
	if len(findings) > 0 {
		return errUnmet
	}
	return nil
}

func (c *doctorCommand) print(w io.Writer, results []result, findings []finding) error {
	if c.Topology.Format.JSON {
		if err := printLines(w, findings); err != nil {
			return err
		}
		return printLines(w, []map[string][]result{{"checks": results}})
	}
	rows := make([][]string, len(results))
	for i, r := range results {
		became := "ok"
		switch {
		case r.Findings > 0:
			became = counted(r.Findings, "finding", "findings")
		case r.NotAsked != "":
			became = "not asked"
		}
		rows[i] = []string{strings.ReplaceAll(string(r.Check), "_", " "), became, join(string(r.Note), string(r.NotAsked), "; ")}
	}
	if err := printTable(w, []string{"CHECK", "RESULT", "SEEN"}, rows); err != nil {
		return err
	}
	for _, f := range findings {
		if _, err := fmt.Fprintln(w); err != nil {
			return fmt.Errorf("print: %w", err)
		}
		if err := printFacts(w, [][2]string{{"what", f.What}, {"why", f.Why}, {"to do", f.Remedy}}); err != nil {
			return err
		}
	}
	if len(findings) == 0 {
		_, err := fmt.Fprintln(w, "\nNothing is wrong that could be seen from here.")
		return err
	}
	return nil
}
