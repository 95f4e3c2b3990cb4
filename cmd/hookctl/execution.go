package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/afterwrite/afterwrite/events"
	"github.com/afterwrite/afterwrite/executors"
)

type executionList struct {
	Status   []events.ExecutionStatus `enum:"${executionStatuses}" help:"Only these: ${executionStatusNames}."`
	Executor events.ExecutorID        `help:"Only what this executor did."`
	Kind     events.IntentKind        `help:"Only about intents of this kind."`
	Window   window                   `embed:""`
	Format   format                   `embed:""`
	Broker   broker                   `embed:""`
}

// Run lists the last record of each execution, the one that was written last at the end.
func (c *executionList) Run(ctx context.Context, std stdio) error {
	return c.Broker.ask(ctx, func(ctx context.Context, js jetstream.JetStream) error {
		l, unread := gather(documents(executors.Latest(ctx, js)), c.Window, func(e *events.Execution) bool {
			return (len(c.Status) == 0 || slices.Contains(c.Status, e.Status)) &&
				(c.Executor == "" || c.Executor == e.Executor) &&
				(c.Kind == "" || c.Kind == e.IntentKind) &&
				!e.RecordedAt.Time().Before(c.Window.Since.Time)
		})
		l.nothing = "No such execution is recorded."
		l.headings = []string{"RECORDED", "INTENT", "KIND", "EXECUTOR", "STATUS", "ATTEMPT", "REASON", "RESULT"}
		l.cells = func(e *events.Execution) []string {
			return []string{
				second(e.RecordedAt), short(e.IntentID), e.IntentKind, e.Executor, string(e.Status),
				strconv.Itoa(e.Attempt), string(e.Reason), describeResult(e.Result),
			}
		}
		return l.tell(std.out, c.Format, unread)
	})
}

type executionShow struct {
	Intent string `arg:"" help:"The intent's id, or how its digits begin."`
	Format format `embed:""`
	Broker broker `embed:""`
}

// Run shows every record about the intent, with --json one a line.
func (c *executionShow) Run(ctx context.Context, std stdio) error {
	return c.Broker.ask(ctx, func(ctx context.Context, js jetstream.JetStream) error {
		id, err := intentIDs.whole(ctx, js, c.Intent)
		if err != nil {
			return err
		}
		records, err := all(documents(executors.History(ctx, js, id)))
		if err != nil {
			return err
		}
		if len(records) == 0 {
			return errors.New("no executor has recorded anything about this intent")
		}
		if c.Format.JSON {
			return printLines(std.out, records)
		}
		last := records[len(records)-1]
		facts := [][2]string{{"intent", id}, {"kind", last.IntentKind}, {"dispatch", string(last.DispatchID)}}
		if a := last.Accepted; a != nil {
			facts = append(facts,
				[2]string{"accepted by", string(a.Authority) + " " + a.By},
				[2]string{"budget", strconv.Itoa(a.Budget.MaxAttempts) + " attempts, " + strconv.Itoa(a.Budget.MaxResultBytes) + " bytes"},
				[2]string{"write scope", cmp.Or(joined(a.WriteScope, " "), "none")})
		}
		if err := printFacts(std.out, facts); err != nil {
			return err
		}
		if err := printSections(std.out, true, executionSection(records)); err != nil {
			return err
		}
		if last.Result == nil {
			return nil
		}
		result := slices.Clone(last.Result.Data)
		if err := result.Indent(); err != nil {
			return fmt.Errorf("print: %w", err)
		}
		_, err = fmt.Fprintf(std.out, "\nResult %s\n%s\n", last.Result.SchemaVersion, result)
		return err
	})
}

// executionSection is every record about executions.
func executionSection(records []*events.Execution) section {
	s := section{
		title:    "Executions",
		headings: []string{"RECORDED", "INTENT", "EXECUTOR", "#", "STATUS", "ATTEMPT", "REASON", "RESULT", "BY"},
	}
	for _, e := range records {
		s.add(second(e.RecordedAt), short(e.IntentID), e.Executor, strconv.Itoa(e.RecordNumber), string(e.Status),
			strconv.Itoa(e.Attempt), string(e.Reason), describeResult(e.Result), e.Actor)
	}
	return s
}

// describeResult is what a person is told of a result: its type and, where it gives one, its reason.
func describeResult(p *events.Packet) string {
	if p == nil {
		return ""
	}
	var result struct {
		Reason string `json:"reason"`
	}
	if json.Unmarshal(p.Data, &result) != nil { // a reason of another type is none
		result.Reason = ""
	}
	return join(p.SchemaVersion, result.Reason, ": ")
}
