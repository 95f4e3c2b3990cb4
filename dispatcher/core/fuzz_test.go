package core_test

import (
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"github.com/afterwrite/afterwrite/dispatcher/core"
	"github.com/afterwrite/afterwrite/events"
)

// Whatever bytes come from the receipts stream, there is a verdict on them, and what is recorded of a receipt that is
// refused, or of an input outside the boundary, is nothing but digests and the words of the design.
func FuzzAdmitReceiptAlwaysHasAVerdictAndKeepsNothingRefused(f *testing.F) {
	g := readGiven(f)
	for _, c := range seeds(f, g, "testdata/admit.json", "testdata/boundary.json") {
		admit := c.(core.AdmitReceipt)
		f.Add(admit.Data, string(admit.SubjectKind), admit.BadEnvelope, admit.Deliveries)
	}
	in := g.installed(f, "workshop", plain)
	template := seeds(f, g, "testdata/admit.json")[0].(core.AdmitReceipt)
	f.Fuzz(func(t *testing.T, data []byte, kind string, bad bool, deliveries int) {
		command := template
		command.Data, command.SubjectKind, command.BadEnvelope, command.Deliveries = data, events.EventKind(kind), bad, deliveries
		r := verdict(t, command, in)
		switch r.Outcome {
		case core.OutcomeRefused:
			wantRefusal(t, r.Save, data, command.Now)
		case core.OutcomeIgnored:
			if r.Save != nil || len(r.Plan) > 0 {
				t.Fatalf("ignored and something is left behind: %+v", r)
			}
		case core.OutcomeAdmitted:
			for i := range r.Plan {
				d := &r.Plan[i]
				if d.Outside == "" {
					continue
				}
				begun := verdict(t, core.BeginDispatch{Dispatch: d, Fresh: true, Deliveries: 1, Now: command.Now}, in)
				if begun.Outcome != core.OutcomeFailed {
					t.Fatalf("an input outside the boundary by %s is %s", d.Outside, begun.Outcome)
				}
				wantFailed(t, begun.Save, d, events.CodeInputBoundaryRejected, 0, command.Now,
					"boundary_flag", "not_opaque", "url", "path", "email", "credential", "prose")
			}
		default:
			t.Fatalf("a receipt is %s", r.Outcome)
		}
	})
}

// Whatever bytes a provider answers with, there is a verdict on them, and what is recorded of a result that is
// refused is nothing but the words of the design.
func FuzzDecideAttemptAlwaysHasAVerdictAndKeepsNothingRefused(f *testing.F) {
	g := readGiven(f)
	for _, c := range seeds(f, g, "testdata/decide.json") {
		if reply := c.(core.DecideAttempt).Reply; reply.Kind == core.ReplyResult {
			f.Add(reply.Data)
		}
	}
	in := g.installed(f, "workshop", plain)
	d := g.dispatch(f, jsontext.Value(`"ledger"`))
	now := time.Date(2026, 10, 1, 8, 0, 5, 0, time.UTC)
	f.Fuzz(func(t *testing.T, data []byte) {
		r := verdict(t, core.DecideAttempt{
			Dispatch: d, Fresh: true, Call: core.Call{Dispatch: d, Attempt: 1, Invocations: 1},
			Reply: core.Reply{Kind: core.ReplyResult, Data: data}, Now: now,
		}, in)
		if r.Outcome != core.OutcomeDecided || r.Save == nil || r.Save.Record == nil {
			t.Fatalf("an answer is %s", r.Outcome)
		}
		switch record := r.Save.Record; record.Status {
		case events.StatusProposed, events.StatusNotApplicable:
			saveJSON(t, r.Save)
		case events.StatusFailed:
			wantFailed(t, r.Save, d, events.CodeResultContractRejected, 1, now,
				"result_too_large", "result_malformed", "result_identity", "too_many_intents", "intent_kind", "intent_payload",
				"intent_claims", "intent_id", "intent_repeated", "result_boundary")
		default:
			t.Fatalf("an answer is recorded as %s", record.Status)
		}
	})
}

// seeds are the commands of the cases in files.
func seeds(f *testing.F, g *given, files ...string) []core.Command {
	f.Helper()
	var commands []core.Command
	for _, file := range files {
		for _, c := range readFixtures(f, file) {
			commands = append(commands, g.command(f, c.Command, plain))
		}
	}
	return commands
}

func verdict(t *testing.T, command core.Command, in *core.Installed) *core.Result {
	t.Helper()
	r, err := core.Commit(command, core.State{Installed: in}, core.System)
	if err != nil {
		t.Fatalf("no verdict: %v", err)
	}
	return r
}

// wantRefusal fails unless the refusal is nothing but the digest and size of the data, and a reason of the design.
func wantRefusal(t *testing.T, s *core.Save, data []byte, now time.Time) {
	t.Helper()
	if s == nil || s.Refusal == nil {
		t.Fatalf("refused and not recorded")
	}
	digest := sha256.Sum256(data)
	want := &events.Refusal{
		Digest:        hex.EncodeToString(digest[:]),
		Document:      events.RefusedReceipt,
		Reason:        s.Refusal.Reason,
		RecordedAt:    events.NewTimestamp(now),
		SchemaVersion: events.RefusalSchema,
		Size:          len(data),
	}
	if diff := cmp.Diff(&core.Save{Refusal: want}, s); diff != "" {
		t.Fatalf("a refusal holds something else (- want, + saved):\n%s", diff)
	}
	oneOf(t, string(s.Refusal.Reason), "too_large", "malformed", "unknown_event_kind", "unknown_profile",
		"identity_incomplete", "effect_mismatch", "not_durable_writeback", "writeback_not_committed", "not_checkpointed",
		"too_old", "from_future")
}

// wantFailed fails unless the record is nothing but what d was planned with, digests of it, and a reason of the design.
func wantFailed(t *testing.T, s *core.Save, d *core.Dispatch, code events.Code, attempts int, now time.Time, reasons ...string) {
	t.Helper()
	if s == nil || s.Record == nil {
		t.Fatalf("failed and not recorded")
	}
	want := &events.DispatchReceipt{
		Attempt:            attempts,
		CapabilityID:       d.Capability,
		Code:               code,
		DispatchID:         d.Key.Dispatch,
		EventKind:          d.EventKind,
		HookID:             d.Key.Hook,
		InputDigest:        d.InputDigest,
		Invocations:        attempts,
		Profile:            d.Profile,
		Reason:             s.Record.Reason,
		ReceiptIdentity:    d.ReceiptIdentity,
		RecordNumber:       1,
		RecordedAt:         events.NewTimestamp(now),
		RegistrationDigest: d.Registration,
		SchemaVersion:      events.DispatchReceiptSchema,
		Status:             events.StatusFailed,
	}
	if diff := cmp.Diff(&core.Save{Record: want}, s); diff != "" {
		t.Fatalf("a record holds something else (- want, + saved):\n%s", diff)
	}
	oneOf(t, string(s.Record.Reason), reasons...)
	oneOf(t, d.Profile, "default", "ledger_only")
	oneOf(t, d.Key.Hook, "audit.ledger", "brief.digest", "periodic_report.runtime_trigger")
	oneOf(t, string(d.EventKind), "todo_completed", "replan_recorded")
	for _, digest := range []string{d.Key.Dispatch, d.InputDigest, d.ReceiptIdentity, d.Registration} {
		if !isDigest.MatchString(digest) {
			t.Fatalf("%q is no digest", digest)
		}
	}
}

var isDigest = regexp.MustCompile(`^(pw[hr]_)?sha256_[0-9a-f]{64}$`)

func oneOf(t *testing.T, value string, values ...string) {
	t.Helper()
	if !slices.Contains(values, value) {
		t.Fatalf("%q is none of %q", value, values)
	}
}
