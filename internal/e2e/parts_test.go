package e2e

import (
	"context"
	"net/url"
	"strconv"
	"testing"
	"time"

	"github.com/afterwrite/afterwrite/dispatcher"
	"github.com/afterwrite/afterwrite/dispatcher/registry"
	"github.com/afterwrite/afterwrite/internal/natsembed"
	"github.com/afterwrite/afterwrite/streams"
)

// parts is a broker with its streams, to which dispatchers and probes come and go.
type parts struct {
	*world
	broker   natsembed.Options
	server   *natsembed.Server
	settings streams.Settings
	files    registry.Files
}

const mib = 1 << 20

// newParts starts a broker that has the streams for the probes, which are installed but not served. Zero settings
// have the defaults.
func newParts(t *testing.T, settings streams.Settings, probes ...*probe) *parts {
	t.Helper()
	p := &parts{world: newWorld(t), broker: embedded(t.TempDir()), settings: settings}
	p.install(quickRetry, probes...)
	p.startBroker()
	t.Cleanup(func() { p.server.Shutdown() })
	p.open(p.server.ClientURL())
	p.apply()
	return p
}

// install makes the probes all that the next dispatcher has installed.
func (p *parts) install(retry string, probes ...*probe) {
	p.t.Helper()
	p.files = registry.Files{}
	p.settings.Hooks = nil
	for _, probe := range probes {
		p.files.Hooks = append(p.files.Hooks, probe.file(p.t))
		p.settings.Hooks = append(p.settings.Hooks, probe.id())
	}
	p.files.Profiles = registry.File{Name: "profiles.yaml", Data: profiles(retry, p.settings.Hooks...)}
}

func (p *parts) startBroker() {
	p.t.Helper()
	var err error
	if p.server, err = natsembed.Start(p.broker); err != nil {
		p.t.Fatal(err)
	}
}

// restartBroker stops the broker under everybody and starts it again where it was.
func (p *parts) restartBroker() {
	p.t.Helper()
	at, err := url.Parse(p.server.ClientURL())
	if err != nil {
		p.t.Fatal(err)
	}
	if p.broker.Port, err = strconv.Atoi(at.Port()); err != nil {
		p.t.Fatal(err)
	}
	p.server.Shutdown()
	p.startBroker()
}

func (p *parts) apply() {
	p.t.Helper()
	if _, err := streams.Apply(p.ctx, p.js, streams.Default(p.settings)); err != nil {
		p.t.Fatal(err)
	}
}

// running is one dispatcher process.
type running struct {
	*dispatcher.Dispatcher
	ended chan struct{}
	err   error // of Run, once ended is closed
	stop  context.CancelFunc
}

// dispatch runs a dispatcher until it is stopped or the test ends, and waits until it takes receipts.
func (p *parts) dispatch(change ...func(*dispatcher.Options)) *running {
	p.t.Helper()
	installed, err := registry.Load(p.files)
	if err != nil {
		p.t.Fatal(err)
	}
	settings := p.settings
	settings.Hooks = nil
	options := dispatcher.Options{
		Streams: settings, Registry: installed, AnyReceiptAge: true, Lanes: 1, Logger: p.logger.Named("dispatcher"),
	}
	options.NATS.URL, options.NATS.Dialer = p.url, p.dialed
	for _, f := range change {
		f(&options)
	}
	d, err := dispatcher.New(options)
	if err != nil {
		p.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(p.ctx))
	r := &running{Dispatcher: d, ended: make(chan struct{}), stop: stop}
	go func() {
		defer close(r.ended)
		r.err = d.Run(ctx)
	}()
	p.t.Cleanup(func() {
		stop()
		<-r.ended
	})
	select {
	case <-d.Ready():
	case <-r.ended:
		p.t.Fatalf("the dispatcher did not start: %v", r.err)
	case <-p.ctx.Done():
		p.t.Fatal("the dispatcher did not start in time")
	}
	return r
}

// stopped stops the dispatcher and waits until it has ended well.
func (p *parts) stopped(r *running) {
	p.t.Helper()
	r.stop()
	<-r.ended
	if r.err != nil {
		p.t.Fatalf("the dispatcher ended with %v", r.err)
	}
}

// after is closed once d has passed, for a provider that takes its time.
func after(d time.Duration) gate {
	g := make(gate)
	time.AfterFunc(d, g.open)
	return g
}
