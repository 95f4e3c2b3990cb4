package dispatcher

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/sony/gobreaker/v2"

	"github.com/afterwrite/afterwrite/dispatcher/core"
	"github.com/afterwrite/afterwrite/dispatcher/lane"
	"github.com/afterwrite/afterwrite/events"
	"github.com/afterwrite/afterwrite/internal/observability"
)

// component is the dispatcher's name among the components of a deployment.
const component = "dispatcher"

// metrics are the dispatcher's. Every label is a closed enum, or the name of something that is installed.
type metrics struct {
	receipts  *prometheus.CounterVec
	decisions *prometheus.CounterVec
	records   *prometheus.CounterVec
	deferred  *prometheus.CounterVec
	intents   *prometheus.CounterVec
	writes    *prometheus.CounterVec
	lost      *prometheus.CounterVec
	failed    *prometheus.CounterVec
	panics    *prometheus.CounterVec
	overdue   *prometheus.CounterVec

	dispatches *prometheus.HistogramVec
	replies    *prometheus.HistogramVec
	messages   *prometheus.HistogramVec

	breakers *breakers
	backlogs *prometheus.GaugeVec

	broker *observability.Broker
}

func newMetrics(registry prometheus.Registerer) (*metrics, error) {
	f := &observability.Factory{Registry: registry}
	shared := &observability.Factory{Registry: observability.For(component, registry)}
	m := &metrics{
		receipts:  f.Counter("receipts_total", "Receipts, by what was decided about them.", "outcome", "reason"),
		decisions: f.Counter("decisions_total", "Decisions about dispatches, by outcome.", "hook", "outcome"),
		records:   f.Counter("dispatch_records_total", "Records decided on, which the journal is to hold.", "hook", "status", "code"),
		deferred:  f.Counter("dispatches_deferred_total", "Dispatches put off because their hook had no free place or was suspended.", "hook", "reason"),
		intents:   f.Counter("intents_total", "Intents accepted into a record.", "hook", "intent_kind"),
		writes:    f.Counter("journal_writes_total", "Documents decided on and sent to the journal, whether the write then won or lost.", "document"),
		lost:      f.Counter("journal_lost_races_total", "Writes of records that lost to another record, and were decided again.", "hook"),
		failed:    f.Counter("effects_failed_total", "Loads and writes that the broker refused or did not answer, and that were tried again.", "effect"),
		panics:    f.Counter("panics_total", "Faults of the dispatcher itself while handling a message.", "source"),
		overdue:   f.Counter("wakeups_overdue_total", "Wake-ups whose schedule was stuck and was published again.", "hook"),

		dispatches: f.Seconds("dispatch_seconds", "From a receipt's arrival in its stream to the decision on a dispatch of it, for its first record.", "hook", "status"),
		replies:    f.Seconds("provider_reply_seconds", "From a call of a provider to its end.", "hook", "kind"),
		messages:   f.Seconds("message_seconds", "From a delivery to its acknowledgement or hand-back.", "source", "end"),

		breakers: newBreakers(),
		backlogs: f.Gauge("hook_backlog_dispatches", "Due wake-ups of the hook, taken or not.", "hook"),

		broker: observability.NewBroker(shared),
	}
	f.Replace(m.breakers)
	return m, cmp.Or(f.Err, shared.Err)
}

// noReason is the label of a receipt that was not refused.
const noReason = ""

// failures are the codes with which a dispatch may fail.
var failures = []events.Code{
	events.CodeRegistrationRejected, events.CodeInputBoundaryRejected, events.CodeProducerFailed, events.CodeProducerTimedOut,
	events.CodeResultContractRejected, events.CodeDispatchBudgetExhausted,
}

// begin has the counters be there at 0 that are asked how much they increased. A series that begins with its first
// count is one that has not increased, and so the first panic would alert nobody.
func (m *metrics) begin(hooks map[events.HookID]core.Hook) {
	m.receipts.WithLabelValues(string(core.OutcomeAdmitted), noReason)
	m.receipts.WithLabelValues(string(core.OutcomeRefused), string(events.RefusedPoisoned))
	for _, source := range []string{sourceReceipt, sourceWakeUp} {
		m.panics.WithLabelValues(source)
	}
	for _, effect := range []string{"load", "write", "answer"} {
		m.failed.WithLabelValues(effect)
	}
	for hook, installed := range hooks {
		for _, kind := range installed.Registration.IntentKinds {
			m.intents.WithLabelValues(hook, kind)
		}
		m.overdue.WithLabelValues(hook)
		m.lost.WithLabelValues(hook)
		for _, code := range failures {
			m.records.WithLabelValues(hook, string(events.StatusFailed), string(code))
		}
		for _, reason := range []events.Reason{events.ReasonHookSaturated, events.ReasonHookSuspended} {
			m.deferred.WithLabelValues(hook, string(reason))
		}
	}
}

// breakers counts lanes by the state that their breaker of a hook is in. It is no gauge for each state: a scrape amid a
// change would find the lane in two states, or in none, and an alert about suspended hooks would begin again.
type breakers struct {
	desc  *prometheus.Desc
	mu    sync.Mutex
	lanes map[events.HookID]map[string]int
}

func newBreakers() *breakers {
	return &breakers{
		desc: prometheus.NewDesc("afterwrite_breaker_lanes", "Lanes whose breaker of the hook is in the state.",
			[]string{"hook", "state"}, nil),
		lanes: map[events.HookID]map[string]int{},
	}
}

// closed is the state of a breaker that lets calls through, as every breaker does at first.
var closed = gobreaker.StateClosed.String()

// begin counts a lane whose breaker of the hook is closed.
func (b *breakers) begin(hook events.HookID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.lanes[hook] == nil {
		b.lanes[hook] = map[string]int{closed: 0, gobreaker.StateHalfOpen.String(): 0, gobreaker.StateOpen.String(): 0}
	}
	b.lanes[hook][closed]++
}

// change has a lane's breaker be in another state.
func (b *breakers) change(hook events.HookID, from, to string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lanes[hook][from]--
	b.lanes[hook][to]++
}

// Describe implements prometheus.Collector.
func (b *breakers) Describe(descriptions chan<- *prometheus.Desc) { descriptions <- b.desc }

// Collect implements prometheus.Collector.
func (b *breakers) Collect(out chan<- prometheus.Metric) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for hook, states := range b.lanes {
		for state, lanes := range states {
			out <- prometheus.MustNewConstMetric(b.desc, prometheus.GaugeValue, float64(lanes), hook, state)
		}
	}
}

// inFlight asks the lanes, when it is scraped, what they have under way.
type inFlight struct {
	d                    *Dispatcher
	receipts, dispatches *prometheus.Desc
}

func newInFlight(d *Dispatcher) *inFlight {
	return &inFlight{
		d:          d,
		receipts:   prometheus.NewDesc("afterwrite_receipts_in_flight", "Receipts under way.", nil, nil),
		dispatches: prometheus.NewDesc("afterwrite_dispatches_in_flight", "Places of the hook that are taken by attempts under way.", []string{"hook"}, nil),
	}
}

// Describe implements prometheus.Collector.
func (c *inFlight) Describe(descriptions chan<- *prometheus.Desc) {
	descriptions <- c.receipts
	descriptions <- c.dispatches
}

// scrapeWait is how long a scrape waits for a lane. A lane that has ended, or does not come to answer, leaves the
// scrape without these metrics.
const scrapeWait = time.Second

// Collect implements prometheus.Collector.
func (c *inFlight) Collect(out chan<- prometheus.Metric) {
	c.d.mu.Lock()
	runners := slices.Clone(c.d.runners)
	c.d.mu.Unlock()
	type load struct {
		receipts int
		places   map[events.HookID]int
	}
	loads := make(chan load, len(runners))
	late := time.After(scrapeWait)
	for _, r := range runners {
		select {
		case r.controls <- func(_ time.Time, l *lane.Lane) {
			receipts, places := l.Load()
			loads <- load{receipts, places}
		}:
		case <-late:
			return
		}
	}
	receipts, places := 0, make(map[events.HookID]int, len(c.d.installed.Hooks))
	for hook := range c.d.installed.Hooks {
		places[hook] = 0
	}
	for range runners {
		select {
		case l := <-loads:
			receipts += l.receipts
			for hook, taken := range l.places {
				places[hook] += taken
			}
		case <-late:
			return
		}
	}
	out <- prometheus.MustNewConstMetric(c.receipts, prometheus.GaugeValue, float64(receipts))
	for hook, taken := range places {
		out <- prometheus.MustNewConstMetric(c.dispatches, prometheus.GaugeValue, float64(taken), hook)
	}
}
