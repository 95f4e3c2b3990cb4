package executors

import (
	"context"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/afterwrite/afterwrite/events"
)

// Executor acts upon intents of one kind.
type Executor interface {
	// Execute brings about the intent's effect, within what was accepted, and gives a typed result of it.
	//
	// The intent's id is the idempotency key: whoever acts must act once for it, however often it is given. It is
	// given again if a run before was interrupted, or asked for it by [Retry] or [LaterAt]. ctx ends with the
	// grant's timeout. How an error is taken is said in errors.go.
	Execute(ctx context.Context, intent *events.Intent, permit Permit) (*events.Packet, error)
}

// Func is a function as an [Executor].
type Func func(ctx context.Context, intent *events.Intent, permit Permit) (*events.Packet, error)

// Execute calls f.
func (f Func) Execute(ctx context.Context, intent *events.Intent, permit Permit) (*events.Packet, error) {
	return f(ctx, intent, permit)
}

// Permit is what an execution may do, and what it may know.
type Permit struct {
	// Accepted is the form in which the intent was accepted. It, and not the intent, bounds the effect.
	Accepted events.Acceptance
	Executor events.ExecutorID
	Grant    Grant
	// Attempt counts from 1.
	Attempt int
	// State is the capability's opaque state; nil if it has none, or the grant names no state key.
	State jsontext.Value
	// Trace of the intent, to be passed on; empty if it has none.
	TraceParent, TraceState string
}

// PacketOf is a typed result: any value that encodes as a JSON object.
func PacketOf(schemaVersion string, value any) (*events.Packet, error) {
	data, err := events.EncodeValue(value)
	if err != nil {
		return nil, err
	}
	return &events.Packet{Data: data, SchemaVersion: schemaVersion}, nil
}
