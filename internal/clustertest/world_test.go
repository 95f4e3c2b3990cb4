package clustertest

import (
	"context"
	"flag"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"
	"go.uber.org/zap/zaptest"

	"github.com/afterwrite/afterwrite/dispatcher"
	"github.com/afterwrite/afterwrite/dispatcher/registry"
	"github.com/afterwrite/afterwrite/events"
	"github.com/afterwrite/afterwrite/internal/natsconn"
	"github.com/afterwrite/afterwrite/internal/natsembed"
	"github.com/afterwrite/afterwrite/streams"
)

var full = flag.Bool("full", false, "run the long forms")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	nodes = 3
	// patience is how long anything may take that a test waits for.
	patience = 3 * time.Minute
	// poll is how often the broker is asked, which has no signal for what is waited for.
	poll = 20 * time.Millisecond

	hookID       events.HookID       = "inventory.recount"
	capabilityID events.CapabilityID = "inventory"
	intentKind   events.IntentKind   = "inventory.recount_shelf"

	maxInvocations = 16
)

const hookFile = `
registration:
  schema_version: loopx_post_writeback_capability_hook_registration_v0
  hook_id: inventory.recount
  capability_id: inventory
  phase: post_writeback
  event_kinds: [replan_recorded]
  intent_kinds: [inventory.recount_shelf]
  requested_read_scope: [settlement_identity, bounded_event_projection]
  budget: {max_invocations_per_dispatch: 16, max_intents_per_dispatch: 1, max_result_bytes: 4096, timeout_ms: %d}
  failure_policy: isolate
payload_schemas:
  inventory.recount_shelf: {type: object}
`

const profilesFile = `
profiles:
  default: {enabled: true, hooks: [inventory.recount], retry: {max_attempts: 100, initial: 100ms, max: 1s}}
`

// world is a cluster with the streams on it, and a client that is connected to any of its nodes.
type world struct {
	t        *testing.T
	ctx      context.Context
	cluster  *natsembed.Cluster
	nc       *nats.Conn
	js       jetstream.JetStream
	settings streams.Settings
	registry *registry.Installed
	running  sync.WaitGroup
}

func newWorld(t *testing.T, timeout time.Duration) *world {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	w := &world{t: t, ctx: ctx}
	t.Cleanup(func() {
		cancel()
		w.running.Wait()
	})
	var err error
	w.registry, err = registry.Load(registry.Files{
		Hooks:    []registry.File{{Name: "hook.yaml", Data: fmt.Appendf(nil, hookFile, timeout.Milliseconds())}},
		Profiles: registry.File{Name: "profiles.yaml", Data: []byte(profilesFile)},
	})
	if err != nil {
		t.Fatal(err)
	}
	w.cluster = natsembed.StartCluster(t, nodes)
	w.nc = w.connect(w.cluster.ClientURL())
	if w.js, err = jetstream.New(w.nc); err != nil {
		t.Fatal(err)
	}
	const size = 256 << 20
	w.settings = streams.Settings{
		Replicas: nodes, Hooks: []events.HookID{hookID}, AckWait: 3 * time.Second, RetryHorizon: w.registry.RetryHorizon(),
		ReceiptsMaxBytes: size, JournalMaxBytes: size, IntentsMaxBytes: size, ExecutionsMaxBytes: size,
	}
	if _, err := streams.Apply(ctx, w.js, streams.Default(w.settings)); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *world) connect(url string) *nats.Conn {
	w.t.Helper()
	nc, err := nats.Connect(url, nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond),
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {})) // that connections break is what is tested
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(nc.Close)
	return nc
}

// dispatch runs a dispatcher until the test ends. It must not give up.
func (w *world) dispatch(lanes int) {
	w.t.Helper()
	d, err := dispatcher.New(dispatcher.Options{
		NATS:     natsconn.Options{Flags: natsconn.Flags{URL: w.cluster.ClientURL()}},
		Streams:  w.settings,
		Registry: w.registry,
		Lanes:    lanes,
		// What is under way at the end of the test is nobody's business.
		StopGrace: time.Millisecond,
		Logger:    zaptest.NewLogger(w.t, zaptest.Level(zapLevel)),
	})
	if err != nil {
		w.t.Fatal(err)
	}
	ended := make(chan struct{})
	w.running.Go(func() {
		defer close(ended)
		if err := d.Run(w.ctx); err != nil {
			w.t.Errorf("a dispatcher gave up: %v", err)
		}
	})
	select {
	case <-d.Ready():
	case <-ended:
		w.t.FailNow()
	case <-w.ctx.Done():
		w.t.Fatal("a dispatcher did not start")
	}
}

// provide answers for the hook until the test ends.
func (w *world) provide(answer func(in *events.HookInput) *events.HookResult) {
	w.t.Helper()
	nc := w.connect(w.cluster.ClientURL())
	_, err := nc.QueueSubscribe(streams.CallSubject(hookID), "provider", func(m *nats.Msg) {
		_, data, err := events.ReadEvent(events.Header(m.Header), m.Data)
		if err != nil {
			w.t.Errorf("a call is no event: %v", err)
			return
		}
		in, err := events.Decode[events.HookInput](data)
		if err != nil {
			w.t.Errorf("a call is no input: %v", err)
			return
		}
		w.running.Go(func() {
			envelope := events.NewEnvelope(in.DispatchID, "afterwrite/test", events.HookResultSchema, "")
			reply := &nats.Msg{Subject: m.Reply, Header: nats.Header(envelope.Header()), Data: events.Canonical(answer(in))}
			_ = nc.PublishMsg(reply) // without a connection there is no answer, which the dispatcher has to bear
		})
	})
	if err == nil {
		err = nc.Flush()
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

// propose proposes one intent about the shelf.
func propose(dispatch events.DispatchID, shelf string) *events.HookResult {
	intent := events.Intent{
		Budget: events.IntentBudget{MaxAttempts: 1, MaxResultBytes: 1024}, CapabilityID: capabilityID,
		FailurePolicy: events.Isolate, HookID: hookID, IntentKind: intentKind, Operation: "recount",
		Payload: jsontext.Value(`{"shelf":"` + shelf + `"}`), PolicyVersion: "v0",
		SchemaVersion: events.IntentSchema, SourceDispatchID: dispatch,
	}
	intent.IntentID = intent.Identity()
	return &events.HookResult{
		CapabilityID: capabilityID, DispatchID: dispatch, HookID: hookID, SchemaVersion: events.HookResultSchema,
		Status: events.ResultProposed, Intents: []events.Intent{intent},
	}
}

// dispatchOf is the dispatch of a receipt, reckoned from the contract alone.
func (w *world) dispatchOf(r *events.Receipt) events.DispatchID {
	hook := w.registry.Hooks[hookID]
	return events.DispatchIdentity(r.Identity(), hookID, capabilityID, hook.Registration.Digest(), r.EventKind)
}

func receipt(i int) *events.Receipt {
	effect := fmt.Sprintf("effect_%d", i)
	return &events.Receipt{
		SchemaVersion: events.ReceiptSchema, Profile: "default", EventKind: events.ReplanRecorded,
		Plan: events.Settlement{
			AgentID: "agent", EffectID: effect, GoalID: "goal", TodoID: "todo", TurnInstanceID: fmt.Sprintf("turn_%d", i),
		},
		Receipt: events.WritebackReceipt{
			Checkpointed: true, CommittedAt: events.NewTimestamp(time.Now()), EffectID: effect,
			ReceiptID: fmt.Sprintf("receipt_%d", i), StateRevision: "rev", Status: events.Committed,
			StepKind: events.DurableWriteback,
		},
		Projection: events.Projection{
			FactRefs: []string{"fact"}, SchemaVersion: events.ProjectionSchema, Transition: events.ReplanEntered,
		},
	}
}

// settled waits until every receipt up to the sequence is acknowledged and no wake-up is left.
func (w *world) settled(sequence uint64) {
	w.t.Helper()
	ticker := time.NewTicker(poll)
	defer ticker.Stop()
	for {
		complaint := w.unsettled(sequence)
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

func (w *world) unsettled(sequence uint64) (complaint string) {
	ctx, cancel := context.WithTimeout(w.ctx, time.Second)
	defer cancel()
	consumer, err := w.js.Consumer(ctx, streams.Receipts, streams.DispatcherConsumer)
	if err != nil {
		return err.Error()
	}
	if floor := consumer.CachedInfo().AckFloor.Stream; floor < sequence {
		return fmt.Sprintf("receipts are acknowledged up to %d, want %d", floor, sequence)
	}
	retries, err := w.js.Stream(ctx, streams.Retries)
	if err != nil {
		return err.Error()
	}
	if left := retries.CachedInfo().State.Msgs; left > 0 {
		return fmt.Sprintf("%d wake-ups are left", left)
	}
	return ""
}
