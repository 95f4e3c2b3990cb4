package streams_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/afterwrite/afterwrite/events"
	"github.com/afterwrite/afterwrite/streams"
)

// refusal writes a refusal with that size under a digest made of the letter.
func refusal(t *testing.T, js jetstream.JetStream, letter string, size int) {
	t.Helper()
	digest := strings.Repeat(letter, 64)
	document := &events.Refusal{
		Digest: digest, Document: events.RefusedReceipt, Reason: events.RefusedMalformed,
		RecordedAt: "2026-06-23T17:12:10Z", SchemaVersion: events.RefusalSchema, Size: size,
	}
	m := &nats.Msg{
		Subject: streams.RefusalSubject(digest), Data: events.Canonical(document),
		Header: events.NewEnvelope(digest, "test", events.RefusalSchema, document.RecordedAt).Header(),
	}
	if _, err := js.PublishMsg(t.Context(), m); err != nil {
		t.Fatal(err)
	}
}

func sizes(ctx context.Context, js jetstream.JetStream, latest bool) (found []int, errs []string) {
	for stored, err := range streams.Read(ctx, js, streams.Journal, streams.RefusalFilter(), latest, events.Decode[events.Refusal]) {
		if err != nil {
			errs = append(errs, err.Error())
			continue
		}
		found = append(found, stored.Document.Size)
	}
	return found, errs
}

func TestReadGivesWhatIsThereInOrderAndLeavesNothingBehind(t *testing.T) {
	ctx, js := broker(t)
	apply(ctx, t, js, streams.Settings{})
	for i, letter := range []string{"a", "b", "a", "c"} {
		refusal(t, js, letter, i+1)
	}
	for name, row := range map[string]struct {
		latest bool
		want   []int
	}{
		"every message":                {false, []int{1, 2, 3, 4}},
		"the last one of each subject": {true, []int{2, 3, 4}},
	} {
		got, errs := sizes(ctx, js, row.latest)
		if diff := cmp.Diff(row.want, got); diff != "" || errs != nil {
			t.Errorf("%s (-want +got):\n%s%v", name, diff, errs)
		}
	}
	stream, err := js.Stream(ctx, streams.Journal)
	if err != nil {
		t.Fatal(err)
	}
	if n := stream.CachedInfo().State.Consumers; n != 0 {
		t.Errorf("%d consumers are left behind", n)
	}
}

func TestReadNamesAMessageThatIsNoDocumentAndGoesOn(t *testing.T) {
	ctx, js := broker(t)
	apply(ctx, t, js, streams.Settings{})
	if _, err := js.Publish(ctx, streams.RefusalSubject(strings.Repeat("d", 64)), []byte("{")); err != nil {
		t.Fatal(err)
	}
	refusal(t, js, "e", 7)
	got, errs := sizes(ctx, js, false)
	if diff := cmp.Diff([]int{7}, got); diff != "" {
		t.Errorf("documents differ (-want +got):\n%s", diff)
	}
	if len(errs) != 1 || !strings.Contains(errs[0], "sequence 1 of PWH_JOURNAL") {
		t.Errorf("errors are %q, want one that names sequence 1", errs)
	}
}

func TestReadOfAStreamThatIsNotThereSaysSo(t *testing.T) {
	ctx, js := broker(t)
	for _, err := range streams.Read(ctx, js, streams.Journal, streams.RefusalFilter(), true, events.Decode[events.Refusal]) {
		if !errors.Is(err, streams.ErrMissing) {
			t.Errorf("the error is %v, want ErrMissing", err)
		}
	}
}

// A broker that changes its leader loses what it was just asked, and a caller may have hours.
func TestReadGivesUpOnARequestThatIsNotAnswered(t *testing.T) {
	t.Parallel()
	ctx, js := broker(t)
	if _, err := js.Conn().Subscribe("silent.>", func(*nats.Msg) {}); err != nil {
		t.Fatal(err)
	}
	silent, err := jetstream.NewWithAPIPrefix(js.Conn(), "silent")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(ctx, time.Hour)
	defer cancel()
	found, errs := sizes(ctx, silent, false)
	want := []string{"streams: read PWH_JOURNAL: context deadline exceeded"}
	if diff := cmp.Diff(want, errs); diff != "" || found != nil {
		t.Errorf("errors (-want +got):\n%s%v", diff, found)
	}
}
