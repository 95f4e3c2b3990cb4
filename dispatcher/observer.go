package dispatcher

import (
	"errors"
	"fmt"
	"runtime"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/afterwrite/afterwrite/dispatcher/core"
	"github.com/afterwrite/afterwrite/dispatcher/lane"
	"github.com/afterwrite/afterwrite/events"
	"github.com/afterwrite/afterwrite/internal/observability"
)

// observer turns what one lane reports into metrics and log lines: a line for each decision.
type observer struct {
	*metrics
	log *zap.Logger
	// broken is told when the broker refuses something.
	broken func(effect string, err error)
	// states are those of the lane's breakers.
	states map[events.HookID]string
}

var _ lane.Observer = (*observer)(nil)

// newObserver is that of one lane with the hooks.
func newObserver(m *metrics, log *zap.Logger, broken func(effect string, err error), hooks map[events.HookID]core.Hook) *observer {
	o := &observer{metrics: m, log: log, broken: broken, states: make(map[events.HookID]string, len(hooks))}
	for hook := range hooks {
		o.states[hook] = closed
		o.breakers.begin(hook)
	}
	return o
}

// Decided implements lane.Observer.
func (o *observer) Decided(now time.Time, d *lane.Delivery, planned *core.Dispatch, r *core.Result, trace lane.Trace) {
	document := ""
	if r.Save != nil {
		document = documentOf(r.Save)
		o.writes.WithLabelValues(document).Inc()
	}
	key, about := subject(d, planned, r)
	if !about {
		o.receipt(d, r, trace)
		return
	}
	o.decisions.WithLabelValues(key.Hook, string(r.Outcome)).Inc()
	if document == documentRecord {
		o.record(now, d, r)
	}
	o.line(key, r, trace)
}

// subject is the dispatch that was decided about; not ok if it was a receipt as a whole.
func subject(d *lane.Delivery, planned *core.Dispatch, r *core.Result) (key core.Key, ok bool) {
	switch {
	case planned != nil:
		return planned.Key, true
	case r.State != nil:
		return core.Key{Dispatch: r.State.DispatchID, Hook: r.State.HookID}, true
	case d != nil && d.Source != lane.Receipts:
		return d.Key, true
	}
	return core.Key{}, false
}

// The documents of a journal, as a label.
const (
	documentRecord   = "record"
	documentRefusal  = "refusal"
	documentConflict = "conflict"
)

func documentOf(save *core.Save) string {
	switch {
	case save.Record != nil:
		return documentRecord
	case save.Refusal != nil:
		return documentRefusal
	}
	return documentConflict
}

// receipt counts and logs a decision about a receipt as a whole.
func (o *observer) receipt(d *lane.Delivery, r *core.Result, trace lane.Trace) {
	reason, level := noReason, zapcore.DebugLevel
	if r.Save != nil && r.Save.Refusal != nil {
		reason, level = string(r.Save.Refusal.Reason), zapcore.WarnLevel
	}
	o.receipts.WithLabelValues(string(r.Outcome), reason).Inc()
	if line := o.log.Check(level, "receipt"); line != nil {
		fields := []zap.Field{
			zap.String("outcome", string(r.Outcome)), zap.String("reason", reason),
			zap.String("trace_id", observability.TraceID(trace.Parent)),
		}
		if d != nil {
			fields = append(fields, zap.Uint64("sequence", d.Sequence))
		}
		line.Write(fields...)
	}
}

// record counts a record that was decided on.
func (o *observer) record(now time.Time, d *lane.Delivery, r *core.Result) {
	record := r.Save.Record
	o.records.WithLabelValues(record.HookID, string(record.Status), string(record.Code)).Inc()
	if r.Outcome == core.OutcomeDeferred {
		o.deferred.WithLabelValues(record.HookID, string(record.Reason)).Inc()
	}
	for i := range record.Intents {
		o.intents.WithLabelValues(record.HookID, record.Intents[i].IntentKind).Inc()
	}
	if d != nil && d.Source == lane.Receipts && record.RecordNumber == 1 {
		o.dispatches.WithLabelValues(record.HookID, string(record.Status)).Observe(now.Sub(d.StreamTime).Seconds())
	}
}

// line logs a decision about a dispatch.
func (o *observer) line(key core.Key, r *core.Result, trace lane.Trace) {
	line := o.log.Check(levelOf(r), "dispatch")
	if line == nil {
		return
	}
	fields := []zap.Field{
		zap.String("dispatch_id", key.Dispatch), zap.String("hook", key.Hook), zap.String("outcome", string(r.Outcome)),
		zap.String("trace_id", observability.TraceID(trace.Parent)),
	}
	if record := r.State; record != nil {
		fields = append(fields,
			zap.String("status", string(record.Status)), zap.String("code", string(record.Code)),
			zap.String("reason", string(record.Reason)), zap.Int("attempt", record.Attempt),
		)
	}
	if r.Save != nil && r.Save.Conflict != nil {
		fields = append(fields, zap.String("conflict", string(r.Save.Conflict.Reason)))
	}
	line.Write(fields...)
}

// levelOf tells what an operator wants to hear about: what failed, then what was recorded, then everything else.
func levelOf(r *core.Result) zapcore.Level {
	switch {
	case r.Save == nil:
		return zapcore.DebugLevel
	case r.Save.Conflict != nil, r.Save.Record != nil && r.Save.Record.Status == events.StatusFailed:
		return zapcore.WarnLevel
	}
	return zapcore.InfoLevel
}

// Replied implements lane.Observer.
func (o *observer) Replied(hook events.HookID, kind core.ReplyKind, took time.Duration) {
	o.replies.WithLabelValues(hook, string(kind)).Observe(took.Seconds())
}

// Settled implements lane.Observer.
func (o *observer) Settled(source lane.Source, took time.Duration, handed bool) {
	end := endAcknowledged
	if handed {
		end = endHandedBack
	}
	o.messages.WithLabelValues(sourceLabel(source), end).Observe(took.Seconds())
}

// How a message ends, and where it came from, as labels.
const (
	endAcknowledged = "acknowledged"
	endHandedBack   = "handed_back"

	sourceReceipt = "receipt"
	sourceWakeUp  = "wakeup"
)

func sourceLabel(source lane.Source) string {
	if source == lane.Receipts {
		return sourceReceipt
	}
	return sourceWakeUp
}

// Lost implements lane.Observer.
func (o *observer) Lost(key core.Key) { o.lost.WithLabelValues(key.Hook).Inc() }

// Failed implements lane.Observer.
func (o *observer) Failed(effect string, err error) {
	o.failed.WithLabelValues(effect).Inc()
	o.log.Warn("broker refused or did not answer", zap.String("effect", effect), zap.Error(err))
	o.broken(effect, err)
}

// Panicked implements lane.Observer. What the panic says may repeat what was being handled, unless it is the
// runtime's own, which speaks of indexes and types.
func (o *observer) Panicked(source lane.Source, sequence uint64, value any, stack []byte) {
	o.panics.WithLabelValues(sourceLabel(source)).Inc()
	fields := []zap.Field{
		zap.String("hook", source.Hook), zap.Uint64("sequence", sequence),
		zap.String("panic", fmt.Sprintf("%T", value)), zap.ByteString("stack", stack),
	}
	fault := runtime.Error(nil)
	if err, ok := value.(error); ok && errors.As(err, &fault) {
		fields = append(fields, zap.String("fault", fault.Error()))
	}
	o.log.Error("panic while handling a message", fields...)
}

// Breaker implements lane.Observer.
func (o *observer) Breaker(hook events.HookID, state string) {
	o.breakers.change(hook, o.states[hook], state)
	o.log.Warn("breaker", zap.String("hook", hook), zap.String("from", o.states[hook]), zap.String("to", state))
	o.states[hook] = state
}
