package registry

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/afterwrite/afterwrite/dispatcher/core"
	"github.com/afterwrite/afterwrite/events"
)

// Installed is what runs, and what was left out. It does not change while a process runs.
type Installed struct {
	// Installed is for the core. A profile's hooks are those that run in it, in the order of its allowlist. The
	// receipt age and the skew allowance are the host's to set.
	core.Installed
	// Limits has an entry for every hook in Hooks.
	Limits map[events.HookID]Limits
	// Rejections are in the order of the files, and for one file in the order of the profiles.
	Rejections []Rejection
}

// Load reads what is to be installed. The error is a [*Contradictions].
func Load(files Files) (*Installed, error) {
	l := load(files)
	if len(l.problems) > 0 {
		return nil, &Contradictions{Problems: l.problems, Rejections: l.installed.Rejections}
	}
	return l.installed, nil
}

// RetryHorizon is the longest time over which any profile spreads the attempts of a dispatch. The journal must keep
// its records at least that much longer than receipts are kept.
func (in *Installed) RetryHorizon() time.Duration {
	var longest time.Duration
	for _, profile := range in.Profiles {
		longest = max(longest, profile.Retry.Horizon())
	}
	return longest
}

// Refusals are the commands that record the rejections: one for each file, however many profiles rejected it.
func (in *Installed) Refusals(now time.Time) []core.RefuseRegistration {
	var refusals []core.RefuseRegistration
	for _, rejection := range in.Rejections {
		same := func(r core.RefuseRegistration) bool { return bytes.Equal(r.File, rejection.raw) }
		if !slices.ContainsFunc(refusals, same) {
			refusals = append(refusals, core.RefuseRegistration{
				File: rejection.raw, Hook: rejection.HookID, Reason: rejection.Reason, Now: now,
			})
		}
	}
	return refusals
}

// loading is what has been read so far, contradictions included.
type loading struct {
	profilesFile string
	hooks        []hook
	// byID holds the first hook of each readable id, a rejected one too: it counts as installed.
	byID      map[events.HookID]*hook
	profiles  []core.Profile
	problems  []Problem
	installed *Installed
}

func load(files Files) *loading {
	l := &loading{
		profilesFile: files.Profiles.Name,
		byID:         make(map[events.HookID]*hook),
		installed: &Installed{
			Installed: core.Installed{
				Hooks:    make(map[events.HookID]core.Hook),
				Profiles: make(map[string]core.Profile),
			},
			Limits: make(map[events.HookID]Limits),
		},
	}
	defaults := DefaultLimits(len(files.Hooks))
	for _, file := range files.Hooks {
		l.hooks = append(l.hooks, readHook(file, defaults))
	}
	slices.SortStableFunc(l.hooks, func(a, b hook) int { return strings.Compare(a.file.Name, b.file.Name) })
	for i := range l.hooks {
		l.installHook(&l.hooks[i])
	}
	var problems []Problem
	l.profiles, problems = readProfiles(files.Profiles)
	l.problems = append(l.problems, problems...)
	for _, profile := range l.profiles {
		l.installProfile(profile)
	}
	return l
}

func (l *loading) installHook(h *hook) {
	if h.rejected() {
		l.installed.Rejections = append(l.installed.Rejections, h.rejection())
	}
	if h.id == "" {
		return
	}
	if first, ok := l.byID[h.id]; ok {
		l.contradiction(h.file.Name, "registration.hook_id", strconv.Quote(h.id)+" is registered by "+first.file.Name+" too")
		return
	}
	l.byID[h.id] = h
	if !h.rejected() {
		l.installed.Hooks[h.id] = h.core
		l.installed.Limits[h.id] = h.limits
	}
}

func (l *loading) installProfile(profile core.Profile) {
	at := join("profiles", profile.Name)
	var run []events.HookID
	for i, id := range profile.Hooks {
		h, ok := l.byID[id]
		switch {
		case !ok && events.IsName(id):
			l.contradiction(l.profilesFile, fmt.Sprintf("%s.hooks[%d]", at, i), "names the hook "+strconv.Quote(id)+", which no file registers")
		case !ok, h.rejected():
		default:
			if over := h.overCeilings(&profile); len(over) > 0 {
				rejection := h.rejection()
				rejection.Profile, rejection.Reason, rejection.Problems = profile.Name, events.RefusedOverCeiling, over
				l.installed.Rejections = append(l.installed.Rejections, rejection)
				continue
			}
			run = append(run, id)
		}
	}
	profile.Hooks = run
	l.checkSums(at, &profile)
	l.installed.Profiles[profile.Name] = profile
}

// overCeilings says where the hook by itself declares more than the profile allows.
func (h *hook) overCeilings(profile *core.Profile) []Problem {
	declared, ceiling := h.core.Registration.Budget, profile.Ceilings.Hook
	var problems []Problem
	for _, bound := range []struct {
		member        string
		value, atMost int
	}{
		{"max_invocations_per_dispatch", declared.MaxInvocationsPerDispatch, ceiling.MaxInvocationsPerDispatch},
		{"max_intents_per_dispatch", declared.MaxIntentsPerDispatch, ceiling.MaxIntentsPerDispatch},
		{"max_result_bytes", declared.MaxResultBytes, ceiling.MaxResultBytes},
		{"timeout_ms", declared.TimeoutMillis, ceiling.TimeoutMillis},
	} {
		if bound.value > bound.atMost {
			problems = append(problems, Problem{
				File:  h.file.Name,
				Field: "registration.budget." + bound.member,
				Rule:  fmt.Sprintf("must be at most %d in the profile %q", bound.atMost, profile.Name),
			})
		}
	}
	return problems
}

// checkSums compares what the profile's hooks of one event kind declare together with its ceilings for a receipt.
func (l *loading) checkSums(at string, profile *core.Profile) {
	for _, kind := range events.EventKinds() {
		intents, bytes := 0, 0
		for _, id := range profile.Hooks {
			if registration := &l.byID[id].core.Registration; slices.Contains(registration.EventKinds, kind) {
				intents += registration.Budget.MaxIntentsPerDispatch
				bytes += registration.Budget.MaxResultBytes
			}
		}
		for _, sum := range []struct {
			member           string
			declared, atMost int
		}{
			{"max_intents", intents, profile.Ceilings.IntentsPerReceipt},
			{"max_result_bytes", bytes, profile.Ceilings.ResultBytesPerReceipt},
		} {
			if sum.declared > sum.atMost {
				l.contradiction(l.profilesFile, at+".ceilings.receipt."+sum.member,
					fmt.Sprintf("is %d, and the hooks of %s declare %d together", sum.atMost, kind, sum.declared))
			}
		}
	}
}

func (l *loading) contradiction(file, field, rule string) {
	l.problems = append(l.problems, Problem{File: file, Field: field, Rule: rule})
}
