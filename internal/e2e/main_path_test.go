package e2e

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"

	"github.com/afterwrite/afterwrite/dispatcher"
	"github.com/afterwrite/afterwrite/dispatcher/registry"
	"github.com/afterwrite/afterwrite/events"
	"github.com/afterwrite/afterwrite/internal/stack"
	"github.com/afterwrite/afterwrite/streams"
)

const goldenDir = "../../events/testdata/golden/"

// longHorizon are the receipts of the golden file, two of them twice.
func longHorizon(t *testing.T) []*events.Receipt {
	t.Helper()
	data, err := os.ReadFile(goldenDir + "longhorizon.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	var receipts []*events.Receipt
	for lines := bufio.NewScanner(bytes.NewReader(data)); lines.Scan(); {
		receipt, err := events.Decode[events.Receipt](lines.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		receipts = append(receipts, receipt)
	}
	return receipts
}

// vector is what came of one receipt, as the golden file has it.
type vector struct {
	MessageID    string                 `json:"message_id"`
	Identity     events.ReceiptIdentity `json:"receipt_identity"`
	DispatchID   events.DispatchID      `json:"dispatch_id"`
	Status       events.Status          `json:"status"`
	InputDigest  events.Digest          `json:"input_digest"`
	ResultDigest events.Digest          `json:"result_digest"`
	IntentID     events.IntentID        `json:"intent_id"`
}

func goldenVectors(t *testing.T) []vector {
	t.Helper()
	data, err := os.ReadFile(goldenDir + "identities.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Vectors []vector `json:"vectors"`
	}
	if err := json.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	return file.Vectors
}

func TestHistoryFedTwiceGivesTheGoldenIdentitiesOnce(t *testing.T) {
	t.Parallel()
	w := start(t, stack.Options{Streams: streams.Settings{DuplicateWindow: window}})
	calls := w.tap(streams.CallSubject(">"))
	receipts := longHorizon(t)
	for _, r := range receipts {
		w.acknowledged(w.publishAnew(r).Sequence)
	}
	w.executed(6)
	if n := len(calls.seen()); n != 9 {
		t.Errorf("%d invocations, want one for each of 9 receipts", n)
	}
	first := w.records()
	got := map[events.DispatchID]vector{}
	for _, r := range first {
		v := vector{
			Identity: r.ReceiptIdentity, DispatchID: r.DispatchID, Status: r.Status,
			InputDigest: r.InputDigest, ResultDigest: string(r.ResultDigest),
		}
		if len(r.Intents) == 1 {
			v.IntentID = r.Intents[0].IntentID
		}
		got[v.DispatchID] = v
	}
	if len(first) != 9 || len(got) != 9 {
		t.Errorf("%d records of %d dispatches, want 9 of 9", len(first), len(got))
	}
	published := map[string]bool{}
	for _, m := range w.messages(streams.Receipts) {
		published[m.Header.Get(streams.HeaderMessageID)] = true
	}
	for _, want := range goldenVectors(t) {
		if !published[want.MessageID] {
			t.Errorf("no receipt was published as %s", want.MessageID)
		}
		want.MessageID = ""
		if diff := cmp.Diff(want, got[want.DispatchID]); diff != "" {
			t.Error("identities differ (-golden +got):\n" + diff)
		}
	}

	for _, r := range receipts {
		w.acknowledged(w.publishAnew(r).Sequence)
	}
	if n := len(calls.seen()); n != 9 {
		t.Errorf("the second feeding made %d invocations, want none", n-9)
	}
	if diff := cmp.Diff(first, w.records()); diff != "" {
		t.Error("the second feeding changed the records (-first +second):\n" + diff)
	}
	if n := w.count(streams.Intents); n != 6 {
		t.Errorf("%d intents, want 6", n)
	}
	if n := len(w.conflicts()) + len(w.refusals()); n != 0 {
		t.Errorf("%d conflicts and refusals, want none", n)
	}
}

// other is the same Turn told with another projection.
func other(s settlement) *events.Receipt {
	r := *s.receipt
	r.Projection.FactRefs = []string{"fact_of_another_telling"}
	return &r
}

func TestAnotherProjectionConflictsWhetherOrNotTheFirstIsStillInTheWindow(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		// committed is how long before its publication the Turn was.
		committed time.Duration
		// invoked says whether the second telling, being fresh, reaches the provider before its write loses.
		invoked bool
	}{
		{"inside", 0, true},
		{"after", time.Hour, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			p := newProbe("a", proposes)
			w := newParts(t, streams.Settings{}, p)
			w.serve(p)
			w.dispatch()
			turn := completed("a")
			turn.committed = time.Now().Add(-test.committed)
			s, at := w.settle(turn)
			w.acknowledged(at.Sequence)
			standing := w.becomes(p, s.receipt, proposed)

			again := w.publish(other(s))
			w.acknowledged(again.Sequence)
			if diff := cmp.Diff([]*events.DispatchReceipt{standing}, w.history(standing.DispatchID)); diff != "" {
				t.Error("the record changed (-before +after):\n" + diff)
			}
			w.conflicted(standing, events.ReasonInputDiffers, standing.InputDigest)
			if n := w.count(streams.Intents); n != 1 {
				t.Errorf("%d intents, want 1", n)
			}
			if invoked := len(p.made()) > 1; invoked != test.invoked {
				t.Errorf("the second telling invoked the provider: %t, want %t", invoked, test.invoked)
			}
			// However often it is told, it is one conflict.
			w.acknowledged(w.publishAs("told again", other(s)))
			w.conflicted(standing, events.ReasonInputDiffers, standing.InputDigest)
		})
	}
}

// conflicted holds that there is one conflict, about the record that stands.
func (w *world) conflicted(standing *events.DispatchReceipt, reason events.Reason, digest events.Digest) {
	w.t.Helper()
	conflicts := w.conflicts()
	if len(conflicts) != 1 {
		w.t.Fatalf("%d conflicts, want 1", len(conflicts))
	}
	c := conflicts[0]
	if c.DispatchID != standing.DispatchID || c.Code != events.CodeIntentConflict || c.Reason != reason ||
		c.StandingDigest != digest || c.StandingRecord != standing.RecordNumber || c.LoserDigest == digest {
		w.t.Errorf("the conflict says %+v", c)
	}
}

func TestTheFirstOfTwoResultsStands(t *testing.T) {
	t.Parallel()
	for _, dispatchers := range []int{1, 2} {
		t.Run(fmt.Sprint(dispatchers), func(t *testing.T) {
			t.Parallel()
			gates := [2]gate{make(gate), make(gate)}
			p := newProbe("a", nil)
			w := newParts(t, streams.Settings{}, p)
			p.answer = func(c call) answer {
				w.wait(gates[c.number-1])
				return proposesCall(c)
			}
			w.serve(p)
			for range dispatchers {
				w.dispatch()
			}
			s, err := completed("a").settle()
			if err != nil {
				t.Fatal(err)
			}
			var last uint64
			for _, id := range []string{"told once", "told twice"} { // to the broker, two messages
				last = w.publishAs(id, s.receipt)
			}
			w.eventually(func() string {
				if n := len(p.made()); n != 2 {
					return fmt.Sprintf("%d calls, want 2", n)
				}
				return ""
			})
			gates[1].open()
			standing := w.becomes(p, s.receipt, proposed)
			gates[0].open()
			w.acknowledged(last)
			if diff := cmp.Diff([]*events.DispatchReceipt{standing}, w.history(standing.DispatchID)); diff != "" {
				t.Error("the record changed (-before +after):\n" + diff)
			}
			w.conflicted(standing, events.ReasonResultDiffers, string(standing.ResultDigest))
			intents := w.intents()
			if len(intents) != 1 || string(intents[0].Payload) != `{"note":"call_2"}` {
				t.Errorf("the intents are %v, want that of the second call alone", intents)
			}
		})
	}
}

func TestStructuredEventsAreTakenAsBinaryOnes(t *testing.T) {
	t.Parallel()
	p := newProbe("a", proposes)
	w := newParts(t, streams.Settings{}, p)
	w.serve(p)
	w.dispatch()
	s, err := completed("a").settle()
	if err != nil {
		t.Fatal(err)
	}
	const trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	data := events.Canonical(s.receipt)
	at := w.publishRaw("pwh.receipts.todo_completed",
		events.Header{"Content-Type": {"application/cloudevents+json; charset=UTF-8"}},
		fmt.Appendf(nil, `{"specversion":"1.0","id":"message 1","source":"/orchestrators/a","type":"io.afterwrite.receipt.v0",
			"datacontenttype":"application/json","traceparent":%q,"data":%s}`, trace, data))
	w.acknowledged(at)
	record := w.becomes(p, s.receipt, proposed)
	stored := w.last(streams.Journal, streams.JournalSubject(record.DispatchID, p.id()))
	if got := stored.Header.Get("ce-traceparent"); got != trace {
		t.Errorf("the record's traceparent is %q, want the receipt's %q", got, trace)
	}
	// Told once more in binary mode it is the same receipt.
	w.acknowledged(w.publish(s.receipt).Sequence)
	if diff := cmp.Diff([]*events.DispatchReceipt{record}, w.history(record.DispatchID)); diff != "" {
		t.Error("the record changed (-before +after):\n" + diff)
	}
}

func TestAMessageThatIsNoEventIsRefusedAndHoldsNothingUp(t *testing.T) {
	t.Parallel()
	p := newProbe("a", proposes)
	w := newParts(t, streams.Settings{}, p)
	w.serve(p)
	w.dispatch()
	s, err := completed("a").settle()
	if err != nil {
		t.Fatal(err)
	}
	data := events.Canonical(s.receipt)
	envelope := func(schema string) events.Header { return events.NewEnvelope("m", "probe", schema, "").Header() }
	for _, test := range []struct {
		name    string
		subject string
		header  events.Header
		data    []byte
		reason  events.RefusalReason
	}{
		{"no envelope", "pwh.receipts.todo_completed", nil, append(slices.Clone(data), ' '), events.RefusedMalformed},
		{"another document", "pwh.receipts.todo_completed", envelope(events.IntentSchema), append(slices.Clone(data), "  "...), events.RefusedMalformed},
		{"another kind's subject", "pwh.receipts.replan_recorded", envelope(events.ReceiptSchema), data, events.RefusedMalformed},
		{"nothing", "pwh.receipts.todo_completed", envelope(events.ReceiptSchema), nil, events.RefusedMalformed},
		{"too much", "pwh.receipts.todo_completed", envelope(events.ReceiptSchema), bytes.Repeat([]byte(" "), 64<<10+1), events.RefusedTooLarge},
	} {
		at := w.publishRaw(test.subject, test.header, test.data)
		w.acknowledged(at)
		refusals := w.refusals()
		if last := refusals[len(refusals)-1]; last.Reason != test.reason || last.Digest != events.SHA256(test.data) || last.Size != len(test.data) {
			t.Errorf("%s: the refusal says %+v, want %s", test.name, last, test.reason)
		}
	}
	w.acknowledged(w.publish(s.receipt).Sequence)
	w.becomes(p, s.receipt, proposed)
}

func TestRefusedRegistrationsAreRecordedOnceHoweverManyDispatchersStart(t *testing.T) {
	t.Parallel()
	p := newProbe("a", proposes)
	w := newParts(t, streams.Settings{}, p)
	broken := registry.File{Name: "broken.yaml", Data: []byte("registration: {hook_id: probe.broken, phase: [}\n")}
	w.files.Hooks = append(w.files.Hooks, broken)
	for range 2 {
		w.stopped(w.dispatch())
	}
	refusals := w.refusals()
	if len(refusals) != 1 {
		t.Fatalf("%d refusals, want 1", len(refusals))
	}
	r := refusals[0]
	r.RecordedAt = ""
	want := &events.Refusal{
		SchemaVersion: events.RefusalSchema, Document: events.RefusedRegistration, Code: events.CodeRegistrationRejected,
		Reason: events.RefusedMalformed, Digest: events.SHA256(broken.Data), Size: len(broken.Data),
	}
	if diff := cmp.Diff(want, r); diff != "" {
		t.Error("the refusal differs (-want +got):\n" + diff)
	}
}

func TestAHookWithoutProviderIsTriedAgainWhenOneAppears(t *testing.T) {
	t.Parallel()
	p := newProbe("a", proposes)
	p.registration.Budget.MaxInvocationsPerDispatch = 1
	w := newParts(t, streams.Settings{}, p)
	w.install("{max_attempts: 100, initial: 20ms, max: 100ms}", p)
	w.dispatch()
	s, at := w.settle(completed("a"))
	w.acknowledged(at.Sequence)
	w.eventually(func() string {
		if r := w.state(p, s.receipt); r.Attempt < 2 {
			return "one attempt was made"
		}
		return ""
	})
	w.serve(p)
	record := w.becomes(p, s.receipt, proposed)
	if record.Attempt < 3 || record.Invocations != 1 || len(p.made()) != 1 {
		t.Errorf("attempt %d, %d invocations, %d calls; want more than 2, 1 and 1", record.Attempt, record.Invocations, len(p.made()))
	}
	for _, r := range w.history(record.DispatchID)[:record.RecordNumber-1] {
		if got, want := verdictOf(r), (verdict{events.StatusRetrying, events.CodeProducerFailed, events.ReasonNoResponder}); got != want {
			t.Errorf("record %d is %s, want %s", r.RecordNumber, got, want)
		}
		if r.Invocations != 0 {
			t.Errorf("record %d counts %d invocations, though nobody was there", r.RecordNumber, r.Invocations)
		}
	}
	w.drained()
}

// drained waits until no wake-up is left, scheduled or due.
func (w *world) drained() {
	w.t.Helper()
	w.eventually(func() string {
		if n := w.count(streams.Retries); n != 0 {
			return fmt.Sprintf("%d wake-ups are left", n)
		}
		return ""
	})
}

func TestALostReplyIsAskedForAgainWithTheSameBytes(t *testing.T) {
	t.Parallel()
	p := newProbe("a", inOrder(silent, proposes))
	p.registration.Budget.TimeoutMillis = 1000
	w := newParts(t, streams.Settings{}, p)
	w.serve(p)
	w.dispatch()
	s, at := w.settle(completed("a"))
	w.acknowledged(at.Sequence)
	if again := w.publish(s.receipt); !again.Duplicate {
		t.Error("the receipt was stored twice inside the duplicate window")
	}
	record := w.becomes(p, s.receipt, proposed)
	if record.RecordNumber != 2 || record.Attempt != 2 || record.Invocations != 2 {
		t.Errorf("record %d, attempt %d, %d invocations; want 2 of each", record.RecordNumber, record.Attempt, record.Invocations)
	}
	calls := p.made()
	if len(calls) != 2 || !bytes.Equal(calls[0].data, calls[1].data) {
		t.Errorf("%d calls, want 2 with the same bytes", len(calls))
	}
	w.drained()
}

func TestALateResultCountsWhileItsDispatchIsWaiting(t *testing.T) {
	t.Parallel()
	late := make(gate)
	p := newProbe("a", nil)
	p.registration.Budget.TimeoutMillis = 100
	w := newParts(t, streams.Settings{}, p)
	p.answer = func(c call) answer {
		w.wait(late)
		return proposes(c)
	}
	w.install("{max_attempts: 3, initial: 2s, max: 2s}", p)
	w.serve(p)
	w.dispatch()
	s, at := w.settle(completed("a"))
	w.acknowledged(at.Sequence)
	w.becomes(p, s.receipt, verdict{events.StatusRetrying, events.CodeProducerTimedOut, events.ReasonNoReply})
	late.open()
	record := w.becomes(p, s.receipt, proposed)
	if record.RecordNumber != 2 || record.Attempt != 1 || record.Invocations != 1 {
		t.Errorf("record %d, attempt %d, %d invocations; want 2, 1 and 1", record.RecordNumber, record.Attempt, record.Invocations)
	}
	w.drained() // its wake-up finds that all is done
	if n := len(p.made()); n != 1 {
		t.Errorf("%d calls, want 1", n)
	}
	if n := w.count(streams.Intents); n != 1 {
		t.Errorf("%d intents, want 1", n)
	}
}

func TestAFailureIsFinalOnceItsInvocationsAreUsedUp(t *testing.T) {
	t.Parallel()
	p := newProbe("a", raises)
	p.registration.Budget.MaxInvocationsPerDispatch = 3
	w := newParts(t, streams.Settings{}, p)
	w.serve(p)
	w.dispatch()
	s, at := w.settle(completed("a"))
	w.acknowledged(at.Sequence)
	w.becomes(p, s.receipt, verdict{events.StatusFailed, events.CodeProducerFailed, events.ReasonInvocationsExhausted})
	var numbers []int
	for _, r := range w.history(p.dispatch(s.receipt)) {
		numbers = append(numbers, r.Invocations)
	}
	if diff := cmp.Diff([]int{1, 2, 3}, numbers); diff != "" {
		t.Error("counted invocations differ (-want +got):\n" + diff)
	}
	w.drained()
	if n := len(p.made()); n != 3 {
		t.Errorf("%d calls, want 3", n)
	}
}

// redrive asks the dispatchers to redrive the probe's dispatch, and gives the record or the error they answer with.
func (w *world) redrive(p *probe, id events.DispatchID) (*events.DispatchReceipt, string) {
	w.t.Helper()
	request, err := json.Marshal(dispatcher.RedriveRequest{Actor: "operator_a", DispatchID: id, HookID: p.id()})
	if err != nil {
		w.t.Fatal(err)
	}
	reply, err := w.nc.RequestWithContext(w.ctx, "pwh.service.dispatcher.redrive", request)
	if err != nil {
		w.t.Fatal(err)
	}
	if text := reply.Header.Get("Nats-Service-Error"); text != "" {
		return nil, text
	}
	record, err := events.Decode[events.DispatchReceipt](reply.Data)
	if err != nil {
		w.t.Fatal(err)
	}
	return record, ""
}

func TestAFailedDispatchIsRedrivenUnderItsOwnIdentity(t *testing.T) {
	t.Parallel()
	p := newProbe("a", inOrder(raises, proposes))
	p.registration.Budget.MaxInvocationsPerDispatch = 1
	w := newParts(t, streams.Settings{}, p)
	w.serve(p)
	w.dispatch()
	w.dispatch()
	s, at := w.settle(completed("a"))
	w.acknowledged(at.Sequence)
	failed := w.becomes(p, s.receipt, verdict{events.StatusFailed, events.CodeProducerFailed, events.ReasonInvocationsExhausted})

	record, text := w.redrive(p, failed.DispatchID)
	if text != "" {
		t.Fatal(text)
	}
	if record.Status != events.StatusRedriven || record.Actor != "operator_a" || record.Attempt != 0 || record.Invocations != 0 ||
		record.RecordNumber != failed.RecordNumber+1 {
		t.Errorf("the answer says %s by %q, attempt %d, %d invocations, record %d", record.Status, record.Actor,
			record.Attempt, record.Invocations, record.RecordNumber)
	}
	done := w.becomes(p, s.receipt, proposed)
	if done.DispatchID != failed.DispatchID || done.Attempt != 1 || done.InputDigest != failed.InputDigest {
		t.Errorf("the redriven dispatch is %s, attempt %d", done.DispatchID, done.Attempt)
	}
	w.drained()

	for id, want := range map[events.DispatchID]string{
		failed.DispatchID:                             "only a failed dispatch can be redriven; this one is proposed",
		"pwh_sha256_" + strings.Repeat("0", 64):       "there is no record of this dispatch",
		"pwh_sha256_" + strings.Repeat("0", 63):       "dispatch_id must be a dispatch id",
		"pwh_sha256_" + strings.Repeat("0", 63) + ".": "dispatch_id must be a dispatch id",
	} {
		if _, text := w.redrive(p, id); text != want {
			t.Errorf("redriving %s gives %q, want %q", id, text, want)
		}
	}
}

func TestWorkOfAHookThatIsGoneOrChangedIsClosed(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		reason events.Reason
		change func(*parts, *probe)
	}{
		{"removed from the files", events.ReasonHookRemoved, func(w *parts, _ *probe) { w.install(quickRetry) }},
		{"removed from the profile", events.ReasonHookRemoved, func(w *parts, _ *probe) { w.files.Profiles.Data = profiles(quickRetry) }},
		{"changed", events.ReasonRegistrationChanged, func(w *parts, p *probe) {
			p.registration.RequestedReadScope = p.registration.RequestedReadScope[:1]
			w.install(quickRetry, p)
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			p := newProbe("a", raises)
			w := newParts(t, streams.Settings{}, p)
			w.install("{max_attempts: 3, initial: 500ms, max: 1s}", p)
			w.serve(p)
			d := w.dispatch()
			s, at := w.settle(completed("a"))
			w.acknowledged(at.Sequence)
			waiting := w.becomes(p, s.receipt, verdict{events.StatusRetrying, events.CodeProducerFailed, events.ReasonProviderError})
			w.stopped(d)
			calls := len(p.made())

			test.change(w, p)
			w.dispatch()
			var closed *events.DispatchReceipt
			w.eventually(func() string {
				history := w.history(waiting.DispatchID)
				if closed = history[len(history)-1]; closed.Status != events.StatusFailed {
					return "the dispatch is " + string(closed.Status)
				}
				return ""
			})
			if got, want := verdictOf(closed), (verdict{events.StatusFailed, events.CodeRegistrationRejected, test.reason}); got != want {
				t.Errorf("closed as %s, want %s", got, want)
			}
			w.drained()
			if n := len(p.made()); n != calls {
				t.Errorf("the provider was called %d times more", n-calls)
			}
			if n := len(w.records()); n != closed.RecordNumber {
				t.Errorf("%d records, want only the %d of the dispatch", n, closed.RecordNumber)
			}
		})
	}
}

func TestWorkOfASaturatedHookWaitsAndDrainsByItself(t *testing.T) {
	t.Parallel()
	release := make(gate)
	slow, quick := newProbe("slow", nil), newProbe("quick", proposes)
	slow.limits = `"max_in_flight":1`
	w := newParts(t, streams.Settings{}, slow, quick)
	slow.answer = func(c call) answer {
		w.wait(release)
		return proposes(c)
	}
	w.serve(slow)
	w.serve(quick)
	w.dispatch()
	const turns = 6
	var receipts []*events.Receipt
	for i := range turns {
		s, _ := w.settle(completed(fmt.Sprint("turn", i)))
		receipts = append(receipts, s.receipt)
	}
	for _, r := range receipts {
		w.becomes(quick, r, proposed)
	}
	for _, r := range receipts[1:] {
		record := w.becomes(slow, r, verdict{events.StatusRetrying, "", events.ReasonHookSaturated})
		if record.Attempt != 0 || record.RetryAt != events.Optional(record.RecordedAt) {
			t.Errorf("a deferral counts as attempt %d, due %s after %s", record.Attempt, record.RetryAt, record.RecordedAt)
		}
	}
	if n := len(slow.made()); n != 1 {
		t.Errorf("%d calls at once, want 1", n)
	}
	release.open()
	for _, r := range receipts {
		if record := w.becomes(slow, r, proposed); record.Attempt != 1 {
			t.Errorf("decided at attempt %d, want 1", record.Attempt)
		}
	}
	w.drained()
	if n := len(slow.made()); n != turns {
		t.Errorf("%d calls, want %d", n, turns)
	}
}

func TestWorkOfASuspendedHookWaitsAndDrainsByItself(t *testing.T) {
	t.Parallel()
	healed := make(gate)
	p, quick := newProbe("a", nil), newProbe("quick", proposes)
	p.answer = func(c call) answer {
		select {
		case <-healed:
			return proposes(c)
		default:
			return raises(c)
		}
	}
	w := newParts(t, streams.Settings{}, p, quick)
	w.install("{max_attempts: 100, initial: 10ms, max: 20ms}", p, quick)
	w.serve(p)
	w.serve(quick)
	w.dispatch(func(o *dispatcher.Options) { o.TripAfter, o.OpenFor = 2, 300*time.Millisecond })
	var receipts []*events.Receipt
	suspended := func() bool {
		return slices.ContainsFunc(w.records(), func(r *events.DispatchReceipt) bool { return r.Reason == events.ReasonHookSuspended })
	}
	for i := 0; !suspended(); i++ {
		s, at := w.settle(completed(fmt.Sprint("turn", i)))
		w.acknowledged(at.Sequence)
		w.becomes(quick, s.receipt, proposed)
		receipts = append(receipts, s.receipt)
	}
	healed.open()
	for _, r := range receipts {
		w.becomes(p, r, proposed)
	}
	w.drained()
	for _, r := range w.records() {
		if r.Reason == events.ReasonHookSuspended && r.Code != "" {
			t.Errorf("a deferral has the code %s", r.Code)
		}
	}
}

func TestOneMessageAtAnyTimeIsOneDispatch(t *testing.T) {
	t.Parallel()
	p := newProbe("a", proposes)
	w := newParts(t, streams.Settings{DuplicateWindow: 300 * time.Millisecond}, p)
	w.serve(p)
	narrow := func(o *dispatcher.Options) { o.SkewAllowance = time.Millisecond }
	d := w.dispatch(narrow)
	s, err := completed("a").settle()
	if err != nil {
		t.Fatal(err)
	}
	ticker := time.NewTicker(250 * time.Millisecond)
	defer ticker.Stop()
	stored := 0
	for i := range 4 { // at 0, 250, 500 and 750 ms
		if i > 0 {
			<-ticker.C
		}
		if at := w.publish(s.receipt); !at.Duplicate {
			stored++
			w.acknowledged(at.Sequence)
		}
	}
	w.stopped(d)
	w.restartBroker()
	w.dispatch(narrow)
	w.acknowledged(w.publishAnew(s.receipt).Sequence)
	record := w.becomes(p, s.receipt, proposed)
	if n := len(w.records()); n != 1 || record.Attempt != 1 {
		t.Errorf("%d records, attempt %d; want 1 and 1", n, record.Attempt)
	}
	if n := len(w.intents()); n != 1 {
		t.Errorf("%d intents, want 1", n)
	}
	if n := len(p.made()); n != 1 {
		t.Errorf("%d calls for a message that was stored %d times, want 1", n, stored+1)
	}
	if n := len(w.conflicts()); n != 0 {
		t.Errorf("%d conflicts, want none", n)
	}
}

func TestASlowProviderIsNotDecidedTwiceByTwoDispatchers(t *testing.T) {
	t.Parallel()
	const ackWait = time.Second
	for name, takes := range map[string]time.Duration{"just inside the ack wait": ackWait * 9 / 10, "beyond it": ackWait * 5 / 2} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newProbe("a", nil)
			w := newParts(t, streams.Settings{AckWait: ackWait}, p)
			p.answer = func(c call) answer {
				w.wait(after(takes))
				return proposes(c)
			}
			w.serve(p)
			w.dispatch()
			w.dispatch()
			const turns = 20
			receipts, last := w.flood("turn", turns)
			w.acknowledged(last)
			w.decidedOnce(p, receipts)
			if n := len(p.made()); n != turns {
				t.Errorf("%d calls, want %d", n, turns)
			}
		})
	}
}

// This is what people try first.
func TestAPlainPublishWithoutMessageIDIsTaken(t *testing.T) {
	t.Parallel()
	p := newProbe("a", proposes)
	w := newParts(t, streams.Settings{}, p)
	w.serve(p)
	w.dispatch()
	s, err := completed("a").settle()
	if err != nil {
		t.Fatal(err)
	}
	header := nats.Header{
		"ce-specversion": {"1.0"}, "ce-id": {"1"}, "ce-source": {"shell"}, "ce-type": {"io.afterwrite.receipt.v0"},
	}
	for range 2 {
		err := w.nc.PublishMsg(&nats.Msg{Subject: "pwh.receipts.todo_completed", Header: header, Data: events.Canonical(s.receipt)})
		if err != nil {
			t.Fatal(err)
		}
	}
	w.becomes(p, s.receipt, proposed)
	w.acknowledged(2)
	if n := len(w.records()); n != 1 {
		t.Errorf("%d records, want 1", n)
	}
}

// Only a broker publishes wake-ups. What somebody else puts there names no dispatch, and must take nobody's place.
func TestWakeUpsThatNameNoDispatchHoldUpNobody(t *testing.T) {
	t.Parallel()
	p := newProbe("a", proposes)
	w := newParts(t, streams.Settings{}, p)
	w.install("{max_attempts: 100, initial: 20ms, max: 100ms}", p)
	for i := range 300 {
		if _, err := w.js.Publish(w.ctx, streams.RetryDueSubject(fmt.Sprint("nothing", i), p.registration.HookID), nil); err != nil {
			t.Fatal(err)
		}
	}
	w.dispatch()
	s, at := w.settle(completed("a"))
	w.acknowledged(at.Sequence)
	w.serve(p)
	w.becomes(p, s.receipt, proposed)
	w.drained()
}
