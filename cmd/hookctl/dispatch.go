package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"strconv"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/afterwrite/afterwrite/dispatcher/journal"
	"github.com/afterwrite/afterwrite/events"
	"github.com/afterwrite/afterwrite/executors"
	"github.com/afterwrite/afterwrite/streams"
)

type dispatchList struct {
	Status []events.Status `enum:"proposed,not_applicable,retrying,failed,redriven" help:"Only these: proposed, not_applicable, retrying, failed, redriven."`
	Hook   events.HookID   `help:"Only dispatches of this hook."`
	Code   events.Code     `help:"Only dispatches whose last record has this code."`
	Window window          `embed:""`
	Format format          `embed:""`
	Broker broker          `embed:""`
}

// Run lists the last record of each dispatch, the one that was written last at the end.
func (c *dispatchList) Run(ctx context.Context, std stdio) error {
	if err := wantCode(c.Code); err != nil {
		return err
	}
	return c.Broker.ask(ctx, func(ctx context.Context, js jetstream.JetStream) error {
		l, unread := gather(documents(journal.States(ctx, js)), c.Window, func(r *events.DispatchReceipt) bool {
			return (len(c.Status) == 0 || slices.Contains(c.Status, r.Status)) &&
				(c.Hook == "" || c.Hook == r.HookID) &&
				(c.Code == "" || c.Code == r.Code) &&
				!r.RecordedAt.Time().Before(c.Window.Since.Time)
		})
		l.nothing = "No such dispatch is recorded."
		l.headings = []string{"RECORDED", "DISPATCH", "HOOK", "STATUS", "ATTEMPT", "CODE", "REASON", "INTENTS"}
		l.cells = func(r *events.DispatchReceipt) []string {
			return []string{
				second(r.RecordedAt), short(r.DispatchID), r.HookID, string(r.Status), strconv.Itoa(r.Attempt),
				string(r.Code), string(r.Reason), strconv.Itoa(len(r.Intents)),
			}
		}
		return l.tell(std.out, c.Format, unread)
	})
}

// wantCode checks the code that was asked for: a wrong one would only find nothing.
func wantCode(code events.Code) error {
	if code != "" && events.Reasons(events.StatusFailed, code) == nil && events.Reasons(events.StatusRetrying, code) == nil {
		return errors.New("--code must be a code of a dispatch receipt, as in producer_failed")
	}
	return nil
}

// documents are what the stream holds without what it says about them.
func documents[D any](all iter.Seq2[streams.Stored[D], error]) iter.Seq2[D, error] {
	return func(yield func(D, error) bool) {
		for stored, err := range all {
			if !yield(stored.Document, err) {
				return
			}
		}
	}
}

type dispatchShow struct {
	Dispatch string `arg:"" help:"Its id, or how its digits begin."`
	Format   format `embed:""`
	Broker   broker `embed:""`
}

// shown is everything about one dispatch.
type shown struct {
	DispatchID events.DispatchID         `json:"dispatch_id"`
	Records    []*events.DispatchReceipt `json:"records"`
	Conflicts  []*events.Conflict        `json:"conflicts"`
	Intents    []shownIntent             `json:"intents"`
	Executions []*events.Execution       `json:"executions"`
}

// shownIntent is an intent that the last record holds.
type shownIntent struct {
	IntentID   events.IntentID   `json:"intent_id"`
	IntentKind events.IntentKind `json:"intent_kind"`
	Operation  string            `json:"operation"`
	// Published reports whether it stands in the stream of intents.
	Published bool `json:"published"`
}

// Run shows the dispatch's history, its conflicts, its intents, and what executors did about them.
func (c *dispatchShow) Run(ctx context.Context, std stdio) error {
	return c.Broker.ask(ctx, func(ctx context.Context, js jetstream.JetStream) error {
		id, err := dispatchIDs.whole(ctx, js, c.Dispatch)
		if err != nil {
			return err
		}
		s, err := show(ctx, js, id)
		if err != nil {
			return err
		}
		if c.Format.JSON {
			return printLines(std.out, []*shown{s})
		}
		return s.print(std.out)
	})
}

func show(ctx context.Context, js jetstream.JetStream, id events.DispatchID) (*shown, error) {
	s := &shown{DispatchID: id}
	var err error
	if s.Records, err = all(documents(journal.History(ctx, js, id))); err != nil {
		return nil, err
	}
	if len(s.Records) == 0 {
		return nil, errors.New("there is no record of this dispatch")
	}
	if s.Conflicts, err = all(documents(journal.Conflicts(ctx, js, id))); err != nil {
		return nil, err
	}
	stream, err := js.Stream(ctx, streams.Intents)
	if err != nil {
		return nil, fmt.Errorf("look for the intents: %w", err)
	}
	intents := s.state().Intents
	for i := range intents {
		intent := &intents[i]
		_, err := stream.GetLastMsgForSubject(ctx, streams.IntentSubject(intent.IntentID, intent.IntentKind))
		if err != nil && !errors.Is(err, jetstream.ErrMsgNotFound) {
			return nil, fmt.Errorf("look for the intents: %w", err)
		}
		s.Intents = append(s.Intents, shownIntent{intent.IntentID, intent.IntentKind, intent.Operation, err == nil})
		executions, err := all(documents(executors.History(ctx, js, intent.IntentID)))
		if err != nil {
			return nil, err
		}
		s.Executions = append(s.Executions, executions...)
	}
	return s, nil
}

// all is what a stream holds, unless something of it cannot be read.
func all[D any](documents iter.Seq2[D, error]) (list []D, err error) {
	for d, err := range documents {
		if err != nil {
			return nil, err
		}
		list = append(list, d)
	}
	return list, nil
}

// state is the last record.
func (s *shown) state() *events.DispatchReceipt { return s.Records[len(s.Records)-1] }

func (s *shown) print(w io.Writer) error {
	r := s.state()
	if err := printFacts(w, [][2]string{
		{"dispatch", s.DispatchID},
		{"hook", r.HookID},
		{"receipt", r.ReceiptIdentity},
		{"event kind", string(r.EventKind)},
		{"profile", r.Profile},
		{"status", join(string(r.Status), join(string(r.Code), string(r.Reason), ", "), ": ")},
	}); err != nil {
		return err
	}
	sections := []section{{
		title:    "History",
		headings: []string{"#", "RECORDED", "STATUS", "ATTEMPT", "INVOCATIONS", "CODE", "REASON", "RETRY AT", "ACTOR"},
	}, {
		title:    "Conflicts",
		headings: []string{"RECORDED", "REASON", "STANDS", "LOST"},
	}, {
		title:    "Intents",
		headings: []string{"INTENT", "KIND", "OPERATION", "PUBLISHED"},
	}, executionSection(s.Executions)}
	for _, r := range s.Records {
		sections[0].add(strconv.Itoa(r.RecordNumber), second(r.RecordedAt), string(r.Status), strconv.Itoa(r.Attempt),
			strconv.Itoa(r.Invocations), string(r.Code), string(r.Reason), second(r.RetryAt), string(r.Actor))
	}
	for _, c := range s.Conflicts {
		sections[1].add(second(c.RecordedAt), string(c.Reason), short(c.StandingDigest), short(c.LoserDigest))
	}
	for _, i := range s.Intents {
		published := "no"
		if i.Published {
			published = "yes"
		}
		sections[2].add(short(i.IntentID), i.IntentKind, i.Operation, published)
	}
	return printSections(w, true, sections...)
}
