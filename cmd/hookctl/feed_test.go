package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/zap"

	"github.com/afterwrite/afterwrite/internal/flags"
	"github.com/afterwrite/afterwrite/internal/natsembed"
	"github.com/afterwrite/afterwrite/internal/stack"
	"github.com/afterwrite/afterwrite/streams"
)

// decodeLines reads what was printed without our own codec.
func decodeLines(t *testing.T, text []byte) []any {
	t.Helper()
	var lines []any
	for dec := json.NewDecoder(bytes.NewReader(text)); ; {
		var v any
		err := dec.Decode(&v)
		if errors.Is(err, io.EOF) {
			return lines
		}
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, v)
	}
}

func readFile(t *testing.T, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestDemoOfTheLongHorizonEqualsTheGoldenFile(t *testing.T) {
	var out, said bytes.Buffer
	code := run(t.Context(), []string{"demo", "--receipts", "testdata/longhorizon.jsonl", "--json"}, stdio{nil, &out, &said})
	if code != exitOK || said.Len() > 0 {
		t.Fatalf("exit code %d, said %q", code, &said)
	}
	if diff := cmp.Diff(decodeLines(t, readFile(t, "testdata/demo-longhorizon.jsonl")), decodeLines(t, out.Bytes())); diff != "" {
		t.Errorf("printed (-golden +got):\n%s", diff)
	}
}

// refusedValues are what the refused receipts hold that nobody may be shown.
var refusedValues = []string{
	"ghp_0123456789abcdefghijklmnopqrstuvwxyz", "/srv/private/notes.md", "https://tracker.example.test/T-1",
	"please ask the owner about the rollout",
}

func TestRefusedReceiptsEndAsExpectedAndNothingOfThemIsToldOrKept(t *testing.T) {
	raw := readFile(t, "testdata/refused.jsonl")
	for _, value := range refusedValues {
		if !bytes.Contains(raw, []byte(value)) {
			t.Fatalf("the receipts do not hold %q", value)
		}
	}
	lines, err := parseReceipts("refused.jsonl", raw)
	if err != nil {
		t.Fatal(err)
	}
	var told bytes.Buffer
	s, err := stack.Start(t.Context(), stack.Options{
		Broker:   natsembed.Options{StoreDir: t.TempDir(), MaxStoreBytes: 1 << 40},
		Profiles: demoProfiles,
		Logger:   flags.Log{LogLevel: zap.DebugLevel, LogFormat: flags.LogJSON}.Logger(&told),
	})
	if err != nil {
		t.Fatal(err)
	}
	report, err := feed(t.Context(), s, lines)
	if err != nil {
		t.Fatal(err)
	}
	for i := range report.rows {
		if unmet := report.unmet(i); unmet != "" {
			t.Errorf("%s: %s, got %+v", lines[i].Name, unmet, report.rows[i])
		}
	}
	kept := keptBesideReceipts(t, s.JS)
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	for _, f := range []format{{false}, {true}} {
		if err := report.print(&told, f); err != nil {
			t.Fatal(err)
		}
	}
	for _, value := range refusedValues {
		if bytes.Contains(told.Bytes(), []byte(value)) {
			t.Errorf("the log or the output tells %q", value)
		}
		for _, message := range kept {
			if strings.Contains(message, value) {
				t.Errorf("a stream keeps %q: %s", value, message)
			}
		}
	}
	// Refusals of 12 receipts, and records of 5 dispatches.
	if len(kept) != 17 {
		t.Errorf("%d messages are kept, want 17: %q", len(kept), kept)
	}
}

// keptBesideReceipts is every message of every stream but the receipts, whole.
func keptBesideReceipts(t *testing.T, js jetstream.JetStream) []string {
	t.Helper()
	var kept []string
	names := js.StreamNames(t.Context())
	for name := range names.Name() {
		if name == "PWH_RECEIPTS" {
			continue
		}
		stream, err := js.Stream(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		for sequence := uint64(1); ; {
			m, err := stream.GetMsg(t.Context(), sequence, jetstream.WithGetMsgSubject(">"))
			if errors.Is(err, jetstream.ErrMsgNotFound) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			text := m.Subject + " " + string(m.Data)
			for name, values := range m.Header {
				text += " " + name + ": " + strings.Join(values, ", ")
			}
			kept = append(kept, text)
			sequence = m.Sequence + 1
		}
	}
	if err := names.Err(); err != nil {
		t.Fatal(err)
	}
	return kept
}

// dev runs the command until the test ends, and gives a connection to its broker.
func dev(t *testing.T, args ...string) (*nats.Conn, jetstream.JetStream) {
	t.Helper()
	address := filepath.Join(t.TempDir(), "address")
	ctx, stop := context.WithCancel(t.Context())
	code := make(chan int, 1)
	var said bytes.Buffer
	go func() {
		args := append([]string{"dev", "--port=0", "--log-level=error", "--address-file", address}, args...)
		code <- run(ctx, args, stdio{nil, io.Discard, &said})
	}()
	t.Cleanup(func() {
		stop()
		if got := <-code; got != exitOK {
			t.Errorf("dev: exit code %d, said %s", got, &said)
		}
	})
	var url []byte
	eventuallyTrue(t, "dev takes work", func() bool {
		var err error
		url, err = os.ReadFile(address)
		return err == nil
	})
	nc, err := nats.Connect(strings.TrimSpace(string(url)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	return nc, js
}

func eventuallyTrue(t *testing.T, what string, so func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := until(ctx, func() (bool, error) { return so(), nil }); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// invocations is how often providers were called, as they tell it themselves.
func invocations(t *testing.T, nc *nats.Conn) int {
	t.Helper()
	reply, err := nc.Request("$SRV.STATS.periodic_report", nil, patience)
	if err != nil {
		t.Fatal(err)
	}
	var stats struct {
		Endpoints []struct {
			Subject     string `json:"subject"`
			NumRequests int    `json:"num_requests"`
		} `json:"endpoints"`
	}
	if err := json.Unmarshal(reply.Data, &stats); err != nil {
		t.Fatal(err)
	}
	for _, endpoint := range stats.Endpoints {
		if endpoint.Subject == "pwh.call.periodic_report.runtime_trigger" {
			return endpoint.NumRequests
		}
	}
	t.Fatalf("the hook is not among %s", reply.Data)
	return 0
}

// messages is how many messages a stream holds on subjects that match.
func messages(t *testing.T, js jetstream.JetStream, stream, filter string) int {
	t.Helper()
	s, err := js.Stream(t.Context(), stream)
	if err != nil {
		t.Fatal(err)
	}
	info, err := s.Info(t.Context(), jetstream.WithSubjectFilter(filter))
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, count := range info.State.Subjects {
		n += int(count)
	}
	return n
}

func TestReceiptsFedAgainAfterTheDuplicateWindowComeToTheSame(t *testing.T) {
	nc, js := dev(t, "--duplicate-window=100ms")
	publisher := streams.NewPublisher(js, streams.PublisherOptions{})
	lines, err := readReceipts("testdata/longhorizon.jsonl", nil)
	if err != nil {
		t.Fatal(err)
	}
	var sequence uint64
	feedAll := func(anew bool) {
		for _, l := range lines[:9] { // the last two repeat others
			eventuallyTrue(t, "the broker takes the receipt", func() bool {
				p, err := publish(t.Context(), publisher, l)
				if err != nil {
					t.Fatal(err)
				}
				sequence = max(sequence, p.Sequence)
				return p.Outcome == sent || !anew
			})
		}
		if err := settled(t.Context(), js, sequence); err != nil {
			t.Fatal(err)
		}
	}
	feedAll(false)
	records := shownLines(t, nc.ConnectedUrl(), "dispatch", "list")
	called := invocations(t, nc)
	feedAll(true)
	if got := messages(t, js, "PWH_RECEIPTS", "pwh.receipts.>"); got != 18 {
		t.Fatalf("%d receipts are stored, want each of 9 twice", got)
	}
	if diff := cmp.Diff(records, shownLines(t, nc.ConnectedUrl(), "dispatch", "list")); diff != "" {
		t.Errorf("dispatch receipts (-once +twice):\n%s", diff)
	}
	if got := messages(t, js, "PWH_INTENTS", "pwh.intents.>"); got != 6 {
		t.Errorf("%d intents, want 6", got)
	}
	if got := invocations(t, nc); called != 9 || got != 9 {
		t.Errorf("%d invocations the first time, %d after the second; want 9 and no more", called, got)
	}
}

// shownLines is what a listing prints as JSON, sorted.
func shownLines(t *testing.T, url string, args ...string) []string {
	t.Helper()
	var out, said bytes.Buffer
	args = append(args, "--json", "--limit=0", "--nats-url", url)
	if code := run(t.Context(), args, stdio{nil, &out, &said}); code != exitOK {
		t.Fatalf("exit code %d, said %s", code, &said)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	slices.Sort(lines)
	return lines
}

func TestAReceiptOfAnyNATSClientBecomesAnIntent(t *testing.T) {
	nc, js := dev(t)
	raw := bytes.Split(readFile(t, "testdata/longhorizon.jsonl"), []byte("\n"))[1]
	m := nats.NewMsg("pwh.receipts.replan_recorded")
	m.Data = raw
	for name, value := range map[string]string{
		"ce-specversion": "1.0", "ce-id": "receipt-1", "ce-source": "my-orchestrator",
		"ce-type": "io.afterwrite.receipt.v0", "ce-datacontenttype": "application/json",
	} {
		m.Header[name] = []string{value}
	}
	if err := nc.PublishMsg(m); err != nil {
		t.Fatal(err)
	}
	// The id is that of the golden file.
	const intent = "pwh.intents.pwi_sha256_1cf824b2515363ec610728fae40e4dc963dcc5ec272c49de91198118fded2336.>"
	eventuallyTrue(t, "the intent is published", func() bool { return messages(t, js, "PWH_INTENTS", intent) == 1 })
}

func TestARedriveThatNobodyAnswersSaysSo(t *testing.T) {
	nc, err := nats.Connect(natsembed.StartTest(t).ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	asked := redriven{DispatchID: "pwh_sha256_" + strings.Repeat("0", 64), HookID: "a.b"}
	if err := asked.ask(ctx, nc, "ann"); err == nil || err.Error() != "no dispatcher is running" {
		t.Errorf("got %v", err)
	}
}

func TestAMomentIsATimeOrHowLongAgoItWas(t *testing.T) {
	var m moment
	if err := m.UnmarshalText([]byte("2026-10-01T10:00:00+02:00")); err != nil || !m.Equal(time.Date(2026, 10, 1, 8, 0, 0, 0, time.UTC)) {
		t.Errorf("%v, %v", m, err)
	}
	before := time.Now().Add(-24 * time.Hour)
	if err := m.UnmarshalText([]byte("24h")); err != nil || m.Before(before) || m.After(time.Now().Add(-24*time.Hour)) {
		t.Errorf("%v, %v", m, err)
	}
	for _, text := range []string{"", "-1h", "tomorrow", "2026-10-01"} {
		if err := m.UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q is %v", text, m)
		}
	}
}

func TestTheNewestAreListedAndTheOthersCounted(t *testing.T) {
	all := func(yield func(int, error) bool) {
		for i := range 25 {
			if !yield(i, nil) {
				return
			}
		}
	}
	even := func(i int) bool { return i%2 == 0 }
	for _, tt := range []struct {
		limit, older int
		want         []int
	}{
		{3, 10, []int{20, 22, 24}},
		{13, 0, []int{0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24}},
		{0, 0, []int{0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24}},
	} {
		l, err := gather(all, window{Limit: tt.limit}, even)
		if err != nil || l.older != tt.older || !slices.Equal(l.found, tt.want) {
			t.Errorf("limit %d: %v and %d older, %v", tt.limit, l.found, l.older, err)
		}
	}
}

func TestAColumnIsAsWideAsItsWidestCellInLetters(t *testing.T) {
	var out bytes.Buffer
	if err := printTable(&out, []string{"A", "B", "C"}, [][]string{{"größe", "", "x"}, {"y", "zz"}}); err != nil {
		t.Fatal(err)
	}
	want := "A      B   C\n" +
		"größe      x\n" +
		"y      zz\n"
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
