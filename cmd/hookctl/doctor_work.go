package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/afterwrite/afterwrite/events"
	"github.com/afterwrite/afterwrite/streams"
)

const (
	errNoBroker     notAsked = "there is no broker to ask"
	errNotPermitted notAsked = "not permitted, see the permissions"
	errNoStream     notAsked = "the stream is missing, or may not be looked at"
)

// ask asks the broker. Not being permitted to is a finding of the permissions already.
func (e *examination) ask(ctx context.Context, do func(context.Context) error) error {
	if e.js == nil {
		return errNoBroker
	}
	err := e.try(ctx, do)
	if errors.Is(err, nats.ErrPermissionViolation) {
		return errNotPermitted
	}
	return err
}

// topology compares the broker with what was told, or else with the names of the streams only.
func (e *examination) topology(ctx context.Context) (note string, found []finding, err error) {
	want := streams.Default(streams.Settings{})
	note = "the streams are there; what is installed was not told, so how they are is not compared"
	if e.told != nil {
		want, note = *e.told, counted(len(e.told.Streams), "stream", "streams")+" and their consumers compared"
	}
	var differences []streams.Difference
	err = e.ask(ctx, func(ctx context.Context) (err error) {
		differences, err = streams.Check(ctx, e.js, want)
		return err
	})
	if err != nil {
		return "", nil, err
	}
	for _, d := range differences {
		missing := d.Kind == streams.Missing && d.Consumer == ""
		if d.Kind == streams.Extra || e.told == nil && !missing {
			continue // it hinders nobody, or nobody said how it should be
		}
		what, remedy, _ := strings.Cut(d.String(), "; ")
		found = append(found, finding{
			About:  events.Optional(join(d.Stream, d.Consumer, " ")),
			What:   sentence("The " + what),
			Why:    "A dispatcher is not ready while a stream is missing or differs.",
			Remedy: sentence("hookctl streams plan tells all of it: " + remedy),
		})
	}
	if len(found) > 0 {
		note = ""
	}
	return note, found, nil
}

// clock compares the broker's with ours, which cannot be told apart closer than the answer took.
func (e *examination) clock(ctx context.Context) (note string, found []finding, err error) {
	if e.js == nil {
		return "", nil, errNoBroker
	}
	names := slices.Sorted(maps.Keys(e.streams))
	if len(names) == 0 {
		return "", nil, errNoStream
	}
	var there time.Time
	before := e.now()
	err = e.ask(ctx, func(ctx context.Context) error {
		stream, err := e.js.Stream(ctx, names[0])
		if err == nil {
			there = stream.CachedInfo().TimeStamp
		}
		return err
	})
	after := e.now()
	if err != nil {
		return "", nil, err
	}
	skew, direction := max(before.Sub(there), 0), "behind"
	if ahead := there.Sub(after); ahead > 0 {
		skew, direction = ahead, "ahead of"
	}
	if skew <= e.command.SkewAllowance {
		return fmt.Sprintf("within %s", e.command.SkewAllowance), nil, nil
	}
	return "", []finding{{
		What: fmt.Sprintf("The broker's clock is %s %s this machine's; %s is allowed.",
			skew.Round(time.Millisecond), direction, e.command.SkewAllowance),
		Why: "Receipts that were committed just now may be refused as from_future or too_old, " +
			"and wake-ups come early or late.",
		Remedy: "Have every machine follow one time server (chrony or systemd-timesyncd), and look which of the two is wrong.",
	}}, nil
}

// dispatchers looks who answers for redrives, which every dispatcher does.
func (e *examination) dispatchers(context.Context) (note string, found []finding, err error) {
	if e.serving == nil {
		return "", nil, e.unasked()
	}
	processes := e.serving[dispatcherSubject()]
	if len(processes) == 0 {
		return "", []finding{{
			What: "No dispatcher is running.",
			Why:  "Receipts wait in their stream, and are lost once they are older than it keeps them.",
			Remedy: "Start one. If one is running, its log and its /readyz say why it does not take work; " +
				"look whether it uses the same account of the broker.",
		}}, nil
	}
	versions := map[string]bool{}
	for _, p := range processes {
		versions[p.service.Version] = true
	}
	list := strings.Join(slices.Sorted(maps.Keys(versions)), ", ")
	if len(versions) > 1 {
		found = append(found, finding{
			What:   "Dispatchers of several versions are running: " + list + ".",
			Why:    "That is meant to last only as long as an upgrade does.",
			Remedy: "Finish the upgrade or the rollback.",
		})
	}
	return counted(len(processes), "dispatcher", "dispatchers") + " of version " + list, found, nil
}

// unasked is why the services are not known.
func (e *examination) unasked() error {
	if e.js == nil {
		return errNoBroker
	}
	return errNotPermitted
}

// providers looks who answers for each installed hook, and for each service that a grant names.
func (e *examination) providers(context.Context) (note string, found []finding, err error) {
	if e.serving == nil {
		return "", nil, e.unasked()
	}
	hooks := e.hooks()
	for _, hook := range hooks {
		if len(e.serving[streams.CallSubject(hook)]) == 0 {
			found = append(found, finding{
				About: events.Optional(hook),
				What:  "No provider answers for the hook " + hook + ".",
				Why: "Its dispatches are retried until their attempts are used up, and then fail; " +
					"other hooks are not concerned.",
				Remedy: "Start its provider, then hookctl dispatch redrive --hook " + hook + " --code producer_failed --actor you. " +
					"If the hook was removed, hookctl streams apply deletes its consumer.",
			})
		}
	}
	for _, service := range e.services {
		if len(e.serving[streams.ServiceSubject(service)]) == 0 {
			found = append(found, finding{
				About:  events.Optional(service),
				What:   "Nobody answers for the service " + service + ", which a grant names.",
				Why:    "Executions under that grant are retried until their attempts are used up, and then fail.",
				Remedy: "Start the provider that serves it.",
			})
		}
	}
	return counted(len(hooks), "hook", "hooks") + ", " + counted(len(e.services), "service", "services"), found, nil
}

const (
	// overdueAfter is how long after its time a wake-up is stuck for certain: dispatchers look every minute for those.
	overdueAfter = 2 * time.Minute
	// overdueMost bounds one look.
	overdueMost = 1000
)

// wakeUps looks for schedules that did not fire. Every message is older than those after it, so that it ends early.
func (e *examination) wakeUps(ctx context.Context) (note string, found []finding, err error) {
	if e.js == nil {
		return "", nil, errNoBroker
	}
	if e.streams[streams.Retries] == nil {
		return "", nil, errNoStream
	}
	overdue := map[events.HookID]int{}
	looked := 0
	err = e.ask(ctx, func(ctx context.Context) error {
		stream, err := e.js.Stream(ctx, streams.Retries)
		if err != nil {
			return err
		}
		for sequence := uint64(1); looked < overdueMost; looked++ {
			m, err := stream.GetMsg(ctx, sequence, jetstream.WithGetMsgSubject(streams.RetryAtFilter()))
			if errors.Is(err, jetstream.ErrMsgNotFound) {
				return nil
			}
			if err != nil {
				return fmt.Errorf("look for overdue wake-ups: %w", err)
			}
			sequence = m.Sequence + 1
			at, ok := streams.ScheduledAt(events.Header(m.Header))
			_, hook, named := streams.ParseRetryAtSubject(m.Subject)
			if ok && named && e.now().Sub(at) > overdueAfter {
				overdue[hook]++
			}
		}
		return nil
	})
	if err != nil {
		return "", nil, err
	}
	for _, hook := range slices.Sorted(maps.Keys(overdue)) {
		found = append(found, finding{
			About: events.Optional(hook),
			What: fmt.Sprintf("%s of the hook %s did not fire when due, more than %s ago.",
				counted(overdue[hook], "wake-up", "wake-ups"), hook, overdueAfter),
			Why: "The broker could not store them when they were due, and no dispatcher has scheduled them anew: " +
				"the dispatches are not tried again.",
			Remedy: "Make room where the broker stores its streams, and have a dispatcher running: each looks every minute " +
				"for overdue wake-ups.",
		})
	}
	return counted(looked, "scheduled wake-up", "scheduled wake-ups") + " looked at", found, nil
}

const (
	// fullPercent is how full a stream may be, as readiness and alerts have it.
	fullPercent = 80
	// agedPart is which part of a stream's age the oldest waiting message may reach, as they have it.
	agedPart = 2
)

// sizes looks for streams that will soon refuse work.
func (e *examination) sizes(context.Context) (note string, found []finding, err error) {
	if e.js == nil {
		return "", nil, errNoBroker
	}
	if len(e.streams) == 0 {
		return "", nil, errNoStream
	}
	for _, name := range slices.Sorted(maps.Keys(e.streams)) {
		info := e.streams[name]
		most := uint64(max(info.Config.MaxBytes, 0))
		if most == 0 || info.State.Bytes <= most/100*fullPercent {
			continue
		}
		found = append(found, finding{
			About: events.Optional(name),
			What: fmt.Sprintf("%s is %d %% full: %s of %s.", name, info.State.Bytes*100/most,
				bytesText(int64(info.State.Bytes)), bytesText(int64(most))), //nolint:gosec // no stream has 2^63 bytes
			Why: "When it is full it refuses work, and nothing goes on until messages reach their age or there is more room.",
			Remedy: "Give it more room with hookctl streams apply and a larger size, told alike to the dispatchers; " +
				"if consumers lag, see to them first.",
		})
	}
	return counted(len(e.streams), "stream", "streams"), found, nil
}

// ages looks for work that will soon be dropped because nobody took it.
func (e *examination) ages(ctx context.Context) (note string, found []finding, err error) {
	looked := 0
	err = e.ask(ctx, func(ctx context.Context) error {
		for _, name := range slices.Sorted(maps.Keys(e.streams)) {
			most := e.streams[name].Config.MaxAge
			if most == 0 {
				continue
			}
			for _, info := range e.consumers[name] {
				if info.Config.Durable == "" {
					continue // somebody who is reading
				}
				looked++
				age, err := streams.OldestWaiting(ctx, e.js, info)
				if err != nil {
					return err
				}
				if age <= most/agedPart {
					continue
				}
				found = append(found, finding{
					About: events.Optional(name + " " + info.Name),
					What: fmt.Sprintf("The oldest message that %s has not settled has waited %s of the %s that %s keeps it.",
						info.Name, age.Round(time.Second), most, name),
					Why: "Work that reaches the stream's age is dropped, and nobody does it.",
					Remedy: "Have whoever consumes it run, and with enough replicas; until it catches up, keep the stream longer " +
						"with hookctl streams apply.",
				})
			}
		}
		return nil
	})
	if err != nil {
		return "", nil, err
	}
	return counted(looked, "consumer", "consumers"), found, nil
}
