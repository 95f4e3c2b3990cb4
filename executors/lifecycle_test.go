package executors

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"

	"github.com/afterwrite/afterwrite/events"
	"github.com/afterwrite/afterwrite/streams"
)

func TestARefusalIsRecordedOnceAndNothingIsCalled(t *testing.T) {
	for _, test := range []struct {
		name   string
		reason events.ExecutionReason
		change func(*events.Intent)
		grant  func(*Grant)
	}{
		{"scope", events.ExecutionScopeNotGranted, func(i *events.Intent) { i.RequestedWriteScope = []string{"reports.publish"} }, nil},
		{"budget", events.ExecutionBudgetOverCeiling, func(i *events.Intent) { i.Budget.MaxAttempts = 4 }, nil},
		{"claims", events.ExecutionIntentClaims, func(i *events.Intent) { i.GrantsNewActionAuthority = true }, nil},
		{"age", events.ExecutionTooOld, nil, func(g *Grant) { g.MaxAge = time.Nanosecond }},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			b := startBroker(t)
			effect := newEffects()
			grant := testGrant(testKind)
			if test.grant != nil {
				test.grant(&grant)
			}
			b.start(with(b.options(grant), effect))
			change := func(*events.Intent) {}
			if test.change != nil {
				change = test.change
			}
			intent := intentOf(testKind, `{"goal_id":"g"}`, change)
			b.propose(intent)
			records := b.await(intent.IntentID, testExecutor, events.ExecutionRefused)
			b.settled(testExecutor, testKind)
			if diff := cmp.Diff([]string{"refused:" + string(test.reason)}, trail(records)); diff != "" {
				t.Errorf("records (-want +got):\n%s", diff)
			}
			if keys := effect.keys(); len(keys) != 0 {
				t.Errorf("the effect was called %d times", len(keys))
			}
		})
	}
}

func TestWhatIsNoIntentIsRefusedUnderItsSubjectOrDropped(t *testing.T) {
	b := startBroker(t)
	effect := newEffects()
	b.start(with(b.options(testGrant(testKind)), effect))
	id := "pwi_sha256_" + strings.Repeat("0", 64)
	b.publish(streams.IntentSubject("nonsense", testKind), []byte(`{}`))
	b.publish(streams.IntentSubject(id, testKind), []byte(`{"a":1,"a":2}`))
	records := b.await(id, testExecutor, events.ExecutionRefused)
	if diff := cmp.Diff([]string{"refused:intent_malformed"}, trail(records)); diff != "" {
		t.Errorf("records (-want +got):\n%s", diff)
	}
	b.settled(testExecutor, testKind)
}

func TestAnEffectsErrorIsTakenAsItSays(t *testing.T) {
	fault := errors.New("no")
	for _, test := range []struct {
		name     string
		attempts int
		err      func(attempt int) error
		calls    int
		want     []string
	}{
		{"never", 3, func(int) error { return Never(fault) }, 1, []string{"claimed", "called", "failed:effect_refused"}},
		{"retry, and the second succeeds", 3, func(n int) error {
			if n == 1 {
				return Retry(fault)
			}
			return nil
		}, 2, []string{"claimed", "called", "paused:effect_failed", "claimed", "called", "completed"}},
		{"any error, and no attempt is left", 1, func(int) error { return fault }, 1, []string{"claimed", "called", "failed:effect_failed"}},
		{"past its deadline", 1, func(int) error { return context.DeadlineExceeded }, 1, []string{"claimed", "called", "failed:effect_timed_out"}},
		{"later", 2, func(n int) error {
			if n == 1 {
				return LaterAt(time.Now().Add(100*time.Millisecond), fault)
			}
			return nil
		}, 2, []string{"claimed", "called", "paused:effect_later", "claimed", "called", "completed"}},
		{"panic", 1, func(int) error { panic("author") }, 1, []string{"claimed", "called", "failed:effect_failed"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			b := startBroker(t)
			effect := newEffects()
			effect.err = test.err
			b.start(with(b.options(testGrant(testKind)), effect))
			intent := intentOf(testKind, `{"goal_id":"g"}`, func(i *events.Intent) { i.Budget.MaxAttempts = test.attempts })
			b.propose(intent)
			b.settled(testExecutor, testKind)
			if diff := cmp.Diff(test.want, trail(b.history(intent.IntentID))); diff != "" {
				t.Errorf("records (-want +got):\n%s", diff)
			}
			if keys := effect.keys(); len(keys) != test.calls {
				t.Errorf("%d calls, want %d", len(keys), test.calls)
			}
		})
	}
}

func TestACallThatFoundNobodyIsNoAttempt(t *testing.T) {
	b := startBroker(t)
	nobody := true
	effect := newEffects()
	effect.err = func(attempt int) error {
		if attempt != 1 {
			t.Errorf("attempt %d, want 1 always", attempt)
		}
		if nobody {
			nobody = false
			return NotStarted(errors.New("nobody"))
		}
		return nil
	}
	b.start(with(b.options(testGrant(testKind)), effect))
	intent := intentOf(testKind, `{"goal_id":"g"}`)
	b.propose(intent)
	want := []string{"claimed", "called", "paused:effect_not_started", "claimed", "called", "completed"}
	if diff := cmp.Diff(want, trail(b.await(intent.IntentID, testExecutor, events.ExecutionCompleted))); diff != "" {
		t.Errorf("records (-want +got):\n%s", diff)
	}
}

func TestTheDeadlineOfTheGrantEndsTheEffect(t *testing.T) {
	b := startBroker(t)
	grant := testGrant(testKind)
	grant.Timeout = 50 * time.Millisecond
	b.start(with(b.options(grant), Func(func(ctx context.Context, _ *events.Intent, _ Permit) (*events.Packet, error) {
		<-ctx.Done()
		return nil, errors.New("gave up")
	})))
	intent := intentOf(testKind, `{"goal_id":"g"}`)
	b.propose(intent)
	records := b.await(intent.IntentID, testExecutor, events.ExecutionFailed)
	if diff := cmp.Diff([]string{"claimed", "called", "failed:effect_timed_out"}, trail(records)); diff != "" {
		t.Errorf("records (-want +got):\n%s", diff)
	}
}

func TestAResultThatMayNotBeStoredFailsAndIsNotStored(t *testing.T) {
	for _, test := range []struct {
		name   string
		packet *events.Packet
		reason events.ExecutionReason
	}{
		{"none", nil, events.ExecutionResultMalformed},
		{"not JSON", &events.Packet{Data: jsontext.Value(`{`), SchemaVersion: "x"}, events.ExecutionResultMalformed},
		{"untyped", &events.Packet{Data: jsontext.Value(`{}`)}, events.ExecutionResultMalformed},
		{"too large", &events.Packet{Data: jsontext.Value(`{"a":"` + strings.Repeat("x", 16384) + `"}`), SchemaVersion: "x"}, events.ExecutionResultTooLarge},
		{"private", &events.Packet{Data: jsontext.Value(`{"a":"/home/user/secret"}`), SchemaVersion: "x"}, events.ExecutionResultBoundary},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			b := startBroker(t)
			b.start(with(b.options(testGrant(testKind)), Func(func(context.Context, *events.Intent, Permit) (*events.Packet, error) {
				return test.packet, nil
			})))
			intent := intentOf(testKind, `{"goal_id":"g"}`)
			b.propose(intent)
			records := b.await(intent.IntentID, testExecutor, events.ExecutionFailed)
			if diff := cmp.Diff([]string{"claimed", "called", "failed:" + string(test.reason)}, trail(records)); diff != "" {
				t.Errorf("records (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAGrantThatIsOffRecordsNothingAndLetsAnotherKindGoOn(t *testing.T) {
	b := startBroker(t)
	const otherKind = "periodic_report.archive"
	effect := newEffects()
	off := testGrant(testKind)
	off.Off, off.From = true, streams.StartNew
	first := b.start(with(b.options(off, testGrant(otherKind)), effect))
	waits, goesOn := intentOf(testKind, `{"goal_id":"g"}`), intentOf(otherKind, `{"goal_id":"g"}`)
	b.propose(waits)
	b.propose(goesOn)
	b.await(goesOn.IntentID, testExecutor, events.ExecutionCompleted)
	first.halt(t)
	if records := b.history(waits.IntentID); len(records) != 0 {
		t.Errorf("recorded while the grant was off: %v", trail(records))
	}
	on := off
	on.Off = false
	b.start(with(b.options(on, testGrant(otherKind)), effect))
	records := b.await(waits.IntentID, testExecutor, events.ExecutionCompleted)
	b.settled(testExecutor, testKind)
	if diff := cmp.Diff([]string{"claimed", "called", "completed"}, trail(records)); diff != "" {
		t.Errorf("records once it was on (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{goesOn.IntentID, waits.IntentID}, effect.keys()); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
}

func TestAConsumerDeletedWhileRunningBeginsAgainAndRepeatsNothing(t *testing.T) {
	b := startBroker(t)
	effect := newEffects()
	b.start(with(b.options(testGrant(testKind)), effect))
	before, after := intentOf(testKind, `{"goal_id":"before"}`), intentOf(testKind, `{"goal_id":"after"}`)
	b.propose(before)
	b.settled(testExecutor, testKind)
	if err := b.js.DeleteConsumer(b.ctx, streams.Intents, streams.ExecutorConsumer(testExecutor, testKind)); err != nil {
		t.Fatal(err)
	}
	b.propose(after)
	b.await(after.IntentID, testExecutor, events.ExecutionCompleted)
	b.settled(testExecutor, testKind)
	if diff := cmp.Diff([]string{before.IntentID, after.IntentID}, effect.keys()); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
}

func TestStoppingLetsACalledEffectEndAndGivesBackWhatWasNotCalled(t *testing.T) {
	b := startBroker(t)
	inEffect, finish := make(chan struct{}), make(chan struct{})
	called, claimed := intentOf(testKind, `{"goal_id":"called"}`), intentOf(testKind, `{"goal_id":"claimed"}`)
	opts := with(b.options(testGrant(testKind)), Func(func(context.Context, *events.Intent, Permit) (*events.Packet, error) {
		close(inEffect)
		<-finish
		return &events.Packet{Data: jsontext.Value(`{}`), SchemaVersion: "x"}, nil
	}))
	atClaim, release := make(chan struct{}), make(chan struct{})
	opts.at = func(at point, id events.IntentID) error {
		if at == pointClaimed && id == claimed.IntentID {
			close(atClaim)
			<-release
		}
		return nil
	}
	p := b.start(opts)
	b.propose(called)
	b.propose(claimed)
	<-inEffect
	<-atClaim
	p.stop()
	for !p.stopping() {
		runtime.Gosched()
	}
	close(release)
	close(finish)
	p.halt(t)
	if diff := cmp.Diff([]string{"claimed", "called", "completed"}, trail(b.history(called.IntentID))); diff != "" {
		t.Errorf("the called effect (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"claimed", "paused:stopping"}, trail(b.history(claimed.IntentID))); diff != "" {
		t.Errorf("the claimed one (-want +got):\n%s", diff)
	}
	effect := newEffects()
	b.start(with(b.options(testGrant(testKind)), effect))
	records := b.await(claimed.IntentID, testExecutor, events.ExecutionCompleted)
	if last := records[len(records)-1]; last.Attempt != 1 {
		t.Errorf("completed as attempt %d: a run that called nothing was counted", last.Attempt)
	}
}

func TestAPersonAcceptsANarrowerFormOrRefuses(t *testing.T) {
	b := startBroker(t)
	permits := make(chan Permit, 10)
	grant := testGrant(testKind)
	grant.Manual = true
	b.start(with(b.options(grant), Func(func(_ context.Context, _ *events.Intent, permit Permit) (*events.Packet, error) {
		permits <- permit
		return &events.Packet{Data: jsontext.Value(`{}`), SchemaVersion: "x"}, nil
	})))
	scoped := func(i *events.Intent) {
		i.RequestedWriteScope = []string{"reports.draft", "reports.index"}
		i.Budget.MaxAttempts = 3
	}
	yes, no := intentOf(testKind, `{"goal_id":"yes"}`, scoped), intentOf(testKind, `{"goal_id":"no"}`, scoped)
	for _, intent := range []*events.Intent{yes, no} {
		b.propose(intent)
		b.await(intent.IntentID, testExecutor, events.ExecutionAwaiting)
	}
	answer := func(f func(context.Context, *nats.Conn, Answer) (*Answered, error), a Answer) Answered {
		t.Helper()
		answered, err := f(b.ctx, b.nc, a)
		if err != nil {
			t.Fatal(err)
		}
		return *answered
	}
	narrower := Answer{
		Executor: testExecutor, IntentID: yes.IntentID, Actor: "operator-1", WriteScope: []string{"reports.draft"},
		Budget: events.IntentBudget{MaxAttempts: 1},
	}
	wider := narrower
	wider.WriteScope = []string{"reports.publish"}
	unknown := narrower
	unknown.IntentID = "pwi_sha256_" + strings.Repeat("0", 64)
	refusal := Answer{Executor: testExecutor, IntentID: no.IntentID, Actor: "operator-1"}
	for _, test := range []struct {
		name string
		got  Answered
		want Answered
	}{
		{"wider", answer(Accept, wider), Answered{"write_scope must be within what was granted", "awaiting"}},
		{"unknown", answer(Accept, unknown), Answered{"there is no record of this execution", ""}},
		{"narrower", answer(Accept, narrower), Answered{"", "accepted"}},
		{"refused", answer(Refuse, refusal), Answered{"", "refused"}},
		{"refused again", answer(Refuse, refusal), Answered{"", "refused"}},
		{"accepted what was refused", answer(Accept, refusal), Answered{"only an awaiting execution can be accepted or refused; this one is refused", "refused"}},
	} {
		if diff := cmp.Diff(test.want, test.got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.name, diff)
		}
	}
	records := b.await(yes.IntentID, testExecutor, events.ExecutionCompleted)
	if diff := cmp.Diff([]string{"awaiting", "accepted", "claimed", "called", "completed"}, trail(records)); diff != "" {
		t.Errorf("records (-want +got):\n%s", diff)
	}
	accepted := events.Acceptance{
		Authority: events.AuthorityPerson, By: "operator-1", WriteScope: []string{"reports.draft"},
		Budget: events.IntentBudget{MaxAttempts: 1, MaxResultBytes: 16384},
	}
	if diff := cmp.Diff(&accepted, records[len(records)-1].Accepted); diff != "" {
		t.Errorf("accepted on record (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(accepted, (<-permits).Accepted); diff != "" {
		t.Errorf("accepted, as the effect was told (-want +got):\n%s", diff)
	}
	b.settled(testExecutor, testKind)
	if diff := cmp.Diff([]string{"awaiting", "refused:refused_by_person"}, trail(b.history(no.IntentID))); diff != "" {
		t.Errorf("records of the refused one (-want +got):\n%s", diff)
	}
	for name, bad := range map[string]struct {
		answer Answer
		want   string
	}{
		"nobody":         {Answer{Executor: testExecutor, IntentID: no.IntentID}, "executor report_evaluator: actor must be an opaque id"},
		"no intent":      {Answer{Executor: testExecutor, IntentID: "x", Actor: "operator-1"}, "executor report_evaluator: intent_id must be an intent id"},
		"other executor": {Answer{Executor: "elsewhere", IntentID: no.IntentID, Actor: "operator-1"}, "no executor elsewhere with a manual grant is running"},
	} {
		if _, err := Accept(b.ctx, b.nc, bad.answer); err == nil || err.Error() != bad.want {
			t.Errorf("%s: %v, want %q", name, err, bad.want)
		}
	}
}
