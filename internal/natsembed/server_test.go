package natsembed_test

import (
	"context"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/afterwrite/afterwrite/internal/natsembed"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func connect(t *testing.T, url string) jetstream.JetStream {
	t.Helper()
	nc, err := nats.Connect(url, nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	return js
}

func withTimeout(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func TestStoredMessagesOutliveARestart(t *testing.T) {
	ctx, dir := withTimeout(t), t.TempDir()
	first, err := natsembed.Start(natsembed.Options{StoreDir: dir, SyncAlways: true})
	if err != nil {
		t.Fatal(err)
	}
	js := connect(t, first.ClientURL())
	if _, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := js.Publish(ctx, "s", []byte("kept")); err != nil {
		t.Fatal(err)
	}
	first.Shutdown()
	first.Shutdown()

	second, err := natsembed.Start(natsembed.Options{StoreDir: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(second.Shutdown)
	stream, err := connect(t, second.ClientURL()).Stream(ctx, "S")
	if err != nil {
		t.Fatal(err)
	}
	msg, err := stream.GetMsg(ctx, 1)
	if err != nil {
		t.Fatal(err)
	}
	if string(msg.Data) != "kept" {
		t.Errorf("message 1 is %q, want %q", msg.Data, "kept")
	}
}

func TestAServerListensOnLoopbackUnlessTold(t *testing.T) {
	s := natsembed.StartTest(t)
	if !strings.HasPrefix(s.ClientURL(), "nats://127.0.0.1:") {
		t.Errorf("ClientURL() = %q, want a loopback address", s.ClientURL())
	}
}

func TestStartSaysWhyItFailed(t *testing.T) {
	if _, err := natsembed.Start(natsembed.Options{}); err == nil || !strings.Contains(err.Error(), "StoreDir") {
		t.Errorf("without a store: %v, want an error that names StoreDir", err)
	}
	address, err := url.Parse(natsembed.StartTest(t).ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.Atoi(address.Port())
	if err != nil {
		t.Fatal(err)
	}
	_, err = natsembed.Start(natsembed.Options{StoreDir: t.TempDir(), Port: port})
	if err == nil || !strings.Contains(err.Error(), "address already in use") {
		t.Errorf("on a port that is taken: %v, want the system's error", err)
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = natsembed.Start(natsembed.Options{StoreDir: file})
	if err == nil || !strings.Contains(err.Error(), "not a directory") {
		t.Errorf("with a file as the store: %v, want the system's error", err)
	}
}

func TestTheServersLogGoesToTheGivenLogger(t *testing.T) {
	core, logs := observer.New(zap.InfoLevel)
	s, err := natsembed.Start(natsembed.Options{StoreDir: t.TempDir(), Logger: zap.New(core)})
	if err != nil {
		t.Fatal(err)
	}
	s.Shutdown()
	if logs.FilterMessage("Server is ready").Len() != 1 {
		t.Errorf("the log has no line %q among %d lines", "Server is ready", logs.Len())
	}
}

func TestAStoreIsOneServersAlone(t *testing.T) {
	dir := t.TempDir()
	first, err := natsembed.Start(natsembed.Options{StoreDir: dir})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := natsembed.Start(natsembed.Options{StoreDir: dir}); err == nil || !strings.Contains(err.Error(), "in use by another server") {
		t.Errorf("a second server on the store: %v, want it refused as in use", err)
	}
	first.Shutdown()
	again, err := natsembed.Start(natsembed.Options{StoreDir: dir})
	if err != nil {
		t.Fatalf("after the first has stopped: %v", err)
	}
	again.Shutdown()
}
