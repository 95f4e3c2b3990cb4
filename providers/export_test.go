package providers

import (
	"github.com/nats-io/nats.go/micro"

	"github.com/afterwrite/afterwrite/events"
)

// Broker takes the answers.
type Broker = broker

// OneCall serves one hook or service without a connection: the function takes a call as the subscription does, and runs
// it as a worker does, to its answer.
func OneCall(b Broker, capability events.CapabilityID, opt Option) (func(micro.Request), error) {
	p, err := newProvider(b, capability, []Option{opt})
	if err != nil {
		return nil, err
	}
	e, answer := p.endpoints[0], newAnswer()
	return func(r micro.Request) {
		e.take(r)
		(<-e.queue).run(answer)
	}, nil
}
