package events_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/afterwrite/afterwrite/events"
)

func TestAReceiptIsInadmissibleByTheFirstRuleItBreaks(t *testing.T) {
	type verdict struct {
		Reason events.RefusalReason
		Member string
	}
	receipt := readReceipts(t)["evt_lh_005_minimal_fixture_validated"]
	if receipt == nil {
		t.Fatal("the golden receipts have changed")
	}
	judge := func() verdict {
		reason, member := receipt.Inadmissible()
		return verdict{reason, member}
	}
	if got := judge(); got != (verdict{}) {
		t.Fatalf("the golden receipt: %v", got)
	}
	// Each step breaks one more rule that comes before those broken so far.
	for _, step := range []struct {
		change func()
		want   verdict
	}{
		{func() { receipt.Receipt.Checkpointed = false }, verdict{"not_checkpointed", "receipt.checkpointed"}},
		{func() { receipt.Receipt.Status = "prepared" }, verdict{"writeback_not_committed", "receipt.status"}},
		{func() { receipt.Receipt.StepKind = "quota_spend" }, verdict{"not_durable_writeback", "receipt.step_kind"}},
		{func() { receipt.Receipt.EffectID = "another" }, verdict{"effect_mismatch", "receipt.effect_id"}},
		{func() { receipt.Plan.EffectID = "" }, verdict{"identity_incomplete", "plan.effect_id"}},
		{func() { receipt.Plan.TurnInstanceID = "" }, verdict{"identity_incomplete", "plan.turn_instance_id"}},
		{func() { receipt.Plan.TodoID = "" }, verdict{"identity_incomplete", "plan.todo_id"}},
		{func() { receipt.Plan.AgentID = "" }, verdict{"identity_incomplete", "plan.agent_id"}},
		{func() { receipt.Plan.GoalID = "" }, verdict{"identity_incomplete", "plan.goal_id"}},
	} {
		step.change()
		if diff := cmp.Diff(step.want, judge()); diff != "" {
			t.Errorf("verdict (-want +got):\n%s", diff)
		}
	}
}
