package providers_test

import (
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/afterwrite/afterwrite/events"
	"github.com/afterwrite/afterwrite/internal/natsembed"
	"github.com/afterwrite/afterwrite/providers"
	"github.com/afterwrite/afterwrite/providers/periodicreport"
	"github.com/afterwrite/afterwrite/streams"
)

// BenchmarkHookCalls is a whole call over the broker, with up to 256 in flight: the broker's work and the caller's too.
func BenchmarkHookCalls(b *testing.B) {
	url := natsembed.StartTest(b).ClientURL()
	p, err := providers.Start(connect(b, url), capability,
		withHook(func(*events.HookInput) ([]providers.Proposal, error) { return []providers.Proposal{proposal()}, nil }))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = p.Stop(b.Context()) })
	caller := connect(b, url)
	msg := hookCall()
	msg.Reply = caller.NewInbox()
	const inFlight = 256
	replies := make(chan *nats.Msg, 2*inFlight)
	if _, err := caller.ChanSubscribe(msg.Reply, replies); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	b.ResetTimer()
	for sent, received := 0, 0; received < b.N; {
		if sent < b.N && sent-received < inFlight {
			if err := caller.PublishMsg(msg); err != nil {
				b.Fatal(err)
			}
			sent++
			continue
		}
		<-replies
		received++
	}
}

// BenchmarkHookCall measures the provider's own work for one call of the shipped hook: from the message that the client
// hands on to the answer that it is given, everything but the broker and its client.
func BenchmarkHookCall(b *testing.B) {
	registration, err := periodicreport.Registration()
	if err != nil {
		b.Fatal(err)
	}
	out := new(outbox)
	call, err := providers.OneCall(out, periodicreport.CapabilityID,
		providers.WithHook(registration, providers.HookFunc(periodicreport.Hook)))
	if err != nil {
		b.Fatal(err)
	}
	in := input(events.SegmentCompleted)
	in.CapabilityID, in.HookID = periodicreport.CapabilityID, periodicreport.HookID
	msg := event(streams.CallSubject(in.HookID), in.DispatchID, events.HookInputSchema, in)
	msg.Reply = nats.NewInbox()
	b.ReportAllocs()
	for b.Loop() {
		call(request{msg: msg})
	}
	if out.answered != b.N || out.failed > 0 {
		b.Fatalf("%d calls were answered, %d with an error, want %d and none", out.answered, out.failed, b.N)
	}
}

// outbox counts the answers instead of sending them.
type outbox struct{ answered, failed int }

func (o *outbox) PublishMsg(msg *nats.Msg) error {
	o.answered++
	if msg.Header.Get(micro.ErrorHeader) != "" {
		o.failed++
	}
	return nil
}

func (o *outbox) MaxPayload() int64 { return 1 << 20 }

// request is a message as the micro service hands it on.
type request struct {
	micro.Request
	msg *nats.Msg
}

func (r request) Headers() micro.Headers { return micro.Headers(r.msg.Header) }
func (r request) Data() []byte           { return r.msg.Data }
func (r request) Reply() string          { return r.msg.Reply }
