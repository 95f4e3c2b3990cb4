package providertest

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/afterwrite/afterwrite/events"
	"github.com/afterwrite/afterwrite/streams"
)

// Provider is what [Run] judges.
type Provider struct {
	// Start starts one more replica, connected to the broker at url. stop asks it to stop and waits until it has.
	Start func(tb testing.TB, url string) (stop func())
	// Hook is the hook under test.
	Hook Hook
	// Services are those that the provider serves besides.
	Services []Service
}

// Hook is a hook with inputs that its provider takes.
type Hook struct {
	Registration *events.Registration
	// PayloadSchemas are those installed for the registration's intent kinds.
	PayloadSchemas map[events.IntentKind]*events.PayloadSchema
	// Inputs are of different dispatches. One of them at least must lead to a proposal.
	Inputs []*events.HookInput
}

// Service is a service with payloads that it takes.
type Service struct {
	Name string
	// Returns is the service's return schema.
	Returns  *events.PayloadSchema
	Payloads [][]byte
}

// patience bounds every wait of the kit. A provider that needs it has failed.
const patience = 10 * time.Second

// source names the kit in the events it sends.
const source = "afterwrite/providertest"

// client calls providers.
type client struct {
	testing.TB
	nc *nats.Conn
}

func connect(tb testing.TB, url string) *client {
	tb.Helper()
	nc, err := nats.Connect(url, nats.Name(source))
	if err != nil {
		tb.Fatalf("connect: %v", err)
	}
	tb.Cleanup(nc.Close)
	return &client{tb, nc}
}

// start starts n replicas and waits until all can be discovered at the subject.
func (p *Provider) start(tb testing.TB, url string, n int) (c *client, stop []func()) {
	tb.Helper()
	c = connect(tb, url)
	for range n {
		stopOne := p.Start(tb, url)
		stopped := false
		once := func() {
			if !stopped {
				stopped = true
				stopOne()
			}
		}
		tb.Cleanup(once)
		stop = append(stop, once)
	}
	c.discover(p.Hook.Registration, n)
	return c, stop
}

// discover waits for the micro info of n replicas that serve the hook.
func (c *client) discover(registration *events.Registration, n int) []micro.Info {
	c.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for ctx.Err() == nil {
		if found := ask[micro.Info](c, micro.InfoVerb, registration, n); len(found) >= n {
			return found
		}
	}
	c.Fatalf("%d replicas of %s were not discovered as micro services named %s", n, registration.HookID, streams.Token(registration.CapabilityID))
	return nil
}

// ask gathers up to n answers to one of micro's monitoring verbs, for as long as the broker takes to pass them on.
func ask[T any](c *client, verb micro.Verb, registration *events.Registration, n int) []T {
	c.Helper()
	subject, err := micro.ControlSubject(verb, streams.Token(registration.CapabilityID), "")
	if err != nil {
		c.Fatal(err)
	}
	inbox := c.nc.NewInbox()
	replies, err := c.nc.SubscribeSync(inbox)
	if err != nil {
		c.Fatal(err)
	}
	defer func() { _ = replies.Unsubscribe() }()
	if err := c.nc.PublishRequest(subject, inbox, nil); err != nil {
		c.Fatal(err)
	}
	var answers []T
	for len(answers) < n {
		reply, err := replies.NextMsg(200 * time.Millisecond)
		if err != nil || reply.Header.Get("Status") != "" {
			break // a timeout, or no responders yet
		}
		var answer T
		if err := json.Unmarshal(reply.Data, &answer); err != nil {
			c.Fatalf("%s answers %s with no JSON: %v", registration.CapabilityID, verb, err)
		}
		answers = append(answers, answer)
	}
	return answers
}

// message is a document as an event, ready to be sent and to be spoiled.
func (c *client) message(subject, id, schemaVersion string, document any) *nats.Msg {
	c.Helper()
	data, err := events.EncodeValue(document)
	if err != nil {
		c.Fatal(err)
	}
	envelope := events.NewEnvelope(id, source, schemaVersion, events.NewTimestamp(time.Now()))
	return &nats.Msg{Subject: subject, Header: nats.Header(envelope.Header()), Data: data}
}

func (c *client) call(in *events.HookInput) *nats.Msg {
	c.Helper()
	msg := c.message(streams.CallSubject(in.HookID), in.DispatchID, events.HookInputSchema, in)
	msg.Header.Set(events.HeaderTimeout, "10000")
	return msg
}

func (c *client) request(service, key string, payload []byte) *nats.Msg {
	c.Helper()
	return c.message(streams.ServiceSubject(service), key, events.ServiceRequestSchema, &events.ServiceRequest{
		IdempotencyKey: key,
		Payload:        payload,
		SchemaVersion:  events.ServiceRequestSchema,
		Service:        service,
		TimeoutMillis:  10_000,
	})
}

// send sends a message and gives its reply.
func (c *client) send(msg *nats.Msg) *nats.Msg {
	c.Helper()
	reply, err := c.nc.RequestMsg(msg, patience)
	if err != nil {
		c.Fatalf("%s does not answer: %v", msg.Subject, err)
	}
	return reply
}

// document gives the data of an answer, which must be an event of the schema version and no error.
func (c *client) document(reply *nats.Msg, schemaVersion string) (events.Envelope, []byte) {
	c.Helper()
	if code := reply.Header.Get(micro.ErrorCodeHeader); code != "" {
		c.Fatalf("answered with the error %s: %s", code, reply.Header.Get(micro.ErrorHeader))
	}
	envelope, data, err := events.ReadEvent(events.Header(reply.Header), reply.Data)
	if err != nil {
		c.Fatalf("the answer is no event: %v", err)
	}
	if want := events.EventType(schemaVersion); envelope.Type != want {
		c.Errorf("the answer's type is %s, want %s", envelope.Type, want)
	}
	return envelope, data
}

// secret stands in spoiled requests, where a provider might be tempted to repeat it.
const secret = "hunter2"

// refusal holds an answer to be a refusal.
func (c *client) refusal(reply *nats.Msg) {
	c.Helper()
	code, text := reply.Header.Get(micro.ErrorCodeHeader), reply.Header.Get(micro.ErrorHeader)
	if !strings.HasPrefix(code, "4") {
		c.Errorf("answered with code %q (%s), want a 4xx: the request is at fault", code, text)
	}
	if text == "" {
		c.Error("the error says nothing")
	}
	if strings.Contains(text, secret) || strings.Contains(string(reply.Data), secret) {
		c.Errorf("the error repeats a value of the request: %s", text)
	}
}
