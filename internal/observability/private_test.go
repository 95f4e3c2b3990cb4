package observability_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/zap"

	"github.com/afterwrite/afterwrite/dispatcher/journal"
	"github.com/afterwrite/afterwrite/events"
	"github.com/afterwrite/afterwrite/internal/observability"
	"github.com/afterwrite/afterwrite/internal/stack"
	"github.com/afterwrite/afterwrite/providers"
	"github.com/afterwrite/afterwrite/streams"
)

// private is what nobody may read outside the receipt that it stands in.
const private = "s3cr3t"

// Wherever a receipt, a trace or a provider may carry text, there is something private in it here.
func TestNothingPrivateReachesALabelALogLineOrASpan(t *testing.T) {
	t.Parallel()
	exporter, provider := traced(t)
	out := new(locked)
	o := stack.Options{
		Metrics: observability.NewRegistry(), Tracing: provider,
		Logger: observability.NewLogger(out, observability.LogOptions{Level: zap.DebugLevel}).Logger,
	}
	hooks := []*hook{
		newHook("raising", 4, 10*time.Second, func(*events.HookInput) ([]providers.Proposal, error) { return nil, errors.New(private) }),
		newHook("panicking", 4, 10*time.Second, func(*events.HookInput) ([]providers.Proposal, error) { panic(private) }),
		newHook("leaking", 4, 10*time.Second, func(*events.HookInput) ([]providers.Proposal, error) {
			return noted("https://example.org/" + private), nil
		}),
	}
	w := start(t, o, nil, hooks...)

	outside := receipt("outside")
	outside.Projection.FactRefs = []string{"mailto:" + private + "@example.org"}
	unknown := receipt("unknown")
	unknown.Profile = private
	plain := receipt("plain")
	for _, r := range []*events.Receipt{outside, plain} {
		w.publish(r, traceParent, "vendor=password:"+private+"@example.org")
	}
	w.publishAs(private, events.Canonical(unknown))
	w.publishAs("malformed", []byte(`{"`+private+`":1}`))
	header := events.NewEnvelope("id", "probe", events.ReceiptSchema, "").Header()
	header["ce-traceparent"], header[streams.HeaderMessageID] = []string{private}, []string{"other"}
	w.publishRaw(streams.ReceiptSubject("todo_completed"), header, []byte("{}"))

	const dispatches, refusals = 2 * 4, 3
	w.eventually(func() string {
		ended, refused := 0, 0
		for record, err := range journal.States(w.ctx, w.JS) {
			if err != nil {
				return err.Error()
			}
			if record.Document.Status.Terminal() {
				ended++
			}
		}
		for _, err := range journal.Refusals(w.ctx, w.JS) {
			if err != nil {
				return err.Error()
			}
			refused++
		}
		if ended != dispatches || refused != refusals {
			return fmt.Sprintf("%d dispatches have ended and %d receipts are refused, want %d and %d", ended, refused, dispatches, refusals)
		}
		return ""
	})

	told := map[string]string{"the log": out.text(), "the spans": fmt.Sprintf("%+v", exporter.GetSpans().Snapshots())}
	for _, span := range exporter.GetSpans() {
		told["the spans"] += fmt.Sprintf("%+v\n", span)
		if span.SpanKind == trace.SpanKindUnspecified {
			t.Errorf("the span %s has no kind", span.Name)
		}
	}
	families, err := o.Metrics.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var metrics bytes.Buffer
	for _, family := range families {
		if _, err := expfmt.MetricFamilyToText(&metrics, family); err != nil {
			t.Fatal(err)
		}
	}
	told["the metrics"] = metrics.String()
	for where, text := range told {
		if len(text) < 1000 {
			t.Errorf("%s tell next to nothing: %s", where, text)
		}
		for line := range strings.Lines(text) {
			if strings.Contains(line, private) {
				t.Errorf("%s tell something private: %s", where, line)
			}
		}
	}
}
