package periodicreport

import (
	"cmp"
	"slices"
	"time"

	"github.com/afterwrite/afterwrite/events"
)

// DecisionSchema is the schema version of a [Decision].
const DecisionSchema = "periodic_report_trigger_decision_v0"

// Bounds of the reducer's documents.
const (
	MaxCandidates             = 64
	MaxMinimumIntervalSeconds = 2_678_400 // 31 days
	MaxTodoCompletedThreshold = 64
)

// Policy is what an executor's grant says about reports.
type Policy struct {
	MinimumIntervalSeconds int  `json:"minimum_interval_seconds"`
	PromoteReplan          bool `json:"promote_replan"`
	// TodoCompletedThreshold is how many distinct facts make a completed segment material.
	TodoCompletedThreshold int `json:"todo_completed_threshold"`
	// TriggerKinds are the kinds switched on.
	TriggerKinds []TriggerKind `json:"trigger_kinds"`
}

// LastReport is the capability's opaque state, one per goal, kept by the executor.
type LastReport struct {
	CoveredTriggerIDs []string         `json:"covered_trigger_ids"`
	DeliveredAt       events.Timestamp `json:"delivered_at"`
}

// Request is everything a decision depends on.
type Request struct {
	Candidates  []Candidate      `json:"candidates"`
	EvaluatedAt events.Timestamp `json:"evaluated_at"`
	GoalID      string           `json:"goal_id"`
	// LastReport is null before the first.
	LastReport *LastReport `json:"last_report"`
	Policy     Policy      `json:"policy"`
}

// DecisionReason is the verdict on a whole request.
type DecisionReason string

const (
	// TriggerSelected: a report is due.
	TriggerSelected DecisionReason = "trigger_selected"
	// CooldownActive: it would be, but the last one is too recent.
	CooldownActive DecisionReason = "cooldown_active"
	// NoMaterialTrigger: nothing is worth a report.
	NoMaterialTrigger DecisionReason = "no_material_trigger"
)

// Why a candidate is suppressed, besides its own reason where it is not material.
const (
	SuppressedNotReportable  = "not_reportable"
	SuppressedDisabled       = "disabled_by_profile"
	SuppressedAlreadyCovered = "already_covered"
	SuppressedCooldown       = "cooldown_active"
)

// Decision says whether a report is due. It is a proposal too: nothing is rendered, sent or remembered by it.
type Decision struct {
	// Coalesced are the ids of all candidates that one report would cover, sorted.
	Coalesced     []string         `json:"coalesced"`
	DecisionID    string           `json:"decision_id"`
	EvaluatedAt   events.Timestamp `json:"evaluated_at"`
	GoalID        string           `json:"goal_id"`
	NextEligible  events.Optional  `json:"next_eligible_at"`
	Reason        DecisionReason   `json:"reason"`
	SchemaVersion string           `json:"schema_version"`
	// Selected is the coalesced candidate that the report is named after, or null.
	Selected events.Optional `json:"selected"`
	// Suppressed is sorted by trigger id.
	Suppressed []Suppression `json:"suppressed"`
}

// Suppression says why a candidate does not count.
type Suppression struct {
	Reason    string `json:"reason"`
	TriggerID string `json:"trigger_id"`
}

// DecodeRequest reads a reducer request strictly. The error is an [*events.DecodeError].
func DecodeRequest(data []byte) (*Request, error) {
	r, err := events.DecodeValue[Request](data)
	if err != nil {
		return nil, err
	}
	return r, r.complete()
}

// Reduce decides whether a report is due. It is a pure function: equal requests give equal decisions, in whatever
// order the candidates stand. A candidate without a trigger id gets its own. The error is an [*events.DecodeError]
// that names what in the request breaks which rule.
func Reduce(r Request) (*Decision, error) {
	r.Candidates = slices.Clone(r.Candidates)
	if err := r.complete(); err != nil {
		return nil, err
	}
	slices.SortFunc(r.Candidates, func(a, b Candidate) int { return cmp.Compare(a.TriggerID, b.TriggerID) })

	d := &Decision{
		Coalesced:     []string{},
		DecisionID:    shortID(decisionPrefix, &r),
		EvaluatedAt:   r.EvaluatedAt,
		GoalID:        r.GoalID,
		Reason:        NoMaterialTrigger,
		SchemaVersion: DecisionSchema,
		Suppressed:    []Suppression{},
	}
	var staying []Candidate
	for _, c := range r.Candidates {
		if reason := r.suppression(&c); reason != "" {
			d.Suppressed = append(d.Suppressed, Suppression{reason, c.TriggerID})
		} else {
			staying = append(staying, c)
		}
	}
	if len(staying) == 0 {
		return d, nil
	}
	if next, active := r.cooldown(); active && !slices.ContainsFunc(staying, ignoresInterval) {
		for _, c := range staying {
			d.Suppressed = append(d.Suppressed, Suppression{SuppressedCooldown, c.TriggerID})
		}
		slices.SortFunc(d.Suppressed, func(a, b Suppression) int { return cmp.Compare(a.TriggerID, b.TriggerID) })
		d.Reason = CooldownActive
		d.NextEligible = events.Optional(events.NewTimestamp(next))
		return d, nil
	}
	for _, c := range staying {
		d.Coalesced = append(d.Coalesced, c.TriggerID)
	}
	d.Reason = TriggerSelected
	d.Selected = events.Optional(slices.MinFunc(staying, precedence).TriggerID)
	return d, nil
}

// suppression gives the first rule by which a candidate does not count, whatever the interval; "" if it stays.
func (r *Request) suppression(c *Candidate) string {
	switch {
	case !kinds[c.TriggerKind].reportable:
		return SuppressedNotReportable
	case !slices.Contains(r.Policy.TriggerKinds, c.TriggerKind):
		return SuppressedDisabled
	case r.LastReport != nil && slices.Contains(r.LastReport.CoveredTriggerIDs, c.TriggerID):
		return SuppressedAlreadyCovered
	case !c.Material:
		return c.Reason
	}
	return ""
}

// cooldown reports whether the minimum interval since the last report is still running, and when it ends.
func (r *Request) cooldown() (end time.Time, active bool) {
	if r.LastReport == nil || r.Policy.MinimumIntervalSeconds == 0 {
		return time.Time{}, false
	}
	delivered := r.LastReport.DeliveredAt.Time()
	// A delivery in the future counts as one of just now; Sub saturates, far beyond the longest interval.
	elapsed := max(0, int(r.EvaluatedAt.Time().Sub(delivered)/time.Second))
	interval := r.Policy.MinimumIntervalSeconds
	return delivered.Add(time.Duration(interval) * time.Second), elapsed < interval
}

func ignoresInterval(c Candidate) bool { return kinds[c.TriggerKind].ignoresInterval }

// precedence orders the candidates that stay: the first gives the report its name.
func precedence(a, b Candidate) int {
	return cmp.Or(
		cmp.Compare(kinds[b.TriggerKind].priority, kinds[a.TriggerKind].priority),
		a.ObservedAt.Time().Compare(b.ObservedAt.Time()),
		cmp.Compare(a.TriggerID, b.TriggerID),
	)
}

// complete checks the request and gives a trigger id to every candidate that came without.
func (r *Request) complete() error {
	if !events.IsTimestamp(string(r.EvaluatedAt)) {
		return refuse("evaluated_at", "must be an RFC 3339 time with an offset")
	}
	if !events.IsOpaqueID(r.GoalID) {
		return refuse("goal_id", "must be an opaque id")
	}
	if err := r.Policy.check(); err != nil {
		return under("policy", err)
	}
	if err := r.LastReport.check(); err != nil {
		return under("last_report", err)
	}
	if len(r.Candidates) == 0 || len(r.Candidates) > MaxCandidates {
		return refuse("candidates", "must hold 1 to 64 candidates")
	}
	for i := range r.Candidates {
		c, at := &r.Candidates[i], index("candidates", i)
		if err := c.complete(); err != nil {
			return under(at, err)
		}
		if c.ObservedAt.Time().After(r.EvaluatedAt.Time()) {
			return refuse(at+".observed_at", "must not be after evaluated_at")
		}
		if slices.ContainsFunc(r.Candidates[:i], func(o Candidate) bool { return o.TriggerID == c.TriggerID }) {
			return refuse(at+".trigger_id", "must not repeat")
		}
	}
	return nil
}

func (p *Policy) check() error {
	if p.MinimumIntervalSeconds < 0 || p.MinimumIntervalSeconds > MaxMinimumIntervalSeconds {
		return refuse("minimum_interval_seconds", "must be from 0 to 2678400")
	}
	if p.TodoCompletedThreshold < 1 || p.TodoCompletedThreshold > MaxTodoCompletedThreshold {
		return refuse("todo_completed_threshold", "must be from 1 to 64")
	}
	for i, kind := range p.TriggerKinds {
		if !kind.known() {
			return refuse(index("trigger_kinds", i), "must be a known trigger kind")
		}
		if slices.Contains(p.TriggerKinds[:i], kind) {
			return refuse(index("trigger_kinds", i), "must not repeat a trigger kind")
		}
	}
	return nil
}

func (l *LastReport) check() error {
	if l == nil {
		return nil
	}
	if !events.IsTimestamp(string(l.DeliveredAt)) {
		return refuse("delivered_at", "must be an RFC 3339 time with an offset")
	}
	// An interval later must still be a year that RFC 3339 can write.
	if year := l.DeliveredAt.Time().UTC().Year(); year < 1 || year > 9998 {
		return refuse("delivered_at", "must be in the years 1 to 9998")
	}
	seen := make(map[string]struct{}, len(l.CoveredTriggerIDs))
	for i, id := range l.CoveredTriggerIDs {
		if !isShortID(id, triggerPrefix) {
			return refuse(index("covered_trigger_ids", i), `must be "trigger_" and 24 hex digits`)
		}
		if _, repeated := seen[id]; repeated {
			return refuse(index("covered_trigger_ids", i), "must not repeat a trigger id")
		}
		seen[id] = struct{}{}
	}
	return nil
}
