package main

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/afterwrite/afterwrite/internal/natsembed"
	"github.com/afterwrite/afterwrite/streams"
)

// benchBroker is a broker that holds a topology with a receipt in it, as a user's does.
func benchBroker(t *testing.T) (url string, js jetstream.JetStream) {
	t.Helper()
	url = natsembed.StartTest(t).ClientURL()
	nc, err := nats.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	if js, err = jetstream.New(nc); err != nil {
		t.Fatal(err)
	}
	if _, err := streams.Apply(t.Context(), js, streams.Default(streams.Settings{})); err != nil {
		t.Fatal(err)
	}
	if _, err := js.Publish(t.Context(), "pwh.receipts.todo_completed", []byte("of another")); err != nil {
		t.Fatal(err)
	}
	return url, js
}

// held is every stream of the broker with its state.
func held(t *testing.T, js jetstream.JetStream) map[string]jetstream.StreamState {
	t.Helper()
	held := map[string]jetstream.StreamState{}
	list := js.ListStreams(t.Context())
	for info := range list.Info() {
		held[info.Config.Name] = info.State
	}
	if err := list.Err(); err != nil {
		t.Fatal(err)
	}
	return held
}

func TestBenchMeasuresAndLeavesEverythingAsItWas(t *testing.T) {
	url, js := benchBroker(t)
	before := held(t, js)
	for _, format := range [][]string{nil, {"--json"}} {
		var out, errs bytes.Buffer
		args := append([]string{"bench", "--nats-url", url, "--duration", "2s"}, format...)
		if code := run(t.Context(), args, stdio{out: &out, err: &errs}); code != exitOK {
			t.Fatalf("%v: exit code %d: %s", args, code, &errs)
		}
		if format == nil {
			for _, fact := range []string{"floor", "ours", "ratio", "dispatches/s", "file storage, 1 replica"} {
				if !strings.Contains(out.String(), fact) {
					t.Errorf("%q is not in:\n%s", fact, &out)
				}
			}
			continue
		}
		var r benchReport
		if err := json.Unmarshal(out.Bytes(), &r); err != nil {
			t.Fatal(err)
		}
		if r.Floor <= 0 || r.Ours <= 0 || r.Ratio != r.Ours/r.Floor {
			t.Errorf("reported %+v", r)
		}
	}
	if diff := cmp.Diff(before, held(t, js)); diff != "" {
		t.Errorf("the broker holds (-before +after):\n%s", diff)
	}
}

func TestBenchThatIsInterruptedCleansUp(t *testing.T) {
	url, js := benchBroker(t)
	before := held(t, js)
	ctx, interrupt := context.WithCancel(t.Context())
	watch, err := js.Conn().SubscribeSync("$JS.EVENT.ADVISORY.STREAM.CREATED.*")
	if err != nil {
		t.Fatal(err)
	}
	if err := js.Conn().Flush(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_, _ = watch.NextMsg(time.Minute)
		interrupt()
	}()
	var out, errs bytes.Buffer
	code := run(ctx, []string{"bench", "--nats-url", url}, stdio{out: &out, err: &errs})
	if code != exitFailed || errs.String() != "hookctl: interrupted\n" {
		t.Errorf("exit code %d: %s", code, &errs)
	}
	if diff := cmp.Diff(before, held(t, js)); diff != "" {
		t.Errorf("the broker holds (-before +after):\n%s", diff)
	}
}

func TestBenchDeletesOnlyWhatAnAbandonedOneLeft(t *testing.T) {
	_, js := benchBroker(t)
	set := newBenchSet(js)
	if err := set.create(t.Context(), streams.Settings{}.WithDefaults()); err != nil {
		t.Fatal(err)
	}
	// The age of a stream cannot be set, so the bench is asked as of another time.
	for _, test := range []struct {
		now  time.Time
		want int
	}{{time.Now(), 9}, {time.Now().Add(2 * time.Hour), 6}} {
		if err := deleteLeftovers(t.Context(), js, test.now); err != nil {
			t.Fatal(err)
		}
		if n := len(held(t, js)); n != test.want {
			t.Errorf("at %s there are %d streams, want %d", test.now, n, test.want)
		}
	}
}

func TestBenchRefusesWhatItCannotDo(t *testing.T) {
	for args, want := range map[string]string{
		"--duration 10ms":               "--duration must be at least 1s",
		"--replicas 2":                  "--replicas must be 1, 3 or 5",
		"--nats-url nats://127.0.0.1:1": "connect to the broker at nats://127.0.0.1:1",
	} {
		var out, errs bytes.Buffer
		code := run(t.Context(), append([]string{"bench"}, strings.Fields(args)...), stdio{out: &out, err: &errs})
		if code != exitFailed || !strings.Contains(errs.String(), want) {
			t.Errorf("%s: exit code %d: %s", args, code, &errs)
		}
	}
}

func TestPaceIsOfTheMiddle(t *testing.T) {
	at := func(done ...int64) (seen []progress) {
		for i, n := range done {
			seen = append(seen, progress{time.Unix(int64(i), 0), n})
		}
		return seen
	}
	for _, test := range []struct {
		seen []progress
		want float64
	}{
		{at(0, 0, 0, 10, 40, 70, 90, 91, 100), 80. / 3}, // 10 to 90 in three seconds
		{at(0, 100), 100},
		{at(7, 7), 0},
	} {
		if got, err := pace(test.seen); got != test.want || (err == nil) != (test.want > 0) {
			t.Errorf("of %v it is %g, %v, want %g", test.seen, got, err, test.want)
		}
	}
}

func TestPaceIsNotAwaitedOnceInterrupted(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	interrupt()
	if _, err := paceOf(ctx, new(atomic.Int64), 200, time.Minute); !errors.Is(err, context.Canceled) {
		t.Errorf("the error is %v", err)
	}
}
