package providers

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/afterwrite/afterwrite/internal/observability"
)

// tracerName is the instrumentation scope of a provider's spans.
const tracerName = "github.com/afterwrite/afterwrite/providers"

const (
	attrEndpoint = attribute.Key("afterwrite.endpoint")
	attrOutcome  = attribute.Key("afterwrite.outcome")
)

// begin opens the call's span, a child of the caller's, where calls are traced. A service's own spans are its children.
func (c *call) begin() {
	if c.opts.tracer == nil {
		return
	}
	_, c.span = c.opts.tracer.Start(
		observability.Remote(context.Background(), c.trace.TraceParent, c.trace.TraceState), "serve "+c.name,
		trace.WithSpanKind(trace.SpanKindServer), trace.WithTimestamp(c.arrived), trace.WithAttributes(attrEndpoint.String(c.name)))
}

// within is the context of author code that may wait: it ends when draining is given up, and holds the call's span.
func (c *call) within() context.Context {
	if c.span == nil {
		return c.running
	}
	return trace.ContextWithSpan(c.running, c.span)
}

// over counts the call and ends its span. What an error says is not told: it may repeat what was asked.
func (c *call) over(o outcome) {
	c.metrics.over(o, c.waited())
	if c.span == nil {
		return
	}
	c.span.SetAttributes(attrOutcome.String(string(o)))
	if o != outcomeAnswered {
		c.span.SetStatus(codes.Error, string(o))
	}
	c.span.End()
}
