package simulation

import (
	"time"

	"github.com/afterwrite/afterwrite/dispatcher/core"
	"github.com/afterwrite/afterwrite/dispatcher/lane"
	"github.com/afterwrite/afterwrite/events"
)

const (
	pullExpiry = 5 * time.Second
	// tick is how often a lane is looked after when nothing else happens.
	tick = time.Second
	// watchEvery is how often a node looks at the backlogs.
	watchEvery = 5 * time.Second
	// rebirth is how long a node is away that was killed or has stopped.
	rebirth = 3 * time.Second
)

// node is a process with one lane. It dies between two effects, freezes, loses its connection or stops in order, and
// comes back with nothing but the broker to go by.
type node struct {
	name      string
	w         *world
	b         *broker
	s         *setting
	providers *providers
	// effects are the node's own, unless a mutant stands in for them.
	effects lane.Effects
	// next is what the node has installed from its next life on.
	next *release
	// skew is how far the node's clock is ahead.
	skew time.Duration
	// mortal nodes die after some effects.
	mortal bool

	release  *release
	lane     *lane.Lane
	life     int // counts lives; what was meant for an earlier one is nobody's
	dead     bool
	stopping bool
	dieAfter int // effects until death, negative for never
	messages map[*lane.Delivery]*message
	calls    map[lane.Op]bool
	answers  []lane.Answer
	outcomes map[core.Outcome]int
	wakeAt   time.Time
	// frozen is until when nothing of the process runs.
	frozen time.Time
	// offline nodes keep what they send until they are connected again.
	offline bool
	unsent  []func()
}

// now is the time by the node's clock.
func (n *node) now() time.Time { return n.w.now().Add(n.skew) }

func (n *node) boot() {
	n.life++
	n.dead, n.stopping, n.offline, n.unsent = false, false, false, nil
	n.release = n.next
	n.messages = map[*lane.Delivery]*message{}
	n.calls = map[lane.Op]bool{}
	n.dieAfter = -1
	if n.mortal && n.w.faulty && n.w.oneIn(2) {
		n.dieAfter = n.w.rng.IntN(400)
	}
	limits := map[events.HookID]lane.HookLimits{}
	for _, id := range hooks {
		limits[id] = n.s.limits
	}
	n.lane = lane.New(lane.Options{
		Installed: n.release.installed, Hooks: limits, Retired: n.release.retired,
		Receipts: 4, AckWait: n.s.ackWait, PullExpiry: pullExpiry,
	}, n.effects, observer{n})
	n.w.tell("%s boots with release %q", n.name, n.release.name)
	n.idle(n.life)
	n.watch(n.life)
}

// idle looks after the lane now and then.
func (n *node) idle(life int) {
	if n.alive(life) {
		n.input(life, func(time.Time, *lane.Lane) {})
		n.w.after(tick, func() { n.idle(life) })
	}
}

// watch tells the lane which backlogs are full.
func (n *node) watch(life int) {
	if !n.alive(life) {
		return
	}
	for _, id := range hooks {
		full := n.b.backlog(id) >= n.s.backlog
		n.input(life, func(_ time.Time, l *lane.Lane) { l.SetBacklogFull(id, full) })
	}
	n.w.after(watchEvery, func() { n.watch(life) })
}

func (n *node) alive(life int) bool { return !n.dead && n.life == life }

// input gives the lane an input and what follows every input, as the host's loop does.
func (n *node) input(life int, f func(now time.Time, l *lane.Lane)) {
	if !n.alive(life) {
		return
	}
	if n.frozen.After(n.w.now()) {
		n.w.at(n.frozen, func() { n.input(life, f) })
		return
	}
	now := n.now()
	f(now, n.lane)
	if !n.dead {
		n.lane.Tick(now)
	}
	if !n.dead {
		n.lane.Pull(now)
	}
	if n.dead {
		n.w.tell("%s is gone", n.name)
		n.w.after(rebirth, n.boot)
		return
	}
	if at, ok := n.lane.NextTick(); ok && !at.Equal(n.wakeAt) && at.Sub(now) < tick {
		n.wakeAt = at
		n.w.at(at.Add(-n.skew), func() { n.input(life, func(time.Time, *lane.Lane) {}) })
	}
}

// receive gives the lane an input that comes over the network, unless there is no connection.
func (n *node) receive(life int, f func(now time.Time, l *lane.Lane)) {
	if !n.offline {
		n.input(life, f)
	}
}

// take gives the lane a message. While the process is frozen, it waits in the client's buffer.
func (n *node) take(life int, d *lane.Delivery, m *message) {
	arrived := n.w.now()
	n.receive(life, func(now time.Time, l *lane.Lane) {
		d.Waited = n.w.now().Sub(arrived)
		n.messages[d] = m
		l.Deliver(now, d)
	})
}

// answer gives the lane the answer to a request, some time later, or never.
func (n *node) answer(life int, f func(now time.Time, l *lane.Lane)) {
	if n.w.chance(.02) {
		return
	}
	n.w.after(n.w.latency(), func() { n.receive(life, f) })
}

// effect sends the node's next effect, some time later, or never, unless the node dies of it.
func (n *node) effect(f func(life int)) {
	if n.dead {
		return
	}
	if n.dieAfter == 0 {
		n.dead = true
		return
	}
	n.dieAfter--
	life := n.life
	switch {
	case n.offline:
		n.unsent = append(n.unsent, func() { f(life) })
	case !n.w.chance(.02):
		n.w.after(n.w.latency(), func() { f(life) })
	}
}

// freeze stops the whole process for a while.
func (n *node) freeze(d time.Duration) {
	n.w.tell("%s is frozen for %s", n.name, d)
	n.frozen = n.w.now().Add(d)
}

// disconnect cuts the node off for a while. The broker forgets its pulls.
func (n *node) disconnect(d time.Duration) {
	if n.dead || n.offline {
		return
	}
	n.w.tell("%s is offline for %s", n.name, d)
	life := n.life
	n.offline = true
	n.b.forget(n)
	n.w.after(d, func() {
		if n.life != life {
			return
		}
		n.offline = false
		for _, send := range n.unsent {
			n.w.after(n.w.latency(), send)
		}
		n.unsent = nil
		n.input(life, func(now time.Time, l *lane.Lane) { l.Reconnected(now) })
	})
}

// stop ends the process in order, and has it come back with what is then installed.
func (n *node) stop() {
	if n.dead || n.stopping {
		return
	}
	n.w.tell("%s stops", n.name)
	n.stopping = true
	life, end := n.life, n.w.now().Add(n.s.grace)
	n.input(life, func(_ time.Time, l *lane.Lane) { l.Stop() })
	n.leave(life, end)
}

func (n *node) leave(life int, end time.Time) {
	if !n.alive(life) {
		return
	}
	if n.lane.Idle() || !n.w.now().Before(end) {
		n.input(life, func(now time.Time, l *lane.Lane) {
			l.Abandon(now)
			n.dead = true
		})
		return
	}
	n.w.after(tick, func() { n.leave(life, end) })
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
		n.b.consumerOf(source).pull(&pull{node: n, life: life, op: op, batch: batch, expires: n.w.now().Add(pullExpiry)})
	})
}

// Call implements lane.Effects.
func (n *node) Call(op lane.Op, call *core.Call, _ lane.Trace) {
	n.calls[op] = true
	n.b.check.called(call, n.release)
	key := call.Dispatch.Key
	n.effect(func(life int) {
		after, reply, answered := n.providers.call(key.Hook, key.Dispatch)
		if !answered {
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
	n.write(op, func() lane.Written { return n.b.append(save, data) })
}

// Publish implements lane.Effects.
func (n *node) Publish(op lane.Op, intent *events.Intent, acceptedAt events.Timestamp, _ lane.Trace) {
	n.write(op, func() lane.Written { return n.b.publishIntent(intent, acceptedAt) })
}

// Schedule implements lane.Effects.
func (n *node) Schedule(op lane.Op, s core.Schedule) {
	n.write(op, func() lane.Written { return n.b.schedule(s) })
}

// Acknowledge implements lane.Effects.
func (n *node) Acknowledge(d *lane.Delivery) {
	m, by := n.messages[d], n.release
	n.effect(func(int) { n.b.acknowledge(m, by) })
}

// HandBack implements lane.Effects.
func (n *node) HandBack(d *lane.Delivery, delay time.Duration) {
	m := n.messages[d]
	n.effect(func(int) { m.handBack(d.Deliveries, delay) })
}

// Progress implements lane.Effects.
func (n *node) Progress(d *lane.Delivery) {
	m := n.messages[d]
	n.effect(func(int) { m.progress(d.Deliveries) })
}

// Answer implements lane.Effects.
func (n *node) Answer(_ *lane.Request, answer lane.Answer) {
	n.effect(func(int) { n.answers = append(n.answers, answer) })
}

// observer of a node minds panics: there must be none but those of poisoned receipts, which it makes.
type observer struct{ *node }

const poison = "poison"

// Decided implements lane.Observer.
func (o observer) Decided(_ time.Time, d *lane.Delivery, _ *core.Dispatch, r *core.Result, _ lane.Trace) {
	if d != nil && r.Outcome == core.OutcomeAdmitted && o.messages[d].told.poisoned {
		panic(poison)
	}
	o.outcomes[r.Outcome]++
	if r.State != nil && d != nil {
		o.w.tell("  %s on %q message %d delivery %d (%.20s) at %s", r.Outcome, d.Source.Hook, d.Sequence, d.Deliveries,
			r.State.DispatchID, o.name)
	}
}

// Replied implements lane.Observer.
func (observer) Replied(events.HookID, core.ReplyKind, time.Duration) {}

// Settled implements lane.Observer.
func (observer) Settled(lane.Source, time.Duration, bool) {}

// Lost implements lane.Observer.
func (observer) Lost(core.Key) {}

// Failed implements lane.Observer.
func (observer) Failed(string, error) {}

// Panicked implements lane.Observer.
func (o observer) Panicked(_ lane.Source, _ uint64, value any, stack []byte) {
	if value != poison {
		o.w.fail("panic: %v\n%s", value, stack)
	}
}

// Breaker implements lane.Observer.
func (o observer) Breaker(hook events.HookID, state string) {
	o.w.tell("breaker of %s at %s is %s", hook, o.name, state)
}
