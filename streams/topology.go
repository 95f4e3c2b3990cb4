package streams

import (
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/afterwrite/afterwrite/events"
)

// Topology is what the broker is to hold.
type Topology struct {
	Streams []Stream
}

// Stream is one stream and its durable consumers.
type Stream struct {
	Config    jetstream.StreamConfig
	Consumers []jetstream.ConsumerConfig
}

// maxWaiting is how many pull requests of a consumer may wait at once, over all processes. It cannot be changed
// later, so there is room for many.
const maxWaiting = 2048

// Default is the topology for the settings, which must be valid; it fills in their defaults.
func Default(s Settings) Topology {
	s = s.WithDefaults()
	return Topology{Streams: []Stream{
		{
			Config: s.workStream(Receipts, "Receipts of durable writebacks, as orchestrators published them.",
				s.ReceiptsAge, s.ReceiptsMaxBytes, s.DuplicateWindow, ReceiptFilter()),
			Consumers: []jetstream.ConsumerConfig{s.consumer(DispatcherConsumer, "")},
		},
		{
			Config: s.workStream(Journal, "What was decided about every dispatch, append only.",
				s.JournalAge, s.JournalMaxBytes, 0, JournalFilter(), ConflictFilter(), RefusalFilter()),
		},
		{
			Config:    s.retriesStream(),
			Consumers: s.retryConsumers(),
		},
		{
			Config: s.workStream(Intents, "Intents that providers proposed, for executors to admit.",
				s.IntentsAge, s.IntentsMaxBytes, 0, IntentFilter("")),
			Consumers: s.executorConsumers(),
		},
		{
			Config: s.workStream(Executions, "What executors claimed, and what came of it.",
				s.ExecutionsAge, s.ExecutionsMaxBytes, 0, ExecutionFilter()),
		},
		{
			Config: s.stateStream(),
		},
	}}
}

// workStream keeps everything for a time and, when full, refuses new work instead of losing old.
func (s Settings) workStream(
	name, description string, age time.Duration, maxBytes int64, duplicates time.Duration, subjects ...string,
) jetstream.StreamConfig {
	cfg := s.stream(name, description, subjects...)
	cfg.Retention = jetstream.LimitsPolicy
	cfg.MaxAge = age
	cfg.MaxBytes = maxBytes
	cfg.Discard = jetstream.DiscardNew
	cfg.DenyDelete = true
	cfg.DenyPurge = true
	// What is left at 0 is the server's default, which depends on the age; nothing else carries a message id.
	cfg.Duplicates = duplicates
	return cfg
}

// retriesStream holds each wake-up until it is acknowledged. It has no limit, for a refused wake-up would be a lost
// one, and the server grants schedules only together with discard old and roll-ups.
func (s Settings) retriesStream() jetstream.StreamConfig {
	cfg := s.stream(Retries, "Wake-ups of dispatches, scheduled and due.", RetryAtFilter(), RetryDueFilter(""))
	cfg.Retention = jetstream.WorkQueuePolicy
	cfg.Discard = jetstream.DiscardOld
	cfg.AllowRollup = true
	cfg.AllowMsgSchedules = true
	return cfg
}

// stateStream keeps the newest state of everything, for good.
func (s Settings) stateStream() jetstream.StreamConfig {
	cfg := s.stream(State, "The opaque states that capabilities keep.", StateFilter())
	cfg.Retention = jetstream.LimitsPolicy
	cfg.Discard = jetstream.DiscardOld
	cfg.MaxMsgsPerSubject = 1
	return cfg
}

// stream is a stream without limits. It spells out the server's defaults, so that the broker's answer can be compared
// with it member by member.
func (s Settings) stream(name, description string, subjects ...string) jetstream.StreamConfig {
	storage := jetstream.FileStorage
	if s.Storage == MemoryStorage {
		storage = jetstream.MemoryStorage
	}
	return jetstream.StreamConfig{
		Name:              name,
		Description:       description,
		Subjects:          subjects,
		Storage:           storage,
		Replicas:          s.Replicas,
		AllowDirect:       true,
		MaxConsumers:      -1,
		MaxMsgs:           -1,
		MaxBytes:          -1,
		MaxMsgsPerSubject: -1,
		MaxMsgSize:        -1,
	}
}

// consumer takes everything that matches the filter, as often as it takes until it is acknowledged.
func (s Settings) consumer(name, filter string) jetstream.ConsumerConfig {
	return jetstream.ConsumerConfig{
		Durable:       name,
		FilterSubject: filter,
		DeliverPolicy: jetstream.DeliverAllPolicy,
		AckPolicy:     jetstream.AckExplicitPolicy,
		ReplayPolicy:  jetstream.ReplayInstantPolicy,
		AckWait:       s.AckWait,
		MaxDeliver:    -1,
		MaxAckPending: s.MaxAckPending,
		MaxWaiting:    maxWaiting,
	}
}

func (s Settings) retryConsumers() []jetstream.ConsumerConfig {
	var consumers []jetstream.ConsumerConfig
	for _, hook := range s.Hooks {
		consumers = append(consumers, s.consumer(RetryConsumer(hook), RetryDueFilter(hook)))
	}
	return consumers
}

func (s Settings) executorConsumers() []jetstream.ConsumerConfig {
	var consumers []jetstream.ConsumerConfig
	for _, e := range s.Executors {
		cfg := s.consumer(ExecutorConsumer(e.Executor, e.Kind), IntentFilter(e.Kind))
		cfg.DeliverPolicy, cfg.OptStartTime, _ = e.Start.policy()
		consumers = append(consumers, cfg)
	}
	return consumers
}

// Only is the part of the topology that a process uses, for it to check.
func (t Topology) Only(names ...string) Topology {
	return Topology{Streams: slices.DeleteFunc(slices.Clone(t.Streams), func(s Stream) bool {
		return !slices.Contains(names, s.Config.Name)
	})}
}

// Stream is the stream of that name.
func (t Topology) Stream(name string) (Stream, bool) {
	i := slices.IndexFunc(t.Streams, func(s Stream) bool { return s.Config.Name == name })
	if i < 0 {
		return Stream{}, false
	}
	return t.Streams[i], true
}

// Load is how much work there is, for estimates.
type Load struct {
	DispatchesPerSecond float64
	// IntentsPerDispatch is a mean.
	IntentsPerDispatch float64
	// ExecutorsPerIntent is how many executors take each intent.
	ExecutorsPerIntent float64
}

// bytesPerSubject is about what the server holds in memory for a subject that it keeps a message of.
const bytesPerSubject = 300

// BrokerMemory is about how many bytes of memory each replica of the broker needs for the subjects it keeps: one for
// every dispatch, intent and execution.
func (t Topology) BrokerMemory(load Load) int64 {
	kept := func(stream string) float64 {
		s, _ := t.Stream(stream)
		return s.Config.MaxAge.Seconds()
	}
	intents := load.DispatchesPerSecond * load.IntentsPerDispatch
	subjects := load.DispatchesPerSecond*kept(Journal) +
		intents*kept(Intents) +
		intents*load.ExecutorsPerIntent*kept(Executions)
	return int64(bytesPerSubject * subjects)
}

// retryHook is the hook that the consumer of [Retries] serves, if it is one that [Default] would declare.
func retryHook(cfg jetstream.ConsumerConfig) (hook events.HookID, ok bool) {
	hook, ok = ParseRetryConsumer(cfg.Durable)
	return hook, ok && cfg.FilterSubject == RetryDueFilter(hook)
}
