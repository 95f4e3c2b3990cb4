package executors

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/afterwrite/afterwrite/events"
	"github.com/afterwrite/afterwrite/internal/natsembed"
	"github.com/afterwrite/afterwrite/streams"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	testKind     = "periodic_report.trigger_evaluation"
	testExecutor = "report_evaluator"
	testDispatch = "pwh_sha256_8211b0b75999a7809dafed006f1a7a91a50702347129c701fc3a238b29755c4e"
)

// broker is an embedded broker with the topology applied, and a client of it.
type broker struct {
	t   testing.TB
	ctx context.Context
	url string
	nc  *nats.Conn
	js  jetstream.JetStream
}

func startBroker(tb testing.TB) *broker {
	tb.Helper()
	server := natsembed.StartTest(tb)
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	tb.Cleanup(cancel)
	nc, err := nats.Connect(server.ClientURL())
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		tb.Fatal(err)
	}
	if _, err := streams.Apply(ctx, js, streams.Default(streams.Settings{Storage: streams.MemoryStorage})); err != nil {
		tb.Fatal(err)
	}
	return &broker{tb, ctx, server.ClientURL(), nc, js}
}

// options are a test's: one kind, everything proposed so far, and pauses that a test can wait for.
func (b *broker) options(grants ...Grant) Options {
	return Options{
		Executor: testExecutor, Grants: grants, URL: b.url,
		AckWait: 200 * time.Millisecond, HandBack: 50 * time.Millisecond, DrainTimeout: 5 * time.Second,
	}
}

func testGrant(kind events.IntentKind) Grant {
	return Grant{
		IntentKind: kind, From: streams.StartAll, Ceilings: events.IntentBudget{MaxAttempts: 3, MaxResultBytes: 16384},
		WriteScope: []string{"reports.draft", "reports.index"}, Timeout: 2 * time.Second, Service: "test.unused",
	}
}

// running is a process that a test started.
type running struct {
	*Process
	stop context.CancelFunc
	done chan error
}

// start runs a process until the test ends, or stops it.
func (b *broker) start(opts Options) *running {
	b.t.Helper()
	p, err := New(opts)
	if err != nil {
		b.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.ctx)
	r := &running{p, cancel, make(chan error, 1)}
	go func() { r.done <- p.Run(ctx) }()
	select {
	case <-p.Ready():
	case err := <-r.done:
		b.t.Fatalf("the process ended before it was ready: %v", err)
	}
	b.t.Cleanup(func() { r.halt(b.t) })
	return r
}

// halt stops the process and waits for its end. A test may call it more than once.
func (r *running) halt(tb testing.TB) {
	r.stop()
	if err, first := <-r.done; first {
		if err != nil && !errors.Is(err, ErrClosed) {
			tb.Errorf("Run: %v", err)
		}
		close(r.done)
	}
}

// intentOf builds an intent that admission has nothing against, and lets a test change it before its id is computed.
func intentOf(kind events.IntentKind, payload string, change ...func(*events.Intent)) *events.Intent {
	canonical, err := events.Canonicalize([]byte(payload))
	if err != nil {
		panic(err)
	}
	intent := &events.Intent{
		Budget: events.IntentBudget{MaxAttempts: 1, MaxResultBytes: 16384}, CapabilityID: "periodic_report",
		FailurePolicy: events.Isolate, HookID: "periodic_report.runtime_trigger", IntentKind: kind,
		Operation: "evaluate_runtime_trigger", Payload: canonical, PolicyVersion: "weekly_v0",
		RequestedWriteScope: []string{}, SchemaVersion: events.IntentSchema, SourceDispatchID: testDispatch,
	}
	for _, f := range change {
		f(intent)
	}
	intent.IntentID = events.IntentIdentity(intent.SourceDispatchID, intent.IntentKind, intent.PolicyVersion, intent.Payload)
	return intent
}

// propose publishes the intent as a dispatcher does.
func (b *broker) propose(intent *events.Intent) {
	b.t.Helper()
	data, err := events.Encode(intent)
	if err != nil {
		b.t.Fatal(err)
	}
	b.publish(streams.IntentSubject(intent.IntentID, intent.IntentKind), data)
}

func (b *broker) publish(subject string, data []byte) {
	b.t.Helper()
	envelope := events.NewEnvelope("test", "afterwrite/dispatcher", events.IntentSchema, events.NewTimestamp(time.Now()))
	msg := &nats.Msg{Subject: subject, Header: nats.Header(envelope.Header()), Data: data}
	if _, err := b.js.PublishMsg(b.ctx, msg, jetstream.WithExpectLastSequencePerSubject(0)); err != nil {
		b.t.Fatal(err)
	}
}

// await reads the records of one execution until one has the status, and gives them all.
func (b *broker) await(intentID events.IntentID, executor events.ExecutorID, status events.ExecutionStatus) []*events.Execution {
	b.t.Helper()
	consumer, err := b.js.OrderedConsumer(b.ctx, streams.Executions, jetstream.OrderedConsumerConfig{
		FilterSubjects: []string{streams.ExecutionSubject(intentID, executor)},
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
			b.t.Fatalf("waiting for %s after %v: %v", status, trail(records), err)
		}
		_, record, err := decodeExecution(msg.Headers(), msg.Data())
		if err != nil {
			b.t.Fatal(err)
		}
		if records = append(records, record); record.Status == status {
			return records
		}
	}
}

// history is everything recorded about an intent by now.
func (b *broker) history(intentID events.IntentID) []*events.Execution {
	b.t.Helper()
	var records []*events.Execution
	for stored, err := range History(b.ctx, b.js, intentID) {
		if err != nil {
			b.t.Fatal(err)
		}
		records = append(records, stored.Document)
	}
	return records
}

// trail is the records in words: status, and the reason where there is one.
func trail(records []*events.Execution) []string {
	var out []string
	for _, r := range records {
		word := string(r.Status)
		if r.Reason != "" {
			word += ":" + string(r.Reason)
		}
		out = append(out, word)
	}
	return out
}

// effects counts the calls of an effect by idempotency key, and answers each with a small packet.
type effects struct {
	calls chan string
	err   func(call int) error
}

func newEffects() *effects { return &effects{calls: make(chan string, 100)} }

func (e *effects) Execute(_ context.Context, intent *events.Intent, permit Permit) (*events.Packet, error) {
	e.calls <- intent.IntentID
	if e.err != nil {
		if err := e.err(permit.Attempt); err != nil {
			return nil, err
		}
	}
	return &events.Packet{Data: jsontext.Value(`{"done":true}`), SchemaVersion: "test_result_v0"}, nil
}

func (e *effects) keys() []string {
	var keys []string
	for {
		select {
		case key := <-e.calls:
			keys = append(keys, key)
		default:
			return keys
		}
	}
}

// with gives the options an executor of their only kind.
func with(opts Options, e Executor) Options {
	opts.Executors = map[events.IntentKind]Executor{}
	for _, g := range opts.Grants {
		opts.Executors[g.IntentKind] = e
	}
	return opts
}
