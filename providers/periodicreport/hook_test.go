package periodicreport_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/afterwrite/afterwrite/events"
	"github.com/afterwrite/afterwrite/providers"
	"github.com/afterwrite/afterwrite/providers/periodicreport"
)

// identities are vectors computed without this code.
type identities struct {
	Registration       json.RawMessage `json:"registration"`
	RegistrationDigest string          `json:"registration_digest"`
	Vectors            []struct {
		ReceiptID    string          `json:"receipt_id"`
		DispatchID   string          `json:"dispatch_id"`
		Status       string          `json:"status"`
		Payload      json.RawMessage `json:"payload"`
		IntentID     string          `json:"intent_id"`
		InputDigest  string          `json:"input_digest"`
		ResultDigest string          `json:"result_digest"`
	} `json:"vectors"`
}

// inputs are the hook inputs of testdata/longhorizon.jsonl, by receipt id, put together by hand from each receipt.
func inputs(tb testing.TB) map[string]*events.HookInput {
	tb.Helper()
	data, err := os.ReadFile("testdata/longhorizon.jsonl")
	if err != nil {
		tb.Fatal(err)
	}
	registration, err := periodicreport.Registration()
	if err != nil {
		tb.Fatal(err)
	}
	all := map[string]*events.HookInput{}
	for lines := bufio.NewScanner(bytes.NewReader(data)); lines.Scan(); {
		r, err := events.Decode[events.Receipt](lines.Bytes())
		if err != nil {
			tb.Fatal(err)
		}
		projection := r.Projection
		all[r.Receipt.ReceiptID] = &events.HookInput{
			Boundary:      r.Boundary,
			CapabilityID:  "periodic_report",
			DispatchID:    events.DispatchIdentity(r.Identity(), "periodic_report.runtime_trigger", "periodic_report", registration.Digest(), r.EventKind),
			HookID:        "periodic_report.runtime_trigger",
			Projection:    &projection,
			SchemaVersion: "loopx_post_writeback_hook_input_v0",
			Source: &events.HookSource{
				AgentID:        r.Plan.AgentID,
				CommittedAt:    r.Receipt.CommittedAt,
				EffectID:       r.Receipt.EffectID,
				EventKind:      r.EventKind,
				GoalID:         r.Plan.GoalID,
				ReceiptID:      r.Receipt.ReceiptID,
				StateRevision:  r.Receipt.StateRevision,
				StepKind:       r.Receipt.StepKind,
				TodoID:         r.Plan.TodoID,
				TurnInstanceID: r.Plan.TurnInstanceID,
			},
		}
	}
	return all
}

func TestTheHookFreezesTheGoldenFacts(t *testing.T) {
	var golden identities
	read(t, "identities.json", &golden)
	all := inputs(t)
	for _, v := range golden.Vectors {
		t.Run(v.ReceiptID, func(t *testing.T) {
			proposals, err := periodicreport.Hook(all[v.ReceiptID])
			if err != nil {
				t.Fatal(err)
			}
			if v.Status == "not_applicable" {
				if len(proposals) != 0 {
					t.Errorf("proposed %v", proposals)
				}
				return
			}
			if len(proposals) != 1 {
				t.Fatalf("%d proposals, want 1", len(proposals))
			}
			p := proposals[0]
			equalJSON(t, v.Payload, p.Payload)
			want := providers.Proposal{
				Kind:          "periodic_report.trigger_evaluation",
				Operation:     "evaluate_runtime_trigger",
				PolicyVersion: "weekly_v0",
				Payload:       p.Payload,
				Budget:        events.IntentBudget{MaxAttempts: 1, MaxResultBytes: 16384},
			}
			if diff := cmp.Diff(want, p); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestTheHookProposesByTransition(t *testing.T) {
	for transition, want := range map[events.Transition]int{
		"segment_advanced":  0,
		"segment_completed": 1,
		"replan_entered":    1,
	} {
		in := inputs(t)["evt_lh_002_fixture_scope_narrowed"]
		in.Projection.Transition = transition
		proposals, err := periodicreport.Hook(in)
		if err != nil {
			t.Fatal(err)
		}
		if len(proposals) != want {
			t.Errorf("%s: %d proposals, want %d", transition, len(proposals), want)
		}
	}
}

func TestTheHookRefusesAnInputWithoutWhatItsRegistrationReads(t *testing.T) {
	for member, without := range map[string]func(*events.HookInput){
		"source":     func(in *events.HookInput) { in.Source = nil },
		"projection": func(in *events.HookInput) { in.Projection = nil },
	} {
		in := inputs(t)["evt_lh_002_fixture_scope_narrowed"]
		without(in)
		_, err := periodicreport.Hook(in)
		if err == nil || !strings.HasPrefix(err.Error(), member+" must be there") {
			t.Errorf("%s: got %v", member, err)
		}
	}
}

func TestASegmentBelongsToOneAgentOfOneGoalAtOneRevision(t *testing.T) {
	golden := periodicreport.SegmentRef("public-long-horizon-loop", "codex-product-capability", "rev_002")
	if want := "segment_fa7fe0c3cb9fa4740dee354f"; golden != want {
		t.Fatalf("got %s, want %s", golden, want)
	}
	for _, other := range []string{
		periodicreport.SegmentRef("public-long-horizon-loop", "codex-side-bypass", "rev_002"),
		periodicreport.SegmentRef("loopx-meta", "codex-product-capability", "rev_002"),
		periodicreport.SegmentRef("public-long-horizon-loop", "codex-product-capability", "rev_003"),
	} {
		if other == golden {
			t.Error("two segments share a reference")
		}
	}
}
