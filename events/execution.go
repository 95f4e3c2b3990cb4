package events

import (
	"slices"

	"github.com/go-json-experiment/json/jsontext"
)

// ExecutionSchema is the schema version of an [Execution].
const ExecutionSchema = "loopx_post_writeback_execution_v0"

// MaxAttempts bounds the attempts that an intent's budget may ask for.
const MaxAttempts = maxIntentAttempts

// Execution is one record about what one executor did with one intent. The last one is the execution's state.
type Execution struct {
	// Accepted is the form the intent was accepted in; null until it is.
	Accepted *Acceptance `json:"accepted"`
	// Actor wrote this record: an executor, the system on its behalf, or a named person.
	Actor     string    `json:"actor"`
	ActorKind ActorKind `json:"actor_kind"`
	// Attempt counts the runs that called the effect, or may have; of a current run it is its number.
	Attempt int `json:"attempt"`
	// CapabilityID and DispatchID say who proposed; null where the intent could not be read.
	CapabilityID Optional   `json:"capability_id"`
	DispatchID   Optional   `json:"dispatch_id"`
	Executor     ExecutorID `json:"executor"`
	// Granted is the part of the executor's grant that the intent asked for; null unless it was admitted.
	Granted *Allowance `json:"granted"`
	// IntentDigest is over the whole intent document, so that the record says exactly what was acted upon.
	IntentDigest Optional   `json:"intent_digest"`
	IntentID     IntentID   `json:"intent_id"`
	IntentKind   IntentKind `json:"intent_kind"`
	// LeaseUntil is when another replica may take the run over; null where nothing runs.
	LeaseUntil Optional `json:"lease_until"`
	// ProposedAt is the time of the intent's event, from which its age counts.
	ProposedAt Optional        `json:"proposed_at"`
	Reason     ExecutionReason `json:"reason"`
	// RecordNumber counts the records of the execution from 1.
	RecordNumber int       `json:"record_number"`
	RecordedAt   Timestamp `json:"recorded_at"`
	// Result is what the effect gave, in returned and completed, else null.
	Result *Packet `json:"result"`
	// ResumeAt is when the next run is due, in paused, else null.
	ResumeAt Optional `json:"resume_at"`
	// RunID names the run that this record is about; null where there is none.
	RunID         Optional        `json:"run_id"`
	SchemaVersion string          `json:"schema_version"`
	Status        ExecutionStatus `json:"status"`
}

// Allowance bounds what an effect may do.
type Allowance struct {
	Budget     IntentBudget `json:"budget"`
	WriteScope []string     `json:"write_scope"`
}

// Acceptance is the form in which an intent was accepted: never wider than what the grant allows it, never another
// payload.
type Acceptance struct {
	Authority Authority    `json:"authority"`
	Budget    IntentBudget `json:"budget"`
	// By is the digest of the grant, or the id of the person.
	By         string   `json:"by"`
	WriteScope []string `json:"write_scope"`
}

// Packet is a typed result: a document, and the schema version that says how to read it.
type Packet struct {
	// Data is an object in canonical form.
	Data          jsontext.Value `json:"data"`
	SchemaVersion string         `json:"schema_version"`
}

// CheckBoundary gives the rule that a string of the packet breaks.
func (p *Packet) CheckBoundary() BoundaryRule {
	if rule := Scan(p.SchemaVersion); rule != "" {
		return rule
	}
	return ScanJSON(p.Data)
}

// ActorKind says what kind of actor wrote an execution record.
type ActorKind string

const (
	// ActorExecutor: the executor itself, whichever replica of it.
	ActorExecutor ActorKind = "executor"
	// ActorSystem: the machinery, about a run that can speak for itself no longer.
	ActorSystem ActorKind = "system"
	// ActorPerson: a person, or a policy acting as one, who accepted or refused.
	ActorPerson ActorKind = "person"
)

// Authority says on whose authority an intent was accepted.
type Authority string

const (
	// AuthorityGrant: the executor's grant admits without asking.
	AuthorityGrant Authority = "grant"
	// AuthorityPerson: the grant is manual and a person accepted.
	AuthorityPerson Authority = "person"
)

// ExecutionStatus is where an execution stands.
type ExecutionStatus string

const (
	// ExecutionRefused: the executor, or a person, does not admit the intent. Final.
	ExecutionRefused ExecutionStatus = "refused"
	// ExecutionAwaiting: admissible, and the grant wants a person to accept it. accepted or refused may follow.
	ExecutionAwaiting ExecutionStatus = "awaiting"
	// ExecutionAccepted: a person accepted it. claimed or failed may follow.
	ExecutionAccepted ExecutionStatus = "accepted"
	// ExecutionClaimed: a run has begun; its effect has not been called. called, paused, claimed (taken over) or
	// failed may follow.
	ExecutionClaimed ExecutionStatus = "claimed"
	// ExecutionCalled: the effect is being called. returned, completed, paused, claimed (taken over) or failed may
	// follow.
	ExecutionCalled ExecutionStatus = "called"
	// ExecutionReturned: the effect gave a result, and something is left to do with it; the effect is not called
	// again. returned (taken over), completed or failed may follow.
	ExecutionReturned ExecutionStatus = "returned"
	// ExecutionPaused: nothing runs until resume_at. claimed or failed may follow.
	ExecutionPaused ExecutionStatus = "paused"
	// ExecutionCompleted: the effect took place and its result is recorded. Final.
	ExecutionCompleted ExecutionStatus = "completed"
	// ExecutionFailed: given up. Final.
	ExecutionFailed ExecutionStatus = "failed"
)

// ExecutionStatuses are all statuses.
func ExecutionStatuses() []ExecutionStatus {
	return []ExecutionStatus{
		ExecutionRefused, ExecutionAwaiting, ExecutionAccepted, ExecutionClaimed, ExecutionCalled, ExecutionReturned,
		ExecutionPaused, ExecutionCompleted, ExecutionFailed,
	}
}

// Terminal reports whether no record follows.
func (s ExecutionStatus) Terminal() bool {
	switch s {
	case ExecutionRefused, ExecutionCompleted, ExecutionFailed:
		return true
	case ExecutionAwaiting, ExecutionAccepted, ExecutionClaimed, ExecutionCalled, ExecutionReturned, ExecutionPaused:
		return false
	}
	return false
}

// Running reports whether a run holds the execution, under a lease.
func (s ExecutionStatus) Running() bool {
	switch s {
	case ExecutionClaimed, ExecutionCalled, ExecutionReturned:
		return true
	case ExecutionRefused, ExecutionAwaiting, ExecutionAccepted, ExecutionPaused, ExecutionCompleted, ExecutionFailed:
		return false
	}
	return false
}

// ExecutionReason is the closed cause of a status. It travels as null where there is none.
type ExecutionReason = Optional

const (
	// refused, in the order in which admission asks

	// ExecutionIntentMalformed: not an intent document in a CloudEvent.
	ExecutionIntentMalformed ExecutionReason = "intent_malformed"
	// ExecutionIntentID: the id is not the one recomputed, or the subject names another id or kind.
	ExecutionIntentID ExecutionReason = "intent_id"
	// ExecutionIntentClaims: the intent claims an authority or an effect.
	ExecutionIntentClaims ExecutionReason = "intent_claims"
	// ExecutionIntentBoundary: a string of the intent is not public-safe.
	ExecutionIntentBoundary ExecutionReason = "intent_boundary"
	// ExecutionKindNotGranted: the executor has no grant for the intent's kind.
	ExecutionKindNotGranted ExecutionReason = "kind_not_granted"
	// ExecutionScopeNotGranted: the requested write scope is not within the granted one.
	ExecutionScopeNotGranted ExecutionReason = "scope_not_granted"
	// ExecutionBudgetOverCeiling: the budget is above the grant's ceilings.
	ExecutionBudgetOverCeiling ExecutionReason = "budget_over_ceiling"
	// ExecutionExecutorIsProposer: the executor is the proposing capability, or bears a name within it.
	ExecutionExecutorIsProposer ExecutionReason = "executor_is_proposer"
	// ExecutionTooOld: older than the grant's max_age, when it would run. Also of failed, where it had been accepted.
	ExecutionTooOld ExecutionReason = "too_old"
	// ExecutionRefusedByPerson: a person refused it.
	ExecutionRefusedByPerson ExecutionReason = "refused_by_person"

	// paused, and failed where no attempt is left

	// ExecutionEffectFailed: the effect gave an error. It may have taken place.
	ExecutionEffectFailed ExecutionReason = "effect_failed"
	// ExecutionEffectTimedOut: the effect did not end in time. It may have taken place.
	ExecutionEffectTimedOut ExecutionReason = "effect_timed_out"
	// ExecutionEffectLater: the effect asked to be called later.
	ExecutionEffectLater ExecutionReason = "effect_later"

	// paused; the run is not counted, because its effect was certainly not called

	// ExecutionEffectNotStarted: nobody was there to take the call.
	ExecutionEffectNotStarted ExecutionReason = "effect_not_started"
	// ExecutionStateReserved: another intent with the same state is being executed.
	ExecutionStateReserved ExecutionReason = "state_reserved"
	// ExecutionStopping: the executor stopped before the call.
	ExecutionStopping ExecutionReason = "stopping"

	// failed, and refused where it was not accepted yet

	// ExecutionIntentDiffers: the intent is no longer the document that was admitted.
	ExecutionIntentDiffers ExecutionReason = "intent_differs"

	// failed

	// ExecutionEffectRefused: the effect will never take place.
	ExecutionEffectRefused ExecutionReason = "effect_refused"
	// ExecutionOutcomeUnknown: the last run was interrupted and nobody saw whether its effect took place.
	ExecutionOutcomeUnknown ExecutionReason = "outcome_unknown"
	// ExecutionResultMalformed: the result is not a typed packet.
	ExecutionResultMalformed ExecutionReason = "result_malformed"
	// ExecutionResultTooLarge: the result has more bytes than accepted.
	ExecutionResultTooLarge ExecutionReason = "result_too_large"
	// ExecutionResultBoundary: a string of the result is not public-safe.
	ExecutionResultBoundary ExecutionReason = "result_boundary"
)

// ExecutionReasons are the reasons that a record of the status may give. It gives none where the reason is null.
func ExecutionReasons(status ExecutionStatus) []ExecutionReason {
	switch status {
	case ExecutionRefused:
		return []ExecutionReason{
			ExecutionIntentMalformed, ExecutionIntentID, ExecutionIntentClaims, ExecutionIntentBoundary,
			ExecutionKindNotGranted, ExecutionScopeNotGranted, ExecutionBudgetOverCeiling, ExecutionExecutorIsProposer,
			ExecutionTooOld, ExecutionRefusedByPerson, ExecutionIntentDiffers,
		}
	case ExecutionPaused:
		return []ExecutionReason{
			ExecutionEffectFailed, ExecutionEffectTimedOut, ExecutionEffectLater, ExecutionEffectNotStarted,
			ExecutionStateReserved, ExecutionStopping,
		}
	case ExecutionFailed:
		return []ExecutionReason{
			ExecutionEffectFailed, ExecutionEffectTimedOut, ExecutionEffectLater, ExecutionEffectRefused,
			ExecutionOutcomeUnknown, ExecutionIntentDiffers, ExecutionTooOld, ExecutionResultMalformed,
			ExecutionResultTooLarge, ExecutionResultBoundary,
		}
	case ExecutionAwaiting, ExecutionAccepted, ExecutionClaimed, ExecutionCalled, ExecutionReturned, ExecutionCompleted:
		return nil
	}
	return nil
}

func (e *Execution) validate(at path) *DecodeError {
	if err := wantSchema(at, e.SchemaVersion, ExecutionSchema); err != nil {
		return err
	}
	if !slices.Contains(ExecutionStatuses(), e.Status) {
		return at.member("status").bad("must be a known status")
	}
	if err := e.validateSubject(at); err != nil {
		return err
	}
	if e.RecordNumber < 1 {
		return at.member("record_number").bad("must count from 1")
	}
	if e.Attempt < 0 || e.Attempt > MaxAttempts {
		return at.member("attempt").bad("must be from 0 to 64")
	}
	if !IsOpaqueID(e.Actor) {
		return at.member("actor").bad("must be an opaque id")
	}
	switch e.ActorKind {
	case ActorExecutor, ActorSystem, ActorPerson:
	default:
		return at.member("actor_kind").bad("must be a known kind of actor")
	}
	if reasons := ExecutionReasons(e.Status); len(reasons) == 0 && e.Reason != "" || len(reasons) > 0 && !slices.Contains(reasons, e.Reason) {
		return at.member("reason").bad("must be a reason of the status")
	}
	if e.Granted != nil {
		if err := wantAllowance(at.member("granted"), e.Granted.Budget, e.Granted.WriteScope); err != nil {
			return err
		}
	}
	if e.Accepted != nil {
		if err := e.Accepted.validate(at.member("accepted")); err != nil {
			return err
		}
	}
	if e.Result != nil {
		if err := e.Result.validate(at.member("result")); err != nil {
			return err
		}
	}
	if err := e.RecordedAt.validate(at.member("recorded_at")); err != nil {
		return err
	}
	return e.validatePresence(at)
}

// validateSubject checks who the record is about.
func (e *Execution) validateSubject(at path) *DecodeError {
	if err := wantName(at.member("executor"), e.Executor); err != nil {
		return err
	}
	if !IsIntentID(e.IntentID) {
		return at.member("intent_id").bad("must be an intent id")
	}
	if err := wantName(at.member("intent_kind"), e.IntentKind); err != nil {
		return err
	}
	if e.CapabilityID != "" && !IsName(string(e.CapabilityID)) {
		return at.member("capability_id").bad("must be a name or null")
	}
	if e.DispatchID != "" && !IsDispatchID(string(e.DispatchID)) {
		return at.member("dispatch_id").bad("must be a dispatch id or null")
	}
	if e.IntentDigest != "" && !IsDigest(string(e.IntentDigest)) {
		return at.member("intent_digest").bad("must be a digest or null")
	}
	if e.RunID != "" && !IsOpaqueID(string(e.RunID)) {
		return at.member("run_id").bad("must be an opaque id or null")
	}
	return nil
}

// validatePresence checks the members that stand in some statuses only.
func (e *Execution) validatePresence(at path) *DecodeError {
	if (e.LeaseUntil != "") != e.Status.Running() {
		return at.member("lease_until").bad("must stand exactly where something runs")
	}
	if (e.ResumeAt != "") != (e.Status == ExecutionPaused) {
		return at.member("resume_at").bad("must stand exactly in a paused record")
	}
	for _, t := range []struct {
		member string
		value  Optional
	}{{"lease_until", e.LeaseUntil}, {"resume_at", e.ResumeAt}, {"proposed_at", e.ProposedAt}} {
		if t.value == "" {
			continue
		}
		if err := Timestamp(t.value).validate(at.member(t.member)); err != nil {
			return err
		}
	}
	if (e.Result != nil) != (e.Status == ExecutionReturned || e.Status == ExecutionCompleted) {
		return at.member("result").bad("must stand exactly in a returned or completed record")
	}
	admitted := e.Status != ExecutionRefused
	if admitted && (e.CapabilityID == "" || e.DispatchID == "" || e.IntentDigest == "" || e.ProposedAt == "" || e.Granted == nil) {
		return at.member("granted").bad("must stand, with who proposed what and when, where the intent was admitted")
	}
	if (e.Accepted != nil) != (admitted && e.Status != ExecutionAwaiting) {
		return at.member("accepted").bad("must stand exactly where the intent was accepted")
	}
	if running := e.Status.Running() || e.Status == ExecutionCompleted; running && e.RunID == "" {
		return at.member("run_id").bad("must name the run")
	}
	return nil
}

func (a *Acceptance) validate(at path) *DecodeError {
	switch a.Authority {
	case AuthorityGrant:
		if !IsDigest(a.By) {
			return at.member("by").bad("must be the digest of the grant")
		}
	case AuthorityPerson:
		if !IsOpaqueID(a.By) {
			return at.member("by").bad("must be an opaque id")
		}
	default:
		return at.member("authority").bad(`must be "grant" or "person"`)
	}
	return wantAllowance(at, a.Budget, a.WriteScope)
}

func (p *Packet) validate(at path) *DecodeError {
	if !IsOpaqueID(p.SchemaVersion) {
		return at.member("schema_version").bad("must be an opaque id")
	}
	if p.Data.Kind() != '{' {
		return at.member("data").bad("must be an object")
	}
	if err := p.Data.Canonicalize(); err != nil {
		return at.member("data").bad("must have a canonical form")
	}
	return nil
}

func wantAllowance(at path, budget IntentBudget, scope []string) *DecodeError {
	if budget.MaxAttempts < 1 || budget.MaxAttempts > MaxAttempts {
		return at.member("budget").member("max_attempts").bad("must be from 1 to 64")
	}
	if budget.MaxResultBytes < 1 || budget.MaxResultBytes > MaxResultBytes {
		return at.member("budget").member("max_result_bytes").bad("must be from 1 to 65536 bytes")
	}
	if len(scope) == 0 {
		return nil
	}
	return wantTokens(at.member("write_scope"), scope, IsOpaqueID, "an opaque id")
}
