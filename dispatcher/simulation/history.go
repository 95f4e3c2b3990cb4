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

const hookTimeout = 2 * time.Second

// hooks differ in their budgets: one has few invocations, one has a single one.
var hooks = []events.HookID{"cap_a.hook", "cap_b.hook"}

func capability(hook events.HookID) events.CapabilityID { return hook[:len(hook)-len(".hook")] }
func intentKind(hook events.HookID) events.IntentKind   { return capability(hook) + ".act" }

func install() (*core.Installed, error) {
	installed := &core.Installed{
		Hooks: map[events.HookID]core.Hook{},
		Profiles: map[string]core.Profile{"default": {
			Name: "default", Enabled: true, Hooks: hooks,
			Retry: core.Retry{MaxAttempts: 6, Initial: time.Second, Max: 20 * time.Second},
		}},
		SkewAllowance: time.Second, DuplicateWindow: duplicateWindow, JournalAge: 7 * 24 * time.Hour,
	}
	for i, id := range hooks {
		schema, err := events.CompilePayloadSchema(intentKind(id), []byte(`{"type":"object"}`))
		if err != nil {
			return nil, err
		}
		registration := events.Registration{
			SchemaVersion: events.RegistrationSchema, HookID: id, CapabilityID: capability(id),
			Phase: events.PostWriteback, FailurePolicy: events.Isolate,
			EventKinds: events.EventKinds(), IntentKinds: []events.IntentKind{intentKind(id)},
			RequestedReadScope: []events.ReadScope{events.SettlementIdentity, events.BoundedEventProjection},
			Budget: events.HookBudget{
				MaxInvocationsPerDispatch: 3 - 2*i, MaxIntentsPerDispatch: 1, MaxResultBytes: 4096,
				TimeoutMillis: int(hookTimeout.Milliseconds()),
			},
		}
		installed.Hooks[id] = core.Hook{
			Registration: registration, Digest: registration.Digest(),
			Payloads: map[events.IntentKind]*events.PayloadSchema{intentKind(id): schema},
		}
	}
	return installed, nil
}

// history is one run of the world.
type history struct {
	w         *world
	b         *broker
	check     *check
	providers *providers
	nodes     []*node
	receipts  int
}

func newHistory(seed uint64, log io.Writer) (*history, error) {
	installed, err := install()
	if err != nil {
		return nil, err
	}
	h := &history{w: newWorld(seed, log)}
	h.b = newBroker(h.w, hooks)
	h.check = &check{w: h.w, b: h.b, installed: installed, carriers: map[core.Key][]*message{}, accounted: map[core.Key]bool{}}
	h.b.check = h.check
	h.providers = &providers{
		w: h.w, moods: map[events.HookID]mood{}, fixed: map[events.HookID]bool{},
	}
	limits := map[events.HookID]lane.HookLimits{}
	for _, id := range hooks {
		limits[id] = lane.HookLimits{Places: 2, TripAfter: 3, OpenFor: 3 * time.Second}
	}
	for i := range 1 + h.w.rng.IntN(3) {
		h.nodes = append(h.nodes, &node{
			name: fmt.Sprintf("node %d", i), w: h.w, b: h.b, providers: h.providers, installed: installed, limits: limits,
		})
	}
	return h, nil
}

// run lets the world misbehave for a while, then behave, and holds what is left.
func (h *history) run(receipts int, faultsFor time.Duration) {
	for _, n := range h.nodes {
		n.boot()
	}
	h.providers.change(hooks)
	h.orchestrate(receipts, faultsFor)
	h.operate()
	h.breakStores(faultsFor)
	h.everyMinute()
	end := h.w.now().Add(faultsFor)
	h.runUntil(end)
	h.heal()
	// The longest that a dispatch can take from here: its attempts, each with its pause and its call.
	h.runUntil(end.Add(2 * time.Hour))
	if len(h.w.failures) == 0 {
		h.check.atRest()
	}
}

// runUntil holds the history at every moment of it, and stops early once the healed world is at rest.
func (h *history) runUntil(end time.Time) {
	const step = 500 * time.Millisecond
	for at := h.w.now(); at.Before(end) && len(h.w.failures) == 0; at = at.Add(step) {
		h.w.run(at.Add(step))
		h.check.always()
		if !h.w.faulty && h.check.resting() {
			return
		}
	}
}

// heal ends every fault.
func (h *history) heal() {
	h.w.tell("from here on the world behaves")
	h.w.faulty = false
	clear(h.b.full)
	for _, id := range hooks {
		h.providers.moods[id] = healthy
	}
	for _, n := range h.nodes {
		n.dieAfter = -1
	}
}

// orchestrate publishes receipts: most once, some again inside and after the duplicate window, some told differently.
func (h *history) orchestrate(receipts int, within time.Duration) {
	for i := range receipts {
		at := h.w.between(0, within)
		committed := h.w.now().Add(at)
		h.w.after(at, func() { h.b.publish(receiptEvent(i, committed, "fact_a")) })
		for h.w.rng.IntN(4) == 0 {
			later := at + h.w.between(0, 3*duplicateWindow)
			fact := "fact_a"
			if h.w.rng.IntN(3) == 0 {
				fact = "fact_b"
			}
			h.w.after(later, func() { h.b.publish(receiptEvent(i, committed, fact)) })
		}
	}
}

func receiptEvent(i int, committed time.Time, fact string) lane.Event {
	effect := fmt.Sprintf("goal:agent:todo_%d:turn_%d", i, i)
	receipt := &events.Receipt{
		SchemaVersion: events.ReceiptSchema, Profile: "default", EventKind: events.ReplanRecorded,
		Plan: events.Settlement{
			AgentID: "agent", EffectID: effect, GoalID: "goal",
			TodoID: fmt.Sprintf("todo_%d", i), TurnInstanceID: fmt.Sprintf("turn_%d", i),
		},
		Receipt: events.WritebackReceipt{
			Checkpointed: true, CommittedAt: events.NewTimestamp(committed), EffectID: effect,
			ReceiptID: fmt.Sprintf("receipt_%d", i), StateRevision: "rev", Status: events.Committed, StepKind: events.DurableWriteback,
		},
		Projection: events.Projection{
			FactRefs: []string{fact}, SchemaVersion: events.ProjectionSchema, Transition: events.ReplanEntered,
		},
	}
	return lane.Event{SubjectKind: receipt.EventKind, MessageID: receipt.MessageID(), Data: events.Canonical(receipt)}
}

// operate redrives something that failed, now and then.
func (h *history) operate() {
	h.w.after(h.w.between(time.Second, 30*time.Second), func() {
		if !h.w.faulty {
			return
		}
		var failed []core.Key
		for key := range h.check.accounted {
			if record := h.b.state(key); record != nil && record.Status == events.StatusFailed {
				failed = append(failed, key)
			}
		}
		slices.SortFunc(failed, compareKeys)
		if len(failed) > 0 {
			key := failed[h.w.rng.IntN(len(failed))]
			n := h.nodes[h.w.rng.IntN(len(h.nodes))]
			h.w.tell("an operator redrives %.20s %s at %s", key.Dispatch, key.Hook, n.name)
			n.input(n.life, func(now time.Time, l *lane.Lane) {
				l.Redrive(now, &lane.Request{Key: key, Operator: "operator"})
			})
		}
		h.operate()
	})
}

// breakStores fills a store for a while, now and then.
func (h *history) breakStores(within time.Duration) {
	for _, store := range []string{"journal", "intents", "retries"} {
		if h.w.rng.IntN(3) > 0 {
			continue
		}
		from := h.w.between(0, within)
		h.w.after(from, func() { h.b.full[store] = true; h.w.tell("%s is full", store) })
		h.w.after(from+h.w.between(time.Second, time.Minute), func() { delete(h.b.full, store); h.w.tell("%s has room", store) })
	}
}

func (h *history) everyMinute() {
	h.w.after(time.Minute, func() {
		h.b.overdue()
		h.everyMinute()
	})
}
