package streams_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/afterwrite/afterwrite/events"
	"github.com/afterwrite/afterwrite/internal/natsembed"
	"github.com/afterwrite/afterwrite/streams"
)

func lines[T interface{ String() string }](list []T) []string {
	var out []string
	for _, x := range list {
		out = append(out, x.String())
	}
	return out
}

func check(ctx context.Context, t *testing.T, js jetstream.JetStream, s streams.Settings) []streams.Difference {
	t.Helper()
	diffs, err := streams.Check(ctx, js, streams.Default(s))
	if err != nil {
		t.Fatal(err)
	}
	return diffs
}

// differing is the part of a difference that tests name.
type differing struct {
	Kind                                streams.DifferenceKind
	Stream, Consumer, Field, Want, Have string
}

func withoutRemedy(diffs []streams.Difference) []differing {
	var out []differing
	for _, d := range diffs {
		out = append(out, differing{d.Kind, d.Stream, d.Consumer, d.Field, d.Want, d.Have})
	}
	return out
}

func TestApplyCreatesWhatIsMissingAndThenHasNothingToDo(t *testing.T) {
	ctx, js := broker(t)
	want := []string{
		"create stream PWH_RECEIPTS",
		"create consumer PWH_RECEIPTS dispatcher",
		"create stream PWH_JOURNAL",
		"create stream PWH_RETRIES",
		"create consumer PWH_RETRIES weekly-trigger",
		"create consumer PWH_RETRIES weekly",
		"create stream PWH_INTENTS",
		"create consumer PWH_INTENTS governed-executor--weekly-evaluation",
		"create stream PWH_EXECUTIONS",
		"create stream PWH_STATE",
	}
	plan, err := streams.Plan(ctx, js, streams.Default(installed))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, lines(plan)); diff != "" {
		t.Errorf("plan (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(want, lines(apply(ctx, t, js, installed))); diff != "" {
		t.Errorf("first apply (-want +got):\n%s", diff)
	}
	if again := apply(ctx, t, js, installed); len(again) != 0 {
		t.Errorf("the second apply did something: %v", lines(again))
	}
	if diffs := check(ctx, t, js, installed); len(diffs) != 0 {
		t.Errorf("after apply there are differences: %v", lines(diffs))
	}
}

func TestCheckReportsWhatIsMissing(t *testing.T) {
	ctx, js := broker(t)
	want := []differing{
		{Kind: streams.Missing, Stream: "PWH_RECEIPTS"},
		{Kind: streams.Missing, Stream: "PWH_JOURNAL"},
		{Kind: streams.Missing, Stream: "PWH_RETRIES"},
		{Kind: streams.Missing, Stream: "PWH_INTENTS"},
		{Kind: streams.Missing, Stream: "PWH_EXECUTIONS"},
		{Kind: streams.Missing, Stream: "PWH_STATE"},
	}
	if diff := cmp.Diff(want, withoutRemedy(check(ctx, t, js, installed))); diff != "" {
		t.Errorf("of nothing (-want +got):\n%s", diff)
	}
	apply(ctx, t, js, installed)
	if err := js.DeleteConsumer(ctx, "PWH_RETRIES", "weekly"); err != nil {
		t.Fatal(err)
	}
	want = []differing{{Kind: streams.Missing, Stream: "PWH_RETRIES", Consumer: "weekly"}}
	if diff := cmp.Diff(want, withoutRemedy(check(ctx, t, js, installed))); diff != "" {
		t.Errorf("of one consumer (-want +got):\n%s", diff)
	}
}

// The table of section 3 of the design.
func TestTheBrokerHoldsTheTopologyOfTheDesign(t *testing.T) {
	ctx, js := broker(t)
	apply(ctx, t, js, installed)
	const day = 24 * time.Hour
	type promises struct {
		Subjects              []string
		Retention             string
		Age, Window           time.Duration
		RefusesWhenFull       bool
		DenyDelete, DenyPurge bool
		Limited               bool
		PerSubject            int64
		RollUps, Schedules    bool
		DirectReads, AnyTTL   bool
		Storage               string
		Consumers             []string
	}
	want := map[string]promises{
		"PWH_RECEIPTS": {
			Subjects: []string{"pwh.receipts.*"}, Retention: "Limits", Age: 3 * day, Window: 10 * time.Minute,
			RefusesWhenFull: true, DenyDelete: true, DenyPurge: true, Limited: true, PerSubject: -1,
			DirectReads: true, Storage: "File", Consumers: []string{"dispatcher <- "},
		},
		"PWH_JOURNAL": {
			Subjects:  []string{"pwh.conflicts.*.*.>", "pwh.journal.*.>", "pwh.refused.*"},
			Retention: "Limits", Age: 7 * day, Window: 2 * time.Minute,
			RefusesWhenFull: true, DenyDelete: true, DenyPurge: true, Limited: true, PerSubject: -1,
			DirectReads: true, Storage: "File",
		},
		"PWH_RETRIES": {
			Subjects: []string{"pwh.retries.at.*.>", "pwh.retries.due.*.>"}, Retention: "WorkQueue", Window: 2 * time.Minute,
			PerSubject: -1, RollUps: true, Schedules: true, DirectReads: true, Storage: "File",
			Consumers: []string{"weekly <- pwh.retries.due.*.weekly", "weekly-trigger <- pwh.retries.due.*.weekly.trigger"},
		},
		"PWH_INTENTS": {
			Subjects: []string{"pwh.intents.*.>"}, Retention: "Limits", Age: 7 * day, Window: 2 * time.Minute,
			RefusesWhenFull: true, DenyDelete: true, DenyPurge: true, Limited: true, PerSubject: -1,
			DirectReads: true, Storage: "File",
			Consumers: []string{"governed-executor--weekly-evaluation <- pwh.intents.*.weekly.evaluation"},
		},
		"PWH_EXECUTIONS": {
			Subjects: []string{"pwh.executions.*.>"}, Retention: "Limits", Age: 7 * day, Window: 2 * time.Minute,
			RefusesWhenFull: true, DenyDelete: true, DenyPurge: true, Limited: true, PerSubject: -1,
			DirectReads: true, Storage: "File",
		},
		"PWH_STATE": {
			Subjects: []string{"pwh.state.*.*.>"}, Retention: "Limits", Window: 2 * time.Minute,
			PerSubject: 1, DirectReads: true, Storage: "File",
		},
	}
	got := map[string]promises{}
	for info := range js.ListStreams(ctx).Info() {
		c := info.Config
		p := promises{
			Subjects: slices.Sorted(slices.Values(c.Subjects)), Retention: c.Retention.String(), Age: c.MaxAge, Window: c.Duplicates,
			RefusesWhenFull: c.Discard == jetstream.DiscardNew, DenyDelete: c.DenyDelete, DenyPurge: c.DenyPurge,
			Limited: c.MaxBytes > 0, PerSubject: c.MaxMsgsPerSubject, RollUps: c.AllowRollup, Schedules: c.AllowMsgSchedules,
			DirectReads: c.AllowDirect, AnyTTL: c.AllowMsgTTL, Storage: c.Storage.String(),
		}
		stream, err := js.Stream(ctx, c.Name)
		if err != nil {
			t.Fatal(err)
		}
		for consumer := range stream.ListConsumers(ctx).Info() {
			p.Consumers = append(p.Consumers, consumer.Name+" <- "+consumer.Config.FilterSubject)
			cc := consumer.Config
			if cc.AckPolicy != jetstream.AckExplicitPolicy || cc.MaxDeliver != -1 || cc.AckWait != 30*time.Second || cc.DeliverSubject != "" {
				t.Errorf("%s %s: must be a pull consumer of explicit acks within 30 s and unlimited deliveries: %+v", c.Name, consumer.Name, cc)
			}
			fromNow := cc.DeliverPolicy == jetstream.DeliverNewPolicy
			if fromNow != (c.Name == "PWH_INTENTS") || !fromNow && cc.DeliverPolicy != jetstream.DeliverAllPolicy {
				t.Errorf("%s %s begins with %s", c.Name, consumer.Name, cc.DeliverPolicy)
			}
		}
		slices.Sort(p.Consumers)
		got[c.Name] = p
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestApplyChangesEveryFieldThatTheBrokerCanChange(t *testing.T) {
	target := streams.Default(installed)
	// Each edit makes something differ by hand, as an operator with another tool might.
	stream := map[string]struct {
		stream string
		edit   func(*jetstream.StreamConfig)
		also   []string
	}{
		"subjects": {"PWH_JOURNAL", func(c *jetstream.StreamConfig) { c.Subjects = []string{"pwh.journal.*.>"} }, nil},
		"discard":  {"PWH_JOURNAL", func(c *jetstream.StreamConfig) { c.Discard = jetstream.DiscardOld }, nil},
		"discard_new_per_subject": {"PWH_JOURNAL", func(c *jetstream.StreamConfig) {
			c.DiscardNewPerSubject, c.MaxMsgsPerSubject = true, 5
		}, []string{"max_msgs_per_subject"}},
		"max_age":              {"PWH_JOURNAL", func(c *jetstream.StreamConfig) { c.MaxAge = time.Hour }, nil},
		"max_bytes":            {"PWH_JOURNAL", func(c *jetstream.StreamConfig) { c.MaxBytes = 1 << 20 }, nil},
		"max_msgs":             {"PWH_JOURNAL", func(c *jetstream.StreamConfig) { c.MaxMsgs = 10 }, nil},
		"max_msgs_per_subject": {"PWH_STATE", func(c *jetstream.StreamConfig) { c.MaxMsgsPerSubject = 9 }, nil},
		"max_msg_size":         {"PWH_JOURNAL", func(c *jetstream.StreamConfig) { c.MaxMsgSize = 1000 }, nil},
		"max_consumers":        {"PWH_JOURNAL", func(c *jetstream.StreamConfig) { c.MaxConsumers = 7 }, nil},
		"duplicate_window":     {"PWH_RECEIPTS", func(c *jetstream.StreamConfig) { c.Duplicates = time.Second }, nil},
		"deny_delete":          {"PWH_JOURNAL", func(c *jetstream.StreamConfig) { c.DenyDelete = false }, nil},
		"deny_purge":           {"PWH_JOURNAL", func(c *jetstream.StreamConfig) { c.DenyPurge = false }, nil},
		"allow_rollup_hdrs": {"PWH_JOURNAL", func(c *jetstream.StreamConfig) {
			c.AllowRollup, c.DenyPurge = true, false
		}, []string{"deny_purge"}},
		"allow_direct":    {"PWH_JOURNAL", func(c *jetstream.StreamConfig) { c.AllowDirect = false }, nil},
		"no_ack":          {"PWH_JOURNAL", func(c *jetstream.StreamConfig) { c.NoAck = true }, nil},
		"consumer_limits": {"PWH_JOURNAL", func(c *jetstream.StreamConfig) { c.ConsumerLimits.MaxAckPending = 5 }, nil},
		"republish": {"PWH_JOURNAL", func(c *jetstream.StreamConfig) {
			c.RePublish = &jetstream.RePublish{Source: ">", Destination: "elsewhere.>"}
		}, nil},
		"subject_transform": {"PWH_JOURNAL", func(c *jetstream.StreamConfig) {
			c.SubjectTransform = &jetstream.SubjectTransformConfig{Source: "pwh.refused.*", Destination: "elsewhere.{{wildcard(1)}}"}
		}, nil},
		"sources": {"PWH_JOURNAL", func(c *jetstream.StreamConfig) { c.Sources = []*jetstream.StreamSource{{Name: "OTHER"}} }, nil},
		"mirror": {"PWH_JOURNAL", func(c *jetstream.StreamConfig) {
			c.Subjects, c.Mirror = nil, &jetstream.StreamSource{Name: "OTHER"}
		}, []string{"subjects"}},
		"retention": {"PWH_JOURNAL", func(c *jetstream.StreamConfig) { c.Retention = jetstream.InterestPolicy }, nil},
		"allow_msg_schedules": {"PWH_RETRIES", func(c *jetstream.StreamConfig) {
			c.AllowMsgSchedules, c.AllowRollup = false, false
		}, []string{"allow_rollup_hdrs"}},
	}
	for field, tt := range stream {
		t.Run(field, func(t *testing.T) {
			ctx, js := broker(t)
			s, _ := target.Stream(tt.stream)
			tt.edit(&s.Config)
			if _, err := js.CreateStream(ctx, s.Config); err != nil {
				t.Fatal(err)
			}
			one := target.Only(tt.stream)
			one.Streams[0].Consumers = nil
			diffs, err := streams.Check(ctx, js, one)
			if err != nil {
				t.Fatal(err)
			}
			expectFields(t, diffs, streams.Mutable, append(tt.also, field))
			if _, err := streams.Apply(ctx, js, one); err != nil {
				t.Fatal(err)
			}
			if diffs, err = streams.Check(ctx, js, one); err != nil || len(diffs) != 0 {
				t.Errorf("after apply: %v, %v", lines(diffs), err)
			}
		})
	}
}

func expectFields(t *testing.T, diffs []streams.Difference, kind streams.DifferenceKind, fields []string) {
	t.Helper()
	slices.Sort(fields)
	var got []string
	for _, d := range diffs {
		if d.Kind != kind {
			t.Errorf("%s: is %s, want %s", d, d.Kind, kind)
		}
		if d.Want == d.Have || d.Remedy == "" {
			t.Errorf("%+v: must say what is wanted, what there is and what to do", d)
		}
		got = append(got, d.Field)
	}
	slices.Sort(got)
	if diff := cmp.Diff(fields, got); diff != "" {
		t.Errorf("differing fields (-want +got):\n%s", diff)
	}
}

func TestApplyRefusesEveryFieldThatTheBrokerCannotChange(t *testing.T) {
	target := streams.Default(installed)
	for field, tt := range map[string]struct {
		stream string
		edit   func(*jetstream.StreamConfig)
	}{
		"retention":         {"PWH_INTENTS", func(c *jetstream.StreamConfig) { c.Retention = jetstream.WorkQueuePolicy }},
		"storage":           {"PWH_INTENTS", func(c *jetstream.StreamConfig) { c.Storage = jetstream.MemoryStorage }},
		"allow_msg_ttl":     {"PWH_INTENTS", func(c *jetstream.StreamConfig) { c.AllowMsgTTL = true }},
		"allow_msg_counter": {"PWH_STATE", func(c *jetstream.StreamConfig) { c.AllowMsgCounter = true }},
		"sealed":            {"PWH_INTENTS", func(c *jetstream.StreamConfig) { c.Sealed = true }},
		"persist_mode":      {"PWH_STATE", func(c *jetstream.StreamConfig) { c.PersistMode = jetstream.AsyncPersistMode }},
	} {
		t.Run(field, func(t *testing.T) {
			ctx, js := broker(t)
			s, _ := target.Stream(tt.stream)
			tt.edit(&s.Config)
			created := s.Config
			created.Sealed = false // which no stream is from the start
			_, err := js.CreateStream(ctx, created)
			if err == nil && s.Config.Sealed {
				_, err = js.UpdateStream(ctx, s.Config)
			}
			if err != nil {
				t.Fatal(err)
			}
			_, err = streams.Apply(ctx, js, target)
			var refused *streams.RefusedError
			if !errors.As(err, &refused) {
				t.Fatalf("Apply() = %v, want a refusal", err)
			}
			expectFields(t, refused.Differences, streams.Immutable, []string{field})
			if !strings.Contains(err.Error(), tt.stream) || !strings.Contains(err.Error(), field) {
				t.Errorf("the error does not name %s of %s: %v", field, tt.stream, err)
			}
			names := collect(js.StreamNames(ctx).Name())
			if diff := cmp.Diff([]string{tt.stream}, names); diff != "" {
				t.Errorf("a refused apply changed the streams (-before +after):\n%s", diff)
			}
			// The broker agrees that it cannot be changed.
			wanted, _ := target.Stream(tt.stream)
			if _, err := js.UpdateStream(ctx, wanted.Config); err == nil {
				t.Errorf("the broker changes %s after all", field)
			}
		})
	}
}

func collect[T any](ch <-chan T) []T {
	var out []T
	for x := range ch {
		out = append(out, x)
	}
	return out
}

func TestApplyRefusesWhatWouldDeleteMessages(t *testing.T) {
	ctx, js := broker(t)
	apply(ctx, t, js, installed)
	for range 2 {
		if _, err := js.Publish(ctx, streams.IntentSubject(intent, "weekly.evaluation"), []byte("{}")); err != nil {
			t.Fatal(err)
		}
	}
	aged := streams.Default(installed)
	for i := range aged.Streams {
		if aged.Streams[i].Config.Name == streams.Intents {
			// Any message is older than this by the time it is looked at.
			aged.Streams[i].Config.MaxAge = time.Nanosecond
			aged.Streams[i].Config.MaxMsgsPerSubject = 1
		}
	}
	_, err := streams.Apply(ctx, js, aged)
	var refused *streams.RefusedError
	if !errors.As(err, &refused) {
		t.Fatalf("Apply() = %v, want a refusal", err)
	}
	expectFields(t, refused.Differences, streams.Destructive, []string{"max_age", "max_msgs_per_subject"})
	stream, err := js.Stream(ctx, streams.Intents)
	if err != nil {
		t.Fatal(err)
	}
	if n := stream.CachedInfo().State.Msgs; n != 2 {
		t.Errorf("%d messages are left, want 2", n)
	}
}

func TestAppliedFieldsLeaveTheOperatorsOwnAlone(t *testing.T) {
	ctx, js := broker(t)
	s, _ := streams.Default(installed).Stream(streams.Journal)
	cfg := s.Config
	cfg.Description, cfg.Compression, cfg.MaxAge = "ours", jetstream.S2Compression, time.Hour
	cfg.Metadata = map[string]string{"team": "ours"}
	if _, err := js.CreateStream(ctx, cfg); err != nil {
		t.Fatal(err)
	}
	want := "update stream PWH_JOURNAL: max_age 1h0m0s → 168h0m0s"
	if changes := lines(apply(ctx, t, js, installed)); !slices.Contains(changes, want) {
		t.Errorf("apply did not say %q: %q", want, changes)
	}
	stream, err := js.Stream(ctx, streams.Journal)
	if err != nil {
		t.Fatal(err)
	}
	got := stream.CachedInfo().Config
	if got.MaxAge != 7*24*time.Hour {
		t.Errorf("max_age is %s, want the topology's", got.MaxAge)
	}
	if got.Description != "ours" || got.Compression != jetstream.S2Compression || got.Metadata["team"] != "ours" {
		t.Errorf("description, compression and metadata must stay, they are %q, %s, %v", got.Description, got.Compression, got.Metadata)
	}
}

func TestApplyChangesEveryConsumerFieldThatTheBrokerCanChangeAndKeepsThePosition(t *testing.T) {
	for field, edit := range map[string]func(*jetstream.ConsumerConfig){
		"filter_subject": func(c *jetstream.ConsumerConfig) { c.FilterSubject = "pwh.receipts.todo_completed" },
		"filter_subjects": func(c *jetstream.ConsumerConfig) {
			c.FilterSubjects = []string{"pwh.receipts.a", "pwh.receipts.todo_completed"}
		},
		"ack_wait":           func(c *jetstream.ConsumerConfig) { c.AckWait = time.Minute },
		"backoff":            func(c *jetstream.ConsumerConfig) { c.BackOff = []time.Duration{30 * time.Second, time.Minute} },
		"max_deliver":        func(c *jetstream.ConsumerConfig) { c.MaxDeliver = 5 },
		"max_ack_pending":    func(c *jetstream.ConsumerConfig) { c.MaxAckPending = 5 },
		"inactive_threshold": func(c *jetstream.ConsumerConfig) { c.InactiveThreshold = time.Hour },
		"headers_only":       func(c *jetstream.ConsumerConfig) { c.HeadersOnly = true },
		"max_batch":          func(c *jetstream.ConsumerConfig) { c.MaxRequestBatch = 5 },
		"max_bytes":          func(c *jetstream.ConsumerConfig) { c.MaxRequestMaxBytes = 1000 },
		"max_expires":        func(c *jetstream.ConsumerConfig) { c.MaxRequestExpires = time.Hour },
		"priority_policy": func(c *jetstream.ConsumerConfig) {
			c.PriorityPolicy, c.PriorityGroups = jetstream.PriorityPolicyOverflow, []string{"a"}
		},
		"num_replicas": func(c *jetstream.ConsumerConfig) { c.Replicas = 1 },
	} {
		t.Run(field, func(t *testing.T) {
			ctx, js := broker(t)
			target := streams.Default(installed).Only(streams.Receipts)
			cfg := target.Streams[0].Consumers[0]
			edit(&cfg)
			if _, err := js.CreateStream(ctx, target.Streams[0].Config); err != nil {
				t.Fatal(err)
			}
			consumer, err := js.CreateConsumer(ctx, streams.Receipts, cfg)
			if err != nil {
				t.Fatal(err)
			}
			for range 3 {
				if _, err := js.Publish(ctx, streams.ReceiptSubject(events.TodoCompleted), nil); err != nil {
					t.Fatal(err)
				}
			}
			var options []jetstream.FetchOpt
			for _, group := range cfg.PriorityGroups {
				options = append(options, jetstream.FetchPriorityGroup(group))
			}
			msg, err := consumer.Next(options...)
			if err != nil {
				t.Fatal(err)
			}
			if err := msg.DoubleAck(ctx); err != nil {
				t.Fatal(err)
			}
			diffs, err := streams.Check(ctx, js, target)
			if err != nil {
				t.Fatal(err)
			}
			want := []string{field}
			switch field {
			case "durable_name":
				want = append(want, "inactive_threshold")
			case "priority_policy":
				want = append(want, "priority_groups")
			}
			expectFields(t, diffs, streams.Mutable, want)
			if _, err := streams.Apply(ctx, js, target); err != nil {
				t.Fatal(err)
			}
			if diffs, err = streams.Check(ctx, js, target); err != nil || len(diffs) != 0 {
				t.Errorf("after apply: %v, %v", lines(diffs), err)
			}
			// The broker counts what is to come anew after an update, and says 0 until it has.
			poll := time.NewTicker(10 * time.Millisecond)
			defer poll.Stop()
			deadline := time.Now().Add(5 * time.Second)
			for {
				info, err := consumer.Info(ctx)
				if err != nil {
					t.Fatal(err)
				}
				if info.AckFloor.Stream == 1 && info.NumPending == 2 {
					break
				}
				if time.Now().After(deadline) {
					t.Fatalf("the position is %d with %d to come, want 1 with 2 to come", info.AckFloor.Stream, info.NumPending)
				}
				<-poll.C
			}
		})
	}
}

func TestApplyRefusesEveryConsumerFieldThatTheBrokerCannotChange(t *testing.T) {
	long := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for field, tt := range map[string]struct {
		edit func(*jetstream.ConsumerConfig)
		also []string
	}{
		"deliver_policy":  {func(c *jetstream.ConsumerConfig) { c.DeliverPolicy = jetstream.DeliverNewPolicy }, nil},
		"ack_policy":      {func(c *jetstream.ConsumerConfig) { c.AckPolicy = jetstream.AckAllPolicy }, nil},
		"replay_policy":   {func(c *jetstream.ConsumerConfig) { c.ReplayPolicy = jetstream.ReplayOriginalPolicy }, nil},
		"mem_storage":     {func(c *jetstream.ConsumerConfig) { c.MemoryStorage = true }, nil},
		"max_waiting":     {func(c *jetstream.ConsumerConfig) { c.MaxWaiting = 5 }, nil},
		"deliver_subject": {func(c *jetstream.ConsumerConfig) { c.DeliverSubject, c.MaxWaiting = "elsewhere", 0 }, []string{"max_waiting"}},
		"opt_start_time": {func(c *jetstream.ConsumerConfig) {
			c.DeliverPolicy, c.OptStartTime = jetstream.DeliverByStartTimePolicy, &long
		}, []string{}},
	} {
		t.Run(field, func(t *testing.T) {
			ctx, js := broker(t)
			settings := installed
			if field == "opt_start_time" {
				settings.Executors = []streams.Executor{{Executor: "e", Kind: "k", Start: "2026-02-01T00:00:00Z"}}
			} else {
				settings.Executors = []streams.Executor{{Executor: "e", Kind: "k", Start: streams.StartAll}}
			}
			target := streams.Default(settings).Only(streams.Intents)
			cfg := target.Streams[0].Consumers[0]
			tt.edit(&cfg)
			if _, err := js.CreateStream(ctx, target.Streams[0].Config); err != nil {
				t.Fatal(err)
			}
			var err error
			if cfg.DeliverSubject != "" {
				_, err = js.CreatePushConsumer(ctx, streams.Intents, cfg)
			} else {
				_, err = js.CreateConsumer(ctx, streams.Intents, cfg)
			}
			if err != nil {
				t.Fatal(err)
			}
			_, err = streams.Apply(ctx, js, target)
			var refused *streams.RefusedError
			if !errors.As(err, &refused) {
				t.Fatalf("Apply() = %v, want a refusal", err)
			}
			expectFields(t, refused.Differences, streams.Immutable, append(tt.also, field))
			if _, err := js.UpdateConsumer(ctx, streams.Intents, target.Streams[0].Consumers[0]); err == nil {
				t.Errorf("the broker changes %s after all", field)
			}
		})
	}
}

func TestALostConsumerIsRecreatedFromTheFirstMessage(t *testing.T) {
	ctx, js := broker(t)
	apply(ctx, t, js, installed)
	if _, err := js.Publish(ctx, streams.IntentSubject(intent, "weekly.evaluation"), []byte("{}")); err != nil {
		t.Fatal(err)
	}
	name := streams.ExecutorConsumer("governed.executor", "weekly.evaluation")
	if err := js.DeleteConsumer(ctx, streams.Intents, name); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := streams.Recreate(ctx, js, streams.Default(installed), streams.Intents, name); err != nil {
			t.Fatal(err)
		}
	}
	consumer, err := js.Consumer(ctx, streams.Intents, name)
	if err != nil {
		t.Fatal(err)
	}
	if n := consumer.CachedInfo().NumPending; n != 1 {
		t.Errorf("%d messages are to come, want the one from before", n)
	}
	if diffs := check(ctx, t, js, installed); len(diffs) != 0 {
		t.Errorf("a recreated consumer must be accepted: %v", lines(diffs))
	}
	if err := streams.Recreate(ctx, js, streams.Default(installed), streams.Intents, "unknown"); err == nil {
		t.Error("a consumer that the topology does not have must not be created")
	}
}

func TestTheConsumerOfAGoneHookIsDeletedWhenNothingIsLeftForIt(t *testing.T) {
	ctx, js := broker(t)
	apply(ctx, t, js, installed)
	without := installed
	without.Hooks = []string{"weekly"}
	publish := func(at time.Time) {
		t.Helper()
		// The hook weekly.trigger is the gone one; what is left for weekly must not keep it.
		for _, hook := range []string{"weekly.trigger", "weekly"} {
			if err := schedule(ctx, js, streams.RetryAtSubject(dispatch, hook), streams.ScheduleHeader(dispatch, hook, at)); err != nil {
				t.Fatal(err)
			}
		}
	}
	remedy := func() string {
		t.Helper()
		diffs := check(ctx, t, js, without)
		if len(diffs) != 1 || diffs[0].Kind != streams.Extra || diffs[0].Consumer != "weekly-trigger" {
			t.Fatalf("want the one extra consumer weekly-trigger, got %v", lines(diffs))
		}
		return diffs[0].Remedy
	}
	publish(time.Now().Add(time.Hour))
	if !strings.Contains(remedy(), "apply deletes it when no wake-up is left") {
		t.Errorf("the remedy does not say when the consumer goes: %s", remedy())
	}
	hooks, err := streams.LeftoverHooks(ctx, js, streams.Default(without))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"weekly.trigger"}, hooks); diff != "" {
		t.Errorf("leftover hooks (-want +got):\n%s", diff)
	}
	if changes := apply(ctx, t, js, without); len(changes) != 0 {
		t.Errorf("with a wake-up scheduled, apply did %v", lines(changes))
	}

	publish(time.Now())
	consumer, err := js.Consumer(ctx, streams.Retries, "weekly-trigger")
	if err != nil {
		t.Fatal(err)
	}
	msg, err := consumer.Next(jetstream.FetchMaxWait(10 * time.Second))
	if err != nil {
		t.Fatal(err)
	}
	if changes := apply(ctx, t, js, without); len(changes) != 0 {
		t.Errorf("with a wake-up in work, apply did %v", lines(changes))
	}
	if err := msg.DoubleAck(ctx); err != nil {
		t.Fatal(err)
	}
	want := []string{"delete consumer PWH_RETRIES weekly-trigger"}
	if diff := cmp.Diff(want, lines(apply(ctx, t, js, without))); diff != "" {
		t.Errorf("with nothing left (-want +got):\n%s", diff)
	}
}

func TestForeignConsumersAreReportedAndLeftAlone(t *testing.T) {
	ctx, js := broker(t)
	apply(ctx, t, js, installed)
	for stream, name := range map[string]string{
		"PWH_JOURNAL": "auditor",
		"PWH_RETRIES": "thief",
		"PWH_INTENTS": "other--kind",
	} {
		cfg := jetstream.ConsumerConfig{Durable: name}
		switch stream {
		case "PWH_RETRIES":
			cfg.FilterSubject = "pwh.retries.due.*.other"
		case "PWH_INTENTS":
			cfg.FilterSubject = "pwh.intents.*.kind"
		}
		if _, err := js.CreateConsumer(ctx, stream, cfg); err != nil {
			t.Fatal(err)
		}
	}
	want := []differing{
		{Kind: streams.Extra, Stream: "PWH_JOURNAL", Consumer: "auditor"},
		{Kind: streams.Extra, Stream: "PWH_RETRIES", Consumer: "thief"},
	}
	if diff := cmp.Diff(want, withoutRemedy(check(ctx, t, js, installed))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if changes := apply(ctx, t, js, installed); len(changes) != 0 {
		t.Errorf("apply did %v", lines(changes))
	}
}

func TestAReplicatedTopologyIsAppliedAndStays(t *testing.T) {
	cluster := natsembed.StartCluster(t, 3)
	ctx, js := connect(t, cluster.ClientURL())
	settings := installed
	settings.Replicas = 3
	apply(ctx, t, js, settings)
	if changes := apply(ctx, t, js, settings); len(changes) != 0 {
		t.Errorf("the second apply did %v", lines(changes))
	}
	settings.Replicas = 1
	want := []differing{}
	for _, stream := range []string{"PWH_RECEIPTS", "PWH_JOURNAL", "PWH_RETRIES", "PWH_INTENTS", "PWH_EXECUTIONS", "PWH_STATE"} {
		want = append(want, differing{streams.Mutable, stream, "", "num_replicas", "1", "3"})
	}
	if diff := cmp.Diff(want, withoutRemedy(check(ctx, t, js, settings))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestAStreamThatDeniesMoreThanAskedIsAccepted(t *testing.T) {
	ctx, js := broker(t)
	target := streams.Default(installed).Only(streams.State)
	cfg := target.Streams[0].Config
	cfg.DenyDelete, cfg.DenyPurge = true, true
	if _, err := js.CreateStream(ctx, cfg); err != nil {
		t.Fatal(err)
	}
	diffs, err := streams.Check(ctx, js, target)
	if err != nil || len(diffs) != 0 {
		t.Errorf("differences: %v, %v", lines(diffs), err)
	}
}
