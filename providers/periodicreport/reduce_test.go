package periodicreport_test

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/afterwrite/afterwrite/events"
	"github.com/afterwrite/afterwrite/providers/periodicreport"
)

const evaluatedAt = "2026-06-23T18:00:00Z"

var everyKind = []periodicreport.TriggerKind{
	"manual", "primary_goal_outcome", "vision_closed", "material_blocker", "material_recovery", "material_decision",
	"bounded_segment_milestone", "cadence_due", "state_refreshed", "monitor_unchanged", "surface_only",
	"todo_completed", "vision_checkpoint",
}

// candidate is material and observed an hour before the evaluation; its id is filled in.
func candidate(kind periodicreport.TriggerKind, ref string) periodicreport.Candidate {
	c := periodicreport.Candidate{
		EvidenceDigest: "sha256_" + strings.Repeat("0", 64),
		Material:       true,
		ObservedAt:     "2026-06-23T17:00:00Z",
		Reason:         "observed",
		SourceRef:      ref,
		TriggerKind:    kind,
	}
	c.TriggerID = periodicreport.TriggerID(c.TriggerKind, c.SourceRef, c.EvidenceDigest)
	return c
}

// decisionRequest has every kind switched on, no interval and no last report.
func decisionRequest(candidates ...periodicreport.Candidate) periodicreport.Request {
	return periodicreport.Request{
		Candidates:  candidates,
		EvaluatedAt: evaluatedAt,
		GoalID:      "goal",
		Policy: periodicreport.Policy{
			TodoCompletedThreshold: 3,
			TriggerKinds:           everyKind,
		},
	}
}

func reduce(t *testing.T, r periodicreport.Request) *periodicreport.Decision {
	t.Helper()
	d, err := periodicreport.Reduce(r)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestPriorityAndIntervalOfEveryKind(t *testing.T) {
	table := []struct {
		kind            periodicreport.TriggerKind
		ignoresInterval bool
	}{ // in order of priority
		{"manual", true},
		{"primary_goal_outcome", true},
		{"vision_closed", true},
		{"material_blocker", true},
		{"material_recovery", false},
		{"material_decision", false},
		{"bounded_segment_milestone", false},
		{"cadence_due", false},
	}
	for i, row := range table {
		t.Run(string(row.kind), func(t *testing.T) {
			c := candidate(row.kind, "ref")

			r := decisionRequest(c)
			r.Policy.MinimumIntervalSeconds = 3600
			r.LastReport = &periodicreport.LastReport{DeliveredAt: "2026-06-23T17:59:00Z"}
			want := periodicreport.CooldownActive
			if row.ignoresInterval {
				want = periodicreport.TriggerSelected
			}
			if got := reduce(t, r).Reason; got != want {
				t.Errorf("inside the interval: %s, want %s", got, want)
			}

			for _, lower := range table[i+1:] {
				// The lower one was observed first, and loses all the same.
				other := candidate(lower.kind, "ref")
				other.ObservedAt = "2026-06-23T12:00:00Z"
				if got := reduce(t, decisionRequest(other, c)).Selected; string(got) != c.TriggerID {
					t.Errorf("not selected before %s", lower.kind)
				}
			}
		})
	}
}

func TestSomeKindsAreNeverReportable(t *testing.T) {
	for _, kind := range []periodicreport.TriggerKind{
		"state_refreshed", "monitor_unchanged", "surface_only", "todo_completed", "vision_checkpoint",
	} {
		c := candidate(kind, "ref")
		want := []periodicreport.Suppression{{Reason: "not_reportable", TriggerID: c.TriggerID}}
		d := reduce(t, decisionRequest(c))
		if diff := cmp.Diff(want, d.Suppressed); diff != "" || d.Reason != "no_material_trigger" {
			t.Errorf("%s: %s %s", kind, d.Reason, diff)
		}
	}
}

func TestTheFirstReasonToSuppressWins(t *testing.T) {
	// Each row is suppressed for its own reason and for every one below it.
	covered := func(c periodicreport.Candidate) *periodicreport.LastReport {
		return &periodicreport.LastReport{CoveredTriggerIDs: []string{c.TriggerID}, DeliveredAt: "2026-06-23T17:59:00Z"}
	}
	for _, row := range []struct {
		want    string
		kind    periodicreport.TriggerKind
		enabled []periodicreport.TriggerKind
		covered bool
		matter  bool
	}{
		{want: "not_reportable", kind: "todo_completed", covered: true},
		{want: "disabled_by_profile", kind: "manual", enabled: []periodicreport.TriggerKind{"cadence_due"}, covered: true},
		{want: "already_covered", kind: "manual", enabled: everyKind, covered: true},
		{want: "nothing_new", kind: "manual", enabled: everyKind},
		{want: "cooldown_active", kind: "cadence_due", enabled: everyKind, matter: true},
	} {
		c := candidate(row.kind, "ref")
		c.Material, c.Reason = row.matter, "nothing_new"
		r := decisionRequest(c)
		r.Policy.TriggerKinds = row.enabled
		r.Policy.MinimumIntervalSeconds = 3600
		r.LastReport = &periodicreport.LastReport{DeliveredAt: "2026-06-23T17:59:00Z"}
		if row.covered {
			r.LastReport = covered(c)
		}
		want := []periodicreport.Suppression{{Reason: row.want, TriggerID: c.TriggerID}}
		if diff := cmp.Diff(want, reduce(t, r).Suppressed); diff != "" {
			t.Error(diff)
		}
	}
}

func TestTheIntervalIsActiveWhileElapsedIsLess(t *testing.T) {
	for name, row := range map[string]struct {
		interval  int
		delivered events.Timestamp
		active    bool
		next      string
	}{
		"one second less":             {3600, "2026-06-23T17:00:01Z", true, "2026-06-23T18:00:01Z"},
		"a part of a second less":     {3600, "2026-06-23T17:00:00.5Z", true, "2026-06-23T18:00:00.5Z"},
		"equal":                       {3600, "2026-06-23T17:00:00Z", false, ""},
		"equal, elsewhere":            {3600, "2026-06-23T19:00:00+02:00", false, ""},
		"less, as instants":           {3600, "2026-06-23T19:30:00+02:00", true, "2026-06-23T18:30:00Z"},
		"more":                        {3600, "2026-06-23T16:59:59Z", false, ""},
		"no interval":                 {0, "2026-06-23T17:59:59Z", false, ""},
		"a delivery in the future":    {3600, "2026-06-24T00:00:00Z", true, "2026-06-24T01:00:00Z"},
		"the future, but no interval": {0, "2026-06-24T00:00:00Z", false, ""},
		"the longest interval":        {2678400, "2026-05-23T18:00:01Z", true, "2026-06-23T18:00:01Z"},
		"ages ago":                    {2678400, "0001-01-01T00:00:00Z", false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			c := candidate("cadence_due", "ref")
			r := decisionRequest(c)
			r.Policy.MinimumIntervalSeconds = row.interval
			r.LastReport = &periodicreport.LastReport{DeliveredAt: row.delivered}
			d := reduce(t, r)
			if got := d.Reason == periodicreport.CooldownActive; got != row.active || string(d.NextEligible) != row.next {
				t.Errorf("%s, next %q; want active %v, next %q", d.Reason, d.NextEligible, row.active, row.next)
			}
		})
	}
}

func TestOneThatIgnoresTheIntervalKeepsAllTheOthers(t *testing.T) {
	cadence, manual := candidate("cadence_due", "ref"), candidate("manual", "ref")
	r := decisionRequest(cadence, manual)
	r.Policy.MinimumIntervalSeconds = 3600
	r.LastReport = &periodicreport.LastReport{DeliveredAt: "2026-06-23T17:59:00Z"}
	d := reduce(t, r)
	want := []string{cadence.TriggerID, manual.TriggerID}
	slices.Sort(want)
	if diff := cmp.Diff(want, d.Coalesced); diff != "" || string(d.Selected) != manual.TriggerID {
		t.Errorf("selected %s, %s", d.Selected, diff)
	}
}

func TestOneThatIgnoresTheIntervalIsNoHelpIfItIsSuppressedItself(t *testing.T) {
	cadence, manual := candidate("cadence_due", "ref"), candidate("manual", "ref")
	r := decisionRequest(cadence, manual)
	r.Policy.MinimumIntervalSeconds = 3600
	r.LastReport = &periodicreport.LastReport{CoveredTriggerIDs: []string{manual.TriggerID}, DeliveredAt: "2026-06-23T17:59:00Z"}
	d := reduce(t, r)
	want := map[string]string{cadence.TriggerID: "cooldown_active", manual.TriggerID: "already_covered"}
	got := map[string]string{}
	for _, s := range d.Suppressed {
		got[s.TriggerID] = s.Reason
	}
	if diff := cmp.Diff(want, got); diff != "" || d.Reason != "cooldown_active" {
		t.Errorf("%s %s", d.Reason, diff)
	}
	if !slices.IsSortedFunc(d.Suppressed, func(a, b periodicreport.Suppression) int { return strings.Compare(a.TriggerID, b.TriggerID) }) {
		t.Error("suppressed is not sorted by trigger id")
	}
}

func TestNothingLeftIsNoCooldown(t *testing.T) {
	c := candidate("cadence_due", "ref")
	c.Material = false
	r := decisionRequest(c)
	r.Policy.MinimumIntervalSeconds = 3600
	r.LastReport = &periodicreport.LastReport{DeliveredAt: "2026-06-23T17:59:00Z"}
	if d := reduce(t, r); d.Reason != "no_material_trigger" || d.NextEligible != "" {
		t.Errorf("%s, next %q", d.Reason, d.NextEligible)
	}
}

func TestOfOnePriorityTheFirstObservedIsSelectedThenTheLowerID(t *testing.T) {
	early, late := candidate("manual", "a"), candidate("manual", "b")
	// As strings the other way round.
	early.ObservedAt, late.ObservedAt = "2026-06-23T18:00:00+02:00", "2026-06-23T17:00:00Z"
	if got := reduce(t, decisionRequest(late, early)).Selected; string(got) != early.TriggerID {
		t.Error("the later one was selected")
	}
	late.ObservedAt = "2026-06-23T16:00:00.000Z" // the same instant
	if got := reduce(t, decisionRequest(late, early)).Selected; string(got) != min(early.TriggerID, late.TriggerID) {
		t.Error("of one instant, the higher id was selected")
	}
}

func TestACandidateWithoutAnIDGetsItsOwn(t *testing.T) {
	with, without := candidate("manual", "ref"), candidate("manual", "ref")
	without.TriggerID = ""
	if diff := cmp.Diff(reduce(t, decisionRequest(with)), reduce(t, decisionRequest(without))); diff != "" {
		t.Error(diff)
	}
}

func TestReduceSaysWhatIsWrongWithARequest(t *testing.T) {
	type r = periodicreport.Request
	for want, spoil := range map[string]func(*r){
		"evaluated_at must be an RFC 3339 time with an offset":                 func(r *r) { r.EvaluatedAt = "yesterday" },
		"goal_id must be an opaque id":                                         func(r *r) { r.GoalID = "a goal" },
		"candidates must hold 1 to 64 candidates":                              func(r *r) { r.Candidates = nil },
		"candidates[0].observed_at must not be after evaluated_at":             func(r *r) { r.Candidates[0].ObservedAt = "2026-06-23T18:00:01Z" },
		"candidates[0].observed_at must be an RFC 3339 time with an offset":    func(r *r) { r.Candidates[0].ObservedAt = "now" },
		"candidates[1].trigger_id must not repeat":                             func(r *r) { r.Candidates = append(r.Candidates, r.Candidates[0]) },
		"candidates[0].trigger_id must be the one computed from the candidate": func(r *r) { r.Candidates[0].SourceRef = "other" },
		"candidates[0].trigger_kind must be a known trigger kind":              func(r *r) { r.Candidates[0].TriggerKind = "whim" },
		"candidates[0].source_ref must be an opaque id":                        func(r *r) { r.Candidates[0].SourceRef = "not\xffutf8" },
		"candidates[0].evidence_digest must be a digest":                       func(r *r) { r.Candidates[0].EvidenceDigest = "sha256_" },
		"candidates[0].reason must be a name":                                  func(r *r) { r.Candidates[0].Reason = "Because of this." },
		"policy.minimum_interval_seconds must be from 0 to 2678400":            func(r *r) { r.Policy.MinimumIntervalSeconds = 2678401 },
		"policy.todo_completed_threshold must be from 1 to 64":                 func(r *r) { r.Policy.TodoCompletedThreshold = 65 },
		"policy.trigger_kinds[0] must be a known trigger kind":                 func(r *r) { r.Policy.TriggerKinds = []periodicreport.TriggerKind{"whim"} },
		"policy.trigger_kinds[1] must not repeat a trigger kind":               func(r *r) { r.Policy.TriggerKinds = []periodicreport.TriggerKind{"manual", "manual"} },
		"last_report.delivered_at must be an RFC 3339 time with an offset":     func(r *r) { r.LastReport = &periodicreport.LastReport{} },
		"last_report.delivered_at must be in the years 1 to 9998":              func(r *r) { r.LastReport = &periodicreport.LastReport{DeliveredAt: "9999-12-31T23:59:59Z"} },
		`last_report.covered_trigger_ids[0] must be "trigger_" and 24 hex digits`: func(r *r) {
			r.LastReport = &periodicreport.LastReport{CoveredTriggerIDs: []string{"x"}, DeliveredAt: evaluatedAt}
		},
		"last_report.covered_trigger_ids[1] must not repeat a trigger id": func(r *r) {
			id := r.Candidates[0].TriggerID
			r.LastReport = &periodicreport.LastReport{CoveredTriggerIDs: []string{id, id}, DeliveredAt: evaluatedAt}
		},
	} {
		t.Run(want, func(t *testing.T) {
			r := decisionRequest(candidate("manual", "ref"))
			spoil(&r)
			_, err := periodicreport.Reduce(r)
			if refused := (*events.DecodeError)(nil); !errors.As(err, &refused) || err.Error() != want {
				t.Errorf("got %v", err)
			}
		})
	}
	tooMany := decisionRequest()
	for i := range 65 {
		tooMany.Candidates = append(tooMany.Candidates, candidate("manual", strconv.Itoa(i)))
	}
	if _, err := periodicreport.Reduce(tooMany); err == nil {
		t.Error("65 candidates were taken")
	}
	tooMany.Candidates = tooMany.Candidates[:64]
	if _, err := periodicreport.Reduce(tooMany); err != nil {
		t.Errorf("64 candidates: %v", err)
	}
}

func TestDecisionsDependOnNothingButTheRequest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := decisionRequest()
		r.Policy.MinimumIntervalSeconds = rapid.SampledFrom([]int{0, 60, 3600}).Draw(t, "interval")
		r.Policy.TriggerKinds = rapid.SliceOfDistinct(rapid.SampledFrom(everyKind), rapid.ID).Draw(t, "enabled")
		for _, ref := range rapid.SliceOfNDistinct(rapid.StringMatching(`[a-z]{1,3}`), 1, 8, rapid.ID).Draw(t, "refs") {
			c := candidate(rapid.SampledFrom(everyKind).Draw(t, "kind"), ref)
			c.Material = rapid.Bool().Draw(t, "material")
			r.Candidates = append(r.Candidates, c)
		}
		if rapid.Bool().Draw(t, "reported") {
			r.LastReport = &periodicreport.LastReport{
				CoveredTriggerIDs: []string{r.Candidates[0].TriggerID},
				DeliveredAt:       rapid.SampledFrom([]events.Timestamp{"2026-06-23T17:30:00Z", "2026-06-23T17:59:30Z", "2026-06-24T00:00:00Z"}).Draw(t, "delivered"),
			}
		}
		one, err := periodicreport.Reduce(r)
		if err != nil {
			t.Fatal(err)
		}
		before := slices.Clone(r.Candidates)
		permuted := r
		permuted.Candidates = rapid.Permutation(r.Candidates).Draw(t, "order")
		other, err := periodicreport.Reduce(permuted)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(one, other); diff != "" {
			t.Error("the order of the candidates matters: " + diff)
		}
		if diff := cmp.Diff(before, r.Candidates); diff != "" {
			t.Error("the request was changed: " + diff)
		}
		if got := len(one.Coalesced) + len(one.Suppressed); got != len(r.Candidates) {
			t.Errorf("%d of %d candidates have a verdict", got, len(r.Candidates))
		}
		if (one.Reason == periodicreport.TriggerSelected) != slices.Contains(one.Coalesced, string(one.Selected)) {
			t.Errorf("%s, selected %q of %v", one.Reason, one.Selected, one.Coalesced)
		}
	})
}
