package streams_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/afterwrite/afterwrite/streams"
)

func schedule(ctx context.Context, js jetstream.JetStream, subject string, header nats.Header) error {
	_, err := js.PublishMsg(ctx, &nats.Msg{Subject: subject, Header: header})
	return err
}

func TestAWakeUpIsScheduledToTheFractionOfASecond(t *testing.T) {
	at := time.Date(2026, 10, 1, 10, 0, 0, 123456789, time.FixedZone("", 7200))
	want := map[string][]string{
		"Nats-Schedule":        {"@at 2026-10-01T08:00:00.123456789Z"},
		"Nats-Schedule-Target": {"pwh.retries.due." + dispatch + ".weekly"},
	}
	if diff := cmp.Diff(want, streams.ScheduleHeader(dispatch, "weekly", at)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	want["Nats-Expected-Last-Subject-Sequence"] = []string{"0"}
	if diff := cmp.Diff(want, streams.FirstScheduleHeader(dispatch, "weekly", at)); diff != "" {
		t.Errorf("first (-want +got):\n%s", diff)
	}
}

func TestTheBrokerWakesAtTheTimeGivenAndTheScheduleIsGone(t *testing.T) {
	ctx, js := broker(t)
	apply(ctx, t, js, installed)
	consumer, err := js.Consumer(ctx, streams.Retries, streams.RetryConsumer("weekly"))
	if err != nil {
		t.Fatal(err)
	}
	subject := streams.RetryAtSubject(dispatch, "weekly")
	// A time with a fraction, which the client library's own option would cut to the second before.
	due := time.Now().Truncate(time.Second).Add(1900 * time.Millisecond)
	if err := schedule(ctx, js, subject, streams.FirstScheduleHeader(dispatch, "weekly", due)); err != nil {
		t.Fatal(err)
	}
	var wrong *jetstream.APIError
	err = schedule(ctx, js, subject, streams.FirstScheduleHeader(dispatch, "weekly", due))
	if !errors.As(err, &wrong) || wrong.ErrorCode != jetstream.JSErrCodeStreamWrongLastSequence {
		t.Errorf("a second first wake-up: %v, want a wrong last sequence", err)
	}
	msg, err := consumer.Next(jetstream.FetchMaxWait(10 * time.Second))
	if err != nil {
		t.Fatal(err)
	}
	if early := time.Until(due); early > 0 {
		t.Errorf("the wake-up came %s early", early)
	}
	d, hook, ok := streams.ParseRetryDueSubject(msg.Subject())
	if !ok || d != dispatch || hook != "weekly" {
		t.Errorf("the wake-up came on %s", msg.Subject())
	}
	if err := msg.DoubleAck(ctx); err != nil {
		t.Fatal(err)
	}
	stream, err := js.Stream(ctx, streams.Retries)
	if err != nil {
		t.Fatal(err)
	}
	if n := stream.CachedInfo().State.Msgs; n != 0 {
		t.Errorf("%d messages are left of the wake-up, want none", n)
	}
}

func TestAScheduleReplacesTheOneThereIs(t *testing.T) {
	ctx, js := broker(t)
	apply(ctx, t, js, installed)
	subject := streams.RetryAtSubject(dispatch, "weekly")
	for _, in := range []time.Duration{time.Hour, 0} {
		if err := schedule(ctx, js, subject, streams.ScheduleHeader(dispatch, "weekly", time.Now().Add(in))); err != nil {
			t.Fatal(err)
		}
	}
	consumer, err := js.Consumer(ctx, streams.Retries, streams.RetryConsumer("weekly"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := consumer.Next(jetstream.FetchMaxWait(10 * time.Second)); err != nil {
		t.Errorf("a schedule for now must be due at once: %v", err)
	}
}

func TestTheAPISubjectsAnswerAsTheLibrarysOwnCalls(t *testing.T) {
	ctx, js := broker(t)
	apply(ctx, t, js, installed)
	subject := streams.JournalSubject(dispatch, "weekly")
	for _, body := range []string{"first", "last"} {
		if _, err := js.Publish(ctx, subject, []byte(body)); err != nil {
			t.Fatal(err)
		}
	}
	nc := js.Conn()
	direct, err := nc.RequestWithContext(ctx, streams.DirectGetLastSubject(streams.Journal, subject), nil)
	if err != nil {
		t.Fatal(err)
	}
	if string(direct.Data) != "last" {
		t.Errorf("a direct get gave %q, want %q", direct.Data, "last")
	}
	leader, err := nc.RequestWithContext(ctx, streams.MsgGetSubject(streams.Journal), []byte(`{"last_by_subj":"`+subject+`"}`))
	if err != nil {
		t.Fatal(err)
	}
	// "bGFzdA==" is "last" in base 64.
	if !containsJSON(t, leader.Data, "message", "data", "bGFzdA==") {
		t.Errorf("a get from the leader gave %s", leader.Data)
	}
	if _, err := js.Publish(ctx, streams.ReceiptSubject("any"), []byte("receipt")); err != nil {
		t.Fatal(err)
	}
	next, err := nc.RequestWithContext(ctx, streams.MsgNextSubject(streams.Receipts, streams.DispatcherConsumer), []byte(`{"batch":1}`))
	if err != nil {
		t.Fatal(err)
	}
	if string(next.Data) != "receipt" {
		t.Errorf("a pull gave %q, want %q", next.Data, "receipt")
	}
}

func containsJSON(t *testing.T, data []byte, outer, inner, want string) bool {
	t.Helper()
	var doc map[string]any
	if err := json.Unmarshal(data, &doc); err != nil {
		t.Fatal(err)
	}
	object, _ := doc[outer].(map[string]any)
	return object[inner] == want
}
