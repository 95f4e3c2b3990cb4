package executors

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/afterwrite/afterwrite/events"
	"github.com/afterwrite/afterwrite/internal/observability"
)

// tracerName is the instrumentation scope of an executor's spans.
const tracerName = "github.com/afterwrite/afterwrite/executors"

const (
	attrIntent   = attribute.Key("afterwrite.intent_id")
	attrKind     = attribute.Key("afterwrite.intent_kind")
	attrExecutor = attribute.Key("afterwrite.executor")
	attrAttempt  = attribute.Key("afterwrite.attempt")
	attrStatus   = attribute.Key("afterwrite.status")
	attrReason   = attribute.Key("afterwrite.reason")
	attrOutcome  = attribute.Key("afterwrite.outcome")
)

// begun opens the span of the run, a child of the one that published the intent, and has everything that the run
// writes carry it. The function it gives ends it.
func (r *run) begun(ctx context.Context, kind events.IntentKind) (context.Context, func()) {
	if r.tracer == nil {
		return ctx, func() {}
	}
	ctx, span := r.tracer.Start(observability.Remote(ctx, r.trace.TraceParent, r.trace.TraceState), "execute "+kind,
		trace.WithSpanKind(trace.SpanKindConsumer),
		trace.WithAttributes(attrIntent.String(r.key.Intent), attrKind.String(kind), attrExecutor.String(r.key.Executor)))
	r.trace.TraceParent, r.trace.TraceState = observability.Extension(ctx)
	return ctx, func() {
		if record := r.entry.Record; record != nil {
			span.SetAttributes(attrStatus.String(string(record.Status)), attrReason.String(string(record.Reason)), attrAttempt.Int(record.Attempt))
			if record.Status == events.ExecutionFailed {
				span.SetStatus(codes.Error, string(record.Reason))
			}
		}
		span.End()
	}
}

// follows links the run's span, which is that of ctx, to the one under which the record was written that the run goes on
// from: an earlier attempt, or a person's answer.
func (r *run) follows(ctx context.Context, written events.Envelope) {
	if r.tracer == nil || written.TraceParent == "" || written.TraceParent == r.trace.TraceParent {
		return
	}
	trace.SpanFromContext(ctx).AddLink(trace.LinkFromContext(
		observability.Remote(context.Background(), written.TraceParent, written.TraceState)))
}

// calling opens the span of a call of the effect, and has the permit carry it. The function it gives ends it, and
// counts the call.
func (r *run) calling(ctx context.Context, permit *Permit) (context.Context, func(error)) {
	began := time.Now()
	var span trace.Span
	if r.tracer != nil {
		ctx, span = r.tracer.Start(ctx, "effect "+r.grant.IntentKind, trace.WithSpanKind(trace.SpanKindClient),
			trace.WithAttributes(attrIntent.String(r.key.Intent), attrKind.String(r.grant.IntentKind), attrAttempt.Int(permit.Attempt)))
		permit.TraceParent, permit.TraceState = observability.Extension(ctx)
	}
	return ctx, func(err error) {
		outcome := outcomeOf(err)
		r.metrics.effects.WithLabelValues(r.grant.IntentKind, outcome).Observe(time.Since(began).Seconds())
		if span == nil {
			return
		}
		span.SetAttributes(attrOutcome.String(outcome))
		if err != nil {
			span.SetStatus(codes.Error, outcome)
		}
		span.End()
	}
}
