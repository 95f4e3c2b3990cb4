package providertest

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/afterwrite/afterwrite/events"
	"github.com/afterwrite/afterwrite/streams"
)

// Run judges the provider on the broker at url, where nothing else may serve its hook.
func Run(t *testing.T, url string, p Provider) {
	if p.Start == nil || p.Hook.Registration == nil || len(p.Hook.Inputs) == 0 {
		t.Fatal("the kit needs Start, a registration, and an input at least")
	}
	for name, test := range map[string]func(*testing.T, string, Provider){
		"it is discovered at its subject and queue group":            discovered,
		"a valid input gives a valid result bound to its dispatch":   validResult,
		"the trace of a call goes on with its answer":                traced,
		"equal inputs give equal bytes, from every replica":          pure,
		"what breaks the contract is refused and harms no later":     refused,
		"concurrent calls do not mix":                                concurrent,
		"replicas share the calls, and each call is answered once":   shared,
		"stopping answers every call it was sent":                    stops,
		"a valid request gives a response that satisfies its schema": served,
		"a request that breaks the contract is refused":              unserved,
	} {
		t.Run(name, func(t *testing.T) { test(t, url, p) })
	}
}

func discovered(t *testing.T, url string, p Provider) {
	c, _ := p.start(t, url, 1)
	want := map[string]string{streams.CallSubject(p.Hook.Registration.HookID): "the hook"}
	for _, s := range p.Services {
		want[streams.ServiceSubject(s.Name)] = "the service " + s.Name
	}
	groups := map[string]string{}
	for _, endpoint := range c.discover(p.Hook.Registration, 1)[0].Endpoints {
		groups[endpoint.Subject] = endpoint.QueueGroup
	}
	for subject, what := range want {
		switch group, ok := groups[subject]; {
		case !ok:
			t.Errorf("%s is no endpoint at %s", what, subject)
		case group == "" || group == micro.DefaultQueueGroup:
			t.Errorf("%s has the queue group %q, want one of its own", what, group)
		}
	}
}

func validResult(t *testing.T, url string, p Provider) {
	c, _ := p.start(t, url, 1)
	proposed := 0
	for _, in := range p.Hook.Inputs {
		envelope, data := c.document(c.send(c.call(in)), events.HookResultSchema)
		if envelope.ID != in.DispatchID {
			t.Errorf("the answer's id is %s, want the dispatch %s", envelope.ID, in.DispatchID)
		}
		result := p.Hook.check(t, in, data)
		proposed += len(result.Intents)
	}
	if proposed == 0 {
		t.Error("no input led to a proposal: the kit has seen no intent")
	}
}

// check holds a result against the contract as a dispatcher would.
func (h *Hook) check(t *testing.T, in *events.HookInput, data []byte) *events.HookResult {
	t.Helper()
	budget := h.Registration.Budget
	if len(data) > budget.MaxResultBytes {
		t.Errorf("the result has %d bytes, the budget %d", len(data), budget.MaxResultBytes)
	}
	result, err := events.Decode[events.HookResult](data)
	if err != nil {
		t.Fatalf("the result is none: %v", err)
	}
	if result.DispatchID != in.DispatchID || result.HookID != in.HookID || result.CapabilityID != in.CapabilityID {
		t.Error("the result names another dispatch, hook or capability")
	}
	if len(result.Intents) > budget.MaxIntentsPerDispatch {
		t.Errorf("%d intents, the budget is %d", len(result.Intents), budget.MaxIntentsPerDispatch)
	}
	ids := map[events.IntentID]bool{}
	for i := range result.Intents {
		intent := &result.Intents[i]
		if intent.SourceDispatchID != in.DispatchID || intent.HookID != in.HookID || intent.CapabilityID != in.CapabilityID {
			t.Errorf("intent %d names another dispatch, hook or capability", i)
		}
		if want := events.IntentIdentity(in.DispatchID, intent.IntentKind, intent.PolicyVersion, intent.Payload); intent.IntentID != want {
			t.Errorf("intent %d has the id %s, want %s", i, intent.IntentID, want)
		}
		if ids[intent.IntentID] {
			t.Errorf("intent %d stands twice", i)
		}
		ids[intent.IntentID] = true
		if !slices.Contains(h.Registration.IntentKinds, intent.IntentKind) {
			t.Errorf("intent %d is of the kind %s, which the registration does not declare", i, intent.IntentKind)
		} else if schema := h.PayloadSchemas[intent.IntentKind]; schema == nil {
			t.Errorf("the kit has no payload schema of %s", intent.IntentKind)
		} else if err := schema.Check(intent.Payload); err != nil {
			t.Errorf("intent %d: %v", i, err)
		}
		if intent.Claims() {
			t.Errorf("intent %d claims an authority or an effect", i)
		}
		if rule := intent.CheckBoundary(); rule != "" {
			t.Errorf("intent %d is not public-safe: %s", i, rule)
		}
	}
	return result
}

func traced(t *testing.T, url string, p Provider) {
	c, _ := p.start(t, url, 1)
	in := p.Hook.Inputs[0]
	sent := events.NewEnvelope(in.DispatchID, source, events.HookInputSchema, "2026-06-23T17:00:00Z")
	sent.TraceParent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	sent.TraceState = "vendor=1"
	msg := c.call(in)
	maps.Copy(msg.Header, sent.Header())
	got, _ := c.document(c.send(msg), events.HookResultSchema)
	if got.TraceParent != sent.TraceParent || got.TraceState != sent.TraceState {
		t.Errorf("traceparent %q, tracestate %q; want %q, %q", got.TraceParent, got.TraceState, sent.TraceParent, sent.TraceState)
	}
}

func pure(t *testing.T, url string, p Provider) {
	c, stop := p.start(t, url, 2)
	first := make([][]byte, len(p.Hook.Inputs))
	ask := func(again string) {
		for i, in := range p.Hook.Inputs {
			_, data := c.document(c.send(c.call(in)), events.HookResultSchema)
			if first[i] == nil {
				first[i] = data
			}
			if !bytes.Equal(first[i], data) {
				t.Errorf("%s, %s was answered otherwise than at first", again, in.DispatchID)
			}
		}
	}
	for range 10 {
		ask("by two replicas")
	}
	stop[0]()
	ask("by the second replica")
	c, _ = p.start(t, url, 1)
	c.discover(p.Hook.Registration, 2) // the one that goes, and the one that came
	stop[1]()
	ask("by a replica started later")
}

func refused(t *testing.T, url string, p Provider) {
	c, _ := p.start(t, url, 1)
	in := p.Hook.Inputs[0]
	valid := c.call(in)
	for name, spoil := range map[string]func(*nats.Msg){
		"no data":              func(m *nats.Msg) { m.Data = nil },
		"no JSON":              func(m *nats.Msg) { m.Data = []byte(secret) },
		"another JSON type":    func(m *nats.Msg) { m.Data = []byte(`["` + secret + `"]`) },
		"half a document":      func(m *nats.Msg) { m.Data = m.Data[:len(m.Data)/2] },
		"two documents":        func(m *nats.Msg) { m.Data = append(m.Data, m.Data...) },
		"an unknown member":    member(`"` + secret + `":1`),
		"a member twice":       member(`"hook_id":"` + secret + `"`),
		"a missing member":     replace(`"schema_version":"`+events.HookInputSchema+`",`, ""),
		"another schema":       replace(events.HookInputSchema, secret),
		"another hook":         replace(`"hook_id":"`+in.HookID, `"hook_id":"`+in.HookID+"_"+secret),
		"another capability":   replace(`"capability_id":"`+in.CapabilityID, `"capability_id":"`+in.CapabilityID+"_"+secret),
		"a broken dispatch id": replace(in.DispatchID, secret),
		"invalid UTF-8":        replace(in.DispatchID, secret+"\xff"),
		"a fraction":           member(`"` + secret + `":1.5`),
		"deep nesting":         func(m *nats.Msg) { m.Data = []byte(strings.Repeat("[", 10_000) + strings.Repeat("]", 10_000)) },
		"much too large":       func(m *nats.Msg) { m.Data = []byte(`{"` + secret + `":"` + strings.Repeat("a", 512<<10) + `"}`) },
		"no envelope":          func(m *nats.Msg) { m.Header = nats.Header{} },
		"another event":        func(m *nats.Msg) { retype(m, events.HookInputSchema, events.HookResultSchema) },
		"a broken timeout":     func(m *nats.Msg) { m.Header.Set(events.HeaderTimeout, secret) },
		"no time at all":       func(m *nats.Msg) { m.Header.Set(events.HeaderTimeout, "0") },
	} {
		t.Run(name, func(t *testing.T) {
			c := &client{t, c.nc}
			spoiled := &nats.Msg{Subject: valid.Subject, Header: maps.Clone(valid.Header), Data: bytes.Clone(valid.Data)}
			spoil(spoiled)
			c.refusal(c.send(spoiled))
			c.document(c.send(valid), events.HookResultSchema)
		})
	}
}

// member puts one more member into the document.
func member(text string) func(*nats.Msg) {
	return func(m *nats.Msg) { m.Data = slices.Concat(m.Data[:len(m.Data)-1], []byte(","+text+"}")) }
}

func replace(old, text string) func(*nats.Msg) {
	return func(m *nats.Msg) { m.Data = bytes.Replace(m.Data, []byte(old), []byte(text), 1) }
}

// retype says in the envelope that the event is about another document.
func retype(m *nats.Msg, from, to string) {
	old, text := events.EventType(from), events.EventType(to)
	for name, values := range m.Header {
		if len(values) == 1 && values[0] == old {
			m.Header[name] = []string{text}
		}
	}
}

func concurrent(t *testing.T, url string, p Provider) {
	c, _ := p.start(t, url, 1)
	const callers, each = 16, 20
	var group sync.WaitGroup
	failures := make(chan string, callers)
	for range callers {
		group.Go(func() {
			for i := range each {
				in := p.Hook.Inputs[i%len(p.Hook.Inputs)]
				reply, err := c.nc.RequestMsg(c.call(in), patience)
				if err != nil {
					failures <- err.Error()
					return
				}
				result, err := events.Decode[events.HookResult](reply.Data)
				if err != nil || result.DispatchID != in.DispatchID {
					failures <- fmt.Sprintf("the call of %s was not answered with its own result: %v", in.DispatchID, err)
					return
				}
			}
		})
	}
	group.Wait()
	close(failures)
	for failure := range failures {
		t.Error(failure)
	}
}

func shared(t *testing.T, url string, p Provider) {
	c, _ := p.start(t, url, 2)
	const calls = 200
	replies := c.pipeline(p.Hook.Inputs[0], calls)
	replies.await(calls)
	// Whatever a replica answered twice is here before the answer to a call made later.
	c.send(c.call(p.Hook.Inputs[0]))
	if n, _, err := replies.Pending(); err != nil || n != 0 {
		t.Errorf("%d answers more than calls (%v)", n, err)
	}
	subject := streams.CallSubject(p.Hook.Registration.HookID)
	for _, stats := range ask[micro.Stats](c, micro.StatsVerb, p.Hook.Registration, 2) {
		for _, endpoint := range stats.Endpoints {
			if endpoint.Subject == subject && endpoint.NumRequests == 0 {
				t.Errorf("replica %s was never asked", stats.ID)
			}
		}
	}
}

func stops(t *testing.T, url string, p Provider) {
	c, stop := p.start(t, url, 1)
	const calls = 200
	replies := c.pipeline(p.Hook.Inputs[0], calls)
	stop[0]()
	// The broker has every answer of a provider that has stopped, so after a flush they are here.
	if err := c.nc.Flush(); err != nil {
		t.Fatal(err)
	}
	if n, _, err := replies.Pending(); err != nil || n != calls {
		t.Fatalf("%d of %d calls were answered (%v)", n, calls, err)
	}
	replies.await(calls)
	reply, err := c.nc.RequestMsg(c.call(p.Hook.Inputs[0]), patience)
	if err == nil {
		t.Errorf("still answers after it stopped: %s", reply.Header.Get(micro.ErrorHeader))
	}
}

type pipeline struct {
	*nats.Subscription
	*client
}

// pipeline sends calls without waiting for their answers. When it returns, the broker has passed them on.
func (c *client) pipeline(in *events.HookInput, calls int) *pipeline {
	c.Helper()
	inbox := c.nc.NewInbox()
	replies, err := c.nc.SubscribeSync(inbox)
	if err != nil {
		c.Fatal(err)
	}
	for range calls {
		msg := c.call(in)
		msg.Reply = inbox
		if err := c.nc.PublishMsg(msg); err != nil {
			c.Fatal(err)
		}
	}
	if err := c.nc.Flush(); err != nil {
		c.Fatal(err)
	}
	return &pipeline{replies, c}
}

// await waits for the answers, each of which must be a result.
func (p *pipeline) await(n int) {
	p.Helper()
	for i := range n {
		reply, err := p.NextMsg(patience)
		if err != nil {
			p.Fatalf("%d of %d calls were answered: %v", i, n, err)
		}
		p.document(reply, events.HookResultSchema)
	}
}

func served(t *testing.T, url string, p Provider) {
	c, _ := p.start(t, url, 1)
	for _, s := range p.Services {
		for i, payload := range s.Payloads {
			key := fmt.Sprintf("key_%d", i)
			_, first := c.document(c.send(c.request(s.Name, key, payload)), events.ServiceResponseSchema)
			response, err := events.Decode[events.ServiceResponse](first)
			if err != nil {
				t.Fatalf("%s: the response is none: %v", s.Name, err)
			}
			if response.IdempotencyKey != key || response.Service != s.Name {
				t.Errorf("%s: the response is for %s with the key %s", s.Name, response.Service, response.IdempotencyKey)
			}
			if err := s.Returns.Check(response.Payload); err != nil {
				t.Errorf("%s: %v", s.Name, err)
			}
		}
	}
}

func unserved(t *testing.T, url string, p Provider) {
	c, _ := p.start(t, url, 1)
	for _, s := range p.Services {
		if len(s.Payloads) == 0 {
			t.Errorf("%s: the kit has no payload", s.Name)
			continue
		}
		valid := c.request(s.Name, "key", s.Payloads[0])
		for name, spoil := range map[string]func(*nats.Msg){
			"no JSON":           func(m *nats.Msg) { m.Data = []byte(secret) },
			"an unknown member": member(`"` + secret + `":1`),
			"a member twice":    member(`"service":"` + secret + `"`),
			"another service":   replace(`"service":"`+s.Name, `"service":"`+s.Name+"_"+secret),
			"no time at all":    replace(`"timeout_ms":10000`, `"timeout_ms":0`),
			"a fraction":        replace(`"timeout_ms":10000`, `"timeout_ms":1e3`),
			"a strange payload": func(m *nats.Msg) { m.Data = c.request(s.Name, "key", []byte(`{"`+secret+`":"`+secret+`"}`)).Data },
			"no envelope":       func(m *nats.Msg) { m.Header = nats.Header{} },
			"another event":     func(m *nats.Msg) { retype(m, events.ServiceRequestSchema, events.HookInputSchema) },
		} {
			t.Run(name, func(t *testing.T) {
				c := &client{t, c.nc}
				spoiled := &nats.Msg{Subject: valid.Subject, Header: maps.Clone(valid.Header), Data: bytes.Clone(valid.Data)}
				spoil(spoiled)
				c.refusal(c.send(spoiled))
				c.document(c.send(valid), events.ServiceResponseSchema)
			})
		}
	}
}
