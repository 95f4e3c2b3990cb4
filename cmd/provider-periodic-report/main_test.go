package main

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"go.uber.org/goleak"

	"github.com/afterwrite/afterwrite/internal/natsembed"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestFlagsComeFromTheEnvironmentToo(t *testing.T) {
	t.Setenv("AFTERWRITE_NATS_URL", "nats://broker:4222")
	t.Setenv("AFTERWRITE_DRAIN_TIMEOUT", "5s")
	t.Setenv("AFTERWRITE_VERSION", "none of the provider's business")
	f, err := parse([]string{"--drain-timeout", "7s"})
	if err != nil {
		t.Fatal(err)
	}
	if f.NATSURL != "nats://broker:4222" || f.DrainTimeout != 7*time.Second || f.Queue != 4096 {
		t.Errorf("got %+v", f)
	}
}

func TestABrokenFlagIsNamed(t *testing.T) {
	for flag, args := range map[string][]string{
		"--log-level":     {"--log-level=loud"},
		"--drain-timeout": {"--drain-timeout=soon"},
		"--nats-creds":    {"--nats-creds=absent.creds"},
		"--unknown":       {"--unknown"},
	} {
		if _, err := parse(args); err == nil || !strings.Contains(err.Error(), flag) {
			t.Errorf("%s: got %v", flag, err)
		}
	}
}

func TestAnImpossibleSettingIsNamed(t *testing.T) {
	f, err := parse([]string{"--concurrency=0", "--queue=0", "--nats-url", natsembed.StartTest(t).ClientURL()})
	if err != nil {
		t.Fatal(err)
	}
	err = run(t.Context(), f)
	if want := "providers: the concurrency must be at least 1\nthe queue must be at least 1"; err == nil || err.Error() != want {
		t.Errorf("got %v", err)
	}
}

func TestRunServesUntilItIsToldToStop(t *testing.T) {
	url := natsembed.StartTest(t).ClientURL()
	f, err := parse([]string{"--nats-url", url, "--log-level=error"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, f) }()

	nc, err := nats.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	for deadline := time.Now().Add(10 * time.Second); ; {
		if _, err = nc.Request("$SRV.INFO.periodic_report", nil, time.Second); err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("not discovered: %v", err)
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestRunStopsWhereThereIsNoBroker(t *testing.T) {
	f, err := parse([]string{"--nats-url", "nats://127.0.0.1:1", "--log-level=error"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if err := run(ctx, f); err != nil {
		t.Error(err)
	}
}
