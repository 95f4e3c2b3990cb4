package providers_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/afterwrite/afterwrite/events"
	"github.com/afterwrite/afterwrite/internal/natsembed"
	"github.com/afterwrite/afterwrite/providers"
	"github.com/afterwrite/afterwrite/streams"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	capability = "changelog"
	hookID     = "changelog.segment_closed"
	kind       = "changelog.entry"
	service    = "changelog.render"
	private    = "hunter2"
	patience   = 10 * time.Second
)

func registration() *events.Registration {
	return &events.Registration{
		Budget: events.HookBudget{
			MaxIntentsPerDispatch: 2, MaxInvocationsPerDispatch: 3, MaxResultBytes: 4096, TimeoutMillis: 5000,
		},
		CapabilityID:       capability,
		EventKinds:         []events.EventKind{"todo_completed"},
		FailurePolicy:      "isolate",
		HookID:             hookID,
		IntentKinds:        []events.IntentKind{kind},
		Phase:              "post_writeback",
		RequestedReadScope: []events.ReadScope{"settlement_identity", "bounded_event_projection"},
		SchemaVersion:      "loopx_post_writeback_capability_hook_registration_v0",
	}
}

func input(transition events.Transition) *events.HookInput {
	return &events.HookInput{
		CapabilityID: capability,
		DispatchID:   "pwh_sha256_" + strings.Repeat("1", 64),
		HookID:       hookID,
		Projection: &events.Projection{
			FactRefs: []string{"fact_1"}, SchemaVersion: "loopx_post_writeback_event_projection_v0", Transition: transition,
		},
		SchemaVersion: "loopx_post_writeback_hook_input_v0",
		Source: &events.HookSource{
			AgentID: "agent", CommittedAt: "2026-06-23T17:00:00Z", EffectID: "effect", EventKind: "todo_completed",
			GoalID: "goal", ReceiptID: "receipt", StateRevision: "rev_1", StepKind: "durable_writeback",
			TodoID: "todo", TurnInstanceID: "turn",
		},
	}
}

func proposal() providers.Proposal {
	return providers.Proposal{
		Kind: kind, Operation: "draft_entry", PolicyVersion: "v1", Payload: map[string]any{"goal_id": "goal"},
		Budget: events.IntentBudget{MaxAttempts: 1, MaxResultBytes: 1024},
	}
}

// harness is a provider on a broker, and a caller.
type harness struct {
	*testing.T
	nc       *nats.Conn
	provider *providers.Provider
	logs     *observer.ObservedLogs
}

func start(t *testing.T, opts ...providers.Option) *harness {
	t.Helper()
	url := natsembed.StartTest(t).ClientURL()
	core, logs := observer.New(zapcore.DebugLevel)
	serving := connect(t, url)
	p, err := providers.Start(serving, capability, append(opts, providers.WithLogger(zap.New(core)))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Stop(context.Background()) })
	return &harness{t, connect(t, url), p, logs}
}

func connect(tb testing.TB, url string) *nats.Conn {
	tb.Helper()
	nc, err := nats.Connect(url)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(nc.Close)
	return nc
}

func withHook(propose providers.HookFunc) providers.Option {
	return providers.WithHook(registration(), propose)
}

func withService(timeout time.Duration, answer providers.ServiceFunc) providers.Option {
	returns, err := events.CompilePayloadSchema(service, []byte(`{
		"$schema": "https://json-schema.org/draft/2020-12/schema",
		"type": "object", "required": ["text"], "additionalProperties": false,
		"properties": {"text": {"type": "string"}}}`))
	if err != nil {
		panic(err)
	}
	return providers.WithService(service, timeout, returns, answer)
}

func event(subject, id, schemaVersion string, document any) *nats.Msg {
	data, err := events.EncodeValue(document)
	if err != nil {
		panic(err)
	}
	header := events.NewEnvelope(id, "test", schemaVersion, events.NewTimestamp(time.Now())).Header()
	return &nats.Msg{Subject: subject, Header: nats.Header(header), Data: data}
}

func hookCall() *nats.Msg {
	in := input("segment_completed")
	return event(streams.CallSubject(hookID), in.DispatchID, events.HookInputSchema, in)
}

func serviceCall(timeoutMillis int) *nats.Msg {
	return event(streams.ServiceSubject(service), "key", events.ServiceRequestSchema, &events.ServiceRequest{
		IdempotencyKey: "key",
		Payload:        []byte(`{"note":"` + private + `"}`),
		SchemaVersion:  events.ServiceRequestSchema,
		Service:        service,
		TimeoutMillis:  timeoutMillis,
	})
}

func (h *harness) call(msg *nats.Msg) *nats.Msg {
	h.Helper()
	reply, err := h.nc.RequestMsg(msg, patience)
	if err != nil {
		h.Fatal(err)
	}
	return reply
}

// send sends a call whose answer is awaited later.
func (h *harness) send(msg *nats.Msg) (await func() *nats.Msg) {
	h.Helper()
	msg.Reply = h.nc.NewInbox()
	replies, err := h.nc.SubscribeSync(msg.Reply)
	if err != nil {
		h.Fatal(err)
	}
	if err := errors.Join(h.nc.PublishMsg(msg), h.nc.Flush()); err != nil {
		h.Fatal(err)
	}
	return func() *nats.Msg {
		h.Helper()
		reply, err := replies.NextMsg(patience)
		if err != nil {
			h.Fatal(err)
		}
		return reply
	}
}

// wantError holds an answer to be that error, and neither it nor the log to hold anything private.
func (h *harness) wantError(reply *nats.Msg, code providers.ErrorCode, text string) {
	h.Helper()
	gotCode, gotText := reply.Header.Get(micro.ErrorCodeHeader), reply.Header.Get(micro.ErrorHeader)
	if gotCode != string(code) || gotText != text {
		h.Errorf("answered with %q %q, want %q %q", gotCode, gotText, code, text)
	}
	if strings.Contains(fmt.Sprint(reply.Header, string(reply.Data)), private) {
		h.Error("the answer holds a private value")
	}
	for _, entry := range h.logs.All() {
		if strings.Contains(fmt.Sprint(entry.Message, entry.ContextMap()), private) {
			h.Errorf("the log holds a private value: %v", entry)
		}
	}
}

func (h *harness) wantResult(reply *nats.Msg) *events.HookResult {
	h.Helper()
	if text := reply.Header.Get(micro.ErrorHeader); text != "" {
		h.Fatalf("answered with %s", text)
	}
	result, err := events.Decode[events.HookResult](reply.Data)
	if err != nil {
		h.Fatal(err)
	}
	return result
}

// tryExample runs the example's provider once.
func tryExample(serve func(context.Context, *nats.Conn) error, transition events.Transition) string {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		return err.Error()
	}
	defer func() { _ = os.RemoveAll(dir) }()
	server, err := natsembed.Start(natsembed.Options{StoreDir: dir})
	if err != nil {
		return err.Error()
	}
	defer server.Shutdown()
	nc, err := nats.Connect(server.ClientURL())
	if err != nil {
		return err.Error()
	}
	defer nc.Close()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- serve(ctx, nc) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			panic(err)
		}
	}()

	in := input(transition)
	msg := event(streams.CallSubject(hookID), in.DispatchID, events.HookInputSchema, in)
	for {
		reply, err := nc.RequestMsg(msg, patience)
		if errors.Is(err, nats.ErrNoResponders) {
			continue // it has not subscribed yet
		}
		if err != nil {
			return err.Error()
		}
		result, err := events.Decode[events.HookResult](reply.Data)
		if err != nil {
			return err.Error()
		}
		var intents []string
		for _, i := range result.Intents {
			intents = append(intents, i.Operation+" "+string(i.Payload))
		}
		return fmt.Sprint(result.Status, " ", intents)
	}
}

func TestTheSDKFillsInWhatTheAuthorLeavesOut(t *testing.T) {
	h := start(t, withHook(func(*events.HookInput) ([]providers.Proposal, error) {
		p := proposal()
		p.Payload = map[string]any{"z": 1, "a": "x"}
		return []providers.Proposal{p}, nil
	}))
	dispatch := "pwh_sha256_" + strings.Repeat("1", 64)
	want := &events.HookResult{
		CapabilityID:  "changelog",
		DispatchID:    dispatch,
		HookID:        "changelog.segment_closed",
		SchemaVersion: "loopx_post_writeback_hook_result_v0",
		Status:        "proposed",
		Intents: []events.Intent{{
			Budget:       events.IntentBudget{MaxAttempts: 1, MaxResultBytes: 1024},
			CapabilityID: "changelog", FailurePolicy: "isolate", HookID: "changelog.segment_closed",
			// echo -n '{"dispatch_id":"pwh_sha256_1…1","intent_kind":"changelog.entry","payload":{"a":"x","z":1},"policy_version":"v1"}' | sha256sum
			IntentID:   "pwi_sha256_df98762998285faf8a47b3e93296a3b3181b77b5c02fedef94d42553f9381ee6",
			IntentKind: "changelog.entry", Operation: "draft_entry", Payload: []byte(`{"a":"x","z":1}`),
			PolicyVersion: "v1", RequestedWriteScope: []string{},
			SchemaVersion: "loopx_post_writeback_intent_v0", SourceDispatchID: dispatch,
		}},
	}
	if diff := cmp.Diff(want, h.wantResult(h.call(hookCall()))); diff != "" {
		t.Error(diff)
	}
}

func TestAHooksFailureIsAServiceErrorThatRepeatsNothing(t *testing.T) {
	twice := func(p providers.Proposal) []providers.Proposal { return []providers.Proposal{p, p} }
	with := func(change func(*providers.Proposal)) []providers.Proposal {
		p := proposal()
		change(&p)
		return []providers.Proposal{p}
	}
	for name, row := range map[string]struct {
		hook providers.HookFunc
		code providers.ErrorCode
		text string
	}{
		"an error": {
			func(*events.HookInput) ([]providers.Proposal, error) { return nil, errors.New(private) },
			"500", "the provider failed",
		},
		"a refused input": {
			func(*events.HookInput) ([]providers.Proposal, error) {
				return nil, fmt.Errorf(private+": %w", &events.DecodeError{Path: "source.goal_id", Rule: "must be a known goal"})
			},
			"400", "source.goal_id must be a known goal",
		},
		"a panic": {
			func(*events.HookInput) ([]providers.Proposal, error) { panic(private) },
			"500", "the provider failed",
		},
		"a fault": {
			func(in *events.HookInput) ([]providers.Proposal, error) {
				in.Source = nil
				_ = in.Source.GoalID
				return nil, nil
			},
			"500", "the provider failed",
		},
		"too many": {
			func(*events.HookInput) ([]providers.Proposal, error) {
				return append(twice(proposal()), proposal()), nil
			},
			"500", "the answer holds more proposals than the registration's budget",
		},
		"the same twice": {
			func(*events.HookInput) ([]providers.Proposal, error) { return twice(proposal()), nil },
			"500", "the answer holds the same proposal twice",
		},
		"an undeclared kind": {
			func(*events.HookInput) ([]providers.Proposal, error) {
				return with(func(p *providers.Proposal) { p.Kind = "changelog." + private }), nil
			},
			"500", "the answer holds a proposal of a kind that the registration does not declare",
		},
		"a fraction": {
			func(*events.HookInput) ([]providers.Proposal, error) {
				return with(func(p *providers.Proposal) { p.Payload = map[string]any{private: 0.5} }), nil
			},
			"500", "the answer holds a payload that is no JSON of the contract",
		},
		"no payload": {
			func(*events.HookInput) ([]providers.Proposal, error) {
				return with(func(p *providers.Proposal) { p.Payload = nil }), nil
			},
			"500", "the answer holds a result in which intents[0].payload must be an object",
		},
		"a payload too deep": {
			// A payload stands three levels down in its result.
			func(*events.HookInput) ([]providers.Proposal, error) {
				return with(func(p *providers.Proposal) { p.Payload = nested(30) }), nil
			},
			"500", "the answer holds a result in which intents[0].payload must not nest deeper than 32 levels",
		},
		"an operation that is not UTF-8": {
			func(*events.HookInput) ([]providers.Proposal, error) {
				return with(func(p *providers.Proposal) { p.Operation = "draft\xff" }), nil
			},
			"500", "the answer holds a result in which intents[0].operation must be valid UTF-8",
		},
		"a payload that panics": {
			func(*events.HookInput) ([]providers.Proposal, error) {
				return with(func(p *providers.Proposal) { p.Payload = explosive{} }), nil
			},
			"500", "the provider failed",
		},
		"no operation": {
			func(*events.HookInput) ([]providers.Proposal, error) {
				return with(func(p *providers.Proposal) { p.Operation = "" }), nil
			},
			"500", "the answer holds a result in which intents[0].operation must be a name",
		},
		"too large": {
			func(*events.HookInput) ([]providers.Proposal, error) {
				return with(func(p *providers.Proposal) { p.Payload = map[string]any{"a": strings.Repeat("a", 4096)} }), nil
			},
			"500", "the answer holds more bytes than the registration's budget",
		},
	} {
		t.Run(name, func(t *testing.T) {
			failing := true
			h := start(t, providers.WithConcurrency(1), withHook(func(in *events.HookInput) ([]providers.Proposal, error) {
				if failing {
					failing = false
					return row.hook(in)
				}
				return nil, nil
			}))
			h.wantError(h.call(hookCall()), row.code, row.text)
			h.wantResult(h.call(hookCall())) // the only worker is still there
		})
	}
}

// nested is an object of so many levels.
func nested(levels int) map[string]any {
	if levels == 1 {
		return map[string]any{}
	}
	return map[string]any{"a": nested(levels - 1)}
}

func TestAPayloadMayNestAsDeepAsItsResultAllows(t *testing.T) {
	h := start(t, withHook(func(*events.HookInput) ([]providers.Proposal, error) {
		p := proposal()
		p.Payload = nested(29)
		return []providers.Proposal{p}, nil
	}))
	want := strings.Repeat(`{"a":`, 28) + "{}" + strings.Repeat("}", 28)
	if got := h.wantResult(h.call(hookCall())).Intents[0].Payload; string(got) != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// An alert divides overloaded calls by all calls: both must be there before the first call that is overloaded.
func TestEveryOutcomeIsCountedFromTheStart(t *testing.T) {
	registry := prometheus.NewRegistry()
	h := start(t, providers.WithMetrics(registry), withHook(func(*events.HookInput) ([]providers.Proposal, error) { return nil, nil }))
	h.call(hookCall())
	if err := h.provider.Stop(context.Background()); err != nil {
		t.Fatal(err)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := make(map[string]float64)
	for _, family := range families {
		if family.GetName() != "afterwrite_provider_calls_total" {
			continue
		}
		for _, m := range family.GetMetric() {
			got[m.GetLabel()[0].GetValue()+" "+m.GetLabel()[1].GetValue()] = m.GetCounter().GetValue()
		}
	}
	want := map[string]float64{
		hookID + " answered": 1, hookID + " refused": 0, hookID + " failed": 0, hookID + " overloaded": 0, hookID + " timed_out": 0,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

type explosive struct{}

func (explosive) MarshalJSON() ([]byte, error) { panic(private) }

func TestAServicesFailureIsAServiceErrorThatRepeatsNothing(t *testing.T) {
	for name, row := range map[string]struct {
		service providers.ServiceFunc
		code    providers.ErrorCode
		text    string
	}{
		"an error": {
			func(context.Context, *events.ServiceRequest) (any, error) { return nil, errors.New(private) },
			"500", "the provider failed",
		},
		"a panic": {
			func(context.Context, *events.ServiceRequest) (any, error) { panic(private) },
			"500", "the provider failed",
		},
		"a refused request": {
			func(context.Context, *events.ServiceRequest) (any, error) {
				return nil, &events.DecodeError{Path: "note", Rule: "must be shorter"}
			},
			"400", "note must be shorter",
		},
		"outside the return schema": {
			func(context.Context, *events.ServiceRequest) (any, error) {
				return map[string]any{"text": "a", "more": private}, nil
			},
			"500", "the answer holds a payload that the return schema refuses",
		},
		"no object": {
			func(context.Context, *events.ServiceRequest) (any, error) { return nil, nil },
			"500", "the answer holds a payload that the return schema refuses",
		},
		"more than the broker takes": {
			func(context.Context, *events.ServiceRequest) (any, error) {
				return map[string]any{"text": strings.Repeat("a", 1<<20)}, nil
			},
			"500", "the answer holds more bytes than the broker takes",
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := start(t, withService(time.Second, row.service))
			h.wantError(h.call(serviceCall(1000)), row.code, row.text)
		})
	}
}

func TestAServiceIsAnsweredAtItsOwnTimeoutAndAtTheCallers(t *testing.T) {
	for name, row := range map[string]struct {
		own   time.Duration
		asked int
	}{
		"its own":      {20 * time.Millisecond, 10_000},
		"the caller's": {10 * time.Second, 20},
	} {
		t.Run(name, func(t *testing.T) {
			ended := make(chan error, 1)
			h := start(t, withService(row.own, func(ctx context.Context, _ *events.ServiceRequest) (any, error) {
				<-ctx.Done()
				ended <- ctx.Err()
				return map[string]any{"text": "late"}, nil
			}))
			h.wantError(h.call(serviceCall(row.asked)), "504", "the call was not answered by its deadline")
			if err := <-ended; !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("the service's context ended with %v", err)
			}
		})
	}
}

func TestAServiceThatIgnoresItsDeadlineKeepsItsWorker(t *testing.T) {
	release := make(chan struct{})
	h := start(t, providers.WithConcurrency(1), providers.WithQueue(1), withService(20*time.Millisecond, func(context.Context, *events.ServiceRequest) (any, error) {
		<-release
		return map[string]any{"text": "late"}, nil
	}))
	h.wantError(h.call(serviceCall(1000)), "504", "the call was not answered by its deadline")
	second := h.send(serviceCall(1000)) // waits in the queue, so that the third finds no place
	h.wantError(h.call(serviceCall(1000)), "503", "the provider has no free place for the call")
	close(release)
	second()
}

// withClock serves, besides what is tested, a service that lets the given time pass. pass waits for it.
func withClock(d time.Duration) (clock providers.Option, pass func(*harness)) {
	clock = withService(d, func(ctx context.Context, _ *events.ServiceRequest) (any, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	})
	return clock, func(h *harness) {
		h.Helper()
		h.wantError(h.call(serviceCall(10_000)), "504", "the call was not answered by its deadline")
	}
}

func TestACallThatWaitedPastItsDeadlineIsNotRun(t *testing.T) {
	release, running := make(chan struct{}), make(chan struct{}, 2)
	clock, pass := withClock(10 * time.Millisecond)
	h := start(t, clock, providers.WithConcurrency(1), withHook(func(*events.HookInput) ([]providers.Proposal, error) {
		running <- struct{}{}
		<-release
		return nil, nil
	}))
	first := h.send(hookCall())
	<-running
	hurried := hookCall()
	hurried.Header.Set(events.HeaderTimeout, "1")
	second := h.send(hurried)
	pass(h)
	close(release)
	h.wantResult(first())
	h.wantError(second(), "504", "the call was not answered by its deadline")
	if len(running) != 0 {
		t.Error("the second call was run")
	}
}

func TestAHookStartedInTimeIsAnsweredHoweverLate(t *testing.T) {
	release, running := make(chan struct{}), make(chan struct{}, 1)
	clock, pass := withClock(300 * time.Millisecond)
	h := start(t, clock, withHook(func(*events.HookInput) ([]providers.Proposal, error) {
		running <- struct{}{}
		<-release
		return nil, nil
	}))
	msg := hookCall()
	msg.Header.Set(events.HeaderTimeout, "250")
	answer := h.send(msg)
	<-running
	pass(h)
	close(release)
	h.wantResult(answer())
}

func TestACallWithoutAPlaceIsToldSoAtOnce(t *testing.T) {
	release, running := make(chan struct{}), make(chan struct{}, 2)
	h := start(t, providers.WithConcurrency(1), providers.WithQueue(1), withHook(func(*events.HookInput) ([]providers.Proposal, error) {
		running <- struct{}{}
		<-release
		return nil, nil
	}))
	first := h.send(hookCall())
	<-running
	second := h.send(hookCall()) // waits in the queue
	h.wantError(h.call(hookCall()), "503", "the provider has no free place for the call")
	close(release)
	h.wantResult(first())
	h.wantResult(second())
}

func TestABusyServiceDoesNotHoldUpAHook(t *testing.T) {
	release, running := make(chan struct{}), make(chan struct{}, 1)
	h := start(t,
		providers.WithConcurrency(1),
		withHook(func(*events.HookInput) ([]providers.Proposal, error) { return nil, nil }),
		withService(patience, func(context.Context, *events.ServiceRequest) (any, error) {
			running <- struct{}{}
			<-release
			return map[string]any{"text": "done"}, nil
		}))
	answer := h.send(serviceCall(10_000))
	<-running
	h.wantResult(h.call(hookCall()))
	close(release)
	response, err := events.Decode[events.ServiceResponse](answer().Data)
	if err != nil {
		t.Fatal(err)
	}
	if string(response.Payload) != `{"text":"done"}` || response.IdempotencyKey != "key" {
		t.Errorf("got %v", response)
	}
}

func TestStopFinishesWhatIsInFlight(t *testing.T) {
	release, running := make(chan struct{}), make(chan struct{}, 1)
	h := start(t, providers.WithConcurrency(1), withHook(func(*events.HookInput) ([]providers.Proposal, error) {
		select {
		case running <- struct{}{}:
		default:
		}
		<-release
		return nil, nil
	}))
	first, second := h.send(hookCall()), h.send(hookCall())
	<-running
	stopped := make(chan error, 1)
	go func() { stopped <- h.provider.Stop(context.Background()) }()
	// Once nobody else answers the subject, stopping has begun.
	for {
		if _, err := h.nc.RequestMsg(serviceCall(1), time.Second); errors.Is(err, nats.ErrNoResponders) {
			break
		}
	}
	close(release)
	if err := <-stopped; err != nil {
		t.Error(err)
	}
	h.wantResult(first())
	h.wantResult(second())
	if _, err := h.nc.RequestMsg(hookCall(), time.Second); !errors.Is(err, nats.ErrNoResponders) {
		t.Errorf("after stopping: %v", err)
	}
	if err := h.provider.Stop(context.Background()); err != nil {
		t.Errorf("stopped again: %v", err)
	}
}

func TestStopGivesUpAtTheDrainTimeout(t *testing.T) {
	release, running := make(chan struct{}), make(chan struct{}, 1)
	aborted := make(chan error, 1)
	h := start(t,
		providers.WithDrainTimeout(20*time.Millisecond),
		withHook(func(*events.HookInput) ([]providers.Proposal, error) {
			running <- struct{}{}
			<-release
			return nil, nil
		}),
		withService(patience, func(ctx context.Context, _ *events.ServiceRequest) (any, error) {
			running <- struct{}{}
			<-ctx.Done()
			aborted <- context.Cause(ctx)
			return nil, ctx.Err()
		}))
	h.send(hookCall())
	<-running
	answer := h.send(serviceCall(10_000))
	<-running
	if err := h.provider.Stop(context.Background()); !errors.Is(err, providers.ErrDrainTimeout) {
		t.Errorf("got %v", err)
	}
	if cause := <-aborted; cause == nil {
		t.Error("the service was not aborted")
	}
	h.wantError(answer(), "503", "the provider is stopping")
	close(release)
}

func TestServeEndsWhenItsConnectionIsClosed(t *testing.T) {
	nc := connect(t, natsembed.StartTest(t).ClientURL())
	ended := make(chan error, 1)
	go func() {
		ended <- providers.Serve(context.Background(), nc, capability,
			withHook(func(*events.HookInput) ([]providers.Proposal, error) { return nil, nil }))
	}()
	nc.Close()
	if err := <-ended; !errors.Is(err, providers.ErrConnectionClosed) && !errors.Is(err, nats.ErrConnectionClosed) {
		t.Errorf("got %v", err)
	}
}

func TestAProviderPublishesOnlyResponses(t *testing.T) {
	url := natsembed.StartTest(t).ClientURL()
	observing := connect(t, url)
	seen, err := observing.SubscribeSync(">")
	if err != nil {
		t.Fatal(err)
	}
	if err := observing.Flush(); err != nil {
		t.Fatal(err)
	}
	p, err := providers.Start(connect(t, url), capability,
		withHook(func(*events.HookInput) ([]providers.Proposal, error) { return []providers.Proposal{proposal()}, nil }))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := connect(t, url).RequestMsg(hookCall(), patience); err != nil {
		t.Fatal(err)
	}
	if err := p.Stop(context.Background()); err != nil {
		t.Fatal(err)
	}
	var subjects []string
	for range 2 {
		msg, err := seen.NextMsg(patience)
		if err != nil {
			t.Fatal(err)
		}
		subject, _, _ := strings.Cut(msg.Subject, ".")
		subjects = append(subjects, subject)
	}
	if n, _, err := seen.Pending(); err != nil || n != 0 {
		t.Errorf("%d messages more (%v)", n, err)
	}
	if diff := cmp.Diff([]string{"pwh", "_INBOX"}, subjects); diff != "" {
		t.Error(diff)
	}
}

func TestStatisticsTellWhatBecameOfTheCalls(t *testing.T) {
	h := start(t, withHook(func(in *events.HookInput) ([]providers.Proposal, error) {
		if in.Projection.Transition == "segment_advanced" {
			panic(private)
		}
		return nil, nil
	}))
	h.call(hookCall())
	h.call(hookCall())
	in := input("segment_advanced")
	h.call(event(streams.CallSubject(hookID), in.DispatchID, events.HookInputSchema, in))
	h.call(&nats.Msg{Subject: streams.CallSubject(hookID)})
	var stats micro.Stats
	if err := json.Unmarshal(h.call(&nats.Msg{Subject: "$SRV.STATS.changelog"}).Data, &stats); err != nil {
		t.Fatal(err)
	}
	var got providers.Stats
	if err := json.Unmarshal(stats.Endpoints[0].Data, &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(providers.Stats{Answered: 2, Failed: 1, Refused: 1}, got); diff != "" {
		t.Error(diff)
	}
}

func TestStartListsEveryProblem(t *testing.T) {
	broken := registration()
	broken.Phase = "pre_writeback"
	foreign := registration()
	foreign.CapabilityID, foreign.HookID = "other", "other.hook"
	hook := providers.HookFunc(func(*events.HookInput) ([]providers.Proposal, error) { return nil, nil })
	returns, err := events.CompilePayloadSchema(service, []byte(`{}`))
	if err != nil {
		t.Fatal(err)
	}
	answer := providers.ServiceFunc(func(context.Context, *events.ServiceRequest) (any, error) { return nil, nil })
	_, err = providers.Start(nil, capability,
		providers.WithHook(broken, hook),
		providers.WithHook(foreign, hook),
		providers.WithHook(registration(), hook),
		providers.WithHook(registration(), hook),
		providers.WithHook(nil, hook),
		providers.WithService("other.render", time.Second, returns, answer),
		providers.WithService("changelog.a", 0, returns, answer),
		providers.WithService("changelog.b", 31*time.Second, nil, answer),
		providers.WithConcurrency(0),
		providers.WithQueue(0),
		providers.WithDrainTimeout(0),
		providers.WithLogger(nil),
	)
	want := []string{
		`providers: hook 1 must have a valid registration: phase must be "post_writeback"`,
		"hook other.hook must be of the capability changelog",
		"hook changelog.segment_closed must be served once",
		"hook 5 must have a registration and an implementation",
		"service 1 must be named by the capability, a dot and a name",
		"service changelog.a must have a timeout from 1 ms to 30 s",
		"service changelog.b must have a return schema and an implementation",
		"service changelog.b must have a timeout from 1 ms to 30 s",
		"the concurrency must be at least 1",
		"the queue must be at least 1",
		"the drain timeout must be positive",
		"the logger must not be nil",
	}
	if err == nil {
		t.Fatal("started")
	}
	if diff := cmp.Diff(want, strings.Split(err.Error(), "\n")); diff != "" {
		t.Error(diff)
	}
	if _, err := providers.Start(nil, "Change Log"); err == nil || err.Error() != "providers: the capability must be a name\nthere must be a hook or a service to serve" {
		t.Errorf("got %v", err)
	}
}
