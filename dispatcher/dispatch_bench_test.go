package dispatcher

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/zap"

	"github.com/afterwrite/afterwrite/dispatcher/core"
	"github.com/afterwrite/afterwrite/dispatcher/lane"
	"github.com/afterwrite/afterwrite/dispatcher/registry"
	"github.com/afterwrite/afterwrite/events"
	"github.com/afterwrite/afterwrite/streams"
)

// outbox keeps what a port published instead of sending it.
type outbox struct{ sent []nats.Msg }

func (o *outbox) PublishMsg(m *nats.Msg) error {
	o.sent = append(o.sent, *m)
	return nil
}

// take gives the one message to a subject with the prefix, and forgets the rest.
func (o *outbox) take(b *testing.B, prefix string) nats.Msg {
	b.Helper()
	for _, m := range o.sent {
		if strings.HasPrefix(m.Subject, prefix) {
			o.sent = o.sent[:0]
			return m
		}
	}
	b.Fatalf("nothing was published on %s: %v", prefix, o.sent)
	return nats.Msg{}
}

// BenchmarkDispatch measures the dispatcher's own work for one receipt of one hook that proposes one intent: from
// the message of the receipt to its acknowledgement, everything but the broker and its client.
func BenchmarkDispatch(b *testing.B) { benchmarkDispatch(b, nil) }

// BenchmarkTracedDispatch is the same with spans, which are made and not sent.
func BenchmarkTracedDispatch(b *testing.B) { benchmarkDispatch(b, sdktrace.NewTracerProvider()) }

func benchmarkDispatch(b *testing.B, tracing trace.TracerProvider) {
	b.Helper()
	files, err := registry.ReadFiles([]string{"registry/testdata/installed/hooks"}, "registry/testdata/installed/profiles.yaml")
	if err != nil {
		b.Fatal(err)
	}
	installed, err := registry.Load(files)
	if err != nil {
		b.Fatal(err)
	}
	out := new(outbox)
	p := newPort(out, zap.NewNop(), streams.DispatcherInbox(), time.Second)
	effects, spans := traced(tracing, p, time.Minute)
	r := &runner{port: p, spans: spans, log: zap.NewNop()}
	all := &core.Installed{
		Hooks: installed.Hooks, Profiles: installed.Profiles,
		SkewAllowance: time.Second, DuplicateWindow: time.Minute, JournalAge: time.Hour,
	}
	m, err := newMetrics(prometheus.NewRegistry())
	if err != nil {
		b.Fatal(err)
	}
	r.lane = lane.New(lane.Options{Installed: all}, effects, newObserver(m, zap.NewNop(), func(string, error) {}, all.Hooks))
	ack := []byte(`{"stream":"S","seq":7}`)
	messages, answers := make([]*nats.Msg, window), make([]*nats.Msg, window)

	b.ReportAllocs()
	for done := 0; done < b.N; done += window {
		// A receipt is not long in memory before it is worked on, so as many are made at a time as there may be under way.
		b.StopTimer()
		now := time.Now()
		for i := range messages {
			messages[i] = receiptMessage(done+i, now)
			answers[i] = answerTo(b, all, messages[i], now)
		}
		b.StartTimer()
		for i, m := range messages[:min(window, b.N-done)] {
			r.receive(now, m, 0)
			answers[i].Subject = out.take(b, streams.CallSubject("")).Reply
			r.receive(now, answers[i], 0)
			r.receive(now, &nats.Msg{Subject: out.take(b, "pwh.journal.").Reply, Data: ack}, 0)
			r.receive(now, &nats.Msg{Subject: out.take(b, "pwh.intents.").Reply, Data: ack}, 0)
			out.take(b, "$JS.ACK.")
		}
	}
}

// BenchmarkStrictDecode decodes one receipt, of a kilobyte, by the JSON library: a yardstick for how fast the machine is.
func BenchmarkStrictDecode(b *testing.B) {
	data := receiptMessage(1, time.Now()).Data
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		if err := json.Unmarshal(data, new(events.Receipt), json.RejectUnknownMembers(true)); err != nil {
			b.Fatal(err)
		}
	}
}

// window is how many receipts a benchmark prepares at a time.
const window = 256

func receiptMessage(i int, now time.Time) *nats.Msg {
	effect := fmt.Sprintf("public-long-horizon-loop:codex-product-capability:todo_%d:turn_%d", i, i)
	receipt := &events.Receipt{
		SchemaVersion: events.ReceiptSchema, Profile: "default", EventKind: events.ReplanRecorded,
		Plan: events.Settlement{
			AgentID: "codex-product-capability", EffectID: effect, GoalID: "public-long-horizon-loop",
			TodoID: fmt.Sprintf("todo_%d", i), TurnInstanceID: fmt.Sprintf("turn_%d", i),
		},
		Receipt: events.WritebackReceipt{
			Checkpointed: true, CommittedAt: events.NewTimestamp(now), EffectID: effect, ReceiptID: fmt.Sprintf("receipt_%d", i),
			StateRevision: "rev", Status: events.Committed, StepKind: events.DurableWriteback,
		},
		Projection: events.Projection{
			FactRefs: []string{"fact_a", "fact_b"}, SchemaVersion: events.ProjectionSchema, Transition: events.ReplanEntered,
		},
	}
	header := events.NewEnvelope(receipt.Receipt.ReceiptID, "orchestrator", events.ReceiptSchema, "").Header()
	header[streams.HeaderMessageID] = []string{receipt.MessageID()}
	return &nats.Msg{
		Sub:     &nats.Subscription{},
		Subject: streams.ReceiptSubject(receipt.EventKind), Header: header, Data: events.Canonical(receipt),
		Reply: fmt.Sprintf("$JS.ACK.%s.%s.1.%d.%d.%d.0", streams.Receipts, streams.DispatcherConsumer, i+1, i+1, now.UnixNano()),
	}
}

// answerTo is what the provider will answer to the call for a receipt, its subject left out.
func answerTo(b *testing.B, installed *core.Installed, m *nats.Msg, now time.Time) *nats.Msg {
	b.Helper()
	planned, err := core.Commit(core.AdmitReceipt{
		SubjectKind: events.ReplanRecorded, Data: m.Data, Deliveries: 1, StreamTime: now, Now: now,
	}, core.State{Installed: installed}, core.System)
	if err != nil {
		b.Fatal(err)
	}
	header := events.NewEnvelope("id", "provider", events.HookResultSchema, "").Header()
	return &nats.Msg{Header: header, Data: proposal(planned.Plan[0].InputData)}
}

// proposal is what the provider of the installed hook answers to an input.
func proposal(input []byte) []byte {
	in, err := events.Decode[events.HookInput](input)
	if err != nil {
		panic(err)
	}
	intent := events.Intent{
		Budget: events.IntentBudget{MaxAttempts: 1, MaxResultBytes: 1024}, CapabilityID: in.CapabilityID,
		FailurePolicy: events.Isolate, HookID: in.HookID, IntentKind: "periodic_report.trigger_evaluation",
		Operation: "evaluate_runtime_trigger", PolicyVersion: "weekly_v0", SchemaVersion: events.IntentSchema,
		SourceDispatchID: in.DispatchID,
		Payload: []byte(`{"agent_id":"codex-product-capability","goal_id":"public-long-horizon-loop",` +
			`"observed_at":"2026-06-23T17:13:00Z","segment_ref":"segment_fa7fe0c3cb9fa4740dee354f",` +
			`"source_event_refs":["fact_a","fact_b"],"transition":"replan_entered"}`),
	}
	intent.IntentID = intent.Identity()
	return events.Canonical(&events.HookResult{
		CapabilityID: in.CapabilityID, DispatchID: in.DispatchID, HookID: in.HookID,
		SchemaVersion: events.HookResultSchema, Status: events.ResultProposed, Intents: []events.Intent{intent},
	})
}
