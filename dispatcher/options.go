package dispatcher

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/zap"

	"github.com/afterwrite/afterwrite/dispatcher/lane"
	"github.com/afterwrite/afterwrite/dispatcher/registry"
	"github.com/afterwrite/afterwrite/events"
	"github.com/afterwrite/afterwrite/internal/natsconn"
	"github.com/afterwrite/afterwrite/internal/observability"
	"github.com/afterwrite/afterwrite/streams"
)

// Options of a dispatcher. What is zero has the default named at the field.
type Options struct {
	// NATS says where the broker is.
	NATS natsconn.Options
	// Streams are the settings the streams were applied with. The hooks in them are taken from Registry.
	Streams streams.Settings
	// Registry is what is installed.
	Registry *registry.Installed
	// MaxReceiptAge is how old a receipt may be: by default the journal's age less a tenth.
	MaxReceiptAge time.Duration
	// AnyReceiptAge accepts receipts of any age, for importing history. The journal then only knows its own age back.
	AnyReceiptAge bool
	// SkewAllowance is how far the clocks of orchestrators, broker and dispatcher may differ. Default 5 s.
	SkewAllowance time.Duration
	// Lanes run side by side. Default: one a core.
	Lanes int
	// ReceiptsInFlight bounds the receipts under way in one lane; so do the calls that its hooks may have in flight, and as
	// many again as one of them, and dispatches half as many again as those calls. Default 512.
	ReceiptsInFlight int
	// TripAfter is how many failures in a row suspend a hook in a lane. Default 10.
	TripAfter int
	// OpenFor is how long a hook stays suspended before it is probed. Default 5 s.
	OpenFor time.Duration
	// OverdueAfter is how long after its time a wake-up that has not fired is published again. It is looked for at twice
	// that interval. Default 30 s.
	OverdueAfter time.Duration
	// StopGrace is how long a stop waits for what is under way. Default 25 s.
	StopGrace time.Duration
	// Listen is the address for health and metrics, empty for none.
	Listen string
	// Debug is served under /debug/ there, nil for nothing.
	Debug http.Handler
	// Logger gets one line per decision. Default: none.
	Logger *zap.Logger
	// Metrics is where the metrics are registered. Default: a registry of its own.
	Metrics *prometheus.Registry
	// Tracing is where spans go, nil for nowhere: the trace of a receipt is then passed on as it came.
	Tracing trace.TracerProvider
}

const (
	defaultSkew    = 5 * time.Second
	defaultOverdue = 30 * time.Second
	defaultGrace   = 25 * time.Second
	oneTenth       = 10
)

// WithDefaults returns a copy with what is zero filled in.
func (o Options) WithDefaults() Options {
	o.Streams = o.Streams.WithDefaults()
	if o.MaxReceiptAge == 0 && !o.AnyReceiptAge {
		o.MaxReceiptAge = o.Streams.JournalAge - o.Streams.JournalAge/oneTenth
	}
	o.SkewAllowance = cmp.Or(o.SkewAllowance, defaultSkew)
	o.Lanes = cmp.Or(o.Lanes, runtime.GOMAXPROCS(0))
	o.ReceiptsInFlight = cmp.Or(o.ReceiptsInFlight, lane.Options{}.WithDefaults().Receipts)
	o.OverdueAfter = cmp.Or(o.OverdueAfter, defaultOverdue)
	o.StopGrace = cmp.Or(o.StopGrace, defaultGrace)
	o.NATS.Name = cmp.Or(o.NATS.Name, "afterwrite dispatcher")
	if o.Logger == nil {
		o.Logger = zap.NewNop()
	}
	if o.Metrics == nil {
		o.Metrics = observability.NewRegistry()
	}
	if o.Registry != nil {
		o.Streams.RetryHorizon = o.Registry.RetryHorizon()
	}
	return o
}

// Validate lists everything that is wrong, by field.
func (o Options) Validate() error {
	problems := []error{o.NATS.Validate()}
	bad := func(field, rule string) { problems = append(problems, fmt.Errorf("%s %s", field, rule)) }
	if o.Registry == nil {
		bad("Registry", "must be given")
	}
	if err := o.Streams.Validate(); err != nil {
		problems = append(problems, err)
	}
	if o.Lanes < 0 {
		bad("Lanes", "must not be negative")
	}
	if o.MaxReceiptAge < 0 {
		bad("MaxReceiptAge", "must not be negative")
	}
	if o.MaxReceiptAge > o.Streams.JournalAge {
		bad("MaxReceiptAge", "must not be above the journal's age: a receipt that the journal has forgotten would run again")
	}
	if o.SkewAllowance < 0 {
		bad("SkewAllowance", "must not be negative")
	}
	if o.OverdueAfter < 0 {
		bad("OverdueAfter", "must not be negative")
	}
	if o.ReceiptsInFlight < 0 {
		bad("ReceiptsInFlight", "must not be negative")
	}
	if o.TripAfter < 0 {
		bad("TripAfter", "must not be negative")
	}
	return errors.Join(problems...)
}

// laneLimits are what one lane may have under way: receipts, and attempts of each hook.
//
// A hook that hangs holds the receipts of all its places, so there is room for others beside them, also beside several
// that hang. More receipts than that would be kept for nothing.
func (o Options) laneLimits() (receipts int, hooks map[events.HookID]lane.HookLimits) {
	most := o.ReceiptsInFlight
	if len(o.Registry.Limits) > 1 && most > 1 {
		most -= max(1, most/4)
	}
	all, largest := 0, 1
	hooks = make(map[events.HookID]lane.HookLimits, len(o.Registry.Limits))
	for id, l := range o.Registry.Limits {
		places := max(1, min(l.MaxInFlight/o.Lanes, most))
		all, largest = all+places, max(largest, places)
		hooks[id] = lane.HookLimits{Places: places, TripAfter: o.TripAfter, OpenFor: o.OpenFor}
	}
	return min(o.ReceiptsInFlight, all+largest), hooks
}
