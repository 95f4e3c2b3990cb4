package dispatcher

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/afterwrite/afterwrite/dispatcher/core"
	"github.com/afterwrite/afterwrite/dispatcher/lane"
	"github.com/afterwrite/afterwrite/events"
)

// carried are effects that remember what traces went with them.
type carried struct {
	lane.Effects
	traces []lane.Trace
}

func (c *carried) Call(_ lane.Op, _ *core.Call, trace lane.Trace) { c.traces = append(c.traces, trace) }
func (c *carried) Append(_ lane.Op, _ *core.Save, _ []byte, trace lane.Trace) {
	c.traces = append(c.traces, trace)
}
func (c *carried) Forget(lane.Op)                         {}
func (c *carried) HandBack(*lane.Delivery, time.Duration) {}
func (c *carried) Progress(*lane.Delivery)                {}

func tracing(t *testing.T) (*spans, *carried, *tracetest.InMemoryExporter) {
	t.Helper()
	exporter := tracetest.NewInMemoryExporter()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter))
	t.Cleanup(func() { _ = provider.Shutdown(t.Context()) })
	effects := new(carried)
	_, s := traced(provider, effects, time.Minute)
	return s, effects, exporter
}

// ended are the spans that have ended, each with what it says.
func ended(exporter *tracetest.InMemoryExporter) map[string]string {
	all := map[string]string{}
	for _, span := range exporter.GetSpans() {
		all[span.Name] = span.Status.Description
	}
	return all
}

var called = &core.Call{Dispatch: &core.Dispatch{Key: core.Key{Dispatch: "pwh_sha256_a", Hook: "a.b"}}, Attempt: 1, Timeout: time.Second}

func TestALaneThatIsNotTracedHasItsEffectsAsTheyAre(t *testing.T) {
	port := new(port)
	effects, s := traced(nil, port, time.Minute)
	if effects != lane.Effects(port) || s != nil {
		t.Errorf("got %T and %v", effects, s)
	}
	// The host tells it what happens all the same.
	s.received(time.Now(), &lane.Delivery{})
	s.replied(1, core.ReplyResult)
	s.written(1, lane.Written{})
	s.sweep(time.Now())
	s.close()
}

func TestASpanEndsAlthoughTheLaneTellsNothing(t *testing.T) {
	s, _, exporter := tracing(t)
	s.awaits = func(lane.Op) lane.Awaits { return lane.AwaitsReply }
	now := time.Now()
	dropped, worked := &lane.Delivery{}, &lane.Delivery{}
	s.received(now, dropped)
	s.received(now, worked)
	s.Call(1, called, worked.Event.Trace)
	s.Append(2, &core.Save{Record: &events.DispatchReceipt{HookID: "a.b"}}, nil, worked.Event.Trace)
	s.sweep(now)
	if diff := cmp.Diff(map[string]string{}, ended(exporter)); diff != "" {
		t.Errorf("ended too early (-want +got):\n%s", diff)
	}
	s.sweep(now.Add(5 * time.Second))
	if diff := cmp.Diff(map[string]string{"call a.b": "timed_out"}, ended(exporter)); diff != "" {
		t.Errorf("past the call's deadline (-want +got):\n%s", diff)
	}
	if took := exporter.GetSpans()[0].EndTime.Sub(exporter.GetSpans()[0].StartTime); took < time.Second || took > 2*time.Second {
		t.Errorf("the call took %v, want its timeout", took)
	}
	s.awaits = func(lane.Op) lane.Awaits { return lane.AwaitsNothing }
	s.Progress(worked)
	s.sweep(now.Add(90 * time.Second))
	if diff := cmp.Diff(map[string]string{"call a.b": "timed_out", "record a.b": "abandoned", "receipt": "abandoned"}, ended(exporter)); diff != "" {
		t.Errorf("given up (-want +got):\n%s", diff)
	}
	if len(s.receipts) != 1 {
		t.Errorf("%d receipts are under way, want 1", len(s.receipts))
	}
	s.HandBack(worked, time.Second)
	if got := len(exporter.GetSpans()); got != 4 || len(s.receipts)+len(s.ops) != 0 {
		t.Errorf("%d spans have ended, want 4; open are %v, %v", got, s.receipts, s.ops)
	}
}

func TestARepeatedWriteIsTheSameByteForByte(t *testing.T) {
	s, effects, exporter := tracing(t)
	save := &core.Save{Record: &events.DispatchReceipt{HookID: "a.b"}}
	s.Append(1, save, nil, lane.Trace{})
	s.Append(1, save, nil, lane.Trace{})
	if effects.traces[0] != effects.traces[1] || effects.traces[0].Parent == "" {
		t.Errorf("carried %q, then %q", effects.traces[0], effects.traces[1])
	}
	s.written(1, lane.Written{Lost: true})
	s.Append(2, save, nil, lane.Trace{})
	if effects.traces[2] == effects.traces[0] {
		t.Error("another write carries the same span")
	}
	if diff := cmp.Diff(map[string]string{"record a.b": "lost"}, ended(exporter)); diff != "" {
		t.Errorf("ended (-want +got):\n%s", diff)
	}
}
