package executors

import (
	"context"
	"fmt"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/afterwrite/afterwrite/events"
)

// BenchmarkExecution is an intent from the stream to its last record, with an effect that costs nothing: three records
// and an acknowledgement.
func BenchmarkExecution(b *testing.B) {
	broker := startBroker(b)
	done := make(chan struct{}, b.N)
	grant := testGrant(testKind)
	grant.Concurrency = 128
	opts := with(broker.options(grant), Func(func(context.Context, *events.Intent, Permit) (*events.Packet, error) {
		return &events.Packet{Data: jsontext.Value(`{}`), SchemaVersion: "x"}, nil
	}))
	opts.Observe = func(e *events.Execution) {
		if e.Status.Terminal() {
			done <- struct{}{}
		}
	}
	for n := range b.N {
		broker.propose(intentOf(testKind, fmt.Sprintf(`{"goal_id":"g-%d"}`, n)))
	}
	b.ReportAllocs()
	b.ResetTimer()
	broker.start(opts)
	for range b.N {
		<-done
	}
	b.StopTimer()
}
