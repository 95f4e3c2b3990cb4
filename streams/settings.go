package streams

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/afterwrite/afterwrite/events"
)

// Storage is where the broker keeps the streams.
type Storage string

const (
	// FileStorage keeps them on disk.
	FileStorage Storage = "file"
	// MemoryStorage keeps them in memory: a restart of the broker forgets what was done, for trying things out only.
	MemoryStorage Storage = "memory"
)

// Settings are the choices an operator has about the topology. The zero value of a field is its default.
type Settings struct {
	// Storage of every stream. By default file.
	Storage Storage
	// Replicas of every stream: 1, 3 or 5. By default 1.
	Replicas int

	// ReceiptsAge is how long a receipt waits for a dispatcher. By default 3 days.
	ReceiptsAge time.Duration
	// JournalAge is how long a decision is known, and so how long a dispatch is done only once. By default 7 days.
	JournalAge time.Duration
	// IntentsAge is how long an intent waits for an executor. By default 7 days.
	IntentsAge time.Duration
	// ExecutionsAge is how long an execution is known, and so how long it is done only once. By default 7 days.
	ExecutionsAge time.Duration
	// RetryHorizon is the longest time that the attempts of a dispatch are spread over, in any installed profile.
	RetryHorizon time.Duration
	// DuplicateWindow is how long the broker drops a receipt it has already taken. By default 10 minutes.
	DuplicateWindow time.Duration

	// Sizes in bytes at which the streams refuse work. By default 2 GiB, the journal 4 GiB.
	ReceiptsMaxBytes, JournalMaxBytes, IntentsMaxBytes, ExecutionsMaxBytes int64

	// AckWait is how long a consumer may be silent about a message before it is delivered again. By default 30 s.
	AckWait time.Duration
	// MaxAckPending is how many messages of a consumer may be in work at once, over all processes. By default 20 000.
	MaxAckPending int

	// Hooks are the installed hooks, each of which has a consumer for its wake-ups.
	Hooks []events.HookID
	// Executors are who consumes which intents.
	Executors []Executor
}

// Executor is one executor's consumer for one intent kind.
type Executor struct {
	Executor events.ExecutorID
	Kind     events.IntentKind
	// Start is where the consumer begins, when it is created. By default StartNew.
	Start Start
}

// Start is where a consumer of intents begins: [StartNew], [StartAll], or an RFC 3339 time.
type Start string

const (
	// StartNew begins with the intents published after the consumer was created.
	StartNew Start = "new"
	// StartAll begins with the oldest intent there is.
	StartAll Start = "all"
)

const (
	day = 24 * time.Hour
	gib = 1 << 30

	// The broker has no smaller duplicate window.
	minDuplicateWindow = 100 * time.Millisecond
)

// WithDefaults fills in what is not set.
func (s Settings) WithDefaults() Settings {
	setDefault(&s.Storage, FileStorage)
	setDefault(&s.Replicas, 1)
	setDefault(&s.ReceiptsAge, 3*day)
	setDefault(&s.JournalAge, 7*day)
	setDefault(&s.IntentsAge, 7*day)
	setDefault(&s.ExecutionsAge, 7*day)
	setDefault(&s.DuplicateWindow, 10*time.Minute)
	setDefault(&s.ReceiptsMaxBytes, 2*gib)
	setDefault(&s.JournalMaxBytes, 4*gib)
	setDefault(&s.IntentsMaxBytes, 2*gib)
	setDefault(&s.ExecutionsMaxBytes, 2*gib)
	setDefault(&s.AckWait, 30*time.Second)
	setDefault(&s.MaxAckPending, 20_000)
	s.Executors = slices.Clone(s.Executors)
	for i := range s.Executors {
		setDefault(&s.Executors[i].Start, StartNew)
	}
	return s
}

func setDefault[T comparable](field *T, value T) {
	if *field == *new(T) {
		*field = value
	}
}

// Validate reports every field that breaks a rule, of settings that have their defaults.
func (s Settings) Validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf("streams: "+format, args...)) }

	if s.Storage != FileStorage && s.Storage != MemoryStorage {
		bad(`Storage must be "file" or "memory", it is %q`, s.Storage)
	}
	if s.Replicas != 1 && s.Replicas != 3 && s.Replicas != 5 {
		bad("Replicas must be 1, 3 or 5, it is %d", s.Replicas)
	}
	positive := func(field string, value int64) {
		if value <= 0 {
			bad("%s must be positive", field)
		}
	}
	positive("ReceiptsAge", int64(s.ReceiptsAge))
	positive("JournalAge", int64(s.JournalAge))
	positive("IntentsAge", int64(s.IntentsAge))
	positive("ExecutionsAge", int64(s.ExecutionsAge))
	positive("ReceiptsMaxBytes", s.ReceiptsMaxBytes)
	positive("JournalMaxBytes", s.JournalMaxBytes)
	positive("IntentsMaxBytes", s.IntentsMaxBytes)
	positive("ExecutionsMaxBytes", s.ExecutionsMaxBytes)
	positive("AckWait", int64(s.AckWait))
	positive("MaxAckPending", int64(s.MaxAckPending))
	if s.RetryHorizon < 0 {
		bad("RetryHorizon must not be negative")
	}
	// A receipt redelivered, or retried, at the last moment must still find what was decided about it.
	if s.ReceiptsAge+s.RetryHorizon > s.JournalAge {
		bad("JournalAge must be at least ReceiptsAge and RetryHorizon together, %s, it is %s",
			s.ReceiptsAge+s.RetryHorizon, s.JournalAge)
	}
	if s.JournalAge > s.IntentsAge {
		bad("IntentsAge must be at least JournalAge, %s, it is %s", s.JournalAge, s.IntentsAge)
	}
	if s.IntentsAge > s.ExecutionsAge {
		bad("ExecutionsAge must be at least IntentsAge, %s, it is %s", s.IntentsAge, s.ExecutionsAge)
	}
	if s.DuplicateWindow < minDuplicateWindow || s.DuplicateWindow > s.ReceiptsAge {
		bad("DuplicateWindow must be from %s to ReceiptsAge, %s, it is %s", minDuplicateWindow, s.ReceiptsAge, s.DuplicateWindow)
	}
	for i, hook := range s.Hooks {
		switch {
		case !events.IsName(hook):
			bad("Hooks[%d] must be a name", i)
		case slices.Contains(s.Hooks[:i], hook):
			bad("Hooks[%d] must not repeat %s", i, hook)
		}
	}
	for i, e := range s.Executors {
		switch {
		case !events.IsName(e.Executor):
			bad("Executors[%d].Executor must be a name", i)
		case !events.IsName(e.Kind):
			bad("Executors[%d].Kind must be a name", i)
		case slices.ContainsFunc(s.Executors[:i], func(o Executor) bool { return o.Executor == e.Executor && o.Kind == e.Kind }):
			bad("Executors[%d] must not repeat %s for %s", i, e.Executor, e.Kind)
		}
		if _, _, err := e.Start.policy(); err != nil {
			bad("Executors[%d].Start %w", i, err)
		}
	}
	return errors.Join(errs...)
}

var errStart = errors.New(`must be "new", "all" or an RFC 3339 time`)

func (s Start) policy() (jetstream.DeliverPolicy, *time.Time, error) {
	switch s {
	case StartNew:
		return jetstream.DeliverNewPolicy, nil, nil
	case StartAll:
		return jetstream.DeliverAllPolicy, nil, nil
	}
	at, err := time.Parse(time.RFC3339, string(s))
	if err != nil {
		return 0, nil, errStart
	}
	at = at.UTC()
	return jetstream.DeliverByStartTimePolicy, &at, nil
}
