package periodicreport

import (
	"cmp"
	"slices"

	"github.com/afterwrite/afterwrite/events"
)

// TriggerKind is what may make a report due.
type TriggerKind string

const (
	// Manual: somebody asked.
	Manual TriggerKind = "manual"
	// PrimaryGoalOutcome: the goal has its outcome.
	PrimaryGoalOutcome TriggerKind = "primary_goal_outcome"
	// VisionClosed: the vision is closed.
	VisionClosed TriggerKind = "vision_closed"
	// MaterialBlocker: something material blocks the goal.
	MaterialBlocker TriggerKind = "material_blocker"
	// MaterialRecovery: a material blocker is gone.
	MaterialRecovery TriggerKind = "material_recovery"
	// MaterialDecision: a material decision was made.
	MaterialDecision TriggerKind = "material_decision"
	// BoundedSegmentMilestone: a segment was completed or replanned. Every candidate made from an intent is one.
	BoundedSegmentMilestone TriggerKind = "bounded_segment_milestone"
	// CadenceDue: the usual time has come.
	CadenceDue TriggerKind = "cadence_due"
)

// Kinds that are known and never reportable by themselves.
const (
	StateRefreshed   TriggerKind = "state_refreshed"
	MonitorUnchanged TriggerKind = "monitor_unchanged"
	SurfaceOnly      TriggerKind = "surface_only"
	TodoCompleted    TriggerKind = "todo_completed"
	VisionCheckpoint TriggerKind = "vision_checkpoint"
)

// kind is one row of the table of trigger kinds.
type kind struct {
	reportable bool
	// priority orders the candidates that stay, high first.
	priority int
	// ignoresInterval: a candidate of the kind lifts the minimum interval, for itself and all others.
	ignoresInterval bool
}

var kinds = map[TriggerKind]kind{
	Manual:                  {true, 100, true},
	PrimaryGoalOutcome:      {true, 90, true},
	VisionClosed:            {true, 80, true},
	MaterialBlocker:         {true, 70, true},
	MaterialRecovery:        {true, 60, false},
	MaterialDecision:        {true, 50, false},
	BoundedSegmentMilestone: {true, 40, false},
	CadenceDue:              {true, 10, false},
	StateRefreshed:          {},
	MonitorUnchanged:        {},
	SurfaceOnly:             {},
	TodoCompleted:           {},
	VisionCheckpoint:        {},
}

func (k TriggerKind) known() bool {
	_, ok := kinds[k]
	return ok
}

// Candidate is one possible trigger of a report.
type Candidate struct {
	EvidenceDigest events.Digest `json:"evidence_digest"`
	// Material says whether the candidate is worth a report at all; Reason says why, or why not.
	Material    bool             `json:"material"`
	ObservedAt  events.Timestamp `json:"observed_at"`
	Reason      string           `json:"reason"`
	SourceRef   string           `json:"source_ref"`
	TriggerID   string           `json:"trigger_id"`
	TriggerKind TriggerKind      `json:"trigger_kind"`
}

// Why a candidate made from an intent is material, or is not.
const (
	ReasonDurableReplan    = "durable_replan_observed"
	ReasonThresholdReached = "todo_completion_threshold_reached"
	ReasonNotPromoted      = "promotion_conditions_not_met"
)

// TriggerID is "trigger_" and 24 hex digits over what the candidate stands for, so that the same facts told twice
// are one trigger.
func TriggerID(kind TriggerKind, sourceRef string, evidence events.Digest) string {
	return shortID(triggerPrefix, struct {
		EvidenceDigest events.Digest `json:"evidence_digest"`
		SourceRef      string        `json:"source_ref"`
		TriggerKind    TriggerKind   `json:"trigger_kind"`
	}{evidence, sourceRef, kind})
}

// Candidate judges the facts of one intent.
func (f *Facts) Candidate(policy *Policy) Candidate {
	refs := slices.Compact(slices.Sorted(slices.Values(f.SourceEventRefs)))
	if refs == nil {
		refs = []string{}
	}
	c := Candidate{
		EvidenceDigest: events.DigestOf(canonical(refs)),
		ObservedAt:     f.ObservedAt,
		SourceRef:      f.SegmentRef,
		TriggerKind:    BoundedSegmentMilestone,
	}
	c.TriggerID = TriggerID(c.TriggerKind, c.SourceRef, c.EvidenceDigest)
	switch {
	case f.Transition == events.ReplanEntered && policy.PromoteReplan:
		c.Material, c.Reason = true, ReasonDurableReplan
	case f.Transition == events.SegmentCompleted && len(refs) >= policy.TodoCompletedThreshold:
		c.Material, c.Reason = true, ReasonThresholdReached
	default:
		c.Reason = ReasonNotPromoted
	}
	return c
}

// candidates judges the facts of all intents, sorted by trigger id. Two events of one Turn may carry the same
// segment and the same evidence: they are one trigger, told by the material one, then by the one observed first.
func candidates(facts []*Facts, policy *Policy) []Candidate {
	all := make([]Candidate, len(facts))
	for i, f := range facts {
		all[i] = f.Candidate(policy)
	}
	slices.SortFunc(all, func(a, b Candidate) int {
		return cmp.Or(
			cmp.Compare(a.TriggerID, b.TriggerID),
			-compareBool(a.Material, b.Material),
			a.ObservedAt.Time().Compare(b.ObservedAt.Time()),
			cmp.Compare(a.ObservedAt, b.ObservedAt),
			cmp.Compare(a.Reason, b.Reason),
		)
	})
	return slices.CompactFunc(all, func(a, b Candidate) bool { return a.TriggerID == b.TriggerID })
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

func (c *Candidate) complete() error {
	switch {
	case !c.TriggerKind.known():
		return refuse("trigger_kind", "must be a known trigger kind")
	case !events.IsOpaqueID(c.SourceRef):
		return refuse("source_ref", "must be an opaque id")
	case !events.IsDigest(c.EvidenceDigest):
		return refuse("evidence_digest", "must be a digest")
	case !events.IsTimestamp(string(c.ObservedAt)):
		return refuse("observed_at", "must be an RFC 3339 time with an offset")
	case !events.IsName(c.Reason):
		return refuse("reason", "must be a name")
	}
	computed := TriggerID(c.TriggerKind, c.SourceRef, c.EvidenceDigest)
	if c.TriggerID == "" {
		c.TriggerID = computed
	}
	if c.TriggerID != computed {
		return refuse("trigger_id", "must be the one computed from the candidate")
	}
	return nil
}
