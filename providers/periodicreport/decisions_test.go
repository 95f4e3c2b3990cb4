package periodicreport_test

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/afterwrite/afterwrite/events"
	"github.com/afterwrite/afterwrite/providers/periodicreport"
)

// example is one of the worked decisions in testdata/decisions.json, which were computed without this code.
type example struct {
	Name    string `json:"name"`
	Request struct {
		IntentsPayloads []json.RawMessage `json:"intents_payloads"`
		EvaluatedAt     string            `json:"evaluated_at"`
		Policy          json.RawMessage   `json:"policy"`
		State           json.RawMessage   `json:"state"`
	} `json:"request"`
	Candidates json.RawMessage `json:"candidates"`
	Decision   json.RawMessage `json:"decision"`
}

func examples(tb testing.TB) []example {
	tb.Helper()
	var file struct {
		Examples []example `json:"examples"`
	}
	read(tb, "decisions.json", &file)
	if len(file.Examples) == 0 {
		tb.Fatal("no examples")
	}
	return file.Examples
}

func TestEvaluateReproducesTheWorkedDecisions(t *testing.T) {
	for _, ex := range examples(t) {
		t.Run(ex.Name, func(t *testing.T) {
			decision, err := periodicreport.Evaluate(evaluation(t, ex.Request.EvaluatedAt, ex.Request.Policy, ex.Request.State, ex.Request.IntentsPayloads...))
			if err != nil {
				t.Fatal(err)
			}
			equalJSON(t, ex.Decision, decision)
		})
	}
}

func TestFactsMakeTheWorkedCandidates(t *testing.T) {
	for _, ex := range examples(t) {
		t.Run(ex.Name, func(t *testing.T) {
			var policy periodicreport.Policy
			unmarshal(t, ex.Request.Policy, &policy)
			got := map[string]periodicreport.Candidate{}
			for _, payload := range ex.Request.IntentsPayloads {
				var facts periodicreport.Facts
				unmarshal(t, payload, &facts)
				c := facts.Candidate(&policy)
				got[c.TriggerID] = c
			}
			want := map[string]periodicreport.Candidate{}
			var candidates []periodicreport.Candidate
			unmarshal(t, ex.Candidates, &candidates)
			for _, c := range candidates {
				want[c.TriggerID] = c
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestReduceReproducesTheWorkedDecisions(t *testing.T) {
	for _, ex := range examples(t) {
		t.Run(ex.Name, func(t *testing.T) {
			var facts periodicreport.Facts
			unmarshal(t, ex.Request.IntentsPayloads[0], &facts)
			request, err := periodicreport.DecodeRequest(marshal(t, map[string]any{
				"candidates":   ex.Candidates,
				"evaluated_at": ex.Request.EvaluatedAt,
				"goal_id":      facts.GoalID,
				"last_report":  ex.Request.State,
				"policy":       ex.Request.Policy,
			}))
			if err != nil {
				t.Fatal(err)
			}
			decision, err := periodicreport.Reduce(*request)
			if err != nil {
				t.Fatal(err)
			}
			equalJSON(t, ex.Decision, decision)
		})
	}
}

// evaluation is a service payload with one intent per facts, each of a dispatch of its own.
func evaluation(tb testing.TB, evaluatedAt string, policy, state any, payloads ...json.RawMessage) []byte {
	tb.Helper()
	intents := make([]*events.Intent, len(payloads))
	for i, payload := range payloads {
		intents[i] = intent(tb, i, payload)
	}
	return marshal(tb, map[string]any{"evaluated_at": evaluatedAt, "intents": intents, "policy": policy, "state": state})
}

func intent(tb testing.TB, n int, payload []byte) *events.Intent {
	tb.Helper()
	canonical, err := events.Canonicalize(payload)
	if err != nil {
		tb.Fatal(err)
	}
	dispatch := "pwh_sha256_" + events.SHA256([]byte{byte(n)})
	return &events.Intent{
		Budget:              events.IntentBudget{MaxAttempts: 1, MaxResultBytes: 16384},
		CapabilityID:        "periodic_report",
		FailurePolicy:       "isolate",
		HookID:              "periodic_report.runtime_trigger",
		IntentID:            events.IntentIdentity(dispatch, "periodic_report.trigger_evaluation", "weekly_v0", canonical),
		IntentKind:          "periodic_report.trigger_evaluation",
		Operation:           "evaluate_runtime_trigger",
		Payload:             canonical,
		PolicyVersion:       "weekly_v0",
		RequestedWriteScope: []string{},
		SchemaVersion:       "loopx_post_writeback_intent_v0",
		SourceDispatchID:    dispatch,
	}
}

func read(tb testing.TB, file string, v any) {
	tb.Helper()
	data, err := os.ReadFile("testdata/" + file)
	if err != nil {
		tb.Fatal(err)
	}
	unmarshal(tb, data, v)
}

func unmarshal(tb testing.TB, data []byte, v any) {
	tb.Helper()
	if err := json.Unmarshal(data, v); err != nil {
		tb.Fatal(err)
	}
}

// marshal writes v with the wire's rules, also where it holds documents whose optional members travel as null.
func marshal(tb testing.TB, v any) []byte {
	tb.Helper()
	out, err := events.EncodeValue(v)
	if err != nil {
		tb.Fatal(err)
	}
	return out
}

func equalJSON(tb testing.TB, want []byte, got any) {
	tb.Helper()
	var w, g any
	unmarshal(tb, want, &w)
	unmarshal(tb, marshal(tb, got), &g)
	if diff := cmp.Diff(w, g); diff != "" {
		tb.Error(diff)
	}
}
