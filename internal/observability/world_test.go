package observability_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"go.uber.org/goleak"
	"go.uber.org/zap"

	"github.com/afterwrite/afterwrite/dispatcher/registry"
	"github.com/afterwrite/afterwrite/events"
	"github.com/afterwrite/afterwrite/executors"
	"github.com/afterwrite/afterwrite/internal/natsembed"
	"github.com/afterwrite/afterwrite/internal/observability"
	"github.com/afterwrite/afterwrite/internal/stack"
	"github.com/afterwrite/afterwrite/providers"
	"github.com/afterwrite/afterwrite/streams"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long anything may take that a test waits for.
const patience = 60 * time.Second

const (
	capability = "probe"
	intentKind = "probe.noted"
	noter      = "noter"
)

// hook is one of the test's: probe.<name>, and how it behaves.
type hook struct {
	registration events.Registration
	inFlight     int
	propose      providers.HookFunc // nil for a hook that nobody serves
}

func newHook(name string, inFlight int, timeout time.Duration, propose providers.HookFunc) *hook {
	return &hook{inFlight: inFlight, propose: propose, registration: events.Registration{
		SchemaVersion:      events.RegistrationSchema,
		HookID:             capability + "." + name,
		CapabilityID:       capability,
		Phase:              events.PostWriteback,
		EventKinds:         events.EventKinds(),
		IntentKinds:        []events.IntentKind{intentKind},
		RequestedReadScope: []events.ReadScope{events.SettlementIdentity, events.BoundedEventProjection},
		Budget: events.HookBudget{
			MaxInvocationsPerDispatch: 4, MaxIntentsPerDispatch: 1, MaxResultBytes: 16 << 10, TimeoutMillis: int(timeout.Milliseconds()),
		},
		FailurePolicy: events.Isolate,
	}}
}

func (h *hook) file(t *testing.T) registry.File {
	t.Helper()
	registration, err := events.Encode(&h.registration)
	if err != nil {
		t.Fatal(err)
	}
	return registry.File{Name: h.registration.HookID + ".json", Data: fmt.Appendf(nil,
		`{"max_in_flight":%d,"registration":%s,"payload_schemas":{%q:{"type":"object"}}}`, h.inFlight, registration, intentKind)}
}

// noted is the intent that the test's hooks propose.
func noted(note string) []providers.Proposal {
	return []providers.Proposal{{
		Kind: intentKind, Operation: "note", PolicyVersion: "v0", Payload: map[string]string{"note": note},
		Budget: events.IntentBudget{MaxAttempts: 2, MaxResultBytes: 1024},
	}}
}

// world is the whole stack with the test's hooks, their provider and their executor beside it.
type world struct {
	*stack.Stack
	t      *testing.T
	ctx    context.Context
	dialed *dialer
}

func start(t *testing.T, o stack.Options, effect executors.Func, hooks ...*hook) *world {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	w := &world{t: t, ctx: ctx, dialed: new(dialer)}
	if o.Logger == nil {
		o.Logger = zap.NewNop()
	}
	if o.Metrics == nil {
		o.Metrics = observability.NewRegistry()
	}
	var names []string
	if !o.NoProvider {
		names = append(names, "periodic_report.runtime_trigger")
	}
	for _, h := range hooks {
		o.Hooks = append(o.Hooks, h.file(t))
		names = append(names, h.registration.HookID)
	}
	const plenty = 1 << 50 // bookkeeping, and not space
	o.Broker = natsembed.Options{StoreDir: t.TempDir(), MaxStoreBytes: plenty, MaxMemoryBytes: plenty}
	o.Profiles = fmt.Appendf(nil, "profiles:\n  default:\n    enabled: true\n    hooks: [%s]\n"+
		"    retry: {max_attempts: 6, initial: 50ms, max: 200ms}\n  idle: {enabled: false, hooks: []}\n", strings.Join(names, ", "))
	o.Dialer = w.dialed
	o.Dispatcher.Lanes = 1
	var err error
	if w.Stack, err = stack.Start(ctx, o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Stop(); err != nil {
			t.Errorf("the stack ended with %v", err)
		}
	})
	w.provide(o, hooks)
	w.execute(o, effect)
	return w
}

// provide serves the hooks that are to be served.
func (w *world) provide(o stack.Options, hooks []*hook) {
	w.t.Helper()
	options := []providers.Option{
		providers.WithMetrics(o.Metrics), providers.WithTracing(o.Tracing), providers.WithLogger(o.Logger), providers.WithConcurrency(4),
	}
	served := false
	for _, h := range hooks {
		if h.propose != nil {
			served = true
			options = append(options, providers.WithHook(&h.registration, h.propose))
		}
	}
	if !served {
		return
	}
	provider, err := providers.Start(w.connect(), capability, options...)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		if err := provider.Stop(context.WithoutCancel(w.ctx)); err != nil {
			w.t.Errorf("the provider ended with %v", err)
		}
	})
}

// execute runs the executor of what the hooks propose, unless there is no effect.
func (w *world) execute(o stack.Options, effect executors.Func) {
	w.t.Helper()
	if effect == nil {
		return
	}
	process, err := executors.New(executors.Options{
		Executor: noter, HandBack: 50 * time.Millisecond,
		Grants: []executors.Grant{{
			IntentKind: intentKind, From: streams.StartAll, Ceilings: events.IntentBudget{MaxAttempts: 2},
		}},
		Executors: map[events.IntentKind]executors.Executor{intentKind: effect},
		URL:       w.URL(), Dialer: w.dialed, AckWait: o.Streams.AckWait, Log: o.Logger, Metrics: o.Metrics, Tracing: o.Tracing,
	})
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(w.ctx))
	ended := make(chan error, 1)
	go func() { ended <- process.Run(ctx) }()
	w.t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			w.t.Errorf("the executor ended with %v", err)
		}
	})
	select {
	case <-process.Ready():
	case err := <-ended:
		w.t.Fatalf("the executor did not start: %v", err)
	case <-w.ctx.Done():
		w.t.Fatal("the executor did not start in time")
	}
}

func (w *world) connect() *nats.Conn {
	w.t.Helper()
	nc, err := nats.Connect(w.URL(), nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond), nats.SetCustomDialer(w.dialed))
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(nc.Close)
	return nc
}

// receipt is a Turn's, whose name makes every id of it its own.
func receipt(name string) *events.Receipt {
	effect := "goal_a:agent_a:todo_" + name + ":turn_" + name
	return &events.Receipt{
		SchemaVersion: events.ReceiptSchema, Profile: "default", EventKind: events.ReplanRecorded,
		Plan: events.Settlement{
			GoalID: "goal_a", AgentID: "agent_a", TodoID: "todo_" + name, TurnInstanceID: "turn_" + name, EffectID: effect,
		},
		Receipt: events.WritebackReceipt{
			Checkpointed: true, CommittedAt: events.NewTimestamp(time.Now()), EffectID: effect, ReceiptID: "receipt_" + name,
			StateRevision: "rev_" + name, Status: events.Committed, StepKind: events.DurableWriteback,
		},
		Projection: events.Projection{FactRefs: []string{"fact_a"}, SchemaVersion: events.ProjectionSchema, Transition: events.ReplanEntered},
	}
}

// publish publishes a receipt as an orchestrator whose span is the parent.
func (w *world) publish(r *events.Receipt, parent, state string) {
	w.t.Helper()
	publisher := streams.NewPublisher(w.JS, streams.PublisherOptions{
		Trace: func(context.Context) (string, string) { return parent, state },
	})
	if _, err := publisher.Publish(w.ctx, r); err != nil {
		w.t.Fatal(err)
	}
}

// publishAs publishes data under a message id of the test's choice, past the orchestrators' publisher.
func (w *world) publishAs(id string, data []byte) {
	w.t.Helper()
	header := events.NewEnvelope(id, "probe", events.ReceiptSchema, "").Header()
	header[streams.HeaderMessageID] = []string{id}
	w.publishRaw(streams.ReceiptSubject(events.ReplanRecorded), header, data)
}

func (w *world) publishRaw(subject string, header events.Header, data []byte) {
	w.t.Helper()
	if _, err := w.JS.PublishMsg(w.ctx, &nats.Msg{Subject: subject, Header: nats.Header(header), Data: data}); err != nil {
		w.t.Fatal(err)
	}
}

// eventually looks until there is nothing to complain about.
func (w *world) eventually(look func() (complaint string)) {
	w.t.Helper()
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for {
		complaint := look()
		if complaint == "" {
			return
		}
		select {
		case <-ticker.C:
		case <-w.ctx.Done():
			w.t.Fatalf("after %s still: %s", patience, complaint)
		}
	}
}

// dialer makes every connection, and can break those that there are.
type dialer struct {
	mu    sync.Mutex
	conns []net.Conn
}

// Dial implements nats.CustomDialer.
func (d *dialer) Dial(network, address string) (net.Conn, error) {
	conn, err := net.DialTimeout(network, address, patience)
	if err == nil {
		d.mu.Lock()
		d.conns = append(d.conns, conn)
		d.mu.Unlock()
	}
	return conn, err
}

func (d *dialer) breakAll() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, conn := range d.conns {
		_ = conn.Close()
	}
	d.conns = nil
}

// silent is how a hook behaves that never answers, until the test is over.
func silent(over <-chan struct{}) providers.HookFunc {
	return func(*events.HookInput) ([]providers.Proposal, error) {
		<-over
		return nil, nil
	}
}

var errBroken = errors.New("the probe is broken")
