package dispatcher

import (
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/zap"

	"github.com/afterwrite/afterwrite/dispatcher/lane"
	"github.com/afterwrite/afterwrite/streams"
)

const (
	// burst is how many messages are taken before the lane looks at its deadlines and pulls again.
	burst = 256
	// idle is how long a lane sleeps at most. What waits for a breaker or a slow hook is looked at this often.
	idle = 100 * time.Millisecond
)

// runner drives one lane: it turns what its one subscription brings into inputs, in one goroutine.
type runner struct {
	lane  *lane.Lane
	port  *port
	spans *spans // nil where nothing is traced
	nc    *nats.Conn
	log   *zap.Logger
	sub   *nats.Subscription
	inbox inbox
	// controls carries what other goroutines want the lane to be told.
	controls chan func(now time.Time, l *lane.Lane)
}

func newRunner(
	nc *nats.Conn, log *zap.Logger, prefix string, options lane.Options, observer lane.Observer, tracing trace.TracerProvider,
) (*runner, error) {
	options = options.WithDefaults()
	p := newPort(nc, log, prefix, options.PullExpiry)
	effects, traced := traced(tracing, p, options.AckWait)
	r := &runner{
		lane:     lane.New(options, effects, observer),
		port:     p,
		spans:    traced,
		nc:       nc,
		log:      log,
		inbox:    newInbox(time.Now()),
		controls: make(chan func(time.Time, *lane.Lane), burst),
	}
	if r.spans != nil {
		r.spans.awaits = r.lane.Awaited
	}
	sub, err := nc.ChanSubscribe(p.replies(), r.inbox.messages)
	if err != nil {
		return nil, fmt.Errorf("subscribe to the lane's replies: %w", err)
	}
	r.sub = sub
	return r, nil
}

// tell has f called by the lane's goroutine. It gives up when done is closed.
func (r *runner) tell(done <-chan struct{}, f func(now time.Time, l *lane.Lane)) {
	select {
	case r.controls <- f:
	case <-done:
	}
}

// reconnected tells the lane that its pulls are forgotten. Should the lane be too busy to be told, the pulls' own
// deadlines tell it.
func (r *runner) reconnected() {
	select {
	case r.controls <- func(now time.Time, l *lane.Lane) { l.Reconnected(now) }:
	default:
	}
}

// run drives the lane until stop is closed and what is under way is done, or handed back after grace.
func (r *runner) run(stop <-chan struct{}, grace time.Duration) {
	defer r.spans.close()
	defer r.leave()
	var abandon <-chan time.Time
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		now := time.Now()
		r.lane.Tick(now)
		if r.inbox.look(now) {
			r.lane.Pull(now)
		}
		r.spans.sweep(now)
		if abandon != nil && r.lane.Idle() {
			return
		}
		timer.Reset(r.sleep(now))
		select {
		case m := <-r.inbox.messages:
			r.take(m)
		case f := <-r.controls:
			f(time.Now(), r.lane)
		case <-timer.C:
		case <-stop:
			stop = nil
			r.lane.Stop()
			abandon = time.After(grace)
		case <-abandon:
			r.lane.Abandon(time.Now())
			return
		}
	}
}

// leave ends the lane's subscription. Where the lane was abandoned a pull may still be filled until the broker knows, and
// what it sent by then comes before the answer to a flush: the lane hands it back.
func (r *runner) leave() {
	_ = r.sub.Drain() // the connection may be closed already, and then the flush says so
	if r.nc.FlushTimeout(flushWait) != nil {
		return
	}
	for len(r.inbox.messages) > 0 {
		r.receive(time.Now(), <-r.inbox.messages, 0)
	}
}

func (r *runner) sleep(now time.Time) time.Duration {
	if at, ok := r.lane.NextTick(); ok {
		return min(max(at.Sub(now), 0), idle)
	}
	return idle
}

// take takes the message, and as many after it as are there and a burst allows.
func (r *runner) take(m *nats.Msg) {
	now := time.Now()
	for range burst {
		r.receive(now, m, r.inbox.took(now))
		select {
		case m = <-r.inbox.messages:
		default:
			return
		}
	}
	r.receive(now, m, r.inbox.took(now))
}

// unreadable is a message that names no dispatch, which nobody who may publish there sends. It is ended for good, for
// it would only come again and take the place of others. Its subject is not logged: that is its sender's text.
func (r *runner) unreadable(m *nats.Msg, err error) {
	meta, metaErr := m.Metadata()
	if metaErr != nil {
		r.log.Error("cannot read a delivery", zap.Error(metaErr))
		return
	}
	r.log.Error("ended a message that cannot be read", zap.String("stream", meta.Stream), zap.Uint64("sequence", meta.Sequence.Stream),
		zap.Error(err))
	from := lane.Receipts
	if hook, ok := streams.ParseRetryConsumer(meta.Consumer); ok && meta.Stream == streams.Retries {
		from = lane.Source{Hook: hook}
	}
	r.lane.Skipped(from)
	r.port.end(m.Reply)
}
