package executors

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

func TestAProcessSaysWhyItIsNotReady(t *testing.T) {
	b := startBroker(t)
	nc, err := nats.Connect(b.url, nats.NoReconnect())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	opts := b.options(testGrant("test.kind"))
	opts.URL, opts.Conn = "", nc
	says := func(p *Process, want ...string) {
		t.Helper()
		if diff := cmp.Diff(want, p.Reasons()); diff != "" {
			t.Errorf("reasons (-want +got):\n%s", diff)
		}
	}
	idle, err := New(opts)
	if err != nil {
		t.Fatal(err)
	}
	says(idle, "not_started: starting")

	r := b.start(opts)
	says(r.Process)
	nc.Close()
	r.halt(t)
	says(r.Process, "broker_disconnected: the connection to the broker is closed", "not_started: stopping")
}

func TestOnlyWhatIsNearItsEndIsAgingOrFilling(t *testing.T) {
	const week = 7 * 24 * time.Hour
	for oldest, want := range map[time.Duration]string{
		0:                       "",
		week/2 - time.Second:    "",
		week / 2:                "the oldest intent has waited 84h0m0s of the 168h0m0s it is kept",
		week/2 + time.Hour + 10: "the oldest intent has waited 85h0m0s of the 168h0m0s it is kept",
	} {
		if got := aging(oldest, week); got != want {
			t.Errorf("after %v: %q, want %q", oldest, got, want)
		}
	}
	if got := aging(week, 0); got != "" {
		t.Errorf("intents that are kept for ever: %q", got)
	}
	for bytes, want := range map[uint64]string{800: "", 801: "S holds 801 of 1000 bytes"} {
		info := &jetstream.StreamInfo{Config: jetstream.StreamConfig{Name: "S", MaxBytes: 1000}, State: jetstream.StreamState{Bytes: bytes}}
		if got := filling(info); got != want {
			t.Errorf("%d bytes: %q, want %q", bytes, got, want)
		}
	}
}

func TestTheOutcomeOfAnEffectIsItsCause(t *testing.T) {
	for want, err := range map[string]error{
		"returned": nil, "failed": Retry(errLost), "never": Never(errLost), "not_started": NotStarted(errLost),
		"later": LaterAt(time.Time{}, errLost),
	} {
		if got := outcomeOf(err); got != want {
			t.Errorf("%v is %s, want %s", err, got, want)
		}
	}
}
