package streams_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/afterwrite/afterwrite/events"
	"github.com/afterwrite/afterwrite/streams"
)

var (
	hexDigits = strings.Repeat("0123456789abcdef", 4)
	dispatch  = "pwh_sha256_" + hexDigits
	intent    = "pwi_sha256_" + hexDigits
	digest    = "sha256_" + hexDigits
)

func TestNamesAreSpelledAsTheDesignSays(t *testing.T) {
	got := map[string]string{
		"receipt":           streams.ReceiptSubject(events.TodoCompleted),
		"journal":           streams.JournalSubject(dispatch, "a.b"),
		"journal filter":    streams.JournalFilterFor(dispatch),
		"conflict":          streams.ConflictSubject(dispatch, digest, "a.b"),
		"conflict filter":   streams.ConflictFilterFor(dispatch),
		"refusal":           streams.RefusalSubject(hexDigits),
		"retry at":          streams.RetryAtSubject(dispatch, "a.b"),
		"retry due":         streams.RetryDueSubject(dispatch, "a.b"),
		"retry due filter":  streams.RetryDueFilter("a.b"),
		"intent":            streams.IntentSubject(intent, "a.c"),
		"intent filter":     streams.IntentFilter("a.c"),
		"intents filter":    streams.IntentFilter(""),
		"execution":         streams.ExecutionSubject(intent, "weekly.executor"),
		"state":             streams.StateSubject("abc", "weekly.executor", "a.c"),
		"call":              streams.CallSubject("a.b"),
		"service":           streams.ServiceSubject(streams.RedriveService),
		"retry consumer":    streams.RetryConsumer("a.b"),
		"executor consumer": streams.ExecutorConsumer("weekly.executor", "a.c"),
		"next":              streams.MsgNextSubject(streams.Receipts, streams.DispatcherConsumer),
		"direct get":        streams.DirectGetLastSubject(streams.Journal, "pwh.journal.x.a.b"),
		"get":               streams.MsgGetSubject(streams.Journal),
	}
	want := map[string]string{
		"receipt":          "pwh.receipts.todo_completed",
		"journal":          "pwh.journal." + dispatch + ".a.b",
		"journal filter":   "pwh.journal." + dispatch + ".>",
		"conflict":         "pwh.conflicts." + dispatch + "." + digest + ".a.b",
		"conflict filter":  "pwh.conflicts." + dispatch + ".*.>",
		"refusal":          "pwh.refused." + hexDigits,
		"retry at":         "pwh.retries.at." + dispatch + ".a.b",
		"retry due":        "pwh.retries.due." + dispatch + ".a.b",
		"retry due filter": "pwh.retries.due.*.a.b",
		"intent":           "pwh.intents." + intent + ".a.c",
		"intent filter":    "pwh.intents.*.a.c",
		"intents filter":   "pwh.intents.*.>",
		"execution":        "pwh.executions." + intent + ".weekly.executor",
		// The digest is the SHA-256 test vector for "abc" of FIPS 180-4.
		"state":             "pwh.state.ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad.weekly-executor.a.c",
		"call":              "pwh.call.a.b",
		"service":           "pwh.service.dispatcher.redrive",
		"retry consumer":    "a-b",
		"executor consumer": "weekly-executor--a-c",
		"next":              "$JS.API.CONSUMER.MSG.NEXT.PWH_RECEIPTS.dispatcher",
		"direct get":        "$JS.API.DIRECT.GET.PWH_JOURNAL.pwh.journal.x.a.b",
		"get":               "$JS.API.STREAM.MSG.GET.PWH_JOURNAL",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
}

var (
	names   = rapid.StringMatching(`[a-z][a-z0-9_]{0,7}(\.[a-z][a-z0-9_]{0,7}){0,3}`)
	sha256s = rapid.StringMatching(`[0-9a-f]{64}`)
)

func TestEveryNameIsReadBackAsItWasBuilt(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		sum := sha256s.Draw(t, "sum")
		dispatch, intent, digest := "pwh_sha256_"+sum, "pwi_sha256_"+sum, "sha256_"+sum
		a, b := names.Draw(t, "a"), names.Draw(t, "b")

		read := func(parts ...any) []any { return parts }
		two := func(x, y string, ok bool) []any { return read(x, y, ok) }
		one := func(x string, ok bool) []any { return read(x, ok) }
		kind, kindOK := streams.ParseReceiptSubject(streams.ReceiptSubject(events.ReplanRecorded))
		cd, cl, ch, cok := streams.ParseConflictSubject(streams.ConflictSubject(dispatch, digest, a))
		sk, se, si, sok := streams.ParseStateSubject(streams.StateSubject("some key", a, b))

		got := [][]any{
			read(kind, kindOK),
			two(streams.ParseJournalSubject(streams.JournalSubject(dispatch, a))),
			read(cd, cl, ch, cok),
			one(streams.ParseRefusalSubject(streams.RefusalSubject(sum))),
			two(streams.ParseRetryAtSubject(streams.RetryAtSubject(dispatch, a))),
			two(streams.ParseRetryDueSubject(streams.RetryDueSubject(dispatch, a))),
			two(streams.ParseIntentSubject(streams.IntentSubject(intent, b))),
			two(streams.ParseExecutionSubject(streams.ExecutionSubject(intent, a))),
			read(len(sk), se, si, sok),
			one(streams.ParseCallSubject(streams.CallSubject(a))),
			one(streams.ParseServiceSubject(streams.ServiceSubject(a))),
			one(streams.ParseRetryConsumer(streams.RetryConsumer(a))),
			two(streams.ParseExecutorConsumer(streams.ExecutorConsumer(a, b))),
		}
		want := [][]any{
			{events.ReplanRecorded, true},
			{dispatch, a, true},
			{dispatch, digest, a, true},
			{sum, true},
			{dispatch, a, true},
			{dispatch, a, true},
			{intent, b, true},
			{intent, a, true},
			{64, a, b, true},
			{a, true},
			{a, true},
			{a, true},
			{a, b, true},
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("(-built +read):\n%s", diff)
		}
	})
}

func TestDifferentExecutorsNeverShareAState(t *testing.T) {
	if a, b := streams.StateSubject("k", "a", "b.c"), streams.StateSubject("k", "a.b", "c"); a == b {
		t.Errorf("executor a with kind b.c and executor a.b with kind c both have %s", a)
	}
}

func TestAForeignSubjectIsNotRead(t *testing.T) {
	for _, subject := range []string{
		"",
		"pwh.journal.",
		"pwh.journal." + dispatch,
		"pwh.journal." + dispatch + ".",
		"pwh.journal." + dispatch + ".A",
		"pwh.journal." + intent + ".a",
		"pwh.journal.x.a",
		"pwh.retries.at." + dispatch + ".a",
		"xpwh.journal." + dispatch + ".a",
	} {
		if d, h, ok := streams.ParseJournalSubject(subject); ok {
			t.Errorf("%q was read as dispatch %q and hook %q of the journal", subject, d, h)
		}
	}
	for _, subject := range []string{"", "pwh.receipts.", "pwh.receipts.a.b", "pwh.receiptsa"} {
		if kind, ok := streams.ParseReceiptSubject(subject); ok {
			t.Errorf("%q was read as the event kind %q", subject, kind)
		}
	}
	if kind, ok := streams.ParseReceiptSubject("pwh.receipts.Not a kind"); !ok || kind != "Not a kind" {
		t.Errorf("an unknown event kind must be read as it stands, got %q, %v", kind, ok)
	}
	for _, consumer := range []string{"", "--", "a", "a--", "--b", "a.b--c", "a--b--c", "a-b"} {
		if e, k, ok := streams.ParseExecutorConsumer(consumer); ok {
			t.Errorf("%q was read as executor %q and kind %q", consumer, e, k)
		}
	}
	if hook, ok := streams.ParseRetryConsumer("a.b"); ok {
		t.Errorf("%q was read as hook %q", "a.b", hook)
	}
}

func TestNoNameHoldsWhatTheBrokerForbids(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := names.Draw(t, "a"), names.Draw(t, "b")
		sum := sha256s.Draw(t, "sum")
		for _, consumer := range []string{streams.RetryConsumer(a), streams.ExecutorConsumer(a, b)} {
			if strings.ContainsAny(consumer, ". \t\r\n*>/\\") {
				t.Errorf("consumer %q has a character that NATS forbids", consumer)
			}
		}
		for _, subject := range []string{
			streams.JournalSubject("pwh_sha256_"+sum, a), streams.ConflictSubject("pwh_sha256_"+sum, "sha256_"+sum, a),
			streams.RefusalSubject(sum), streams.RetryAtSubject("pwh_sha256_"+sum, a),
			streams.RetryDueSubject("pwh_sha256_"+sum, a), streams.IntentSubject("pwi_sha256_"+sum, a),
			streams.ExecutionSubject("pwi_sha256_"+sum, a), streams.StateSubject("any key *.>", a, b),
			streams.CallSubject(a), streams.ServiceSubject(a),
		} {
			if strings.ContainsAny(subject, " \t\r\n*>") || strings.Contains(subject, "..") {
				t.Errorf("subject %q cannot be published on", subject)
			}
		}
	})
}
