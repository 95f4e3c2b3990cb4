package observability

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/afterwrite/afterwrite/internal/version"
)

// Buckets are those of every histogram of seconds: half a millisecond to half a minute.
var Buckets = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30}

// NewRegistry is that of a whole process, with what Go and the operating system say about it.
func NewRegistry() *prometheus.Registry {
	build := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "afterwrite_build_info", Help: "1, for the version that runs.",
	}, []string{"version"})
	build.WithLabelValues(version.Semantic()).Set(1)
	registry := prometheus.NewRegistry()
	registry.MustRegister(build, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return registry
}

// For is where a component registers the metrics that others have too, told apart by the label component.
func For(component string, registry prometheus.Registerer) prometheus.Registerer {
	return prometheus.WrapRegistererWith(prometheus.Labels{"component": component}, registry)
}

// Factory makes the metrics of a component. One that the registry has already, because the component runs twice in
// one process, is used again.
type Factory struct {
	Registry prometheus.Registerer
	Err      error
}

// Counter makes a counter, by labels.
func (f *Factory) Counter(name, help string, labels ...string) *prometheus.CounterVec {
	return registered(f, prometheus.NewCounterVec(prometheus.CounterOpts{Name: "afterwrite_" + name, Help: help}, labels))
}

// Gauge makes a gauge, by labels.
func (f *Factory) Gauge(name, help string, labels ...string) *prometheus.GaugeVec {
	return registered(f, prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "afterwrite_" + name, Help: help}, labels))
}

// Seconds makes a histogram of seconds, by labels.
func (f *Factory) Seconds(name, help string, labels ...string) *prometheus.HistogramVec {
	return registered(f, prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "afterwrite_" + name, Help: help, Buckets: Buckets,
	}, labels))
}

func registered[C prometheus.Collector](f *Factory, c C) C {
	err := f.Registry.Register(c)
	if there := (prometheus.AlreadyRegisteredError{}); errors.As(err, &there) {
		if same, ok := there.ExistingCollector.(C); ok {
			return same
		}
	}
	f.Err = errors.Join(f.Err, err)
	return c
}

// Replace registers a collector that looks at the process itself, in place of one that looked at a process before it.
func (f *Factory) Replace(c prometheus.Collector) {
	f.Registry.Unregister(c)
	f.Err = errors.Join(f.Err, f.Registry.Register(c))
}

// Broker is what a component sees of its streams and of the consumers that it takes work from, looked at now and then.
type Broker struct {
	messages, bytes, maxBytes, maxAge *prometheus.GaugeVec
	pending, unacknowledged, oldest   *prometheus.GaugeVec
}

// NewBroker registers the metrics.
func NewBroker(f *Factory) *Broker {
	return &Broker{
		messages:       f.Gauge("stream_messages", "Messages in the stream.", "stream"),
		bytes:          f.Gauge("stream_bytes", "Bytes in the stream.", "stream"),
		maxBytes:       f.Gauge("stream_max_bytes", "Bytes at which the stream is full; -1 for no limit.", "stream"),
		maxAge:         f.Gauge("stream_max_age_seconds", "Age at which the stream drops a message; 0 for no limit.", "stream"),
		pending:        f.Gauge("consumer_pending_messages", "Messages that the consumer has not delivered yet.", "stream", "consumer"),
		unacknowledged: f.Gauge("consumer_unacknowledged_messages", "Messages delivered and not acknowledged yet.", "stream", "consumer"),
		oldest:         f.Gauge("consumer_oldest_seconds", "Age of the oldest message that is not acknowledged; 0 if there is none.", "stream", "consumer"),
	}
}

// Stream sets what is seen of a stream.
func (b *Broker) Stream(name string, messages, bytes uint64, maxBytes int64, maxAge time.Duration) {
	b.messages.WithLabelValues(name).Set(float64(messages))
	b.bytes.WithLabelValues(name).Set(float64(bytes))
	b.maxBytes.WithLabelValues(name).Set(float64(maxBytes))
	b.maxAge.WithLabelValues(name).Set(maxAge.Seconds())
}

// Consumer sets what is seen of a consumer.
func (b *Broker) Consumer(stream, name string, pending uint64, unacknowledged int, oldest time.Duration) {
	b.pending.WithLabelValues(stream, name).Set(float64(pending))
	b.unacknowledged.WithLabelValues(stream, name).Set(float64(unacknowledged))
	b.oldest.WithLabelValues(stream, name).Set(oldest.Seconds())
}
