package periodicreport_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/afterwrite/afterwrite/events"
	"github.com/afterwrite/afterwrite/providers/periodicreport"
)

var demoPolicy = periodicreport.Policy{
	PromoteReplan:          true,
	TodoCompletedThreshold: 3,
	TriggerKinds:           []periodicreport.TriggerKind{"bounded_segment_milestone"},
}

// facts are of one agent's segment; refs are separated by blanks.
func facts(agent string, transition events.Transition, observedAt events.Timestamp, refs string) periodicreport.Facts {
	return periodicreport.Facts{
		AgentID:         agent,
		GoalID:          "goal",
		ObservedAt:      observedAt,
		SegmentRef:      periodicreport.SegmentRef("goal", agent, "rev_1"),
		SourceEventRefs: strings.Fields(refs),
		Transition:      transition,
	}
}

func evaluate(t *testing.T, policy periodicreport.Policy, state *periodicreport.LastReport, told ...periodicreport.Facts) *periodicreport.Decision {
	t.Helper()
	decision, err := periodicreport.Evaluate(payload(t, policy, state, told...))
	if err != nil {
		t.Fatal(err)
	}
	return decision
}

func payload(t *testing.T, policy periodicreport.Policy, state *periodicreport.LastReport, told ...periodicreport.Facts) []byte {
	t.Helper()
	newest := told[0].ObservedAt
	payloads := make([]json.RawMessage, len(told))
	for i, f := range told {
		payloads[i] = marshal(t, f)
		if f.ObservedAt.Time().After(newest.Time()) {
			newest = f.ObservedAt
		}
	}
	return evaluation(t, string(newest), policy, state, payloads...)
}

func TestFactsArePromotedByTheTable(t *testing.T) {
	promoting, not := demoPolicy, demoPolicy
	not.PromoteReplan = false
	for name, row := range map[string]struct {
		transition events.Transition
		refs       string
		policy     periodicreport.Policy
		material   bool
		reason     string
	}{
		"replan, promoted":               {"replan_entered", "a", promoting, true, "durable_replan_observed"},
		"replan without facts, promoted": {"replan_entered", "", promoting, true, "durable_replan_observed"},
		"replan, not promoted":           {"replan_entered", "a b c", not, false, "promotion_conditions_not_met"},
		"completed, at the threshold":    {"segment_completed", "a b c", promoting, true, "todo_completion_threshold_reached"},
		"completed, not promoting":       {"segment_completed", "a b c", not, true, "todo_completion_threshold_reached"},
		"completed, fewer":               {"segment_completed", "a b", promoting, false, "promotion_conditions_not_met"},
		"completed, fewer distinct":      {"segment_completed", "a b b a", promoting, false, "promotion_conditions_not_met"},
	} {
		t.Run(name, func(t *testing.T) {
			f := facts("agent", row.transition, "2026-06-23T17:00:00Z", row.refs)
			c := f.Candidate(&row.policy)
			if c.Material != row.material || c.Reason != row.reason {
				t.Errorf("material %v, %s", c.Material, c.Reason)
			}
		})
	}
}

func TestTheEvidenceIsTheSetOfFacts(t *testing.T) {
	a := facts("agent", "segment_completed", "2026-06-23T17:00:00Z", "b a c a")
	b := facts("agent", "segment_completed", "2026-06-23T18:00:00Z", "c b a")
	// echo -n '["a","b","c"]' | sha256sum
	want := "sha256_fa1844c2988ad15ab7b49e0ece09684500fad94df916859fb9a43ff85f5bb477"
	for _, f := range []periodicreport.Facts{a, b} {
		if got := f.Candidate(&demoPolicy).EvidenceDigest; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	// echo -n '[]' | sha256sum
	none := facts("agent", "replan_entered", "2026-06-23T17:00:00Z", "")
	if got := none.Candidate(&demoPolicy).EvidenceDigest; got != "sha256_4f53cda18c2baa0c0354bb5f9a3ecbe5ed12ab4d8e11ba873c2f11161202b945" {
		t.Errorf("no facts: %s", got)
	}
}

// The lines under "Learnt elsewhere" of the capability's specification.

func TestTheSecondReportOfAGoalWorksLikeTheFirst(t *testing.T) {
	first := evaluate(t, demoPolicy, nil, facts("agent", "segment_completed", "2026-06-23T17:00:00Z", "a b c"))
	if first.Reason != "trigger_selected" {
		t.Fatalf("first report: %s", first.Reason)
	}
	reported := &periodicreport.LastReport{CoveredTriggerIDs: first.Coalesced, DeliveredAt: "2026-06-23T17:00:10Z"}
	second := evaluate(t, demoPolicy, reported, facts("agent", "segment_completed", "2026-06-24T17:00:00Z", "d e f"))
	if second.Reason != "trigger_selected" || second.Selected == first.Selected {
		t.Errorf("second report: %s %s", second.Reason, second.Selected)
	}
}

func TestTheSameFactsTwiceMakeOneReport(t *testing.T) {
	told := facts("agent", "segment_completed", "2026-06-23T17:00:00Z", "a b c")
	toldAgain := facts("agent", "segment_completed", "2026-06-23T18:00:00Z", "c b a")

	together := evaluate(t, demoPolicy, nil, told, toldAgain)
	if len(together.Coalesced) != 1 {
		t.Errorf("in one evaluation: %d triggers", len(together.Coalesced))
	}
	reported := &periodicreport.LastReport{CoveredTriggerIDs: together.Coalesced, DeliveredAt: "2026-06-23T18:00:10Z"}
	if later := evaluate(t, demoPolicy, reported, toldAgain); later.Suppressed[0].Reason != "already_covered" {
		t.Errorf("after the report: %v", later)
	}
}

func TestTheSameRequestDecidesTheSame(t *testing.T) {
	request := payload(t, demoPolicy, nil, facts("agent", "replan_entered", "2026-06-23T17:00:00Z", "a"))
	one, err := periodicreport.Evaluate(request)
	if err != nil {
		t.Fatal(err)
	}
	other, err := periodicreport.Evaluate(request)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(one, other); diff != "" {
		t.Error(diff)
	}
}

func TestAPolicySwitchedOffSelectsNothingUntilItIsOnAgain(t *testing.T) {
	told := facts("agent", "replan_entered", "2026-06-23T17:00:00Z", "a")
	off := demoPolicy
	off.TriggerKinds = nil
	d := evaluate(t, off, nil, told)
	if d.Reason != "no_material_trigger" || d.Suppressed[0].Reason != "disabled_by_profile" {
		t.Errorf("off: %v", d)
	}
	// The facts wait in the intent, so the same intent decides once the policy is on.
	if d := evaluate(t, demoPolicy, nil, told); d.Reason != "trigger_selected" {
		t.Errorf("on again: %s", d.Reason)
	}
}

func TestTwoEventsOfOneTurnWithOneSegmentAreCoveredOnce(t *testing.T) {
	completed := facts("agent", "segment_completed", "2026-06-23T17:00:00Z", "a b") // below the threshold
	replanned := facts("agent", "replan_entered", "2026-06-23T17:00:05Z", "b a")
	for _, told := range [][]periodicreport.Facts{{completed, replanned}, {replanned, completed}} {
		d := evaluate(t, demoPolicy, nil, told...)
		if d.Reason != "trigger_selected" || len(d.Coalesced) != 1 || len(d.Suppressed) != 0 {
			t.Errorf("%s, coalesced %v, suppressed %v", d.Reason, d.Coalesced, d.Suppressed)
		}
	}
}

func TestTheFactsOfAnotherAgentNeverCompleteASegment(t *testing.T) {
	mine := facts("agent", "segment_completed", "2026-06-23T17:00:00Z", "a b")
	theirs := facts("another", "segment_completed", "2026-06-23T17:00:01Z", "b c")
	if d := evaluate(t, demoPolicy, nil, mine, theirs); d.Reason != "no_material_trigger" || len(d.Suppressed) != 2 {
		t.Errorf("%s, suppressed %v", d.Reason, d.Suppressed)
	}
}

func TestEvaluateSaysWhatIsWrongWithARequest(t *testing.T) {
	type document = map[string]any
	firstIntent := func(d document) document { return d["intents"].([]any)[0].(document) }
	for want, spoil := range map[string]func(document){
		"intents must hold 1 to 64 intents":                                      func(d document) { d["intents"] = []any{} },
		"evaluated_at must be the newest observed_at of the intents":             func(d document) { d["evaluated_at"] = "2026-06-23T17:00:01Z" },
		"intents[0].intent_id must be the one computed from the intent":          func(d document) { firstIntent(d)["payload"].(document)["agent_id"] = "another" },
		"intents[0].intent_kind must be periodic_report.trigger_evaluation":      func(d document) { firstIntent(d)["intent_kind"] = "periodic_report.other" },
		"intents[0].capability_id must be periodic_report":                       func(d document) { firstIntent(d)["capability_id"] = "other" },
		"intents[0].hook_id must be periodic_report.runtime_trigger":             func(d document) { firstIntent(d)["hook_id"] = "periodic_report.other" },
		"intents[0].operation must be evaluate_runtime_trigger":                  func(d document) { firstIntent(d)["operation"] = "render" },
		"intents[0].policy_version must be weekly_v0":                            func(d document) { firstIntent(d)["policy_version"] = "weekly_v1" },
		"intents[0].payload.goal_id must be an opaque id":                        func(d document) { firstIntent(d)["payload"].(document)["goal_id"] = "a goal" },
		"intents[0].payload.agent_id must be an opaque id":                       func(d document) { firstIntent(d)["payload"].(document)["agent_id"] = "" },
		`intents[0].payload.segment_ref must be "segment_" and 24 hex digits`:    func(d document) { firstIntent(d)["payload"].(document)["segment_ref"] = "segment_x" },
		"intents[0].payload.observed_at must be an RFC 3339 time with an offset": func(d document) { firstIntent(d)["payload"].(document)["observed_at"] = "now" },
		"intents[0].payload.source_event_refs must hold at most 64 references": func(d document) {
			firstIntent(d)["payload"].(document)["source_event_refs"] = strings.Split(strings.Repeat("a", 65), "")
		},
		"intents[0].payload.source_event_refs[1] must be an opaque id": func(d document) { firstIntent(d)["payload"].(document)["source_event_refs"] = []any{"a", "b c"} },
		`intents[0].payload.transition must be "segment_completed" or "replan_entered"`: func(d document) {
			firstIntent(d)["payload"].(document)["transition"] = "segment_advanced"
		},
		"intents[1].payload.goal_id must be the goal of the other intents": func(d document) {
			other := facts("agent", "replan_entered", "2026-06-23T17:00:00Z", "a")
			other.GoalID = "another"
			d["intents"] = append(d["intents"].([]any), intent(t, 7, marshal(t, other)))
		},
		"policy.todo_completed_threshold must be from 1 to 64":      func(d document) { d["policy"].(document)["todo_completed_threshold"] = 0 },
		"policy.minimum_interval_seconds must be from 0 to 2678400": func(d document) { d["policy"].(document)["minimum_interval_seconds"] = -1 },
		"state.delivered_at must be an RFC 3339 time with an offset": func(d document) {
			d["state"] = document{"covered_trigger_ids": []any{}, "delivered_at": "2026-06-23"}
		},
	} {
		t.Run(want, func(t *testing.T) {
			var d document
			unmarshal(t, payload(t, demoPolicy, nil, facts("agent", "replan_entered", "2026-06-23T17:00:00Z", "a")), &d)
			spoil(d)
			_, err := periodicreport.Evaluate(marshal(t, d))
			if refused := (*events.DecodeError)(nil); !errors.As(err, &refused) || err.Error() != want {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestEvaluateTakesNoClaimsOfAuthority(t *testing.T) {
	for _, claim := range []string{"grants_new_action_authority", "external_write_performed"} {
		var d map[string]any
		unmarshal(t, payload(t, demoPolicy, nil, facts("agent", "replan_entered", "2026-06-23T17:00:00Z", "a")), &d)
		d["intents"].([]any)[0].(map[string]any)[claim] = true
		if _, err := periodicreport.Evaluate(marshal(t, d)); err == nil {
			t.Errorf("%s was taken", claim)
		}
	}
}

func FuzzEvaluate(f *testing.F) {
	f.Add([]byte(`{"evaluated_at":"2026-06-23T17:00:00Z","intents":[{}],"policy":{"minimum_interval_seconds":0,"promote_replan":true,"todo_completed_threshold":3,"trigger_kinds":[]},"state":null}`))
	f.Add([]byte(`{"evaluated_at":"","intents":[],"policy":null,"state":{"covered_trigger_ids":[],"delivered_at":"9999-12-31T23:59:59Z"}}`))
	f.Add([]byte("{\"intents\":[\"\xff\"]}"))
	f.Fuzz(func(t *testing.T, payload []byte) {
		_, err := periodicreport.Evaluate(payload)
		if refused := (*events.DecodeError)(nil); err != nil && !errors.As(err, &refused) {
			t.Errorf("an error that is no refusal: %v", err)
		}
	})
}
