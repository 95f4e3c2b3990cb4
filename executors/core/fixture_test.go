package core

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/afterwrite/afterwrite/events"
)

// The types below are the fixtures' format, which testdata/README.md describes.

type fixture struct {
	Name       string                             `json:"name"`
	Grants     map[events.IntentKind]fixtureGrant `json:"grants"`
	Executions []fixtureEntry                     `json:"executions"`
	Actor      fixtureActor                       `json:"actor"`
	Subject    fixtureSubject                     `json:"subject"`
	Needs      [][]fixtureKey                     `json:"needs"`
	Result     *fixtureResult                     `json:"result"`
	Rejection  *fixtureRejection                  `json:"rejection"`
}

type fixtureGrant struct {
	Digest     events.Digest       `json:"digest"`
	Enabled    bool                `json:"enabled"`
	Manual     bool                `json:"manual"`
	WriteScope []string            `json:"write_scope"`
	Ceilings   events.IntentBudget `json:"ceilings"`
	Narrow     events.Allowance    `json:"narrow"`
	MaxAgeMS   int64               `json:"max_age_ms"`
	TimeoutMS  int64               `json:"timeout_ms"`
}

type fixtureKey struct {
	IntentID events.IntentID   `json:"intent_id"`
	Executor events.ExecutorID `json:"executor"`
}

type fixtureEntry struct {
	fixtureKey
	Sequence uint64          `json:"sequence"`
	Record   json.RawMessage `json:"record"`
}

type fixtureActor struct {
	Kind events.ActorKind `json:"kind"`
	ID   string           `json:"id"`
}

type fixtureSubject struct {
	fixtureKey
	Type        string               `json:"type"`
	SubjectKind events.IntentKind    `json:"subject_kind,omitempty"`
	BadEnvelope bool                 `json:"bad_envelope,omitempty"`
	Data        string               `json:"data,omitempty"`
	ProposedAt  events.Timestamp     `json:"proposed_at,omitempty"`
	RunID       string               `json:"run_id,omitempty"`
	Budget      *events.IntentBudget `json:"budget,omitempty"`
	WriteScope  *[]string            `json:"write_scope,omitempty"`
	Result      *string              `json:"result,omitempty"`
	Cause       Cause                `json:"cause,omitempty"`
	Reason      string               `json:"reason,omitempty"`
	ResumeAt    *time.Time           `json:"resume_at,omitempty"`
	Now         time.Time            `json:"now"`
}

type fixtureResult struct {
	Outcome Outcome         `json:"outcome"`
	Save    *fixtureSave    `json:"save"`
	After   []fixtureEffect `json:"after"`
}

type fixtureSave struct {
	Expect uint64          `json:"expect"`
	Record json.RawMessage `json:"record"`
}

type fixtureEffect struct {
	Type    string          `json:"type"`
	RunID   string          `json:"run_id,omitempty"`
	At      *time.Time      `json:"at,omitempty"`
	Actor   *fixtureActor   `json:"actor,omitempty"`
	Subject *fixtureSubject `json:"subject,omitempty"`
}

type fixtureRejection struct {
	Reason RejectionReason         `json:"reason"`
	Status *events.ExecutionStatus `json:"status"`
}

func (k fixtureKey) key() Key { return Key{Intent: k.IntentID, Executor: k.Executor} }

func keyOf(k Key) fixtureKey { return fixtureKey{k.Intent, k.Executor} }

func (s *fixtureSubject) subject(t *testing.T) Subject {
	t.Helper()
	key, run := s.key(), Run{Key: s.key(), ID: s.RunID}
	var result []byte
	if s.Result != nil {
		result = []byte(*s.Result)
	}
	switch s.Type {
	case "admit_intent":
		return AdmitIntent{Key: key, SubjectKind: s.SubjectKind, BadEnvelope: s.BadEnvelope, Data: []byte(s.Data), ProposedAt: s.ProposedAt, RunID: s.RunID, Now: s.Now}
	case "accept_intent":
		c := AcceptIntent{Key: key, Budget: *s.Budget, Now: s.Now}
		if s.WriteScope != nil {
			c.WriteScope = *s.WriteScope
		}
		return c
	case "refuse_intent":
		return RefuseIntent{Key: key, Now: s.Now}
	case "complete_execution":
		return CompleteExecution{Run: run, Result: result, Now: s.Now}
	case "fail_execution":
		c := FailExecution{Run: run, Cause: s.Cause, Now: s.Now}
		if s.ResumeAt != nil {
			c.ResumeAt = *s.ResumeAt
		}
		return c
	case "execution_started":
		return ExecutionStarted{Run: run, Now: s.Now}
	case "effect_called":
		return EffectCalled{Run: run, Now: s.Now}
	case "effect_returned":
		return EffectReturned{Run: run, Result: result, Now: s.Now}
	case "execution_paused":
		return ExecutionPaused{Run: run, Reason: PauseReason(s.Reason), Now: s.Now}
	case "execution_ended":
		return ExecutionEnded{Key: key, Reason: EndReason(s.Reason), Now: s.Now}
	}
	t.Fatalf("no subject of type %q", s.Type)
	return nil
}

func decideSubject(t *testing.T, subject Subject, state State, actor Actor) (*Result, error) {
	t.Helper()
	if fact, ok := subject.(Fact); ok {
		return Record(fact, state, actor)
	}
	return Commit(subject.(Command), state, actor)
}

// written gives a result as the fixtures write it, and checks what they do not: that an effect's record is the saved one.
func written(t *testing.T, r *Result, err error) (*fixtureResult, *fixtureRejection) {
	t.Helper()
	if rejection := (*Rejection)(nil); errors.As(err, &rejection) {
		out := &fixtureRejection{Reason: rejection.Reason}
		if rejection.Status != "" {
			out.Status = &rejection.Status
		}
		if rejection.Error() == string(rejection.Reason) || rejection.Error() == "" {
			t.Errorf("the rejection %s says nothing to a person", rejection.Reason)
		}
		return nil, out
	}
	if err != nil {
		t.Fatal(err)
	}
	out := &fixtureResult{Outcome: r.Outcome, After: []fixtureEffect{}}
	proof := Durable{}
	if r.Save != nil {
		data, err := events.Encode(r.Save.Record)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := events.Decode[events.Execution](data); err != nil {
			t.Errorf("the saved record is not valid: %v", err)
		}
		out.Save = &fixtureSave{Expect: r.Save.Expect, Record: data}
		proof = r.Save.Stored()
	}
	acted := func(kind string, run Run, record *events.Execution) fixtureEffect {
		if r.Save == nil || record != r.Save.Record {
			t.Errorf("%s acts on another record than the one saved", kind)
		}
		return fixtureEffect{Type: kind, RunID: run.ID}
	}
	for _, effect := range r.After(proof) {
		switch e := effect.(type) {
		case Begin:
			out.After = append(out.After, acted("begin", e.Run, e.Record))
		case CallEffect:
			out.After = append(out.After, acted("call_effect", e.Run, e.Record))
		case Finish:
			out.After = append(out.After, acted("finish", e.Run, e.Record))
		case Acknowledge:
			out.After = append(out.After, fixtureEffect{Type: "acknowledge"})
		case HandBack:
			f := fixtureEffect{Type: "hand_back"}
			if !e.At.IsZero() {
				f.At = &e.At
			}
			out.After = append(out.After, f)
		case Tell:
			told := &fixtureSubject{fixtureKey: keyOf(e.Fact.key())}
			switch fact := e.Fact.(type) {
			case ExecutionStarted:
				told.Type, told.RunID, told.Now = "execution_started", fact.Run.ID, fact.Now
			case ExecutionEnded:
				told.Type, told.Reason, told.Now = "execution_ended", string(fact.Reason), fact.Now
			default:
				t.Errorf("unexpected fact %T", fact)
			}
			out.After = append(out.After, fixtureEffect{Type: "tell", Actor: &fixtureActor{e.Actor.Kind, e.Actor.ID}, Subject: told})
		}
	}
	return out, nil
}

func readFixtures(t *testing.T) map[string]fixture {
	t.Helper()
	files, err := filepath.Glob("testdata/*.json")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]fixture{}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var list []fixture
		if err := json.Unmarshal(data, &list); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		for _, f := range list {
			name := filepath.Base(file) + "/" + f.Name
			if _, twice := all[name]; twice {
				t.Errorf("two fixtures are called %q", name)
			}
			all[name] = f
		}
	}
	return all
}

// sameJSON compares raw JSON by what it says.
var sameJSON = cmp.Transformer("json", func(raw json.RawMessage) any {
	var v any
	if len(raw) > 0 {
		if err := json.Unmarshal(raw, &v); err != nil {
			return fmt.Sprintf("not JSON: %s", raw)
		}
	}
	return v
})

func (f *fixture) state(t *testing.T) (State, Actor) {
	t.Helper()
	s := State{Grants: map[events.IntentKind]Grant{}, Executions: map[Key]Entry{}}
	for kind, g := range f.Grants {
		s.Grants[kind] = Grant{
			Digest: g.Digest, Enabled: g.Enabled, Manual: g.Manual, WriteScope: g.WriteScope, Ceilings: g.Ceilings, Narrow: g.Narrow,
			MaxAge: time.Duration(g.MaxAgeMS) * time.Millisecond, Timeout: time.Duration(g.TimeoutMS) * time.Millisecond,
		}
	}
	for _, e := range f.Executions {
		entry := Entry{Sequence: e.Sequence}
		if string(e.Record) != "null" {
			record, err := events.Decode[events.Execution](e.Record)
			if err != nil {
				t.Fatalf("the given record is not valid: %v", err)
			}
			entry.Record = record
		}
		s.Executions[e.key()] = entry
	}
	return s, Actor{Kind: f.Actor.Kind, ID: f.Actor.ID}
}

func TestEveryFixtureIsDecidedExactly(t *testing.T) {
	for name, f := range readFixtures(t) {
		t.Run(name, func(t *testing.T) {
			given, actor := f.state(t)
			subject := f.Subject.subject(t)
			for range 2 {
				state := State{Grants: given.Grants, Executions: map[Key]Entry{}}
				for round, want := range f.Needs {
					needs := []fixtureKey{}
					for _, key := range Needs(subject, state, actor) {
						needs = append(needs, keyOf(key))
						state.Executions[key] = given.Executions[key]
					}
					if diff := cmp.Diff(want, needs); diff != "" {
						t.Errorf("needs of round %d (-want +got):\n%s", round+1, diff)
					}
				}
				before, err := json.Marshal(given.Executions[f.Subject.key()])
				if err != nil {
					t.Fatal(err)
				}
				result, rejected := decideSubject(t, subject, state, actor)
				got, rejection := written(t, result, rejected)
				if diff := cmp.Diff(f.Result, got, sameJSON, cmp.AllowUnexported(fixtureSubject{})); diff != "" {
					t.Errorf("result (-want +got):\n%s", diff)
				}
				if diff := cmp.Diff(f.Rejection, rejection); diff != "" {
					t.Errorf("rejection (-want +got):\n%s", diff)
				}
				after, err := json.Marshal(given.Executions[f.Subject.key()])
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(string(before), string(after)); diff != "" {
					t.Errorf("the decision changed the state (-before +after):\n%s", diff)
				}
			}
		})
	}
}

func TestDroppingTheLoadedKeyIsErrNotLoadedWhereverTheActorMaySpeak(t *testing.T) {
	for name, f := range readFixtures(t) {
		given, actor := f.state(t)
		_, err := decideSubject(t, f.Subject.subject(t), State{Grants: given.Grants}, actor)
		if f.Rejection != nil && f.Rejection.Reason == RejectedActor {
			continue // who may not speak is told so, whatever is recorded
		}
		if !errors.Is(err, ErrNotLoaded) {
			t.Errorf("%s: %v, want ErrNotLoaded", name, err)
		}
	}
}

// constants gives the values of the package's string constants of a type, read from its source so that none is missed.
func constants(t *testing.T, typeName string) []string {
	t.Helper()
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	var values []string
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok || len(spec.Values) != 1 {
				return true
			}
			literal, isLiteral := spec.Values[0].(*ast.BasicLit)
			if named, ok := spec.Type.(*ast.Ident); ok && isLiteral && named.Name == typeName {
				value, err := strconv.Unquote(literal.Value)
				if err != nil {
					t.Fatal(err)
				}
				values = append(values, value)
			}
			return true
		})
	}
	if len(values) == 0 {
		t.Fatalf("no constant of type %s", typeName)
	}
	return values
}

func TestFixturesCoverEveryOutcomeReasonAndEffect(t *testing.T) {
	seen := map[string]bool{}
	for _, f := range readFixtures(t) {
		seen["subject "+f.Subject.Type] = true
		seen["cause "+string(f.Subject.Cause)] = true
		seen["told "+f.Subject.Type+" "+f.Subject.Reason] = true
		if f.Rejection != nil {
			seen["rejection "+string(f.Rejection.Reason)] = true
			continue
		}
		seen["outcome "+string(f.Result.Outcome)] = true
		for _, effect := range f.Result.After {
			seen["effect "+effect.Type] = true
		}
		if f.Result.Save != nil {
			record, err := events.Decode[events.Execution](f.Result.Save.Record)
			if err != nil {
				t.Fatal(err)
			}
			seen[fmt.Sprintf("record %s %s", record.Status, record.Reason)] = true
		}
	}
	var want []string
	for prefix, values := range map[string][]string{
		"subject ": {
			"admit_intent", "accept_intent", "refuse_intent", "complete_execution", "fail_execution", "execution_started",
			"effect_called", "effect_returned", "execution_paused", "execution_ended",
		},
		"effect ":                {"begin", "call_effect", "finish", "tell", "acknowledge", "hand_back"},
		"outcome ":               constants(t, "Outcome"),
		"rejection ":             constants(t, "RejectionReason"),
		"cause ":                 constants(t, "Cause"),
		"told execution_paused ": constants(t, "PauseReason"),
		"told execution_ended ":  constants(t, "EndReason"),
	} {
		for _, value := range values {
			want = append(want, prefix+value)
		}
	}
	for _, status := range events.ExecutionStatuses() {
		reasons := events.ExecutionReasons(status)
		if len(reasons) == 0 {
			reasons = []events.ExecutionReason{""}
		}
		for _, reason := range reasons {
			want = append(want, fmt.Sprintf("record %s %s", status, reason))
		}
	}
	slices.Sort(want)
	for _, value := range want {
		if !seen[value] {
			t.Errorf("no fixture of %s", value)
		}
	}
}

func TestEffectsAskedForBeforeTheirRecordIsDurablePanic(t *testing.T) {
	result, err := (&draft{record: &events.Execution{}, actor: System}).save(OutcomeClaimed, Acknowledge{})
	if err != nil {
		t.Fatal(err)
	}
	other := &Save{}
	for _, proof := range []Durable{{}, other.Stored()} {
		func() {
			defer func() {
				if recover() == nil {
					t.Error("the effects were given without proof")
				}
			}()
			result.After(proof)
		}()
	}
	if effects := result.After(result.Save.Stored()); len(effects) != 1 {
		t.Errorf("%d effects, want 1", len(effects))
	}
}
