package executors

import (
	"context"
	"encoding/json"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/afterwrite/afterwrite/events"
	"github.com/afterwrite/afterwrite/providers"
	"github.com/afterwrite/afterwrite/providers/periodicreport"
	"github.com/afterwrite/afterwrite/streams"
)

// golden are the worked decisions of the reducer, which were computed independently of this code.
type golden struct {
	DemoPolicy json.RawMessage `json:"demo_policy"`
	Examples   []struct {
		Name    string `json:"name"`
		Request struct {
			Payloads []json.RawMessage `json:"intents_payloads"`
			Policy   json.RawMessage   `json:"policy"`
			State    json.RawMessage   `json:"state"`
		} `json:"request"`
		Decision json.RawMessage `json:"decision"`
	} `json:"examples"`
}

func readGolden(t *testing.T) *golden {
	t.Helper()
	data, err := os.ReadFile("../providers/periodicreport/testdata/decisions.json")
	if err != nil {
		t.Fatal(err)
	}
	g := new(golden)
	if err := json.Unmarshal(data, g); err != nil {
		t.Fatal(err)
	}
	return g
}

func canonical(t *testing.T, data []byte) string {
	t.Helper()
	out, err := events.Canonicalize(data)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// serveReports runs the capability's provider until the test ends.
func (b *broker) serveReports() {
	b.t.Helper()
	provider, err := periodicreport.Provider()
	if err != nil {
		b.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.ctx)
	done := make(chan error, 1)
	go func() { done <- providers.Serve(ctx, b.nc, periodicreport.CapabilityID, provider) }()
	b.t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			b.t.Errorf("Serve: %v", err)
		}
	})
	for b.ctx.Err() == nil {
		if _, err := b.nc.RequestWithContext(b.ctx, "$SRV.PING.periodic_report", nil); err == nil {
			return
		}
	}
	b.t.Fatal("the provider did not come up")
}

func reportGrant(policy []byte) Grant {
	g := testGrant(testKind)
	g.Service, g.Policy, g.StateKey, g.EvaluatedAt = "periodic_report.evaluate_trigger", policy, "goal_id", "observed_at"
	return g
}

func TestEveryGoldenDecisionOfTheDemoIsRecorded(t *testing.T) {
	b := startBroker(t)
	b.serveReports()
	g := readGolden(t)
	b.start(b.options(reportGrant(g.DemoPolicy)))
	for _, example := range g.Examples {
		if string(example.Request.State) != "null" || len(example.Request.Payloads) != 1 || canonical(t, example.Request.Policy) != canonical(t, g.DemoPolicy) {
			continue
		}
		intent := intentOf(testKind, string(example.Request.Payloads[0]))
		b.propose(intent)
		records := b.await(intent.IntentID, testExecutor, events.ExecutionCompleted)
		if diff := cmp.Diff([]string{"claimed", "called", "completed"}, trail(records)); diff != "" {
			t.Errorf("%s: records (-want +got):\n%s", example.Name, diff)
		}
		result := records[len(records)-1].Result
		if diff := cmp.Diff(canonical(t, example.Decision), string(result.Data)); diff != "" {
			t.Errorf("%s: decision (-want +got):\n%s", example.Name, diff)
		}
		if result.SchemaVersion != "periodic_report_trigger_decision_v0" {
			t.Errorf("%s: schema version %q", example.Name, result.SchemaVersion)
		}
	}
	if state, err := b.js.Stream(b.ctx, streams.State); err != nil || state.CachedInfo().State.Msgs != 0 {
		t.Errorf("the state stream must stay empty where nothing delivers: %v", err)
	}
}
