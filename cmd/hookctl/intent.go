package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/afterwrite/afterwrite/events"
	"github.com/afterwrite/afterwrite/executors"
	"github.com/afterwrite/afterwrite/internal/natsconn"
	"github.com/afterwrite/afterwrite/streams"
)

// listedIntent is an intent and when it was accepted as a proposal, from which its age counts.
type listedIntent struct {
	AcceptedAt events.Timestamp `json:"accepted_at"`
	Intent     *events.Intent   `json:"intent"`
}

var intentHeadings = []string{"ACCEPTED", "INTENT", "KIND", "OPERATION", "DISPATCH", "WRITE SCOPE"}

func (i listedIntent) cells() []string {
	return []string{
		second(i.AcceptedAt), short(i.Intent.IntentID), i.Intent.IntentKind, i.Intent.Operation,
		short(i.Intent.SourceDispatchID), joined(i.Intent.RequestedWriteScope, " "),
	}
}

type intentList struct {
	Kind   events.IntentKind `help:"Only intents of this kind."`
	Hook   events.HookID     `help:"Only what this hook proposed."`
	Window window            `embed:""`
	Format format            `embed:""`
	Broker broker            `embed:""`
}

// Run lists the intents in the order in which they were published.
func (c *intentList) Run(ctx context.Context, std stdio) error {
	if err := wantName("--kind", c.Kind); err != nil {
		return err
	}
	return c.Broker.ask(ctx, func(ctx context.Context, js jetstream.JetStream) error {
		stored := streams.Read(ctx, js, streams.Intents, streams.IntentFilter(c.Kind), false, decodeIntent)
		intents := func(yield func(listedIntent, error) bool) {
			for i, err := range stored {
				if !yield(listedIntent{i.Envelope.Time, i.Document}, err) {
					return
				}
			}
		}
		l, unread := gather(intents, c.Window, func(i listedIntent) bool {
			return (c.Hook == "" || c.Hook == i.Intent.HookID) && !i.AcceptedAt.Time().Before(c.Window.Since.Time)
		})
		l.nothing = "No such intent is recorded."
		l.headings, l.cells = intentHeadings, listedIntent.cells
		return l.tell(std.out, c.Format, unread)
	})
}

func decodeIntent(data []byte) (*events.Intent, error) { return events.Decode[events.Intent](data) }

// wantName checks a name that becomes part of a subject. None is all.
func wantName(flag, name string) error {
	if name != "" && !events.IsName(name) {
		return fmt.Errorf("%s must be a name, as in periodic_report.trigger_evaluation", flag)
	}
	return nil
}

type intentWatch struct {
	Kind   events.IntentKind `help:"Only intents of this kind."`
	Since  moment            `placeholder:"TIME" help:"Begin with those published since a time, RFC 3339 or how long ago as in 24h."`
	Count  int               `help:"End after that many; 0 goes on."`
	Format format            `embed:""`
	NATS   natsconn.Flags    `embed:"" group:"Broker:"`
}

// Run prints intents until it is interrupted.
func (c *intentWatch) Run(ctx context.Context, std stdio) error {
	if err := wantName("--kind", c.Kind); err != nil {
		return err
	}
	err := follow(ctx, c.NATS, func(ctx context.Context, js jetstream.JetStream) error {
		config := jetstream.OrderedConsumerConfig{
			FilterSubjects: []string{streams.IntentFilter(c.Kind)}, DeliverPolicy: jetstream.DeliverNewPolicy,
		}
		if !c.Since.IsZero() {
			config.DeliverPolicy, config.OptStartTime = jetstream.DeliverByStartTimePolicy, &c.Since.Time
		}
		consumer, err := js.OrderedConsumer(ctx, streams.Intents, config)
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			return fmt.Errorf("watch the intents: %w", streams.ErrMissing)
		}
		if err != nil {
			return fmt.Errorf("watch the intents: %w", err)
		}
		messages, err := consumer.Messages()
		if err != nil {
			return fmt.Errorf("watch the intents: %w", err)
		}
		defer messages.Stop()
		for n := 1; ; n++ {
			m, err := messages.Next(jetstream.NextContext(ctx))
			if err != nil {
				return fmt.Errorf("watch the intents: %w", err)
			}
			if err := c.print(std, m, n == 1); err != nil || n == c.Count {
				return err
			}
		}
	})
	if interrupted := errors.Is(err, context.Canceled) && ctx.Err() != nil; !interrupted {
		return err
	}
	return nil // that is how it ends
}

// print prints one intent. One that cannot be read is told and does not end the watch.
func (c *intentWatch) print(std stdio, m jetstream.Msg, first bool) error {
	envelope, data, err := events.ReadEvent(events.Header(m.Headers()), m.Data())
	if err == nil {
		var intent *events.Intent
		if intent, err = decodeIntent(data); err == nil {
			return c.printIntent(std, listedIntent{envelope.Time, intent}, first)
		}
	}
	_, err = fmt.Fprintf(std.err, "hookctl: not an intent: %v\n", err)
	return err
}

func (c *intentWatch) printIntent(std stdio, i listedIntent, first bool) error {
	if c.Format.JSON {
		return printLines(std.out, []listedIntent{i})
	}
	// The widths of rows to come are not known, so the columns are as wide as what they mostly hold.
	rows := [][]string{i.cells()}
	if first {
		rows = [][]string{intentHeadings, i.cells()}
	}
	return printRows(std.out, []int{20, 12, 34, 24, 12, 0}, rows)
}

// answer is what a person says about an intent that waits for one.
type answer struct {
	Intent   string            `arg:"" help:"Its id, or how its digits begin."`
	Executor events.ExecutorID `help:"Which executor is told; by default the one that waits."`
	Actor    string            `env:"AFTERWRITE_ACTOR,USER" help:"Who answers, as it is recorded; an opaque id."`
	Format   format            `embed:""`
	Broker   broker            `embed:""`
}

type intentAccept struct {
	Answer         answer   `embed:""`
	MaxAttempts    int      `help:"Accept fewer attempts than granted."`
	MaxResultBytes int      `help:"Accept a smaller result than granted."`
	WriteScope     []string `help:"Accept less write scope than granted."`
	NoWriteScope   bool     `help:"Accept no write scope at all."`
}

// Run accepts.
func (c *intentAccept) Run(ctx context.Context, std stdio) error {
	if c.NoWriteScope && len(c.WriteScope) > 0 {
		return errors.New("--write-scope and --no-write-scope exclude each other")
	}
	scope := c.WriteScope
	if c.NoWriteScope {
		scope = []string{} // and not nil, which is all that was granted
	}
	budget := events.IntentBudget{MaxAttempts: c.MaxAttempts, MaxResultBytes: c.MaxResultBytes}
	return c.Answer.give(ctx, std, executors.Accept, executors.Answer{Budget: budget, WriteScope: scope})
}

type intentRefuse struct {
	Answer answer `embed:""`
}

// Run refuses.
func (c *intentRefuse) Run(ctx context.Context, std stdio) error {
	return c.Answer.give(ctx, std, executors.Refuse, executors.Answer{})
}

// answered is what became of it.
type answered struct {
	IntentID events.IntentID   `json:"intent_id"`
	Executor events.ExecutorID `json:"executor"`
	executors.Answered
}

func (c *answer) give(
	ctx context.Context, std stdio,
	say func(context.Context, *nats.Conn, executors.Answer) (*executors.Answered, error), a executors.Answer,
) error {
	if !events.IsOpaqueID(c.Actor) {
		return errActor
	}
	if err := wantName("--executor", c.Executor); err != nil {
		return err
	}
	return c.Broker.ask(ctx, func(ctx context.Context, js jetstream.JetStream) error {
		id, err := intentIDs.whole(ctx, js, c.Intent)
		if err != nil {
			return err
		}
		a.IntentID, a.Actor, a.Executor = id, c.Actor, c.Executor
		if a.Executor == "" {
			if a.Executor, err = waiting(ctx, js, id); err != nil {
				return err
			}
		}
		said, err := say(ctx, js.Conn(), a)
		if err != nil {
			return err
		}
		if c.Format.JSON {
			err = printLines(std.out, []answered{{a.IntentID, a.Executor, *said}})
		} else {
			err = printFacts(std.out, [][2]string{
				{"intent", a.IntentID}, {"executor", a.Executor}, {"status", string(said.Status)},
				{"answer", cmp.Or(string(said.Rejection), "taken")},
			})
		}
		if err == nil && said.Rejection != "" {
			return errUnmet
		}
		return err
	})
}

// waiting is the one executor that waits for an answer about the intent.
func waiting(ctx context.Context, js jetstream.JetStream, id events.IntentID) (events.ExecutorID, error) {
	last := map[events.ExecutorID]events.ExecutionStatus{}
	for record, err := range documents(executors.History(ctx, js, id)) {
		if err != nil {
			return "", err
		}
		last[record.Executor] = record.Status
	}
	var who []events.ExecutorID
	for executor, status := range last {
		if status == events.ExecutionAwaiting {
			who = append(who, executor)
		}
	}
	switch len(who) {
	case 0:
		return "", errors.New("no executor waits for an answer about this intent; to repeat an answer, name one with --executor")
	case 1:
		return who[0], nil
	}
	return "", fmt.Errorf("%d executors wait for an answer about this intent: name one with --executor", len(who))
}
