package core_test

import (
	"bytes"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/afterwrite/afterwrite/dispatcher/core"
	"github.com/afterwrite/afterwrite/events"
)

const (
	givenFile      = "testdata/given.json"
	identitiesFile = "testdata/identities.json"
)

// given is what the cases refer to by name.
type given struct {
	Installations map[string]installation    `json:"installations"`
	Dispatches    map[string]fixtureDispatch `json:"dispatches"`
	Records       map[string]jsontext.Value  `json:"records"`

	// schemas are compiled once, by their text.
	schemas map[string]*events.PayloadSchema
	// names are those of the dispatches by their canonical form, keyNames the first for each key.
	names    map[string]string
	keyNames map[core.Key]string
}

type installation struct {
	About           string                    `json:"about"`
	Hooks           map[string]fixtureHook    `json:"hooks"`
	Profiles        map[string]fixtureProfile `json:"profiles"`
	MaxReceiptAge   millis                    `json:"max_receipt_age_ms"`
	SkewAllowance   millis                    `json:"skew_allowance_ms"`
	DuplicateWindow millis                    `json:"duplicate_window_ms"`
	JournalAge      millis                    `json:"journal_age_ms"`
}

type fixtureHook struct {
	Registration   jsontext.Value            `json:"registration"`
	Digest         string                    `json:"digest"`
	PayloadSchemas map[string]jsontext.Value `json:"payload_schemas"`
}

type fixtureProfile struct {
	Enabled  bool     `json:"enabled"`
	Hooks    []string `json:"hooks"`
	Ceilings struct {
		Hook                  events.HookBudget `json:"hook"`
		IntentsPerReceipt     int               `json:"intents_per_receipt"`
		ResultBytesPerReceipt int               `json:"result_bytes_per_receipt"`
	} `json:"ceilings"`
	Retry struct {
		MaxAttempts int    `json:"max_attempts"`
		Initial     millis `json:"initial_ms"`
		Max         millis `json:"max_ms"`
	} `json:"retry"`
}

type fixtureDispatch struct {
	DispatchID         string           `json:"dispatch_id"`
	HookID             string           `json:"hook_id"`
	CapabilityID       string           `json:"capability_id"`
	Profile            string           `json:"profile"`
	EventKind          events.EventKind `json:"event_kind"`
	ReceiptIdentity    string           `json:"receipt_identity"`
	RegistrationDigest string           `json:"registration_digest"`
	Input              events.HookInput `json:"input"`
	InputDigest        string           `json:"input_digest"`
	Outside            events.Optional  `json:"outside"`
}

type millis int64

func (m millis) duration() time.Duration { return time.Duration(m) * time.Millisecond }

func readGiven(tb testing.TB) *given {
	tb.Helper()
	g := &given{
		schemas: map[string]*events.PayloadSchema{}, names: map[string]string{}, keyNames: map[core.Key]string{},
	}
	readJSON(tb, givenFile, g)
	for _, name := range slices.Sorted(maps.Keys(g.Dispatches)) {
		g.names[string(canonical(tb, g.Dispatches[name]))] = name
		if key := g.key(tb, name); g.keyNames[key] == "" {
			g.keyNames[key] = name // one dispatch may be told differently
		}
	}
	return g
}

func (g *given) installed(tb testing.TB, name string, p permutation) *core.Installed {
	tb.Helper()
	in, ok := g.Installations[name]
	if !ok {
		tb.Fatalf("no installation %q is given", name)
	}
	out := &core.Installed{
		Hooks:           map[events.HookID]core.Hook{},
		Profiles:        map[string]core.Profile{},
		MaxReceiptAge:   in.MaxReceiptAge.duration(),
		SkewAllowance:   in.SkewAllowance.duration(),
		DuplicateWindow: in.DuplicateWindow.duration(),
		JournalAge:      in.JournalAge.duration(),
	}
	for id, h := range in.Hooks {
		hook := core.Hook{
			Registration: *decoded(tb, h.Registration, events.Decode[events.Registration]),
			Digest:       h.Digest,
			Payloads:     map[events.IntentKind]*events.PayloadSchema{},
		}
		for kind, schema := range h.PayloadSchemas {
			hook.Payloads[kind] = g.schema(tb, kind, schema)
		}
		out.Hooks[id] = hook
	}
	for id, pr := range in.Profiles {
		allowed := slices.Clone(pr.Hooks)
		if p.allowlist {
			slices.Reverse(allowed)
		}
		out.Profiles[id] = core.Profile{
			Name: id, Enabled: pr.Enabled, Hooks: allowed,
			Ceilings: core.Ceilings(pr.Ceilings),
			Retry: core.Retry{
				MaxAttempts: pr.Retry.MaxAttempts, Initial: pr.Retry.Initial.duration(), Max: pr.Retry.Max.duration(),
			},
		}
	}
	return out
}

func (g *given) schema(tb testing.TB, kind string, text jsontext.Value) *events.PayloadSchema {
	tb.Helper()
	if s, ok := g.schemas[string(text)]; ok {
		return s
	}
	s, err := events.CompilePayloadSchema(kind, text)
	if err != nil {
		tb.Fatal(err)
	}
	g.schemas[string(text)] = s
	return s
}

// named resolves a string to what all holds under it; any other value is what it is.
func named[V any](tb testing.TB, all map[string]V, value jsontext.Value) V {
	tb.Helper()
	var v V
	if value.Kind() != '"' {
		strictly(tb, value, &v)
		return v
	}
	var name string
	strictly(tb, value, &name)
	v, ok := all[name]
	if !ok {
		tb.Fatalf("%q is not given", name)
	}
	return v
}

func (g *given) dispatch(tb testing.TB, value jsontext.Value) *core.Dispatch {
	tb.Helper()
	f := named(tb, g.Dispatches, value)
	return &core.Dispatch{
		Key:             core.Key{Dispatch: f.DispatchID, Hook: f.HookID},
		Capability:      f.CapabilityID,
		Profile:         f.Profile,
		EventKind:       f.EventKind,
		ReceiptIdentity: f.ReceiptIdentity,
		Registration:    f.RegistrationDigest,
		Input:           &f.Input,
		InputDigest:     f.InputDigest,
		InputData:       events.Canonical(&f.Input),
		Outside:         events.BoundaryRule(f.Outside),
	}
}

// dispatchJSON is the inverse of dispatch: a name where the dispatch is given.
func (g *given) dispatchJSON(tb testing.TB, d *core.Dispatch) jsontext.Value {
	tb.Helper()
	if !bytes.Equal(d.InputData, events.Canonical(d.Input)) {
		tb.Errorf("the input data of %s is not the canonical form of its input: %s", d.Key.Hook, d.InputData)
	}
	value := canonical(tb, fixtureDispatch{
		DispatchID:         d.Key.Dispatch,
		HookID:             d.Key.Hook,
		CapabilityID:       d.Capability,
		Profile:            d.Profile,
		EventKind:          d.EventKind,
		ReceiptIdentity:    d.ReceiptIdentity,
		RegistrationDigest: d.Registration,
		Input:              *d.Input,
		InputDigest:        d.InputDigest,
		Outside:            events.Optional(d.Outside),
	})
	if name, ok := g.names[string(value)]; ok {
		return canonical(tb, name)
	}
	return value
}

// key is that of the dispatch given under name.
func (g *given) key(tb testing.TB, name string) core.Key {
	tb.Helper()
	d, ok := g.Dispatches[name]
	if !ok {
		tb.Fatalf("the dispatch %q is not given", name)
	}
	return core.Key{Dispatch: d.DispatchID, Hook: d.HookID}
}

func (g *given) record(tb testing.TB, value jsontext.Value) *events.DispatchReceipt {
	tb.Helper()
	if value.Kind() == 'n' {
		return nil
	}
	return decoded(tb, named(tb, g.Records, value), events.Decode[events.DispatchReceipt])
}

// decoded reads a document as the contract does, so that no fixture holds one that cannot be.
func decoded[D any](tb testing.TB, value jsontext.Value, decode func([]byte) (D, error)) D {
	tb.Helper()
	doc, err := decode(value)
	if err != nil {
		tb.Fatalf("%v in %s", err, value)
	}
	return doc
}

func strictly(tb testing.TB, value jsontext.Value, v any) {
	tb.Helper()
	if err := json.Unmarshal(value, v, json.RejectUnknownMembers(true)); err != nil {
		tb.Fatalf("%v in %s", err, value)
	}
}

func canonical(tb testing.TB, v any) jsontext.Value {
	tb.Helper()
	out, err := json.Marshal(v)
	value := jsontext.Value(out)
	if err == nil {
		err = value.Canonicalize()
	}
	if err != nil {
		tb.Fatal(err)
	}
	return value
}
