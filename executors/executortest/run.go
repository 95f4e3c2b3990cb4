package executortest

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/afterwrite/afterwrite/events"
	"github.com/afterwrite/afterwrite/executors"
	"github.com/afterwrite/afterwrite/streams"
)

// Subject is the executor that is judged.
type Subject struct {
	// URL of a broker that the suite may fill, and that nothing else uses.
	URL string
	// Grant is what the executor is used with.
	Grant executors.Grant
	// New gives a replica of the executor. All replicas act on one sink.
	New func() executors.Executor
	// Intent gives the n-th of a series of different intents that the grant admits.
	Intent func(n int) *events.Intent
	// Effects counts how often the effect took place for an idempotency key: at the sink, not at the executor.
	Effects func(key events.IntentID) int
}

// patience bounds everything that the suite waits for.
const patience = 20 * time.Second

// ackWait is how soon the broker gives the intent of a replica that crashed to another.
const ackWait = 200 * time.Millisecond

// Run judges the executor.
func Run(t *testing.T, s Subject) {
	if s.New == nil || s.Intent == nil || s.Effects == nil {
		t.Fatal("the suite needs New, Intent and Effects")
	}
	s.Grant.From = streams.StartNew // what the checks before proposed is not this one's
	s.Grant.Off, s.Grant.Manual = false, false
	for i, check := range []struct {
		name string
		run  func(*bench)
	}{
		{"an admitted intent has one effect and a result that may be stored", (*bench).admitted},
		{"the same intent twice is one effect", (*bench).repeated},
		{"a crash between effect and record is survived with one effect", (*bench).crashed},
		{"a refusal is recorded and nothing is called", (*bench).refused},
		{"the deadline is honoured", (*bench).late},
		{"stopping lets a called effect end", (*bench).stopped},
	} {
		t.Run(check.name, func(t *testing.T) {
			b := newBench(t, s, i)
			check.run(b)
		})
	}
}

// bench is one check's own executor name and intent.
type bench struct {
	Subject
	t        *testing.T
	ctx      context.Context
	nc       *nats.Conn
	js       jetstream.JetStream
	executor events.ExecutorID
	intent   *events.Intent
}

func newBench(t *testing.T, s Subject, n int) *bench {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	b := &bench{Subject: s, t: t, ctx: ctx, executor: "executortest.check_" + string(rune('a'+n)), intent: s.Intent(n)}
	b.nc = b.connect()
	var err error
	if b.js, err = jetstream.New(b.nc); err != nil {
		t.Fatal(err)
	}
	if _, err := streams.Apply(ctx, b.js, streams.Default(streams.Settings{Storage: streams.MemoryStorage})); err != nil {
		t.Fatal(err)
	}
	return b
}

func (b *bench) connect() *nats.Conn {
	b.t.Helper()
	nc, err := nats.Connect(b.URL)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(nc.Close)
	return nc
}

// process runs a replica around e; stop ends it and gives what Run gave.
func (b *bench) process(e executors.Executor, change ...func(*executors.Options)) (stop func() error) {
	b.t.Helper()
	opts := executors.Options{
		Executor: b.executor, Grants: []executors.Grant{b.Grant}, Conn: b.connect(), AckWait: ackWait, HandBack: 50 * time.Millisecond,
		DrainTimeout: patience, Executors: map[events.IntentKind]executors.Executor{b.Grant.IntentKind: e},
	}
	for _, f := range change {
		f(&opts)
	}
	p, err := executors.New(opts)
	if err != nil {
		b.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.ctx)
	var running sync.WaitGroup
	running.Go(func() { err = p.Run(ctx) })
	stop = func() error {
		cancel()
		running.Wait()
		return err
	}
	b.t.Cleanup(func() { _ = stop() })
	ended := make(chan struct{})
	go func() { running.Wait(); close(ended) }()
	select {
	case <-p.Ready():
	case <-ended:
		b.t.Fatalf("the process did not start: %v", err)
	}
	return stop
}

func (b *bench) propose(intent *events.Intent) {
	b.t.Helper()
	data, err := events.Encode(intent)
	if err != nil {
		b.t.Fatal(err)
	}
	envelope := events.NewEnvelope(intent.IntentID, "afterwrite/executortest", events.IntentSchema, events.NewTimestamp(time.Now()))
	msg := &nats.Msg{Subject: streams.IntentSubject(intent.IntentID, intent.IntentKind), Header: nats.Header(envelope.Header()), Data: data}
	if _, err := b.js.PublishMsg(b.ctx, msg, jetstream.WithExpectLastSequencePerSubject(0)); err != nil {
		b.t.Fatal(err)
	}
}

// end waits until the execution of the intent is over, and gives its records.
func (b *bench) end(intent *events.Intent) []*events.Execution {
	b.t.Helper()
	consumer, err := b.js.OrderedConsumer(b.ctx, streams.Executions, jetstream.OrderedConsumerConfig{
		FilterSubjects: []string{streams.ExecutionSubject(intent.IntentID, b.executor)},
	})
	if err != nil {
		b.t.Fatal(err)
	}
	messages, err := consumer.Messages()
	if err != nil {
		b.t.Fatal(err)
	}
	defer messages.Stop()
	var records []*events.Execution
	for {
		msg, err := messages.Next(jetstream.NextContext(b.ctx))
		if err != nil {
			b.t.Fatalf("the execution did not end within %s: %v", patience, err)
		}
		_, data, err := events.ReadEvent(events.Header(msg.Headers()), msg.Data())
		if err != nil {
			b.t.Fatal(err)
		}
		record, err := events.Decode[events.Execution](data)
		if err != nil {
			b.t.Fatal(err)
		}
		if records = append(records, record); record.Status.Terminal() {
			return records
		}
	}
}

func (b *bench) wantStatus(records []*events.Execution, want events.ExecutionStatus) {
	b.t.Helper()
	if last := records[len(records)-1]; last.Status != want {
		b.t.Errorf("the execution ended %s, reason %q; want %s", last.Status, last.Reason, want)
	}
}

func (b *bench) wantEffects(want int) {
	b.t.Helper()
	if got := b.Effects(b.intent.IntentID); got != want {
		b.t.Errorf("%d effects, want %d", got, want)
	}
}

func (b *bench) admitted() {
	b.process(b.New())
	b.propose(b.intent)
	b.wantStatus(b.end(b.intent), events.ExecutionCompleted)
	b.wantEffects(1)
}

func (b *bench) repeated() {
	permit := b.permit()
	var results []*events.Packet
	for range 2 { // two replicas, neither of which knows of the other
		ctx, cancel := context.WithTimeout(b.ctx, b.Grant.WithDefaults().Timeout)
		packet, err := b.New().Execute(ctx, b.intent, permit)
		cancel()
		if err != nil {
			b.t.Fatal(err)
		}
		results = append(results, packet)
	}
	b.wantEffects(1)
	first, err := events.Encode(results[0])
	if err != nil {
		b.t.Fatal(err)
	}
	if second, err := events.Encode(results[1]); err != nil || !slices.Equal(first, second) {
		b.t.Errorf("the same intent gave another result the second time: %v", err)
	}
}

func (b *bench) permit() executors.Permit {
	return executors.Permit{
		Executor: b.executor, Grant: b.Grant.WithDefaults(), Attempt: 1, Accepted: events.Acceptance{
			Authority: events.AuthorityGrant, By: "sha256_" + events.SHA256(nil), Budget: b.intent.Budget, WriteScope: b.intent.RequestedWriteScope,
		},
	}
}

// crashed cuts the connection of a process when its effect has taken place and nothing of that is recorded. With one
// attempt the outcome is then unknown; with more, another replica takes over.
func (b *bench) crashed() {
	nc := b.connect()
	crashed := make(chan struct{})
	inner := b.New()
	stop := b.process(executors.Func(func(ctx context.Context, intent *events.Intent, permit executors.Permit) (*events.Packet, error) {
		packet, err := inner.Execute(ctx, intent, permit)
		nc.Close()
		close(crashed)
		return packet, err
	}), func(o *executors.Options) { o.Conn = nc })
	b.propose(b.intent)
	select {
	case <-crashed:
	case <-b.ctx.Done():
		b.t.Fatal("the effect was never called")
	}
	if err := stop(); !errors.Is(err, executors.ErrClosed) && err != nil {
		b.t.Fatal(err)
	}
	b.process(b.New(), func(o *executors.Options) {
		o.Now = func() time.Time { return time.Now().Add(time.Hour) } // the lease has passed
	})
	records := b.end(b.intent)
	want := events.ExecutionCompleted
	if b.intent.Budget.MaxAttempts == 1 {
		want = events.ExecutionFailed
	}
	b.wantStatus(records, want)
	b.wantEffects(1)
}

func (b *bench) refused() {
	b.process(b.New())
	beyond := *b.intent
	beyond.RequestedWriteScope = []string{"executortest.not_granted"}
	b.propose(&beyond)
	records := b.end(&beyond)
	b.wantStatus(records, events.ExecutionRefused)
	if last := records[len(records)-1]; last.Reason != events.ExecutionScopeNotGranted || len(records) != 1 {
		b.t.Errorf("%d records, the last with reason %q; want one, %s", len(records), last.Reason, events.ExecutionScopeNotGranted)
	}
	b.wantEffects(0)
}

// late calls the executor past its deadline: it must come back, and must not report what it did not wait for.
func (b *bench) late() {
	ctx, cancel := context.WithCancel(b.ctx)
	cancel()
	returned := make(chan *events.Packet, 1)
	go func() {
		packet, err := b.New().Execute(ctx, b.intent, b.permit())
		if err != nil {
			packet = nil
		}
		returned <- packet
	}()
	select {
	case packet := <-returned:
		if packet != nil && b.Effects(b.intent.IntentID) == 0 {
			b.t.Error("it gave a result and had no effect")
		}
	case <-time.After(time.Second):
		b.t.Error("it went on for a second after its context had ended")
	}
}

func (b *bench) stopped() {
	begun, goOn := make(chan struct{}), make(chan struct{})
	inner := b.New()
	stop := b.process(executors.Func(func(ctx context.Context, intent *events.Intent, permit executors.Permit) (*events.Packet, error) {
		close(begun)
		<-goOn
		return inner.Execute(ctx, intent, permit)
	}))
	b.propose(b.intent)
	select {
	case <-begun:
	case <-b.ctx.Done():
		b.t.Fatal("the effect was never called")
	}
	ended := make(chan error, 1)
	go func() { ended <- stop() }()
	close(goOn)
	if err := <-ended; err != nil {
		b.t.Errorf("Run: %v", err)
	}
	b.wantStatus(b.end(b.intent), events.ExecutionCompleted)
	b.wantEffects(1)
}
