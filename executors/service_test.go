package executors

import (
	"net"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/afterwrite/afterwrite/events"
	"github.com/afterwrite/afterwrite/streams"
)

const testService = "test.evaluate"

// answering serves the test's service with whatever it is told to answer, and gives the requests that it saw.
func (b *broker) answering(answer func(r *events.ServiceRequest) *nats.Msg) <-chan *events.ServiceRequest {
	b.t.Helper()
	requests := make(chan *events.ServiceRequest, 100)
	sub, err := b.nc.Subscribe(streams.ServiceSubject(testService), func(m *nats.Msg) {
		_, data, err := events.ReadEvent(events.Header(m.Header), m.Data)
		if err != nil {
			b.t.Errorf("the request's envelope: %v", err)
			return
		}
		request, err := events.Decode[events.ServiceRequest](data)
		if err != nil {
			b.t.Errorf("the request: %v", err)
			return
		}
		requests <- request
		if reply := answer(request); reply != nil {
			if err := m.RespondMsg(reply); err != nil {
				b.t.Error(err)
			}
		}
	})
	if err != nil {
		b.t.Fatal(err)
	}
	if err := b.nc.Flush(); err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = sub.Unsubscribe() })
	return requests
}

// response is what a service answers to the request, with changes.
func response(r *events.ServiceRequest, payload string, change ...func(*events.ServiceResponse)) *nats.Msg {
	doc := &events.ServiceResponse{
		IdempotencyKey: r.IdempotencyKey, Payload: jsontext.Value(payload), SchemaVersion: events.ServiceResponseSchema, Service: r.Service,
	}
	for _, f := range change {
		f(doc)
	}
	data, err := events.Encode(doc)
	if err != nil {
		panic(err)
	}
	envelope := events.NewEnvelope(r.IdempotencyKey, "test", events.ServiceResponseSchema, events.NewTimestamp(time.Now()))
	return &nats.Msg{Header: nats.Header(envelope.Header()), Data: data}
}

func serviceGrant() Grant {
	g := testGrant(testKind)
	g.Service, g.StateKey, g.EvaluatedAt, g.Policy = testService, "goal_id", "observed_at", jsontext.Value(`{"b":2,"a":1}`)
	return g
}

func TestTheServiceIsAskedWithTheIntentThePolicyAndTheState(t *testing.T) {
	b := startBroker(t)
	if _, err := b.js.Publish(b.ctx, streams.StateSubject("g", testExecutor, testKind), []byte(`{"last":7}`)); err != nil {
		t.Fatal(err)
	}
	requests := b.answering(func(r *events.ServiceRequest) *nats.Msg {
		return response(r, `{"schema_version":"test_decision_v0","reason":"because"}`)
	})
	b.start(b.options(serviceGrant()))
	intent := intentOf(testKind, `{"goal_id":"g","observed_at":"2026-06-23T17:13:00+02:00"}`)
	b.propose(intent)
	records := b.await(intent.IntentID, testExecutor, events.ExecutionCompleted)
	document, err := events.Encode(intent)
	if err != nil {
		t.Fatal(err)
	}
	want := &events.ServiceRequest{
		IdempotencyKey: intent.IntentID, SchemaVersion: events.ServiceRequestSchema, Service: testService, TimeoutMillis: 2000,
		Payload: jsontext.Value(`{"evaluated_at":"2026-06-23T17:13:00+02:00","intents":[` + string(document) +
			`],"policy":{"a":1,"b":2},"state":{"last":7}}`),
	}
	if diff := cmp.Diff(want, <-requests); diff != "" {
		t.Errorf("request (-want +got):\n%s", diff)
	}
	result := &events.Packet{Data: jsontext.Value(`{"reason":"because","schema_version":"test_decision_v0"}`), SchemaVersion: "test_decision_v0"}
	if diff := cmp.Diff(result, records[len(records)-1].Result); diff != "" {
		t.Errorf("result (-want +got):\n%s", diff)
	}
}

func TestWhatAServiceAnswersInsteadOfAResultIsRecordedAsWhatItIs(t *testing.T) {
	const ok = `{"schema_version":"test_decision_v0"}`
	failure := func(code string) *nats.Msg {
		return &nats.Msg{Header: nats.Header{micro.ErrorCodeHeader: {code}, micro.ErrorHeader: {"text that may be private"}}}
	}
	for _, test := range []struct {
		name    string
		payload string
		answer  func(r *events.ServiceRequest) *nats.Msg
		want    string
	}{
		{"refused the request", "", func(*events.ServiceRequest) *nats.Msg { return failure("400") }, "failed:effect_refused"},
		{"failed", "", func(*events.ServiceRequest) *nats.Msg { return failure("500") }, "failed:effect_failed"},
		{"no event", "", func(*events.ServiceRequest) *nats.Msg { return &nats.Msg{Data: []byte(ok)} }, "failed:effect_failed"},
		{"another key", "", func(r *events.ServiceRequest) *nats.Msg {
			return response(r, ok, func(d *events.ServiceResponse) { d.IdempotencyKey = "other" })
		}, "failed:effect_failed"},
		{"another service", "", func(r *events.ServiceRequest) *nats.Msg {
			return response(r, ok, func(d *events.ServiceResponse) { d.Service = "test.other" })
		}, "failed:effect_failed"},
		{"no type", "", func(r *events.ServiceRequest) *nats.Msg { return response(r, `{"reason":"because"}`) }, "failed:result_malformed"},
		{"silence", "", func(*events.ServiceRequest) *nats.Msg { return nil }, "failed:effect_timed_out"},
		{"a payload without the time to decide for", `{"goal_id":"g"}`, nil, "failed:effect_refused"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			b := startBroker(t)
			if test.answer != nil {
				b.answering(test.answer)
			}
			grant := serviceGrant()
			grant.Timeout = 200 * time.Millisecond
			b.start(b.options(grant))
			payload := test.payload
			if payload == "" {
				payload = `{"goal_id":"g","observed_at":"2026-06-23T17:13:00Z"}`
			}
			intent := intentOf(testKind, payload)
			b.propose(intent)
			records := b.await(intent.IntentID, testExecutor, events.ExecutionFailed)
			if diff := cmp.Diff([]string{"claimed", "called", test.want}, trail(records)); diff != "" {
				t.Errorf("records (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAServiceThatIsNotThereYetIsAskedAgain(t *testing.T) {
	b := startBroker(t)
	opts := b.options(serviceGrant())
	paused := make(chan struct{})
	opts.Observe = func(e *events.Execution) {
		if e.Status == events.ExecutionPaused {
			close(paused)
		}
	}
	b.start(opts)
	intent := intentOf(testKind, `{"goal_id":"g","observed_at":"2026-06-23T17:13:00Z"}`)
	b.propose(intent)
	<-paused
	b.answering(func(r *events.ServiceRequest) *nats.Msg { return response(r, `{"schema_version":"test_decision_v0"}`) })
	want := []string{"claimed", "called", "paused:effect_not_started", "claimed", "called", "completed"}
	if diff := cmp.Diff(want, trail(b.await(intent.IntentID, testExecutor, events.ExecutionCompleted))); diff != "" {
		t.Errorf("records (-want +got):\n%s", diff)
	}
}

// recorder dials, and remembers where.
type recorder struct {
	mu    sync.Mutex
	dials []string
}

func (r *recorder) Dial(network, address string) (net.Conn, error) {
	r.mu.Lock()
	r.dials = append(r.dials, address)
	r.mu.Unlock()
	return net.Dial(network, address)
}

func TestNothingIsAskedBeforeAdmissionAndNothingIsDialledButTheBroker(t *testing.T) {
	b := startBroker(t)
	requests := b.answering(func(r *events.ServiceRequest) *nats.Msg {
		return response(r, `{"schema_version":"test_decision_v0"}`)
	})
	everything, err := b.nc.SubscribeSync("pwh.>") // what any process says, to streams and services alike
	if err != nil {
		t.Fatal(err)
	}
	dials := &recorder{}
	opts := b.options(serviceGrant())
	opts.Dialer = dials
	p := b.start(opts)
	refused := intentOf(testKind, `{"goal_id":"g","observed_at":"2026-06-23T17:13:00Z"}`, func(i *events.Intent) {
		i.RequestedWriteScope = []string{"reports.publish"}
	})
	b.propose(refused)
	b.await(refused.IntentID, testExecutor, events.ExecutionRefused)
	admitted := intentOf(testKind, `{"goal_id":"h","observed_at":"2026-06-23T17:13:00Z"}`)
	b.propose(admitted)
	b.await(admitted.IntentID, testExecutor, events.ExecutionCompleted)
	p.halt(t)
	if request := <-requests; request.IdempotencyKey != admitted.IntentID || len(requests) != 0 {
		t.Errorf("asked for %s and %d more, want only the admitted intent", request.IdempotencyKey, len(requests))
	}
	if err := b.nc.Flush(); err != nil {
		t.Fatal(err)
	}
	var said []string
	for n, _, _ := everything.Pending(); n > 0; n-- {
		msg, err := everything.NextMsgWithContext(b.ctx)
		if err != nil {
			t.Fatal(err)
		}
		said = append(said, msg.Subject)
	}
	want := []string{
		streams.IntentSubject(refused.IntentID, testKind), streams.ExecutionSubject(refused.IntentID, testExecutor),
		streams.IntentSubject(admitted.IntentID, testKind), streams.ExecutionSubject(admitted.IntentID, testExecutor),
		streams.ExecutionSubject(admitted.IntentID, testExecutor), streams.ServiceSubject(testService),
		streams.ExecutionSubject(admitted.IntentID, testExecutor),
	}
	if diff := cmp.Diff(want, said); diff != "" {
		t.Errorf("everything that was said, in order (-want +got):\n%s", diff)
	}
	broker := b.nc.ConnectedAddr()
	for _, address := range dials.dials {
		if address != broker {
			t.Errorf("dialled %s, and the broker is %s", address, broker)
		}
	}
	if len(dials.dials) != 1 {
		t.Errorf("%d dials, want 1", len(dials.dials))
	}
}
