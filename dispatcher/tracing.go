package dispatcher

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/afterwrite/afterwrite/dispatcher/core"
	"github.com/afterwrite/afterwrite/dispatcher/lane"
	"github.com/afterwrite/afterwrite/events"
	"github.com/afterwrite/afterwrite/internal/observability"
)

// tracerName is the instrumentation scope of the dispatcher's spans.
const tracerName = "github.com/afterwrite/afterwrite/dispatcher"

// spans carry the trace of a receipt on through one lane: they are the lane's effects, with a span around each that
// goes somewhere.
//
//	orchestrator's span
//	└─ receipt              consumer: from the delivery to its acknowledgement
//	   ├─ call <hook>       client: from the call to its answer; the provider's span is its child
//	   ├─ record <hook>     producer: the append to the journal
//	   │  └─ call <hook>    a later attempt, on a wake-up, linked to the record that it goes on from
//	   └─ publish <kind>    producer: the intent; the executor's span is its child
//
// A wake-up carries nothing, so what follows from one is a child of the record that it loaded. A nil *spans is a lane
// that is not traced, and then it is not among the lane's effects at all.
type spans struct {
	lane.Effects
	tracer trace.Tracer
	// awaits tells whether an op is still awaited.
	awaits func(lane.Op) lane.Awaits
	// patience is how long a receipt may go without a sign of life: longer, and the lane dropped it.
	patience time.Duration
	// receipts are the open spans of receipts, by the traceparent that the lane carries for them.
	receipts map[string]*openSpan
	ops      map[lane.Op]*openSpan
	swept    time.Time
}

// openSpan is a span that will end by itself at a deadline, if it has one.
type openSpan struct {
	trace.Span
	deadline time.Time
}

// traced gives a lane's effects with spans around them, or as they are if nothing is traced.
func traced(provider trace.TracerProvider, effects lane.Effects, patience time.Duration) (lane.Effects, *spans) {
	if provider == nil {
		return effects, nil
	}
	s := &spans{
		Effects: effects, tracer: provider.Tracer(tracerName), patience: patience,
		receipts: map[string]*openSpan{}, ops: map[lane.Op]*openSpan{},
	}
	return s, s
}

// Attributes of our spans.
const (
	attrDispatch   = attribute.Key("afterwrite.dispatch_id")
	attrHook       = attribute.Key("afterwrite.hook")
	attrIntent     = attribute.Key("afterwrite.intent_id")
	attrIntentKind = attribute.Key("afterwrite.intent_kind")
	attrAttempt    = attribute.Key("afterwrite.attempt")
	attrStatus     = attribute.Key("afterwrite.status")
	attrCode       = attribute.Key("afterwrite.code")
	attrReason     = attribute.Key("afterwrite.reason")
	attrReply      = attribute.Key("afterwrite.reply")
	attrDeliveries = attribute.Key("afterwrite.deliveries")
	attrHandedBack = attribute.Key("afterwrite.handed_back")
	attrSequence   = attribute.Key("afterwrite.sequence")
)

// What a span says that ended without what it waited for.
const (
	spanTimedOut  = "timed_out"
	spanAbandoned = "abandoned"
	spanLost      = "lost"
	spanFailed    = "failed"
)

// received begins the span of a receipt and has the lane carry it.
func (s *spans) received(now time.Time, d *lane.Delivery) {
	if s == nil || d.Source != lane.Receipts {
		return
	}
	ctx, span := s.tracer.Start(observability.Remote(context.Background(), d.Event.Trace.Parent, d.Event.Trace.State), "receipt",
		trace.WithSpanKind(trace.SpanKindConsumer), trace.WithTimestamp(now),
		trace.WithAttributes(attrSequence.Int64(int64(d.Sequence)), attrDeliveries.Int(d.Deliveries))) //nolint:gosec // no stream holds 2^63 messages
	if parent, state := observability.Extension(ctx); parent != "" { // a provider that does nothing names no span
		d.Event.Trace = lane.Trace{Parent: parent, State: state}
		s.receipts[parent] = &openSpan{span, now.Add(s.patience)}
	}
}

// Progress implements lane.Effects.
func (s *spans) Progress(d *lane.Delivery) {
	if open := s.receipts[d.Event.Trace.Parent]; open != nil {
		open.deadline = open.deadline.Add(s.patience)
	}
	s.Effects.Progress(d)
}

// Acknowledge implements lane.Effects.
func (s *spans) Acknowledge(d *lane.Delivery) {
	s.Effects.Acknowledge(d)
	s.settled(d, false)
}

// HandBack implements lane.Effects.
func (s *spans) HandBack(d *lane.Delivery, delay time.Duration) {
	s.Effects.HandBack(d, delay)
	s.settled(d, true)
}

func (s *spans) settled(d *lane.Delivery, handedBack bool) {
	if open := s.receipts[d.Event.Trace.Parent]; open != nil {
		open.SetAttributes(attrHandedBack.Bool(handedBack))
		open.End()
		delete(s.receipts, d.Event.Trace.Parent)
	}
}

// Call implements lane.Effects.
func (s *spans) Call(op lane.Op, call *core.Call, of lane.Trace) {
	options := []trace.SpanStartOption{trace.WithAttributes(
		attrDispatch.String(call.Dispatch.Key.Dispatch), attrHook.String(call.Dispatch.Key.Hook), attrAttempt.Int(call.Attempt),
	)}
	if parent := s.parent(of); call.Base > 0 && trace.SpanContextFromContext(parent).IsRemote() {
		options = append(options, trace.WithLinks(trace.LinkFromContext(parent)))
	}
	carried := s.begin(op, of, "call "+call.Dispatch.Key.Hook, trace.SpanKindClient, options...)
	s.ops[op].deadline = time.Now().Add(call.Timeout)
	s.Effects.Call(op, call, carried)
}

// Append implements lane.Effects.
func (s *spans) Append(op lane.Op, save *core.Save, data []byte, of lane.Trace) {
	name, attributes := describe(save)
	s.Effects.Append(op, save, data, s.begin(op, of, name, trace.SpanKindProducer, trace.WithAttributes(attributes...)))
}

// describe names the span of an append, and says what is appended.
func describe(save *core.Save) (name string, attributes []attribute.KeyValue) {
	switch {
	case save.Record != nil:
		r := save.Record
		return "record " + r.HookID, []attribute.KeyValue{
			attrDispatch.String(r.DispatchID), attrHook.String(r.HookID), attrStatus.String(string(r.Status)),
			attrCode.String(string(r.Code)), attrReason.String(string(r.Reason)), attrAttempt.Int(r.Attempt),
		}
	case save.Conflict != nil:
		c := save.Conflict
		return "conflict " + c.HookID, []attribute.KeyValue{
			attrDispatch.String(c.DispatchID), attrHook.String(c.HookID), attrReason.String(string(c.Reason)),
		}
	}
	return "refusal", []attribute.KeyValue{attrReason.String(string(save.Refusal.Reason))}
}

// Publish implements lane.Effects.
func (s *spans) Publish(op lane.Op, intent *events.Intent, acceptedAt events.Timestamp, of lane.Trace) {
	s.Effects.Publish(op, intent, acceptedAt, s.begin(op, of, "publish "+intent.IntentKind, trace.SpanKindProducer,
		trace.WithAttributes(attrDispatch.String(intent.SourceDispatchID), attrHook.String(intent.HookID),
			attrIntent.String(intent.IntentID), attrIntentKind.String(intent.IntentKind))))
}

// parent is the span of a trace that the lane carries: one of ours, or another process's.
func (s *spans) parent(of lane.Trace) context.Context {
	if open := s.receipts[of.Parent]; open != nil {
		return trace.ContextWithSpan(context.Background(), open.Span)
	}
	return observability.Remote(context.Background(), of.Parent, of.State)
}

// begin opens the span of an op and gives it as what travels on. An op that is repeated goes on with its span, so that
// the message is the same byte for byte.
func (s *spans) begin(op lane.Op, of lane.Trace, name string, kind trace.SpanKind, options ...trace.SpanStartOption) lane.Trace {
	if s.ops[op] == nil {
		_, span := s.tracer.Start(s.parent(of), name, append(options, trace.WithSpanKind(kind))...)
		s.ops[op] = &openSpan{Span: span}
	}
	var carried lane.Trace
	carried.Parent, carried.State = observability.Extension(trace.ContextWithSpan(context.Background(), s.ops[op].Span))
	return carried
}

// replied ends the span of a call.
func (s *spans) replied(op lane.Op, kind core.ReplyKind) {
	if s == nil {
		return
	}
	if open := s.ops[op]; open != nil {
		open.SetAttributes(attrReply.String(string(kind)))
		fault := ""
		if kind != core.ReplyResult {
			fault = string(kind)
		}
		s.end(op, fault)
	}
}

// written ends the span of an append or of an intent.
func (s *spans) written(op lane.Op, written lane.Written) {
	if s == nil {
		return
	}
	switch {
	case written.Err != nil:
		s.end(op, spanFailed)
	case written.Lost:
		s.end(op, spanLost)
	default:
		s.end(op, "")
	}
}

// Forget implements lane.Effects.
func (s *spans) Forget(op lane.Op) {
	s.Effects.Forget(op)
	s.end(op, spanAbandoned)
}

func (s *spans) end(op lane.Op, fault string, options ...trace.SpanEndOption) {
	open := s.ops[op]
	if open == nil {
		return
	}
	if fault != "" {
		open.SetStatus(codes.Error, fault)
	}
	open.End(options...)
	delete(s.ops, op)
}

const sweepEvery = time.Second

// sweep ends the spans whose end the lane does not tell: of calls past their deadline, of writes that it gave up, of
// receipts that it dropped.
func (s *spans) sweep(now time.Time) {
	if s == nil || now.Sub(s.swept) < sweepEvery {
		return
	}
	s.swept = now
	for op, open := range s.ops {
		switch {
		case !open.deadline.IsZero() && !now.Before(open.deadline):
			open.SetAttributes(attrReply.String(string(core.ReplyNone)))
			s.end(op, spanTimedOut, trace.WithTimestamp(open.deadline))
		case s.awaits(op) == lane.AwaitsNothing:
			s.end(op, spanAbandoned)
		}
	}
	for parent, open := range s.receipts {
		if now.After(open.deadline) {
			open.SetStatus(codes.Error, spanAbandoned)
			open.End()
			delete(s.receipts, parent)
		}
	}
}

// close ends every span that is still open.
func (s *spans) close() {
	if s == nil {
		return
	}
	for op := range s.ops {
		s.end(op, spanAbandoned)
	}
	for _, open := range s.receipts {
		open.SetStatus(codes.Error, spanAbandoned)
		open.End()
	}
}
