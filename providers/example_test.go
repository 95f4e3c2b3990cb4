package providers_test

import (
	"context"
	"fmt"

	"github.com/nats-io/nats.go"

	"github.com/afterwrite/afterwrite/events"
	"github.com/afterwrite/afterwrite/providers"
)

// A provider of the hook changelog.segment_closed, whole: what it registers, what it proposes, and its process.
func Example() {
	registration, err := events.Decode[events.Registration]([]byte(`{
		"schema_version": "loopx_post_writeback_capability_hook_registration_v0",
		"hook_id": "changelog.segment_closed", "capability_id": "changelog", "phase": "post_writeback",
		"event_kinds": ["todo_completed"], "intent_kinds": ["changelog.entry"],
		"requested_read_scope": ["settlement_identity", "bounded_event_projection"],
		"budget": {"max_invocations_per_dispatch": 3, "max_intents_per_dispatch": 1, "max_result_bytes": 4096, "timeout_ms": 500},
		"failure_policy": "isolate"}`))
	if err != nil {
		panic(err)
	}
	hook := providers.HookFunc(func(in *events.HookInput) ([]providers.Proposal, error) {
		if in.Projection.Transition != events.SegmentCompleted {
			return nil, nil // not applicable
		}
		return []providers.Proposal{{
			Kind:          "changelog.entry",
			Operation:     "draft_entry",
			PolicyVersion: "v1",
			Payload:       map[string]any{"goal_id": in.Source.GoalID, "facts": in.Projection.FactRefs},
			Budget:        events.IntentBudget{MaxAttempts: 1, MaxResultBytes: 2048},
		}}, nil
	})
	serve := func(ctx context.Context, nc *nats.Conn) error { // until ctx ends
		return providers.Serve(ctx, nc, "changelog", providers.WithHook(registration, hook))
	}

	fmt.Println(tryExample(serve, "segment_advanced"))
	fmt.Println(tryExample(serve, "segment_completed"))
	// Output:
	// not_applicable []
	// proposed [draft_entry {"facts":["fact_1"],"goal_id":"goal"}]
}
