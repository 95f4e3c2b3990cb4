package registry

import (
	"slices"

	"github.com/afterwrite/afterwrite/dispatcher/core"
	"github.com/afterwrite/afterwrite/events"
)

// Report is what an operator is shown about the files before they are installed.
type Report struct {
	Hooks    []HookReport    `json:"hooks"`
	Profiles []ProfileReport `json:"profiles"`
	// Problems are the contradictions, for which nothing would start.
	Problems []string `json:"problems"`
}

// HookReport is about one hook file, in the order of their names.
type HookReport struct {
	File string `json:"file"`
	// FileDigest names the record of a refusal: the SHA-256 of the raw file, 64 hex digits.
	FileDigest string `json:"file_digest"`
	// HookID is empty where it could not be read. What follows, up to Limits, is empty for a rejected hook.
	HookID             events.HookID       `json:"hook_id"`
	CapabilityID       events.CapabilityID `json:"capability_id"`
	RegistrationDigest events.Digest       `json:"registration_digest"`
	EventKinds         []events.EventKind  `json:"event_kinds"`
	IntentKinds        []events.IntentKind `json:"intent_kinds"`
	RequestedReadScope []events.ReadScope  `json:"requested_read_scope"`
	Budget             events.HookBudget   `json:"budget"`
	Limits             Limits              `json:"limits"`
	// Profiles are those that the hook runs in.
	Profiles []string `json:"profiles"`
	// Problems are why the hook is left out, everywhere or in one profile.
	Problems []string `json:"problems"`
}

// ProfileReport is about one profile, in the order of their names.
type ProfileReport struct {
	Name    string          `json:"name"`
	Enabled bool            `json:"enabled"`
	Hooks   []events.HookID `json:"hooks"`
	// Ceilings for one hook.
	Ceilings              events.HookBudget `json:"ceilings"`
	IntentsPerReceipt     int               `json:"intents_per_receipt"`
	ResultBytesPerReceipt int               `json:"result_bytes_per_receipt"`
	MaxAttempts           int               `json:"max_attempts"`
	// RetryHorizon is the longest time that the attempts can be spread over, as in "31m12s".
	RetryHorizon string `json:"retry_horizon"`
}

// Clean reports whether everything in the files would run.
func (r *Report) Clean() bool {
	rejected := func(h HookReport) bool { return len(h.Problems) > 0 }
	return len(r.Problems) == 0 && !slices.ContainsFunc(r.Hooks, rejected)
}

// Check reads the files as [Load] does and reports on all of them, contradictions or not.
func Check(files Files) *Report {
	l := load(files)
	report := &Report{}
	for i := range l.hooks {
		report.Hooks = append(report.Hooks, l.reportHook(&l.hooks[i]))
	}
	for _, read := range l.profiles {
		report.Profiles = append(report.Profiles, reportProfile(l.installed.Profiles[read.Name]))
	}
	for _, problem := range l.problems {
		report.Problems = append(report.Problems, problem.String())
	}
	return report
}

func (l *loading) reportHook(h *hook) HookReport {
	report := HookReport{File: h.file.Name, FileDigest: h.file.digest(), HookID: h.id}
	if !h.rejected() {
		registration := h.core.Registration
		report.CapabilityID = registration.CapabilityID
		report.RegistrationDigest = h.core.Digest
		report.EventKinds = registration.EventKinds
		report.IntentKinds = registration.IntentKinds
		report.RequestedReadScope = registration.RequestedReadScope
		report.Budget = registration.Budget
		report.Limits = h.limits
	}
	for _, read := range l.profiles {
		if slices.Contains(l.installed.Profiles[read.Name].Hooks, h.id) {
			report.Profiles = append(report.Profiles, read.Name)
		}
	}
	for _, rejection := range l.installed.Rejections {
		if rejection.File == h.file.Name {
			for _, problem := range rejection.Problems {
				report.Problems = append(report.Problems, problem.String())
			}
		}
	}
	return report
}

func reportProfile(profile core.Profile) ProfileReport {
	return ProfileReport{
		Name:                  profile.Name,
		Enabled:               profile.Enabled,
		Hooks:                 profile.Hooks,
		Ceilings:              profile.Ceilings.Hook,
		IntentsPerReceipt:     profile.Ceilings.IntentsPerReceipt,
		ResultBytesPerReceipt: profile.Ceilings.ResultBytesPerReceipt,
		MaxAttempts:           profile.Retry.MaxAttempts,
		RetryHorizon:          profile.Retry.Horizon().String(),
	}
}
