package observability_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/afterwrite/afterwrite/events"
	"github.com/afterwrite/afterwrite/executors"
	"github.com/afterwrite/afterwrite/internal/observability"
	"github.com/afterwrite/afterwrite/internal/stack"
	"github.com/afterwrite/afterwrite/providers"
	"github.com/afterwrite/afterwrite/streams"
)

// described is one row of the page about metrics.
type described struct{ Type, Labels, Help string }

// page reads the tables of docs/metrics.md.
func page(t *testing.T) map[string]described {
	t.Helper()
	text, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]described{}
	for line := range strings.Lines(string(text)) {
		if !strings.HasPrefix(line, "| `afterwrite_") {
			continue
		}
		cells := strings.Split(strings.ReplaceAll(line, "`", ""), "|")
		if len(cells) != 6 {
			t.Fatalf("a row of docs/metrics.md has %d cells, want 4: %s", len(cells)-2, line)
		}
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		if _, twice := rows[cells[1]]; twice {
			t.Errorf("docs/metrics.md describes %s twice", cells[1])
		}
		rows[cells[1]] = described{cells[2], cells[3], cells[4]}
	}
	return rows
}

// scraped is everything of ours in a registry.
func scraped(t *testing.T, registry prometheus.Gatherer) map[string]*dto.MetricFamily {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Error(err)
	}
	ours := map[string]*dto.MetricFamily{}
	for _, family := range families {
		if strings.HasPrefix(family.GetName(), "afterwrite_") {
			ours[family.GetName()] = family
		}
	}
	return ours
}

var fullName = regexp.MustCompile(`fqName: "(afterwrite_[a-z_]+)"`)

// registered names everything of ours in a registry, with or without a series.
func registered(registry prometheus.Collector) []string {
	descriptions := make(chan *prometheus.Desc)
	go func() {
		defer close(descriptions)
		registry.Describe(descriptions)
	}()
	names := map[string]bool{}
	for description := range descriptions {
		if match := fullName.FindStringSubmatch(description.String()); match != nil {
			names[match[1]] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

func describe(family *dto.MetricFamily) described {
	labels := map[string]bool{}
	for _, metric := range family.GetMetric() {
		for _, label := range metric.GetLabel() {
			labels[label.GetName()] = true
		}
	}
	names := strings.Join(slices.Sorted(maps.Keys(labels)), ", ")
	return described{strings.ToLower(family.GetType().String()), names, family.GetHelp()}
}

// watched remembers which values each series had.
type watched struct {
	values map[string]map[float64]bool // by series
	family map[string]*dto.MetricFamily
}

func (w *watched) look(families map[string]*dto.MetricFamily) {
	for name, family := range families {
		w.family[name] = family
		for _, metric := range family.GetMetric() {
			series := name + fmt.Sprint(metric.GetLabel())
			if w.values[series] == nil {
				w.values[series] = map[float64]bool{}
				if family.GetType() != dto.MetricType_GAUGE {
					w.values[series][0] = true // what counts was 0 before it was there
				}
			}
			w.values[series][valueOf(metric)] = true
		}
	}
}

func valueOf(m *dto.Metric) float64 {
	switch {
	case m.GetHistogram() != nil:
		return float64(m.GetHistogram().GetSampleCount())
	case m.GetCounter() != nil:
		return m.GetCounter().GetValue()
	}
	return m.GetGauge().GetValue()
}

// moved reports whether a series of the family had two values.
func (w *watched) moved(name string) bool {
	for series, values := range w.values {
		if (strings.HasPrefix(series, name+"[")) && len(values) > 1 {
			return true
		}
	}
	return false
}

// constant is the one metric that does not move.
const constant = "afterwrite_build_info"

// locked is a buffer that many may write to.
type locked struct {
	mu sync.Mutex
	bytes.Buffer
}

// Write implements io.Writer.
func (l *locked) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.Buffer.Write(p)
}

func (l *locked) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.String()
}

func TestEveryDocumentedMetricIsScrapedAndMoves(t *testing.T) {
	t.Parallel()
	over, called := make(chan struct{}), make(chan struct{}, 64)
	open, letThrough := gate()
	executed, letExecute := gate()
	gated := newHook("gated", 64, 30*time.Second, func(*events.HookInput) ([]providers.Proposal, error) {
		called <- struct{}{}
		<-open
		return noted("seen"), nil
	})
	hooks := []*hook{
		gated,
		newHook("failing", 64, time.Second, func(*events.HookInput) ([]providers.Proposal, error) { return nil, errBroken }),
		newHook("slow", 1, 100*time.Millisecond, silent(over)),
		newHook("absent", 64, time.Second, nil),
	}
	log := observability.NewLogger(new(locked), observability.LogOptions{Level: zap.DebugLevel, Burst: 1})
	faulty := new(atomic.Bool)
	o := stack.Options{Metrics: observability.NewRegistry(), Logger: log.WithOptions(panicsAt("receipt", faulty))}
	if err := log.Register(observability.For("dispatcher", o.Metrics)); err != nil {
		t.Fatal(err)
	}
	o.Dispatcher.Listen = "127.0.0.1:0"
	o.Dispatcher.ReceiptsInFlight, o.Dispatcher.TripAfter, o.Dispatcher.OpenFor = 8, 2, 100*time.Millisecond
	o.Dispatcher.OverdueAfter = time.Second
	// What was on its way when the connections broke comes again soon, and is not waited for in the end.
	o.Streams.AckWait, o.Dispatcher.StopGrace = 3*time.Second, time.Second
	w := start(t, o, func(ctx context.Context, _ *events.Intent, _ executors.Permit) (*events.Packet, error) {
		select {
		case <-executed:
		case <-ctx.Done():
		}
		return executors.PacketOf("noted_v0", map[string]string{"text": "seen"})
	}, hooks...)
	t.Cleanup(func() { // before the provider is stopped
		letThrough()
		letExecute()
		close(over)
	})

	seen := &watched{map[string]map[float64]bool{}, map[string]*dto.MetricFamily{}}
	look := func() { seen.look(scraped(t, o.Metrics)) }
	look()
	// One receipt that came as two messages: both find no record, and one of them will lose.
	twice := events.Canonical(receipt("twice"))
	w.publishAs("first", twice)
	w.publishAs("second", twice)
	w.called(called, 2)
	// Work that is held: in flight, not acknowledged, not even delivered. Once the broker is there again, it is looked at.
	for i := range 12 {
		w.publish(receipt(fmt.Sprintf("held_%d", i)), traceParent, "")
	}
	w.publishAs("refused", []byte("{}"))
	w.called(called, 2)
	w.dialed.breakAll()
	w.await(seen, look, "afterwrite_consumer_pending_messages", "afterwrite_consumer_unacknowledged_messages",
		"afterwrite_consumer_oldest_seconds", "afterwrite_dispatches_in_flight", "afterwrite_receipts_in_flight")
	w.rival(gated)
	letThrough()
	w.await(seen, look, "afterwrite_executions_in_flight")
	letExecute()
	w.fill(seen, look)
	w.stick(seen, look)
	faulty.Store(true)
	w.publish(receipt("handled_at_the_second_try"), traceParent, "")

	documented := page(t)
	var names []string
	for name := range documented {
		if name != constant {
			names = append(names, name)
		}
	}
	w.await(seen, look, names...)
	got := map[string]described{}
	for name, family := range seen.family {
		got[name] = describe(family)
	}
	if diff := cmp.Diff(documented, got); diff != "" {
		t.Errorf("docs/metrics.md and what is scraped differ (-page +scraped):\n%s", diff)
	}
	if diff := cmp.Diff(slices.Sorted(maps.Keys(documented)), registered(o.Metrics)); diff != "" {
		t.Errorf("docs/metrics.md and what is registered differ (-page +registered):\n%s", diff)
	}
	w.served(names)
}

// gate gives what holds back, and what opens it, once or more.
func gate() (held <-chan struct{}, open func()) {
	g := make(chan struct{})
	return g, sync.OnceFunc(func() { close(g) })
}

// called waits until a hook was called n times more.
func (w *world) called(calls <-chan struct{}, n int) {
	w.t.Helper()
	for range n {
		select {
		case <-calls:
		case <-w.ctx.Done():
			w.t.Fatal("the hook was not called in time")
		}
	}
}

// await looks until every metric has moved.
func (w *world) await(seen *watched, look func(), names ...string) {
	w.t.Helper()
	w.eventually(func() string {
		look()
		var stuck []string
		for _, name := range names {
			if !seen.moved(name) {
				stuck = append(stuck, name)
			}
		}
		if len(stuck) == 0 {
			return ""
		}
		return "not moved: " + strings.Join(stuck, ", ")
	})
}

// rival records a run of the executor for an intent that is still to come, so that its own claim loses.
func (w *world) rival(h *hook) {
	w.t.Helper()
	r := receipt("raced")
	dispatch := events.DispatchIdentity(r.Identity(), h.registration.HookID, capability, h.registration.Digest(), r.EventKind)
	payload := []byte(`{"note":"seen"}`)
	record := &events.Execution{
		Actor: noter, ActorKind: events.ActorExecutor, Executor: noter,
		IntentID: events.IntentIdentity(dispatch, intentKind, "v0", payload), IntentKind: intentKind,
		Reason: events.ExecutionIntentMalformed, RecordNumber: 1, RecordedAt: events.NewTimestamp(time.Now()),
		SchemaVersion: events.ExecutionSchema, Status: events.ExecutionRefused,
	}
	envelope := events.NewEnvelope(record.IntentID, "probe", events.ExecutionSchema, record.RecordedAt)
	_, err := w.JS.PublishMsg(w.ctx, &nats.Msg{
		Subject: streams.ExecutionSubject(record.IntentID, noter), Header: nats.Header(envelope.Header()), Data: events.Canonical(record),
	})
	if err != nil {
		w.t.Fatal(err)
	}
	w.publish(r, traceParent, "")
}

// update changes a stream for a while, until the function that it gives is called.
func (w *world) update(name string, change func(*jetstream.StreamConfig)) (restore func()) {
	w.t.Helper()
	stream, err := w.JS.Stream(w.ctx, name)
	if err != nil {
		w.t.Fatal(err)
	}
	set := func(config jetstream.StreamConfig) {
		if _, err := w.JS.UpdateStream(w.ctx, config); err != nil {
			w.t.Fatal(err)
		}
	}
	config := stream.CachedInfo().Config
	changed := config
	change(&changed)
	set(changed)
	return func() { set(config) }
}

// fill has the intents take nothing more for a while, and keep for a shorter time what they took.
func (w *world) fill(seen *watched, look func()) {
	w.t.Helper()
	restore := w.update(streams.Intents, func(c *jetstream.StreamConfig) {
		c.MaxBytes, c.MaxAge = 1, c.MaxAge-time.Hour
	})
	w.publish(receipt("refused_by_the_store"), traceParent, "")
	w.await(seen, look, "afterwrite_effects_failed_total", "afterwrite_condition", "afterwrite_stream_max_bytes", "afterwrite_stream_max_age_seconds")
	restore()
}

// stick has a wake-up fire while its stream takes nothing.
func (w *world) stick(seen *watched, look func()) {
	w.t.Helper()
	const dispatch, hook, soon = "pwh_sha256_" + "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef", "probe.absent", 300 * time.Millisecond
	at := time.Now().Add(soon)
	w.publishRaw(streams.RetryAtSubject(dispatch, hook), streams.FirstScheduleHeader(dispatch, hook, at), nil)
	restore := w.update(streams.Retries, func(c *jetstream.StreamConfig) { c.MaxMsgSize = 1 })
	w.eventually(func() string {
		if time.Since(at) < 2*soon {
			return "it is not due yet"
		}
		return ""
	})
	restore()
	w.await(seen, look, "afterwrite_wakeups_overdue_total")
}

// panicsAt has a logger panic before it writes the message at the debug level, once if it is to: nothing of ours panics
// on demand but what is injected.
func panicsAt(message string, once *atomic.Bool) zap.Option {
	return zap.WrapCore(func(core zapcore.Core) zapcore.Core {
		every := zapcore.NewCore(zapcore.NewJSONEncoder(zap.NewProductionEncoderConfig()), zapcore.AddSync(io.Discard), zap.DebugLevel)
		return zapcore.NewTee(core, zapcore.RegisterHooks(every, func(e zapcore.Entry) error {
			if e.Message == message && e.Level == zap.DebugLevel && once.Swap(false) {
				panic("the probe")
			}
			return nil
		}))
	})
}

// served holds that what was gathered is what is scraped.
func (w *world) served(names []string) {
	w.t.Helper()
	response, err := http.Get("http://" + w.Dispatcher.Addr().String() + "/metrics")
	if err != nil {
		w.t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, name := range names {
		if !strings.Contains("\n"+string(text), "\n# HELP "+name+" ") {
			w.t.Errorf("/metrics does not tell %s", name)
		}
	}
}
