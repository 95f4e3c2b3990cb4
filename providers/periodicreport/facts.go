package periodicreport

import (
	"github.com/afterwrite/afterwrite/events"
)

// Facts is the payload of the intent: what the writeback recorded, frozen. A decision is made from these and never
// from live state, so a replay decides the same. Fields stand in canonical order, as in every type that is hashed.
type Facts struct {
	AgentID string `json:"agent_id"`
	GoalID  string `json:"goal_id"`
	// ObservedAt is the receipt's committed_at.
	ObservedAt events.Timestamp `json:"observed_at"`
	// SegmentRef names the agent's segment at one state revision, see [SegmentRef].
	SegmentRef string `json:"segment_ref"`
	// SourceEventRefs are the receipt's facts, in its order.
	SourceEventRefs []string          `json:"source_event_refs"`
	Transition      events.Transition `json:"transition"`
}

const (
	segmentPrefix  = "segment_"
	triggerPrefix  = "trigger_"
	decisionPrefix = "trigger_decision_"
	// shortHex is how many hex digits of a SHA-256 the capability's own ids carry.
	shortHex = 24
)

// SegmentRef is "segment_" and 24 hex digits over the goal, the agent and the state revision. The agent is part of
// it, so that the facts of one agent never complete the segment of another.
func SegmentRef(goalID, agentID, stateRevision string) string {
	return shortID(segmentPrefix, struct {
		AgentID       string `json:"agent_id"`
		GoalID        string `json:"goal_id"`
		StateRevision string `json:"state_revision"`
	}{agentID, goalID, stateRevision})
}

// shortID is the prefix and 24 hex digits over the canonical form of v, a value that [events.EncodeValue] takes:
// whatever is hashed here has passed a strict decoder or a check before.
func shortID(prefix string, v any) string {
	return prefix + events.SHA256(canonical(v))[:shortHex]
}

func canonical(v any) []byte {
	out, err := events.EncodeValue(v)
	if err != nil {
		panic(err)
	}
	return out
}

func isShortID(s, prefix string) bool {
	if len(s) != len(prefix)+shortHex || s[:len(prefix)] != prefix {
		return false
	}
	for _, c := range s[len(prefix):] {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

// decodeFacts reads the payload of an intent.
func decodeFacts(payload []byte) (*Facts, error) {
	facts, err := events.DecodeValue[Facts](payload)
	if err != nil {
		return nil, err
	}
	return facts, facts.check()
}

func (f *Facts) check() error {
	switch {
	case !events.IsOpaqueID(f.GoalID):
		return refuse("goal_id", "must be an opaque id")
	case !events.IsOpaqueID(f.AgentID):
		return refuse("agent_id", "must be an opaque id")
	case !isShortID(f.SegmentRef, segmentPrefix):
		return refuse("segment_ref", `must be "segment_" and 24 hex digits`)
	case !proposes(f.Transition):
		return refuse("transition", `must be "segment_completed" or "replan_entered"`)
	case !events.IsTimestamp(string(f.ObservedAt)):
		return refuse("observed_at", "must be an RFC 3339 time with an offset")
	case len(f.SourceEventRefs) > events.MaxFactRefs:
		return refuse("source_event_refs", "must hold at most 64 references")
	}
	for i, ref := range f.SourceEventRefs {
		if !events.IsOpaqueID(ref) {
			return refuse(index("source_event_refs", i), "must be an opaque id")
		}
	}
	return nil
}
