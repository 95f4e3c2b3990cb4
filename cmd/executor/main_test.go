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

const grants = `
executor: shelf_clerk
grants:
  - intent_kind: inventory.recount_shelf
    service: {name: inventory.recount}
`

// install writes the grants file and gives the flag that names it.
func install(t *testing.T, text string) []string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "grants.yaml")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return []string{"--grants", name, "--listen="}
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
	if _, err := streams.Apply(t.Context(), js, streams.Default(streams.Settings{})); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	logged, log := io.Pipe()
	code := make(chan int, 1)
	go func() {
		code <- command(new(settings)).Run(ctx, append(install(t, grants), "--nats-url", server.ClientURL()), io.Discard, log)
		_ = log.Close()
	}()
	for lines := bufio.NewScanner(logged); lines.Scan(); {
		if strings.Contains(lines.Text(), `"msg":"taking intents"`) {
			stop()
		}
	}
	if got := <-code; got != process.ExitStopped {
		t.Errorf("exit code %d, want %d", got, process.ExitStopped)
	}
	if _, err := js.Consumer(t.Context(), "PWH_INTENTS", "shelf_clerk--inventory-recount_shelf"); err != nil {
		t.Errorf("its consumer: %v", err)
	}
}

func TestSettingsItWillNotStartWithAreListed(t *testing.T) {
	for name, test := range map[string]struct {
		args []string
		want string
	}{
		"grants": {
			install(t, "executor: Clerk\ngrants: [{intent_kind: a.b, color: red}]"),
			"executor: will not start with these settings\n  grants[0].color is not known\n  executor must be a name\n" +
				"  grants[0].service.name must name the service to call\n",
		},
		"a repeated key": {
			install(t, "executor: clerk\nexecutor: clerk\n"),
			"executor: will not start with these settings\n  the grants file must be YAML without a repeated key: " +
				"line 2: key \"executor\" already set in map\n",
		},
		"pauses": {
			append(install(t, grants), "--hand-back=1ms", "--drain-timeout=-1s"),
			"executor: will not start with these settings\n  drain_timeout must be positive\n  hand_back must be at least 50ms\n",
		},
		"credentials": {
			append(install(t, grants), "--nats-cert=cert.pem"),
			"executor: will not start with these settings\n  --nats-cert and --nats-key go together\n",
		},
		"no grants":    {nil, "executor: missing flags: --grants=STRING\n"},
		"unknown flag": {append(install(t, grants), "--color"), "executor: unknown flag --color\n"},
	} {
		var stderr bytes.Buffer
		if code := command(new(settings)).Run(t.Context(), test.args, io.Discard, &stderr); code != process.ExitRefused {
			t.Errorf("%s: exit code %d, want %d", name, code, process.ExitRefused)
		}
		if diff := cmp.Diff(test.want, stderr.String()); diff != "" {
			t.Errorf("%s: said (-want +got):\n%s", name, diff)
		}
	}
}

func TestCheckSaysNothingAboutGoodSettingsAndConnectsNowhere(t *testing.T) {
	var said bytes.Buffer
	args := append(install(t, grants), "--check", "--nats-url=nats://127.0.0.1:1")
	if code := command(new(settings)).Run(t.Context(), args, &said, &said); code != process.ExitStopped || said.Len() > 0 {
		t.Errorf("exit code %d, said %q", code, said.String())
	}
}

func TestABrokerThatIsNotThereAndStreamsThatAreMissingEndIt(t *testing.T) {
	for url, want := range map[string]string{
		"nats://127.0.0.1:1":               "executor: connect to the broker",
		natsembed.StartTest(t).ClientURL(): "executor: executors: a stream is missing: PWH_INTENTS\n",
	} {
		var stderr bytes.Buffer
		code := command(new(settings)).Run(t.Context(), append(install(t, grants), "--nats-url", url), io.Discard, &stderr)
		if code != process.ExitFailed || !strings.HasPrefix(stderr.String(), want) {
			t.Errorf("exit code %d, said %q, want %q", code, stderr.String(), want)
		}
	}
}
