package providers_test

import (
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/afterwrite/afterwrite/events"
	"github.com/afterwrite/afterwrite/internal/natsembed"
	"github.com/afterwrite/afterwrite/providers"
)

// BenchmarkHookCalls is a whole call over the broker, with up to 256 in flight.
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
