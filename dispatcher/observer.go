package dispatcher

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/afterwrite/afterwrite/dispatcher/core"
	"github.com/afterwrite/afterwrite/dispatcher/lane"
	"github.com/afterwrite/afterwrite/events"
)

// observer turns what lanes report into metrics and log lines. Labels come from closed enums and installed hooks.
type observer struct {
	log       *zap.Logger
	receipts  *prometheus.CounterVec
	decisions *prometheus.CounterVec
	records   *prometheus.CounterVec
	replies   *prometheus.HistogramVec
	messages  *prometheus.HistogramVec
	lost      prometheus.Counter
	failed    *prometheus.CounterVec
	panics    prometheus.Counter
	breakers  *prometheus.GaugeVec
	backlogs  *prometheus.GaugeVec
	overdues  *prometheus.CounterVec
	ages      prometheus.Gauge
	// broken is told when the broker refuses something.
	broken func(effect string, err error)
}

var _ lane.Observer = (*observer)(nil)

func newObserver(log *zap.Logger, registry prometheus.Registerer, broken func(effect string, err error)) *observer {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "afterwrite_" + name, Help: help}, labels)
	}
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "afterwrite_" + name, Help: help}, labels)
	}
	seconds := func(name, help string, labels ...string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "afterwrite_" + name, Help: help,
			Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30},
		}, labels)
	}
	o := &observer{
		log:       log,
		broken:    broken,
		receipts:  counter("receipts_total", "Receipts by what was decided about them.", "outcome", "reason"),
		decisions: counter("decisions_total", "Commands about dispatches, by outcome.", "hook", "outcome"),
		records:   counter("dispatch_records_total", "Journal records decided on.", "hook", "status", "code"),
		replies:   seconds("provider_reply_seconds", "From a call to its end.", "hook", "kind"),
		messages:  seconds("message_seconds", "From a delivery to its acknowledgement or hand-back.", "source", "end"),
		lost:      prometheus.NewCounter(prometheus.CounterOpts{Name: "afterwrite_journal_lost_races_total", Help: "Journal writes that lost to another record."}),
		failed:    counter("effects_failed_total", "Loads and writes that failed and were tried again.", "effect"),
		panics:    prometheus.NewCounter(prometheus.CounterOpts{Name: "afterwrite_panics_total", Help: "Faults of the dispatcher itself."}),
		breakers:  gauge("hook_suspended", "1 while the hook's breaker is open, 0.5 while it probes, in the lane that changed last.", "hook"),
		backlogs:  gauge("hook_backlog_dispatches", "Due wake-ups of the hook, taken or not.", "hook"),
		overdues:  counter("wakeups_overdue_total", "Wake-ups whose schedule was stuck and was published again.", "hook"),
	}
	o.ages = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "afterwrite_receipts_oldest_waiting_seconds", Help: "Age of the oldest receipt that is not acknowledged.",
	})
	registry.MustRegister(o.ages, o.receipts, o.decisions, o.records, o.replies, o.messages, o.lost, o.failed, o.panics,
		o.breakers, o.backlogs, o.overdues)
	return o
}

// Decided implements lane.Observer.
func (o *observer) Decided(_ time.Time, d *lane.Delivery, _ *core.Dispatch, r *core.Result, trace lane.Trace) {
	if r.State == nil {
		reason := ""
		if r.Save != nil && r.Save.Refusal != nil {
			reason = string(r.Save.Refusal.Reason)
		}
		if d != nil && d.Source == lane.Receipts && r.Outcome != core.OutcomeCalling {
			o.receipts.WithLabelValues(string(r.Outcome), reason).Inc()
			o.log.Debug("receipt", zap.String("outcome", string(r.Outcome)), zap.String("reason", reason),
				zap.Uint64("sequence", d.Sequence), zap.String("traceparent", trace.Parent))
		}
		return
	}
	o.decisions.WithLabelValues(r.State.HookID, string(r.Outcome)).Inc()
	if r.Save == nil || r.Save.Record == nil {
		return
	}
	record := r.Save.Record
	o.records.WithLabelValues(record.HookID, string(record.Status), string(record.Code)).Inc()
	if ce := o.log.Check(levelOf(record), "dispatch"); ce != nil {
		ce.Write(
			zap.String("dispatch_id", record.DispatchID), zap.String("hook", record.HookID),
			zap.String("outcome", string(r.Outcome)), zap.String("status", string(record.Status)),
			zap.String("code", string(record.Code)), zap.String("reason", string(record.Reason)),
			zap.Int("attempt", record.Attempt), zap.String("traceparent", trace.Parent),
		)
	}
}

func levelOf(record *events.DispatchReceipt) zapcore.Level {
	if record.Status == events.StatusFailed {
		return zap.WarnLevel
	}
	return zap.InfoLevel
}

// Replied implements lane.Observer.
func (o *observer) Replied(hook events.HookID, kind core.ReplyKind, took time.Duration) {
	o.replies.WithLabelValues(hook, string(kind)).Observe(took.Seconds())
}

// Settled implements lane.Observer.
func (o *observer) Settled(source lane.Source, took time.Duration, handed bool) {
	label, end := "receipt", "acknowledged"
	if source != lane.Receipts {
		label = "wakeup"
	}
	if handed {
		end = "handed_back"
	}
	o.messages.WithLabelValues(label, end).Observe(took.Seconds())
}

// Lost implements lane.Observer.
func (o *observer) Lost(core.Key) { o.lost.Inc() }

// Failed implements lane.Observer.
func (o *observer) Failed(effect string, err error) {
	o.failed.WithLabelValues(effect).Inc()
	o.log.Warn("broker refused or did not answer", zap.String("effect", effect), zap.Error(err))
	o.broken(effect, err)
}

// Panicked implements lane.Observer.
func (o *observer) Panicked(source lane.Source, sequence uint64, value any, stack []byte) {
	o.panics.Inc()
	o.log.Error("panic while handling a message", zap.String("hook", source.Hook), zap.Uint64("sequence", sequence),
		zap.Any("panic", value), zap.ByteString("stack", stack))
}

// Breaker implements lane.Observer.
func (o *observer) Breaker(hook events.HookID, state string) {
	value := map[string]float64{"open": 1, "half-open": 0.5}[state]
	o.breakers.WithLabelValues(hook).Set(value)
	o.log.Warn("breaker", zap.String("hook", hook), zap.String("state", state))
}

func (o *observer) backlog(hook events.HookID, waiting uint64) {
	o.backlogs.WithLabelValues(hook).Set(float64(waiting))
}

func (o *observer) overdue(hook events.HookID) { o.overdues.WithLabelValues(hook).Inc() }

func (o *observer) oldest(age time.Duration) { o.ages.Set(age.Seconds()) }
