package core_test

import (
	"errors"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"github.com/afterwrite/afterwrite/dispatcher/core"
	"github.com/afterwrite/afterwrite/events"
)

type fixtureResult struct {
	Outcome string           `json:"outcome"`
	Plan    []jsontext.Value `json:"plan"`
	Fresh   bool             `json:"fresh"`
	Save    *fixtureSave     `json:"save"`
	Stands  events.Optional  `json:"stands"`
	After   []jsontext.Value `json:"after"`
}

type fixtureSave struct {
	Record   jsontext.Value `json:"record,omitzero"`
	Refusal  jsontext.Value `json:"refusal,omitzero"`
	Conflict jsontext.Value `json:"conflict,omitzero"`
	Expect   uint64         `json:"expect"`
}

type fixtureVerdict struct {
	Reason string          `json:"reason"`
	Status events.Optional `json:"status"`
}

// outcome writes what Commit gave as a case has it.
func (g *given) outcome(t *testing.T, c *fixture, a attempt) (*fixtureResult, *fixtureVerdict) {
	t.Helper()
	if a.err != nil {
		rejection := (*core.Rejection)(nil)
		if !errors.As(a.err, &rejection) {
			t.Fatalf("Commit: %v", a.err)
		}
		if rejection.Error() == "" {
			t.Errorf("%s has no sentence", rejection.Reason)
		}
		return nil, &fixtureVerdict{string(rejection.Reason), events.Optional(rejection.Status)}
	}
	r := &fixtureResult{Outcome: string(a.result.Outcome), Fresh: a.result.Fresh, After: []jsontext.Value{}}
	for i := range a.result.Plan {
		r.Plan = append(r.Plan, g.dispatchJSON(t, &a.result.Plan[i]))
	}
	var saved *events.DispatchReceipt
	if s := a.result.Save; s != nil {
		r.Save = saveJSON(t, s)
		saved = s.Record
	}
	switch stands := a.result.State; {
	case stands == nil:
	case stands == saved:
		r.Stands = "saved"
	case g.loaded(a, stands):
		r.Stands = "found"
	default:
		t.Errorf("a record stands that was neither saved nor found: %v", stands)
	}
	for _, effect := range a.result.After(a.result.Save.Stored()) {
		r.After = append(r.After, g.effectJSON(t, r.Stands, a.result.State, effect))
	}
	return r, nil
}

func (g *given) loaded(a attempt, record *events.DispatchReceipt) bool {
	for _, entry := range a.state.Journal {
		if entry.Record == record {
			return true
		}
	}
	return false
}

// saveJSON writes a save, and checks that its document is one of the contract.
func saveJSON(t *testing.T, s *core.Save) *fixtureSave {
	t.Helper()
	out := &fixtureSave{Expect: s.Expect}
	documents := 0
	if s.Record != nil {
		documents++
		out.Record = roundTrip(t, s.Record, events.Decode[events.DispatchReceipt])
	}
	if s.Refusal != nil {
		documents++
		out.Refusal = roundTrip(t, s.Refusal, events.Decode[events.Refusal])
	}
	if s.Conflict != nil {
		documents++
		out.Conflict = roundTrip(t, s.Conflict, events.Decode[events.Conflict])
	}
	if documents != 1 {
		t.Errorf("a save holds %d documents, want one", documents)
	}
	return out
}

func roundTrip[D any](t *testing.T, doc D, decode func([]byte) (D, error)) jsontext.Value {
	t.Helper()
	data := canonical(t, doc)
	if diff := cmp.Diff(string(data), string(canonical(t, decoded(t, data, decode)))); diff != "" {
		t.Errorf("changed by decoding (- saved, + decoded):\n%s", diff)
	}
	return data
}

// effectJSON writes an effect. stands is the record whose intents are published.
func (g *given) effectJSON(t *testing.T, of events.Optional, stands *events.DispatchReceipt, effect core.Effect) jsontext.Value {
	t.Helper()
	switch e := effect.(type) {
	case core.PublishIntents:
		if diff := cmp.Diff(stands.Intents, e.Intents); diff != "" || e.AcceptedAt != stands.RecordedAt {
			t.Errorf("published at %s and not as recorded at %s:\n%s", e.AcceptedAt, stands.RecordedAt, diff)
		}
		return canonical(t, struct {
			fixtureKind
			Of events.Optional `json:"of"`
		}{fixtureKind{"publish_intents"}, of})
	case core.Schedule:
		return canonical(t, struct {
			fixtureKind
			Dispatch string    `json:"dispatch"`
			At       time.Time `json:"at"`
			Replace  bool      `json:"replace"`
		}{fixtureKind{"schedule"}, g.keyNames[e.Key], e.At.UTC(), e.Replace})
	case core.Call:
		return canonical(t, struct {
			fixtureKind
			Dispatch    jsontext.Value `json:"dispatch"`
			Attempt     int            `json:"attempt"`
			Invocations int            `json:"invocations"`
			Base        int            `json:"base"`
			Timeout     int64          `json:"timeout_ms"`
		}{fixtureKind{"call"}, g.dispatchJSON(t, e.Dispatch), e.Attempt, e.Invocations, e.Base, e.Timeout.Milliseconds()})
	case core.HandBack:
		return canonical(t, fixtureKind{"hand_back"})
	}
	t.Fatalf("no kind for the effect %T", effect)
	return nil
}

// verdictJSON is one text for comparing, a member a line.
func verdictJSON(t *testing.T, result *fixtureResult, rejection *fixtureVerdict) string {
	t.Helper()
	value := canonical(t, struct {
		Result    *fixtureResult  `json:"result"`
		Rejection *fixtureVerdict `json:"rejection"`
	}{result, rejection})
	if err := value.Indent(jsontext.WithIndent("  ")); err != nil {
		t.Fatal(err)
	}
	return string(value)
}
