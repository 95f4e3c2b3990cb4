package providertest_test

import (
	"context"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"
	"go.uber.org/goleak"

	"github.com/afterwrite/afterwrite/events"
	"github.com/afterwrite/afterwrite/internal/natsembed"
	"github.com/afterwrite/afterwrite/providers/providertest"
	"github.com/afterwrite/afterwrite/streams"
)

// The kit is judged on a provider written without the SDK, as one in another language would be: well behaved it must
// pass, and with any one fault it must fail where the fault is.

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// faultVariable names the fault of the provider in a run of this test binary for [TestTheKitFindsAFault].
const faultVariable = "PROVIDERTEST_FAULT"

func TestAProviderWithoutTheSDKConforms(t *testing.T) {
	fault := os.Getenv(faultVariable)
	providertest.Run(t, natsembed.StartTest(t).ClientURL(), providertest.Provider{
		Start: func(tb testing.TB, url string) func() { return startPlain(tb, url, fault) },
		Hook: providertest.Hook{
			Registration:   registration,
			PayloadSchemas: map[events.IntentKind]*events.PayloadSchema{kind: payloadSchema},
			Inputs:         []*events.HookInput{input("1"), input("2")},
		},
	})
}

func TestTheKitFindsAFault(t *testing.T) {
	for fault, where := range map[string]string{
		"the default queue group":      "it is discovered at its subject and queue group",
		"another dispatch":             "a valid input gives a valid result bound to its dispatch",
		"an intent id of its own":      "a valid input gives a valid result bound to its dispatch",
		"a payload outside its schema": "a valid input gives a valid result bound to its dispatch",
		"a claim":                      "a valid input gives a valid result bound to its dispatch",
		"no trace":                     "the trace of a call goes on with its answer",
		"a counter":                    "equal inputs give equal bytes, from every replica",
		"a lenient decoder":            "what breaks the contract is refused and harms no later",
		"an error that repeats":        "what breaks the contract is refused and harms no later",
		"no queue group":               "replicas share the calls, and each call is answered once",
		"an unfinished batch":          "stopping answers every call it was sent",
	} {
		t.Run(fault, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			run := exec.CommandContext(ctx, os.Args[0], "-test.run=TestAProviderWithoutTheSDKConforms/"+pattern(where))
			run.Env = append(os.Environ(), faultVariable+"="+fault)
			out, err := run.CombinedOutput()
			if err == nil || !strings.Contains(string(out), "--- FAIL: TestAProviderWithoutTheSDKConforms/"+strings.ReplaceAll(where, " ", "_")) {
				t.Errorf("not found (%v):\n%s", err, out)
			}
		})
	}
}

// pattern matches the name of a subtest, as go test spells it, and nothing else.
func pattern(name string) string { return "^" + strings.ReplaceAll(name, " ", "_") + "$" }

const (
	hookID = "plain.hook"
	kind   = "plain.intent"
)

var registration = &events.Registration{
	Budget:             events.HookBudget{MaxIntentsPerDispatch: 1, MaxInvocationsPerDispatch: 1, MaxResultBytes: 4096, TimeoutMillis: 1000},
	CapabilityID:       "plain",
	EventKinds:         []events.EventKind{"todo_completed"},
	FailurePolicy:      "isolate",
	HookID:             hookID,
	IntentKinds:        []events.IntentKind{kind},
	Phase:              "post_writeback",
	RequestedReadScope: []events.ReadScope{"settlement_identity"},
	SchemaVersion:      "loopx_post_writeback_capability_hook_registration_v0",
}

var payloadSchema = func() *events.PayloadSchema {
	schema, err := events.CompilePayloadSchema(kind, []byte(`{"type":"object","properties":{"n":{"const":1}}}`))
	if err != nil {
		panic(err)
	}
	return schema
}()

func input(digit string) *events.HookInput {
	return &events.HookInput{
		CapabilityID: "plain", DispatchID: "pwh_sha256_" + strings.Repeat(digit, 64), HookID: hookID,
		SchemaVersion: "loopx_post_writeback_hook_input_v0",
		Source: &events.HookSource{
			AgentID: "agent", CommittedAt: "2026-06-23T17:00:00Z", EffectID: "effect", EventKind: "todo_completed",
			GoalID: "goal", ReceiptID: "receipt", StateRevision: "rev_1", StepKind: "durable_writeback",
			TodoID: "todo", TurnInstanceID: "turn",
		},
	}
}

func startPlain(tb testing.TB, url, fault string) (stop func()) {
	tb.Helper()
	closed := make(chan struct{})
	nc, err := nats.Connect(url, nats.ClosedHandler(func(*nats.Conn) { close(closed) }))
	if err != nil {
		tb.Fatal(err)
	}
	svc, err := micro.AddService(nc, micro.Config{Name: "plain", Version: "1.0.0"})
	if err != nil {
		tb.Fatal(err)
	}
	group := micro.WithEndpointQueueGroup("plain-hooks")
	switch fault {
	case "the default queue group":
		group = micro.WithEndpointQueueGroup(micro.DefaultQueueGroup)
	case "no queue group":
		group = micro.WithEndpointQueueGroupDisabled()
	}
	handler := micro.HandlerFunc(func(r micro.Request) { answer(r, fault) })
	if fault == "an unfinished batch" {
		const size = 128
		var batch []micro.Request
		handler = func(r micro.Request) {
			if batch = append(batch, r); len(batch) == size {
				for _, held := range batch {
					answer(held, fault)
				}
				batch = nil
			}
		}
	}
	if err := svc.AddEndpoint("hook", handler, micro.WithEndpointSubject(streams.CallSubject(hookID)), group); err != nil {
		tb.Fatal(err)
	}
	return func() {
		if err := nc.Drain(); err != nil {
			tb.Error(err)
		}
		<-closed
	}
}

var counter atomic.Int64

func answer(r micro.Request, fault string) {
	refuse := func(text string) {
		if fault == "an error that repeats" {
			text = "got " + string(r.Data()[:min(len(r.Data()), 1000)])
		}
		_ = r.Error("400", text, nil)
	}
	envelope, data, err := events.ReadEvent(events.Header(r.Headers()), r.Data())
	if err != nil {
		refuse(err.Error())
		return
	}
	if envelope.Type != "io.afterwrite.hook_input.v0" {
		refuse("another event")
		return
	}
	in, err := events.Decode[events.HookInput](data)
	if fault == "a lenient decoder" && err != nil {
		in, err = input("1"), nil
	}
	if err != nil {
		refuse(err.Error())
		return
	}
	if value := r.Headers().Get(events.HeaderTimeout); value != "" {
		if ms, err := strconv.Atoi(value); err != nil || ms < 1 {
			refuse("a broken timeout")
			return
		}
	}
	if in.HookID != hookID || in.CapabilityID != "plain" {
		refuse("another hook")
		return
	}
	if fault == "another dispatch" {
		in.DispatchID = "pwh_sha256_" + strings.Repeat("9", 64)
	}
	payload := []byte(`{"n":1}`)
	switch fault {
	case "a counter":
		payload = []byte(`{"m":` + strconv.FormatInt(counter.Add(1), 10) + `}`)
	case "a payload outside its schema":
		payload = []byte(`{"n":2}`)
	}
	intent := events.Intent{
		Budget:                   events.IntentBudget{MaxAttempts: 1, MaxResultBytes: 1024},
		CapabilityID:             "plain",
		FailurePolicy:            "isolate",
		GrantsNewActionAuthority: fault == "a claim",
		HookID:                   hookID,
		IntentID:                 events.IntentIdentity(in.DispatchID, kind, "v1", payload),
		IntentKind:               kind,
		Operation:                "act",
		Payload:                  payload,
		PolicyVersion:            "v1",
		RequestedWriteScope:      []string{},
		SchemaVersion:            "loopx_post_writeback_intent_v0",
		SourceDispatchID:         in.DispatchID,
	}
	if fault == "an intent id of its own" {
		intent.IntentID = "pwi_sha256_" + strings.Repeat("9", 64)
	}
	out, err := events.Encode(&events.HookResult{
		CapabilityID: "plain", DispatchID: in.DispatchID, HookID: hookID, Intents: []events.Intent{intent},
		SchemaVersion: "loopx_post_writeback_hook_result_v0", Status: "proposed",
	})
	if err != nil {
		panic(err)
	}
	header := events.NewEnvelope(in.DispatchID, "plain", "loopx_post_writeback_hook_result_v0", events.NewTimestamp(time.Now()))
	if fault != "no trace" {
		header.TraceParent, header.TraceState = envelope.TraceParent, envelope.TraceState
	}
	_ = r.Respond(out, micro.WithHeaders(micro.Headers(header.Header())))
}
