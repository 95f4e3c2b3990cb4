package simulation

import (
	"cmp"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/afterwrite/afterwrite/dispatcher/core"
	"github.com/afterwrite/afterwrite/dispatcher/lane"
	"github.com/afterwrite/afterwrite/events"
)

// mutants are dispatchers with one fault each, which the simulation must find. A fault stands between a lane and the
// world, so that the lane is the one that is shipped.
var mutants = map[string]func(*node) lane.Effects{
	"acknowledges before anything is recorded": func(n *node) lane.Effects { return acknowledgesFirst{n} },
	"acknowledges before the wake-up is there": func(n *node) lane.Effects { return schedulesLater{n} },
	"schedules no wake-up":                     func(n *node) lane.Effects { return schedulesNothing{n} },
	"publishes intents before their record":    func(n *node) lane.Effects { return publishesFirst{n} },
	"publishes no intents":                     func(n *node) lane.Effects { return publishesNothing{n} },
	"takes a lost write for a win":             func(n *node) lane.Effects { return neverLoses{n} },
	"takes a rival in flight for a record":     func(n *node) lane.Effects { return trustsRivals{n} },
	"writes over what it does not know":        func(n *node) lane.Effects { return overwrites{n} },
	"acknowledges what it should hand back":    func(n *node) lane.Effects { return neverHandsBack{n} },
	"reads a lagging replica before it writes": func(n *node) lane.Effects { return readsReplicas{n} },
	"records no conflict":                      func(n *node) lane.Effects { return hidesConflicts{n} },
	"records no refusal":                       func(n *node) lane.Effects { return hidesRefusals{n} },
	"does not count its attempts":              func(n *node) lane.Effects { return forgetsAttempts{n} },
	"retries at once":                          func(n *node) lane.Effects { return neverWaits{n} },
}

func TestTheSimulationFindsEveryMutant(t *testing.T) {
	const most = 300
	for name, mutate := range mutants {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for seed := uint64(1); seed <= most; seed++ {
				failures := replay(t, seed, nil, func(h *history) {
					for _, n := range h.nodes {
						n.effects = mutate(n)
					}
				})
				if len(failures) > 0 {
					t.Logf("found by seed %d: %.200s", seed, failures[0])
					return
				}
			}
			t.Errorf("%d histories did not find it", most)
		})
	}
}

// acknowledgeAll acknowledges whatever the node was given so far.
func (n *node) acknowledgeAll() {
	bySequence := func(a, b *lane.Delivery) int { return cmp.Compare(a.Sequence, b.Sequence) }
	for _, d := range slices.SortedStableFunc(maps.Keys(n.messages), bySequence) {
		n.Acknowledge(d)
	}
}

type acknowledgesFirst struct{ *node }

func (m acknowledgesFirst) Call(op lane.Op, call *core.Call, trace lane.Trace) {
	m.acknowledgeAll()
	m.node.Call(op, call, trace)
}

type schedulesLater struct{ *node }

func (m schedulesLater) Schedule(op lane.Op, s core.Schedule) {
	m.write(op, func() lane.Written {
		life := m.life
		m.w.after(time.Second, func() {
			if m.alive(life) {
				m.b.schedule(s)
			}
		})
		return lane.Written{}
	})
}

type schedulesNothing struct{ *node }

func (m schedulesNothing) Schedule(op lane.Op, _ core.Schedule) {
	m.write(op, func() lane.Written { return lane.Written{} })
}

type publishesFirst struct{ *node }

func (m publishesFirst) Append(op lane.Op, save *core.Save, data []byte, trace lane.Trace) {
	if save.Record != nil {
		for i := range save.Record.Intents {
			m.effect(func(int) { m.b.publishIntent(&save.Record.Intents[i], save.Record.RecordedAt) })
		}
	}
	m.node.Append(op, save, data, trace)
}

type publishesNothing struct{ *node }

func (m publishesNothing) Publish(op lane.Op, _ *events.Intent, _ events.Timestamp, _ lane.Trace) {
	m.write(op, func() lane.Written { return lane.Written{} })
}

type neverLoses struct{ *node }

func (m neverLoses) Append(op lane.Op, save *core.Save, data []byte, _ lane.Trace) {
	m.write(op, func() lane.Written {
		written := m.b.append(save, data)
		written.Lost, written.InFlight = false, false
		return written
	})
}

type trustsRivals struct{ *node }

func (m trustsRivals) Publish(op lane.Op, intent *events.Intent, acceptedAt events.Timestamp, _ lane.Trace) {
	m.write(op, func() lane.Written {
		written := m.b.publishIntent(intent, acceptedAt)
		written.InFlight = false
		return written
	})
}

type overwrites struct{ *node }

func (m overwrites) Append(op lane.Op, save *core.Save, data []byte, _ lane.Trace) {
	m.write(op, func() lane.Written {
		blind := *save
		if save.Record != nil {
			blind.Expect = lastOf(m.b.journal[keyOf(save.Record)]).sequence
		}
		return m.b.append(&blind, data)
	})
}

type neverHandsBack struct{ *node }

func (m neverHandsBack) HandBack(d *lane.Delivery, _ time.Duration) { m.Acknowledge(d) }

type readsReplicas struct{ *node }

func (m readsReplicas) Load(op lane.Op, key core.Key, _ bool) { m.node.Load(op, key, false) }

type hidesConflicts struct{ *node }

func (m hidesConflicts) Append(op lane.Op, save *core.Save, data []byte, trace lane.Trace) {
	if save.Conflict != nil {
		m.write(op, func() lane.Written { return lane.Written{} })
		return
	}
	m.node.Append(op, save, data, trace)
}

type hidesRefusals struct{ *node }

func (m hidesRefusals) Append(op lane.Op, save *core.Save, data []byte, trace lane.Trace) {
	if save.Refusal != nil {
		m.write(op, func() lane.Written { return lane.Written{} })
		return
	}
	m.node.Append(op, save, data, trace)
}

// changed has the node write a changed record.
func changed(n *node, op lane.Op, save *core.Save, data []byte, change func(*events.DispatchReceipt)) {
	if save.Record != nil {
		record := *save.Record
		change(&record)
		save = &core.Save{Record: &record, Expect: save.Expect}
		data = events.Canonical(&record)
	}
	n.write(op, func() lane.Written { return n.b.append(save, data) })
}

type forgetsAttempts struct{ *node }

func (m forgetsAttempts) Append(op lane.Op, save *core.Save, data []byte, _ lane.Trace) {
	changed(m.node, op, save, data, func(r *events.DispatchReceipt) {
		if r.Status == events.StatusRetrying {
			r.Attempt, r.Invocations = min(r.Attempt, 1), min(r.Invocations, 1)
		}
	})
}

type neverWaits struct{ *node }

func (m neverWaits) Append(op lane.Op, save *core.Save, data []byte, _ lane.Trace) {
	changed(m.node, op, save, data, func(r *events.DispatchReceipt) {
		if r.RetryAt != "" {
			r.RetryAt = events.Optional(r.RecordedAt)
		}
	})
}
