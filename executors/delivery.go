package executors

import (
	"context"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/afterwrite/afterwrite/events"
)

// Delivery is the port to an authorised sink. A process without one stops before any sink, and never writes the
// capability's state.
type Delivery interface {
	// Deliver hands the result to the sink, reads it back, and gives the state that follows permit.State; nil if
	// the result asks for no delivery.
	//
	// The intent's id is the idempotency key: a run that was interrupted here delivers again, with the state as it
	// is then, and must neither reach the sink twice nor count twice in the state. No other intent with the same
	// state key is executed meanwhile. An error, unless it is [Never], is tried again.
	Deliver(ctx context.Context, intent *events.Intent, permit Permit, result *events.Packet) (jsontext.Value, error)
}
