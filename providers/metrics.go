package providers

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/afterwrite/afterwrite/internal/observability"
)

// outcome is what became of a call, as a label.
type outcome string

const (
	// outcomeAnswered: with a result.
	outcomeAnswered outcome = "answered"
	// outcomeRefused: see [ErrorRefused].
	outcomeRefused outcome = "refused"
	// outcomeFailed: see [ErrorFailed].
	outcomeFailed outcome = "failed"
	// outcomeOverloaded: see [ErrorOverloaded].
	outcomeOverloaded outcome = "overloaded"
	// outcomeTimedOut: see [ErrorTimedOut].
	outcomeTimedOut outcome = "timed_out"
)

var outcomes = [...]outcome{outcomeAnswered, outcomeRefused, outcomeFailed, outcomeOverloaded, outcomeTimedOut}

func outcomeOf(code ErrorCode) outcome {
	switch code {
	case ErrorRefused:
		return outcomeRefused
	case ErrorOverloaded:
		return outcomeOverloaded
	case ErrorTimedOut:
		return outcomeTimedOut
	case ErrorFailed:
	}
	return outcomeFailed
}

// metrics are a provider's. The endpoint of a label is a hook or a service that it serves.
type metrics struct {
	calls   *prometheus.CounterVec
	seconds *prometheus.HistogramVec
	waiting *prometheus.GaugeVec
	running *prometheus.GaugeVec
}

func newMetrics(registry prometheus.Registerer) (*metrics, error) {
	f := &observability.Factory{Registry: registry}
	m := &metrics{
		calls:   f.Counter("provider_calls_total", "Calls of a hook or service, by what became of them.", "endpoint", "outcome"),
		seconds: f.Seconds("provider_call_seconds", "From a call's arrival to its answer.", "endpoint", "outcome"),
		waiting: f.Gauge("provider_calls_waiting", "Calls that wait for a free place.", "endpoint"),
		running: f.Gauge("provider_calls_running", "Calls that the author's code is at work on.", "endpoint"),
	}
	return m, f.Err
}

// endpointMetrics are those of one endpoint, looked up once.
type endpointMetrics struct {
	calls   map[outcome]prometheus.Counter
	seconds map[outcome]prometheus.Observer
	waiting prometheus.Gauge
	running prometheus.Gauge
}

func (m *metrics) of(endpoint string) endpointMetrics {
	e := endpointMetrics{
		calls:   make(map[outcome]prometheus.Counter, len(outcomes)),
		seconds: make(map[outcome]prometheus.Observer, len(outcomes)),
		waiting: m.waiting.WithLabelValues(endpoint),
		running: m.running.WithLabelValues(endpoint),
	}
	for _, o := range outcomes {
		e.calls[o] = m.calls.WithLabelValues(endpoint, string(o))
		e.seconds[o] = m.seconds.WithLabelValues(endpoint, string(o))
	}
	return e
}

// over counts a call that has been answered one way or another.
func (e *endpointMetrics) over(o outcome, took time.Duration) {
	e.calls[o].Inc()
	e.seconds[o].Observe(took.Seconds())
}
