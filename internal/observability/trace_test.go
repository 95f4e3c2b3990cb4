package observability_test

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/afterwrite/afterwrite/events"
	"github.com/afterwrite/afterwrite/executors"
	"github.com/afterwrite/afterwrite/internal/observability"
	"github.com/afterwrite/afterwrite/internal/stack"
	"github.com/afterwrite/afterwrite/providers"
	"github.com/afterwrite/afterwrite/streams"
)

const (
	orchestratorTrace = "0af7651916cd43dd8448eb211c80319c"
	orchestratorSpan  = "b7ad6b7169203331"
	traceParent       = "00-" + orchestratorTrace + "-" + orchestratorSpan + "-01"
)

// tree writes the spans of a trace below the span, a line each, indented; links are told after an arrow.
func tree(spans tracetest.SpanStubs, below string) []string {
	var children tracetest.SpanStubs
	for _, s := range spans {
		if s.Parent.SpanID().String() == below {
			children = append(children, s)
		}
	}
	slices.SortFunc(children, func(a, b tracetest.SpanStub) int {
		return cmp.Or(a.StartTime.Compare(b.StartTime), strings.Compare(a.Name, b.Name))
	})
	var lines []string
	for _, s := range children {
		line := s.SpanKind.String() + " " + s.Name
		if description := s.Status.Description; description != "" {
			line += " (" + description + ")"
		}
		for _, link := range s.Links {
			for _, other := range spans {
				if other.SpanContext.SpanID() == link.SpanContext.SpanID() {
					line += " → " + other.Name
				}
			}
		}
		lines = append(lines, line)
		for _, line := range tree(spans, s.SpanContext.SpanID().String()) {
			lines = append(lines, "  "+line)
		}
	}
	return lines
}

// traced is a provider of tracers whose spans a test can look at.
func traced(t *testing.T) (*tracetest.InMemoryExporter, trace.TracerProvider) {
	t.Helper()
	exporter := tracetest.NewInMemoryExporter()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter))
	t.Cleanup(func() { _ = provider.Shutdown(context.WithoutCancel(t.Context())) })
	return exporter, provider
}

// tells waits for the trace of the receipt to be as wanted.
func (w *world) tells(exporter *tracetest.InMemoryExporter, want string) {
	w.t.Helper()
	lines := strings.Split(strings.TrimSpace(want), "\n")
	w.eventually(func() string {
		return gocmp.Diff(lines, tree(exporter.GetSpans(), orchestratorSpan))
	})
	for _, s := range exporter.GetSpans() {
		if got := s.SpanContext.TraceID().String(); got != orchestratorTrace {
			w.t.Errorf("%s is of the trace %s, want %s", s.Name, got, orchestratorTrace)
		}
	}
}

func TestATraceOfAReceiptShowsAllHops(t *testing.T) {
	t.Parallel()
	exporter, provider := traced(t)
	w := start(t, stack.Options{Tracing: provider}, nil)
	// The orchestrator publishes within a span of its own, of a Turn that was begun elsewhere.
	ctx, span := provider.Tracer("orchestrator").Start(
		observability.Remote(w.ctx, traceParent, "vendor=opaque"), "publish receipt", trace.WithSpanKind(trace.SpanKindProducer))
	if _, err := streams.NewPublisher(w.JS, streams.PublisherOptions{Trace: observability.Extension}).Publish(ctx, receipt("a")); err != nil {
		t.Fatal(err)
	}
	span.End()
	w.tells(exporter, `
producer publish receipt
  consumer receipt
    client call periodic_report.runtime_trigger
      server serve periodic_report.runtime_trigger
    producer record periodic_report.runtime_trigger
    producer publish periodic_report.trigger_evaluation
      consumer execute periodic_report.trigger_evaluation
        client effect periodic_report.trigger_evaluation
          server serve periodic_report.evaluate_trigger
`)
}

func TestARetryIsLinkedToTheRecordItGoesOnFrom(t *testing.T) {
	t.Parallel()
	exporter, provider := traced(t)
	calls := new(atomic.Int64)
	fickle := newHook("fickle", 1, 10*time.Second, func(*events.HookInput) ([]providers.Proposal, error) {
		if calls.Add(1) == 1 {
			return nil, errBroken
		}
		return nil, nil
	})
	w := start(t, stack.Options{Tracing: provider, NoProvider: true, NoExecutor: true}, nil, fickle)
	w.publish(receipt("a"), traceParent, "")
	w.tells(exporter, `
consumer receipt
  client call probe.fickle (provider_error)
    server serve probe.fickle (failed)
  producer record probe.fickle
    client call probe.fickle → record probe.fickle
      server serve probe.fickle
    producer record probe.fickle
`)
}

func TestALaterAttemptOfAnExecutionIsLinkedToTheOneBefore(t *testing.T) {
	t.Parallel()
	exporter, provider := traced(t)
	calls := new(atomic.Int64)
	proposing := newHook("proposing", 1, 10*time.Second, func(*events.HookInput) ([]providers.Proposal, error) { return noted("seen"), nil })
	w := start(t, stack.Options{Tracing: provider, NoProvider: true, NoExecutor: true},
		func(context.Context, *events.Intent, executors.Permit) (*events.Packet, error) {
			if calls.Add(1) == 1 {
				return nil, executors.Retry(errBroken)
			}
			return executors.PacketOf("noted_v0", map[string]string{"text": "seen"})
		}, proposing)
	w.publish(receipt("a"), traceParent, "")
	w.tells(exporter, `
consumer receipt
  client call probe.proposing
    server serve probe.proposing
  producer record probe.proposing
  producer publish probe.noted
    consumer execute probe.noted
      client effect probe.noted (failed)
    consumer execute probe.noted → execute probe.noted
      client effect probe.noted
`)
}

func TestOnlyATraceOfTheStandardIsPassedOn(t *testing.T) {
	const state = "vendor=opaque"
	for _, test := range []struct{ parent, state, wantParent, wantState, wantID string }{
		{traceParent, state, traceParent, state, orchestratorTrace},
		{traceParent, "", traceParent, "", orchestratorTrace},
		{traceParent, "vendor=https://example.org/private", traceParent, "", orchestratorTrace},
		{"", state, "", "", ""},
		{"01" + traceParent[2:], state, "", "", ""},
		{traceParent + "-x", state, "", "", ""},
		{strings.ToUpper(traceParent), state, "", "", ""},
		{strings.Replace(traceParent, "-", "_", 2), state, "", "", ""},
		{"the password is in the drawer, on the left-hand side ..", state, "", "", ""},
	} {
		gotParent, gotState := observability.PublicTrace(test.parent, test.state)
		if gotParent != test.wantParent || gotState != test.wantState {
			t.Errorf("%q, %q is passed on as %q, %q", test.parent, test.state, gotParent, gotState)
		}
		if got := observability.TraceID(test.parent); got != test.wantID {
			t.Errorf("%q is of the trace %q, want %q", test.parent, got, test.wantID)
		}
	}
}
