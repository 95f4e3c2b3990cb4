package core

import (
	"time"

	"github.com/afterwrite/afterwrite/events"
)

func (c AdmitReceipt) commit(in *Installed, _ Entry, _ Actor) (*Result, error) {
	a, reason := c.admissible(in)
	if reason != "" {
		return refuse(&events.Refusal{Document: events.RefusedReceipt, Reason: reason}, c.Data, c.Now), nil
	}
	if !a.profile.Enabled {
		return &Result{Outcome: OutcomeIgnored}, nil
	}
	receipt := a.receipt
	hooks := in.plan(&a.profile, receipt.EventKind)
	if len(hooks) == 0 {
		return &Result{Outcome: OutcomeIgnored}, nil
	}
	r := &Result{Outcome: OutcomeAdmitted, Plan: make([]Dispatch, len(hooks)), Fresh: c.fresh(&a, in)}
	identity := receipt.Identity()
	for i, id := range hooks {
		r.Plan[i] = planDispatch(in.Hooks[id], receipt, identity)
	}
	return r, nil
}

// admitted is a receipt that breaks no rule.
type admitted struct {
	receipt *events.Receipt
	// canonical is the receipt's canonical form, which its message id is over.
	canonical []byte
	profile   Profile
}

// admissible gives the first rule that the receipt breaks, in the order of [events.RefusalReason].
// A disabled profile is asked about right after an unknown one, so such a receipt is never refused further down.
func (c AdmitReceipt) admissible(in *Installed) (a admitted, _ events.RefusalReason) {
	if len(c.Data) > events.MaxReceiptBytes {
		return a, events.RefusedTooLarge
	}
	if c.BadEnvelope {
		return a, events.RefusedMalformed
	}
	receipt, canonical, err := events.DecodeCanonical[events.Receipt](c.Data)
	if err != nil || receipt.EventKind != c.SubjectKind {
		return a, events.RefusedMalformed
	}
	if !receipt.EventKind.Known() {
		return a, events.RefusedUnknownEventKind
	}
	profile, known := in.Profiles[receipt.Profile]
	if !known {
		return a, events.RefusedUnknownProfile
	}
	a = admitted{receipt, canonical, profile}
	if !profile.Enabled {
		return a, ""
	}
	if reason, _ := receipt.Inadmissible(); reason != "" {
		return a, reason
	}
	age := c.Now.Sub(receipt.Receipt.CommittedAt.Time())
	switch {
	case in.MaxReceiptAge > 0 && age > in.MaxReceiptAge:
		return a, events.RefusedTooOld
	case age < -in.SkewAllowance:
		return a, events.RefusedFromFuture
	}
	return a, ""
}

// fresh reports whether nobody can have seen this receipt before: it is delivered the first time, under its own
// message id, and so soon after its writeback that an earlier copy would still be in the stream's duplicate window.
// A wrong guess costs an invocation, never a record.
func (c AdmitReceipt) fresh(a *admitted, in *Installed) bool {
	age := c.StreamTime.Sub(a.receipt.Receipt.CommittedAt.Time())
	return c.Deliveries == 1 && age >= 0 && age < in.DuplicateWindow-in.SkewAllowance && c.MessageID == events.SHA256(a.canonical)
}

func planDispatch(hook Hook, receipt *events.Receipt, identity events.ReceiptIdentity) Dispatch {
	registration := &hook.Registration
	d := Dispatch{
		Key: Key{
			Dispatch: events.DispatchIdentity(identity, registration.HookID, registration.CapabilityID, hook.Digest, receipt.EventKind),
			Hook:     registration.HookID,
		},
		Capability:      registration.CapabilityID,
		Profile:         receipt.Profile,
		EventKind:       receipt.EventKind,
		ReceiptIdentity: identity,
		Registration:    hook.Digest,
	}
	d.Input = &events.HookInput{
		Boundary:      receipt.Boundary,
		CapabilityID:  d.Capability,
		DispatchID:    d.Key.Dispatch,
		HookID:        d.Key.Hook,
		SchemaVersion: events.HookInputSchema,
	}
	if registration.Reads(events.SettlementIdentity) {
		d.Input.Source = &events.HookSource{
			AgentID:        receipt.Plan.AgentID,
			CommittedAt:    receipt.Receipt.CommittedAt,
			EffectID:       receipt.Receipt.EffectID,
			EventKind:      receipt.EventKind,
			GoalID:         receipt.Plan.GoalID,
			ReceiptID:      receipt.Receipt.ReceiptID,
			StateRevision:  receipt.Receipt.StateRevision,
			StepKind:       receipt.Receipt.StepKind,
			TodoID:         receipt.Plan.TodoID,
			TurnInstanceID: receipt.Plan.TurnInstanceID,
		}
	}
	if registration.Reads(events.BoundedEventProjection) {
		d.Input.Projection = &receipt.Projection
	}
	d.Outside = d.Input.CheckBoundary()
	d.InputData = events.Canonical(d.Input)
	d.InputDigest = events.DigestOf(d.InputData)
	return d
}

func (c RefusePoisoned) commit(*Installed, Entry, Actor) (*Result, error) {
	return refuse(&events.Refusal{Document: events.RefusedReceipt, Reason: events.RefusedPoisoned}, c.Data, c.Now), nil
}

func (c RefuseRegistration) commit(*Installed, Entry, Actor) (*Result, error) {
	refusal := &events.Refusal{
		Code:     events.CodeRegistrationRejected,
		Document: events.RefusedRegistration,
		HookID:   events.Optional(c.Hook),
		Reason:   c.Reason,
	}
	return refuse(refusal, c.File, c.Now), nil
}

func refuse(refusal *events.Refusal, raw []byte, now time.Time) *Result {
	refusal.Digest = events.SHA256(raw)
	refusal.RecordedAt = events.NewTimestamp(now)
	refusal.SchemaVersion = events.RefusalSchema
	refusal.Size = len(raw)
	return &Result{Outcome: OutcomeRefused, Save: &Save{Refusal: refusal}}
}
