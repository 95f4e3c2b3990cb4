package simulation

import (
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/afterwrite/afterwrite/dispatcher/core"
	"github.com/afterwrite/afterwrite/dispatcher/lane"
	"github.com/afterwrite/afterwrite/events"
)

// history is one run of the world.
type history struct {
	w         *world
	s         *setting
	b         *broker
	check     *check
	providers *providers
	nodes     []*node
	releases  []*release
	// latest is what every node is to have in the end.
	latest *release
	// look complains about what must not be at any moment, nil where only the check does.
	look func() (complaint string)
	// seen is how much had happened at the broker when the history was last held.
	seen uint64
}

func newHistory(seed uint64, log io.Writer, s setting) *history {
	h := &history{w: newWorld(seed, log), s: &s, releases: s.releases()}
	h.latest = h.releases[0]
	h.b = newBroker(h.w, &s)
	h.check = newCheck(h.w, h.b, &s, h.releases)
	h.b.check = h.check
	h.w.watch = h.hold
	h.providers = newProviders(h.w, &s)
	for i := range s.nodes {
		n := &node{
			name: fmt.Sprintf("node %d", i), w: h.w, b: h.b, s: &s, providers: h.providers, next: h.latest, mortal: true,
			outcomes: map[core.Outcome]int{},
		}
		n.effects = n
		h.nodes = append(h.nodes, n)
	}
	return h
}

// byChance is a setting that a seed chooses.
func byChance(w *world) setting {
	s := defaultSetting()
	s.nodes = 1 + w.rng.IntN(3)
	if w.oneIn(4) {
		s.backlog = 1 + w.rng.IntN(3)
	}
	return s
}

// begin starts every node, and what every dispatcher does once a minute.
func (h *history) begin() {
	for _, n := range h.nodes {
		n.boot()
	}
	h.everyMinute()
}

func (h *history) everyMinute() {
	h.b.overdue()
	h.w.after(time.Minute, h.everyMinute)
}

// play lets the world misbehave for a while, then behave, and holds what is left.
func (h *history) play(receipts int, faultsFor time.Duration) {
	for _, n := range h.nodes {
		if h.w.oneIn(2) {
			n.skew = h.w.between(-skew, skew)
		}
	}
	h.begin()
	h.w.sometimes(time.Second, 20*time.Second, h.providers.change)
	h.orchestrate(receipts, faultsFor)
	h.w.sometimes(time.Second, 30*time.Second, h.operate)
	h.w.sometimes(5*time.Second, time.Minute, h.disturb)
	h.breakStores(faultsFor)
	if h.w.oneIn(8) {
		h.w.after(h.w.between(0, faultsFor), h.b.recreate)
	}
	if h.w.oneIn(3) {
		h.w.after(h.w.between(0, faultsFor), func() { h.roll(h.releases[1+h.w.rng.IntN(2)]) })
	}
	end := h.w.now().Add(faultsFor)
	h.runUntil(end)
	h.heal()
	// The longest that a dispatch can take from here: its attempts, each with its pause and its call.
	h.runUntil(end.Add(2 * time.Hour))
	if len(h.w.failures) == 0 {
		h.check.atRest()
	}
}

// hold holds everything that was acknowledged, whenever anything has changed.
func (h *history) hold() {
	happened := h.b.sequence + h.b.acks
	if happened == h.seen {
		return
	}
	h.seen = happened
	h.check.always()
	if h.look == nil {
		return
	}
	if complaint := h.look(); complaint != "" {
		h.w.fail("%s", complaint)
	}
}

// runUntil runs the history, and stops early once the healed world is at rest.
func (h *history) runUntil(end time.Time) {
	const step = 500 * time.Millisecond
	for at := h.w.now(); at.Before(end) && len(h.w.failures) == 0; at = at.Add(step) {
		h.w.run(at.Add(step))
		if !h.w.faulty && h.check.resting() {
			return
		}
	}
}

// runFor runs the history for a while, whether there is anything to happen or not.
func (h *history) runFor(d time.Duration) {
	end := h.w.now().Add(d)
	h.w.run(end)
	if wait := end.Sub(h.w.now()); wait > 0 {
		time.Sleep(wait) // virtual
	}
}

// heal ends every fault.
func (h *history) heal() {
	h.w.tell("from here on the world behaves")
	h.w.faulty = false
	clear(h.b.full)
	clear(h.providers.moods)
	for _, n := range h.nodes {
		n.dieAfter = -1
		if n.release != h.latest {
			n.next = h.latest
			n.stop()
		}
	}
}

// orchestrate publishes receipts: most once, some again inside and after the duplicate window, some told differently,
// some not as they should be.
func (h *history) orchestrate(receipts int, within time.Duration) {
	for i := range receipts {
		at := h.w.between(0, within)
		committed := h.w.now().Add(at)
		if h.w.oneIn(6) {
			t := tell(i, committed, "fact_a")
			t.distort(h.w)
			h.w.after(at, func() { h.b.publish(t) })
			continue
		}
		h.w.after(at, func() { h.b.publish(tell(i, committed, "fact_a")) })
		for h.w.oneIn(4) {
			later := at + h.w.between(0, 3*h.s.window)
			fact := "fact_a"
			if h.w.oneIn(3) {
				fact = "fact_b"
			}
			h.w.after(later, func() { h.b.publish(tell(i, committed, fact)) })
		}
	}
}

// operate redrives something that failed.
func (h *history) operate() {
	var failed []core.Key
	for _, key := range h.check.accounted {
		if record := h.b.state(key); record != nil && record.Status == events.StatusFailed {
			failed = append(failed, key)
		}
	}
	if len(failed) == 0 {
		return
	}
	slices.SortFunc(failed, compareKeys)
	h.redrive(failed[h.w.rng.IntN(len(failed))], h.nodes[h.w.rng.IntN(len(h.nodes))])
}

func (h *history) redrive(key core.Key, at *node) {
	h.w.tell("an operator redrives %.20s %s at %s", key.Dispatch, key.Hook, at.name)
	at.receive(at.life, func(now time.Time, l *lane.Lane) {
		l.Redrive(now, &lane.Request{Key: key, Operator: "operator"})
	})
}

// disturb freezes a node, cuts it off, or has it stop and start again.
func (h *history) disturb() {
	n := h.nodes[h.w.rng.IntN(len(h.nodes))]
	switch h.w.rng.IntN(3) {
	case 0:
		n.freeze(h.w.between(time.Second, 2*h.s.ackWait))
	case 1:
		n.disconnect(h.w.between(100*time.Millisecond, 20*time.Second))
	case 2:
		n.stop()
	}
}

// roll brings the release to one node after the other.
func (h *history) roll(to *release) {
	h.w.tell("release %q is rolled out", to.name)
	h.latest = to
	for i, n := range h.nodes {
		n.next = to
		h.w.after(time.Duration(i)*5*time.Second, n.stop)
	}
}

// breakStores fills a store for a while, now and then.
func (h *history) breakStores(within time.Duration) {
	for _, s := range []store{journalStore, intentsStore, retriesStore} {
		if !h.w.oneIn(3) {
			continue
		}
		from := h.w.between(0, within)
		h.w.after(from, func() { h.b.full[s] = true; h.w.tell("%s is full", s) })
		h.w.after(from+h.w.between(time.Second, time.Minute), func() { delete(h.b.full, s); h.w.tell("%s has room", s) })
	}
}
