package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/afterwrite/afterwrite/events"
	"github.com/afterwrite/afterwrite/internal/flags"
	"github.com/afterwrite/afterwrite/streams"
)

type statusCommand struct {
	Since      moment   `default:"1h" placeholder:"TIME" help:"Count what was recorded since a time, RFC 3339 or how long ago as in 24h; by default the last hour."`
	Most       int      `default:"10000" help:"Read no more than that many of the journal's newest messages."`
	Dispatcher []string `name:"dispatcher" placeholder:"URL" help:"Where a dispatcher serves health and metrics, to ask for its readiness and its breakers; repeatable."`
	Format     format   `embed:""`
	Broker     broker   `embed:""`
}

// overview is how everything is, on one screen.
type overview struct {
	Streams     []streamStatus     `json:"streams"`
	Consumers   []consumerStatus   `json:"consumers"`
	Hooks       []hookStatus       `json:"hooks"`
	Dispatchers []dispatcherStatus `json:"dispatchers"`
	Recent      recent             `json:"recent"`
}

type streamStatus struct {
	Stream   string `json:"stream"`
	Messages uint64 `json:"messages"`
	Bytes    uint64 `json:"bytes"`
	// MaxBytes is 0 where there is no limit, and so is MaxAgeSeconds.
	MaxBytes      uint64 `json:"max_bytes"`
	MaxAgeSeconds int64  `json:"max_age_seconds"`
	// Oldest is when the oldest message was stored, null if there is none.
	Oldest events.Optional `json:"oldest"`
}

type consumerStatus struct {
	Stream   string `json:"stream"`
	Consumer string `json:"consumer"`
	// Waiting were not delivered yet, Unacknowledged were.
	Waiting        uint64 `json:"waiting"`
	Unacknowledged int    `json:"unacknowledged"`
	// OldestSeconds is how long the oldest of them has been in the stream.
	OldestSeconds int64 `json:"oldest_seconds"`
}

type hookStatus struct {
	HookID events.HookID `json:"hook_id"`
	// Backlog is how many of its wake-ups are due.
	Backlog uint64 `json:"backlog"`
	// Providers is how many processes answer for it.
	Providers int `json:"providers"`
	// Calls and CallErrors are what they say that they were asked since they started, and could not answer.
	Calls      int `json:"calls"`
	CallErrors int `json:"call_errors"`
	// Records counts its recent records by status; a retrying one whose hook was suspended counts as that too.
	Records   map[events.Status]int `json:"records"`
	Suspended int                   `json:"suspended"`
	// Breakers counts lanes by the state of its breaker, as the dispatchers that were named say; empty if none was.
	Breakers map[string]int `json:"breakers"`
}

type dispatcherStatus struct {
	// ID is the micro service's, and Address where it was asked for its readiness; one of them is null.
	ID      events.Optional `json:"id"`
	Version events.Optional `json:"version"`
	Address events.Optional `json:"address"`
	// Ready is null where nobody asked.
	Ready *bool `json:"ready"`
	// Reasons are why it is not ready, or could not be asked.
	Reasons []string `json:"reasons"`
}

// Run asks the broker, and whoever else was named. It changes nothing.
func (c *statusCommand) Run(ctx context.Context, std stdio) error {
	if c.Most < 1 {
		return errors.New("--most must be at least 1")
	}
	return c.Broker.ask(ctx, func(ctx context.Context, js jetstream.JetStream) error {
		o, err := c.look(ctx, js)
		if err != nil {
			return err
		}
		if c.Format.JSON {
			return printLines(std.out, []*overview{o})
		}
		return o.print(std.out)
	})
}

func (c *statusCommand) look(ctx context.Context, js jetstream.JetStream) (*overview, error) {
	o := new(overview)
	for _, s := range streams.Default(streams.Settings{}).Streams {
		if err := o.lookAt(ctx, js, s.Config.Name); err != nil {
			return nil, err
		}
	}
	wanted := []string{dispatcherSubject()}
	for _, h := range o.Hooks {
		wanted = append(wanted, streams.CallSubject(h.HookID))
	}
	services, err := askServices(ctx, js.Conn(), wanted...)
	if err != nil {
		return nil, err
	}
	for _, a := range services[dispatcherSubject()] {
		o.Dispatchers = append(o.Dispatchers, dispatcherStatus{
			ID: events.Optional(a.service.ID), Version: events.Optional(a.service.Version),
		})
	}
	if o.Recent, err = readRecent(ctx, js, c.Since.Time, c.Most); err != nil {
		return nil, err
	}
	for i := range o.Hooks {
		h := &o.Hooks[i]
		h.Records, h.Suspended = o.Recent.byHook[h.HookID], o.Recent.suspended[h.HookID]
		for _, a := range services[streams.CallSubject(h.HookID)] {
			h.Providers++
			h.Calls += a.stats.NumRequests
			h.CallErrors += a.stats.NumErrors
		}
	}
	for _, address := range c.Dispatcher {
		o.scrape(ctx, address)
	}
	return o, nil
}

// lookAt adds what the broker tells about a stream and its durable consumers. A stream that is missing is not listed.
func (o *overview) lookAt(ctx context.Context, js jetstream.JetStream, name string) error {
	stream, err := js.Stream(ctx, name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look at %s: %w", name, err)
	}
	info := stream.CachedInfo()
	status := streamStatus{
		Stream: name, Messages: info.State.Msgs, Bytes: info.State.Bytes,
		MaxBytes: uint64(max(info.Config.MaxBytes, 0)), MaxAgeSeconds: int64(info.Config.MaxAge.Seconds()),
	}
	if info.State.Msgs > 0 {
		status.Oldest = events.Optional(events.NewTimestamp(info.State.FirstTime))
	}
	o.Streams = append(o.Streams, status)
	list := stream.ListConsumers(ctx)
	first := len(o.Consumers)
	for consumer := range list.Info() {
		if consumer.Config.Durable == "" {
			continue // somebody who is reading
		}
		age, err := streams.OldestWaiting(ctx, js, consumer)
		if err != nil {
			return err
		}
		c := consumerStatus{
			Stream: name, Consumer: consumer.Name, Waiting: consumer.NumPending,
			Unacknowledged: consumer.NumAckPending, OldestSeconds: int64(age.Seconds()),
		}
		o.Consumers = append(o.Consumers, c)
		if hook, ok := streams.ParseRetryConsumer(consumer.Name); ok && name == streams.Retries {
			o.Hooks = append(o.Hooks, hookStatus{HookID: hook, Backlog: c.Waiting + uint64(max(c.Unacknowledged, 0))})
		}
	}
	if err := list.Err(); err != nil {
		return fmt.Errorf("list the consumers of %s: %w", name, err)
	}
	slices.SortFunc(o.Consumers[first:], func(a, b consumerStatus) int { return cmp.Compare(a.Consumer, b.Consumer) })
	slices.SortFunc(o.Hooks, func(a, b hookStatus) int { return cmp.Compare(a.HookID, b.HookID) })
	return nil
}

func (o *overview) print(w io.Writer) error {
	if len(o.Streams) == 0 {
		_, err := fmt.Fprintln(w, "The broker holds none of the streams: apply them first.")
		return err
	}
	table := []section{
		{title: "Streams", headings: []string{"STREAM", "MESSAGES", "SIZE", "OLDEST", "KEPT"}},
		{title: "Consumers", headings: []string{"STREAM", "CONSUMER", "WAITING", "UNACKNOWLEDGED", "OLDEST"}},
		{title: "Dispatchers", headings: []string{"DISPATCHER", "VERSION", "READY", "WHY NOT"}},
		{title: "Hooks", headings: []string{
			"HOOK", "BACKLOG", "PROVIDERS", "CALLS", "ERRORS", "PROPOSED", "NOT APPLICABLE", "RETRYING", "SUSPENDED", "FAILED", "BREAKER",
		}},
		{title: "Failures since " + second(o.Recent.Since), headings: []string{"HOOK", "CODE", "REASON", "FAILED"}},
		{title: "Newest conflicts", headings: []string{"RECORDED", "DISPATCH", "HOOK", "REASON"}},
		{title: "Newest refusals", headings: []string{"RECORDED", "DOCUMENT", "DIGEST", "REASON"}},
	}
	for _, s := range o.Streams {
		table[0].add(s.Stream, strconv.FormatUint(s.Messages, 10), s.size(), second(s.Oldest), seconds(s.MaxAgeSeconds, "for good"))
	}
	for _, c := range o.Consumers {
		table[1].add(c.Stream, c.Consumer, strconv.FormatUint(c.Waiting, 10), strconv.Itoa(c.Unacknowledged), seconds(c.OldestSeconds, ""))
	}
	processes := map[events.Optional]int{}
	for _, d := range o.Dispatchers {
		if d.ID != "" {
			processes[d.Version]++
		}
	}
	if len(processes) == 0 {
		table[2].add("none answers")
	}
	for _, version := range slices.Sorted(maps.Keys(processes)) {
		table[2].add(counted(processes[version], "process", "processes"), string(version))
	}
	for _, d := range o.Dispatchers {
		if d.Address != "" {
			table[2].add(string(d.Address), "", d.ready(), strings.Join(d.Reasons, "; "))
		}
	}
	for _, h := range o.Hooks {
		count := func(s events.Status) string { return strconv.Itoa(h.Records[s]) }
		table[3].add(h.HookID, strconv.FormatUint(h.Backlog, 10), strconv.Itoa(h.Providers), strconv.Itoa(h.Calls),
			strconv.Itoa(h.CallErrors), count(events.StatusProposed), count(events.StatusNotApplicable),
			count(events.StatusRetrying), strconv.Itoa(h.Suspended), count(events.StatusFailed), h.breaker())
	}
	for _, f := range o.Recent.Failures {
		table[4].add(f.HookID, string(f.Code), string(f.Reason), strconv.Itoa(f.Failed))
	}
	for _, c := range o.Recent.Conflicts {
		table[5].add(second(c.RecordedAt), short(c.DispatchID), c.HookID, string(c.Reason))
	}
	for _, r := range o.Recent.Refusals {
		table[6].add(second(r.RecordedAt), string(r.Document), short(r.Digest), string(r.Reason))
	}
	if err := printSections(w, false, table...); err != nil {
		return err
	}
	_, err := fmt.Fprintln(w, "\n"+o.Recent.sentence())
	return err
}

func (s streamStatus) size() string {
	if s.MaxBytes == 0 {
		return bytesText(int64(s.Bytes)) //nolint:gosec // no stream has 2^63 bytes
	}
	return bytesText(int64(s.Bytes)) + " of " + bytesText(int64(s.MaxBytes)) //nolint:gosec // no stream has 2^63 bytes
}

func (d dispatcherStatus) ready() string {
	switch {
	case d.Ready == nil:
		return ""
	case *d.Ready:
		return "yes"
	}
	return "no"
}

// breaker says in which states the hook's breaker is, and in how many lanes.
func (h hookStatus) breaker() string {
	parts := make([]string, 0, len(h.Breakers))
	for _, state := range slices.Sorted(maps.Keys(h.Breakers)) {
		if n := h.Breakers[state]; n > 0 {
			parts = append(parts, fmt.Sprintf("%s %d", state, n))
		}
	}
	return strings.Join(parts, ", ")
}

// seconds is a length of time as people are told it; none says what 0 means.
func seconds(n int64, none string) string {
	if n == 0 {
		return none
	}
	return flags.Duration(time.Duration(n) * time.Second)
}
