package dispatcher

import (
	"crypto/rand"
	"encoding/hex"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"go.uber.org/zap"

	"github.com/afterwrite/afterwrite/dispatcher/core"
	"github.com/afterwrite/afterwrite/dispatcher/failpoint"
	"github.com/afterwrite/afterwrite/dispatcher/lane"
	"github.com/afterwrite/afterwrite/events"
	"github.com/afterwrite/afterwrite/streams"
)

// source is the CloudEvents source of everything the dispatcher writes.
const source = "afterwrite/dispatcher"

// port turns the effects of one lane into plain publishes whose replies all come to the lane's one subscription.
//
// A reply's subject is <prefix>.<lane>.<token>.<op>. For calls the token is 128 random bits a call: a provider sees
// the subject it answers to and no other, so it cannot answer for its neighbour. For everything else the token is the
// lane's own secret, which no provider ever sees.
type port struct {
	nc     publisher
	log    *zap.Logger
	inbox  string // <prefix>.<lane>.
	secret string
	tokens map[lane.Op]string
	random [512]byte
	unused int
	expiry []byte // the body of a pull, up to its batch
	// What follows is used for one publish after the other: the client keeps nothing of a message. Headers are by the
	// type of their event.
	scratch []byte
	message nats.Msg
	body    []byte
	headers map[string]events.Header
	// timeouts are the header values of the hooks' timeouts.
	timeouts map[time.Duration][]string
}

// publisher is the connection, as far as a port uses it.
type publisher interface{ PublishMsg(m *nats.Msg) error }

var _ lane.Effects = (*port)(nil)

const tokenBytes = 16

func newPort(nc publisher, log *zap.Logger, prefix string, pullExpiry time.Duration) *port {
	p := &port{
		nc: nc, log: log, tokens: map[lane.Op]string{},
		headers: map[string]events.Header{}, timeouts: map[time.Duration][]string{},
	}
	p.inbox = prefix + "." + p.token() + "."
	p.secret = p.token()
	p.expiry = append(strconv.AppendInt([]byte(`{"expires":`), pullExpiry.Nanoseconds(), 10), `,"batch":`...)
	return p
}

// replies is what the lane subscribes to.
func (p *port) replies() string { return p.inbox + "*.*" }

// token is 128 random bits, in hex.
func (p *port) token() string { return string(p.appendToken(nil)) }

func (p *port) appendToken(to []byte) []byte {
	if p.unused < tokenBytes {
		_, _ = rand.Read(p.random[:]) // never fails: it ends the process instead
		p.unused = len(p.random)
	}
	p.unused -= tokenBytes
	return hex.AppendEncode(to, p.random[p.unused:p.unused+tokenBytes])
}

// reply is where the answer to op goes.
func (p *port) reply(op lane.Op) string {
	p.scratch = append(append(p.scratch[:0], p.inbox...), p.secret...)
	return p.named(op)
}

// callReply is where the answer to a call goes, which only who is called can know.
func (p *port) callReply(op lane.Op) string {
	p.scratch = p.appendToken(append(p.scratch[:0], p.inbox...))
	reply := p.named(op)
	p.tokens[op] = reply[len(p.inbox):][:2*tokenBytes]
	return reply
}

func (p *port) named(op lane.Op) string {
	p.scratch = strconv.AppendUint(append(p.scratch, '.'), uint64(op), opBase)
	return string(p.scratch)
}

const opBase = 36

// answered finds the op that a message on the lane's subscription answers. Calls are told from the rest, and a token
// that is not the call's own is nobody's.
func (p *port) answered(subject string) (op lane.Op, call, ok bool) {
	rest, ok := strings.CutPrefix(subject, p.inbox)
	if !ok {
		return 0, false, false
	}
	token, number, _ := strings.Cut(rest, ".")
	n, err := strconv.ParseUint(number, opBase, 64)
	if err != nil {
		return 0, false, false
	}
	op = lane.Op(n)
	if token == p.secret {
		return op, false, true
	}
	return op, true, p.tokens[op] == token
}

// Pull implements lane.Effects.
func (p *port) Pull(op lane.Op, from lane.Source, batch int) {
	subject := streams.MsgNextSubject(streams.Receipts, streams.DispatcherConsumer)
	if from != lane.Receipts {
		subject = streams.MsgNextSubject(streams.Retries, streams.RetryConsumer(from.Hook))
	}
	body := append(strconv.AppendInt(slices.Clip(p.expiry), int64(batch), 10), '}')
	p.publish(failpoint.Pull, subject, p.reply(op), nil, body)
}

// Call implements lane.Effects.
func (p *port) Call(op lane.Op, call *core.Call, trace lane.Trace) {
	d := call.Dispatch
	header := p.header(events.NewEnvelope(d.Key.Dispatch, source, events.HookInputSchema, events.NewTimestamp(time.Now())), trace)
	header[events.HeaderTimeout] = p.timeout(call.Timeout)
	p.publish(failpoint.Call, streams.CallSubject(d.Key.Hook), p.callReply(op), header, d.InputData)
}

// header is the envelope as the header of the one message that is published next.
func (p *port) header(e events.Envelope, trace lane.Trace) events.Header {
	e.TraceParent, e.TraceState = trace.Parent, trace.State
	h := p.headers[e.Type]
	if h == nil {
		h = events.Header{}
		p.headers[e.Type] = h
	}
	e.Set(h)
	return h
}

func (p *port) timeout(d time.Duration) []string {
	value, known := p.timeouts[d]
	if !known {
		value = []string{strconv.FormatInt(d.Milliseconds(), 10)}
		p.timeouts[d] = value
	}
	return value
}

// Forget implements lane.Effects.
func (p *port) Forget(op lane.Op) { delete(p.tokens, op) }

// Load implements lane.Effects.
func (p *port) Load(op lane.Op, key core.Key, exact bool) {
	subject := streams.JournalSubject(key.Dispatch, key.Hook)
	if exact {
		p.publish(failpoint.Load, streams.MsgGetSubject(streams.Journal), p.reply(op), nil, []byte(`{"last_by_subj":"`+subject+`"}`))
		return
	}
	p.publish(failpoint.Load, streams.DirectGetLastSubject(streams.Journal, subject), p.reply(op), nil, nil)
}

// Append implements lane.Effects.
func (p *port) Append(op lane.Op, save *core.Save, data []byte, trace lane.Trace) {
	subject, envelope := appendTarget(save)
	header := p.header(envelope, trace)
	header[streams.HeaderExpectedSequence] = expect(save.Expect)
	p.publish(failpoint.Append, subject, p.reply(op), header, data)
}

// expectNothing is the header value of nearly every write.
var expectNothing = []string{"0"}

func expect(sequence uint64) []string {
	if sequence == 0 {
		return expectNothing
	}
	return []string{strconv.FormatUint(sequence, 10)}
}

// appendTarget is the subject and the envelope of what is saved.
func appendTarget(save *core.Save) (string, events.Envelope) {
	switch {
	case save.Record != nil:
		r := save.Record
		id := r.DispatchID + "." + strconv.Itoa(r.RecordNumber)
		return streams.JournalSubject(r.DispatchID, r.HookID),
			events.NewEnvelope(id, source, events.DispatchReceiptSchema, r.RecordedAt)
	case save.Refusal != nil:
		r := save.Refusal
		return streams.RefusalSubject(r.Digest), events.NewEnvelope(r.Digest, source, events.RefusalSchema, r.RecordedAt)
	}
	c := save.Conflict
	id := c.DispatchID + "." + c.LoserDigest
	return streams.ConflictSubject(c.DispatchID, c.LoserDigest, c.HookID),
		events.NewEnvelope(id, source, events.ConflictSchema, c.RecordedAt)
}

// Publish implements lane.Effects.
func (p *port) Publish(op lane.Op, intent *events.Intent, acceptedAt events.Timestamp, trace lane.Trace) {
	header := p.header(events.NewEnvelope(intent.IntentID, source, events.IntentSchema, acceptedAt), trace)
	header[streams.HeaderExpectedSequence] = expect(0)
	p.body = events.AppendCanonical(p.body[:0], intent)
	p.publish(failpoint.Publish, streams.IntentSubject(intent.IntentID, intent.IntentKind), p.reply(op), header, p.body)
}

// Schedule implements lane.Effects.
func (p *port) Schedule(op lane.Op, s core.Schedule) {
	header := streams.FirstScheduleHeader(s.Key.Dispatch, s.Key.Hook, s.At)
	if s.Replace {
		header = streams.ScheduleHeader(s.Key.Dispatch, s.Key.Hook, s.At)
	}
	p.publish(failpoint.Schedule, streams.RetryAtSubject(s.Key.Dispatch, s.Key.Hook), p.reply(op), header, nil)
}

var (
	ackBody      = []byte("+ACK")
	progressBody = []byte("+WPI")
	endBody      = []byte("+TERM")
)

// Acknowledge implements lane.Effects.
func (p *port) Acknowledge(d *lane.Delivery) {
	p.publish(failpoint.Acknowledge, d.Reply, "", nil, ackBody)
}

// end acknowledges a message that no lane was given, so that it does not come again.
func (p *port) end(reply string) { p.publish(failpoint.Acknowledge, reply, "", nil, endBody) }

// Progress implements lane.Effects.
func (p *port) Progress(d *lane.Delivery) {
	p.publish(failpoint.Progress, d.Reply, "", nil, progressBody)
}

// HandBack implements lane.Effects.
func (p *port) HandBack(d *lane.Delivery, delay time.Duration) {
	body := append(strconv.AppendInt([]byte(`-NAK {"delay":`), delay.Nanoseconds(), 10), '}')
	p.publish(failpoint.HandBack, d.Reply, "", nil, body)
}

// Answer implements lane.Effects.
func (p *port) Answer(request *lane.Request, answer lane.Answer) {
	p.publish(failpoint.Answer, request.Reply, "", answerHeader(answer), answerBody(answer))
}

// publish sends a message. What cannot be sent now (the connection is down and its buffer full) is not answered
// either, and the lane's deadlines repeat it.
func (p *port) publish(effect failpoint.Effect, subject, reply string, header events.Header, data []byte) {
	failpoint.Before(effect)
	p.message = nats.Msg{Subject: subject, Reply: reply, Header: header, Data: data}
	if err := p.nc.PublishMsg(&p.message); err != nil {
		p.log.Warn("publish failed", zap.String("subject", subject), zap.Error(err))
	}
	failpoint.After(effect, p.nc)
}
