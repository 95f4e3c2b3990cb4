package observability

import (
	"context"

	"go.opentelemetry.io/otel/propagation"

	"github.com/afterwrite/afterwrite/events"
)

// Remote gives the span that the distributed-tracing extension names, as the parent of what ctx begins.
func Remote(ctx context.Context, parent, state string) context.Context {
	return propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{"traceparent": parent, "tracestate": state})
}

// Extension is the distributed-tracing extension that names the span of ctx; empty if there is none.
func Extension(ctx context.Context) (parent, state string) {
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	return carrier["traceparent"], carrier["tracestate"]
}

// A traceparent is 00-<trace id>-<span id>-<flags>, in lower-case hex.
const (
	idStart, idEnd = 3, 35
	spanEnd        = 52
	lenTraceparent = 55
)

// TraceID is the trace that a traceparent names, for log lines; "" if it is not one.
func TraceID(parent string) string {
	if !isTraceparent(parent) {
		return ""
	}
	return parent[idStart:idEnd]
}

// PublicTrace gives the extension as it may be passed on and stored. It comes from outside and may be any text, so a
// parent that is not one of W3C Trace Context, and a state that the boundary refuses, are left out.
func PublicTrace(parent, state string) (string, string) {
	if !isTraceparent(parent) {
		return "", ""
	}
	if state != "" && events.Scan(state) != "" {
		state = ""
	}
	return parent, state
}

// isTraceparent reports whether s is version 00 of a traceparent, the only one that is known in full.
func isTraceparent(s string) bool {
	if len(s) != lenTraceparent || s[:3] != "00-" {
		return false
	}
	for i := idStart; i < len(s); i++ {
		switch c := s[i]; {
		case i == idEnd || i == spanEnd:
			if c != '-' {
				return false
			}
		case (c < '0' || c > '9') && (c < 'a' || c > 'f'):
			return false
		}
	}
	return true
}
