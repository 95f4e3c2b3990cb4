package dispatcher

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sync/errgroup"

	"github.com/afterwrite/afterwrite/internal/version"
)

// condition is one thing that keeps the dispatcher from being ready.
type condition string

const (
	// notStarted: it does not take receipts yet, or no longer.
	notStarted condition = "not_started"
	// topologyDiffers: a stream or consumer is missing or is not as it should be.
	topologyDiffers condition = "topology_differs"
	// brokerUnreadable: the broker does not answer.
	brokerUnreadable condition = "broker_unreadable"
	// brokerRefuses: it refused or did not answer a load or a write, a moment ago.
	brokerRefuses condition = "broker_refuses"
	// streamFilling: a stream is over 80 % full.
	streamFilling condition = "stream_filling"
	// receiptsAging: the oldest receipt nobody took is older than half the age at which it is dropped.
	receiptsAging condition = "receipts_aging"
	// journalGone: the journal is not the one it was.
	journalGone condition = "journal_gone"
)

// health is the conditions that hold, each with its sentence. It is ready when there are none.
type health struct {
	mu         sync.Mutex
	conditions map[condition]string
	once       chan struct{}
	started    bool
}

func newHealth() *health {
	return &health{conditions: map[condition]string{notStarted: "starting"}, once: make(chan struct{})}
}

func (h *health) set(c condition, sentence string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.conditions[c] = sentence
}

func (h *health) clear(c condition) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.conditions, c)
	if len(h.conditions) == 0 && !h.started {
		h.started = true
		close(h.once)
	}
}

// hold sets the condition if there is a sentence, and clears it if there is none.
func (h *health) hold(c condition, sentence string) {
	if sentence == "" {
		h.clear(c)
		return
	}
	h.set(c, sentence)
}

// reasons are the conditions that hold, one line each, sorted.
func (h *health) reasons() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var lines []string
	for _, c := range slices.Sorted(maps.Keys(h.conditions)) {
		lines = append(lines, fmt.Sprintf("%s: %s", c, h.conditions[c]))
	}
	return lines
}

const readHeaderTimeout = 5 * time.Second

// serveHealth serves /livez, /readyz, /metrics and /version, if an address was given.
func (d *Dispatcher) serveHealth(group *errgroup.Group) *http.Server {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprintln(w, "alive") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		reasons := d.health.reasons()
		if len(reasons) == 0 {
			_, _ = fmt.Fprintln(w, "ready")
			return
		}
		w.WriteHeader(http.StatusServiceUnavailable)
		for _, reason := range reasons {
			_, _ = fmt.Fprintln(w, reason)
		}
	})
	mux.HandleFunc("GET /version", func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprintln(w, version.String()) })
	mux.Handle("GET /metrics", promhttp.HandlerFor(d.options.Metrics, promhttp.HandlerOpts{}))
	server := &http.Server{Handler: mux, ReadHeaderTimeout: readHeaderTimeout}
	if d.listener != nil {
		group.Go(func() error { return server.Serve(d.listener) })
	}
	return server
}
