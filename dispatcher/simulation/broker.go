package simulation

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/afterwrite/afterwrite/dispatcher/core"
	"github.com/afterwrite/afterwrite/dispatcher/lane"
	"github.com/afterwrite/afterwrite/events"
)

const (
	ackWait         = 30 * time.Second
	duplicateWindow = 10 * time.Second
	// schedules fire at least this late.
	scheduleDelay = 250 * time.Millisecond
)

var (
	errFull   = errors.New("simulated: the store is full")
	errBroken = errors.New("simulated: no leader")
)

// broker is the streams, as far as lanes can tell.
type broker struct {
	w *world
	// subjects is the journal: every write of each subject, oldest first.
	subjects map[string][]stored
	sequence uint64
	intents  map[events.IntentID]*events.Intent
	receipts *consumer
	// published is when each message id was last taken, for the duplicate window.
	published map[string]time.Time
	schedules map[core.Key]*schedule
	wakeups   map[events.HookID]*consumer
	due       map[core.Key]int // wake-ups of the key that are not acknowledged
	full      map[string]bool  // stores that refuse writes
	check     *check
}

type stored struct {
	sequence uint64
	data     []byte
	record   *events.DispatchReceipt // nil for refusals and conflicts
}

type schedule struct {
	at     time.Time
	number uint64
	stuck  bool
}

// consumer hands out messages, each until it is acknowledged.
type consumer struct {
	w       *world
	source  lane.Source
	waiting []*message
	pulls   []*pull
}

type message struct {
	consumer   *consumer
	event      lane.Event
	key        core.Key
	sequence   uint64
	at         time.Time
	deliveries int
	acked      bool
	free       bool // waits to be delivered
}

type pull struct {
	node    *node
	life    int
	op      lane.Op
	batch   int
	expires time.Time
}

func newBroker(w *world, hooks []events.HookID) *broker {
	b := &broker{
		w: w, subjects: map[string][]stored{}, intents: map[events.IntentID]*events.Intent{},
		published: map[string]time.Time{}, schedules: map[core.Key]*schedule{},
		wakeups: map[events.HookID]*consumer{}, due: map[core.Key]int{}, full: map[string]bool{},
	}
	b.receipts = &consumer{w: w, source: lane.Receipts}
	for _, id := range hooks {
		b.wakeups[id] = &consumer{w: w, source: lane.Source{Hook: id}}
	}
	return b
}

func (b *broker) next() uint64 {
	b.sequence++
	return b.sequence
}

// publish takes a receipt, unless its message id is in the duplicate window.
func (b *broker) publish(event lane.Event) {
	if last, seen := b.published[event.MessageID]; seen && b.w.now().Sub(last) < duplicateWindow {
		b.w.tell("receipt %.8s is a duplicate", event.MessageID)
		return
	}
	b.published[event.MessageID] = b.w.now()
	m := &message{consumer: b.receipts, event: event, sequence: b.next(), at: b.w.now()}
	b.check.published(m)
	b.w.tell("receipt %.8s is message %d", event.MessageID, m.sequence)
	b.receipts.offer(m)
}

func (c *consumer) offer(m *message) {
	m.free = true
	c.waiting = append(c.waiting, m)
	c.serve()
}

// serve gives waiting messages to waiting pulls.
func (c *consumer) serve() {
	for len(c.waiting) > 0 && len(c.pulls) > 0 {
		p := c.pulls[0]
		if p.batch == 0 || !p.expires.After(c.w.now()) || !p.node.alive(p.life) {
			c.pulls = c.pulls[1:]
			continue
		}
		m := c.waiting[0]
		c.waiting = c.waiting[1:]
		p.batch--
		c.deliver(m, p)
	}
}

func (c *consumer) deliver(m *message, p *pull) {
	m.free = false
	m.deliveries++
	delivery := m.deliveries
	d := &lane.Delivery{
		Source: c.source, Event: m.event, Key: m.key, Sequence: m.sequence, Deliveries: delivery, StreamTime: m.at,
	}
	late := c.w.latency()
	if c.w.chance(.02) {
		late = c.w.between(0, 2*ackWait)
		d.Waited = late
	}
	c.redeliverAfter(m, delivery, c.w.now().Add(ackWait))
	if c.w.chance(.02) {
		return // lost on the way; the ack deadline brings it again
	}
	c.w.after(late, func() {
		p.node.input(p.life, func(now time.Time, l *lane.Lane) {
			p.node.messages[d] = m
			l.Deliver(now, d)
		})
	})
}

// redeliverAfter offers the message again if that delivery is still the last and unacknowledged at the deadline.
func (c *consumer) redeliverAfter(m *message, delivery int, deadline time.Time) {
	c.w.at(deadline, func() {
		if !m.acked && !m.free && m.deliveries == delivery {
			c.offer(m)
		}
	})
}

func (b *broker) pull(p *pull, source lane.Source) {
	c := b.receipts
	if source != lane.Receipts {
		c = b.wakeups[source.Hook]
	}
	c.pulls = append(c.pulls, p)
	b.w.at(p.expires, func() {
		if p.batch > 0 {
			p.batch = 0
			p.node.answer(p.life, func(now time.Time, l *lane.Lane) { l.PullEnded(now, p.op, false) })
		}
	})
	c.serve()
}

func (b *broker) acknowledge(m *message) {
	if m.acked {
		return
	}
	m.acked = true
	b.w.tell("message %d of %q is acknowledged", m.sequence, m.consumer.source.Hook)
	if m.consumer != b.receipts {
		b.due[m.key]--
	}
	b.check.acknowledged(m)
}

func (b *broker) handBack(m *message, delivery int, delay time.Duration) {
	m.consumer.redeliverAfter(m, delivery, b.w.now().Add(delay))
}

func (b *broker) progress(m *message, delivery int) {
	// The deadline of the delivery moves; the earlier one finds it moved by the delivery's number, so renumber.
	if m.acked || m.free || m.deliveries != delivery {
		return
	}
	m.consumer.redeliverAfter(m, delivery, b.w.now().Add(ackWait))
}

// append writes to the journal under the expected sequence.
func (b *broker) append(subject string, save *core.Save, data []byte) lane.Written {
	history := b.subjects[subject]
	last := uint64(0)
	if len(history) > 0 {
		last = history[len(history)-1].sequence
	}
	switch {
	case b.full["journal"]:
		return lane.Written{Err: errFull}
	case b.w.chance(.01):
		return lane.Written{Lost: true} // a rival in flight that comes to nothing
	case last != save.Expect:
		return lane.Written{Lost: true}
	}
	s := stored{sequence: b.next(), data: data}
	if save.Record != nil {
		record, err := events.Decode[events.DispatchReceipt](data)
		if err != nil {
			b.w.fail("a record does not decode: %v", err)
		}
		s.record = record
		b.check.appended(history, record)
		b.w.tell("record %s of %.20s %s: %s %s %s attempt %d invocations %d", fmt.Sprint(record.RecordNumber),
			record.DispatchID, record.HookID, record.Status, record.Code, record.Reason, record.Attempt, record.Invocations)
	} else {
		b.w.tell("recorded %s", subject)
	}
	b.subjects[subject] = append(history, s)
	return lane.Written{Sequence: s.sequence}
}

func (b *broker) load(key core.Key, exact bool) lane.Loaded {
	history := b.subjects[journalSubject(key)]
	if !exact && len(history) > 0 && b.w.chance(.2) {
		history = history[:len(history)-1] // a replica that lags
	}
	if b.w.chance(.02) {
		return lane.Loaded{Err: errBroken}
	}
	if len(history) == 0 {
		return lane.Loaded{}
	}
	last := history[len(history)-1]
	record, err := events.Decode[events.DispatchReceipt](last.data)
	if err != nil {
		b.w.fail("a stored record does not decode: %v", err)
	}
	return lane.Loaded{Entry: core.Entry{Sequence: last.sequence, Record: record}, Data: last.data}
}

func (b *broker) publishIntent(intent *events.Intent) lane.Written {
	if b.full["intents"] {
		return lane.Written{Err: errFull}
	}
	if b.intents[intent.IntentID] != nil {
		return lane.Written{Lost: true}
	}
	b.check.intent(intent)
	b.intents[intent.IntentID] = intent
	return lane.Written{Sequence: b.next()}
}

func (b *broker) schedule(s core.Schedule) lane.Written {
	if b.full["retries"] {
		return lane.Written{Err: errFull}
	}
	if b.schedules[s.Key] != nil && !s.Replace {
		return lane.Written{Lost: true}
	}
	b.setSchedule(s.Key, s.At)
	return lane.Written{Sequence: b.next()}
}

func (b *broker) setSchedule(key core.Key, at time.Time) {
	entry := &schedule{at: at, number: b.next()}
	b.schedules[key] = entry
	fires := at
	if fires.Before(b.w.now()) {
		fires = b.w.now()
	}
	fires = fires.Add(scheduleDelay)
	if b.w.chance(.05) {
		fires = fires.Add(b.w.between(0, time.Minute))
	}
	b.w.tell("wake-up of %.20s %s at %s", key.Dispatch, key.Hook, at.Sub(b.w.start))
	b.w.at(fires, func() { b.fire(key, entry) })
}

// fire turns a schedule into a wake-up that is due, unless it was replaced, or sticks.
func (b *broker) fire(key core.Key, entry *schedule) {
	if b.schedules[key] != entry {
		return
	}
	if b.full["retries"] || b.w.chance(.03) {
		entry.stuck = true
		b.w.tell("wake-up of %.20s %s sticks", key.Dispatch, key.Hook)
		return
	}
	delete(b.schedules, key)
	b.due[key]++
	b.wakeups[key.Hook].offer(&message{consumer: b.wakeups[key.Hook], key: key, sequence: b.next(), at: b.w.now()})
}

// overdue is what every dispatcher does once a minute: publish stuck schedules again.
func (b *broker) overdue() {
	if b.full["retries"] {
		return
	}
	var stuck []core.Key
	for key, entry := range b.schedules {
		if entry.stuck && b.w.now().Sub(entry.at) > ackWait {
			stuck = append(stuck, key)
		}
	}
	slices.SortFunc(stuck, compareKeys)
	for _, key := range stuck {
		b.setSchedule(key, b.w.now())
	}
}

func (b *broker) hasWakeup(key core.Key) bool { return b.schedules[key] != nil || b.due[key] > 0 }

func (b *broker) state(key core.Key) *events.DispatchReceipt {
	history := b.subjects[journalSubject(key)]
	if len(history) == 0 {
		return nil
	}
	return history[len(history)-1].record
}

// latency is how long anything takes to get somewhere.
func (w *world) latency() time.Duration {
	if w.chance(.02) {
		return w.between(0, 8*time.Second)
	}
	return w.between(50*time.Microsecond, 2*time.Millisecond)
}

func compareKeys(a, b core.Key) int {
	if c := compare(a.Dispatch, b.Dispatch); c != 0 {
		return c
	}
	return compare(a.Hook, b.Hook)
}
