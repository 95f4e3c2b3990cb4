package simulation

import (
	"strings"
	"time"

	"github.com/afterwrite/afterwrite/dispatcher/core"
	"github.com/afterwrite/afterwrite/dispatcher/lane"
	"github.com/afterwrite/afterwrite/events"
	"github.com/afterwrite/afterwrite/streams"
)

const (
	pullExpiry = 5 * time.Second
	// tick is how often a lane is looked after when nothing else happens.
	tick = time.Second
	// rebirth is how long a killed lane is away.
	rebirth = 3 * time.Second
)

// node is a process with one lane. It dies between two effects and comes back with nothing but the broker to go by.
type node struct {
	name      string
	w         *world
	b         *broker
	providers *providers
	installed *core.Installed
	limits    map[events.HookID]lane.HookLimits

	lane     *lane.Lane
	life     int // counts lives; what was meant for an earlier one is nobody's
	dead     bool
	dieAfter int // effects until death, negative for never
	messages map[*lane.Delivery]*message
	calls    map[lane.Op]bool
	answers  []lane.Answer
	wakeAt   time.Time
}

func (n *node) boot() {
	n.life++
	n.dead = false
	n.messages = map[*lane.Delivery]*message{}
	n.calls = map[lane.Op]bool{}
	n.dieAfter = -1
	if n.w.faulty && n.w.rng.IntN(2) == 0 {
		n.dieAfter = n.w.rng.IntN(400)
	}
	n.lane = lane.New(lane.Options{
		Installed: n.installed, Hooks: n.limits, Receipts: 4, AckWait: ackWait, PullExpiry: pullExpiry,
	}, n, silent{n.w})
	n.w.tell("%s boots", n.name)
	n.input(n.life, func(time.Time, *lane.Lane) {})
	n.idle(n.life)
}

// idle looks after the lane now and then.
func (n *node) idle(life int) {
	n.w.after(tick, func() {
		if n.alive(life) {
			n.input(life, func(time.Time, *lane.Lane) {})
			n.idle(life)
		}
	})
}

func (n *node) alive(life int) bool { return !n.dead && n.life == life }

// input gives the lane an input and what follows every input, as the host's loop does.
func (n *node) input(life int, f func(now time.Time, l *lane.Lane)) {
	if !n.alive(life) {
		return
	}
	now := n.w.now()
	f(now, n.lane)
	if !n.dead {
		n.lane.Tick(now)
	}
	if !n.dead {
		n.lane.Pull(now)
	}
	if n.dead {
		n.w.tell("%s is killed", n.name)
		n.w.after(rebirth, n.boot)
		return
	}
	if at, ok := n.lane.NextTick(); ok && !at.Equal(n.wakeAt) && at.Sub(now) < tick {
		n.wakeAt = at
		n.w.at(at, func() { n.input(life, func(time.Time, *lane.Lane) {}) })
	}
}

// answer gives the lane the answer to a request, some time later, or never.
func (n *node) answer(life int, f func(now time.Time, l *lane.Lane)) {
	if n.w.chance(.02) {
		return
	}
	n.w.after(n.w.latency(), func() { n.input(life, f) })
}

// effect reports whether the node lives to do its next effect, and sends it, some time later, or never.
func (n *node) effect(f func(life int)) {
	if n.dead {
		return
	}
	if n.dieAfter == 0 {
		n.dead = true
		return
	}
	n.dieAfter--
	if n.w.chance(.02) {
		return
	}
	life := n.life
	n.w.after(n.w.latency(), func() { f(life) })
}

func (n *node) write(op lane.Op, f func() lane.Written) {
	n.effect(func(life int) {
		written := f()
		n.answer(life, func(now time.Time, l *lane.Lane) { l.Written(now, op, written) })
	})
}

// Pull implements lane.Effects.
func (n *node) Pull(op lane.Op, source lane.Source, batch int) {
	n.effect(func(life int) {
		n.b.pull(&pull{node: n, life: life, op: op, batch: batch, expires: n.w.now().Add(pullExpiry)}, source)
	})
}

// Call implements lane.Effects.
func (n *node) Call(op lane.Op, call *core.Call, _ lane.Trace) {
	n.calls[op] = true
	key, base, input := call.Dispatch.Key, call.Base, events.DigestOf(call.Dispatch.InputData)
	n.effect(func(life int) {
		if base > 0 && n.b.state(key).InputDigest != input {
			n.w.fail("attempt on record %d of %s has another input", base, key.Dispatch)
		}
		after, reply := n.providers.call(key.Hook, key.Dispatch)
		if after < 0 {
			return
		}
		n.w.after(after, func() {
			n.answer(life, func(now time.Time, l *lane.Lane) {
				if n.calls[op] {
					delete(n.calls, op)
					l.Replied(now, op, reply)
				}
			})
		})
	})
}

// Forget implements lane.Effects.
func (n *node) Forget(op lane.Op) { delete(n.calls, op) }

// Load implements lane.Effects.
func (n *node) Load(op lane.Op, key core.Key, exact bool) {
	n.effect(func(life int) {
		loaded := n.b.load(key, exact)
		n.answer(life, func(now time.Time, l *lane.Lane) { l.Loaded(now, op, loaded) })
	})
}

// Append implements lane.Effects.
func (n *node) Append(op lane.Op, save *core.Save, data []byte, _ lane.Trace) {
	n.write(op, func() lane.Written { return n.b.append(subjectOf(save), save, data) })
}

// Publish implements lane.Effects.
func (n *node) Publish(op lane.Op, intent *events.Intent, _ events.Timestamp, _ lane.Trace) {
	n.write(op, func() lane.Written { return n.b.publishIntent(intent) })
}

// Schedule implements lane.Effects.
func (n *node) Schedule(op lane.Op, s core.Schedule) {
	n.write(op, func() lane.Written { return n.b.schedule(s) })
}

// Acknowledge implements lane.Effects.
func (n *node) Acknowledge(d *lane.Delivery) {
	m := n.messages[d]
	n.effect(func(int) { n.b.acknowledge(m) })
}

// HandBack implements lane.Effects.
func (n *node) HandBack(d *lane.Delivery, delay time.Duration) {
	m := n.messages[d]
	n.effect(func(int) { n.b.handBack(m, d.Deliveries, delay) })
}

// Progress implements lane.Effects.
func (n *node) Progress(d *lane.Delivery) {
	m := n.messages[d]
	n.effect(func(int) { n.b.progress(m, d.Deliveries) })
}

// Answer implements lane.Effects.
func (n *node) Answer(_ *lane.Request, answer lane.Answer) { n.answers = append(n.answers, answer) }

func subjectOf(save *core.Save) string {
	switch {
	case save.Record != nil:
		return journalSubject(core.Key{Dispatch: save.Record.DispatchID, Hook: save.Record.HookID})
	case save.Refusal != nil:
		return streams.RefusalSubject(save.Refusal.Digest)
	}
	return streams.ConflictSubject(save.Conflict.DispatchID, save.Conflict.LoserDigest, save.Conflict.HookID)
}

func journalSubject(key core.Key) string { return streams.JournalSubject(key.Dispatch, key.Hook) }

func compare(a, b string) int { return strings.Compare(a, b) }

// silent is an observer that only minds panics: there must be none.
type silent struct{ w *world }

// Decided implements lane.Observer.
func (s silent) Decided(_ time.Time, d *lane.Delivery, _ *core.Dispatch, r *core.Result, _ lane.Trace) {
	if r.State != nil && d != nil {
		s.w.tell("  %s on %q message %d delivery %d (%.20s)", r.Outcome, d.Source.Hook, d.Sequence, d.Deliveries, r.State.DispatchID)
	}
}

// Replied implements lane.Observer.
func (silent) Replied(events.HookID, core.ReplyKind, time.Duration) {}

// Settled implements lane.Observer.
func (silent) Settled(lane.Source, time.Duration, bool) {}

// Lost implements lane.Observer.
func (silent) Lost(core.Key) {}

// Failed implements lane.Observer.
func (silent) Failed(string, error) {}

// Panicked implements lane.Observer.
func (s silent) Panicked(_ lane.Source, _ uint64, value any, stack []byte) {
	s.w.fail("panic: %v\n%s", value, stack)
}

// Breaker implements lane.Observer.
func (s silent) Breaker(hook events.HookID, state string) {
	s.w.tell("breaker of %s is %s", hook, state)
}
