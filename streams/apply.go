package streams

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/afterwrite/afterwrite/events"
)

// Action is what [Apply] does about a stream or a consumer.
type Action string

const (
	// CreateStream: the stream is missing.
	CreateStream Action = "create_stream"
	// UpdateStream: fields of the stream differ.
	UpdateStream Action = "update_stream"
	// CreateConsumer: the consumer is missing.
	CreateConsumer Action = "create_consumer"
	// UpdateConsumer: fields of the consumer differ. It keeps its position.
	UpdateConsumer Action = "update_consumer"
	// DeleteConsumer: the consumer is of a hook that is not installed, and no wake-up is left for it.
	DeleteConsumer Action = "delete_consumer"
	// Refuse: a field differs that Apply does not change. It then changes nothing at all.
	Refuse Action = "refuse"
)

// Change is one step of [Apply].
type Change struct {
	Action Action
	Stream string
	// Consumer is "" for a change of the stream itself.
	Consumer string
	// Differences are the fields that an update changes, or that are refused.
	Differences []Difference

	stream   jetstream.StreamConfig
	consumer jetstream.ConsumerConfig
}

func (c Change) String() string {
	text := strings.ReplaceAll(string(c.Action), "_", " ") + " " + c.Stream
	if c.Consumer != "" {
		text += " " + c.Consumer
	}
	if len(c.Differences) == 0 {
		return text
	}
	fields := make([]string, len(c.Differences))
	for i, d := range c.Differences {
		fields[i] = d.Field + " " + d.Have + " → " + d.Want
	}
	return text + ": " + strings.Join(fields, ", ")
}

// Plan lists what [Apply] would do, in order, and changes nothing. Nothing to do is an empty list.
func Plan(ctx context.Context, js jetstream.JetStream, t Topology) ([]Change, error) {
	var changes []Change
	for _, want := range t.Streams {
		have, err := observe(ctx, js, want.Config.Name)
		if err != nil {
			return nil, err
		}
		changes = append(changes, planStream(want, have)...)
		if want.Config.Name != Retries || have == nil {
			continue
		}
		leftover, err := planLeftover(ctx, want, have)
		if err != nil {
			return nil, err
		}
		changes = append(changes, leftover...)
	}
	return changes, nil
}

// Apply makes the broker hold the topology and returns what it did. It creates and changes streams and consumers and
// never deletes a stream, a message, or a position. If a field differs that cannot be changed so, it changes nothing
// and the error is a [*RefusedError].
//
// The one thing it deletes is the consumer of a hook that is no longer installed, once no wake-up is left for it.
func Apply(ctx context.Context, js jetstream.JetStream, t Topology) ([]Change, error) {
	changes, err := Plan(ctx, js, t)
	if err != nil {
		return nil, err
	}
	var refused []Difference
	for _, c := range changes {
		if c.Action == Refuse {
			refused = append(refused, c.Differences...)
		}
	}
	if len(refused) > 0 {
		return nil, &RefusedError{Differences: refused}
	}
	for i, c := range changes {
		if err := c.do(ctx, js); err != nil {
			return changes[:i], fmt.Errorf("streams: %s: %w", c, err)
		}
	}
	return changes, nil
}

func (c Change) do(ctx context.Context, js jetstream.JetStream) (err error) {
	switch c.Action {
	case CreateStream:
		_, err = js.CreateStream(ctx, c.stream)
	case UpdateStream:
		_, err = js.UpdateStream(ctx, c.stream)
	case CreateConsumer:
		_, err = js.CreateConsumer(ctx, c.Stream, c.consumer)
	case UpdateConsumer:
		_, err = js.UpdateConsumer(ctx, c.Stream, c.consumer)
	case DeleteConsumer:
		err = js.DeleteConsumer(ctx, c.Stream, c.Consumer)
	case Refuse:
	}
	return err
}

// Check lists how the broker differs from the topology. For a process that uses a part of it, see [Topology.Only].
func Check(ctx context.Context, js jetstream.JetStream, t Topology) ([]Difference, error) {
	var diffs []Difference
	for _, want := range t.Streams {
		have, err := observe(ctx, js, want.Config.Name)
		if err != nil {
			return nil, err
		}
		for _, c := range planStream(want, have) {
			switch c.Action {
			case CreateStream:
				diffs = append(diffs, Difference{Kind: Missing, Stream: c.Stream, Remedy: remedyApply})
			case CreateConsumer:
				if have != nil {
					diffs = append(diffs, Difference{Kind: Missing, Stream: c.Stream, Consumer: c.Consumer, Remedy: remedyApply})
				}
			case UpdateStream, UpdateConsumer, Refuse:
				diffs = append(diffs, c.Differences...)
			case DeleteConsumer:
			}
		}
		diffs = append(diffs, want.extras(have)...)
	}
	return diffs, nil
}

// Recreate creates a consumer of the topology that was deleted by mistake, beginning with the first message: what was
// already done is recognized, what was not is done now. It is the one repair that is not left to [Apply].
func Recreate(ctx context.Context, js jetstream.JetStream, t Topology, stream, consumer string) error {
	s, _ := t.Stream(stream)
	i := slices.IndexFunc(s.Consumers, func(c jetstream.ConsumerConfig) bool { return c.Durable == consumer })
	if i < 0 {
		return fmt.Errorf("streams: the topology has no consumer %s on %s", consumer, stream)
	}
	cfg := s.Consumers[i]
	cfg.DeliverPolicy, cfg.OptStartTime = jetstream.DeliverAllPolicy, nil
	if _, err := js.CreateConsumer(ctx, stream, cfg); err != nil {
		return fmt.Errorf("streams: create consumer %s on %s: %w", consumer, stream, err)
	}
	return nil
}

// LeftoverHooks are the hooks that have a consumer of wake-ups and none in the topology: their work is still to be
// closed, by the dispatchers.
func LeftoverHooks(ctx context.Context, js jetstream.JetStream, t Topology) ([]events.HookID, error) {
	want, ok := t.Stream(Retries)
	if !ok {
		return nil, nil
	}
	have, err := observe(ctx, js, Retries)
	if err != nil || have == nil {
		return nil, err
	}
	var hooks []events.HookID
	for _, info := range want.unknown(have) {
		if hook, ok := retryHook(info.Config); ok {
			hooks = append(hooks, hook)
		}
	}
	return hooks, nil
}

// observed is a stream as the broker has it.
type observed struct {
	handle    jetstream.Stream
	info      *jetstream.StreamInfo
	consumers []*jetstream.ConsumerInfo
}

// observe gives nil for a stream that does not exist.
func observe(ctx context.Context, js jetstream.JetStream, name string) (*observed, error) {
	handle, err := js.Stream(ctx, name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("streams: look at %s: %w", name, err)
	}
	o := &observed{handle: handle, info: handle.CachedInfo()}
	list := handle.ListConsumers(ctx)
	for info := range list.Info() {
		o.consumers = append(o.consumers, info)
	}
	if err := list.Err(); err != nil {
		return nil, fmt.Errorf("streams: list the consumers of %s: %w", name, err)
	}
	slices.SortFunc(o.consumers, func(a, b *jetstream.ConsumerInfo) int { return strings.Compare(a.Name, b.Name) })
	return o, nil
}

func (o *observed) consumer(name string) *jetstream.ConsumerInfo {
	i := slices.IndexFunc(o.consumers, func(info *jetstream.ConsumerInfo) bool { return info.Name == name })
	if i < 0 {
		return nil
	}
	return o.consumers[i]
}

func planStream(want Stream, have *observed) []Change {
	name := want.Config.Name
	var changes []Change
	if have == nil {
		changes = append(changes, Change{Action: CreateStream, Stream: name, stream: want.Config})
		have = &observed{}
	} else {
		diffs, merged := compareStream(want.Config, have.info)
		changes = append(changes, updates(diffs, Change{Action: UpdateStream, Stream: name, stream: merged})...)
	}
	for _, cfg := range want.Consumers {
		info := have.consumer(cfg.Durable)
		if info == nil {
			changes = append(changes, Change{Action: CreateConsumer, Stream: name, Consumer: cfg.Durable, consumer: cfg})
			continue
		}
		diffs, merged := compareConsumer(name, cfg, info.Config)
		changes = append(changes,
			updates(diffs, Change{Action: UpdateConsumer, Stream: name, Consumer: cfg.Durable, consumer: merged})...)
	}
	return changes
}

// updates splits differences into what is refused and the one update that does the rest.
func updates(diffs []Difference, update Change) []Change {
	var changes []Change
	refusal := Change{Action: Refuse, Stream: update.Stream, Consumer: update.Consumer}
	for _, d := range diffs {
		if d.Kind == Mutable {
			update.Differences = append(update.Differences, d)
		} else {
			refusal.Differences = append(refusal.Differences, d)
		}
	}
	for _, c := range []Change{refusal, update} {
		if len(c.Differences) > 0 {
			changes = append(changes, c)
		}
	}
	return changes
}

// planLeftover deletes the consumers of hooks that are gone, where no wake-up is left, due or scheduled.
func planLeftover(ctx context.Context, want Stream, have *observed) ([]Change, error) {
	var changes []Change
	for _, info := range want.unknown(have) {
		hook, ok := retryHook(info.Config)
		if !ok || info.NumPending > 0 || info.NumAckPending > 0 {
			continue
		}
		_, err := have.handle.GetMsg(ctx, 1, jetstream.WithGetMsgSubject(RetryAtHookFilter(hook)))
		if err == nil {
			continue
		}
		if !errors.Is(err, jetstream.ErrMsgNotFound) {
			return nil, fmt.Errorf("streams: look for wake-ups of %s: %w", hook, err)
		}
		changes = append(changes, Change{Action: DeleteConsumer, Stream: Retries, Consumer: info.Name})
	}
	return changes, nil
}

// unknown lists the consumers that the topology does not have.
func (s Stream) unknown(have *observed) []*jetstream.ConsumerInfo {
	if have == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(have.consumers), func(info *jetstream.ConsumerInfo) bool {
		return slices.ContainsFunc(s.Consumers, func(cfg jetstream.ConsumerConfig) bool { return cfg.Durable == info.Name })
	})
}

// extras reports the durable consumers that the topology does not have: one that is not durable belongs to somebody
// who is reading. A consumer of intents that is another executor's is none, for no process knows all executors.
func (s Stream) extras(have *observed) []Difference {
	var diffs []Difference
	for _, info := range s.unknown(have) {
		if info.Config.Durable == "" {
			continue
		}
		d := Difference{Kind: Extra, Stream: s.Config.Name, Consumer: info.Name, Remedy: remedyExtra}
		switch s.Config.Name {
		case Retries:
			if _, ok := retryHook(info.Config); ok {
				d.Remedy = remedyGone
			}
		case Intents:
			if _, kind, ok := ParseExecutorConsumer(info.Name); ok && info.Config.FilterSubject == IntentFilter(kind) {
				continue
			}
		}
		diffs = append(diffs, d)
	}
	return diffs
}
