package executors

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/afterwrite/afterwrite/events"
	"github.com/afterwrite/afterwrite/executors/core"
	"github.com/afterwrite/afterwrite/streams"
)

var errKilled = errors.New("killed")

// killedAt makes the process stop dead at the point: its connection is cut, so that nothing it does afterwards leaves
// it. The channel is closed then.
func (b *broker) killedAt(opts Options, at point) <-chan struct{} {
	b.t.Helper()
	killed := make(chan struct{})
	var p *Process
	var once sync.Once
	opts.at = func(here point, _ events.IntentID) error {
		if here != at {
			return nil
		}
		once.Do(func() {
			p.nc.Close()
			close(killed)
		})
		return errKilled
	}
	p = b.start(opts).Process
	return killed
}

// settled waits until the newest intent of the kind, and every one before it, is settled with the consumer. What is
// pending is not asked for: a consumer hears of a stored message only a moment later.
func (b *broker) settled(executor events.ExecutorID, kind events.IntentKind) {
	b.t.Helper()
	stream, err := b.js.Stream(b.ctx, streams.Intents)
	if err != nil {
		b.t.Fatal(err)
	}
	newest, err := stream.GetLastMsgForSubject(b.ctx, streams.IntentFilter(kind))
	if err != nil {
		b.t.Fatal(err)
	}
	for {
		consumer, err := stream.Consumer(b.ctx, streams.ExecutorConsumer(executor, kind))
		if err != nil && !errors.Is(err, jetstream.ErrConsumerNotFound) { // it may be about to be recreated
			b.t.Fatal(err)
		}
		if err == nil && consumer.CachedInfo().AckFloor.Stream >= newest.Sequence {
			return
		}
	}
}

// afterTheLease is the clock of a replica that comes when every lease has passed.
func afterTheLease() time.Time { return time.Now().Add(time.Hour) }

func TestWhereverAnExecutorIsKilledTheEffectHasOneKeyAndTheExecutionOneEnd(t *testing.T) {
	for _, test := range []struct {
		at       point
		attempts int
		delivery bool
		calls    int
		want     []string
	}{
		{pointTaken, 1, false, 1, []string{"claimed", "called", "completed"}},
		{pointClaimed, 1, false, 0, []string{"claimed", "failed:outcome_unknown"}},
		{pointClaimed, 3, false, 1, []string{"claimed", "claimed", "called", "completed"}},
		{pointCalled, 1, false, 0, []string{"claimed", "called", "failed:outcome_unknown"}},
		{pointCalled, 3, false, 1, []string{"claimed", "called", "claimed", "called", "completed"}},
		{pointEffected, 1, false, 1, []string{"claimed", "called", "failed:outcome_unknown"}},
		{pointEffected, 3, false, 2, []string{"claimed", "called", "claimed", "called", "completed"}},
		{pointRecorded, 1, false, 1, []string{"claimed", "called", "completed"}},
		{pointEffected, 1, true, 1, []string{"claimed", "called", "failed:outcome_unknown"}},
		{pointReturned, 1, true, 1, []string{"claimed", "called", "returned", "returned", "completed"}},
		{pointFinished, 1, true, 1, []string{"claimed", "called", "returned", "returned", "completed"}},
		{pointRecorded, 1, true, 1, []string{"claimed", "called", "returned", "completed"}},
	} {
		name := string(test.at) + "/" + string(rune('0'+test.attempts))
		if test.delivery {
			name += "/delivering"
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := startBroker(t)
			effect := newEffects()
			grant := testGrant(testKind)
			grant.StateKey = "goal_id"
			opts := with(b.options(grant), effect)
			if test.delivery {
				opts.Delivery = deliverOnce{}
			}
			killed := b.killedAt(opts, test.at)
			intent := intentOf(testKind, `{"goal_id":"g"}`, func(i *events.Intent) { i.Budget.MaxAttempts = test.attempts })
			b.propose(intent)
			<-killed

			opts.at, opts.Now = nil, afterTheLease
			b.start(opts)
			b.settled(testExecutor, testKind)
			records := b.history(intent.IntentID)
			if diff := cmp.Diff(test.want, trail(records)); diff != "" {
				t.Errorf("records (-want +got):\n%s", diff)
			}
			keys := effect.keys()
			if len(keys) != test.calls || len(keys) > test.attempts {
				t.Errorf("%d calls of %d attempts, want %d", len(keys), test.attempts, test.calls)
			}
			for _, key := range keys {
				if key != intent.IntentID {
					t.Errorf("the effect was called with key %s", key)
				}
			}
			ends := 0
			for i, record := range records {
				if record.RecordNumber != i+1 {
					t.Errorf("record %d is numbered %d", i+1, record.RecordNumber)
				}
				if record.Status.Terminal() {
					ends++
				}
			}
			if ends != 1 {
				t.Errorf("%d terminal records, want 1", ends)
			}
			if test.delivery {
				state, err := (&ledger{js: b.js, leader: mustLeader(t, b)}).loadState(b.ctx, "g", testExecutor, testKind)
				if err != nil {
					t.Fatal(err)
				}
				delivered := test.want[len(test.want)-1] == "completed"
				if got := string(state.value) == `{"delivered":1}`; got != delivered {
					t.Errorf("state %s, want it advanced exactly where the execution completed", state.value)
				}
			}
		})
	}
}

// deliverOnce counts the delivery in the state, once.
type deliverOnce struct{}

func (deliverOnce) Deliver(context.Context, *events.Intent, Permit, *events.Packet) (jsontext.Value, error) {
	return jsontext.Value(`{"delivered":1}`), nil
}

func mustLeader(t *testing.T, b *broker) nats.JetStreamContext {
	t.Helper()
	leader, err := b.nc.JetStream()
	if err != nil {
		t.Fatal(err)
	}
	return leader
}

func TestTwoClaimsOfOneIntentHaveOneWinner(t *testing.T) {
	b := startBroker(t)
	effect := newEffects()
	var both sync.WaitGroup
	both.Add(2)
	opts := with(b.options(testGrant(testKind)), effect)
	opts.at = func(at point, _ events.IntentID) error {
		if at == pointTaken {
			both.Done()
			both.Wait() // neither knows of the other's claim
		}
		return nil
	}
	intent := intentOf(testKind, `{"goal_id":"g"}`)
	b.propose(intent)
	consumer, err := b.js.CreateConsumer(b.ctx, streams.Intents, jetstream.ConsumerConfig{Durable: "both", AckPolicy: jetstream.AckExplicitPolicy})
	if err != nil {
		t.Fatal(err)
	}
	msg, err := consumer.Next(jetstream.FetchContext(b.ctx))
	if err != nil {
		t.Fatal(err)
	}
	var replicas sync.WaitGroup
	for _, id := range []string{"run_a", "run_b"} {
		p, err := New(opts)
		if err != nil {
			t.Fatal(err)
		}
		if err := p.connect(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(p.disconnect)
		r := &run{Process: p, msg: msg, grant: &p.opts.Grants[0], id: id, log: p.log}
		replicas.Go(func() {
			// The message can be settled once only, and both try.
			if err := r.handle(b.ctx); err != nil && !errors.Is(err, jetstream.ErrMsgAlreadyAckd) {
				t.Errorf("handle: %v", err)
			}
		})
	}
	replicas.Wait()
	if diff := cmp.Diff([]string{"claimed", "called", "completed"}, trail(b.history(intent.IntentID))); diff != "" {
		t.Errorf("records (-want +got):\n%s", diff)
	}
	if keys := effect.keys(); len(keys) != 1 {
		t.Errorf("%d calls, want 1", len(keys))
	}
}

func TestReplicasAndExecutorsShareAStreamWithoutInterference(t *testing.T) {
	b := startBroker(t)
	const other = "report_auditor"
	calls := map[string]*effects{"replicas": newEffects(), "other": newEffects()}
	for range 2 {
		b.start(with(b.options(testGrant(testKind)), calls["replicas"]))
	}
	both := with(b.options(testGrant(testKind), testGrant("periodic_report.archive")), calls["other"])
	both.Executor = other
	b.start(both)
	var intents []*events.Intent
	for i := range 24 {
		kind := testKind
		if i%3 == 0 {
			kind = "periodic_report.archive"
		}
		intent := intentOf(kind, fmt.Sprintf(`{"goal_id":"g-%d"}`, i))
		intents = append(intents, intent)
		b.propose(intent)
	}
	b.settled(testExecutor, testKind)
	b.settled(other, testKind)
	b.settled(other, "periodic_report.archive")
	want := map[string][]string{}
	for _, intent := range intents {
		want[other+" "+intent.IntentID] = []string{"claimed", "called", "completed"}
		if intent.IntentKind == testKind {
			want[testExecutor+" "+intent.IntentID] = []string{"claimed", "called", "completed"}
		}
	}
	got := map[string][]string{}
	for _, intent := range intents {
		for _, record := range b.history(intent.IntentID) {
			key := record.Executor + " " + intent.IntentID
			got[key] = append(got[key], string(record.Status))
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("records by executor and intent (-want +got):\n%s", diff)
	}
	if n := len(calls["replicas"].keys()); n != 16 {
		t.Errorf("the replicas called their effect %d times, want 16", n)
	}
	if n := len(calls["other"].keys()); n != 24 {
		t.Errorf("the other executor called its effect %d times, want 24", n)
	}
}

func TestAnAppendIsWonByItsOwnRecordAndLostToAnother(t *testing.T) {
	b := startBroker(t)
	l, err := newLedger(b.nc, b.js, testExecutor)
	if err != nil {
		t.Fatal(err)
	}
	intent := intentOf(testKind, `{"goal_id":"g"}`)
	key := core.Key{Intent: intent.IntentID, Executor: testExecutor}
	claim := func(id string) *core.Save {
		data, err := events.Encode(intent)
		if err != nil {
			t.Fatal(err)
		}
		grant, err := testGrant(testKind).WithDefaults().core()
		if err != nil {
			t.Fatal(err)
		}
		at := time.Date(2026, 6, 23, 17, 13, 0, 0, time.UTC)
		result, err := core.Commit(
			core.AdmitIntent{Key: key, SubjectKind: testKind, Data: data, ProposedAt: events.NewTimestamp(at), RunID: id, Now: at},
			core.State{Grants: map[events.IntentKind]core.Grant{testKind: grant}, Executions: map[core.Key]core.Entry{key: {}}},
			core.Executor(testExecutor),
		)
		if err != nil {
			t.Fatal(err)
		}
		return result.Save
	}
	first, err := l.append(b.ctx, claim("run_a"), events.Envelope{})
	if err != nil {
		t.Fatal(err)
	}
	again, err := l.append(b.ctx, claim("run_a"), events.Envelope{})
	if err != nil || again.Sequence != first.Sequence {
		t.Errorf("the same record again: sequence %d, %v, want %d and no error", again.Sequence, err, first.Sequence)
	}
	winner, err := l.append(b.ctx, claim("run_b"), events.Envelope{})
	if !errors.Is(err, errLost) || winner.Record.RunID != "run_a" {
		t.Errorf("another record: %v, %+v, want errLost and the record that stands", err, winner.Record)
	}
	if n := len(b.history(intent.IntentID)); n != 1 {
		t.Errorf("%d records, want 1", n)
	}
}
