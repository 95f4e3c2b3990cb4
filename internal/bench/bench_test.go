package main

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/afterwrite/afterwrite/events"
	"github.com/afterwrite/afterwrite/streams"
)

// A child process is this program again, which in a test is the test's.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "--job" {
		main()
		return
	}
	goleak.VerifyTestMain(m)
}

func newBench(t *testing.T) *bench {
	t.Helper()
	return &bench{options: options{Runs: 1, Dispatches: 3000, Latencies: 20}, dir: t.TempDir(), started: time.Now()}
}

// What is measured is whether the job is done: each variant must store a record and an intent for every dispatch, and
// leave no receipt behind, or the measurement fails.
func TestEveryVariantDoesTheWholeJob(t *testing.T) {
	b := newBench(t)
	seen := map[role]bool{}
	for _, r := range rows([]int{1}) {
		if seen[r.Role] && r.Replicas == 1 && !r.SyncAlways && r.Storage == streams.FileStorage || r.Hooks == 16 {
			continue
		}
		seen[r.Role] = true
		m := measured{row: r, Name: r.String()}
		if err := b.once(t.Context(), &m, 1); err != nil {
			t.Errorf("%s: %v", m.Name, err)
			continue
		}
		s := m.Samples[0]
		if s.PerSecond <= 0 || s.Worker.CPU <= 0 || s.Worker.Allocs <= 0 {
			t.Errorf("%s was not measured: %+v", m.Name, s)
		}
	}
}

func TestWorkThatIsMissingFailsTheMeasurement(t *testing.T) {
	b := newBench(t)
	d, err := b.lay(t.Context(), row{Role: roleFloor, Hooks: 1, Replicas: 1, Storage: streams.FileStorage}, "")
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := d.close(); err != nil {
			t.Error(err)
		}
	}()
	if err := d.settled(t.Context(), counts{}); err != nil {
		t.Errorf("nothing is missing of nothing: %v", err)
	}
	if err := d.publish(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := d.settled(ctx, counts{}); err == nil {
		t.Error("a receipt is left, and nobody says so")
	}
}

func TestLatencyIsMeasuredAloneAndUnderLoad(t *testing.T) {
	b := newBench(t)
	r := newReport(b.options)
	if err := b.latencies(t.Context(), r, 1); err != nil {
		t.Fatal(err)
	}
	if len(r.Latencies) != 2 {
		t.Fatalf("measured %d variants, want floor and ours", len(r.Latencies))
	}
	for _, l := range r.Latencies {
		for _, all := range [][]latency{l.Alone, l.Loaded} {
			if len(all) != 1 || all[0].Intents != 20 || all[0].P50 <= 0 || all[0].P999 < all[0].P50 {
				t.Errorf("%s: %+v", l.Name, all)
			}
		}
	}
}

func TestAJournalIsFilledAndWorksOn(t *testing.T) {
	b := newBench(t)
	m := measured{row: row{Group: groupSize, Role: roleOurs, Hooks: 1, Replicas: 1, Storage: streams.FileStorage, Journaled: 20_000, times: 1, share: 1}}
	if err := b.sized(t.Context(), &m); err != nil {
		t.Fatal(err)
	}
	// A subject costs the broker more than its own bytes and less than a page.
	if m.BrokerHeap < 100 || m.BrokerHeap > 4096 {
		t.Errorf("a dispatch costs the broker %.0f bytes of heap", m.BrokerHeap)
	}
}

func TestAChildThatCannotWorkIsAnError(t *testing.T) {
	if _, err := start(t.Context(), job{Role: roleFloor, URL: "nats://127.0.0.1:1"}); err == nil {
		t.Error("a worker without a broker was started")
	}
	var out strings.Builder
	if err := serve(t.Context(), job{Role: "nobody"}, strings.NewReader(""), &out); err == nil {
		t.Error("an unknown role was played")
	}
}

func TestReceiptsAreOnesThatAreAdmitted(t *testing.T) {
	for i := range 3 {
		m := document(i)
		if _, err := streams.CheckReceipt(m.Data); err != nil {
			t.Fatal(err)
		}
		if _, _, err := events.ReadEvent(m.Header, m.Data); err != nil {
			t.Error(err)
		}
		for _, data := range [][]byte{m.Data, opaque(i).Data} {
			if got, ok := marked(data); got != i || !ok {
				t.Errorf("the mark of receipt %d is read as %d, %t", i, got, ok)
			}
		}
	}
	if n := len(opaque(1).Data); n != 900 {
		t.Errorf("an opaque message has %d bytes, want 900", n)
	}
	if _, ok := marked([]byte("bench_12")); ok {
		t.Error("a mark that is cut off was read")
	}
}

func TestEveryHookIsInstalledAndRegistered(t *testing.T) {
	in, err := installed(16)
	if err != nil {
		t.Fatal(err)
	}
	if len(in.Rejections) > 0 || len(in.Profiles[profile].Hooks) != 16 {
		t.Fatalf("%d hooks run, rejected are %v", len(in.Profiles[profile].Hooks), in.Rejections)
	}
	for i, id := range hookIDs(16) {
		r, err := registration(i)
		if err != nil {
			t.Fatal(err)
		}
		if r.Budget.TimeoutMillis != 30_000 {
			t.Errorf("hook %s has %d ms", id, r.Budget.TimeoutMillis)
		}
		if r.HookID != id || r.Digest() != in.Hooks[id].Digest {
			t.Errorf("hook %s is served as %s", id, r.HookID)
		}
	}
}

func TestPercentilesAreNearestRank(t *testing.T) {
	var all []time.Duration
	for i := range 1000 {
		all = append(all, time.Duration(i+1))
	}
	for _, test := range []struct {
		n, thousandths int
		want           time.Duration
	}{
		{1000, 500, 500}, {1000, 990, 990}, {1000, 999, 999}, {10, 500, 5}, {10, 990, 10}, {1, 500, 1}, {3, 500, 2},
	} {
		if got := percentile(all[:test.n], test.thousandths); got != test.want {
			t.Errorf("of %d, %d/1000: %d, want %d", test.n, test.thousandths, got, test.want)
		}
	}
}

func TestMedianIsTheMiddle(t *testing.T) {
	for _, test := range []struct {
		values []float64
		want   float64
	}{
		{nil, 0}, {[]float64{7}, 7}, {[]float64{9, 1, 5}, 5}, {[]float64{4, 1, 3, 2}, 2.5},
	} {
		if got := median(test.values, func(v float64) float64 { return v }); got != test.want {
			t.Errorf("median of %v is %g, want %g", test.values, got, test.want)
		}
	}
}

func TestThousandsAreGrouped(t *testing.T) {
	for n, want := range map[int]string{0: "0", 999: "999", 1000: "1 000", 3000000: "3 000 000", 45210: "45 210"} {
		if got := thousands(n); got != want {
			t.Errorf("%d is written %q, want %q", n, got, want)
		}
	}
}

func TestTheDispatchersBenchmarkIsRead(t *testing.T) {
	got, err := parseWork([]byte("goos: linux\nBenchmarkDispatch-2   \t   10000\t     19750.5 ns/op\t   16402 B/op\t      58 allocs/op\n" +
		"BenchmarkStrictDecode-2 \t 500000\t 2500 ns/op\t 400.1 MB/s\t 1536 B/op\t 5 allocs/op\nPASS\n"))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(work{Nanoseconds: 19750.5, Decode: 2500, Bytes: 16402, Allocs: 58}, got); diff != "" {
		t.Error(diff)
	}
	if _, err := parseWork([]byte("PASS\n")); err == nil {
		t.Error("a figure was read where there is none")
	}
}

func TestOnlyKnownGroupsAreMeasured(t *testing.T) {
	for _, o := range []options{
		{Runs: 0, Dispatches: 100, Latencies: 1},
		{Runs: 1, Dispatches: 99, Latencies: 1},
		{Runs: 1, Dispatches: 100, Latencies: 1, Only: []string{"all"}},
		{Runs: 1, Dispatches: 100, Latencies: 1, Journaled: []int{0}},
	} {
		if err := o.validate(); err == nil {
			t.Errorf("%+v was taken", o)
		}
	}
	o := options{Runs: 1, Dispatches: 100, Latencies: 1, Only: []string{"peers"}}
	if err := errors.Join(o.validate()); err != nil || !o.wants(groupPeers) || o.wants(groupSize) {
		t.Errorf("%v; peers wanted %t, size wanted %t", err, o.wants(groupPeers), o.wants(groupSize))
	}
}

// The samples of the report below, in dispatches a second, and what follows from them by hand.
func TestRatiosAndTargetsFollowFromMedians(t *testing.T) {
	at := func(g group, role role, hooks, replicas int, rates ...float64) measured {
		m := measured{row: row{Group: g, Role: role, Hooks: hooks, Replicas: replicas, Storage: streams.FileStorage}}
		m.Name = m.row.String()
		for _, rate := range rates {
			m.Samples = append(m.Samples, sample{PerSecond: rate, Worker: cost{PeakResident: 90e6}})
		}
		return m
	}
	r := &report{Runs: 3, Rows: []measured{
		at(groupThroughput, roleLimit, 1, 1, 50, 40, 45),
		at(groupThroughput, roleFloor, 1, 1, 30, 10, 20),
		at(groupThroughput, roleOurs, 1, 1, 18, 17, 30),
		at(groupThroughput, roleOurs, 1, 2, 90, 90, 90),
		at(groupThroughput, roleOurs, 16, 1, 27, 27, 27),
		at(groupPeers, roleRiver, 1, 1, 2, 2, 2),
	}, Latencies: []waited{
		{Name: "floor", Alone: []latency{{P50: 100, P99: 200}}},
		{Name: "ours", Alone: []latency{{P50: 120, P99: 400}}},
	}, Work: []work{{Nanoseconds: 19000, Decode: 2000, Allocs: 61}}}
	r.conclude()

	type ratios struct{ floor, limit float64 }
	want := []ratios{{2.25, 1}, {1, 20. / 45}, {0.9, 0.4}, {4.5, 2}, {0, 0}, {0.1, 2. / 45}}
	for i, m := range r.Rows {
		if got := (ratios{m.OfFloor, m.OfLimit}); got != want[i] {
			t.Errorf("%s: %+v, want %+v", m.Name, got, want[i])
		}
	}
	targets := []target{
		{"throughput with 1 hook, of floor", "≥ 0.9", 0.9, true},
		{"throughput with 1 hook, of limit", "≥ 0.58", 0.4, false},
		{"throughput per dispatch with 16 hooks, of that with 1", "≥ 0.9", 1.5, true},
		{"throughput, of River on SQLite", "≥ 15", 9, false},
		{"dispatcher memory, MB", "≤ 100", 90, true},
		{"latency with one in flight, p50, of floor", "≤ 1.3", 1.2, true},
		{"latency with one in flight, p99, of floor", "≤ 1.5", 2, false},
		{"own work per dispatch, µs", "≤ 20", 19, true},
		{"own work per dispatch, in strict decodes of 1 kB by the JSON library", "≤ 8.7", 9.5, false},
		{"own work per dispatch, allocations", "≤ 60", 61, false},
	}
	if diff := cmp.Diff(targets, r.Targets); diff != "" {
		t.Errorf("targets (-want +have):\n%s", diff)
	}
	if rate := r.rate(3); rate != 100 {
		t.Errorf("half of 30, in hundreds and at least one, is %g", rate)
	}
}

func TestTheTableSaysWhatWasMeasured(t *testing.T) {
	r := &report{
		Machine:  machine{At: time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC), CPU: "CPU", Cores: 2, System: "linux/amd64", Go: "go1.26"},
		Versions: map[string]string{"github.com/nats-io/nats.go": "v1.55.0"},
		Runs:     1,
		Rows: []measured{{
			Name: "ours, 1 hook", OfFloor: 0.95,
			Samples: []sample{{PerSecond: 21500, Worker: cost{CPU: 40.4, Allocs: 99.6, PeakResident: 61e6}, Broker: cost{CPU: 30}}},
		}},
		Latencies: []waited{{Name: "ours", Alone: []latency{{P50: 250_000, P99: 400_000, P999: 900_000}}, Loaded: []latency{{Rate: 10000, P50: 1e6, P99: 2e6, P999: 3e6}}}},
		Work:      []work{{Nanoseconds: 19750, Decode: 2345, Bytes: 16000, Allocs: 58}},
		Targets:   []target{{"own work per dispatch, µs", "≤ 20", 19.75, true}, {"own work per dispatch, allocations", "≤ 60", 61, false}},
	}
	const want = `CPU, 2 cores, linux/amd64, go1.26, 2026-06-01. Medians of 1.

github.com/nats-io/nats.go v1.55.0.

| variant | dispatches/s | lowest – highest | of floor | of limit | CPU µs: itself | provider | broker | allocations | peak MB | broker B/dispatch |
|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|
| ours, 1 hook | 21 500 | 21 500 – 21 500 | 0.95 |  | 40 |  | 30 | 100 | 61 |  |

| latency | load | p50 | p99 | p99.9 |
|---|---|---:|---:|---:|
| ours | one in flight | 250 µs | 400 µs | 900 µs |
| ours | half saturated, 10 000/s | 1000 µs | 2000 µs | 3000 µs |

The dispatcher's own work per dispatch: 19.8 µs, 58 allocations, 16000 bytes. The JSON library decodes 1 kB strictly in 2.3 µs.

| target | wanted | measured | met |
|---|---:|---:|---|
| own work per dispatch, µs | ≤ 20 | 19.75 | yes |
| own work per dispatch, allocations | ≤ 60 | 61.00 | **no** |
`
	var got strings.Builder
	r.markdown(&got)
	if diff := cmp.Diff(want, got.String()); diff != "" {
		t.Errorf("the table (-want +have):\n%s", diff)
	}
}
