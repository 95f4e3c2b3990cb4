package observability

import (
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// Condition is one thing that keeps a process from being ready. The set of each process is closed.
type Condition string

const (
	// NotStarted: it does not take work yet, or no longer. Every process begins with it.
	NotStarted Condition = "not_started"
	// BrokerDisconnected: the connection to the broker is not there.
	BrokerDisconnected Condition = "broker_disconnected"
)

// Health is the conditions that hold, each with its sentence. A process is ready when there are none.
type Health struct {
	mu      sync.Mutex
	held    map[Condition]string
	checks  map[Condition]func() string
	ready   chan struct{}
	started bool
	all     []Condition
	gauge   *prometheus.GaugeVec
}

// NewHealth is that of a process that is starting. Beside [NotStarted] it knows the conditions given here.
func NewHealth(conditions ...Condition) *Health {
	h := &Health{
		held:   map[Condition]string{NotStarted: "starting"},
		checks: map[Condition]func() string{},
		ready:  make(chan struct{}),
		all:    append([]Condition{NotStarted}, conditions...),
		gauge: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "afterwrite_condition", Help: "1 while the condition keeps the process from being ready, else 0.",
		}, []string{"condition"}),
	}
	return h
}

// Set says that the condition holds, and why.
func (h *Health) Set(c Condition, sentence string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.held[c] = sentence
}

// Clear says that the condition does not hold.
func (h *Health) Clear(c Condition) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.held, c)
	if len(h.held) == 0 && !h.started {
		h.started = true
		close(h.ready)
	}
}

// Hold sets the condition if there is a sentence, and clears it if there is none.
func (h *Health) Hold(c Condition, sentence string) {
	if sentence == "" {
		h.Clear(c)
		return
	}
	h.Set(c, sentence)
}

// Check has the condition hold whenever look gives a sentence. It is asked when somebody wants to know.
func (h *Health) Check(c Condition, look func() (sentence string)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.checks[c] = look
}

// Ready is closed once no condition was held for the first time.
func (h *Health) Ready() <-chan struct{} { return h.ready }

// Reasons are the conditions that hold, one line each, sorted; none if the process is ready.
func (h *Health) Reasons() []string {
	holding := h.holding()
	var lines []string
	for _, c := range slices.Sorted(maps.Keys(holding)) {
		lines = append(lines, fmt.Sprintf("%s: %s", c, holding[c]))
	}
	return lines
}

func (h *Health) holding() map[Condition]string {
	h.mu.Lock()
	holding, checks := maps.Clone(h.held), maps.Clone(h.checks)
	h.mu.Unlock()
	for c, look := range checks {
		if sentence := look(); sentence != "" {
			holding[c] = sentence
		}
	}
	return holding
}

// Describe implements prometheus.Collector.
func (h *Health) Describe(descriptions chan<- *prometheus.Desc) { h.gauge.Describe(descriptions) }

// Collect implements prometheus.Collector.
func (h *Health) Collect(metrics chan<- prometheus.Metric) {
	holding := h.holding()
	for _, c := range h.all {
		value := 0.0
		if _, holds := holding[c]; holds {
			value = 1
		}
		h.gauge.WithLabelValues(string(c)).Set(value)
	}
	h.gauge.Collect(metrics)
}
