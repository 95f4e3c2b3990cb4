package dispatcher

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/afterwrite/afterwrite/dispatcher/core"
	"github.com/afterwrite/afterwrite/events"
)

// Prometheus sees no increase in a series that begins with its first count.
func TestWhatIsAskedForItsIncreaseIsThereBeforeItIncreases(t *testing.T) {
	registry := prometheus.NewRegistry()
	m, err := newMetrics(registry)
	if err != nil {
		t.Fatal(err)
	}
	m.begin(map[events.HookID]core.Hook{"a.b": {Registration: events.Registration{IntentKinds: []events.IntentKind{"a.c", "a.d"}}}})
	for name, want := range map[string]map[string]float64{
		"afterwrite_panics_total":              {"receipt": 0, "wakeup": 0},
		"afterwrite_receipts_total":            {"admitted ": 0, "refused poisoned": 0},
		"afterwrite_effects_failed_total":      {"answer": 0, "load": 0, "write": 0},
		"afterwrite_wakeups_overdue_total":     {"a.b": 0},
		"afterwrite_journal_lost_races_total":  {"a.b": 0},
		"afterwrite_intents_total":             {"a.b a.c": 0, "a.b a.d": 0},
		"afterwrite_dispatches_deferred_total": {"a.b hook_saturated": 0, "a.b hook_suspended": 0},
		"afterwrite_dispatch_records_total": {
			"registration_rejected a.b failed": 0, "input_boundary_rejected a.b failed": 0, "producer_failed a.b failed": 0,
			"producer_timed_out a.b failed": 0, "result_contract_rejected a.b failed": 0, "dispatch_budget_exhausted a.b failed": 0,
		},
	} {
		if diff := cmp.Diff(want, values(t, registry, name)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
