package main

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/afterwrite/afterwrite/internal/natsembed"
	"github.com/afterwrite/afterwrite/internal/observability/process"
	"github.com/afterwrite/afterwrite/streams"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const hook = `
registration:
  schema_version: loopx_post_writeback_capability_hook_registration_v0
  hook_id: inventory.recount
  capability_id: inventory
  phase: post_writeback
  event_kinds: [todo_completed]
  intent_kinds: [inventory.recount_shelf]
  requested_read_scope: [settlement_identity]
  budget: {max_invocations_per_dispatch: 3, max_intents_per_dispatch: 1, max_result_bytes: 4096, timeout_ms: 500}
  failure_policy: isolate
payload_schemas:
  inventory.recount_shelf: {type: object}
`

const profiles = `
profiles:
  default: {enabled: true, hooks: [inventory.recount]}
`

// install writes the two files and gives the flags that name them.
func install(t *testing.T, hook, profiles string) []string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"hook.yaml": hook, "profiles.yaml": profiles} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return []string{"--hooks", filepath.Join(dir, "hook.yaml"), "--profiles", filepath.Join(dir, "profiles.yaml"), "--listen="}
}

func TestItStopsInOrderWhenItIsTold(t *testing.T) {
	server := natsembed.StartTest(t)
	nc, err := nats.Connect(server.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	topology := streams.Default(streams.Settings{Hooks: []string{"inventory.recount"}})
	if _, err := streams.Apply(t.Context(), js, topology); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	logged, log := io.Pipe()
	code := make(chan int, 1)
	go func() {
		code <- command(new(settings)).Run(ctx, append(install(t, hook, profiles), "--nats-url", server.ClientURL()), io.Discard, log)
		_ = log.Close()
	}()
	for lines := bufio.NewScanner(logged); lines.Scan(); {
		if strings.Contains(lines.Text(), `"msg":"dispatching"`) {
			stop()
		}
	}
	if got := <-code; got != process.ExitStopped {
		t.Errorf("exit code %d, want %d", got, process.ExitStopped)
	}
}

func TestContradictionsRefuseToStartAllListed(t *testing.T) {
	for name, tt := range map[string]struct {
		args []string
		want []string
	}{
		"files that are not named": {
			want: []string{"--hooks must be given", "--profiles must be given"},
		},
		"flags against each other, and files against each other": {
			args: append(install(t, hook, "profiles:\n  default: {enabled: true, hooks: [a.b]}\n  Night: {enabled: false, hooks: []}\n"),
				"--trip-after=0", "--receipts-age=240h", "--duplicate-window=1ms", "--nats-cert=cert.pem", "--max-receipt-age=-1h", "--lanes=-1"),
			want: []string{
				"registry: nothing can run with these files:",
				`profiles.yaml: profiles.Night must be named by a name`,
				`profiles.yaml: profiles.default.hooks[0] names the hook "a.b", which no file registers`,
				"--trip-after must be positive",
				"streams: --journal-age must be at least --receipts-age and the longest retry of a profile together, 240h0m0s, it is 168h0m0s",
				"streams: --duplicate-window must be from 100ms to --receipts-age, 240h0m0s, it is 1ms",
				"--nats-cert and --nats-key go together",
				"--lanes must not be negative",
				"--max-receipt-age must not be negative",
			},
		},
		"a retry horizon that the journal does not cover": {
			args: append(install(t, hook, profiles), "--journal-age=72h"),
			want: []string{"streams: --journal-age must be at least --receipts-age and the longest retry of a profile together, 72h22m13.2s, it is 72h0m0s"},
		},
		"a zero that is no default": {
			args: append(install(t, hook, profiles), "--ack-wait=0"),
			want: []string{"streams: --ack-wait must be positive"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var stderr bytes.Buffer
			if code := command(new(settings)).Run(t.Context(), tt.args, io.Discard, &stderr); code != process.ExitRefused {
				t.Errorf("exit code %d, want %d", code, process.ExitRefused)
			}
			var got []string
			for line := range strings.Lines(stderr.String()) {
				_, base, found := strings.Cut(line, string(filepath.Separator)+"profiles.yaml")
				if found {
					line = "profiles.yaml" + base
				}
				got = append(got, strings.TrimSpace(line))
			}
			want := append([]string{"dispatcher: will not start with these settings"}, tt.want...)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("said (-want +got):\n%s", diff)
			}
		})
	}
}

func TestABrokenFlagIsOneSentenceThatNamesIt(t *testing.T) {
	for flag, args := range map[string][]string{
		"--unknown":                 {"--unknown"},
		"--open-for":                {"--open-for=soon"},
		"--journal-size":            {"--journal-size=4G"},
		"--storage":                 {"--storage=tape"},
		"AFTERWRITE_STOP_GRACE":     nil,
		"unexpected argument start": {"start"},
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

func TestABrokerThatIsNotThereEndsIt(t *testing.T) {
	var stderr bytes.Buffer
	code := command(new(settings)).Run(t.Context(), append(install(t, hook, profiles), "--nats-url=nats://127.0.0.1:1"), io.Discard, &stderr)
	if code != process.ExitFailed || !strings.HasPrefix(stderr.String(), "dispatcher: connect to the broker at nats://127.0.0.1:1: ") {
		t.Errorf("exit code %d, said %q", code, &stderr)
	}
}

func TestCheckLooksAtTheFilesAndDialsNobody(t *testing.T) {
	var stderr bytes.Buffer
	args := append(install(t, hook, profiles), "--nats-url=nats://127.0.0.1:1", "--check")
	if code := command(new(settings)).Run(t.Context(), args, io.Discard, &stderr); code != process.ExitStopped || stderr.Len() > 0 {
		t.Errorf("exit code %d, said %q", code, &stderr)
	}
}
