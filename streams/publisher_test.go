package streams_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/afterwrite/afterwrite/events"
	"github.com/afterwrite/afterwrite/internal/natsembed"
	"github.com/afterwrite/afterwrite/streams"
)

// receipt is the first receipt of the golden ones, and messageID its golden message id.
func receipt() *events.Receipt {
	const effect = "public-long-horizon-loop:codex-product-capability:todo_protocol_contract:turn_001"
	return &events.Receipt{
		SchemaVersion: "loopx_post_writeback_receipt_v0",
		Profile:       "default",
		EventKind:     "todo_completed",
		Plan: events.Settlement{
			GoalID: "public-long-horizon-loop", AgentID: "codex-product-capability", TodoID: "todo_protocol_contract",
			TurnInstanceID: "turn_001", EffectID: effect,
		},
		Receipt: events.WritebackReceipt{
			ReceiptID: "evt_lh_001_protocol_contract_ready", EffectID: effect, StepKind: "durable_writeback",
			Status: "committed", StateRevision: "rev_001", CommittedAt: "2026-06-23T17:12:10Z", Checkpointed: true,
		},
		Projection: events.Projection{
			SchemaVersion: "loopx_post_writeback_event_projection_v0", Transition: "segment_advanced",
			FactRefs: []string{"fact_pr_617"},
		},
	}
}

const messageID = "9f68007d286d9d835d2530dc93c3e1e60129eeaded012727a32042ba1cf53d38"

var eager = streams.PublisherOptions{Backoff: time.Millisecond, MaxBackoff: 10 * time.Millisecond, AttemptTimeout: time.Second}

func TestAReceiptIsStoredOnceHoweverOftenItIsPublished(t *testing.T) {
	ctx, js := broker(t)
	apply(ctx, t, js, installed)
	publisher := streams.NewPublisher(js, eager)
	for i, want := range []streams.Published{
		{MessageID: messageID, Sequence: 1},
		{MessageID: messageID, Sequence: 1, Duplicate: true},
	} {
		got, err := publisher.Publish(ctx, receipt())
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("call %d (-want +got):\n%s", i+1, diff)
		}
	}
}

func TestAReceiptTravelsAsABinaryCloudEventUnderItsMessageID(t *testing.T) {
	ctx, js := broker(t)
	apply(ctx, t, js, installed)
	options := eager
	options.Source = "loop/orchestrator"
	options.Trace = func(context.Context) (string, string) {
		return "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "vendor=1"
	}
	if _, err := streams.NewPublisher(js, options).Publish(ctx, receipt()); err != nil {
		t.Fatal(err)
	}
	stream, err := js.Stream(ctx, streams.Receipts)
	if err != nil {
		t.Fatal(err)
	}
	msg, err := stream.GetMsg(ctx, 1)
	if err != nil {
		t.Fatal(err)
	}
	if msg.Subject != "pwh.receipts.todo_completed" {
		t.Errorf("it is on %s", msg.Subject)
	}
	if events.SHA256(msg.Data) != messageID {
		t.Errorf("the data is not the canonical receipt: %s", msg.Data)
	}
	got := map[string]string{}
	for name, values := range msg.Header {
		if strings.HasPrefix(name, "ce-") || name == "Nats-Msg-Id" {
			got[name] = strings.Join(values, "|")
		}
	}
	want := map[string]string{
		"Nats-Msg-Id":        messageID,
		"ce-specversion":     "1.0",
		"ce-id":              messageID,
		"ce-source":          "loop/orchestrator",
		"ce-type":            "io.afterwrite.receipt.v0",
		"ce-time":            "2026-06-23T17:12:10Z",
		"ce-datacontenttype": "application/json",
		"ce-dataschema":      "urn:afterwrite:schema:loopx_post_writeback_receipt_v0",
		"ce-traceparent":     "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
		"ce-tracestate":      "vendor=1",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("header (-want +got):\n%s", diff)
	}
}

func TestAReceiptThatEveryDispatcherWouldRefuseIsNotSent(t *testing.T) {
	publisher := streams.NewPublisher(nil, eager)
	for name, tt := range map[string]struct {
		edit   func(*events.Receipt)
		reason events.RefusalReason
		member string
	}{
		"too large": {func(r *events.Receipt) { r.Plan.GoalID = strings.Repeat("g", 64<<10) }, "too_large", ""},
		"schema":    {func(r *events.Receipt) { r.SchemaVersion = "v1" }, "malformed", "schema_version"},
		"time":      {func(r *events.Receipt) { r.Receipt.CommittedAt = "yesterday" }, "malformed", "receipt.committed_at"},
		"not UTF-8": {func(r *events.Receipt) { r.Plan.GoalID = "\xff" }, "malformed", ""},
		"transition": {
			func(r *events.Receipt) { r.Projection.Transition = "replan_entered" }, "malformed", "projection.transition",
		},
		"kind":      {func(r *events.Receipt) { r.EventKind = "todo_begun" }, "unknown_event_kind", "event_kind"},
		"goal":      {func(r *events.Receipt) { r.Plan.GoalID = "" }, "identity_incomplete", "plan.goal_id"},
		"agent":     {func(r *events.Receipt) { r.Plan.AgentID = "" }, "identity_incomplete", "plan.agent_id"},
		"todo":      {func(r *events.Receipt) { r.Plan.TodoID = "" }, "identity_incomplete", "plan.todo_id"},
		"turn":      {func(r *events.Receipt) { r.Plan.TurnInstanceID = "" }, "identity_incomplete", "plan.turn_instance_id"},
		"effect":    {func(r *events.Receipt) { r.Plan.EffectID = "" }, "identity_incomplete", "plan.effect_id"},
		"mismatch":  {func(r *events.Receipt) { r.Receipt.EffectID = "other" }, "effect_mismatch", "receipt.effect_id"},
		"step":      {func(r *events.Receipt) { r.Receipt.StepKind = "spend" }, "not_durable_writeback", "receipt.step_kind"},
		"prepared":  {func(r *events.Receipt) { r.Receipt.Status = "prepared" }, "writeback_not_committed", "receipt.status"},
		"unchecked": {func(r *events.Receipt) { r.Receipt.Checkpointed = false }, "not_checkpointed", "receipt.checkpointed"},
	} {
		t.Run(name, func(t *testing.T) {
			r := receipt()
			tt.edit(r)
			_, err := publisher.Publish(t.Context(), r)
			var refused *streams.ReceiptError
			if !errors.As(err, &refused) {
				t.Fatalf("Publish() = %v, want a refusal", err)
			}
			if refused.Reason != tt.reason || refused.Member != tt.member || refused.Rule == "" {
				t.Errorf("refused as %+v, want %s of %q", refused, tt.reason, tt.member)
			}
		})
	}
}

// lossy loses the broker's first answers, and says instead what a broker may say.
type lossy struct {
	jetstream.Publisher
	says   error
	losses int
	sent   []string
}

func (l *lossy) PublishMsg(ctx context.Context, msg *nats.Msg, opts ...jetstream.PublishOpt) (*jetstream.PubAck, error) {
	l.sent = append(l.sent, msg.Header.Get("Nats-Msg-Id"))
	ack, err := l.Publisher.PublishMsg(ctx, msg, opts...)
	if l.losses > 0 {
		l.losses--
		return nil, l.says
	}
	return ack, err
}

func TestALostAnswerStoresNothingTwice(t *testing.T) {
	ctx, js := broker(t)
	apply(ctx, t, js, installed)
	l := &lossy{Publisher: js}
	for name, says := range map[string]error{
		"nothing": nats.ErrTimeout,
		// Replicas say so while an earlier attempt is on its way to them.
		"duplicate message id is in process": &jetstream.APIError{Code: 409, ErrorCode: 10158},
	} {
		l.says, l.losses, l.sent = says, 2, nil
		got, err := streams.NewPublisher(l, eager).Publish(ctx, receipt())
		if err != nil {
			t.Fatalf("the broker says %s: %v", name, err)
		}
		if want := (streams.Published{MessageID: messageID, Sequence: 1, Duplicate: true}); got != want {
			t.Errorf("the broker says %s: Publish() = %+v, want %+v", name, got, want)
		}
		if diff := cmp.Diff([]string{messageID, messageID, messageID}, l.sent); diff != "" {
			t.Errorf("the broker says %s: message ids sent (-want +got):\n%s", name, diff)
		}
	}

	ending, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
	defer cancel()
	l.losses = 1 << 30
	if _, err := streams.NewPublisher(l, eager).Publish(ending, receipt()); !errors.Is(err, streams.ErrUnconfirmed) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("without any answer: %v, want ErrUnconfirmed and the context's error", err)
	}
}

func TestPublishWaitsForTheStreamUntilTheContextEnds(t *testing.T) {
	ctx, js := broker(t)
	ending, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
	defer cancel()
	publisher := streams.NewPublisher(js, eager)
	if _, err := publisher.Publish(ending, receipt()); !errors.Is(err, streams.ErrNoStream) {
		t.Errorf("without streams: %v, want ErrNoStream", err)
	}

	first := &firstAttempt{Publisher: js, made: make(chan struct{})}
	done := make(chan error)
	go func() {
		_, err := streams.NewPublisher(first, eager).Publish(ctx, receipt())
		done <- err
	}()
	<-first.made
	apply(ctx, t, js, installed)
	if err := <-done; err != nil {
		t.Errorf("once the stream is there: %v", err)
	}
}

// firstAttempt tells when the first attempt was answered.
type firstAttempt struct {
	jetstream.Publisher
	made  chan struct{}
	after bool
}

func (f *firstAttempt) PublishMsg(ctx context.Context, msg *nats.Msg, opts ...jetstream.PublishOpt) (*jetstream.PubAck, error) {
	ack, err := f.Publisher.PublishMsg(ctx, msg, opts...)
	if !f.after {
		f.after = true
		close(f.made)
	}
	return ack, err
}

func TestAFullStreamRefusesReceiptsUntilThereIsRoom(t *testing.T) {
	ctx, js := broker(t)
	small := installed
	small.ReceiptsMaxBytes = 1000
	apply(ctx, t, js, small)
	publisher := streams.NewPublisher(js, eager)
	ending, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	_, err := publisher.Publish(ending, receipt())
	if !errors.Is(err, streams.ErrStreamFull) {
		t.Fatalf("Publish() = %v, want ErrStreamFull", err)
	}
	apply(ctx, t, js, installed)
	if _, err := publisher.Publish(ctx, receipt()); err != nil {
		t.Errorf("with room again: %v", err)
	}
}

func TestAMessageThatTheBrokerWillNeverTakeIsNotRepeated(t *testing.T) {
	ctx, js := broker(t)
	// Some other stream listens where the receipts belong.
	if _, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "OTHER", Subjects: []string{"pwh.>"}}); err != nil {
		t.Fatal(err)
	}
	_, err := streams.NewPublisher(js, eager).Publish(ctx, receipt())
	var api *jetstream.APIError
	if !errors.As(err, &api) || ctx.Err() != nil {
		t.Errorf("Publish() = %v, want the broker's error at once", err)
	}
}

func BenchmarkPublish(b *testing.B) {
	nc, err := nats.Connect(natsembed.StartTest(b).ClientURL())
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		b.Fatal(err)
	}
	if _, err := streams.Apply(b.Context(), js, streams.Default(streams.Settings{})); err != nil {
		b.Fatal(err)
	}
	publisher := streams.NewPublisher(js, streams.PublisherOptions{})
	var n atomic.Int64
	b.ReportAllocs()
	b.SetParallelism(32)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			r := receipt()
			r.Receipt.ReceiptID = strconv.FormatInt(n.Add(1), 10)
			if _, err := publisher.Publish(b.Context(), r); err != nil {
				b.Error(err)
			}
		}
	})
}
