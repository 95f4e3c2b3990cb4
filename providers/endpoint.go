package providers

import (
	"context"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/zap"

	"github.com/afterwrite/afterwrite/events"
	"github.com/afterwrite/afterwrite/internal/observability"
)

// endpoint is one hook or service at its subject.
type endpoint struct {
	*Provider
	name    string
	subject string
	serve   func(*call) error
	// queue holds the calls that wait, and in the end one nil for each worker to leave by.
	queue   chan *call
	counts  counts
	metrics endpointMetrics
}

func (p *Provider) endpoint(m *metrics, name, subject string, serve func(*call) error) *endpoint {
	return &endpoint{
		Provider: p, name: name, subject: subject, serve: serve, queue: make(chan *call, p.opts.queue), metrics: m.of(name),
	}
}

// call is one request on its way to one answer.
type call struct {
	*endpoint
	header   events.Header
	data     []byte
	reply    string
	arrived  time.Time
	trace    events.Envelope
	answered atomic.Bool
	span     trace.Span // nil where calls are not traced
	out      *nats.Msg  // the worker's, for the answer
}

// take is called by the subscription, in order of arrival. It never waits: a subscription that did would leave calls
// where nobody can see how old they are.
func (e *endpoint) take(r micro.Request) {
	if r.Reply() == "" {
		return // nobody waits for an answer, and an answer is all there is
	}
	c := &call{endpoint: e, header: events.Header(r.Headers()), data: r.Data(), reply: r.Reply(), arrived: time.Now()}
	e.metrics.waiting.Inc()
	select {
	case e.queue <- c:
	default:
		e.metrics.waiting.Dec()
		c.fail(errOverloaded)
	}
}

// work runs calls until the provider is draining and none waits any more.
func (e *endpoint) work() {
	answer := newAnswer()
	for c := <-e.queue; c != nil; c = <-e.queue {
		c.run(answer)
	}
}

// newAnswer is the message for all of a worker's answers: the client keeps nothing of what it has published.
func newAnswer() *nats.Msg { return &nats.Msg{Header: make(nats.Header, 8)} }

// dismiss has the workers leave once they have run what waits.
func (e *endpoint) dismiss() {
	for range e.opts.concurrency {
		e.queue <- nil
	}
}

func (c *call) run(out *nats.Msg) {
	c.out = out
	c.metrics.waiting.Dec()
	c.metrics.running.Inc()
	defer c.metrics.running.Dec()
	if err := c.serve(c); err != nil {
		c.fail(err)
	}
}

// open reads the call's envelope, whose trace goes on with the answer, and checks that it is about such a document.
func (c *call) open(schemaVersion string) ([]byte, error) {
	envelope, data, err := events.ReadEvent(c.header, c.data)
	if err != nil {
		return nil, err
	}
	if envelope.Type != events.EventType(schemaVersion) {
		return nil, refuse("cloudevent.type", "must be that of a "+schemaVersion)
	}
	c.trace = envelope
	c.begin()
	return data, nil
}

// waited is how long the caller has been waiting.
func (c *call) waited() time.Duration { return time.Since(c.arrived) }

// late reports whether the caller has given up waiting.
func (c *call) late(timeout time.Duration) bool { return c.waited() >= timeout }

// serve answers a hook call.
func (h *hook) serve(c *call) error {
	data, err := c.open(events.HookInputSchema)
	if err != nil {
		return err
	}
	timeout, err := h.timeout(c.header)
	if err != nil {
		return err
	}
	if c.late(timeout) {
		return errTimedOut
	}
	in, err := events.Decode[events.HookInput](data)
	if err != nil {
		return err
	}
	if in.HookID != h.registration.HookID {
		return refuse("hook_id", "must be the hook of the subject")
	}
	if in.CapabilityID != h.registration.CapabilityID {
		return refuse("capability_id", "must be the capability of the hook")
	}
	dispatch := in.DispatchID // the input is the author's from here on
	out, err := guard(func() ([]byte, error) {
		proposals, err := h.propose.Propose(in)
		if err != nil {
			return nil, err
		}
		return h.result(dispatch, proposals) // which runs author code too, where a payload encodes itself
	})
	if err != nil {
		return err
	}
	return c.answer(dispatch, events.HookResultSchema, out)
}

// timeout is how long the dispatcher waits: what it says, else what it was told to by the registration.
func (h *hook) timeout(header events.Header) (time.Duration, error) {
	value := nats.Header(header).Get(events.HeaderTimeout)
	if value == "" {
		return time.Duration(h.registration.Budget.TimeoutMillis) * time.Millisecond, nil
	}
	ms, err := strconv.Atoi(value)
	if err != nil || ms < 1 || ms > events.MaxTimeoutMillis {
		return 0, refuse("the header "+events.HeaderTimeout, "must be from 1 to 30000 ms")
	}
	return time.Duration(ms) * time.Millisecond, nil
}

// serve answers a service request, at its deadline at the latest. A service that goes on regardless keeps its worker,
// so that concurrency stays bounded.
func (s *service) serve(c *call) error {
	data, err := c.open(events.ServiceRequestSchema)
	if err != nil {
		return err
	}
	r, err := events.Decode[events.ServiceRequest](data)
	if err != nil {
		return err
	}
	if r.Service != s.name {
		return refuse("service", "must be the service of the subject")
	}
	timeout := min(s.timeout, time.Duration(r.TimeoutMillis)*time.Millisecond)
	if c.late(timeout) {
		return errTimedOut
	}
	ctx, cancel := context.WithDeadlineCause(c.within(), c.arrived.Add(timeout), errTimedOut)
	defer cancel()
	defer context.AfterFunc(ctx, func() { c.fail(context.Cause(ctx)) })()

	asked := *r // the request is the author's from here on
	out, err := guard(func() ([]byte, error) {
		answer, err := s.answer.Answer(ctx, r)
		if err != nil {
			return nil, err
		}
		return s.response(&asked, answer)
	})
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	if err != nil {
		return err
	}
	return c.answer(asked.IdempotencyKey, events.ServiceResponseSchema, out)
}

// answer sends the document, unless the call was answered before.
func (c *call) answer(id, schemaVersion string, document []byte) error {
	if int64(len(document)) > c.broker.MaxPayload() {
		return &AnswerError{Rule: "more bytes than the broker takes"}
	}
	if c.answered.CompareAndSwap(false, true) {
		c.counts.answered.Add(1)
		envelope := events.NewEnvelope(id, c.source, schemaVersion, events.NewTimestamp(time.Now()))
		envelope.TraceParent, envelope.TraceState = c.trace.TraceParent, c.trace.TraceState
		envelope.Set(events.Header(c.out.Header))
		c.out.Subject, c.out.Data = c.reply, document
		c.send(c.out)
		c.over(outcomeAnswered)
	}
	return nil
}

// fail sends the error, unless the call was answered before.
func (c *call) fail(err error) {
	if !c.answered.CompareAndSwap(false, true) {
		return
	}
	code, text := classify(err)
	c.counts.of(code).Add(1)
	// The reply is not micro's own: that may only be used before its handler returns.
	c.send(&nats.Msg{Subject: c.reply, Header: nats.Header{
		micro.ErrorHeader:     {text},
		micro.ErrorCodeHeader: {string(code)},
	}})
	c.over(outcomeOf(code))
	fields := []zap.Field{
		zap.String("endpoint", c.name), zap.String("code", string(code)), zap.String("reason", text),
		zap.String("trace_id", observability.TraceID(c.trace.TraceParent)),
	}
	if code == ErrorFailed {
		c.opts.log.Error("call failed", append(fields, logFields(err)...)...)
	} else {
		c.opts.log.Debug("call not answered", fields...)
	}
}

func (c *call) send(msg *nats.Msg) {
	if err := c.broker.PublishMsg(msg); err != nil {
		c.opts.log.Warn("answer not sent", zap.String("endpoint", c.name), zap.Error(err))
	}
}

// counts are what became of an endpoint's calls, told under micro's statistics: those count a call as done when it was
// queued.
type counts struct{ answered, refused, failed, overloaded, timedOut atomic.Uint64 }

func (c *counts) of(code ErrorCode) *atomic.Uint64 {
	switch code {
	case ErrorRefused:
		return &c.refused
	case ErrorFailed:
		return &c.failed
	case ErrorOverloaded:
		return &c.overloaded
	case ErrorTimedOut:
		return &c.timedOut
	}
	return &c.failed
}

// Stats is what became of the calls of one hook or service, as micro's statistics carry it.
type Stats struct {
	Answered   uint64 `json:"answered"`
	Refused    uint64 `json:"refused"`
	Failed     uint64 `json:"failed"`
	Overloaded uint64 `json:"overloaded"`
	TimedOut   uint64 `json:"timed_out"`
}

func (c *counts) snapshot() Stats {
	return Stats{
		Answered:   c.answered.Load(),
		Refused:    c.refused.Load(),
		Failed:     c.failed.Load(),
		Overloaded: c.overloaded.Load(),
		TimedOut:   c.timedOut.Load(),
	}
}

func refuse(member, rule string) error {
	return &events.DecodeError{Fault: events.FaultValue, Path: member, Rule: rule}
}
