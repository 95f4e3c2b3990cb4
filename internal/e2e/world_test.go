package e2e

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/afterwrite/afterwrite/events"
	"github.com/afterwrite/afterwrite/internal/natsembed"
	"github.com/afterwrite/afterwrite/internal/stack"
	"github.com/afterwrite/afterwrite/streams"
)

// patience is how long a test may take in all. Nothing takes nearly that long on an idle machine.
const patience = 90 * time.Second

// world is an Afterwrite under test, as a client of its broker sees it.
type world struct {
	t *testing.T
	// ctx ends a while after the test has run out of patience, so that it can still look at what is wrong.
	ctx     context.Context
	patient context.Context
	url     string
	nc      *nats.Conn
	js      jetstream.JetStream
	// handles are those of the streams that were looked at.
	handles map[string]jetstream.Stream
	// dialed records every connection that is made by any part, the test's own included.
	dialed *dialer
	// logs are what every part logged.
	logs   *observer.ObservedLogs
	logger *zap.Logger
}

func newWorld(t *testing.T) *world {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience+patience/4)
	t.Cleanup(cancel)
	patient, cancel := context.WithTimeout(ctx, patience)
	t.Cleanup(cancel)
	core, logs := observer.New(zap.DebugLevel)
	w := &world{
		t: t, ctx: ctx, patient: patient, handles: map[string]jetstream.Stream{},
		dialed: &dialer{}, logs: logs, logger: zap.New(core),
	}
	t.Cleanup(w.explain)
	return w
}

// explain tells, of a test that failed, what the streams hold and what the parts had to complain about.
func (w *world) explain() {
	if !w.t.Failed() {
		return
	}
	const most = 12
	entries := w.logs.Filter(func(e observer.LoggedEntry) bool { return e.Level >= zap.WarnLevel }).All()
	for _, e := range entries[max(0, len(entries)-most):] {
		w.t.Logf("%s %s %s: %s %v", e.Time.Format("15:04:05.000"), e.Level, e.LoggerName, e.Message, e.ContextMap())
	}
}

// holdings are the streams and their consumers, for a complaint that nothing moves.
func (w *world) holdings() string {
	var lines []string
	all := w.js.ListStreams(w.ctx)
	for info := range all.Info() {
		lines = append(lines, fmt.Sprintf("%s holds %d messages, the last is %d", info.Config.Name, info.State.Msgs, info.State.LastSeq))
		stream, err := w.js.Stream(w.ctx, info.Config.Name)
		if err != nil {
			return err.Error()
		}
		for c := range stream.ListConsumers(w.ctx).Info() {
			lines = append(lines, fmt.Sprintf("  %s: %d pending, %d in work, acknowledged to %d", c.Name, c.NumPending, c.NumAckPending, c.AckFloor.Stream))
		}
	}
	return strings.Join(lines, "\n")
}

// open connects the world's client.
func (w *world) open(url string) {
	w.t.Helper()
	w.url = url
	w.nc = w.connect()
	var err error
	if w.js, err = jetstream.New(w.nc); err != nil {
		w.t.Fatal(err)
	}
}

// connect makes a connection that lasts as long as the test.
func (w *world) connect() *nats.Conn {
	w.t.Helper()
	nc, err := nats.Connect(w.url, nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond), nats.SetCustomDialer(w.dialed))
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(nc.Close)
	return nc
}

// whole is the stack as it is shipped, with probes installed and served beside the periodic report.
type whole struct {
	*world
	*stack.Stack
}

// start runs the stack until the test ends. Its profile "default" runs the periodic report and the probes.
func start(t *testing.T, options stack.Options, probes ...*probe) *whole {
	t.Helper()
	w := newWorld(t)
	hooks := []events.HookID{"periodic_report.runtime_trigger"}
	for _, p := range probes {
		options.Hooks = append(options.Hooks, p.file(t))
		hooks = append(hooks, p.id())
	}
	if options.Profiles == nil {
		options.Profiles = profiles(quickRetry, hooks...)
	}
	options.Broker = embedded(t.TempDir())
	options.Dialer, options.Logger = w.dialed, w.logger
	options.Broker.Logger = w.logger
	s, err := stack.Start(w.ctx, options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Errorf("the stack ended with %v", err)
		}
	})
	w.open(s.URL())
	for _, p := range probes {
		w.serve(p)
	}
	return &whole{w, s}
}

const quickRetry = "{max_attempts: 8, initial: 50ms, max: 200ms}"

// profiles is a profiles file whose one profile "default" runs the hooks.
func profiles(retry string, hooks ...events.HookID) []byte {
	return fmt.Appendf(nil, "profiles:\n  default:\n    enabled: true\n    hooks: [%s]\n    retry: %s\n", strings.Join(hooks, ", "), retry)
}

// settle settles the Turn as an orchestrator does: it publishes the receipt exactly if the writeback committed.
func (w *world) settle(t turn) (settlement, streams.Published) {
	w.t.Helper()
	s, err := t.settle()
	if err != nil || !s.spends() {
		return s, streams.Published{}
	}
	return s, w.publish(s.receipt)
}

func (w *world) publish(r *events.Receipt) streams.Published {
	w.t.Helper()
	published, err := streams.NewPublisher(w.js, streams.PublisherOptions{}).Publish(w.ctx, r)
	if err != nil {
		w.t.Fatal(err)
	}
	return published
}

// publishAs publishes a receipt under a message id of the test's choice, past the orchestrators' publisher: the broker
// takes it for another message.
func (w *world) publishAs(id string, r *events.Receipt) uint64 {
	w.t.Helper()
	header := events.NewEnvelope(id, "probe", events.ReceiptSchema, "").Header()
	header[streams.HeaderMessageID] = []string{id}
	return w.publishRaw(streams.ReceiptSubject(r.EventKind), header, events.Canonical(r))
}

// message is the receipt as an orchestrator's publisher sends it.
func message(r *events.Receipt) *nats.Msg {
	id := r.MessageID()
	header := events.NewEnvelope(id, "probe", events.ReceiptSchema, r.Receipt.CommittedAt).Header()
	header[streams.HeaderMessageID] = []string{id}
	return &nats.Msg{Subject: streams.ReceiptSubject(r.EventKind), Header: header, Data: events.Canonical(r)}
}

func (w *world) publishRaw(subject string, header events.Header, data []byte) uint64 {
	w.t.Helper()
	ack, err := w.js.PublishMsg(w.ctx, &nats.Msg{Subject: subject, Header: header, Data: data})
	if err != nil {
		w.t.Fatal(err)
	}
	return ack.Sequence
}

const poll = 10 * time.Millisecond

// eventually looks until there is nothing to complain about.
func (w *world) eventually(look func() (complaint string)) {
	w.t.Helper()
	ticker := time.NewTicker(poll)
	defer ticker.Stop()
	for {
		complaint := look()
		if complaint == "" {
			return
		}
		select {
		case <-ticker.C:
		case <-w.patient.Done():
			w.t.Fatalf("in the end still: %s\n%s", complaint, w.holdings())
		}
	}
}

// acknowledged waits until the dispatchers have acknowledged everything up to the receipt at sequence.
func (w *world) acknowledged(sequence uint64) {
	w.t.Helper()
	w.eventually(func() string {
		consumer, err := asked(w, func(ctx context.Context) (jetstream.Consumer, error) {
			return w.js.Consumer(ctx, streams.Receipts, streams.DispatcherConsumer)
		})
		if err != nil {
			return err.Error()
		}
		if floor := consumer.CachedInfo().AckFloor.Stream; floor < sequence {
			return fmt.Sprintf("receipts are acknowledged up to %d, want %d", floor, sequence)
		}
		return ""
	})
}

// tap listens on a subject beside whoever else does. What the broker passed on before seen is called is counted.
type tap struct {
	w        *world
	nc       *nats.Conn
	messages chan *nats.Msg
	subjects []string
}

func (w *world) tap(subject string) *tap {
	w.t.Helper()
	t := &tap{w: w, nc: w.connect(), messages: make(chan *nats.Msg, 1<<16)}
	_, err := t.nc.ChanSubscribe(subject, t.messages)
	if err == nil {
		err = t.nc.Flush()
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return t
}

// seen are the subjects of all messages so far, in their order.
func (t *tap) seen() []string {
	t.w.t.Helper()
	if err := t.nc.Flush(); err != nil {
		t.w.t.Fatal(err)
	}
	for range len(t.messages) {
		t.subjects = append(t.subjects, (<-t.messages).Subject)
	}
	return t.subjects
}

// dialer makes every network connection of every part, and remembers where to.
type dialer struct {
	mu        sync.Mutex
	addresses []string
}

// Dial implements nats.CustomDialer.
func (d *dialer) Dial(network, address string) (net.Conn, error) {
	d.mu.Lock()
	d.addresses = append(d.addresses, address)
	d.mu.Unlock()
	return net.DialTimeout(network, address, patience)
}

func (d *dialer) to() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.addresses)
}

// embedded is the options of a broker for one test.
func embedded(store string) natsembed.Options {
	const plenty = 1 << 50 // bookkeeping, and not space
	return natsembed.Options{StoreDir: store, MaxStoreBytes: plenty, MaxMemoryBytes: plenty}
}
