package simulation

import (
	"slices"
	"sync"
	"time"

	"github.com/afterwrite/afterwrite/dispatcher/core"
	"github.com/afterwrite/afterwrite/dispatcher/lane"
	"github.com/afterwrite/afterwrite/events"
)

// hooks differ in their budgets: the second has a single invocation.
var hooks = []events.HookID{"cap_a.hook", "cap_b.hook"}

func capability(hook events.HookID) events.CapabilityID { return hook[:len(hook)-len(".hook")] }
func intentKind(hook events.HookID) events.IntentKind   { return capability(hook) + ".act" }

// setting is what a history is played with.
type setting struct {
	nodes int
	// timeout of every hook, and how often each may be called for one dispatch.
	timeout     time.Duration
	invocations map[events.HookID]int
	retry       core.Retry
	limits      lane.HookLimits
	ackWait     time.Duration
	// window in which the broker takes a message id for a duplicate.
	window time.Duration
	// backlog is how many wake-ups of a hook may be due before it is full.
	backlog int
	// grace is how long a node that stops waits for what is under way.
	grace time.Duration
}

func defaultSetting() setting {
	return setting{
		nodes:       1,
		timeout:     2 * time.Second,
		invocations: map[events.HookID]int{hooks[0]: 3, hooks[1]: 1},
		retry:       core.Retry{MaxAttempts: 6, Initial: time.Second, Max: 20 * time.Second},
		limits:      lane.HookLimits{Places: 2, TripAfter: 3, OpenFor: 3 * time.Second},
		ackWait:     30 * time.Second,
		window:      10 * time.Second,
		backlog:     1000,
		grace:       5 * time.Second,
	}
}

// skew is how far the clock of a node may be from the broker's, either way. A receipt counts as from the future, or as
// fresh, by a margin that leaves room for it.
const (
	skew          = 900 * time.Millisecond
	skewAllowance = time.Second
	maxReceiptAge = time.Hour
)

// release is what a node has installed.
type release struct {
	name      string
	installed *core.Installed
	// retired are the hooks that another release has and this one has not.
	retired []events.HookID
}

// releases are the one that every history begins with, and those that it may change to.
func (s *setting) releases() []*release {
	first := s.release("first", hooks)
	without := s.release("without "+hooks[1], hooks[:1])
	without.retired = hooks[1:]
	changed := s.release("changed "+hooks[1], hooks)
	hook := changed.installed.Hooks[hooks[1]]
	hook.Registration.RequestedReadScope = []events.ReadScope{events.SettlementIdentity}
	hook.Digest = hook.Registration.Digest()
	changed.installed.Hooks[hooks[1]] = hook
	return []*release{first, without, changed}
}

const (
	profileOn  = "default"
	profileOff = "switched_off"
)

func (s *setting) release(name string, run []events.HookID) *release {
	installed := &core.Installed{
		Hooks: map[events.HookID]core.Hook{},
		Profiles: map[string]core.Profile{
			profileOn:  {Name: profileOn, Enabled: true, Hooks: run, Retry: s.retry},
			profileOff: {Name: profileOff, Hooks: run, Retry: s.retry},
		},
		MaxReceiptAge: maxReceiptAge, SkewAllowance: skewAllowance, DuplicateWindow: s.window,
		JournalAge: 7 * 24 * time.Hour,
	}
	for _, id := range run {
		registration := events.Registration{
			SchemaVersion: events.RegistrationSchema, HookID: id, CapabilityID: capability(id),
			Phase: events.PostWriteback, FailurePolicy: events.Isolate,
			EventKinds: events.EventKinds(), IntentKinds: []events.IntentKind{intentKind(id)},
			RequestedReadScope: []events.ReadScope{events.SettlementIdentity, events.BoundedEventProjection},
			Budget: events.HookBudget{
				MaxInvocationsPerDispatch: s.invocations[id], MaxIntentsPerDispatch: 1, MaxResultBytes: 4096,
				TimeoutMillis: int(s.timeout.Milliseconds()),
			},
		}
		installed.Hooks[id] = core.Hook{
			Registration: registration, Digest: registration.Digest(),
			Payloads: map[events.IntentKind]*events.PayloadSchema{intentKind(id): payloadSchemas()[id]},
		}
	}
	return &release{name: name, installed: installed}
}

// payloadSchemas are compiled once: they do not change, and every history needs them.
var payloadSchemas = sync.OnceValue(func() map[events.HookID]*events.PayloadSchema {
	schemas := map[events.HookID]*events.PayloadSchema{}
	for _, id := range hooks {
		schema, err := events.CompilePayloadSchema(intentKind(id), []byte(`{"type":"object"}`))
		if err != nil {
			panic(err) // the schema above is one
		}
		schemas[id] = schema
	}
	return schemas
})

// planned is a dispatch that a receipt comes to under a release, reckoned from the contract alone.
type planned struct {
	key   core.Key
	input events.Digest
	// outside says that the input is not public-safe.
	outside bool
}

func (r *release) plan(t *told) []planned {
	if t.receipt == nil || t.refused != "" || t.ignored {
		return nil
	}
	var plan []planned
	for _, id := range hooks {
		hook, installed := r.installed.Hooks[id]
		if !installed {
			continue
		}
		receipt := t.receipt
		input := &events.HookInput{
			Boundary: receipt.Boundary, CapabilityID: capability(id), HookID: id, SchemaVersion: events.HookInputSchema,
			DispatchID: events.DispatchIdentity(receipt.Identity(), id, capability(id), hook.Digest, receipt.EventKind),
			Source: &events.HookSource{
				AgentID: receipt.Plan.AgentID, CommittedAt: receipt.Receipt.CommittedAt, EffectID: receipt.Plan.EffectID,
				EventKind: receipt.EventKind, GoalID: receipt.Plan.GoalID, ReceiptID: receipt.Receipt.ReceiptID,
				StateRevision: receipt.Receipt.StateRevision, StepKind: receipt.Receipt.StepKind,
				TodoID: receipt.Plan.TodoID, TurnInstanceID: receipt.Plan.TurnInstanceID,
			},
		}
		reads := slices.Contains(hook.Registration.RequestedReadScope, events.BoundedEventProjection)
		if reads {
			input.Projection = &receipt.Projection
		}
		plan = append(plan, planned{
			key:   core.Key{Dispatch: input.DispatchID, Hook: id},
			input: events.DigestOf(events.Canonical(input)), outside: t.outside && reads,
		})
	}
	return plan
}
