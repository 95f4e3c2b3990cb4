package soaktest

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/afterwrite/afterwrite/events"
	"github.com/afterwrite/afterwrite/internal/natsembed"
	"github.com/afterwrite/afterwrite/providers"
	"github.com/afterwrite/afterwrite/streams"
)

const (
	// poll is how often the broker is asked, which has no signal for what is waited for.
	poll = 10 * time.Millisecond
	gib  = 1 << 30
)

// binary is the dispatcher as it is shipped.
var binary string

func TestMain(m *testing.M) {
	flag.Parse()
	dir, err := os.MkdirTemp("", "soaktest-")
	if err == nil {
		binary = filepath.Join(dir, "dispatcher")
		build := exec.Command("go", "build", "-o", binary, "./cmd/dispatcher")
		build.Dir = "../.."
		var said []byte
		if said, err = build.CombinedOutput(); err != nil {
			err = fmt.Errorf("%w\n%s", err, said)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	_ = os.RemoveAll(dir) // in the system's temporary folder anyway
	os.Exit(code)
}

// world is a broker, an orchestrator and the dispatcher's process.
type world struct {
	t      *testing.T
	ctx    context.Context
	nc     *nats.Conn
	js     jetstream.JetStream
	url    string
	health string // address of the dispatcher's health and metrics
}

func newWorld(t *testing.T, patience time.Duration, hooks ...events.HookID) *world {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	w := &world{t: t, ctx: ctx, url: natsembed.StartTest(t).ClientURL(), health: freeAddress(t)}
	var err error
	if w.nc, err = nats.Connect(w.url); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.nc.Close)
	if w.js, err = jetstream.New(w.nc, jetstream.WithPublishAsyncMaxPending(4096)); err != nil {
		t.Fatal(err)
	}
	settings := streams.Settings{Hooks: hooks, ReceiptsMaxBytes: 4 * gib, JournalMaxBytes: 4 * gib, IntentsMaxBytes: 4 * gib}
	if _, err := streams.Apply(ctx, w.js, streams.Default(settings)); err != nil {
		t.Fatal(err)
	}
	w.start(hooks)
	return w
}

func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }() // nobody connected
	return listener.Addr().String()
}

func capabilityOf(hook events.HookID) events.CapabilityID { return strings.TrimSuffix(hook, ".hook") }
func kindOf(hook events.HookID) events.IntentKind         { return capabilityOf(hook) + ".act" }

func registration(hook events.HookID) *events.Registration {
	return &events.Registration{
		SchemaVersion: events.RegistrationSchema, HookID: hook, CapabilityID: capabilityOf(hook), Phase: events.PostWriteback,
		FailurePolicy: events.Isolate, EventKinds: []events.EventKind{events.ReplanRecorded},
		IntentKinds: []events.IntentKind{kindOf(hook)}, RequestedReadScope: []events.ReadScope{events.SettlementIdentity},
		Budget: events.HookBudget{
			MaxInvocationsPerDispatch: events.MaxInvocations, MaxIntentsPerDispatch: 1, MaxResultBytes: 4096, TimeoutMillis: 500,
		},
	}
}

func (w *world) start(hooks []events.HookID) {
	w.t.Helper()
	dir := w.t.TempDir()
	write := func(name string, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			w.t.Fatal(err)
		}
		return path
	}
	flags := []string{
		"--nats-url", w.url, "--listen", w.health, "--debug", "--log-level", "error",
		"--receipts-size", "4GiB", "--journal-size", "4GiB", "--intents-size", "4GiB",
		"--profiles", write("profiles.yaml", fmt.Sprintf("profiles:\n  default: {enabled: true, hooks: [%s]}\n", strings.Join(hooks, ", "))),
	}
	for _, hook := range hooks {
		file := fmt.Sprintf(`{"registration": %s, "payload_schemas": {%q: {"type": "object"}}}`,
			events.Canonical(registration(hook)), kindOf(hook))
		flags = append(flags, "--hooks", write(hook+".json", file))
	}
	cmd := exec.Command(binary, flags...)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt) // it may be over already
		if err := cmd.Wait(); err != nil {
			w.t.Errorf("the dispatcher ended with %v, want an orderly stop", err)
		}
	})
	w.eventually("the dispatcher is ready", func() bool {
		_, err := w.get("/readyz")
		return err == nil
	})
}

// serve runs a provider of the hook, which hangs while hangs is set, until the test ends.
func (w *world) serve(hook events.HookID, hangs *atomic.Bool) {
	w.t.Helper()
	nc, err := nats.Connect(w.url)
	if err != nil {
		w.t.Fatal(err)
	}
	answer := providers.HookFunc(func(in *events.HookInput) ([]providers.Proposal, error) {
		return []providers.Proposal{{
			Kind: kindOf(hook), Operation: "act", PolicyVersion: "v0", Payload: map[string]string{"turn": in.Source.TurnInstanceID},
			Budget: events.IntentBudget{MaxAttempts: 1, MaxResultBytes: 1024},
		}}, nil
	})
	if hangs == nil {
		p, err := providers.Start(nc, capabilityOf(hook), providers.WithHook(registration(hook), answer))
		if err != nil {
			w.t.Fatal(err)
		}
		w.t.Cleanup(func() {
			if err := p.Stop(context.Background()); err != nil {
				w.t.Error(err)
			}
			nc.Close()
		})
		return
	}
	w.serveHanging(nc, hook, answer, hangs)
}

// serveHanging puts a gate before a provider: what comes while it hangs is never answered.
func (w *world) serveHanging(nc *nats.Conn, hook events.HookID, answer providers.Hook, hangs *atomic.Bool) {
	w.t.Helper()
	w.t.Cleanup(nc.Close)
	_, err := nc.QueueSubscribe(streams.CallSubject(hook), "hook", func(m *nats.Msg) {
		if hangs.Load() {
			return
		}
		in, err := events.Decode[events.HookInput](m.Data)
		if err != nil {
			w.t.Error(err)
			return
		}
		proposals, _ := answer.Propose(in)
		payload, err := events.EncodeValue(proposals[0].Payload)
		if err != nil {
			w.t.Error(err)
			return
		}
		intent := events.Intent{
			Budget: proposals[0].Budget, CapabilityID: in.CapabilityID, FailurePolicy: events.Isolate, HookID: hook,
			IntentKind: kindOf(hook), Operation: "act", Payload: payload, PolicyVersion: "v0",
			SchemaVersion: events.IntentSchema, SourceDispatchID: in.DispatchID,
		}
		intent.IntentID = intent.Identity()
		result := &events.HookResult{
			CapabilityID: in.CapabilityID, DispatchID: in.DispatchID, HookID: hook, Intents: []events.Intent{intent},
			SchemaVersion: events.HookResultSchema, Status: events.ResultProposed,
		}
		header := events.NewEnvelope(in.DispatchID, "soaktest", events.HookResultSchema, events.NewTimestamp(time.Now())).Header()
		_ = m.RespondMsg(&nats.Msg{Header: header, Data: events.Canonical(result)}) // the dispatcher asks again
	})
	if err != nil {
		w.t.Fatal(err)
	}
}

func receipt(i int) *nats.Msg {
	n := strconv.Itoa(i)
	r := &events.Receipt{
		SchemaVersion: events.ReceiptSchema, Profile: "default", EventKind: events.ReplanRecorded,
		Plan: events.Settlement{AgentID: "agent", EffectID: "effect_" + n, GoalID: "goal", TodoID: "todo_" + n, TurnInstanceID: "turn_" + n},
		Receipt: events.WritebackReceipt{
			Checkpointed: true, CommittedAt: events.NewTimestamp(time.Now()), EffectID: "effect_" + n, ReceiptID: "receipt_" + n,
			StateRevision: "rev", Status: events.Committed, StepKind: events.DurableWriteback,
		},
		Projection: events.Projection{SchemaVersion: events.ProjectionSchema, Transition: events.ReplanEntered},
	}
	header := events.NewEnvelope(r.Receipt.ReceiptID, "soaktest", events.ReceiptSchema, r.Receipt.CommittedAt).Header()
	header[streams.HeaderMessageID] = []string{r.MessageID()}
	return &nats.Msg{Subject: streams.ReceiptSubject(r.EventKind), Header: header, Data: events.Canonical(r)}
}

func (w *world) publish(i int) {
	w.t.Helper()
	for {
		_, err := w.js.PublishMsgAsync(receipt(i))
		if err == nil {
			return
		}
		select {
		case <-w.js.PublishAsyncComplete():
		case <-w.ctx.Done():
			w.t.Fatalf("publish receipt %d: %v", i, err)
		}
	}
}

// settled is how many of the receipts are acknowledged, in their order.
func (w *world) settled() int {
	w.t.Helper()
	consumer, err := w.js.Consumer(w.ctx, streams.Receipts, streams.DispatcherConsumer)
	if err != nil {
		w.t.Fatal(err)
	}
	return int(consumer.CachedInfo().AckFloor.Stream) //nolint:gosec // as many as were published
}

func (w *world) messages(stream string) int {
	w.t.Helper()
	s, err := w.js.Stream(w.ctx, stream)
	if err != nil {
		w.t.Fatal(err)
	}
	return int(s.CachedInfo().State.Msgs) //nolint:gosec // as many as were published
}

func (w *world) eventually(what string, reached func() bool) {
	w.t.Helper()
	ticker := time.NewTicker(poll)
	defer ticker.Stop()
	for !reached() {
		select {
		case <-ticker.C:
		case <-w.ctx.Done():
			w.t.Fatalf("not reached: %s", what)
		}
	}
}

func (w *world) get(path string) (string, error) {
	request, err := http.NewRequestWithContext(w.ctx, http.MethodGet, "http://"+w.health+path, nil)
	if err != nil {
		return "", err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer func() { _ = response.Body.Close() }() // it was read to its end
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", path, body)
	}
	http.DefaultClient.CloseIdleConnections()
	return string(body), err
}

// heap is the dispatcher's heap in bytes after a collection, the median of several: what is under way comes and goes.
func (w *world) heap() float64 {
	w.t.Helper()
	var looks [9]float64
	for i := range looks {
		looks[i] = w.heapNow()
	}
	slices.Sort(looks[:])
	return looks[len(looks)/2]
}

func (w *world) heapNow() float64 {
	w.t.Helper()
	if _, err := w.get("/debug/pprof/heap?gc=1&debug=1"); err != nil {
		w.t.Fatal(err)
	}
	metrics, err := w.get("/metrics")
	if err != nil {
		w.t.Fatal(err)
	}
	for line := range strings.Lines(metrics) {
		if value, ok := strings.CutPrefix(line, "go_memstats_heap_alloc_bytes "); ok {
			bytes, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
			if err != nil {
				w.t.Fatal(err)
			}
			return bytes
		}
	}
	w.t.Fatal("no heap among the metrics")
	return 0
}
