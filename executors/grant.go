package executors

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/afterwrite/afterwrite/events"
	"github.com/afterwrite/afterwrite/executors/core"
	"github.com/afterwrite/afterwrite/streams"
)

// Grant is an executor's authority over one kind of intent, and how it is used.
type Grant struct {
	IntentKind events.IntentKind
	// Off grants are not pulled: nothing is recorded and the intents wait.
	Off bool
	// Manual grants want a person to accept each intent.
	Manual bool
	// WriteScope is all that an intent may be granted.
	WriteScope []string
	// Ceilings of the budget that an intent may ask for.
	Ceilings events.IntentBudget
	// Narrow bounds what is accepted, without refusing an intent that asks for more. Zero members of the budget bound
	// nothing, and neither does a nil write scope.
	Narrow events.Allowance
	// MaxAge is how long after the intent was proposed a run may begin. Zero is any age.
	MaxAge time.Duration
	// From says with which intents a new executor starts. By default those proposed from now on.
	From streams.Start
	// Concurrency bounds the executions of the kind in this process.
	Concurrency int
	// Timeout bounds one call of the effect.
	Timeout time.Duration

	// Service is called for each intent, unless the process has an executor of its own for the kind.
	Service string
	// Policy is the capability's policy document, given to the service as it is.
	Policy jsontext.Value
	// StateKey names the payload member whose value keys the capability's state; empty if it keeps none.
	StateKey string
	// EvaluatedAt names the payload member that holds the time the service decides for; empty if it asks for none.
	EvaluatedAt string
}

// Defaults of a [Grant].
const (
	DefaultTimeout     = 10 * time.Second
	DefaultConcurrency = 16
)

// WithDefaults returns a copy that has every optional setting.
func (g Grant) WithDefaults() Grant {
	if g.Ceilings.MaxAttempts == 0 {
		g.Ceilings.MaxAttempts = 1
	}
	if g.Ceilings.MaxResultBytes == 0 {
		g.Ceilings.MaxResultBytes = events.MaxResultBytes
	}
	if g.From == "" {
		g.From = streams.StartNew
	}
	if g.Timeout == 0 {
		g.Timeout = DefaultTimeout
	}
	if g.Concurrency == 0 {
		g.Concurrency = DefaultConcurrency
	}
	return g
}

// Validate lists everything that is wrong with the grant, one clear sentence each.
func (g Grant) Validate() error {
	var problems []error
	bad := func(ok bool, field, rule string) {
		if !ok {
			problems = append(problems, fmt.Errorf("%s %s", field, rule))
		}
	}
	inRange := func(value, low, high int) bool { return value >= low && value <= high }
	bad(events.IsName(g.IntentKind), "intent_kind", "must be a name")
	scope := func(field string, tokens []string) {
		bad(len(tokens) <= events.MaxTokens, field, "must hold at most 16 tokens")
		for i, token := range tokens {
			at := fmt.Sprintf("%s[%d]", field, i)
			bad(events.IsOpaqueID(token), at, "must be an opaque id")
			bad(!slices.Contains(tokens[:i], token), at, "must not repeat a token")
		}
	}
	scope("write_scope", g.WriteScope)
	scope("accept.write_scope", g.Narrow.WriteScope)
	bad(inRange(g.Ceilings.MaxAttempts, 1, events.MaxAttempts), "ceilings.max_attempts", "must be from 1 to 64")
	bad(inRange(g.Ceilings.MaxResultBytes, 1, events.MaxResultBytes), "ceilings.max_result_bytes", "must be from 1 to 65536 bytes")
	bad(inRange(g.Narrow.Budget.MaxAttempts, 0, g.Ceilings.MaxAttempts), "accept.max_attempts", "must be from 1 to the ceiling")
	bad(inRange(g.Narrow.Budget.MaxResultBytes, 0, g.Ceilings.MaxResultBytes), "accept.max_result_bytes", "must be from 1 to the ceiling")
	bad(g.From == streams.StartNew || g.From == streams.StartAll || events.IsTimestamp(string(g.From)), "from", `must be "new", "all" or an RFC 3339 time`)
	bad(g.MaxAge >= 0, "max_age", "must not be negative")
	bad(g.Timeout >= time.Millisecond && g.Timeout <= events.MaxTimeoutMillis*time.Millisecond, "service.timeout", "must be from 1ms to 30s")
	bad(inRange(g.Concurrency, 1, maxConcurrency), "concurrency", "must be from 1 to 4096")
	bad(g.Service == "" || events.IsName(g.Service), "service.name", "must be a name")
	bad(g.StateKey == "" || events.IsOpaqueID(g.StateKey), "state_key", "must name a member of the payload")
	bad(g.EvaluatedAt == "" || events.IsOpaqueID(g.EvaluatedAt), "evaluated_at", "must name a member of the payload")
	if g.Policy != nil {
		_, err := events.Canonicalize(g.Policy)
		bad(err == nil, "policy", "must be JSON of the contract: plain integers, no member twice, at most 32 levels")
	}
	return errors.Join(problems...)
}

const maxConcurrency = 4096

// Digest names the grant in every record that relies on it. Whether it is off, how many run at once and where a new
// consumer starts is not part of the authority.
func (g Grant) Digest() (events.Digest, error) {
	var acceptScope any // null where it bounds nothing, which an empty one does not
	if g.Narrow.WriteScope != nil {
		acceptScope = slices.Sorted(slices.Values(g.Narrow.WriteScope))
	}
	canonical, err := events.EncodeValue(map[string]any{
		"intent_kind": g.IntentKind, "manual": g.Manual, "write_scope": slices.Sorted(slices.Values(g.WriteScope)),
		"ceilings": g.Ceilings, "accept": g.Narrow.Budget, "accept_write_scope": acceptScope, "max_age_ms": g.MaxAge.Milliseconds(),
		"service": g.Service, "timeout_ms": g.Timeout.Milliseconds(), "policy": g.Policy,
		"state_key": g.StateKey, "evaluated_at": g.EvaluatedAt,
	})
	if err != nil {
		return "", err
	}
	return events.DigestOf(canonical), nil
}

// core is the grant as the core knows it.
func (g Grant) core() (core.Grant, error) {
	digest, err := g.Digest()
	return core.Grant{
		Digest: digest, Enabled: !g.Off, Manual: g.Manual, WriteScope: g.WriteScope, Ceilings: g.Ceilings,
		Narrow: g.Narrow, MaxAge: g.MaxAge, Timeout: g.Timeout,
	}, err
}
