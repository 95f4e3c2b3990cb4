package e2e

import (
	"fmt"
	"strconv"
	"sync"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/afterwrite/afterwrite/dispatcher/registry"
	"github.com/afterwrite/afterwrite/events"
	"github.com/afterwrite/afterwrite/streams"
)

const (
	probeCapability = "probe"
	probeKind       = "probe.noted"
)

// probe is a hook and its provider, which answers as the test says and remembers every call.
type probe struct {
	registration events.Registration
	// limits are members of the hook file beside the registration, as in `"max_in_flight":1`.
	limits string
	// answer is called beside others, each call in a goroutine of its own.
	answer func(call) answer

	mu    sync.Mutex
	calls []call
}

// call is one call of a probe.
type call struct {
	// number counts the calls of the probe from 1.
	number int
	data   []byte
	input  *events.HookInput
}

// answer is what a probe says; the zero one is silence.
type answer struct {
	header events.Header
	data   []byte
}

// newProbe is the hook probe.<name>, with a generous budget.
func newProbe(name string, answer func(call) answer) *probe {
	return &probe{
		registration: events.Registration{
			SchemaVersion:      events.RegistrationSchema,
			HookID:             probeCapability + "." + name,
			CapabilityID:       probeCapability,
			Phase:              events.PostWriteback,
			EventKinds:         events.EventKinds(),
			IntentKinds:        []events.IntentKind{probeKind},
			RequestedReadScope: []events.ReadScope{events.SettlementIdentity, events.BoundedEventProjection},
			Budget: events.HookBudget{
				MaxInvocationsPerDispatch: 16, MaxIntentsPerDispatch: 4, MaxResultBytes: 16 << 10, TimeoutMillis: 10_000,
			},
			FailurePolicy: events.Isolate,
		},
		answer: answer,
	}
}

func (p *probe) id() events.HookID { return p.registration.HookID }

// file is the hook file by which the probe is installed.
func (p *probe) file(t *testing.T) registry.File {
	t.Helper()
	registration, err := events.Encode(&p.registration)
	if err != nil {
		t.Fatal(err)
	}
	limits := p.limits
	if limits != "" {
		limits += ","
	}
	return registry.File{Name: p.id() + ".json", Data: fmt.Appendf(nil,
		`{%s"registration":%s,"payload_schemas":{"`+probeKind+`":{"type":"object","properties":{"note":{"type":"string"}},"required":["note"]}}}`,
		limits, registration)}
}

// dispatch is the identity of the probe's dispatch of the receipt.
func (p *probe) dispatch(r *events.Receipt) events.DispatchID {
	return events.DispatchIdentity(r.Identity(), p.id(), p.registration.CapabilityID, p.registration.Digest(), r.EventKind)
}

// made is every call so far.
func (p *probe) made() []call {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]call(nil), p.calls...)
}

// serve answers the probe's calls until stop is called or the test ends.
func (w *world) serve(p *probe) (stop func()) {
	w.t.Helper()
	nc := w.connect()
	var handling sync.WaitGroup
	sub, err := nc.QueueSubscribe(streams.CallSubject(p.id()), p.id(), func(m *nats.Msg) {
		handling.Go(func() { p.handle(nc, m) })
	})
	if err == nil {
		err = nc.Flush()
	}
	if err != nil {
		w.t.Fatal(err)
	}
	stop = sync.OnceFunc(func() {
		_ = sub.Unsubscribe() // what the broker has not handed on, nobody answers
		handling.Wait()
	})
	w.t.Cleanup(stop)
	return stop
}

func (p *probe) handle(nc *nats.Conn, m *nats.Msg) {
	input, err := events.Decode[events.HookInput](m.Data)
	if err != nil {
		panic(err) // the dispatcher sends no other
	}
	p.mu.Lock()
	c := call{number: len(p.calls) + 1, data: m.Data, input: input}
	p.calls = append(p.calls, c)
	p.mu.Unlock()
	if a := p.answer(c); a.header != nil || a.data != nil {
		_ = nc.PublishMsg(&nats.Msg{Subject: m.Reply, Header: nats.Header(a.header), Data: a.data}) // nobody may be left to ask
	}
}

// proposes answers with one intent about the dispatch, the same for the same input.
func proposes(c call) answer { return c.propose(c.note("seen")) }

// silent never answers.
func silent(call) answer { return answer{} }

// raises answers as a provider does whose hook failed.
func raises(call) answer {
	return answer{header: events.Header{micro.ErrorCodeHeader: {"500"}, micro.ErrorHeader: {"the provider failed"}}}
}

// proposesCall answers with an intent that is another one at each call.
func proposesCall(c call) answer { return c.propose(c.note("call_" + strconv.Itoa(c.number))) }

// note is an intent whose payload says so.
func (c call) note(text string) events.Intent {
	payload := jsontext.Value(`{"note":"` + text + `"}`)
	return events.Intent{
		SchemaVersion:       events.IntentSchema,
		IntentID:            events.IntentIdentity(c.input.DispatchID, probeKind, "v0", payload),
		HookID:              c.input.HookID,
		CapabilityID:        c.input.CapabilityID,
		SourceDispatchID:    c.input.DispatchID,
		IntentKind:          probeKind,
		Operation:           "note",
		PolicyVersion:       "v0",
		Payload:             payload,
		Budget:              events.IntentBudget{MaxAttempts: 1, MaxResultBytes: 1024},
		RequestedWriteScope: []string{},
		FailurePolicy:       events.Isolate,
	}
}

// propose answers with the intents, or, without any, that the receipt does not matter.
func (c call) propose(intents ...events.Intent) answer {
	result := &events.HookResult{
		SchemaVersion: events.HookResultSchema,
		DispatchID:    c.input.DispatchID,
		HookID:        c.input.HookID,
		CapabilityID:  c.input.CapabilityID,
		Status:        events.ResultNotApplicable,
		Intents:       intents,
	}
	if len(intents) > 0 {
		result.Status = events.ResultProposed
	}
	return c.says(events.Canonical(result))
}

// says answers with the data as the body of a result event, whatever it is.
func (c call) says(data []byte) answer {
	return answer{events.NewEnvelope(c.input.DispatchID, "probe", events.HookResultSchema, "").Header(), data}
}

// gate holds back whoever waits at it until it is opened.
type gate chan struct{}

func (g gate) open() { close(g) }

// wait waits until the gate is open, or the test is over.
func (w *world) wait(g gate) {
	select {
	case <-g:
	case <-w.ctx.Done():
	}
}

// inOrder is a probe's way of saying one thing at each call, the last from then on.
func inOrder(answers ...func(call) answer) func(call) answer {
	return func(c call) answer { return answers[min(c.number, len(answers))-1](c) }
}
