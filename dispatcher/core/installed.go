package core

import (
	"slices"
	"time"

	"github.com/afterwrite/afterwrite/events"
)

// Installed is what the composition root installed: the hooks, and the profiles that name which of them run.
// It does not change while a process runs.
type Installed struct {
	Hooks    map[events.HookID]Hook
	Profiles map[string]Profile
	// MaxReceiptAge is how old a receipt may be. Zero accepts any age.
	MaxReceiptAge time.Duration
	// SkewAllowance is how far ahead of the dispatcher's time a receipt may be committed.
	SkewAllowance time.Duration
	// DuplicateWindow is that of the receipts stream.
	DuplicateWindow time.Duration
	// JournalAge is how long the journal keeps a record.
	JournalAge time.Duration
}

// Hook is one installed registration.
type Hook struct {
	Registration events.Registration
	// Digest is the registration's.
	Digest events.Digest
	// Payloads holds the payload schema of every intent kind the registration declares.
	Payloads map[events.IntentKind]*events.PayloadSchema
}

// Profile names which hooks run, and under which ceilings.
type Profile struct {
	Name string
	// Enabled is false where receipts of the profile are acknowledged and leave nothing behind.
	Enabled bool
	// Hooks is the allowlist.
	Hooks    []events.HookID
	Ceilings Ceilings
	Retry    Retry
}

// Ceilings bound what the hooks of a profile may declare: each hook by itself, and for one receipt together.
type Ceilings struct {
	// Per hook, the largest budget it may declare.
	Hook events.HookBudget
	// IntentsPerReceipt bounds the sum of max_intents_per_dispatch over the hooks of one event kind.
	IntentsPerReceipt int
	// ResultBytesPerReceipt bounds the sum of max_result_bytes over the hooks of one event kind.
	ResultBytesPerReceipt int
}

// Retry bounds and spaces the attempts of a dispatch.
type Retry struct {
	// MaxAttempts counts attempts of any kind.
	MaxAttempts int
	// Initial is the pause after the first attempt; it doubles up to Max.
	Initial, Max time.Duration
}

// DefaultRetry is 12 attempts, from 1 s doubling to 5 min.
var DefaultRetry = Retry{MaxAttempts: 12, Initial: time.Second, Max: 5 * time.Minute}

// Horizon is the longest time that the attempts of a dispatch can be spread over, calls not counted.
func (r Retry) Horizon() time.Duration {
	var total time.Duration
	for attempt := 1; attempt < r.MaxAttempts; attempt++ {
		total += r.pause(attempt) + r.pause(attempt)/jitterParts
	}
	return total
}

// plan lists the hooks that the profile runs for kind, in hook id order.
func (in *Installed) plan(profile *Profile, kind events.EventKind) []events.HookID {
	var hooks []events.HookID
	for _, id := range profile.Hooks {
		if hook, ok := in.Hooks[id]; ok && slices.Contains(hook.Registration.EventKinds, kind) {
			hooks = append(hooks, id)
		}
	}
	slices.Sort(hooks)
	return hooks
}
