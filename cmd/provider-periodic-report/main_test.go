package main

import (
	"bytes"
	"context"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"go.uber.org/goleak"

	"github.com/afterwrite/afterwrite/internal/natsembed"
	"github.com/afterwrite/afterwrite/internal/observability/process"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestSettingsItWillNotStartWithAreListed(t *testing.T) {
	var stderr bytes.Buffer
	code := command(new(settings)).Run(t.Context(), []string{
		"--concurrency=0", "--queue=0", "--drain-timeout=0s", "--log-burst=-1", "--otlp-endpoint=collector:4318", "--nats-cert=cert.pem",
	}, io.Discard, &stderr)
	const want = `provider-periodic-report: will not start with these settings
  --log-burst must not be negative
  --otlp-endpoint must be an http or https URL, as in http://collector:4318
  --nats-cert and --nats-key go together
  --concurrency must be at least 1
  --queue must be at least 1
  --drain-timeout must be positive
`
	if code != process.ExitRefused || stderr.String() != want {
		t.Errorf("exit code %d, said\n%s", code, &stderr)
	}
}

func TestABrokenFlagIsOneSentenceThatNamesIt(t *testing.T) {
	for flag, args := range map[string][]string{
		"--log-level":              {"--log-level=loud"},
		"--unknown":                {"--unknown"},
		"AFTERWRITE_DRAIN_TIMEOUT": nil,
	} {
		t.Run(flag, func(t *testing.T) {
			if strings.HasPrefix(flag, "AFTERWRITE_") {
				t.Setenv(flag, "ever")
			}
			var stderr bytes.Buffer
			code := command(new(settings)).Run(t.Context(), args, io.Discard, &stderr)
			said := stderr.String()
			if code != process.ExitRefused || strings.Count(said, "\n") != 1 || !strings.Contains(said, flag) {
				t.Errorf("exit code %d, said %q", code, said)
			}
		})
	}
}

func TestItServesUntilItIsToldToStop(t *testing.T) {
	url := natsembed.StartTest(t).ClientURL()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var stderr bytes.Buffer
	ended := make(chan int, 1)
	go func() {
		ended <- command(new(settings)).Run(ctx, []string{"--nats-url", url, "--log-level=error", "--listen=127.0.0.1:0"}, io.Discard, &stderr)
	}()

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
	if code := <-ended; code != process.ExitStopped {
		t.Errorf("exit code %d, said %s", code, &stderr)
	}
}

func TestABrokerThatIsNotThereEndsIt(t *testing.T) {
	var stderr bytes.Buffer
	code := command(new(settings)).Run(t.Context(), []string{"--nats-url=nats://127.0.0.1:1", "--listen="}, io.Discard, &stderr)
	if code != process.ExitFailed || !strings.HasPrefix(stderr.String(), "provider-periodic-report: connect to the broker at nats://127.0.0.1:1: ") {
		t.Errorf("exit code %d, said %q", code, &stderr)
	}
}
