package registry

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"sigs.k8s.io/yaml"

	"github.com/afterwrite/afterwrite/dispatcher/core"
	"github.com/afterwrite/afterwrite/events"
)

// Limits are what the host grants one hook. They are no part of the registration, so changing them changes no
// dispatch's identity.
type Limits struct {
	// BacklogCeiling is how many dispatches may wait for another attempt, from 1 to 100 million; more fail at once.
	BacklogCeiling int `json:"backlog_ceiling"`
	// MaxInFlight is how many calls may be unanswered at a time in one dispatcher, from 1 to 65536. It works up to three
	// quarters of the receipts that the dispatcher may have under way, where there are other hooks.
	MaxInFlight int `json:"max_in_flight"`
}

// DefaultLimits hold for a hook whose file says nothing about them, where so many hooks are installed: its part of 1024
// calls at a time, so that many hooks take no more memory than one, and never less than 32.
func DefaultLimits(hooks int) Limits {
	const together, least = 1024, 32
	return Limits{BacklogCeiling: 1_000_000, MaxInFlight: max(least, together/max(hooks, 1))}
}

const (
	maxBacklogCeiling = 100_000_000
	maxInFlight       = 65_536
)

type hookFile struct {
	Limits
	PayloadSchemas map[events.IntentKind]jsontext.Value `json:"payload_schemas"`
	Registration   jsontext.Value                       `json:"registration"`
}

// hook is a hook file as far as it could be read. It is rejected if it has a problem.
type hook struct {
	file File
	// id is empty where it could not be read.
	id       events.HookID
	core     core.Hook
	limits   Limits
	reason   events.RefusalReason
	problems []Problem
}

func readHook(file File, defaults Limits) hook {
	h := hook{file: file, limits: defaults, reason: events.RefusedMalformed}
	if len(file.Data) > MaxFileBytes {
		h.reason = events.RefusedTooLarge
		h.bad("", fmt.Sprintf("must be at most %d bytes", MaxFileBytes))
		return h
	}
	h.id = readableHookID(file)
	parts := hookFile{Limits: defaults}
	if problem := file.read(&parts); problem != nil {
		h.problems = append(h.problems, *problem)
		return h
	}
	h.limits = parts.Limits
	h.checkRange("backlog_ceiling", h.limits.BacklogCeiling, 1, maxBacklogCeiling)
	h.checkRange("max_in_flight", h.limits.MaxInFlight, 1, maxInFlight)
	h.readRegistration(parts.Registration)
	h.readSchemas(parts.PayloadSchemas)
	return h
}

func (h *hook) readRegistration(value jsontext.Value) {
	if value == nil {
		h.bad("registration", "is missing")
		return
	}
	registration, err := events.Decode[events.Registration](value)
	if err != nil {
		problem := Problem{File: h.file.Name, Field: "registration", Rule: err.Error()}
		if fault := (*events.DecodeError)(nil); errors.As(err, &fault) {
			problem.Rule = fault.Rule
			if fault.Path != "" {
				problem.Field = join(problem.Field, fault.Path)
			}
		}
		h.problems = append(h.problems, problem)
		return
	}
	h.id = registration.HookID
	h.core.Registration = *registration
	h.core.Digest = registration.Digest()
}

// readSchemas compiles every schema, also beside a malformed registration, so that all is found in one reading.
func (h *hook) readSchemas(schemas map[events.IntentKind]jsontext.Value) {
	h.core.Payloads = make(map[events.IntentKind]*events.PayloadSchema, len(schemas))
	declared := h.core.Registration.IntentKinds
	for _, kind := range slices.Sorted(maps.Keys(schemas)) {
		at := join("payload_schemas", kind)
		schema, err := events.CompilePayloadSchema(kind, schemas[kind])
		if err != nil {
			if cause := errors.Unwrap(err); cause != nil {
				err = cause // its wrapping names the intent kind, as the field does
			}
			h.bad(at, "must be a payload schema: "+err.Error())
		}
		if len(declared) > 0 && !slices.Contains(declared, kind) {
			h.bad(at, "is for an intent kind that the registration does not declare")
		}
		h.core.Payloads[kind] = schema
	}
	for _, kind := range declared {
		if _, ok := schemas[kind]; !ok {
			h.bad(join("payload_schemas", kind), "is missing, and the registration declares the intent kind")
		}
	}
}

func (h *hook) bad(field, rule string) {
	h.problems = append(h.problems, Problem{File: h.file.Name, Field: field, Rule: rule})
}

func (h *hook) checkRange(field string, value, low, high int) {
	if value < low || value > high {
		h.bad(field, rangeRule(low, high))
	}
}

func rangeRule(low, high int) string { return fmt.Sprintf("must be from %d to %d", low, high) }

func (h *hook) rejected() bool { return len(h.problems) > 0 }

func (h *hook) rejection() Rejection {
	return Rejection{
		File: h.file.Name, HookID: h.id, Reason: h.reason, Problems: h.problems,
		raw: h.file.Data,
	}
}

// readableHookID reads the hook id of a file whatever else is wrong with it, as long as it parses at all.
func readableHookID(file File) events.HookID {
	value := jsontext.Value(file.Data)
	if !file.isJSON() {
		var err error
		if value, err = yaml.YAMLToJSON(file.Data); err != nil {
			return ""
		}
	}
	var parts struct {
		Registration struct {
			HookID events.HookID `json:"hook_id"`
		} `json:"registration"`
	}
	// A fault elsewhere in the file may stop the decoder after the id was read, and then the id stands.
	_ = json.Unmarshal(value, &parts, jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	if !events.IsName(parts.Registration.HookID) {
		return ""
	}
	return parts.Registration.HookID
}
