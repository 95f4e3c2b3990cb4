package executors

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/afterwrite/afterwrite/events"
	"github.com/afterwrite/afterwrite/internal/observability"
	"github.com/afterwrite/afterwrite/streams"
)

// component is an executor's name among the components of a deployment.
const component = "executor"

// Beside [observability.NotStarted] and [observability.BrokerDisconnected], what keeps an executor from being ready.
const (
	// intentsUnavailable: it cannot take intents.
	intentsUnavailable observability.Condition = "intents_unavailable"
	// intentsAging: the oldest intent that is not settled is older than half the age at which it is dropped.
	intentsAging observability.Condition = "intents_aging"
	// streamFilling: the executions stream is over 80 % full.
	streamFilling observability.Condition = "stream_filling"
)

// metrics are an executor's. Every label is a closed enum, or the name of something it has a grant for.
type metrics struct {
	records  *prometheus.CounterVec
	lost     *prometheus.CounterVec
	effects  *prometheus.HistogramVec
	seconds  *prometheus.HistogramVec
	inFlight *prometheus.GaugeVec
	broker   *observability.Broker
}

func newMetrics(registry prometheus.Registerer, executor events.ExecutorID, health *observability.Health) (*metrics, error) {
	f := &observability.Factory{Registry: prometheus.WrapRegistererWith(prometheus.Labels{"executor": executor}, registry)}
	shared := &observability.Factory{Registry: observability.For(component, registry)}
	m := &metrics{
		records:  f.Counter("execution_records_total", "Records of executions written.", "intent_kind", "status", "reason"),
		lost:     f.Counter("execution_lost_races_total", "Writes of records that lost to another record, and were decided again.", "intent_kind"),
		effects:  f.Seconds("execution_effect_seconds", "From the call of an effect to its end.", "intent_kind", "outcome"),
		seconds:  f.Seconds("execution_seconds", "From the acceptance of an intent into the journal to the end of its execution.", "intent_kind", "status"),
		inFlight: f.Gauge("executions_in_flight", "Intents being handled.", "intent_kind"),
		broker:   observability.NewBroker(shared),
	}
	shared.Replace(health)
	return m, cmp.Or(f.Err, shared.Err)
}

// observe counts a record that was written, and tells the process's own watcher, if any.
func (p *Process) observe(record *events.Execution) {
	p.metrics.records.WithLabelValues(record.IntentKind, string(record.Status), string(record.Reason)).Inc()
	if record.Status.Terminal() && record.ProposedAt != "" {
		took := record.RecordedAt.Time().Sub(events.Timestamp(record.ProposedAt).Time())
		p.metrics.seconds.WithLabelValues(record.IntentKind, string(record.Status)).Observe(took.Seconds())
	}
	if p.opts.Observe != nil {
		p.opts.Observe(record)
	}
}

// outcomeReturned is the effect outcome of a call without an error; all others are its cause.
const outcomeReturned = "returned"

// outcomeOf is how a call of an effect ended, as a label.
func outcomeOf(err error) string {
	if err == nil {
		return outcomeReturned
	}
	cause, _ := classify(err)
	return string(cause)
}

// Reasons are why the process does not take intents, or should not be left to, one sentence each; none if it is ready.
func (p *Process) Reasons() []string { return p.health.Reasons() }

// unavailable says which kinds of intent cannot be taken, "" if all can.
func unavailable(pullers []*puller) string {
	var troubles []string
	for _, puller := range pullers {
		if trouble := puller.trouble.Load(); trouble != nil {
			troubles = append(troubles, *trouble)
		}
	}
	return strings.Join(troubles, "; ")
}

const (
	// fullPercent is how full the executions may be before readiness says so.
	fullPercent = 80
	// agedPart is which part of the intents' age the oldest one may reach before readiness says so.
	agedPart = 2
)

// look sees how far the work is behind, and how full the executions are. The error is [ErrExecutionsLost] if they are
// not those that the process began with, and else what kept it from seeing.
func (p *Process) look(ctx context.Context) error {
	executions, err := p.js.Stream(ctx, streams.Executions)
	if errors.Is(err, jetstream.ErrStreamNotFound) || err == nil && !executions.CachedInfo().Created.Equal(p.born) {
		return ErrExecutionsLost
	}
	if err != nil {
		return err
	}
	info := executions.CachedInfo()
	p.see(info)
	p.health.Hold(streamFilling, filling(info))
	intents, err := p.js.Stream(ctx, streams.Intents)
	if err != nil {
		return err
	}
	p.see(intents.CachedInfo())
	oldest := time.Duration(0)
	for _, grant := range p.opts.Grants {
		consumer, err := p.js.Consumer(ctx, streams.Intents, streams.ExecutorConsumer(p.opts.Executor, grant.IntentKind))
		if err != nil {
			return err
		}
		info := consumer.CachedInfo()
		age, err := streams.OldestWaiting(ctx, p.js, info)
		if err != nil {
			return err
		}
		p.metrics.broker.Consumer(streams.Intents, info.Name, info.NumPending, info.NumAckPending, age)
		if !grant.Off { // whoever switched it off has its intents wait
			oldest = max(oldest, age)
		}
	}
	p.health.Hold(intentsAging, aging(oldest, intents.CachedInfo().Config.MaxAge))
	return nil
}

func (p *Process) see(stream *jetstream.StreamInfo) {
	p.metrics.broker.Stream(stream.Config.Name, stream.State.Msgs, stream.State.Bytes, stream.Config.MaxBytes, stream.Config.MaxAge)
}

func filling(info *jetstream.StreamInfo) string {
	if most := info.Config.MaxBytes; most > 0 && info.State.Bytes > uint64(most)/100*fullPercent {
		return fmt.Sprintf("%s holds %d of %d bytes", info.Config.Name, info.State.Bytes, most)
	}
	return ""
}

func aging(oldest, kept time.Duration) string {
	if kept > 0 && oldest >= kept/agedPart {
		return fmt.Sprintf("the oldest intent has waited %s of the %s it is kept", oldest.Round(time.Second), kept)
	}
	return ""
}
