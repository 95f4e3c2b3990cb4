package main

import (
	"bytes"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/afterwrite/afterwrite/dispatcher"
	"github.com/afterwrite/afterwrite/internal/natsembed"
	"github.com/afterwrite/afterwrite/internal/stack"
)

// status gives what the command tells.
func status(t *testing.T, args ...string) overview {
	t.Helper()
	var out, said bytes.Buffer
	if code := run(t.Context(), append([]string{"status", "--json"}, args...), stdio{nil, &out, &said}); code != exitOK {
		t.Fatalf("exit code %d: %s", code, &said)
	}
	var o overview
	if err := json.Unmarshal(out.Bytes(), &o); err != nil {
		t.Fatalf("%s: %v", &out, err)
	}
	return o
}

func TestStatusAsksDispatchersForTheirReadinessAndBreakers(t *testing.T) {
	s, err := stack.Start(t.Context(), stack.Options{
		Broker:     natsembed.Options{StoreDir: t.TempDir(), MaxStoreBytes: 1 << 40},
		NoProvider: true,
		Dispatcher: dispatcher.Options{Listen: "127.0.0.1:0", Lanes: 1, TripAfter: 1, OpenFor: time.Hour},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	address := "http://" + s.Dispatcher.Addr().String()
	const absent = "http://127.0.0.1:1"
	args := []string{"--nats-url", s.URL(), "--dispatcher", address, "--dispatcher", absent}

	o := status(t, args...)
	if len(o.Hooks) != 1 || o.Hooks[0].Providers != 0 || o.Hooks[0].Breakers["closed"] != 1 {
		t.Errorf("hooks %+v: want one without a provider, its breaker closed in the one lane", o.Hooks)
	}
	if len(o.Dispatchers) != 3 {
		t.Fatalf("dispatchers %+v: want the one that answers, the one that was named, and the one that is not there", o.Dispatchers)
	}
	answers, named, away := o.Dispatchers[0], o.Dispatchers[1], o.Dispatchers[2]
	if answers.ID == "" || answers.Version == "" || answers.Ready != nil {
		t.Errorf("%+v: want an id and a version, and nothing of its readiness", answers)
	}
	if string(named.Address) != address || named.Ready == nil || !*named.Ready || len(named.Reasons) != 0 {
		t.Errorf("%+v: want it to be ready", named)
	}
	if string(away.Address) != absent || away.Ready != nil || len(away.Reasons) != 1 {
		t.Errorf("%+v: want one reason why it could not be asked", away)
	}

	publish := func(file string) {
		t.Helper()
		var said bytes.Buffer
		if run(t.Context(), []string{"receipt", "publish", "--nats-url", s.URL(), file}, stdio{nil, new(bytes.Buffer), &said}) == exitFailed {
			t.Fatal(&said)
		}
	}
	eventually := func(want string, so func(hookStatus) bool) {
		t.Helper()
		deadline := time.NewTimer(patience)
		defer deadline.Stop()
		for {
			h := status(t, args...).Hooks[0]
			if so(h) {
				return
			}
			select {
			case <-deadline.C:
				t.Fatalf("%+v: want %s", h, want)
			default:
			}
		}
	}
	publish("testdata/longhorizon.jsonl")
	eventually("its breaker open, for nobody was there", func(h hookStatus) bool {
		return h.Breakers["open"] == 1 && h.Breakers["closed"] == 0 && h.Records["retrying"] > 0
	})
	publish("demo.jsonl")
	eventually("what came later put off as suspended", func(h hookStatus) bool {
		return h.Suspended > 0 && h.Suspended < h.Records["retrying"]
	})
}
