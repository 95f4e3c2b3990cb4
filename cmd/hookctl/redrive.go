package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nats.go/micro"

	"github.com/afterwrite/afterwrite/dispatcher"
	"github.com/afterwrite/afterwrite/dispatcher/journal"
	"github.com/afterwrite/afterwrite/events"
	"github.com/afterwrite/afterwrite/streams"
)

type dispatchRedrive struct {
	Dispatch string        `arg:"" optional:"" help:"Its id, or how its digits begin. Without one, the flags select."`
	Hook     events.HookID `help:"Every failed dispatch of this hook."`
	Code     events.Code   `help:"Every failed dispatch with this code."`
	Since    moment        `placeholder:"TIME" help:"Every dispatch that failed since a time, RFC 3339 or how long ago as in 24h."`
	DryRun   bool          `help:"Only say which would be redriven."`
	Actor    string        `env:"AFTERWRITE_ACTOR,USER" help:"Who asks, as it is recorded; an opaque id."`
	Format   format        `embed:""`
	Broker   broker        `embed:""`
}

// redriven is what became of one request.
type redriven struct {
	DispatchID events.DispatchID `json:"dispatch_id"`
	HookID     events.HookID     `json:"hook_id"`
	// Answer is redriven, rejected, or would_ask in a dry run.
	Answer string `json:"answer"`
	// Reason is why the request was rejected.
	Reason events.Optional `json:"reason"`
	// RecordNumber of the record that says redriven, 0 if there is none.
	RecordNumber int `json:"record_number"`

	sentence string
}

const (
	answerRedriven = "redriven"
	answerRejected = "rejected"
	answerWouldAsk = "would_ask"

	// serviceRejected is the dispatcher's error code of a request that it understood and does not grant.
	serviceRejected = "409"
)

var errActor = errors.New("--actor, or AFTERWRITE_ACTOR, must name somebody by an opaque id: a letter or digit, then letters, " +
	"digits and . _ : - only")

// Run asks a dispatcher to redrive each dispatch, one after the other.
func (c *dispatchRedrive) Run(ctx context.Context, std stdio) error {
	if err := c.validate(); err != nil {
		return err
	}
	return c.Broker.ask(ctx, func(ctx context.Context, js jetstream.JetStream) error {
		failed, err := c.selected(ctx, js)
		if err != nil {
			return err
		}
		answers := listing[redriven]{
			nothing:  "No failed dispatch that holds its input is selected.",
			headings: []string{"DISPATCH", "HOOK", "ANSWER", "RECORD", "REASON"},
			cells: func(r redriven) []string {
				record := ""
				if r.RecordNumber > 0 {
					record = strconv.Itoa(r.RecordNumber)
				}
				return []string{short(r.DispatchID), r.HookID, r.Answer, record, r.sentence}
			},
		}
		var asking error
		for _, record := range failed {
			answer := redriven{DispatchID: record.DispatchID, HookID: record.HookID, Answer: answerWouldAsk}
			if !c.DryRun {
				if asking = answer.ask(ctx, js.Conn(), c.Actor); asking != nil {
					break
				}
			}
			answers.found = append(answers.found, answer)
		}
		if err := answers.tell(std.out, c.Format, asking); err != nil {
			return err
		}
		for _, answer := range answers.found {
			if answer.Answer == answerRejected {
				return errUnmet
			}
		}
		return nil
	})
}

func (c *dispatchRedrive) validate() error {
	selects := c.Hook != "" || c.Code != "" || !c.Since.IsZero()
	switch {
	case c.Dispatch == "" && !selects:
		return errors.New("name a dispatch, or select some with --hook, --code or --since")
	case c.Dispatch != "" && selects:
		return errors.New("name a dispatch or select some with --hook, --code and --since, not both")
	case !events.IsOpaqueID(c.Actor):
		return errActor
	}
	return wantCode(c.Code)
}

// selected are the last records of the dispatches to redrive. One that was named is asked for whatever its record
// says: why it cannot be redriven is the dispatcher's to tell.
func (c *dispatchRedrive) selected(ctx context.Context, js jetstream.JetStream) ([]*events.DispatchReceipt, error) {
	if c.Dispatch != "" {
		id, err := dispatchIDs.whole(ctx, js, c.Dispatch)
		if err != nil {
			return nil, err
		}
		records, err := all(documents(journal.History(ctx, js, id)))
		if err != nil {
			return nil, err
		}
		if len(records) == 0 {
			return nil, errors.New("there is no record of this dispatch")
		}
		return records[len(records)-1:], nil
	}
	l, err := gather(documents(journal.States(ctx, js)), window{}, func(r *events.DispatchReceipt) bool {
		return r.Status == events.StatusFailed && r.Input != nil &&
			(c.Hook == "" || c.Hook == r.HookID) &&
			(c.Code == "" || c.Code == r.Code) &&
			!r.RecordedAt.Time().Before(c.Since.Time)
	})
	return l.found, err
}

// ask asks whichever dispatcher the broker gives the request to. The error is the connection's or the dispatcher's; a
// rejection is an answer.
func (r *redriven) ask(ctx context.Context, nc *nats.Conn, actor string) error {
	request, err := events.EncodeValue(dispatcher.RedriveRequest{Actor: actor, DispatchID: r.DispatchID, HookID: r.HookID})
	if err != nil {
		return err
	}
	reply, err := nc.RequestWithContext(ctx, streams.ServiceSubject(streams.RedriveService), request)
	if errors.Is(err, nats.ErrNoResponders) {
		return errors.New("no dispatcher is running")
	}
	if err != nil {
		return fmt.Errorf("ask for a redrive: %w", err)
	}
	text := reply.Header.Get(micro.ErrorHeader)
	switch {
	case text == "":
		record, err := events.Decode[events.DispatchReceipt](reply.Data)
		if err != nil {
			return fmt.Errorf("read the dispatcher's answer: %w", err)
		}
		r.Answer, r.RecordNumber = answerRedriven, record.RecordNumber
	case reply.Header.Get(micro.ErrorCodeHeader) == serviceRejected:
		r.Answer, r.Reason, r.sentence = answerRejected, events.Optional(reply.Data), text
	default:
		return fmt.Errorf("the dispatcher could not redrive %s: %s", short(r.DispatchID), text)
	}
	return nil
}
