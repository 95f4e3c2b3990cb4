package dispatcher

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go"

	"github.com/afterwrite/afterwrite/dispatcher/core"
	"github.com/afterwrite/afterwrite/dispatcher/lane"
	"github.com/afterwrite/afterwrite/events"
	"github.com/afterwrite/afterwrite/internal/observability"
	"github.com/afterwrite/afterwrite/streams"
)

// Headers and codes of the broker's protocol that the client library keeps to itself.
const (
	headerStatus       = "Status"
	headerDescription  = "Description"
	headerServiceError = "Nats-Service-Error-Code"
	headerSequence     = "Nats-Sequence"

	statusNotFound     = "404"
	statusNoResponders = "503"
	statusHeartbeat    = "100"
	statusTimedOut     = "408"

	// The last sequence of the subject is another one; or will be, if a rival in flight is stored.
	codeWrongLastSequence         = 10071
	codeWrongLastSequenceConstant = 10164
	codeNoMessage                 = 10037

	// codeOverloaded is a provider's service error: its queue is full.
	codeOverloaded = "503"
)

// receive turns one message of the lane's subscription into the input that it is.
func (r *runner) receive(now time.Time, m *nats.Msg, waited time.Duration) {
	if op, call, ok := r.port.answered(m.Subject); ok {
		if call {
			r.port.Forget(op)
			answer := reply(m)
			r.spans.replied(op, answer.Kind)
			r.lane.Replied(now, op, answer)
			return
		}
		r.answer(now, op, m)
		return
	}
	if m.Reply == "" {
		return // an answer to a call that is over, or nobody's
	}
	delivery, err := newDelivery(m, waited+time.Since(now)) // now is when the burst began
	if err != nil {
		r.unreadable(m, err)
		return
	}
	r.spans.received(now, delivery)
	r.lane.Deliver(now, delivery)
}

// answer is a pull's end, a loaded record or a write's acknowledgement, whichever the lane awaits under op.
func (r *runner) answer(now time.Time, op lane.Op, m *nats.Msg) {
	status := m.Header.Get(headerStatus)
	switch kind := r.lane.Awaited(op); kind {
	case lane.AwaitsPull:
		if status != statusHeartbeat {
			r.lane.PullEnded(now, op, status != statusNotFound && status != statusTimedOut)
		}
	case lane.AwaitsLoad:
		r.lane.Loaded(now, op, loaded(m, status))
	case lane.AwaitsWrite:
		answer := written(m, status)
		r.spans.written(op, answer)
		r.lane.Written(now, op, answer)
	case lane.AwaitsNothing, lane.AwaitsReply:
	}
}

// reply is what a provider, or the broker in its place, said.
func reply(m *nats.Msg) core.Reply {
	if len(m.Data) == 0 && m.Header.Get(headerStatus) == statusNoResponders {
		return core.Reply{Kind: core.ReplyNoResponder}
	}
	switch m.Header.Get(headerServiceError) {
	case "":
	case codeOverloaded:
		return core.Reply{Kind: core.ReplyNoResponder} // the provider says that it did not run the hook
	default:
		return core.Reply{Kind: core.ReplyProviderError}
	}
	envelope, data, err := events.ReadEvent(m.Header, m.Data)
	if err != nil || envelope.Type != events.EventType(events.HookResultSchema) {
		data = nil // no result document, whatever else it is
	}
	return core.Reply{Kind: core.ReplyResult, Data: data}
}

func newDelivery(m *nats.Msg, waited time.Duration) (*lane.Delivery, error) {
	meta, err := m.Metadata()
	if err != nil {
		return nil, fmt.Errorf("read the delivery's metadata: %w", err)
	}
	d := &lane.Delivery{
		Sequence:   meta.Sequence.Stream,
		Deliveries: int(meta.NumDelivered), //nolint:gosec // nobody delivers a message 2^63 times
		StreamTime: meta.Timestamp,
		Waited:     waited,
		Reply:      m.Reply,
	}
	if dispatch, hook, ok := streams.ParseRetryDueSubject(m.Subject); ok {
		d.Source = lane.Source{Hook: hook}
		d.Key = core.Key{Dispatch: dispatch, Hook: hook}
		return d, nil
	}
	kind, ok := streams.ParseReceiptSubject(m.Subject)
	if !ok {
		return nil, errors.New("its subject is neither a receipt's nor a wake-up's")
	}
	d.Event = receiptEvent(kind, m)
	return d, nil
}

// receiptEvent reads a receipt's message. One that is no receipt's event is refused by the core, not here.
func receiptEvent(kind events.EventKind, m *nats.Msg) lane.Event {
	event := lane.Event{SubjectKind: kind, MessageID: m.Header.Get(streams.HeaderMessageID), Data: m.Data}
	envelope, data, err := events.ReadEvent(m.Header, m.Data)
	if event.BadEnvelope = err != nil || envelope.Type != events.EventType(events.ReceiptSchema); event.BadEnvelope {
		return event
	}
	event.Data = data
	event.Trace.Parent, event.Trace.State = observability.PublicTrace(envelope.TraceParent, envelope.TraceState)
	return event
}

// apiError is the error member of an answer of the broker.
type apiError struct {
	Code        int    `json:"code"`
	ErrCode     int    `json:"err_code"`
	Description string `json:"description"`
}

func (e *apiError) Error() string {
	return fmt.Sprintf("the broker says: %s (%d)", e.Description, e.ErrCode)
}

var (
	errNoResponder = errors.New("nobody answers for the stream: it is missing or has no leader")
	errNoSequence  = errors.New("the broker's answer has no sequence")
)

func written(m *nats.Msg, status string) lane.Written {
	if status == statusNoResponders {
		return lane.Written{Err: errNoResponder}
	}
	// An acknowledgement of a write that worked has no error member, and there are many more of them.
	if !bytes.Contains(m.Data, []byte(`"error"`)) && bytes.Contains(m.Data, []byte(`"seq"`)) {
		return lane.Written{}
	}
	var ack struct {
		Error *apiError `json:"error"`
	}
	switch err := json.Unmarshal(m.Data, &ack); {
	case err != nil:
		return lane.Written{Err: fmt.Errorf("read the broker's answer: %w", err)}
	case ack.Error == nil:
		return lane.Written{Err: errNoSequence}
	case ack.Error.ErrCode == codeWrongLastSequence:
		return lane.Written{Lost: true}
	case ack.Error.ErrCode == codeWrongLastSequenceConstant:
		return lane.Written{Lost: true, InFlight: true}
	}
	return lane.Written{Err: ack.Error}
}

// loaded reads a record from a direct get, whose answer is the message itself, or from the leader's, which is JSON.
func loaded(m *nats.Msg, status string) lane.Loaded {
	switch {
	case status == statusNotFound:
		return lane.Loaded{}
	case status == statusNoResponders:
		return lane.Loaded{Err: errNoResponder}
	case status != "":
		return lane.Loaded{Err: errors.New("the broker says: " + status + " " + m.Header.Get(headerDescription))}
	}
	if sequence := m.Header.Get(headerSequence); sequence != "" {
		n, err := strconv.ParseUint(sequence, 10, 64)
		if err != nil {
			return lane.Loaded{Err: errNoSequence}
		}
		return record(n, m.Header, m.Data)
	}
	var answer struct {
		Error   *apiError `json:"error"`
		Message *struct {
			Sequence uint64 `json:"seq"`
			Headers  []byte `json:"hdrs"`
			Data     []byte `json:"data"`
		} `json:"message"`
	}
	if err := json.Unmarshal(m.Data, &answer); err != nil {
		return lane.Loaded{Err: fmt.Errorf("read the broker's answer: %w", err)}
	}
	switch {
	case answer.Error != nil && answer.Error.ErrCode == codeNoMessage:
		return lane.Loaded{}
	case answer.Error != nil:
		return lane.Loaded{Err: answer.Error}
	case answer.Message == nil:
		return lane.Loaded{Err: errNoSequence}
	}
	header, err := nats.DecodeHeadersMsg(answer.Message.Headers)
	if err != nil {
		return lane.Loaded{Err: fmt.Errorf("read the record's headers: %w", err)}
	}
	return record(answer.Message.Sequence, header, answer.Message.Data)
}

func record(sequence uint64, header nats.Header, data []byte) lane.Loaded {
	envelope, data, err := events.ReadEvent(header, data)
	if err != nil {
		return lane.Loaded{Err: fmt.Errorf("read the record's event: %w", err)}
	}
	receipt, err := events.Decode[events.DispatchReceipt](data)
	if err != nil {
		return lane.Loaded{Err: fmt.Errorf("read the record: %w", err)}
	}
	return lane.Loaded{
		Entry: core.Entry{Sequence: sequence, Record: receipt},
		Data:  data,
		Trace: lane.Trace{Parent: envelope.TraceParent, State: envelope.TraceState},
	}
}
