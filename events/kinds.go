package events

// EventKind names what a writeback recorded. The table below is closed: a new kind is a new release.
type EventKind string

// Transition is what the writeback did to the Turn's segment.
type Transition string

const (
	// TodoCompleted: a todo was completed.
	TodoCompleted EventKind = "todo_completed"
	// ReplanRecorded: a replan was recorded.
	ReplanRecorded EventKind = "replan_recorded"

	// SegmentAdvanced: the segment goes on.
	SegmentAdvanced Transition = "segment_advanced"
	// SegmentCompleted: the segment is complete.
	SegmentCompleted Transition = "segment_completed"
	// ReplanEntered: a replan has begun.
	ReplanEntered Transition = "replan_entered"
)

var eventKinds = []struct {
	kind        EventKind
	transitions []Transition
}{
	{TodoCompleted, []Transition{SegmentAdvanced, SegmentCompleted}},
	{ReplanRecorded, []Transition{ReplanEntered}},
}

// EventKinds are all known event kinds.
func EventKinds() []EventKind {
	kinds := make([]EventKind, len(eventKinds))
	for i, row := range eventKinds {
		kinds[i] = row.kind
	}
	return kinds
}

// Known reports whether k stands in the table of event kinds.
func (k EventKind) Known() bool { return k.transitions() != nil }

func (k EventKind) transitions() []Transition {
	for _, row := range eventKinds {
		if row.kind == k {
			return row.transitions
		}
	}
	return nil
}

// allTransitions are those of all event kinds.
var allTransitions = func() (all []Transition) {
	for _, row := range eventKinds {
		all = append(all, row.transitions...)
	}
	return all
}()
