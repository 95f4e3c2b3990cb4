package executors

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"github.com/afterwrite/afterwrite/events"
)

// sink plays the authorised sink: it delivers a report once per idempotency key, and reads it back. Nothing like it is
// shipped.
type sink struct {
	at      time.Time
	fail    func(intentID events.IntentID) error
	mu      sync.Mutex
	reports map[events.IntentID][]string
}

// report is the capability's own state, as the reducer reads it.
type report struct {
	CoveredTriggerIDs []string `json:"covered_trigger_ids"`
	DeliveredAt       string   `json:"delivered_at"`
}

func (s *sink) Deliver(_ context.Context, intent *events.Intent, permit Permit, result *events.Packet) (jsontext.Value, error) {
	var decision struct {
		Selected  *string  `json:"selected"`
		Coalesced []string `json:"coalesced"`
	}
	if err := json.Unmarshal(result.Data, &decision); err != nil {
		return nil, Never(err)
	}
	if decision.Selected == nil {
		return nil, nil
	}
	if s.fail != nil {
		if err := s.fail(intent.IntentID); err != nil {
			return nil, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reports == nil {
		s.reports = map[events.IntentID][]string{}
	}
	s.reports[intent.IntentID] = decision.Coalesced
	var last report
	if permit.State != nil {
		if err := json.Unmarshal(permit.State, &last); err != nil {
			return nil, Never(err)
		}
	}
	covered := slices.Concat(last.CoveredTriggerIDs, decision.Coalesced)
	slices.Sort(covered)
	return events.EncodeValue(report{slices.Compact(covered), s.at.UTC().Format(time.RFC3339)})
}

func (s *sink) covered() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []string
	for _, triggers := range s.reports {
		all = append(all, triggers...)
	}
	slices.Sort(all)
	return all
}

// segmentIntent is a completed segment, proposed by the dispatch.
func segmentIntent(dispatch, segment, observedAt string) *events.Intent {
	payload := `{"goal_id":"public-long-horizon-loop","agent_id":"codex","segment_ref":"` + segment +
		`","transition":"replan_entered","observed_at":"` + observedAt + `","source_event_refs":["evt_` + segment + `"]}`
	return intentOf(testKind, payload, func(i *events.Intent) { i.SourceDispatchID = dispatch })
}

func dispatchID(n byte) string { return "pwh_sha256_" + string(slices.Repeat([]byte{n}, 64)) }

const (
	segmentA = "segment_aaaaaaaaaaaaaaaaaaaaaaaa"
	segmentB = "segment_bbbbbbbbbbbbbbbbbbbbbbbb"
)

// decisionOf gives the reason of the recorded decision, and that of its first suppression.
func decisionOf(t *testing.T, records []*events.Execution) []string {
	t.Helper()
	var decision struct {
		Reason     string `json:"reason"`
		Suppressed []struct {
			Reason string `json:"reason"`
		} `json:"suppressed"`
	}
	if err := json.Unmarshal(records[len(records)-1].Result.Data, &decision); err != nil {
		t.Fatal(err)
	}
	words := []string{decision.Reason}
	for _, s := range decision.Suppressed {
		words = append(words, s.Reason)
	}
	return words
}

func TestTheSecondReportOfAGoalWorksLikeTheFirst(t *testing.T) {
	b := startBroker(t)
	b.serveReports()
	s := &sink{at: time.Date(2026, 6, 23, 18, 0, 0, 0, time.UTC)}
	opts := b.options(reportGrant(readGolden(t).DemoPolicy))
	opts.Delivery = s
	b.start(opts)
	for _, step := range []struct {
		name   string
		intent *events.Intent
		want   []string
	}{
		{"the first report", segmentIntent(dispatchID('1'), segmentA, "2026-06-23T17:13:00Z"), []string{"trigger_selected"}},
		{"another dispatch of the same Turn, the same segment", segmentIntent(dispatchID('2'), segmentA, "2026-06-23T17:13:00Z"), []string{"no_material_trigger", "already_covered"}},
		{"the second report", segmentIntent(dispatchID('3'), segmentB, "2026-06-23T19:00:00Z"), []string{"trigger_selected"}},
		{"the second report's facts again", segmentIntent(dispatchID('4'), segmentB, "2026-06-23T19:00:00Z"), []string{"no_material_trigger", "already_covered"}},
	} {
		b.propose(step.intent)
		records := b.await(step.intent.IntentID, testExecutor, events.ExecutionCompleted)
		if diff := cmp.Diff([]string{"claimed", "called", "returned", "completed"}, trail(records)); diff != "" {
			t.Errorf("%s: records (-want +got):\n%s", step.name, diff)
		}
		if diff := cmp.Diff(step.want, decisionOf(t, records)); diff != "" {
			t.Errorf("%s: decision (-want +got):\n%s", step.name, diff)
		}
	}
	if got := s.covered(); len(got) != 2 {
		t.Errorf("delivered %v, want one report for each of two segments", got)
	}
	b.settled(testExecutor, testKind)
	state, err := (&ledger{js: b.js, leader: mustLeader(t, b)}).loadState(b.ctx, "public-long-horizon-loop", testExecutor, testKind)
	if err != nil {
		t.Fatal(err)
	}
	want := report{s.covered(), "2026-06-23T18:00:00Z"}
	got := report{}
	if err := json.Unmarshal(state.value, &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("state (-want +got):\n%s", diff)
	}
	if state.reservedBy != "" {
		t.Errorf("the state is still reserved by %s", state.reservedBy)
	}
}

func TestTheSameFactsFromManyDispatchesAtOnceMakeOneReport(t *testing.T) {
	b := startBroker(t)
	b.serveReports()
	s := &sink{at: time.Date(2026, 6, 23, 18, 0, 0, 0, time.UTC)}
	opts := b.options(reportGrant(readGolden(t).DemoPolicy))
	opts.Delivery = s
	for range 2 {
		b.start(opts)
	}
	var selected int
	var intents []*events.Intent
	for n := range byte(3) {
		intents = append(intents, segmentIntent(dispatchID('1'+n), segmentA, "2026-06-23T17:13:00Z"))
		b.propose(intents[n])
	}
	for _, intent := range intents {
		if decisionOf(t, b.await(intent.IntentID, testExecutor, events.ExecutionCompleted))[0] == "trigger_selected" {
			selected++
		}
	}
	if selected != 1 || len(s.covered()) != 1 {
		t.Errorf("%d decisions and %d deliveries, want one of each", selected, len(s.covered()))
	}
}

func TestStateDoesNotAdvanceUnlessTheDeliveryWasReadBack(t *testing.T) {
	b := startBroker(t)
	b.serveReports()
	s := &sink{fail: func(events.IntentID) error { return Never(errors.New("the sink is gone")) }}
	opts := b.options(reportGrant(readGolden(t).DemoPolicy))
	opts.Delivery = s
	b.start(opts)
	intent := segmentIntent(dispatchID('1'), segmentA, "2026-06-23T17:13:00Z")
	b.propose(intent)
	records := b.await(intent.IntentID, testExecutor, events.ExecutionFailed)
	if diff := cmp.Diff([]string{"claimed", "called", "returned", "failed:effect_refused"}, trail(records)); diff != "" {
		t.Errorf("records (-want +got):\n%s", diff)
	}
	b.settled(testExecutor, testKind)
	state, err := (&ledger{js: b.js, leader: mustLeader(t, b)}).loadState(b.ctx, "public-long-horizon-loop", testExecutor, testKind)
	if err != nil {
		t.Fatal(err)
	}
	if state.value != nil || state.reservedBy != "" {
		t.Errorf("state %s, reserved by %q, want neither", state.value, state.reservedBy)
	}
}

func TestADeliveryThatFailedIsMadeAgainWithoutAnotherCallOfTheEffect(t *testing.T) {
	b := startBroker(t)
	effect := newEffects()
	grant := testGrant(testKind)
	grant.StateKey = "goal_id"
	opts := with(b.options(grant), effect)
	failed := make(chan struct{})
	opts.Delivery = deliverFunc(func() (jsontext.Value, error) {
		close(failed)
		return nil, errors.New("not now")
	})
	first := b.start(opts)
	intent := intentOf(testKind, `{"goal_id":"g"}`)
	b.propose(intent)
	<-failed
	first.halt(t)
	opts.Delivery, opts.Now = deliverOnce{}, afterTheLease
	second := b.start(opts)
	// The first left word to come again when its lease has passed; a consumer begun anew does not wait for that.
	if err := b.js.DeleteConsumer(b.ctx, "PWH_INTENTS", "report_evaluator--periodic_report-trigger_evaluation"); err != nil {
		t.Fatal(err)
	}
	records := b.await(intent.IntentID, testExecutor, events.ExecutionCompleted)
	second.halt(t)
	if diff := cmp.Diff([]string{"claimed", "called", "returned", "returned", "completed"}, trail(records)); diff != "" {
		t.Errorf("records (-want +got):\n%s", diff)
	}
	if keys := effect.keys(); len(keys) != 1 {
		t.Errorf("%d calls, want 1", len(keys))
	}
}

type deliverFunc func() (jsontext.Value, error)

func (f deliverFunc) Deliver(context.Context, *events.Intent, Permit, *events.Packet) (jsontext.Value, error) {
	return f()
}
