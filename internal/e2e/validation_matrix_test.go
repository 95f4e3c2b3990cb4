package e2e

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"
	"github.com/gowebpki/jcs"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nats.go/micro"

	"github.com/afterwrite/afterwrite/dispatcher"
	"github.com/afterwrite/afterwrite/dispatcher/registry"
	"github.com/afterwrite/afterwrite/events"
	"github.com/afterwrite/afterwrite/executors"
	"github.com/afterwrite/afterwrite/internal/stack"
	"github.com/afterwrite/afterwrite/providers/periodicreport"
	"github.com/afterwrite/afterwrite/streams"
)

// TestValidationMatrix holds, row by row, what must be true of a Turn's follow-up work. The rows are the contract's.
func TestValidationMatrix(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name string
		test func(t *testing.T)
	}{
		{"phase disabled or capability not installed: zero invocations, no intent", rowDisabled},
		{"registration malformed or over budget: rejected before invocation", rowRegistration},
		{"primary validation or writeback fails: zero invocations", rowPrimaryFails},
		{"committed writeback: exactly one dispatch identity per admitted hook", rowIdentity},
		{"replay: same dispatch receipt, no duplicate intent", rowReplay},
		{"same identity, different payload: conflict, original kept", rowConflict},
		{"provider raises, times out, answers malformed: isolated failure, receipt and spend eligibility unchanged", rowFailures},
		{"multiple hooks: stable order, independent budgets, isolation", rowHooks},
		{"intent requests scope: recorded only", rowScope},
		{"completion threshold: one trigger-evaluation intent", rowCompletion},
		{"replan transition: one", rowReplan},
		{"external write: no network or sink call before separate admission", rowExternalWrite},
		{"public boundary: no private name, URL, path, credential, transcript, raw log or provider payload anywhere but the primary receipt", rowBoundary},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			row.test(t)
		})
	}
}

// primary holds that the receipt is stored as it was published, and that it still says that the Turn may spend.
func (w *world) primary(s settlement, at streams.Published) {
	w.t.Helper()
	stored, err := w.stream(streams.Receipts).GetMsg(w.ctx, at.Sequence)
	if err != nil {
		w.t.Fatal(err)
	}
	if want := events.Canonical(s.receipt); !bytes.Equal(stored.Data, want) {
		w.t.Errorf("the primary receipt is stored as\n%s\nit was published as\n%s", stored.Data, want)
	}
	kept, err := events.Decode[events.Receipt](stored.Data)
	if err != nil {
		w.t.Fatal(err)
	}
	if !(settlement{kept}).spends() {
		w.t.Error("the primary receipt no longer makes the Turn eligible to spend")
	}
}

// nothingWasMade holds that no dispatch, no intent and no execution came of anything.
func (w *world) nothingWasMade() {
	w.t.Helper()
	for _, stream := range []string{streams.Journal, streams.Retries, streams.Intents, streams.Executions} {
		if n := w.count(stream); n != 0 {
			w.t.Errorf("%s holds %d messages, want none", stream, n)
		}
	}
}

func rowDisabled(t *testing.T) {
	p := newProbe("a", proposes)
	w := start(t, stack.Options{Profiles: []byte(`profiles:
  muted: {enabled: false, hooks: [periodic_report.runtime_trigger, probe.a]}
  bare: {enabled: true, hooks: []}
`)}, p)
	calls := w.tap(streams.CallSubject(">"))

	muted := completed("muted")
	muted.profile = "muted"
	bare := completed("bare")
	bare.profile = "bare"
	for _, turn := range []turn{muted, bare} {
		s, at := w.settle(turn)
		w.acknowledged(at.Sequence)
		w.primary(s, at)
	}
	if seen := calls.seen(); len(seen) != 0 {
		t.Errorf("invocations: %v, want none", seen)
	}
	w.nothingWasMade()
}

func rowRegistration(t *testing.T) {
	sound, greedy := newProbe("sound", proposes), newProbe("greedy", proposes)
	greedy.registration.Budget.MaxIntentsPerDispatch = 9
	malformed := newProbe("malformed", proposes)
	file := malformed.file(t)
	file.Data = bytes.Replace(file.Data, []byte(`"phase":"post_writeback"`), []byte(`"phase":"before_writeback"`), 1)
	w := start(t, stack.Options{
		Hooks: []registry.File{file},
		Profiles: []byte(`profiles:
  default:
    enabled: true
    hooks: [probe.greedy, probe.malformed, probe.sound]
    ceilings: {hook: {max_intents_per_dispatch: 8}}
`),
	}, sound, greedy)
	calls := w.tap(streams.CallSubject(">"))

	s, at := w.settle(completed("a"))
	w.becomes(sound, s.receipt, proposed)
	w.acknowledged(at.Sequence)
	if diff := cmp.Diff([]string{"pwh.call.probe.sound"}, calls.seen()); diff != "" {
		t.Error("invocations differ (-want +got):\n" + diff)
	}
	type refusal struct {
		document events.RefusedDocument
		code     events.Code
		reason   events.RefusalReason
		hook     events.Optional
		digest   string
	}
	digest := func(data []byte) string {
		sum := sha256.Sum256(data)
		return hex.EncodeToString(sum[:])
	}
	want := []refusal{
		{events.RefusedRegistration, events.CodeRegistrationRejected, events.RefusedMalformed, "probe.malformed", digest(file.Data)},
		{events.RefusedRegistration, events.CodeRegistrationRejected, events.RefusedOverCeiling, "probe.greedy", digest(greedy.file(t).Data)},
	}
	var got []refusal
	for _, r := range w.refusals() {
		got = append(got, refusal{r.Document, r.Code, r.Reason, r.HookID, r.Digest})
	}
	byHook := func(a, b refusal) int { return strings.Compare(string(b.hook), string(a.hook)) }
	slices.SortFunc(got, byHook)
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(refusal{})); diff != "" {
		t.Error("refusals differ (-want +got):\n" + diff)
	}
	w.primary(s, at)
}

func rowPrimaryFails(t *testing.T) {
	p := newProbe("a", proposes)
	w := start(t, stack.Options{}, p)
	calls := w.tap(streams.CallSubject(">"))

	invalid, torn := completed("invalid"), completed("torn")
	invalid.invalid, torn.torn = true, true
	for _, turn := range []turn{invalid, torn} {
		if s, at := w.settle(turn); s.spends() || at.Sequence != 0 {
			t.Errorf("%s: spends %t, published as %d; want neither", turn.name, s.spends(), at.Sequence)
		}
	}
	if n := w.count(streams.Receipts); n != 0 {
		t.Errorf("%d receipts were published, want none", n)
	}

	// An orchestrator that publishes it all the same is stopped by its own publisher, and one without by the dispatcher.
	s, err := torn.settle()
	if err != nil {
		t.Fatal(err)
	}
	refused := (*streams.ReceiptError)(nil)
	if _, err := streams.NewPublisher(w.world.js, streams.PublisherOptions{}).Publish(w.ctx, s.receipt); !errors.As(err, &refused) {
		t.Errorf("the publisher gives %v, want a *streams.ReceiptError", err)
	}
	w.acknowledged(w.publishAs("torn", s.receipt))
	var reasons []events.RefusalReason
	for _, r := range w.refusals() {
		reasons = append(reasons, r.Reason)
	}
	if diff := cmp.Diff([]events.RefusalReason{events.RefusedNotCommitted}, reasons); diff != "" {
		t.Error("refusals differ (-want +got):\n" + diff)
	}
	if seen := calls.seen(); len(seen) != 0 {
		t.Errorf("invocations: %v, want none", seen)
	}
	if n := len(w.records()) + len(w.intents()); n != 0 {
		t.Errorf("%d records and intents, want none", n)
	}
}

// identity computes a digest of the contract by another library than the contract's own.
func identity(t *testing.T, prefix string, fields any) string {
	t.Helper()
	data, err := json.Marshal(fields)
	if err != nil {
		t.Fatal(err)
	}
	canonical, err := jcs.Transform(data)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(canonical)
	return prefix + hex.EncodeToString(sum[:])
}

func rowIdentity(t *testing.T) {
	probes := []*probe{newProbe("a", proposes), newProbe("b", proposes), newProbe("c", proposes)}
	probes[2].registration.EventKinds = []events.EventKind{events.ReplanRecorded} // not admitted for this Turn
	w := start(t, stack.Options{}, probes...)
	s, at := w.settle(completed("a"))
	w.acknowledged(at.Sequence)

	r := s.receipt
	receipt := identity(t, "pwr_sha256_", map[string]any{
		"receipt_id": r.Receipt.ReceiptID, "step_kind": "durable_writeback", "effect_id": r.Plan.EffectID,
		"goal_id": r.Plan.GoalID, "agent_id": r.Plan.AgentID, "todo_id": r.Plan.TodoID,
		"turn_instance_id": r.Plan.TurnInstanceID, "event_kind": "todo_completed", "state_revision": r.Receipt.StateRevision,
	})
	want := map[events.HookID]events.DispatchID{}
	for _, p := range probes[:2] {
		registration := identity(t, "sha256_", map[string]any{
			"schema_version": "loopx_post_writeback_capability_hook_registration_v0",
			"hook_id":        p.id(), "capability_id": "probe", "phase": "post_writeback",
			"event_kinds":          []string{"todo_completed", "replan_recorded"},
			"intent_kinds":         []string{"probe.noted"},
			"requested_read_scope": []string{"settlement_identity", "bounded_event_projection"},
			"failure_policy":       "isolate",
		})
		want[p.id()] = identity(t, "pwh_sha256_", map[string]any{
			"receipt": receipt, "hook_id": p.id(), "capability_id": "probe", "registration_digest": registration,
			"registration_schema": "loopx_post_writeback_capability_hook_registration_v0", "event_kind": "todo_completed",
		})
	}
	got := map[events.HookID]events.DispatchID{}
	for _, record := range w.records() {
		if record.CapabilityID != probeCapability {
			continue
		}
		if first, ok := got[record.HookID]; ok {
			t.Errorf("%s has the dispatches %s and %s", record.HookID, first, record.DispatchID)
		}
		got[record.HookID] = record.DispatchID
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error("dispatches differ (-want +got):\n" + diff)
	}
}

// window is the smallest duplicate window there is.
const window = 100 * time.Millisecond

// publishAnew publishes the receipt until the broker has forgotten that it holds it.
func (w *world) publishAnew(r *events.Receipt) streams.Published {
	w.t.Helper()
	var published streams.Published
	w.eventually(func() string {
		if published = w.publish(r); published.Duplicate {
			return "the receipt is still dropped as a duplicate"
		}
		return ""
	})
	return published
}

func rowReplay(t *testing.T) {
	p := newProbe("a", proposesCall)
	w := start(t, stack.Options{Streams: streams.Settings{DuplicateWindow: window}}, p)
	calls := w.tap(streams.CallSubject(">"))
	s, at := w.settle(completed("a"))
	first := w.becomes(p, s.receipt, proposed)
	w.acknowledged(at.Sequence)
	before := calls.seen()

	again := w.publishAnew(s.receipt)
	w.acknowledged(again.Sequence)
	if diff := cmp.Diff([]*events.DispatchReceipt{first}, w.history(first.DispatchID)); diff != "" {
		t.Error("the dispatch receipt changed (-first +now):\n" + diff)
	}
	if diff := cmp.Diff(before, calls.seen()); diff != "" {
		t.Error("the replay invoked somebody (-before +after):\n" + diff)
	}
	if n := len(w.intents()); n != 2 { // the probe's and the periodic report's
		t.Errorf("%d intents, want 2", n)
	}
	w.primary(s, again)
}

func rowConflict(t *testing.T) {
	p := newProbe("a", proposes)
	w := start(t, stack.Options{}, p)
	original := completed("a")
	s, at := w.settle(original)
	first := w.becomes(p, s.receipt, proposed)
	w.acknowledged(at.Sequence)
	intents := w.intents()

	original.facts = []string{"fact_of_another_telling"}
	original.committed = s.receipt.Receipt.CommittedAt.Time()
	other, again := w.settle(original)
	w.acknowledged(again.Sequence)
	if diff := cmp.Diff([]*events.DispatchReceipt{first}, w.history(first.DispatchID)); diff != "" {
		t.Error("the original record changed (-first +now):\n" + diff)
	}
	if diff := cmp.Diff(intents, w.intents()); diff != "" {
		t.Error("the intents changed (-before +after):\n" + diff)
	}
	conflicts := slices.DeleteFunc(w.conflicts(), func(c *events.Conflict) bool { return c.HookID != p.id() })
	if len(conflicts) != 1 {
		t.Fatalf("%d conflicts of %s, want 1", len(conflicts), p.id())
	}
	c := conflicts[0]
	if c.Code != events.CodeIntentConflict || c.Reason != events.ReasonInputDiffers || c.DispatchID != first.DispatchID ||
		c.StandingDigest != first.InputDigest || c.LoserDigest == first.InputDigest {
		t.Errorf("the conflict says %+v", c)
	}
	w.primary(s, at)
	w.primary(other, again)
}

func rowFailures(t *testing.T) {
	once := func(name string, f func(call) answer) *probe {
		p := newProbe(name, f)
		p.registration.Budget.MaxInvocationsPerDispatch = 1
		p.registration.Budget.TimeoutMillis = 300
		return p
	}
	raising, mute := once("raising", raises), once("mute", silent)
	garbled := once("garbled", func(c call) answer { return c.says([]byte(`{"schema_version":"x`)) })
	sound := newProbe("sound", proposes)
	w := start(t, stack.Options{}, raising, mute, garbled, sound)

	s, at := w.settle(completed("a"))
	for p, want := range map[*probe]verdict{
		raising: {events.StatusFailed, events.CodeProducerFailed, events.ReasonInvocationsExhausted},
		mute:    {events.StatusFailed, events.CodeProducerTimedOut, events.ReasonInvocationsExhausted},
		garbled: {events.StatusFailed, events.CodeResultContractRejected, events.ReasonResultMalformed},
		sound:   proposed,
	} {
		record := w.becomes(p, s.receipt, want)
		if calls := len(p.made()); calls != 1 || record.Invocations != 1 {
			t.Errorf("%s was invoked %d times, of which %d count; want 1 and 1", p.id(), calls, record.Invocations)
		}
	}
	w.acknowledged(at.Sequence)
	w.primary(s, at)
	if !s.spends() {
		t.Error("the Turn is no longer eligible to spend")
	}
	// And the next Turn is as the first.
	next, at := w.settle(completed("b"))
	w.becomes(sound, next.receipt, proposed)
	w.primary(next, at)
}

func rowHooks(t *testing.T) {
	notes := func(n int) func(call) answer {
		return func(c call) answer {
			var intents []events.Intent
			for i := range n {
				intents = append(intents, c.note(fmt.Sprintf("note_%d", i)))
			}
			return c.propose(intents...)
		}
	}
	one, two, small, late := newProbe("a", notes(2)), newProbe("b", notes(2)), newProbe("c", notes(2)), newProbe("d", silent)
	one.registration.Budget.MaxIntentsPerDispatch = 1
	two.registration.Budget.MaxIntentsPerDispatch = 2
	small.registration.Budget.MaxResultBytes = 1024
	late.registration.Budget.TimeoutMillis = 300
	late.registration.Budget.MaxInvocationsPerDispatch = 1
	w := start(t, stack.Options{
		Profiles:   profiles(quickRetry, "probe.d", "probe.b", "periodic_report.runtime_trigger", "probe.c", "probe.a"),
		Dispatcher: dispatcher.Options{TripAfter: 100}, // the breaker has tests of its own
	}, late, small, two, one)
	calls := w.tap(streams.CallSubject(">"))

	const turns = 20
	var order []string
	var last uint64
	for i := range turns {
		s, at := w.settle(completed(fmt.Sprint("turn", i)))
		last = at.Sequence
		for p, want := range map[*probe]verdict{
			one:   {events.StatusFailed, events.CodeResultContractRejected, events.ReasonTooManyIntents},
			two:   proposed,
			small: {events.StatusFailed, events.CodeResultContractRejected, events.ReasonResultTooLarge},
		} {
			w.becomes(p, s.receipt, want)
		}
		order = append(order, "pwh.call.periodic_report.runtime_trigger",
			"pwh.call.probe.a", "pwh.call.probe.b", "pwh.call.probe.c", "pwh.call.probe.d")
	}
	if diff := cmp.Diff(order, calls.seen()); diff != "" {
		t.Error("the order of invocations differs (-want +got):\n" + diff)
	}
	w.acknowledged(last)
	var kept int
	for _, intent := range w.intents() {
		if intent.CapabilityID == probeCapability {
			kept++
			if intent.HookID != two.id() {
				t.Errorf("%s has an intent, though its result was rejected", intent.HookID)
			}
		}
	}
	if kept != 2*turns {
		t.Errorf("%d intents of %s, want %d", kept, two.id(), 2*turns)
	}
}

func rowScope(t *testing.T) {
	scope := []string{"report.publish"}
	p := newProbe("a", func(c call) answer {
		intent := c.note("seen")
		intent.RequestedWriteScope = scope
		return c.propose(intent)
	})
	w := start(t, stack.Options{}, p)
	acts := w.tap(streams.ServiceSubject("probe.act"))
	s, at := w.settle(completed("a"))
	record := w.becomes(p, s.receipt, proposed)
	w.acknowledged(at.Sequence)
	if intent := record.Intents[0]; !slices.Equal(intent.RequestedWriteScope, scope) || intent.GrantsNewActionAuthority {
		t.Errorf("recorded: scope %v, authority %t; want %v and none", intent.RequestedWriteScope, intent.GrantsNewActionAuthority, scope)
	}
	// Whoever takes the intent goes by what it was granted itself.
	w.execute(executors.Options{
		Executor: "probe_executor",
		Grants:   []executors.Grant{{IntentKind: probeKind, Service: "probe.act", From: streams.StartAll}},
	})
	ended := w.executed(2) // the stack's own executor ends with the periodic report's
	at0 := slices.IndexFunc(ended, func(e *events.Execution) bool { return e.Executor == "probe_executor" })
	if at0 < 0 {
		t.Fatal("the executor recorded nothing")
	}
	if e := ended[at0]; e.Status != events.ExecutionRefused || e.Reason != events.ExecutionScopeNotGranted {
		t.Errorf("the execution is %s/%s, want refused/scope_not_granted", e.Status, e.Reason)
	}
	if seen := acts.seen(); len(seen) != 0 {
		t.Errorf("the executor acted: %v", seen)
	}
}

// execute runs an executor until the test ends, and waits until it takes intents.
func (w *world) execute(options executors.Options) (stop func()) {
	w.t.Helper()
	options.URL, options.Dialer, options.Log = w.url, w.dialed, w.logger.Named("executor")
	process, err := executors.New(options)
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(w.ctx))
	ended := make(chan error, 1)
	go func() { ended <- process.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			w.t.Errorf("the executor ended with %v", err)
		}
	})
	w.t.Cleanup(stop)
	select {
	case <-process.Ready():
	case <-w.ctx.Done():
		w.t.Fatal("the executor did not start in time")
	}
	return stop
}

// evaluations are the periodic report's intents, each with its decision.
func (w *world) evaluations(want int) {
	w.t.Helper()
	var evaluations []*events.Intent
	for _, intent := range w.intents() {
		if intent.IntentKind == periodicreport.IntentKind {
			evaluations = append(evaluations, intent)
		}
	}
	if len(evaluations) != want {
		w.t.Fatalf("%d trigger-evaluation intents, want %d", len(evaluations), want)
	}
	for _, e := range w.executed(want) {
		var decision struct {
			Reason string `json:"reason"`
		}
		if e.Status != events.ExecutionCompleted || json.Unmarshal(e.Result.Data, &decision) != nil || decision.Reason != "trigger_selected" {
			w.t.Errorf("the evaluation is %s with the decision %q, want completed with trigger_selected", e.Status, decision.Reason)
		}
	}
}

func rowCompletion(t *testing.T) {
	w := start(t, stack.Options{})
	for i := range 2 {
		_, at := w.settle(turn{name: fmt.Sprint("advance", i), transition: events.SegmentAdvanced})
		w.acknowledged(at.Sequence)
		if n := w.count(streams.Intents); n != 0 {
			t.Fatalf("%d intents before the segment is complete, want none", n)
		}
	}
	s, at := w.settle(turn{
		name: "complete", transition: events.SegmentCompleted, facts: []string{"fact_1", "fact_2", "fact_3"},
	})
	w.acknowledged(at.Sequence)
	w.evaluations(1)
	w.primary(s, at)
}

func rowReplan(t *testing.T) {
	w := start(t, stack.Options{})
	s, at := w.settle(turn{name: "replan", transition: events.ReplanEntered})
	w.acknowledged(at.Sequence)
	w.evaluations(1)
	w.primary(s, at)
}

// sink is an authorised sink, which remembers what it was given.
type sink struct {
	mu        sync.Mutex
	delivered []events.IntentID
}

// Deliver implements executors.Delivery.
func (s *sink) Deliver(_ context.Context, intent *events.Intent, _ executors.Permit, _ *events.Packet) (jsontext.Value, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.delivered = append(s.delivered, intent.IntentID)
	return nil, nil
}

func (s *sink) got() []events.IntentID {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.delivered)
}

func rowExternalWrite(t *testing.T) {
	w := start(t, stack.Options{NoExecutor: true})
	services := w.tap(streams.ServiceSubject("periodic_report.>"))
	s, at := w.settle(turn{name: "replan", transition: events.ReplanEntered})
	w.acknowledged(at.Sequence)
	intents := w.intents()
	if len(intents) != 1 {
		t.Fatalf("%d intents, want 1", len(intents))
	}
	nothingHappened := func(while string) {
		t.Helper()
		if seen := services.seen(); len(seen) != 0 {
			t.Errorf("%s: services were called: %v", while, seen)
		}
		if n := w.count(streams.Executions) + w.count(streams.State); n != 0 {
			t.Errorf("%s: %d executions and states, want none", while, n)
		}
	}
	nothingHappened("with no executor")

	authorised := &sink{}
	options := executors.Options{
		Executor: "report_evaluator",
		Grants: []executors.Grant{{
			IntentKind: periodicreport.IntentKind, From: streams.StartAll, Service: periodicreport.ServiceName,
			StateKey: "goal_id", EvaluatedAt: "observed_at", Off: true,
			Policy: jsontext.Value(`{"trigger_kinds":["bounded_segment_milestone"],"minimum_interval_seconds":0,"todo_completed_threshold":3,"promote_replan":true}`),
		}},
		Delivery: authorised,
	}
	w.execute(options)()
	nothingHappened("with a grant that is off")
	if got := authorised.got(); len(got) != 0 {
		t.Errorf("the sink got %v before any admission", got)
	}

	options.Grants[0].Off = false
	w.execute(options)
	ended := w.executed(1)
	if ended[0].Status != events.ExecutionCompleted {
		t.Errorf("the execution is %s/%s, want completed", ended[0].Status, ended[0].Reason)
	}
	if diff := cmp.Diff([]events.IntentID{intents[0].IntentID}, authorised.got()); diff != "" {
		t.Error("deliveries differ (-want +got):\n" + diff)
	}
	// Admission stands on record before the effect.
	if first := w.executions()[0]; first.Status != events.ExecutionClaimed || first.Accepted == nil {
		t.Errorf("the first record of the execution is %s, want claimed with what was accepted", first.Status)
	}
	w.primary(s, at)
	broker := strings.TrimPrefix(w.URL(), "nats://")
	for _, address := range w.dialed.to() {
		if address != broker {
			t.Errorf("somebody dialed %s, want the broker's %s and nothing else", address, broker)
		}
	}
	// The dispatcher, the provider, the client of the stack, those of this test, and two executors.
	if n := len(w.dialed.to()); n < 6 {
		t.Errorf("only %d connections went through the dialer, so somebody had another", n)
	}
}

// private is what must be found nowhere. The word by which it is found is nobody else's.
var private = []string{
	"https://private-zebra.example/hook", "/home/zebra/secret/notes.txt", `C:\zebra\secret`, "zebra.person@private.example",
	"ghp_zebra56789abcdefghijklmnopqrstuvwxyz", "Zebra said to the other agent", "ERROR zebra stack trace at line 7",
}

// uttered is what a provider says beside: harmless in itself, and still not to be repeated.
const uttered = "zebra_provider_text"

// rowBoundary gives private material every way in there is, and looks for it everywhere.
func rowBoundary(t *testing.T) {
	loud := func(c call) answer {
		a := raises(c)
		a.header[micro.ErrorHeader] = []string{uttered + strings.Join(private, " ")}
		a.data = []byte(uttered + strings.Join(private, "\n"))
		return a
	}
	raising := newProbe("raising", loud)
	raising.registration.Budget.MaxInvocationsPerDispatch = 1
	garbled := newProbe("garbled", func(c call) answer { return c.says([]byte(`{"` + uttered + strings.Join(private, " "))) })
	leaking := newProbe("leaking", func(c call) answer {
		note, err := json.Marshal(private[(c.number-1)%len(private)])
		if err != nil {
			panic(err)
		}
		intent := c.note("x")
		intent.Payload = fmt.Appendf(nil, `{"note":%s}`, note)
		intent.IntentID = events.IntentIdentity(c.input.DispatchID, probeKind, "v0", intent.Payload)
		return c.propose(intent)
	})
	options := stack.Options{}
	options.Dispatcher.Listen = "127.0.0.1:0"
	w := start(t, options, raising, garbled, leaking)

	var last uint64
	for i, text := range private {
		for j, edit := range []func(*events.Receipt){
			func(*events.Receipt) {},
			func(r *events.Receipt) { r.Projection.FactRefs = []string{"fact_a", text} },
			func(r *events.Receipt) { r.Plan.GoalID = text },
			func(r *events.Receipt) { r.Receipt.ReceiptID = text },
			func(r *events.Receipt) { r.Receipt.StateRevision = text },
			func(r *events.Receipt) { r.Plan.EffectID, r.Receipt.EffectID = text, text },
			func(r *events.Receipt) { r.Profile = text },
			func(r *events.Receipt) { r.Receipt.Status = text },
			func(r *events.Receipt) { r.Plan.AgentID, r.Boundary.RawLogsRecorded = text, true },
		} {
			turn := completed(fmt.Sprintf("turn_%d_%d", i, j))
			turn.edit = edit
			s, err := turn.settle()
			if err != nil {
				t.Fatal(err)
			}
			w.publishAs(fmt.Sprintf("message_%d_%d", i, j), s.receipt)
		}
		last = w.publishRaw(streams.ReceiptSubject(events.TodoCompleted),
			events.NewEnvelope(fmt.Sprintf("message_%d", i), "probe", events.ReceiptSchema, "").Header(),
			[]byte(`{"`+text+`":"`+text+`"}`))
	}
	w.acknowledged(last)
	// One of the receipts in ten is sound and three are refused; what the rest would show a hook is out of bounds.
	verdicts := map[verdict]int{}
	for _, record := range w.records() {
		if record.HookID == leaking.id() {
			verdicts[verdictOf(record)]++
		}
	}
	if n := verdicts[verdict{events.StatusFailed, events.CodeResultContractRejected, events.ReasonResultBoundary}]; n != len(private) {
		t.Errorf("%d results were out of bounds, want %d; all verdicts: %v", n, len(private), verdicts)
	}
	if n := len(w.refusals()); n != 3*len(private) {
		t.Errorf("%d refusals, want %d", n, 3*len(private))
	}

	clean := func(where string, text []byte) {
		t.Helper()
		if bytes.Contains(bytes.ToLower(text), []byte("zebra")) {
			t.Errorf("%s repeats private material: %s", where, text)
		}
	}
	for _, stream := range []string{streams.Journal, streams.Retries, streams.Intents, streams.Executions, streams.State} {
		for _, m := range w.messages(stream) {
			clean(stream, []byte(fmt.Sprint(m.Subject, m.Header)))
			clean(stream, m.Data)
		}
	}
	entries := w.logs.All()
	if len(entries) == 0 {
		t.Fatal("nothing was logged, so that nothing was looked at")
	}
	for _, entry := range entries {
		clean("a log", []byte(fmt.Sprint(entry.Message, entry.ContextMap())))
	}
	for _, path := range []string{"/metrics", "/readyz", "/livez"} {
		clean(path, w.get(w.Dispatcher.Addr().String(), path))
	}
}

// messages are all messages that the stream holds.
func (w *world) messages(stream string) []*jetstream.RawStreamMsg {
	w.t.Helper()
	var messages []*jetstream.RawStreamMsg
	for next := uint64(1); ; {
		m, err := w.stream(stream).GetMsg(w.ctx, next, jetstream.WithGetMsgSubject(">"))
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			return messages
		}
		if err != nil {
			w.t.Fatal(err)
		}
		messages = append(messages, m)
		next = m.Sequence + 1
	}
}

// get is what the address answers to a GET of the path.
func (w *world) get(address, path string) []byte {
	w.t.Helper()
	request, err := http.NewRequestWithContext(w.ctx, http.MethodGet, "http://"+address+path, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Do(request)
	if err != nil {
		w.t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }() // it has been read to its end
	body, err := io.ReadAll(response.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return body
}
