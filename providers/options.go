package providers

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/zap"

	"github.com/afterwrite/afterwrite/events"
)

// Defaults of the options.
const (
	DefaultVersion      = "0.0.0"
	DefaultQueue        = 4096
	DefaultDrainTimeout = 30 * time.Second
)

// Option says what a provider serves, and how.
type Option func(*options)

type options struct {
	capability   events.CapabilityID
	hooks        []*hook
	services     []*service
	version      string
	concurrency  int
	queue        int
	drainTimeout time.Duration
	log          *zap.Logger
	registry     prometheus.Registerer
	tracer       trace.Tracer // nil where nothing is traced
	ready        func()
}

// Options is several options as one.
func Options(opts ...Option) Option {
	return func(o *options) {
		for _, opt := range opts {
			opt(o)
		}
	}
}

// WithHook serves the registration's hook. The registration must be the one that dispatchers install: it is the
// promise that the hook's results are held against.
func WithHook(registration *events.Registration, h Hook) Option {
	return func(o *options) { o.hooks = append(o.hooks, &hook{registration, h}) }
}

// WithService serves the service name, "capability.name". timeout bounds one answer, whatever a caller would wait;
// returns is the schema that gates it.
func WithService(name string, timeout time.Duration, returns *events.PayloadSchema, s Service) Option {
	return func(o *options) { o.services = append(o.services, &service{name, timeout, returns, s}) }
}

// WithVersion is the semantic version that the micro service tells.
func WithVersion(version string) Option { return func(o *options) { o.version = version } }

// WithConcurrency is how many calls of each hook and of each service run at once. The default is one a processor.
func WithConcurrency(n int) Option { return func(o *options) { o.concurrency = n } }

// WithQueue is how many calls of each hook and of each service may wait. One more is answered [ErrorOverloaded].
func WithQueue(n int) Option { return func(o *options) { o.queue = n } }

// WithDrainTimeout is how long [Serve] waits for calls in flight when it stops.
func WithDrainTimeout(d time.Duration) Option { return func(o *options) { o.drainTimeout = d } }

// WithLogger is where the provider logs. The default logs nothing.
func WithLogger(log *zap.Logger) Option { return func(o *options) { o.log = log } }

// WithMetrics is where the provider's metrics are registered. The default is nowhere.
func WithMetrics(registry prometheus.Registerer) Option {
	return func(o *options) { o.registry = registry }
}

// WithTracing is where spans of calls go. The default is nowhere; the caller's trace is then passed on as it came.
func WithTracing(provider trace.TracerProvider) Option {
	return func(o *options) {
		if provider != nil {
			o.tracer = provider.Tracer(tracerName)
		}
	}
}

// WithReady has ready called once, as soon as calls are answered.
func WithReady(ready func()) Option { return func(o *options) { o.ready = ready } }

func newOptions(capability events.CapabilityID, opts []Option) (*options, error) {
	o := &options{
		capability:   capability,
		version:      DefaultVersion,
		concurrency:  runtime.GOMAXPROCS(0),
		queue:        DefaultQueue,
		drainTimeout: DefaultDrainTimeout,
		log:          zap.NewNop(),
		registry:     prometheus.NewRegistry(),
		ready:        func() {},
	}
	Options(opts...)(o)
	return o, o.validate()
}

// validate lists every problem at once.
func (o *options) validate() error {
	var problems []error
	problem := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }

	if !events.IsName(o.capability) {
		problem("the capability must be a name")
	}
	if len(o.hooks)+len(o.services) == 0 {
		problem("there must be a hook or a service to serve")
	}
	served := make(map[string]bool)
	unique := func(what, name string) {
		if served[what+name] {
			problem("%s %s must be served once", what, name)
		}
		served[what+name] = true
	}
	for i, h := range o.hooks {
		if h.registration == nil || h.propose == nil {
			problem("hook %d must have a registration and an implementation", i+1)
			continue
		}
		encoded, err := events.Encode(h.registration)
		if err == nil {
			_, err = events.Decode[events.Registration](encoded)
		}
		if err != nil {
			problem("hook %d must have a valid registration: %w", i+1, err)
			continue
		}
		if h.registration.CapabilityID != o.capability {
			problem("hook %s must be of the capability %s", h.registration.HookID, o.capability)
		}
		unique("hook", h.registration.HookID)
	}
	for i, s := range o.services {
		if !events.IsName(s.name) || !strings.HasPrefix(s.name, o.capability+".") {
			problem("service %d must be named by the capability, a dot and a name", i+1)
			continue
		}
		if s.returns == nil || s.answer == nil {
			problem("service %s must have a return schema and an implementation", s.name)
		}
		if s.timeout < time.Millisecond || s.timeout > events.MaxTimeoutMillis*time.Millisecond {
			problem("service %s must have a timeout from 1 ms to 30 s", s.name)
		}
		unique("service", s.name)
	}
	if o.concurrency < 1 {
		problem("the concurrency must be at least 1")
	}
	if o.queue < 1 {
		problem("the queue must be at least 1")
	}
	if o.drainTimeout <= 0 {
		problem("the drain timeout must be positive")
	}
	if o.log == nil {
		problem("the logger must not be nil")
	}
	if o.registry == nil {
		problem("the registry of metrics must not be nil")
	}
	if o.ready == nil {
		problem("the function to call when ready must not be nil")
	}
	if len(problems) > 0 {
		return fmt.Errorf("providers: %w", errors.Join(problems...))
	}
	return nil
}
