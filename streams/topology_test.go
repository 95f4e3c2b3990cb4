package streams_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/afterwrite/afterwrite/events"
	"github.com/afterwrite/afterwrite/streams"
)

func TestEverySubjectBelongsToItsOneStreamAndRequestsToNone(t *testing.T) {
	ctx, js := broker(t)
	// That the broker takes all streams also shows that no two of them overlap.
	apply(ctx, t, js, installed)
	for subject, want := range map[string]string{
		streams.ReceiptSubject(events.TodoCompleted):            "PWH_RECEIPTS",
		streams.ReceiptSubject("unknown_kind"):                  "PWH_RECEIPTS",
		streams.ReceiptFilter():                                 "PWH_RECEIPTS",
		streams.JournalSubject(dispatch, "a"):                   "PWH_JOURNAL",
		streams.JournalSubject(dispatch, "a.b.c"):               "PWH_JOURNAL",
		streams.JournalFilter():                                 "PWH_JOURNAL",
		streams.JournalFilterFor(dispatch):                      "PWH_JOURNAL",
		streams.ConflictSubject(dispatch, digest, "a.b"):        "PWH_JOURNAL",
		streams.ConflictFilter():                                "PWH_JOURNAL",
		streams.ConflictFilterFor(dispatch):                     "PWH_JOURNAL",
		streams.RefusalSubject(hexDigits):                       "PWH_JOURNAL",
		streams.RefusalFilter():                                 "PWH_JOURNAL",
		streams.RetryAtSubject(dispatch, "a.b"):                 "PWH_RETRIES",
		streams.RetryAtFilter():                                 "PWH_RETRIES",
		streams.RetryAtHookFilter("a.b"):                        "PWH_RETRIES",
		streams.RetryDueSubject(dispatch, "a.b"):                "PWH_RETRIES",
		streams.RetryDueFilter("a.b"):                           "PWH_RETRIES",
		streams.RetryDueFilter(""):                              "PWH_RETRIES",
		streams.IntentSubject(intent, "a.b"):                    "PWH_INTENTS",
		streams.IntentFilter("a.b"):                             "PWH_INTENTS",
		streams.IntentFilter(""):                                "PWH_INTENTS",
		streams.IntentFilterFor(intent):                         "PWH_INTENTS",
		streams.ExecutionSubject(intent, "a.b"):                 "PWH_EXECUTIONS",
		streams.ExecutionFilter():                               "PWH_EXECUTIONS",
		streams.ExecutionFilterFor(intent):                      "PWH_EXECUTIONS",
		streams.StateSubject("any key", "weekly.executor", "a"): "PWH_STATE",
		streams.StateFilter():                                   "PWH_STATE",
		streams.CallSubject("a"):                                "",
		streams.CallSubject("a.b"):                              "",
		streams.CallSubject(">"):                                "",
		streams.ServiceSubject("a.b"):                           "",
		streams.ServiceSubject(">"):                             "",
	} {
		got, err := js.StreamNameBySubject(ctx, subject)
		if err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
			t.Fatal(err)
		}
		if got != want {
			t.Errorf("%s belongs to %q, want %q", subject, got, want)
		}
	}
}

func TestConsumersOfTheLongestNamesAreTaken(t *testing.T) {
	ctx, js := broker(t)
	long := func(r string) string { return strings.Repeat(r, 47) + "." + strings.Repeat(r, 48) }
	settings := streams.Settings{
		Hooks:     []string{long("a"), long("b"), "a", "a.a"},
		Executors: []streams.Executor{{Executor: long("a"), Kind: long("b")}, {Executor: "a", Kind: long("b")}},
	}
	apply(ctx, t, js, settings)
	if diffs := check(ctx, t, js, settings); len(diffs) != 0 {
		t.Errorf("differences: %v", lines(diffs))
	}
}

func TestSettingsNameTheFieldThatBreaksARule(t *testing.T) {
	if err := (streams.Settings{}).WithDefaults().Validate(); err != nil {
		t.Errorf("the defaults: %v", err)
	}
	for name, tt := range map[string]struct {
		edit func(*streams.Settings)
		want string
	}{
		"storage":  {func(s *streams.Settings) { s.Storage = "tape" }, "Storage"},
		"replicas": {func(s *streams.Settings) { s.Replicas = 2 }, "Replicas"},
		"receipts and retries outlive the journal": {
			func(s *streams.Settings) { s.RetryHorizon = 4*24*time.Hour + 1 }, "JournalAge",
		},
		"journal outlives the intents":    {func(s *streams.Settings) { s.JournalAge = 8 * 24 * time.Hour }, "IntentsAge"},
		"intents outlive the executions":  {func(s *streams.Settings) { s.IntentsAge = 8 * 24 * time.Hour }, "ExecutionsAge"},
		"negative age":                    {func(s *streams.Settings) { s.ReceiptsAge = -1 }, "ReceiptsAge"},
		"negative horizon":                {func(s *streams.Settings) { s.RetryHorizon = -1 }, "RetryHorizon"},
		"negative size":                   {func(s *streams.Settings) { s.JournalMaxBytes = -1 }, "JournalMaxBytes"},
		"window below the broker's least": {func(s *streams.Settings) { s.DuplicateWindow = 99 * time.Millisecond }, "DuplicateWindow"},
		"window above the age":            {func(s *streams.Settings) { s.DuplicateWindow = 4 * 24 * time.Hour }, "DuplicateWindow"},
		"ack wait":                        {func(s *streams.Settings) { s.AckWait = -1 }, "AckWait"},
		"ack pending":                     {func(s *streams.Settings) { s.MaxAckPending = -1 }, "MaxAckPending"},
		"hook":                            {func(s *streams.Settings) { s.Hooks = []string{"A"} }, "Hooks[0]"},
		"hook twice":                      {func(s *streams.Settings) { s.Hooks = []string{"a", "a"} }, "Hooks[1]"},
		"executor": {func(s *streams.Settings) {
			s.Executors = []streams.Executor{{Executor: "a-b", Kind: "k", Start: streams.StartNew}}
		}, "Executors[0].Executor"},
		"kind": {func(s *streams.Settings) {
			s.Executors = []streams.Executor{{Executor: "a", Kind: "", Start: streams.StartNew}}
		}, "Executors[0].Kind"},
		"start": {func(s *streams.Settings) {
			s.Executors = []streams.Executor{{Executor: "a", Kind: "k", Start: "yesterday"}}
		}, "Executors[0].Start"},
		"executor twice": {func(s *streams.Settings) {
			s.Executors = []streams.Executor{{Executor: "a", Kind: "k", Start: "new"}, {Executor: "a", Kind: "k", Start: "all"}}
		}, "Executors[1]"},
	} {
		t.Run(name, func(t *testing.T) {
			s := streams.Settings{}.WithDefaults()
			tt.edit(&s)
			err := s.Validate()
			if err == nil || !strings.Contains(err.Error(), ": "+tt.want+" ") {
				t.Errorf("Validate() = %v, want an error about %s", err, tt.want)
			}
		})
	}
}

func TestWithDefaultsReturnsACopy(t *testing.T) {
	s := streams.Settings{Executors: []streams.Executor{{Executor: "a", Kind: "k"}}}
	if with := s.WithDefaults(); with.Executors[0].Start != streams.StartNew || s.Executors[0].Start != "" {
		t.Errorf("defaults must be in the copy only: %v and %v", with.Executors, s.Executors)
	}
}

func TestTheBrokersMemoryIsEstimatedAsTheDesignSays(t *testing.T) {
	// 300 B × seconds kept × dispatches/s × (1 + intents per dispatch × (1 + executors)), every age being 7 days.
	got := streams.Default(streams.Settings{}).BrokerMemory(streams.Load{
		DispatchesPerSecond: 10, IntentsPerDispatch: 0.5, ExecutorsPerIntent: 2,
	})
	const want = 300 * 604800 * 10 * 2.5
	if got != want {
		t.Errorf("BrokerMemory() = %d, want %d", got, int64(want))
	}
}
