package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/afterwrite/afterwrite/dispatcher/core"
	"github.com/afterwrite/afterwrite/dispatcher/lane"
	"github.com/afterwrite/afterwrite/dispatcher/registry"
	"github.com/afterwrite/afterwrite/events"
	"github.com/afterwrite/afterwrite/providers"
	"github.com/afterwrite/afterwrite/providers/periodicreport"
	"github.com/afterwrite/afterwrite/streams"
)

// benchOurs runs lanes of the dispatcher over the set's streams, and a provider by the SDK.
//
// The dispatcher itself knows only the streams of the topology, which a bench may not touch. So what is measured is
// its lanes, with all that they decide and check, over an adapter that differs from the dispatcher's own in the names
// it uses, and in what it cannot do: nothing in a bench fails, so nothing is loaded, scheduled or handed back.
var benchOurs = benchVariant{name: "ours", receipt: oursReceipt, start: startOurs}

const benchProfile = "default"

func oursReceipt(set *benchSet, i int) *nats.Msg {
	n := strconv.Itoa(i)
	effect := "bench-goal:bench-agent:todo_" + n + ":turn_" + n
	r := &events.Receipt{
		EventKind: events.ReplanRecorded,
		Plan: events.Settlement{
			AgentID: "bench-agent", EffectID: effect, GoalID: "bench-goal", TodoID: "todo_" + n, TurnInstanceID: "turn_" + n,
		},
		Profile: benchProfile,
		Projection: events.Projection{
			FactRefs: []string{"fact_" + n}, SchemaVersion: events.ProjectionSchema, Transition: events.ReplanEntered,
		},
		Receipt: events.WritebackReceipt{
			Checkpointed: true, CommittedAt: events.NewTimestamp(time.Now().Add(-benchSkew)), EffectID: effect,
			ReceiptID: "receipt_" + n, StateRevision: "rev_" + n, Status: events.Committed, StepKind: events.DurableWriteback,
		},
		SchemaVersion: events.ReceiptSchema,
	}
	data := events.Canonical(r)
	header := events.NewEnvelope(r.Receipt.ReceiptID, "hookctl", events.ReceiptSchema, r.Receipt.CommittedAt).Header()
	header[streams.HeaderMessageID] = []string{events.SHA256(data)}
	return &nats.Msg{Subject: set.subject(benchReceipts, string(r.EventKind)), Header: header, Data: data}
}

// benchSkew is how far the broker's clock may be behind this machine's for receipts to be taken as fresh.
const benchSkew = 5 * time.Second

// hookOf installs the periodic report's hook under the set's own capability, so that its calls meet nobody else's
// provider, and with the longest timeout, so that a slow broker is measured and does not fail.
func hookOf(set *benchSet) (*registry.Installed, events.HookID, error) {
	capability := "bench_" + set.id
	hook := capability + ".runtime_trigger"
	file := bytes.ReplaceAll(periodicreport.HookFile, []byte(periodicreport.HookID), []byte(hook))
	file = bytes.ReplaceAll(file, []byte(`"`+periodicreport.CapabilityID+`"`), []byte(`"`+capability+`"`))
	file = bytes.ReplaceAll(file, []byte(`"timeout_ms": 1000`), fmt.Appendf(nil, `"timeout_ms": %d`, events.MaxTimeoutMillis))
	installed, err := registry.Load(registry.Files{
		Hooks:    []registry.File{{Name: "bench.json", Data: file}},
		Profiles: registry.File{Name: "bench.yaml", Data: []byte("profiles: {" + benchProfile + ": {enabled: true, hooks: [" + hook + "]}}")},
	})
	return installed, hook, err
}

func startOurs(_ context.Context, set *benchSet, done *atomic.Int64, fail context.CancelCauseFunc) (func(), error) {
	installed, hook, err := hookOf(set)
	if err != nil {
		return nil, err
	}
	registration := installed.Hooks[hook].Registration
	provider, err := providers.Start(set.js.Conn(), registration.CapabilityID,
		providers.WithHook(&registration, providers.HookFunc(periodicreport.Hook)))
	if err != nil {
		return nil, err
	}
	stopping := make(chan struct{})
	var lanes sync.WaitGroup
	stop := func() {
		close(stopping)
		lanes.Wait()
		// Calls under way are of no use to anybody any more.
		drain, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = provider.Stop(drain)
	}
	installed.SkewAllowance, installed.DuplicateWindow = benchSkew, benchAge
	installed.JournalAge = benchAge
	cores := runtime.GOMAXPROCS(0)
	for range cores {
		l := &benchLane{set: set, nc: set.js.Conn(), done: done, fail: fail, messages: make(chan *nats.Msg, 1<<16)}
		l.inbox = l.nc.NewInbox() + "."
		sub, err := l.nc.ChanSubscribe(l.inbox+"*", l.messages)
		if err != nil {
			stop()
			return nil, fmt.Errorf("subscribe to the lane's replies: %w", err)
		}
		places := lane.HookLimits{Places: registry.DefaultLimits(1).MaxInFlight / cores}
		l.lane = lane.New(lane.Options{
			Installed: &installed.Installed, Hooks: map[events.HookID]lane.HookLimits{hook: places},
		}, l, l)
		lanes.Go(func() {
			l.run(stopping)
			_ = sub.Unsubscribe() // the connection may be closed already
		})
	}
	return stop, nil
}

// benchLane is a lane with its adapter: effects become messages on the set's subjects, what comes back inputs.
type benchLane struct {
	set      *benchSet
	nc       *nats.Conn
	lane     *lane.Lane
	inbox    string
	messages chan *nats.Msg
	done     *atomic.Int64
	fail     context.CancelCauseFunc
}

var (
	_ lane.Effects  = (*benchLane)(nil)
	_ lane.Observer = (*benchLane)(nil)
)

const (
	benchBurst = 256
	benchIdle  = 100 * time.Millisecond
)

func (l *benchLane) run(stopping <-chan struct{}) {
	idle := time.NewTicker(benchIdle)
	defer idle.Stop()
	for {
		now := time.Now()
		l.lane.Tick(now)
		l.lane.Pull(now)
		select {
		case m := <-l.messages:
			l.receive(now, m)
			for range min(len(l.messages), benchBurst) {
				l.receive(now, <-l.messages)
			}
		case <-idle.C:
		case <-stopping:
			return
		}
	}
}

func (l *benchLane) receive(now time.Time, m *nats.Msg) {
	number, answer := strings.CutPrefix(m.Subject, l.inbox)
	if !answer {
		l.deliver(now, m)
		return
	}
	n, err := strconv.ParseUint(number, 36, 64)
	if err != nil {
		return // nobody's
	}
	switch op := lane.Op(n); l.lane.Awaited(op) {
	case lane.AwaitsReply:
		l.lane.Replied(now, op, core.Reply{Kind: core.ReplyResult, Data: l.eventOf(m, events.HookResultSchema)})
	case lane.AwaitsWrite:
		if !bytes.Contains(m.Data, []byte(`"seq"`)) || bytes.Contains(m.Data, []byte(`"error"`)) {
			l.fail(fmt.Errorf("the broker refused a write: %s", strings.ToValidUTF8(string(m.Data), "?")))
			return
		}
		l.lane.Written(now, op, lane.Written{})
	case lane.AwaitsPull:
		l.lane.PullEnded(now, op, false)
	case lane.AwaitsLoad, lane.AwaitsNothing:
	}
}

func (l *benchLane) deliver(now time.Time, m *nats.Msg) {
	meta, err := m.Metadata()
	if err != nil {
		l.fail(fmt.Errorf("read a delivery: %w", err))
		return
	}
	l.lane.Deliver(now, &lane.Delivery{
		Source: lane.Receipts,
		Event: lane.Event{
			SubjectKind: events.ReplanRecorded,
			MessageID:   m.Header.Get(streams.HeaderMessageID),
			Data:        l.eventOf(m, events.ReceiptSchema),
		},
		Sequence:   meta.Sequence.Stream,
		Deliveries: int(meta.NumDelivered), //nolint:gosec // nobody delivers a message 2^63 times
		StreamTime: meta.Timestamp,
		Reply:      m.Reply,
	})
}

// eventOf is the data of an event that must be a document of the kind.
func (l *benchLane) eventOf(m *nats.Msg, schemaVersion string) []byte {
	envelope, data, err := events.ReadEvent(m.Header, m.Data)
	if err != nil || envelope.Type != events.EventType(schemaVersion) {
		l.fail(fmt.Errorf("a message that must be a %s is none", schemaVersion))
		return nil
	}
	return data
}

func (l *benchLane) send(op lane.Op, subject string, header events.Header, data []byte) {
	m := &nats.Msg{Subject: subject, Reply: l.inbox + strconv.FormatUint(uint64(op), 36), Header: header, Data: data}
	if err := l.nc.PublishMsg(m); err != nil {
		l.fail(fmt.Errorf("publish: %w", err))
	}
}

// Pull implements lane.Effects.
func (l *benchLane) Pull(op lane.Op, from lane.Source, batch int) {
	if from == lane.Receipts {
		body := fmt.Appendf(nil, `{"expires":%d,"batch":%d}`, (5 * time.Second).Nanoseconds(), batch)
		l.send(op, streams.MsgNextSubject(l.set.receipts, streams.DispatcherConsumer), nil, body)
	}
}

// benchSource is the CloudEvents source of what a bench writes.
const benchSource = "hookctl/bench"

// Call implements lane.Effects.
func (l *benchLane) Call(op lane.Op, call *core.Call, _ lane.Trace) {
	d := call.Dispatch
	header := events.NewEnvelope(d.Key.Dispatch, benchSource, events.HookInputSchema, "").Header()
	header[events.HeaderTimeout] = []string{strconv.FormatInt(call.Timeout.Milliseconds(), 10)}
	l.send(op, streams.CallSubject(d.Key.Hook), header, d.InputData)
}

var errNotProposed = errors.New("a dispatch did not end as a proposal")

// Append implements lane.Effects.
func (l *benchLane) Append(op lane.Op, save *core.Save, data []byte, _ lane.Trace) {
	r := save.Record
	if r == nil || r.Status != events.StatusProposed {
		l.fail(errNotProposed)
		return
	}
	header := events.NewEnvelope(r.DispatchID+".1", benchSource, events.DispatchReceiptSchema, r.RecordedAt).Header()
	header[streams.HeaderExpectedSequence] = []string{strconv.FormatUint(save.Expect, 10)}
	l.send(op, l.set.subject(benchJournal, r.DispatchID, r.HookID), header, data)
}

// Publish implements lane.Effects.
func (l *benchLane) Publish(op lane.Op, intent *events.Intent, acceptedAt events.Timestamp, _ lane.Trace) {
	header := events.NewEnvelope(intent.IntentID, benchSource, events.IntentSchema, acceptedAt).Header()
	header[streams.HeaderExpectedSequence] = []string{"0"}
	l.send(op, l.set.subject(benchIntents, intent.IntentID, intent.IntentKind), header, events.Canonical(intent))
}

var benchAck = []byte("+ACK")

// Acknowledge implements lane.Effects.
func (l *benchLane) Acknowledge(d *lane.Delivery) {
	if err := l.nc.Publish(d.Reply, benchAck); err != nil {
		l.fail(fmt.Errorf("acknowledge: %w", err))
		return
	}
	l.done.Add(1)
}

// Load implements lane.Effects. A receipt that is delivered again is loaded, which a bench gives no time for.
func (l *benchLane) Load(lane.Op, core.Key, bool) {
	l.fail(errors.New("a receipt was not taken as fresh: the clocks of the broker and this machine differ too much"))
}

// Schedule implements lane.Effects.
func (l *benchLane) Schedule(lane.Op, core.Schedule) { l.fail(errNotProposed) }

// Forget implements lane.Effects.
func (l *benchLane) Forget(lane.Op) {}

// HandBack implements lane.Effects.
func (l *benchLane) HandBack(*lane.Delivery, time.Duration) { l.fail(errNotProposed) }

// Progress implements lane.Effects: a bench ends before the broker loses patience.
func (l *benchLane) Progress(*lane.Delivery) {}

// Answer implements lane.Effects: nobody asks.
func (l *benchLane) Answer(*lane.Request, lane.Answer) {}

// Decided implements lane.Observer.
func (l *benchLane) Decided(time.Time, *lane.Delivery, *core.Dispatch, *core.Result, lane.Trace) {}

// Replied implements lane.Observer.
func (l *benchLane) Replied(events.HookID, core.ReplyKind, time.Duration) {}

// Settled implements lane.Observer.
func (l *benchLane) Settled(lane.Source, time.Duration, bool) {}

// Lost implements lane.Observer.
func (l *benchLane) Lost(core.Key) {}

// Failed implements lane.Observer.
func (l *benchLane) Failed(effect string, err error) { l.fail(fmt.Errorf("%s: %w", effect, err)) }

// Panicked implements lane.Observer.
func (l *benchLane) Panicked(_ lane.Source, _ uint64, value any, _ []byte) {
	l.fail(fmt.Errorf("the lane panicked: %v", value))
}

// Breaker implements lane.Observer.
func (l *benchLane) Breaker(events.HookID, string) {}
