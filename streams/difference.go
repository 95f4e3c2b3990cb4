package streams

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// DifferenceKind says what can be done about a [Difference].
type DifferenceKind string

const (
	// Missing: the stream or consumer is not there. Apply creates it.
	Missing DifferenceKind = "missing"
	// Mutable: Apply changes the field and loses nothing.
	Mutable DifferenceKind = "mutable"
	// Immutable: the broker cannot change the field, so Apply refuses; the remedy is the operator's.
	Immutable DifferenceKind = "immutable"
	// Destructive: the broker would delete messages with the change, so Apply refuses; the remedy is the operator's.
	Destructive DifferenceKind = "destructive"
	// Extra: a consumer that the topology does not have. It hinders nobody.
	Extra DifferenceKind = "extra"
)

// Difference is one way in which the broker is not as the topology says.
type Difference struct {
	Kind   DifferenceKind
	Stream string
	// Consumer is "" for a difference of the stream itself.
	Consumer string
	// Field is the field's name in the broker's configuration; "" if the whole thing is missing or extra.
	Field string
	// Want and Have are the field's values as text.
	Want, Have string
	// Remedy says what the operator may do.
	Remedy string
}

func (d Difference) String() string {
	what := "stream " + d.Stream
	if d.Consumer != "" {
		what += " consumer " + d.Consumer
	}
	switch d.Kind {
	case Missing:
		what += " is missing"
	case Extra:
		what += " is not part of the topology"
	case Mutable, Immutable, Destructive:
		what += fmt.Sprintf(": %s must be %s, it is %s", d.Field, d.Want, d.Have)
	}
	return what + "; " + d.Remedy
}

const (
	remedyApply    = "apply the streams"
	remedyConsumer = "the broker cannot change it: stop who uses the consumer, delete it and apply again, " +
		"which loses its position"
	remedyShrink = "the broker would delete messages for it: change it by hand if that is meant"
	remedyExtra  = "it may stay; delete it by hand if nobody uses it"
	remedyGone   = "its hook is not installed: apply deletes it when no wake-up is left for it"
)

// remedyStream is what can be done about a field that the broker cannot change, by what deleting the stream costs.
func remedyStream(stream string) string {
	switch stream {
	case Journal, Executions:
		return "the broker cannot change it: finish all work, delete the stream and apply again, " +
			"after which work that is published again is done again"
	case State:
		return "the broker cannot change it: deleting the stream and applying again loses the state of every capability"
	}
	return "the broker cannot change it: drain the stream, delete it and apply again"
}

// field is one member of a configuration that the topology determines. What stands in no table, such as placement,
// compression, descriptions and metadata, is the operator's and is left alone.
type field[C any] struct {
	name string
	// at points at the member.
	at func(*C) any
	// same overrides equality.
	same func(want, have *C) bool
	// fixed reports that the broker cannot change the member from have to want. Nil is always possible.
	fixed func(want, have *C) bool
}

func always[C any](_, _ *C) bool { return true }

var streamFields = []field[jetstream.StreamConfig]{
	{name: "subjects", at: func(c *jetstream.StreamConfig) any { return &c.Subjects }},
	{
		name: "retention", at: func(c *jetstream.StreamConfig) any { return &c.Retention },
		fixed: func(want, have *jetstream.StreamConfig) bool {
			return want.Retention == jetstream.WorkQueuePolicy || have.Retention == jetstream.WorkQueuePolicy
		},
	},
	{name: "storage", at: func(c *jetstream.StreamConfig) any { return &c.Storage }, fixed: always[jetstream.StreamConfig]},
	{name: "num_replicas", at: func(c *jetstream.StreamConfig) any { return &c.Replicas }},
	{name: "discard", at: func(c *jetstream.StreamConfig) any { return &c.Discard }},
	{name: "discard_new_per_subject", at: func(c *jetstream.StreamConfig) any { return &c.DiscardNewPerSubject }},
	{name: "max_age", at: func(c *jetstream.StreamConfig) any { return &c.MaxAge }},
	{name: "max_bytes", at: func(c *jetstream.StreamConfig) any { return &c.MaxBytes }},
	{name: "max_msgs", at: func(c *jetstream.StreamConfig) any { return &c.MaxMsgs }},
	{name: "max_msgs_per_subject", at: func(c *jetstream.StreamConfig) any { return &c.MaxMsgsPerSubject }},
	{name: "max_msg_size", at: func(c *jetstream.StreamConfig) any { return &c.MaxMsgSize }},
	{name: "max_consumers", at: func(c *jetstream.StreamConfig) any { return &c.MaxConsumers }},
	{
		name: "duplicate_window", at: func(c *jetstream.StreamConfig) any { return &c.Duplicates },
		same: func(want, have *jetstream.StreamConfig) bool {
			return want.Duplicates == 0 || want.Duplicates == have.Duplicates
		},
	},
	{
		name: "deny_delete", at: func(c *jetstream.StreamConfig) any { return &c.DenyDelete },
		same: func(want, have *jetstream.StreamConfig) bool { return !want.DenyDelete || have.DenyDelete },
	},
	{
		name: "deny_purge", at: func(c *jetstream.StreamConfig) any { return &c.DenyPurge },
		same: func(want, have *jetstream.StreamConfig) bool { return !want.DenyPurge || have.DenyPurge },
	},
	{name: "allow_rollup_hdrs", at: func(c *jetstream.StreamConfig) any { return &c.AllowRollup }},
	{name: "allow_direct", at: func(c *jetstream.StreamConfig) any { return &c.AllowDirect }},
	{
		name: "allow_msg_schedules", at: func(c *jetstream.StreamConfig) any { return &c.AllowMsgSchedules },
		fixed: func(want, _ *jetstream.StreamConfig) bool { return !want.AllowMsgSchedules },
	},
	{name: "allow_msg_ttl", at: func(c *jetstream.StreamConfig) any { return &c.AllowMsgTTL }, fixed: always[jetstream.StreamConfig]},
	{name: "allow_msg_counter", at: func(c *jetstream.StreamConfig) any { return &c.AllowMsgCounter }, fixed: always[jetstream.StreamConfig]},
	{name: "persist_mode", at: func(c *jetstream.StreamConfig) any { return &c.PersistMode }, fixed: always[jetstream.StreamConfig]},
	{name: "sealed", at: func(c *jetstream.StreamConfig) any { return &c.Sealed }, fixed: always[jetstream.StreamConfig]},
	{name: "no_ack", at: func(c *jetstream.StreamConfig) any { return &c.NoAck }},
	{name: "mirror", at: func(c *jetstream.StreamConfig) any { return &c.Mirror }},
	{name: "sources", at: func(c *jetstream.StreamConfig) any { return &c.Sources }},
	{name: "subject_transform", at: func(c *jetstream.StreamConfig) any { return &c.SubjectTransform }},
	{name: "republish", at: func(c *jetstream.StreamConfig) any { return &c.RePublish }},
	{name: "consumer_limits", at: func(c *jetstream.StreamConfig) any { return &c.ConsumerLimits }},
}

var consumerFields = []field[jetstream.ConsumerConfig]{
	{name: "durable_name", at: func(c *jetstream.ConsumerConfig) any { return &c.Durable }},
	{name: "filter_subject", at: func(c *jetstream.ConsumerConfig) any { return &c.FilterSubject }},
	{name: "filter_subjects", at: func(c *jetstream.ConsumerConfig) any { return &c.FilterSubjects }},
	{
		// A consumer that began with the first message has missed nothing, wherever it was to begin: that is how one
		// that was lost is created again.
		name: "deliver_policy", at: func(c *jetstream.ConsumerConfig) any { return &c.DeliverPolicy },
		same: func(want, have *jetstream.ConsumerConfig) bool {
			return have.DeliverPolicy == jetstream.DeliverAllPolicy || want.DeliverPolicy == have.DeliverPolicy
		},
		fixed: always[jetstream.ConsumerConfig],
	},
	{
		name: "opt_start_time", at: func(c *jetstream.ConsumerConfig) any { return &c.OptStartTime },
		same: func(want, have *jetstream.ConsumerConfig) bool {
			return want.DeliverPolicy != have.DeliverPolicy || want.OptStartTime == nil || have.OptStartTime == nil ||
				want.OptStartTime.Equal(*have.OptStartTime)
		},
		fixed: always[jetstream.ConsumerConfig],
	},
	{name: "ack_policy", at: func(c *jetstream.ConsumerConfig) any { return &c.AckPolicy }, fixed: always[jetstream.ConsumerConfig]},
	{name: "replay_policy", at: func(c *jetstream.ConsumerConfig) any { return &c.ReplayPolicy }, fixed: always[jetstream.ConsumerConfig]},
	{name: "mem_storage", at: func(c *jetstream.ConsumerConfig) any { return &c.MemoryStorage }, fixed: always[jetstream.ConsumerConfig]},
	{name: "deliver_subject", at: func(c *jetstream.ConsumerConfig) any { return &c.DeliverSubject }, fixed: always[jetstream.ConsumerConfig]},
	{name: "max_waiting", at: func(c *jetstream.ConsumerConfig) any { return &c.MaxWaiting }, fixed: always[jetstream.ConsumerConfig]},
	{name: "ack_wait", at: func(c *jetstream.ConsumerConfig) any { return &c.AckWait }},
	{name: "backoff", at: func(c *jetstream.ConsumerConfig) any { return &c.BackOff }},
	{name: "max_deliver", at: func(c *jetstream.ConsumerConfig) any { return &c.MaxDeliver }},
	{name: "max_ack_pending", at: func(c *jetstream.ConsumerConfig) any { return &c.MaxAckPending }},
	{name: "inactive_threshold", at: func(c *jetstream.ConsumerConfig) any { return &c.InactiveThreshold }},
	{name: "headers_only", at: func(c *jetstream.ConsumerConfig) any { return &c.HeadersOnly }},
	{name: "max_batch", at: func(c *jetstream.ConsumerConfig) any { return &c.MaxRequestBatch }},
	{name: "max_bytes", at: func(c *jetstream.ConsumerConfig) any { return &c.MaxRequestMaxBytes }},
	{name: "max_expires", at: func(c *jetstream.ConsumerConfig) any { return &c.MaxRequestExpires }},
	{name: "num_replicas", at: func(c *jetstream.ConsumerConfig) any { return &c.Replicas }},
	{name: "priority_policy", at: func(c *jetstream.ConsumerConfig) any { return &c.PriorityPolicy }},
	{name: "priority_groups", at: func(c *jetstream.ConsumerConfig) any { return &c.PriorityGroups }},
}

// compare lists the fields in which have is not as want says, and gives have with those fields as wanted.
func compare[C any](fields []field[C], want, have C) (diffs []Difference, merged C) {
	merged = have
	for _, f := range fields {
		w, h := reflect.ValueOf(f.at(&want)).Elem(), reflect.ValueOf(f.at(&have)).Elem()
		if f.same != nil && f.same(&want, &have) || f.same == nil && equal(w, h) {
			continue
		}
		d := Difference{Kind: Mutable, Field: f.name, Want: text(w), Have: text(h), Remedy: remedyApply}
		if f.fixed != nil && f.fixed(&want, &have) {
			d.Kind = Immutable
		}
		diffs = append(diffs, d)
		reflect.ValueOf(f.at(&merged)).Elem().Set(w)
	}
	return diffs, merged
}

// equal is deep equality in which an empty list is no list.
func equal(a, b reflect.Value) bool {
	if a.Kind() == reflect.Slice && a.Len() == 0 && b.Len() == 0 {
		return true
	}
	return reflect.DeepEqual(a.Interface(), b.Interface())
}

// text writes a value as the broker's configuration does, but durations to be read.
func text(v reflect.Value) string {
	switch x := v.Interface().(type) {
	case time.Duration:
		return x.String()
	case []time.Duration:
		return orNone(strings.Trim(fmt.Sprint(x), "[]"))
	case []string:
		return orNone(strings.Join(x, " "))
	}
	out, err := json.Marshal(v.Interface())
	if err != nil {
		return fmt.Sprint(v.Interface())
	}
	return orNone(strings.Trim(string(out), `"`))
}

func orNone(s string) string {
	if s == "" || s == "null" {
		return "none"
	}
	return s
}

// compareStream is [compare] for a stream, with the remedies and with what only the stream's state can tell.
func compareStream(want jetstream.StreamConfig, info *jetstream.StreamInfo) ([]Difference, jetstream.StreamConfig) {
	// The order of subjects means nothing.
	want.Subjects, info.Config.Subjects = sorted(want.Subjects), sorted(info.Config.Subjects)
	diffs, merged := compare(streamFields, want, info.Config)
	for i := range diffs {
		d := &diffs[i]
		d.Stream = want.Name
		switch {
		case d.Kind == Immutable:
			d.Remedy = remedyStream(want.Name)
		case loses(d.Field, want, info):
			d.Kind, d.Remedy = Destructive, remedyShrink
		}
	}
	return diffs, merged
}

// loses reports whether the broker would delete messages for the field to become as wanted. A size limit is none of
// these: all streams that have one discard new.
func loses(field string, want jetstream.StreamConfig, info *jetstream.StreamInfo) bool {
	switch field {
	case "max_age":
		return info.State.Msgs > 0 && want.MaxAge > 0 && info.TimeStamp.Sub(info.State.FirstTime) > want.MaxAge
	case "max_msgs_per_subject":
		return want.MaxMsgsPerSubject > 0 && info.State.Msgs > info.State.NumSubjects*uint64(want.MaxMsgsPerSubject)
	}
	return false
}

func compareConsumer(stream string, want, have jetstream.ConsumerConfig) ([]Difference, jetstream.ConsumerConfig) {
	diffs, merged := compare(consumerFields, want, have)
	for i := range diffs {
		diffs[i].Stream, diffs[i].Consumer = stream, want.Durable
		if diffs[i].Kind == Immutable {
			diffs[i].Remedy = remedyConsumer
		}
	}
	return diffs, merged
}

func sorted(list []string) []string {
	list = slices.Clone(list)
	slices.Sort(list)
	return list
}
