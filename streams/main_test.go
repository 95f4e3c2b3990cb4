package streams_test

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/afterwrite/afterwrite/internal/natsembed"
	"github.com/afterwrite/afterwrite/streams"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// broker starts a server for the test and connects to it.
func broker(t *testing.T) (context.Context, jetstream.JetStream) {
	t.Helper()
	return connect(t, natsembed.StartTest(t).ClientURL())
}

func connect(t *testing.T, url string) (context.Context, jetstream.JetStream) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	nc, err := nats.Connect(url, nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	return ctx, js
}

func apply(ctx context.Context, t *testing.T, js jetstream.JetStream, s streams.Settings) []streams.Change {
	t.Helper()
	if err := s.WithDefaults().Validate(); err != nil {
		t.Fatal(err)
	}
	changes, err := streams.Apply(ctx, js, streams.Default(s))
	if err != nil {
		t.Fatal(err)
	}
	return changes
}

// installed has a hook and an executor, so that every kind of consumer there is.
var installed = streams.Settings{
	Hooks:     []string{"weekly.trigger", "weekly"},
	Executors: []streams.Executor{{Executor: "governed.executor", Kind: "weekly.evaluation"}},
}
