package events

import "slices"

// ReceiptSchema is the schema version of a [Receipt].
const ReceiptSchema = "loopx_post_writeback_receipt_v0"

// ProjectionSchema is the schema version of a [Projection].
const ProjectionSchema = "loopx_post_writeback_event_projection_v0"

// MaxReceiptBytes bounds a receipt document.
const MaxReceiptBytes = 64 << 10

// MaxFactRefs bounds the facts of a [Projection].
const MaxFactRefs = 64

// What a receipt must say to be admitted.
const (
	DurableWriteback = "durable_writeback"
	Committed        = "committed"
)

// Receipt proves that a Turn's durable writeback committed. It is the only source of authority.
//
// Its identities and facts are any strings and its flags any booleans: whether they are public-safe is the
// boundary's question, asked per hook, and not the decoder's.
type Receipt struct {
	Boundary      Boundary         `json:"boundary"`
	EventKind     EventKind        `json:"event_kind"`
	Plan          Settlement       `json:"plan"`
	Profile       string           `json:"profile"`
	Projection    Projection       `json:"projection"`
	Receipt       WritebackReceipt `json:"receipt"`
	SchemaVersion string           `json:"schema_version"`
}

// Settlement is the identity of the active Turn settlement.
type Settlement struct {
	AgentID        string `json:"agent_id"`
	EffectID       string `json:"effect_id"`
	GoalID         string `json:"goal_id"`
	TodoID         string `json:"todo_id"`
	TurnInstanceID string `json:"turn_instance_id"`
}

// WritebackReceipt is the receipt of one step of the Turn.
type WritebackReceipt struct {
	Checkpointed  bool      `json:"checkpointed"`
	CommittedAt   Timestamp `json:"committed_at"`
	EffectID      string    `json:"effect_id"`
	ReceiptID     string    `json:"receipt_id"`
	StateRevision string    `json:"state_revision"`
	Status        string    `json:"status"`
	StepKind      string    `json:"step_kind"`
}

// Projection is the bounded view of the event that a hook may be shown.
type Projection struct {
	FactRefs      []string   `json:"fact_refs"`
	SchemaVersion string     `json:"schema_version"`
	Transition    Transition `json:"transition"`
}

// Boundary says what the writeback recorded of private material. A hook's input carries it only all false.
type Boundary struct {
	AbsolutePathsRecorded        bool `json:"absolute_paths_recorded"`
	CredentialValuesRecorded     bool `json:"credential_values_recorded"`
	RawLogsRecorded              bool `json:"raw_logs_recorded"`
	RawSessionTranscriptRecorded bool `json:"raw_session_transcript_recorded"`
	RawTaskTextRecorded          bool `json:"raw_task_text_recorded"`
	RawTrajectoryRecorded        bool `json:"raw_trajectory_recorded"`
}

// MessageID is the id a receipt is published under: the SHA-256 of its canonical form, in hex.
func (r *Receipt) MessageID() string { return digestOf("", r) }

// Inadmissible gives the first rule that the receipt breaks of those that need neither configuration nor clock, from
// identity_incomplete to not_checkpointed, and the member that breaks it; "" if none does.
func (r *Receipt) Inadmissible() (reason RefusalReason, member string) {
	for _, id := range [...]struct{ member, value string }{
		{"plan.goal_id", r.Plan.GoalID},
		{"plan.agent_id", r.Plan.AgentID},
		{"plan.todo_id", r.Plan.TodoID},
		{"plan.turn_instance_id", r.Plan.TurnInstanceID},
		{"plan.effect_id", r.Plan.EffectID},
	} {
		if id.value == "" {
			return RefusedIdentityIncomplete, id.member
		}
	}
	switch {
	case r.Receipt.EffectID != r.Plan.EffectID:
		return RefusedEffectMismatch, "receipt.effect_id"
	case r.Receipt.StepKind != DurableWriteback:
		return RefusedNotDurableWriteback, "receipt.step_kind"
	case r.Receipt.Status != Committed:
		return RefusedNotCommitted, "receipt.status"
	case !r.Receipt.Checkpointed:
		return RefusedNotCheckpointed, "receipt.checkpointed"
	}
	return "", ""
}

func (r *Receipt) validate(at path) *DecodeError {
	if err := wantSchema(at, r.SchemaVersion, ReceiptSchema); err != nil {
		return err
	}
	if err := r.Receipt.CommittedAt.validate(at.member("receipt").member("committed_at")); err != nil {
		return err
	}
	if err := r.Projection.validate(at.member("projection")); err != nil {
		return err
	}
	if known := r.EventKind.transitions(); known != nil && !slices.Contains(known, r.Projection.Transition) {
		return at.member("projection").member("transition").bad("must be a transition of the event kind")
	}
	return nil
}

func (p *Projection) validate(at path) *DecodeError {
	if err := wantSchema(at, p.SchemaVersion, ProjectionSchema); err != nil {
		return err
	}
	if len(p.FactRefs) > MaxFactRefs {
		return at.member("fact_refs").bad("must hold at most 64 references")
	}
	return nil
}
