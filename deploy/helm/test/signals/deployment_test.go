package signals

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/afterwrite/afterwrite/dispatcher"
	"github.com/afterwrite/afterwrite/dispatcher/registry"
	"github.com/afterwrite/afterwrite/events"
	"github.com/afterwrite/afterwrite/executors"
	"github.com/afterwrite/afterwrite/internal/natsconn"
	"github.com/afterwrite/afterwrite/internal/natsembed"
	"github.com/afterwrite/afterwrite/internal/observability"
	"github.com/afterwrite/afterwrite/providers"
	"github.com/afterwrite/afterwrite/streams"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(tests{m}) }

type tests struct{ *testing.M }

// Run implements goleak.TestingM.
func (m tests) Run() int {
	defer http.DefaultClient.CloseIdleConnections()
	return m.M.Run()
}

const (
	// patience is for a machine that does much else.
	patience = 2 * time.Minute

	// drain is how long a process waits for what is under way when it stops, which no test is about.
	drain = time.Second

	namespace  = "hooks"
	capability = "probe"
	noted      = "probe.noted"
	noter      = "noter"
)

// hook is one of the test's, probe.<name>, with a provider process of its own.
type hook struct {
	name string
	// propose is nil for a hook that nobody serves.
	propose  providers.HookFunc
	timeout  time.Duration // by default 10 s
	inFlight int           // by default 64
	provider []providers.Option
	payload  string // schema of its intents' payload; by default any object's
}

func (h hook) id() events.HookID { return capability + "." + h.name }

func (h hook) registration() *events.Registration {
	timeout := h.timeout
	if timeout == 0 {
		timeout = 10 * time.Second
	}
	return &events.Registration{
		SchemaVersion: events.RegistrationSchema, HookID: h.id(), CapabilityID: capability, Phase: events.PostWriteback,
		EventKinds: events.EventKinds(), IntentKinds: []events.IntentKind{noted},
		RequestedReadScope: []events.ReadScope{events.SettlementIdentity, events.BoundedEventProjection},
		Budget: events.HookBudget{
			MaxInvocationsPerDispatch: 16, MaxIntentsPerDispatch: 1, MaxResultBytes: 4 << 10, TimeoutMillis: int(timeout.Milliseconds()),
		},
		FailurePolicy: events.Isolate,
	}
}

func (h hook) file(t *testing.T) registry.File {
	t.Helper()
	registration, err := events.Encode(h.registration())
	if err != nil {
		t.Fatal(err)
	}
	inFlight := h.inFlight
	if inFlight == 0 {
		inFlight = 64
	}
	payload := h.payload
	if payload == "" {
		payload = `{"type":"object"}`
	}
	return registry.File{Name: h.id() + ".json", Data: fmt.Appendf(nil,
		`{"max_in_flight":%d,"registration":%s,"payload_schemas":{%q:%s}}`, inFlight, registration, noted, payload)}
}

// notes is a hook that proposes one intent, at once.
func notes(*events.HookInput) ([]providers.Proposal, error) {
	return []providers.Proposal{{
		Kind: noted, Operation: "note", PolicyVersion: "v0", Payload: map[string]string{"note": "seen"},
		Budget: events.IntentBudget{MaxAttempts: 1, MaxResultBytes: 1024},
	}}, nil
}

// does is an effect that succeeds, at once.
func does(context.Context, *events.Intent, executors.Permit) (*events.Packet, error) {
	return executors.PacketOf("noted_v0", map[string]string{"text": "seen"})
}

// plan is what is deployed.
type plan struct {
	hooks      []hook
	effect     executors.Func // nil for no executor
	retry      string         // of the profile, as in its file
	settings   streams.Settings
	dispatcher dispatcher.Options
}

// deployment is a whole Afterwrite as it runs in a cluster: a broker, and processes that know each other only over it,
// each with a registry and a listener of its own, all in one process of the operating system. It is recorded.
type deployment struct {
	*recording
	t      *testing.T
	ctx    context.Context
	plan   plan
	broker *natsembed.Server
	store  natsembed.Options
	nc     *nats.Conn
	js     jetstream.JetStream
	pods   map[string]*pod
	// turns counts the receipts, each of its own.
	turns atomic.Int64
	// pace is how long a scrape interval takes here.
	pace time.Duration
}

// pod is a process that runs.
type pod struct {
	address string
	stop    func() error
}

func deploy(t *testing.T, p plan) *deployment {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	const plenty = 1 << 50 // bookkeeping, and not space
	d := &deployment{
		recording: newRecording(), t: t, ctx: ctx, plan: p, pods: map[string]*pod{},
		store: natsembed.Options{StoreDir: t.TempDir(), MaxStoreBytes: plenty, MaxMemoryBytes: plenty},
	}
	d.startBroker()
	t.Cleanup(func() { d.broker.Shutdown() })
	d.nc = d.connect("test", prometheus.NewRegistry())
	t.Cleanup(d.nc.Close)
	var err error
	if d.js, err = jetstream.New(d.nc); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, name := range slices.Sorted(maps.Keys(d.pods)) {
			d.stop(name)
		}
	})
	d.apply()
	for _, h := range p.hooks {
		if h.propose != nil {
			d.startProvider(h)
		}
	}
	d.startDispatcher()
	if p.effect != nil {
		d.startExecutor()
	}
	return d
}

// startBroker starts the broker, the second time where it was and with what it had.
func (d *deployment) startBroker() {
	d.t.Helper()
	var err error
	if d.broker, err = natsembed.Start(d.store); err != nil {
		d.t.Fatal(err)
	}
	address, err := url.Parse(d.broker.ClientURL())
	if err != nil {
		d.t.Fatal(err)
	}
	if d.store.Port, err = strconv.Atoi(address.Port()); err != nil {
		d.t.Fatal(err)
	}
}

func (d *deployment) connect(name string, metrics prometheus.Registerer) *nats.Conn {
	d.t.Helper()
	nc, err := natsconn.Connect(natsconn.Options{Flags: natsconn.Flags{URL: d.broker.ClientURL()}, Name: name, Metrics: metrics})
	if err != nil {
		d.t.Fatal(err)
	}
	return nc
}

// installed is what the dispatcher is told to run.
func (d *deployment) installed() *registry.Installed {
	d.t.Helper()
	var files registry.Files
	var names []string
	for _, h := range d.plan.hooks {
		files.Hooks = append(files.Hooks, h.file(d.t))
		names = append(names, h.id())
	}
	retry := d.plan.retry
	if retry == "" {
		retry = "{max_attempts: 3, initial: 50ms, max: 200ms}"
	}
	files.Profiles = registry.File{Name: "profiles.yaml", Data: fmt.Appendf(nil,
		"profiles: {default: {enabled: true, hooks: [%s], retry: %s}}", strings.Join(names, ", "), retry)}
	installed, err := registry.Load(files)
	if err != nil {
		d.t.Fatal(err)
	}
	return installed
}

// apply creates the streams, as "hookctl streams apply" does.
func (d *deployment) apply() {
	d.t.Helper()
	settings := d.plan.settings.WithDefaults()
	settings.RetryHorizon = d.installed().RetryHorizon()
	for _, h := range d.plan.hooks {
		settings.Hooks = append(settings.Hooks, h.id())
	}
	settings.Executors = []streams.Executor{{Executor: noter, Kind: noted, Start: streams.StartAll}}
	if err := settings.Validate(); err != nil {
		d.t.Fatal(err)
	}
	if _, err := streams.Apply(d.ctx, d.js, streams.Default(settings)); err != nil {
		d.t.Fatal(err)
	}
}

// run runs a process until it is stopped.
func (d *deployment) run(name string, address net.Addr, run func(context.Context) error, ready <-chan struct{}) {
	d.t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(d.ctx))
	ended := make(chan struct{})
	var failure error
	go func() {
		defer close(ended)
		failure = run(ctx)
	}()
	d.pods[name] = &pod{address.String(), func() error {
		cancel()
		<-ended
		return failure
	}}
	select {
	case <-ready:
	case <-ended:
		d.t.Fatalf("%s did not start: %v", name, failure)
	case <-d.ctx.Done():
		d.t.Fatalf("%s did not start in time", name)
	}
}

// stop stops a process, which is then no longer scraped.
func (d *deployment) stop(name string) {
	d.t.Helper()
	if err := d.pods[name].stop(); err != nil {
		d.t.Errorf("%s ended with %v", name, err)
	}
	delete(d.pods, name)
}

const anyPort = "127.0.0.1:0"

func (d *deployment) startDispatcher() {
	d.t.Helper()
	o := d.plan.dispatcher
	o.NATS.URL, o.Streams, o.Registry = d.broker.ClientURL(), d.plan.settings, d.installed()
	o.Metrics, o.Listen = observability.NewRegistry(), anyPort
	o.Lanes, o.StopGrace = 1, drain
	if o.OpenFor == 0 {
		o.OpenFor = 10 * time.Millisecond // the usual seconds, on the made-up clock
	}
	process, err := dispatcher.New(o)
	if err != nil {
		d.t.Fatal(err)
	}
	d.run("dispatcher", process.Addr(), process.Run, process.Ready())
}

// startProvider serves a hook as the command of a provider does.
func (d *deployment) startProvider(h hook) {
	d.t.Helper()
	metrics := observability.NewRegistry()
	shared := observability.For("provider", metrics)
	nc := d.connect("provider", shared)
	health := observability.NewHealth(observability.BrokerDisconnected)
	health.Check(observability.BrokerDisconnected, natsconn.Disconnected(nc))
	if err := shared.Register(health); err != nil {
		d.t.Fatal(err)
	}
	d.serve("provider-"+h.name, metrics, health.Reasons, func(ctx context.Context) error {
		defer nc.Close()
		return providers.Serve(ctx, nc, capability, append([]providers.Option{
			providers.WithHook(h.registration(), h.propose), providers.WithMetrics(metrics), providers.WithConcurrency(4), providers.WithDrainTimeout(drain),
			providers.WithReady(func() { health.Clear(observability.NotStarted) }),
		}, h.provider...)...)
	}, health.Ready())
}

func (d *deployment) startExecutor() {
	d.t.Helper()
	metrics := observability.NewRegistry()
	process, err := executors.New(executors.Options{
		Executor: noter, Grants: []executors.Grant{{IntentKind: noted, From: streams.StartAll}},
		Executors: map[events.IntentKind]executors.Executor{noted: d.plan.effect},
		URL:       d.broker.ClientURL(), Metrics: metrics, DrainTimeout: drain,
	})
	if err != nil {
		d.t.Fatal(err)
	}
	d.serve("executor", metrics, process.Reasons, process.Run, process.Ready())
}

// serve serves health and metrics beside a process that does not do so itself.
func (d *deployment) serve(
	name string, metrics *prometheus.Registry, reasons func() []string, run func(context.Context) error, ready <-chan struct{},
) {
	d.t.Helper()
	server, err := observability.Listen(anyPort, observability.Endpoints{Reasons: reasons, Metrics: metrics})
	if err != nil {
		d.t.Fatal(err)
	}
	d.run(name, server.Addr(), func(ctx context.Context) error {
		serving, served := context.WithCancel(context.WithoutCancel(ctx))
		ended := make(chan error, 1)
		go func() { ended <- server.Serve(serving) }()
		err := run(ctx)
		served()
		return errors.Join(err, <-ended)
	}, ready)
}

// targets are all that is scraped.
func (d *deployment) targets() []target {
	var all []target
	for name, pod := range d.pods {
		all = append(all, target{name, pod.address})
	}
	return all
}

// receipt is the next Turn's.
func (d *deployment) receipt() *events.Receipt {
	name := strconv.FormatInt(d.turns.Add(1), 10)
	effect := "goal_a:agent_a:todo_" + name + ":turn_" + name
	return &events.Receipt{
		SchemaVersion: events.ReceiptSchema, Profile: "default", EventKind: events.ReplanRecorded,
		Plan: events.Settlement{GoalID: "goal_a", AgentID: "agent_a", TodoID: "todo_" + name, TurnInstanceID: "turn_" + name, EffectID: effect},
		Receipt: events.WritebackReceipt{
			Checkpointed: true, CommittedAt: events.NewTimestamp(time.Now()), EffectID: effect, ReceiptID: "receipt_" + name,
			StateRevision: "rev_" + name, Status: events.Committed, StepKind: events.DurableWriteback,
		},
		Projection: events.Projection{FactRefs: []string{"fact_a"}, SchemaVersion: events.ProjectionSchema, Transition: events.ReplanEntered},
	}
}

// publish publishes n receipts, as an orchestrator does.
func (d *deployment) publish(n int) {
	d.t.Helper()
	publisher := streams.NewPublisher(d.js, streams.PublisherOptions{})
	for range n {
		if _, err := publisher.Publish(d.ctx, d.receipt()); err != nil {
			d.t.Fatal(err)
		}
	}
}

// publishMany publishes n receipts without waiting for each.
func (d *deployment) publishMany(n int) {
	d.t.Helper()
	for range n {
		r := d.receipt()
		header := events.NewEnvelope(r.MessageID(), "probe", events.ReceiptSchema, r.Receipt.CommittedAt).Header()
		header[streams.HeaderMessageID] = []string{r.MessageID()}
		m := &nats.Msg{Subject: streams.ReceiptSubject(r.EventKind), Header: nats.Header(header), Data: events.Canonical(r)}
		if _, err := d.js.PublishMsgAsync(m); err != nil {
			d.t.Fatal(err)
		}
	}
	select {
	case <-d.js.PublishAsyncComplete():
	case <-d.ctx.Done():
		d.t.Fatal("the receipts are not taken in time")
	}
}

// underLoad has receipts be published until the test ends, one each time.
func (d *deployment) underLoad(each time.Duration) {
	ctx, cancel := context.WithCancel(d.ctx)
	over := make(chan struct{})
	d.t.Cleanup(func() {
		cancel()
		<-over
	})
	go func() {
		defer close(over)
		publisher := streams.NewPublisher(d.js, streams.PublisherOptions{})
		ticker := time.NewTicker(each)
		defer ticker.Stop()
		for ctx.Err() == nil {
			if _, err := publisher.Publish(ctx, d.receipt()); err != nil && ctx.Err() == nil {
				d.t.Errorf("a receipt is not taken: %v", err)
				return
			}
			select {
			case <-ticker.C:
			case <-ctx.Done():
			}
		}
	}()
}

// publishRaw publishes what an orchestrator's own publisher would not.
func (d *deployment) publishRaw(subject string, data []byte) {
	d.t.Helper()
	header := events.NewEnvelope(fmt.Sprintf("id_%d", d.turns.Add(1)), "probe", events.ReceiptSchema, "").Header()
	if _, err := d.js.PublishMsg(d.ctx, &nats.Msg{Subject: subject, Header: nats.Header(header), Data: data}); err != nil {
		d.t.Fatal(err)
	}
}

// update changes a stream's configuration, as an operator might by hand.
func (d *deployment) update(name string, change func(*jetstream.StreamConfig)) {
	d.t.Helper()
	stream, err := d.js.Stream(d.ctx, name)
	if err != nil {
		d.t.Fatal(err)
	}
	config := stream.CachedInfo().Config
	change(&config)
	if _, err := d.js.UpdateStream(d.ctx, config); err != nil {
		d.t.Fatal(err)
	}
}

// hold has scrapes be taken for as long on the made-up clock. Before each of them something is done, if there is
// something to do.
func (d *deployment) hold(duration time.Duration, before ...func()) {
	d.t.Helper()
	pace := d.pace
	if pace == 0 {
		pace = 25 * time.Millisecond
	}
	ticker := time.NewTicker(pace)
	defer ticker.Stop()
	for range duration / scrapeInterval {
		for _, do := range before {
			do()
		}
		select {
		case <-ticker.C:
		case <-d.ctx.Done():
			d.t.Fatal("it takes too long")
		}
		d.scrape(d.t, d.targets())
	}
}

// await waits until the sum of what the expression gives, of what is told now, is above the threshold. It takes no
// scrape: what it waits for is real time.
func (d *deployment) await(expr string, above float64) {
	d.t.Helper()
	engine := newEngine()
	d.until(func() string {
		now := newRecording()
		now.scrape(d.t, d.targets())
		sum := 0.0
		for _, found := range query(d.t, engine, now.all(), expr, time.Unix(0, 0).Add(now.at)) {
			sum += found.F
		}
		if sum > above {
			return ""
		}
		return fmt.Sprintf("%s is %v, want more than %v", expr, sum, above)
	})
}

// awaitReady waits until every process is ready.
func (d *deployment) awaitReady() {
	d.t.Helper()
	d.until(func() string {
		now := newRecording()
		now.scrape(d.t, d.targets())
		held := query(d.t, newEngine(), now.all(), "afterwrite_condition > 0", time.Unix(0, 0).Add(now.at))
		if len(held) == 0 {
			return ""
		}
		return held.String()
	})
}

// until looks until there is nothing to complain about.
func (d *deployment) until(look func() (complaint string)) {
	d.t.Helper()
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for {
		complaint := look()
		if complaint == "" {
			return
		}
		select {
		case <-ticker.C:
		case <-d.ctx.Done():
			d.t.Fatalf("in the end: %s", complaint)
		}
	}
}
