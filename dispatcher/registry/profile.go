package registry

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/afterwrite/afterwrite/dispatcher/core"
	"github.com/afterwrite/afterwrite/events"
)

// DefaultCeilings are all that the contract allows a hook, and for one receipt 64 intents and 1 MiB of results.
var DefaultCeilings = core.Ceilings{
	Hook: events.HookBudget{
		MaxIntentsPerDispatch:     events.MaxIntents,
		MaxInvocationsPerDispatch: events.MaxInvocations,
		MaxResultBytes:            events.MaxResultBytes,
		TimeoutMillis:             events.MaxTimeoutMillis,
	},
	IntentsPerReceipt:     64,
	ResultBytesPerReceipt: 1 << 20,
}

const (
	maxAttempts = 100
	minPause    = time.Millisecond
	maxPause    = 24 * time.Hour
)

type profilesFile struct {
	Profiles map[string]jsontext.Value `json:"profiles"`
}

type profileMembers struct {
	Ceilings struct {
		Hook    events.HookBudget `json:"hook"`
		Receipt struct {
			MaxIntents     int `json:"max_intents"`
			MaxResultBytes int `json:"max_result_bytes"`
		} `json:"receipt"`
	} `json:"ceilings"`
	// Enabled and Hooks have no default: whether a profile is on, and what it allows, is said and not left out.
	Enabled *bool           `json:"enabled"`
	Hooks   []events.HookID `json:"hooks"`
	Retry   struct {
		Initial     duration `json:"initial"`
		Max         duration `json:"max"`
		MaxAttempts int      `json:"max_attempts"`
	} `json:"retry"`
}

// duration is written as in "1s" or "5m".
type duration time.Duration

func (d *duration) UnmarshalText(text []byte) error {
	parsed, err := time.ParseDuration(string(text))
	*d = duration(parsed)
	return err
}

// readProfiles gives the profiles in the order of their names, and everything that is wrong with them by themselves.
func readProfiles(file File) ([]core.Profile, []Problem) {
	if len(file.Data) > MaxFileBytes {
		return nil, []Problem{{File: file.Name, Rule: fmt.Sprintf("must be at most %d bytes", MaxFileBytes)}}
	}
	var parts profilesFile
	if problem := file.read(&parts); problem != nil {
		return nil, []Problem{*problem}
	}
	if len(parts.Profiles) == 0 {
		return nil, []Problem{{File: file.Name, Field: "profiles", Rule: "must hold a profile"}}
	}
	var profiles []core.Profile
	var problems []Problem
	for _, name := range slices.Sorted(maps.Keys(parts.Profiles)) {
		at := join("profiles", name)
		if !events.IsName(name) {
			problems = append(problems, Problem{File: file.Name, Field: at, Rule: "must be named by a name"})
		}
		var members profileMembers
		members.setDefaults()
		if problem := file.decode(parts.Profiles[name], at, &members); problem != nil {
			problems = append(problems, *problem)
			continue
		}
		for _, p := range members.check() {
			problems = append(problems, Problem{File: file.Name, Field: join(at, p.Field), Rule: p.Rule})
		}
		profiles = append(profiles, members.profile(name))
	}
	return profiles, problems
}

func (m *profileMembers) setDefaults() {
	m.Ceilings.Hook = DefaultCeilings.Hook
	m.Ceilings.Receipt.MaxIntents = DefaultCeilings.IntentsPerReceipt
	m.Ceilings.Receipt.MaxResultBytes = DefaultCeilings.ResultBytesPerReceipt
	m.Retry.Initial = duration(core.DefaultRetry.Initial)
	m.Retry.Max = duration(core.DefaultRetry.Max)
	m.Retry.MaxAttempts = core.DefaultRetry.MaxAttempts
}

// check gives the problems of one profile, their fields relative to it.
func (m *profileMembers) check() []Problem {
	var problems []Problem
	bad := func(field, rule string) { problems = append(problems, Problem{Field: field, Rule: rule}) }
	hook, receipt := m.Ceilings.Hook, m.Ceilings.Receipt
	for _, bound := range []struct {
		field            string
		value, low, high int
	}{
		{"ceilings.hook.max_invocations_per_dispatch", hook.MaxInvocationsPerDispatch, 1, events.MaxInvocations},
		{"ceilings.hook.max_intents_per_dispatch", hook.MaxIntentsPerDispatch, 1, events.MaxIntents},
		{"ceilings.hook.max_result_bytes", hook.MaxResultBytes, events.MinResultBytes, events.MaxResultBytes},
		{"ceilings.hook.timeout_ms", hook.TimeoutMillis, 1, events.MaxTimeoutMillis},
		{"ceilings.receipt.max_intents", receipt.MaxIntents, 1, math.MaxInt32},
		{"ceilings.receipt.max_result_bytes", receipt.MaxResultBytes, events.MinResultBytes, math.MaxInt32},
		{"retry.max_attempts", m.Retry.MaxAttempts, 1, maxAttempts},
	} {
		if bound.value < bound.low || bound.value > bound.high {
			bad(bound.field, rangeRule(bound.low, bound.high))
		}
	}
	initial, longest := time.Duration(m.Retry.Initial), time.Duration(m.Retry.Max)
	switch {
	case initial < minPause || initial > maxPause:
		bad("retry.initial", "must be from 1ms to 24h")
	case longest < initial || longest > maxPause:
		bad("retry.max", "must be from retry.initial to 24h")
	}
	if m.Enabled == nil {
		bad("enabled", "must be true or false")
	}
	if m.Hooks == nil {
		bad("hooks", "must list the hook ids that may run, or be []")
	}
	for i, id := range m.Hooks {
		at := fmt.Sprintf("hooks[%d]", i)
		if !events.IsName(id) {
			bad(at, "must be a name")
		}
		if slices.Contains(m.Hooks[:i], id) {
			bad(at, "must not repeat a hook id")
		}
	}
	return problems
}

func (m *profileMembers) profile(name string) core.Profile {
	return core.Profile{
		Name:    name,
		Enabled: m.Enabled != nil && *m.Enabled,
		Hooks:   m.Hooks,
		Ceilings: core.Ceilings{
			Hook:                  m.Ceilings.Hook,
			IntentsPerReceipt:     m.Ceilings.Receipt.MaxIntents,
			ResultBytesPerReceipt: m.Ceilings.Receipt.MaxResultBytes,
		},
		Retry: core.Retry{
			MaxAttempts: m.Retry.MaxAttempts,
			Initial:     time.Duration(m.Retry.Initial),
			Max:         time.Duration(m.Retry.Max),
		},
	}
}
