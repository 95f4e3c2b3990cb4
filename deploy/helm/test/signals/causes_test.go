package signals

import (
	"context"
	"errors"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/afterwrite/afterwrite/dispatcher"
	"github.com/afterwrite/afterwrite/events"
	"github.com/afterwrite/afterwrite/executors"
	"github.com/afterwrite/afterwrite/providers"
	"github.com/afterwrite/afterwrite/streams"
)

var errBroken = errors.New("the probe is broken")

// cause is what goes wrong in a deployment, and which alerts tell of it in the end, with what tells them apart.
type cause struct {
	plan  plan
	goes  func(*deployment)
	fires []string
	// may are those that may fire too, for what follows from it. No other does.
	may []string
}

// causes are what alerts are for. In each, what is said to happen really does.
func causes() map[string]cause {
	good := hook{name: "good", propose: notes}
	const busy = 10 * time.Millisecond // between receipts
	return map[string]cause{
		"the dispatchers are gone": {
			plan: plan{hooks: []hook{good}, effect: does},
			goes: func(d *deployment) {
				d.underLoad(busy)
				d.hold(10 * time.Minute)
				d.stop("dispatcher")
				d.hold(6 * time.Minute)
			},
			fires: []string{"AfterwriteDispatcherAbsent component=dispatcher"},
		},
		"the broker is down": {
			plan: plan{hooks: []hook{good}, effect: does},
			goes: func(d *deployment) {
				d.underLoad(busy)
				d.hold(10 * time.Minute)
				d.broker.Shutdown()
				d.hold(3 * time.Minute)
			},
			fires: []string{
				"AfterwriteBrokerDisconnected component=dispatcher", "AfterwriteBrokerDisconnected component=executor",
				"AfterwriteBrokerDisconnected component=provider",
			},
		},
		"somebody changed a stream by hand": {
			plan: plan{hooks: []hook{good}, effect: does},
			goes: func(d *deployment) {
				d.update(streams.Receipts, func(c *jetstream.StreamConfig) { c.MaxAge = 24 * time.Hour })
				d.await(`afterwrite_condition{condition="topology_differs"}`, 0)
				d.underLoad(busy)
				d.hold(11 * time.Minute)
			},
			fires: []string{"AfterwriteNotReady component=dispatcher condition=topology_differs"},
		},
		"handling a receipt panics": func() cause {
			faulty := new(atomic.Bool)
			return cause{
				// Nothing of ours panics on demand but what is injected, and a logger is.
				plan: plan{hooks: []hook{good}, effect: does, dispatcher: dispatcher.Options{Logger: whenLogged("receipt", func() {
					if faulty.Load() {
						panic("the probe")
					}
				})}},
				goes: func(d *deployment) {
					d.hold(time.Minute)
					faulty.Store(true)
					d.publish(1)
					d.await(`afterwrite_receipts_total{reason="poisoned"}`, 0)
					d.hold(time.Minute)
				},
				fires: []string{"AfterwritePanics source=receipt", "AfterwriteReceiptsPoisoned"},
			}
		}(),
		"handling every message panics": func() cause {
			faulty := new(atomic.Bool)
			return cause{
				plan: plan{hooks: []hook{good}, effect: does, dispatcher: dispatcher.Options{Logger: whenLogged("receipt", func() {
					if faulty.Load() {
						panic("the probe")
					}
				})}},
				goes: func(d *deployment) {
					d.underLoad(busy)
					d.hold(10 * time.Minute)
					faulty.Store(true)
					d.hold(27 * time.Minute)
				},
				fires: []string{"AfterwriteMessagesHandedBack source=receipt", "AfterwritePanics source=receipt", "AfterwriteReceiptsPoisoned"},
			}
		}(),
		"a stream is nearly full": {
			plan: plan{hooks: []hook{good}, effect: does, settings: streams.Settings{JournalMaxBytes: 256 << 10}},
			goes: func(d *deployment) {
				for d.state(streams.Journal).Bytes < 230<<10 {
					d.publish(5)
					d.await("sum(afterwrite_dispatch_records_total) == bool "+strconv.FormatInt(d.turns.Load(), 10), 0)
				}
				d.await(`afterwrite_condition{condition="stream_filling", component="dispatcher"}`, 0)
				d.hold(11 * time.Minute)
			},
			fires: []string{"AfterwriteNotReady component=dispatcher condition=stream_filling", "AfterwriteStreamFilling stream=PWH_JOURNAL"},
		},
		"a stream is full": {
			plan: plan{hooks: []hook{good}, effect: does, settings: streams.Settings{IntentsMaxBytes: 64 << 10}},
			goes: func(d *deployment) {
				d.underLoad(busy)
				d.await(`afterwrite_condition{condition="broker_refuses"}`, 0)
				d.hold(9 * time.Minute)
			},
			fires: []string{"AfterwriteBrokerFailing effect=write", "AfterwriteStreamFilling stream=PWH_INTENTS"},
		},
		"work waits until it is half as old as it may get": func() cause {
			over := make(chan struct{})
			return cause{
				plan: plan{
					hooks: []hook{good, {name: "hung", propose: silent(over), timeout: 30 * time.Second}},
					effect: func(context.Context, *events.Intent, executors.Permit) (*events.Packet, error) {
						return nil, executors.NotStarted(errBroken) // whom it would ask is not there, so that it waits
					},
					settings: streams.Settings{
						ReceiptsAge: 20 * time.Second, JournalAge: 24 * time.Second, IntentsAge: 24 * time.Second,
						ExecutionsAge: 24 * time.Second, DuplicateWindow: 5 * time.Second,
					},
				},
				goes: func(d *deployment) {
					defer close(over)
					d.publish(5)
					d.await(`afterwrite_condition{condition=~"receipts_aging|intents_aging"}`, 1)
					d.hold(6 * time.Minute)
				},
				fires: []string{
					"AfterwriteWorkAging consumer=dispatcher stream=PWH_RECEIPTS",
					"AfterwriteWorkAging consumer=noter--probe-noted stream=PWH_INTENTS",
				},
			}
		}(),
		"receipts are not as they should be": {
			plan: plan{hooks: []hook{good}, effect: does},
			goes: func(d *deployment) {
				d.underLoad(busy)
				d.hold(31*time.Minute, func() {
					d.publishRaw(streams.ReceiptSubject(events.ReplanRecorded), []byte("{}"))
					newer := d.receipt()
					newer.EventKind = "goal_abandoned"
					d.publishRaw(streams.ReceiptSubject(newer.EventKind), encoded(d.t, newer))
					early := d.receipt() // of an orchestrator whose clock is an hour ahead
					early.Receipt.CommittedAt = events.NewTimestamp(time.Now().Add(time.Hour))
					d.publishRaw(streams.ReceiptSubject(early.EventKind), encoded(d.t, early))
				})
			},
			fires: []string{
				"AfterwriteReceiptsRefused reason=from_future", "AfterwriteReceiptsRefused reason=malformed",
				"AfterwriteReceiptsRefused reason=unknown_event_kind",
			},
		},
		"a provider is slow": {
			plan: plan{hooks: []hook{{
				name: "slow", inFlight: 256, propose: after(5500*time.Millisecond, notes),
				provider: []providers.Option{providers.WithConcurrency(256), providers.WithDrainTimeout(10 * time.Second)},
			}}, effect: does},
			goes: func(d *deployment) {
				d.underLoad(4 * busy)
				d.await(`afterwrite_message_seconds_count`, 10)
				d.hold(26 * time.Minute)
			},
			fires: []string{"AfterwriteReceiptsSlow"},
		},
		"a provider breaks the contract": {
			plan: plan{hooks: []hook{good, {name: "sloppy", propose: notes, payload: `{"type":"object","required":["severity"]}`}}, effect: does},
			goes: func(d *deployment) {
				d.underLoad(busy)
				d.hold(30 * time.Minute)
			},
			fires: []string{"AfterwriteDispatchesFailing code=result_contract_rejected hook=probe.sloppy"},
		},
		"a provider fails for some": {
			plan: plan{hooks: []hook{good, {name: "moody", propose: failsForSome}}, effect: does},
			goes: func(d *deployment) {
				d.underLoad(busy)
				d.hold(30 * time.Minute)
			},
			fires: []string{"AfterwriteDispatchesFailing code=producer_failed hook=probe.moody"},
		},
		"a provider fails": {
			plan: plan{hooks: []hook{good, {name: "broken", propose: fails}}, effect: does},
			goes: func(d *deployment) {
				d.underLoad(busy)
				d.hold(20 * time.Minute)
			},
			fires: []string{"AfterwriteHookSuspended hook=probe.broken"},
			may:   []string{"AfterwriteDispatchesFailing code=producer_failed hook=probe.broken", "AfterwriteMessagesHandedBack source=wakeup"},
		},
		"nobody serves a hook": {
			plan: plan{hooks: []hook{good, {name: "absent"}}, effect: does},
			goes: func(d *deployment) {
				d.underLoad(busy)
				d.hold(20 * time.Minute)
			},
			fires: []string{"AfterwriteHookSuspended hook=probe.absent", "AfterwriteProviderAbsent hook=probe.absent"},
			may:   []string{"AfterwriteDispatchesFailing code=producer_failed hook=probe.absent", "AfterwriteMessagesHandedBack source=wakeup"},
		},
		"what waits for a hook piles up": {
			// Nothing is called meanwhile, so that it is the backlog that tells.
			plan: plan{hooks: []hook{good, {name: "absent"}}, effect: does, dispatcher: dispatcher.Options{OpenFor: time.Hour}},
			goes: func(d *deployment) {
				d.publishMany(10_500)
				d.await("afterwrite_hook_backlog_dispatches", 10_000)
				d.underLoad(busy)
				d.pace = 50 * time.Millisecond // it is looked at every five seconds
				d.hold(time.Hour)
			},
			fires: []string{"AfterwriteBacklogGrows hook=probe.absent", "AfterwriteHookSuspended hook=probe.absent"},
		},
		"wake-ups do not fire": {
			plan: plan{
				hooks: []hook{{name: "fickle", propose: failsFirst()}}, effect: does, retry: "{max_attempts: 3, initial: 500ms, max: 500ms}",
				dispatcher: dispatcher.Options{OverdueAfter: time.Second},
			},
			goes: func(d *deployment) {
				d.publish(1)
				d.await(`afterwrite_dispatch_records_total{status="retrying"}`, 0)
				// When the wake-up is due, the store takes nothing.
				d.update(streams.Retries, func(c *jetstream.StreamConfig) { c.MaxMsgSize = 1 })
				d.hold(15 * time.Minute)
				d.update(streams.Retries, func(c *jetstream.StreamConfig) { c.MaxMsgSize = -1 })
				d.await("afterwrite_wakeups_overdue_total", 0)
				d.hold(16 * time.Minute)
			},
			fires: []string{"AfterwriteWakeUpsStuck hook=probe.fickle"},
		},
		"a provider hangs": func() cause {
			over := make(chan struct{})
			return cause{
				plan: plan{hooks: []hook{good, {name: "hung", propose: silent(over), timeout: 100 * time.Millisecond}}, effect: does},
				goes: func(d *deployment) {
					defer close(over)
					d.underLoad(busy)
					d.hold(30 * time.Minute)
				},
				fires: []string{"AfterwriteHookSuspended hook=probe.hung"},
				may:   []string{"AfterwriteMessagesHandedBack source=wakeup"},
			}
		}(),
		"a provider has more calls than it can take": {
			plan: plan{hooks: []hook{good, {
				name: "crowded", propose: after(50*time.Millisecond, notes),
				provider: []providers.Option{providers.WithConcurrency(1), providers.WithQueue(1)},
			}}, effect: does},
			goes: func(d *deployment) {
				d.underLoad(busy)
				d.hold(30 * time.Minute)
			},
			fires: []string{"AfterwriteProviderOverloaded endpoint=probe.crowded"},
			may: []string{ // who is overloaded counts as absent
				"AfterwriteDispatchesFailing code=producer_failed hook=probe.crowded", "AfterwriteHookSuspended hook=probe.crowded",
				"AfterwriteMessagesHandedBack source=wakeup", "AfterwriteProviderAbsent hook=probe.crowded",
			},
		},
		"executions fail": {
			plan: plan{hooks: []hook{good}, effect: func(context.Context, *events.Intent, executors.Permit) (*events.Packet, error) {
				return nil, executors.Never(errBroken)
			}},
			goes: func(d *deployment) {
				d.underLoad(busy)
				d.hold(30 * time.Minute)
			},
			fires: []string{"AfterwriteExecutionsFailing intent_kind=probe.noted"},
		},
		"nobody executes": {
			plan: plan{hooks: []hook{good}},
			goes: func(d *deployment) {
				d.underLoad(busy)
				d.hold(20 * time.Minute)
			},
			fires: []string{"AfterwriteExecutorAbsent intent_kind=probe.noted"},
		},
	}
}

// silent is a provider that answers nobody until the test is over.
func silent(over <-chan struct{}) providers.HookFunc {
	return func(*events.HookInput) ([]providers.Proposal, error) {
		<-over
		return nil, nil
	}
}

// after is a provider that takes as long for every answer.
func after(d time.Duration, propose providers.HookFunc) providers.HookFunc {
	return func(in *events.HookInput) ([]providers.Proposal, error) {
		<-time.After(d)
		return propose(in)
	}
}

// failsForSome fails for about one dispatch in five, as often as it is asked.
func failsForSome(in *events.HookInput) ([]providers.Proposal, error) {
	if last := in.DispatchID[len(in.DispatchID)-1]; last < '3' { // a hexadecimal digit
		return nil, errBroken
	}
	return notes(in)
}

// failsFirst fails once.
func failsFirst() providers.HookFunc {
	var failed atomic.Bool
	return func(in *events.HookInput) ([]providers.Proposal, error) {
		if !failed.Swap(true) {
			return nil, errBroken
		}
		return notes(in)
	}
}

func fails(*events.HookInput) ([]providers.Proposal, error) { return nil, errBroken }

// whenLogged does something whenever a line with the message is about to be written at the debug level.
func whenLogged(message string, do func()) *zap.Logger {
	core := zapcore.NewCore(zapcore.NewJSONEncoder(zap.NewProductionEncoderConfig()), zapcore.AddSync(io.Discard), zap.DebugLevel)
	return zap.New(core, zap.Hooks(func(e zapcore.Entry) error {
		if e.Message == message && e.Level == zap.DebugLevel {
			do()
		}
		return nil
	}))
}

func encoded(t *testing.T, r *events.Receipt) []byte {
	t.Helper()
	data, err := events.Encode(r)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// state is what a stream holds.
func (d *deployment) state(name string) jetstream.StreamState {
	d.t.Helper()
	stream, err := d.js.Stream(d.ctx, name)
	if err != nil {
		d.t.Fatal(err)
	}
	return stream.CachedInfo().State
}

func TestAnAlertFiresFromItsCauseAndNoOtherDoes(t *testing.T) {
	t.Parallel()
	alerts, all := rules(t), causes()
	var mu sync.Mutex
	ran, shown := 0, map[string]bool{}
	t.Run("cause", func(t *testing.T) {
		for _, name := range slices.Sorted(maps.Keys(all)) {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				c := all[name]
				d := deploy(t, c.plan)
				c.goes(d)
				var fires []string
				scraped := d.all()
				for alert, rule := range alerts {
					for _, firing := range firing(t, rule, scraped, scrapeInterval, d.at) {
						fires = append(fires, alert+told(firing))
					}
				}
				slices.Sort(fires)
				fires = slices.DeleteFunc(fires, func(alert string) bool { return slices.Contains(c.may, alert) })
				if diff := cmp.Diff(c.fires, fires); diff != "" {
					t.Errorf("alerts (-want +got):\n%s", diff)
				}
				mu.Lock()
				defer mu.Unlock()
				ran++
				for _, alert := range c.fires {
					name, _, _ := strings.Cut(alert, " ")
					shown[name] = true
				}
			})
		}
	})
	for _, name := range slices.Sorted(maps.Keys(alerts)) {
		if !shown[name] && ran == len(all) {
			t.Errorf("no cause makes %s fire", name)
		}
	}
}

// What ends within a minute, or is mended by the processes themselves, is nobody's business.
func TestWhatHealsByItselfAlertsNobody(t *testing.T) {
	t.Parallel()
	d := deploy(t, plan{hooks: []hook{{name: "good", propose: notes}}, effect: does})
	d.underLoad(10 * time.Millisecond)
	d.hold(20 * time.Minute)
	for _, happens := range []func(){
		func() { d.deleteConsumer(streams.Receipts, streams.DispatcherConsumer) },
		func() { d.deleteConsumer(streams.Intents, streams.ExecutorConsumer(noter, noted)) },
		func() { d.stop("dispatcher"); d.startDispatcher() },
		func() { d.stop("executor"); d.hold(time.Minute); d.startExecutor() },
		func() { d.stop("provider-good"); d.startProvider(d.plan.hooks[0]) },
		func() { d.broker.Shutdown(); d.hold(time.Minute); d.startBroker() },
		func() {
			age := func(age time.Duration) {
				d.update(streams.Receipts, func(c *jetstream.StreamConfig) { c.MaxAge = age })
			}
			age(24 * time.Hour)
			d.await(`afterwrite_condition{condition="topology_differs"}`, 0)
			age(72 * time.Hour)
		},
	} {
		happens()
		d.awaitReady()           // in minutes, of which none is on the made-up clock
		d.hold(12 * time.Minute) // as long as any alert about readiness waits, and more
	}
	d.alertsNobody()
}

func (d *deployment) deleteConsumer(stream, name string) {
	d.t.Helper()
	if err := d.js.DeleteConsumer(d.ctx, stream, name); err != nil {
		d.t.Fatal(err)
	}
}

// told is what an alert says apart from how bad it is, and where.
func told(a expectedAlert) string {
	var text strings.Builder
	for _, label := range slices.Sorted(maps.Keys(a.ExpLabels)) {
		if label != "severity" && label != "namespace" {
			text.WriteString(" " + label + "=" + a.ExpLabels[label])
		}
	}
	return text.String()
}
