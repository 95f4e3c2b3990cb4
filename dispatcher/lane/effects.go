package lane

import (
	"time"

	"github.com/afterwrite/afterwrite/dispatcher/core"
	"github.com/afterwrite/afterwrite/events"
)

// Op names an effect whose answer the lane awaits. Whoever carries the effect out gives it back with the answer.
// An op that is repeated keeps its name; an answer to an op that is over is ignored.
type Op uint64

// Effects is what a lane asks of the world. No method blocks, and none fails: what cannot be done is answered as an
// input, or not at all, which the lane's own deadlines notice.
type Effects interface {
	// Pull asks a source for up to batch messages. It ends with [Lane.PullEnded].
	Pull(op Op, source Source, batch int)
	// Call sends the dispatch's input to its hook. Answered by [Lane.Replied].
	Call(op Op, call *core.Call, trace Trace)
	// Load reads the last record of a dispatch from the journal, from the stream's leader if exact.
	// Answered by [Lane.Loaded].
	Load(op Op, key core.Key, exact bool)
	// Append writes a document to the journal under its expected sequence. Answered by [Lane.Written].
	Append(op Op, save *core.Save, data []byte, trace Trace)
	// Publish creates an intent. Answered by [Lane.Written].
	Publish(op Op, intent *events.Intent, acceptedAt events.Timestamp, trace Trace)
	// Schedule creates or replaces a wake-up. Answered by [Lane.Written].
	Schedule(op Op, schedule core.Schedule)
	// Forget says that no answer to a call is wanted any more.
	Forget(op Op)

	// Acknowledge a message for good.
	Acknowledge(d *Delivery)
	// HandBack returns a message, to be delivered again after the delay.
	HandBack(d *Delivery, delay time.Duration)
	// Progress tells that a message is still being worked on.
	Progress(d *Delivery)
	// Answer ends a request.
	Answer(request *Request, answer Answer)
}

// Source is where messages are pulled from: the receipts, or the wake-ups of one hook.
type Source struct {
	// Hook whose wake-ups these are; empty for the receipts.
	Hook events.HookID
}

// Receipts is the source of receipts.
var Receipts = Source{}

// Delivery is one message given to the lane.
type Delivery struct {
	Source Source
	// Event is the receipt's envelope and data.
	Event Event
	// Key is the dispatch that a wake-up is for.
	Key core.Key
	// Sequence of the message in its stream.
	Sequence uint64
	// Deliveries counts the deliveries of the message, this one included.
	Deliveries int
	// StreamTime is when the stream took the message.
	StreamTime time.Time
	// Waited bounds from above how long the message lay in the client's buffer.
	Waited time.Duration
	// Reply is where the broker awaits its acknowledgement. Only the adapter reads it.
	Reply string
}

// Event is what a receipt's message says.
type Event struct {
	// SubjectKind is the event kind that the subject names.
	SubjectKind events.EventKind
	// MessageID is the id it was published under.
	MessageID string
	// BadEnvelope is set where the message is no CloudEvent.
	BadEnvelope bool
	Data        []byte
	Trace       Trace
}

// Trace is the distributed-tracing extension of CloudEvents.
type Trace struct{ Parent, State string }

// Loaded is the answer to a load.
type Loaded struct {
	Entry core.Entry
	// Data is the record as it is stored, nil if there is none.
	Data  []byte
	Trace Trace
	// Err is set where the journal could not be read, and the rest is then meaningless.
	Err error
}

// Written is the answer to a write.
type Written struct {
	// Lost says that the subject's last sequence is not the expected one.
	Lost bool
	// InFlight says of a write that lost that what it lost to is not stored yet, and may come to nothing.
	InFlight bool
	// Sequence of the write, where it is neither lost nor failed.
	Sequence uint64
	// Err is set where the broker refused or could not do it.
	Err error
}

// Request asks for a dispatch to be redriven.
type Request struct {
	Key      core.Key
	Operator string
	// Reply is where the answer goes. Only the adapter reads it.
	Reply string
}

// Answer ends a [Request]: a record that says redriven, a rejection, or an error of ours.
type Answer struct {
	Record    *events.DispatchReceipt
	Rejection *core.Rejection
	Err       error
}

// Observer is told what happens, for metrics and logs. It must not block.
type Observer interface {
	// Decided: a command was committed. dispatch is nil for a receipt as a whole.
	Decided(now time.Time, delivery *Delivery, dispatch *core.Dispatch, result *core.Result, trace Trace)
	// Replied: a call ended after took.
	Replied(hook events.HookID, kind core.ReplyKind, took time.Duration)
	// Settled: a message is over; handed says that it was handed back.
	Settled(source Source, took time.Duration, handed bool)
	// Lost: a write of the journal lost a race.
	Lost(key core.Key)
	// Failed: an effect could not be done and is tried again.
	Failed(effect string, err error)
	// Panicked: a fault of ours, with the stack.
	Panicked(source Source, sequence uint64, value any, stack []byte)
	// Breaker: the breaker of a hook changed its state ("closed", "half-open", "open").
	Breaker(hook events.HookID, state string)
}
