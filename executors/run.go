package executors

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/zap"

	"github.com/afterwrite/afterwrite/events"
	"github.com/afterwrite/afterwrite/executors/core"
	"github.com/afterwrite/afterwrite/internal/observability"
	"github.com/afterwrite/afterwrite/streams"
)

// maxDecisions is how often one command is decided anew because its write lost, before the message is handed back.
const maxDecisions = 8

// point is a place between two durable steps, where a test may stop the process.
type point string

const (
	pointTaken    point = "taken"
	pointClaimed  point = "claimed"
	pointCalled   point = "called"
	pointEffected point = "effected"
	pointReturned point = "returned"
	pointFinished point = "finished"
	pointRecorded point = "recorded"
)

// errStopped is why a handler gives up at once, leaving everything to the next delivery.
var errStopped = errors.New("executors: the process stops")

// run carries one delivered intent through, from admission to acknowledgement.
type run struct {
	*Process
	msg   jetstream.Msg
	grant *Grant
	trace events.Envelope
	key   core.Key
	id    string
	// intent is set once its execution has begun.
	intent *events.Intent
	data   []byte
	entry  core.Entry
	loaded bool
	state  *stateEntry
	log    *zap.Logger
}

// handle decides the message and does what the decisions ask, until the message is settled.
func (r *run) handle(ctx context.Context) error {
	intentID, kind, ok := streams.ParseIntentSubject(r.msg.Subject())
	if !ok {
		// No execution can be recorded under such a subject, and no delivery of it will differ.
		r.log.Warn("intent dropped: its subject names no intent")
		return r.msg.TermWithReason("subject names no intent")
	}
	envelope, data, err := events.ReadEvent(events.Header(r.msg.Headers()), r.msg.Data())
	badEnvelope := err != nil || envelope.Type != events.EventType(events.IntentSchema) || envelope.Time == ""
	if !badEnvelope {
		r.trace = envelope
	}
	r.data = data
	r.key = core.Key{Intent: intentID, Executor: r.opts.Executor}
	r.log = r.log.With(zap.String("intent_id", intentID), zap.String("intent_kind", kind),
		zap.String("trace_id", observability.TraceID(r.trace.TraceParent)))
	ctx, traced := r.begun(ctx, kind)
	defer traced()
	if meta, err := r.msg.Metadata(); err == nil && meta.NumDelivered == 1 {
		// Nothing is recorded about a message that comes for the first time; if that is wrong, the write will lose.
		r.loaded = true
	}
	if err := r.reach(pointTaken); err != nil {
		return err
	}
	effects, err := r.decide(ctx, r.actor, core.AdmitIntent{
		Key: r.key, SubjectKind: kind, BadEnvelope: badEnvelope, Data: data, ProposedAt: r.trace.Time, RunID: r.id, Now: r.opts.Now(),
	})
	for len(effects) > 0 && err == nil {
		effect := effects[0]
		var more []core.Effect
		more, err = r.do(ctx, effect)
		effects = append(effects[1:], more...)
	}
	return err
}

// do carries out one effect and gives those that follow from it.
func (r *run) do(ctx context.Context, effect core.Effect) ([]core.Effect, error) {
	switch effect := effect.(type) {
	case core.Tell:
		return r.decide(ctx, effect.Actor, effect.Fact)
	case core.Begin:
		return r.begin(ctx, effect)
	case core.CallEffect:
		return r.call(ctx, effect)
	case core.Finish:
		return r.finish(ctx, effect)
	case core.Acknowledge:
		if err := r.reach(pointRecorded); err != nil {
			return nil, err
		}
		r.release(ctx)
		return nil, r.msg.Ack()
	case core.HandBack:
		r.release(ctx)
		return nil, r.handBack(effect.At)
	}
	return nil, fmt.Errorf("executors: unknown effect %T", effect)
}

// decide commits the command or records the fact, writes what is to be saved, and gives the effects. A rejection
// means that another run has moved the execution on: the message comes again and finds what there is.
func (r *run) decide(ctx context.Context, actor core.Actor, subject core.Subject) ([]core.Effect, error) {
	for range maxDecisions {
		state := core.State{Grants: r.grants, Executions: map[core.Key]core.Entry{}}
		if r.loaded {
			state.Executions[r.key] = r.entry
		}
		for len(core.Needs(subject, state, actor)) > 0 {
			entry, written, err := r.ledger.load(ctx, r.key)
			if err != nil {
				return nil, err
			}
			r.follows(ctx, written)
			r.entry, r.loaded = entry, true
			state.Executions[r.key] = entry
		}
		result, err := decide(subject, state, actor)
		if rejection := (*core.Rejection)(nil); errors.As(err, &rejection) {
			r.log.Info("run given up", zap.String("rejection", string(rejection.Reason)))
			return []core.Effect{core.HandBack{}}, nil
		}
		if err != nil {
			return nil, err
		}
		if result.Save == nil {
			return result.After(core.Durable{}), nil
		}
		entry, err := r.ledger.append(ctx, result.Save, r.trace)
		if errors.Is(err, errLost) {
			r.metrics.lost.WithLabelValues(r.grant.IntentKind).Inc()
			r.entry = entry
			continue
		}
		if err != nil {
			return nil, err
		}
		r.entry = entry
		r.log.Info("execution recorded", zap.String("status", string(entry.Record.Status)),
			zap.String("reason", string(entry.Record.Reason)), zap.Int("attempt", entry.Record.Attempt))
		r.observe(entry.Record)
		return result.After(result.Save.Stored()), nil
	}
	return []core.Effect{core.HandBack{}}, nil
}

func decide(subject core.Subject, state core.State, actor core.Actor) (*core.Result, error) {
	switch subject := subject.(type) {
	case core.Command:
		return core.Commit(subject, state, actor)
	case core.Fact:
		return core.Record(subject, state, actor)
	}
	return nil, fmt.Errorf("executors: %T is neither a command nor a fact", subject)
}

// begin prepares the effect: the process must be going on, and the state must be free.
func (r *run) begin(ctx context.Context, b core.Begin) ([]core.Effect, error) {
	if err := r.reach(pointClaimed); err != nil {
		return nil, err
	}
	pause := func(reason core.PauseReason) ([]core.Effect, error) {
		return r.decide(ctx, r.actor, core.ExecutionPaused{Run: b.Run, Reason: reason, Now: r.opts.Now()})
	}
	if r.stopping() {
		return pause(core.PauseStopping)
	}
	if free, err := r.takeState(ctx, b.Record); err != nil {
		return nil, err
	} else if !free {
		return pause(core.PauseStateReserved)
	}
	return r.decide(ctx, r.actor, core.EffectCalled{Run: b.Run, Now: r.opts.Now()})
}

// call calls the effect and records how it ended.
func (r *run) call(ctx context.Context, c core.CallEffect) ([]core.Effect, error) {
	if err := r.reach(pointCalled); err != nil {
		return nil, err
	}
	packet, err := r.execute(ctx, c.Record)
	if err := r.reach(pointEffected); err != nil {
		return nil, err
	}
	now := r.opts.Now()
	if err != nil {
		cause, at := classify(err)
		r.log.Info("effect failed", zap.String("cause", string(cause)))
		if cause == causeNotStarted {
			return r.decide(ctx, r.actor, core.ExecutionPaused{Run: c.Run, Reason: core.PauseNotStarted, Now: now})
		}
		return r.decide(ctx, r.actor, core.FailExecution{Run: c.Run, Cause: cause, ResumeAt: at, Now: now})
	}
	// A packet that cannot be encoded is an empty document to the core, which refuses it.
	result := []byte{}
	if packet != nil {
		if encoded, err := events.Encode(packet); err == nil {
			result = encoded
		}
	}
	if r.opts.Delivery == nil {
		return r.decide(ctx, r.actor, core.CompleteExecution{Run: c.Run, Result: result, Now: now})
	}
	return r.decide(ctx, r.actor, core.EffectReturned{Run: c.Run, Result: result, Now: now})
}

// execute calls the executor for as long as the grant allows. A panic of its author is an error of the effect.
func (r *run) execute(ctx context.Context, record *events.Execution) (packet *events.Packet, err error) {
	permit := r.permit(record)
	ctx, ended := r.calling(ctx, &permit)
	defer func() { ended(err) }() // a panic is an error by then
	ctx, cancel := context.WithTimeout(ctx, r.grant.Timeout)
	defer cancel()
	defer func() {
		if value := recover(); value != nil {
			r.log.Error("executor panicked", zap.String("panic", fmt.Sprintf("%T", value)), zap.Stack("stack"))
			packet, err = nil, errors.New("the executor panicked")
		}
	}()
	packet, err = r.executor(r.grant).Execute(ctx, r.intent, permit)
	if err != nil && ctx.Err() != nil && errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
		err = errors.Join(context.DeadlineExceeded, err)
	}
	return packet, err
}

func (r *run) permit(record *events.Execution) Permit {
	permit := Permit{
		Accepted: *record.Accepted, Executor: r.opts.Executor, Grant: *r.grant, Attempt: record.Attempt,
		TraceParent: r.trace.TraceParent, TraceState: r.trace.TraceState,
	}
	if r.state != nil {
		permit.State = r.state.value
	}
	return permit
}

// finish does what is left to do with the result: delivers it, and advances the state once that was read back.
func (r *run) finish(ctx context.Context, f core.Finish) ([]core.Effect, error) {
	if err := r.reach(pointReturned); err != nil {
		return nil, err
	}
	if r.opts.Delivery != nil {
		free, err := r.takeState(ctx, f.Record)
		if err != nil {
			return nil, err
		}
		later := []core.Effect{core.HandBack{At: events.Timestamp(f.Record.LeaseUntil).Time()}}
		if !free {
			return later, nil
		}
		ctx, cancel := context.WithTimeout(ctx, r.grant.Timeout)
		defer cancel()
		next, err := r.opts.Delivery.Deliver(ctx, r.intent, r.permit(f.Record), f.Record.Result)
		if cause, _ := classify(err); err != nil && cause == core.CauseNever {
			return r.decide(ctx, r.actor, core.FailExecution{Run: f.Run, Cause: core.CauseNever, Now: r.opts.Now()})
		} else if err != nil {
			r.log.Warn("delivery failed", zap.String("cause", string(cause)))
			return later, nil
		}
		if next != nil && r.state != nil {
			if err := r.ledger.writeState(ctx, r.state, next, ""); err != nil {
				r.log.Warn("state not advanced", zap.Error(err))
				return later, nil
			}
		}
	}
	if err := r.reach(pointFinished); err != nil {
		return nil, err
	}
	return r.decide(ctx, r.actor, core.CompleteExecution{Run: f.Run, Now: r.opts.Now()})
}

// takeState decodes the intent that is going to be acted upon and loads the state it is about, and, where a delivery
// may advance the state, reserves it, so that no two intents are decided on the same state. It reports false where
// another intent has it.
//
// A reservation does not lapse with time: it is over when the execution of the intent that holds it is.
func (r *run) takeState(ctx context.Context, record *events.Execution) (bool, error) {
	if r.intent == nil {
		intent, err := events.Decode[events.Intent](r.data)
		if err != nil {
			return false, err
		}
		r.intent = intent
	}
	key, ok := stateKey(r.intent, r.grant)
	if key == "" || !ok {
		return true, nil
	}
	for range maxDecisions {
		state, err := r.ledger.loadState(ctx, key, r.opts.Executor, record.IntentKind)
		if err != nil {
			return false, err
		}
		r.state = state
		if r.opts.Delivery == nil || state.reservedBy == record.IntentID {
			return true, nil
		}
		if state.reservedBy != "" {
			holder, _, err := r.ledger.load(ctx, core.Key{Intent: state.reservedBy, Executor: r.opts.Executor})
			if err != nil {
				return false, err
			}
			if holder.Record != nil && !holder.Record.Status.Terminal() {
				return false, nil
			}
		}
		err = r.ledger.writeState(ctx, state, state.value, record.IntentID)
		if err == nil {
			return true, nil
		}
		if !errors.Is(err, errLost) {
			return false, err
		}
	}
	return false, nil
}

// release gives the state back where this run still holds it and the execution no longer runs. It may fail: whoever
// comes next sees that the holder's execution is over.
func (r *run) release(ctx context.Context) {
	if r.state == nil || r.state.reservedBy != r.key.Intent || r.entry.Record == nil || r.entry.Record.Status.Running() {
		return
	}
	if err := r.ledger.writeState(ctx, r.state, r.state.value, ""); err != nil {
		r.log.Info("state not released", zap.Error(err))
	}
}

// handBack returns the message to the broker, always with a delay: at once would be a loop without a pause.
func (r *run) handBack(at time.Time) error {
	delay := r.opts.HandBack
	if !at.IsZero() {
		delay = max(at.Sub(r.opts.Now()), shortestHandBack)
	}
	return r.msg.NakWithDelay(delay)
}

const shortestHandBack = 50 * time.Millisecond

func (r *run) reach(p point) error {
	if r.opts.at == nil {
		return nil
	}
	return r.opts.at(p, r.key.Intent)
}
