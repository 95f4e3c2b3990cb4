package simulation

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/afterwrite/afterwrite/dispatcher/core"
	"github.com/afterwrite/afterwrite/dispatcher/lane"
	"github.com/afterwrite/afterwrite/events"
	"github.com/afterwrite/afterwrite/streams"
)

const (
	// scheduleDelay is how late schedules fire at least.
	scheduleDelay = 250 * time.Millisecond
	// overdueAfter is how long after its time a schedule is taken to be stuck.
	overdueAfter = 30 * time.Second
)

// store names a stream that may refuse writes.
type store string

const (
	journalStore store = "journal"
	intentsStore store = "intents"
	retriesStore store = "retries"
)

var (
	errFull   = errors.New("simulated: the store is full")
	errBroken = errors.New("simulated: no leader")
)

// inFlight is the answer to a write that lost to a rival which then comes to nothing.
var inFlight = lane.Written{Lost: true, InFlight: true}

// broker is the streams, as far as lanes can tell.
type broker struct {
	w     *world
	check *check
	s     *setting
	// journal holds every record of each dispatch, oldest first.
	journal map[core.Key][]stored
	// beside are the refusals and conflicts, by subject.
	beside   map[string]bool
	sequence uint64
	acks     uint64
	intents  map[events.IntentID]*events.Intent
	receipts *consumer
	// published is when each message id was last taken, for the duplicate window.
	published map[string]time.Time
	schedules map[core.Key]*schedule
	wakeups   map[events.HookID]*consumer
	due       map[core.Key]int // wake-ups of the key that are not acknowledged
	full      map[store]bool   // stores that refuse writes
	// lag makes every load that need not be exact come from a replica that does not have the last record.
	lag bool
}

type stored struct {
	sequence uint64
	data     []byte
	record   *events.DispatchReceipt
}

type schedule struct {
	at     time.Time
	number uint64
	stuck  bool
}

func newBroker(w *world, s *setting) *broker {
	b := &broker{
		w: w, s: s, journal: map[core.Key][]stored{}, beside: map[string]bool{},
		intents: map[events.IntentID]*events.Intent{}, published: map[string]time.Time{},
		schedules: map[core.Key]*schedule{}, wakeups: map[events.HookID]*consumer{}, due: map[core.Key]int{},
		full: map[store]bool{},
	}
	b.receipts = b.consumer(lane.Receipts)
	for _, id := range hooks {
		b.wakeups[id] = b.consumer(lane.Source{Hook: id})
	}
	return b
}

func (b *broker) consumer(source lane.Source) *consumer {
	return &consumer{w: b.w, ackWait: b.s.ackWait, source: source}
}

func (b *broker) consumerOf(source lane.Source) *consumer {
	if source == lane.Receipts {
		return b.receipts
	}
	return b.wakeups[source.Hook]
}

func (b *broker) next() uint64 {
	b.sequence++
	return b.sequence
}

// publish takes a receipt, unless its message id is in the duplicate window.
func (b *broker) publish(t *told) {
	id := t.event.MessageID
	if last, seen := b.published[id]; seen && b.w.now().Sub(last) < b.s.window {
		b.w.tell("receipt %.8s is a duplicate", id)
		return
	}
	b.published[id] = b.w.now()
	m := &message{consumer: b.receipts, told: t, sequence: b.next(), at: b.w.now()}
	b.check.published(m)
	b.w.tell("receipt %.8s is message %d", id, m.sequence)
	b.receipts.offer(m)
}

// recreate deletes the consumer of the receipts and creates it anew: it begins again with the first message.
func (b *broker) recreate() {
	b.w.tell("the consumer of the receipts is created anew")
	old := b.receipts
	b.receipts = b.consumer(lane.Receipts)
	for _, p := range old.pulls {
		p.end(true)
	}
	for _, m := range b.check.again(b.receipts) {
		b.receipts.offer(m)
	}
}

// forget drops the pulls of a node that lost its connection.
func (b *broker) forget(n *node) {
	b.receipts.forget(n)
	for _, id := range hooks {
		b.wakeups[id].forget(n)
	}
}

// acknowledge ends a message, on the word of a node that has the release installed.
func (b *broker) acknowledge(m *message, by *release) {
	if m.acked {
		return
	}
	m.acked = true
	b.acks++
	b.w.tell("message %d of %q is acknowledged", m.sequence, m.consumer.source.Hook)
	if m.told != nil {
		b.check.acknowledged(m, by)
		return
	}
	b.due[m.key]--
	b.check.woken(m)
}

// append writes to the journal under the expected sequence.
func (b *broker) append(save *core.Save, data []byte) lane.Written {
	if b.full[journalStore] {
		return lane.Written{Err: errFull}
	}
	if b.w.chance(.01) {
		return inFlight
	}
	if save.Record == nil {
		return b.appendBeside(save, data)
	}
	record, err := events.Decode[events.DispatchReceipt](data)
	if err != nil {
		b.w.fail("a record does not decode: %v", err)
		return lane.Written{Err: errBroken}
	}
	key := keyOf(record)
	history := b.journal[key]
	if last := lastOf(history).sequence; last != save.Expect {
		return lane.Written{Lost: true}
	}
	b.check.appended(history, record)
	b.w.tell("record %d of %.20s %s: %s %s %s attempt %d invocations %d", record.RecordNumber,
		record.DispatchID, record.HookID, record.Status, record.Code, record.Reason, record.Attempt, record.Invocations)
	s := stored{sequence: b.next(), data: data, record: record}
	b.journal[key] = append(history, s)
	return lane.Written{Sequence: s.sequence}
}

// appendBeside creates a refusal or a conflict.
func (b *broker) appendBeside(save *core.Save, data []byte) lane.Written {
	var subject string
	if save.Refusal != nil {
		subject = streams.RefusalSubject(save.Refusal.Digest)
	} else {
		subject = streams.ConflictSubject(save.Conflict.DispatchID, save.Conflict.LoserDigest, save.Conflict.HookID)
	}
	if save.Expect != 0 || b.beside[subject] {
		return lane.Written{Lost: true}
	}
	if save.Refusal != nil {
		b.check.refused(data)
	} else {
		b.check.conflicting(data)
	}
	b.w.tell("recorded %s", subject)
	b.beside[subject] = true
	return lane.Written{Sequence: b.next()}
}

func (b *broker) load(key core.Key, exact bool) lane.Loaded {
	history := b.journal[key]
	if !exact && len(history) > 0 && (b.lag || b.w.chance(.2)) {
		history = history[:len(history)-1] // a replica that lags
	}
	if b.w.chance(.02) {
		return lane.Loaded{Err: errBroken}
	}
	last := lastOf(history)
	if last.record == nil {
		return lane.Loaded{}
	}
	record := *last.record // the lane may keep it
	return lane.Loaded{Entry: core.Entry{Sequence: last.sequence, Record: &record}, Data: last.data}
}

func (b *broker) publishIntent(intent *events.Intent, acceptedAt events.Timestamp) lane.Written {
	if b.full[intentsStore] {
		return lane.Written{Err: errFull}
	}
	if b.w.chance(.01) {
		return inFlight
	}
	if b.intents[intent.IntentID] != nil {
		return lane.Written{Lost: true}
	}
	b.check.intent(intent, acceptedAt)
	b.intents[intent.IntentID] = intent
	return lane.Written{Sequence: b.next()}
}

func (b *broker) schedule(s core.Schedule) lane.Written {
	if b.full[retriesStore] {
		return lane.Written{Err: errFull}
	}
	if !s.Replace && b.w.chance(.01) {
		return inFlight
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
	if b.full[retriesStore] || b.w.chance(.03) {
		entry.stuck = true
		b.w.tell("wake-up of %.20s %s sticks", key.Dispatch, key.Hook)
		return
	}
	delete(b.schedules, key)
	b.due[key]++
	c := b.wakeups[key.Hook]
	c.offer(&message{consumer: c, key: key, sequence: b.next(), at: b.w.now()})
}

// overdue is what every dispatcher does once a minute: publish stuck schedules again.
func (b *broker) overdue() {
	if b.full[retriesStore] {
		return
	}
	var stuck []core.Key
	for key, entry := range b.schedules {
		if entry.stuck && b.w.now().Sub(entry.at) > overdueAfter {
			stuck = append(stuck, key)
		}
	}
	slices.SortFunc(stuck, compareKeys)
	for _, key := range stuck {
		b.setSchedule(key, b.w.now())
	}
}

func (b *broker) hasWakeup(key core.Key) bool { return b.schedules[key] != nil || b.due[key] > 0 }

// backlog is how many wake-ups of the hook are due.
func (b *broker) backlog(hook events.HookID) int {
	n := 0
	for key, due := range b.due {
		if key.Hook == hook {
			n += due
		}
	}
	return n
}

// state is the last record of a dispatch, nil if there is none.
func (b *broker) state(key core.Key) *events.DispatchReceipt { return lastOf(b.journal[key]).record }

func lastOf(history []stored) stored {
	if len(history) == 0 {
		return stored{}
	}
	return history[len(history)-1]
}

func keyOf(record *events.DispatchReceipt) core.Key {
	return core.Key{Dispatch: record.DispatchID, Hook: record.HookID}
}

func compareKeys(a, b core.Key) int {
	if c := strings.Compare(a.Dispatch, b.Dispatch); c != 0 {
		return c
	}
	return strings.Compare(a.Hook, b.Hook)
}
