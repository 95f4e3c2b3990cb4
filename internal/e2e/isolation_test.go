package e2e

import (
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/afterwrite/afterwrite/dispatcher"
	"github.com/afterwrite/afterwrite/events"
	"github.com/afterwrite/afterwrite/streams"
)

// conducts are the ways in which a provider may behave, each with what becomes of its own dispatch.
var conducts = []struct {
	name   string
	answer func(call) answer
	want   verdict
}{
	{"proposes", proposes, proposed},
	{"says that it does not matter", func(c call) answer { return c.propose() }, verdict{status: events.StatusNotApplicable}},
	{"raises", raises, verdict{events.StatusFailed, events.CodeProducerFailed, events.ReasonInvocationsExhausted}},
	{"is silent", silent, verdict{events.StatusFailed, events.CodeProducerTimedOut, events.ReasonInvocationsExhausted}},
	{"babbles", func(c call) answer { return c.says([]byte("{")) },
		verdict{events.StatusFailed, events.CodeResultContractRejected, events.ReasonResultMalformed}},
	{"says too much", func(c call) answer { return c.says(make([]byte, 1<<20-1)) },
		verdict{events.StatusFailed, events.CodeResultContractRejected, events.ReasonResultTooLarge}},
	{"says it in no envelope", func(c call) answer { return answer{data: proposes(c).data} },
		verdict{events.StatusFailed, events.CodeResultContractRejected, events.ReasonResultMalformed}},
	{"says it as another document", func(c call) answer {
		return answer{events.NewEnvelope(c.input.DispatchID, "probe", events.IntentSchema, "").Header(), proposes(c).data}
	}, verdict{events.StatusFailed, events.CodeResultContractRejected, events.ReasonResultMalformed}},
	{"says the same twice", func(c call) answer { return c.propose(c.note("x"), c.note("x")) },
		verdict{events.StatusFailed, events.CodeResultContractRejected, events.ReasonIntentRepeated}},
	{"speaks for its neighbour", func(c call) answer {
		c.input.HookID = probeCapability + ".neighbour"
		return c.propose(c.note("x"))
	}, verdict{events.StatusFailed, events.CodeResultContractRejected, events.ReasonResultIdentity}},
}

func TestWhatBecomesOfADispatchDependsOnItsOwnProviderOnly(t *testing.T) {
	t.Parallel()
	const hooks = 4
	var modes [hooks]atomic.Int32
	var probes []*probe
	for i := range hooks {
		p := newProbe(fmt.Sprint("hook", i), func(c call) answer { return conducts[modes[i].Load()].answer(c) })
		p.registration.Budget.MaxInvocationsPerDispatch = 1
		p.registration.Budget.TimeoutMillis = 50
		probes = append(probes, p)
	}
	w := newParts(t, streams.Settings{}, probes...)
	for _, p := range probes {
		w.serve(p)
	}
	w.dispatch(func(o *dispatcher.Options) { o.TripAfter = 1 << 20 }) // the breaker has tests of its own
	turns := 0
	rapid.Check(t, func(t *rapid.T) {
		for i := range modes {
			modes[i].Store(rapid.Int32Range(0, int32(len(conducts)-1)).Draw(t, probes[i].id()))
		}
		turns++
		s, at := w.settle(completed(fmt.Sprint("turn", turns)))
		w.acknowledged(at.Sequence)
		for i, p := range probes {
			conduct := conducts[modes[i].Load()]
			record := w.state(p, s.receipt)
			// A machine under load may be too slow for the timeout, which then is the provider's own fault again.
			if record == nil || verdictOf(record) != conduct.want && record.Code != events.CodeProducerTimedOut {
				t.Errorf("%s, which %s, became %+v, want %s", p.id(), conduct.name, record, conduct.want)
			}
		}
	})
}

// One provider that is dead, absent or drowning costs the others nothing. How long they take is told and not asserted.
func TestADeadProviderLeavesTheOthersAlone(t *testing.T) {
	t.Parallel()
	var dead atomic.Bool
	sound, sick := newProbe("sound", proposes), newProbe("sick", func(c call) answer {
		if dead.Load() {
			return silent(c)
		}
		return proposes(c)
	})
	sick.registration.Budget.TimeoutMillis = 500
	sick.limits = `"max_in_flight":16`
	w := newParts(t, streams.Settings{}, sound, sick)
	w.install("{max_attempts: 100, initial: 200ms, max: 1s}", sound, sick)
	w.serve(sound)
	w.serve(sick)
	w.dispatch(func(o *dispatcher.Options) { o.OpenFor = 200 * time.Millisecond })

	const turns = 100
	measure := func(prefix string) time.Duration {
		receipts, last := w.flood(prefix, turns)
		var waits []time.Duration
		for _, r := range receipts {
			record := w.becomes(sound, r, proposed)
			if record.Attempt != 1 {
				t.Errorf("%s was decided at attempt %d, want 1", sound.id(), record.Attempt)
			}
			waits = append(waits, record.RecordedAt.Time().Sub(r.Receipt.CommittedAt.Time()))
		}
		w.acknowledged(last)
		slices.Sort(waits)
		return waits[len(waits)*99/100]
	}
	before := measure("before")
	dead.Store(true)
	t.Logf("99 of 100 were recorded %s after their writeback, and %s while another hook's provider was dead", before, measure("while"))
	dead.Store(false)
	w.drained() // the sick one's backlog, without help
	for _, record := range w.records() {
		if record.HookID == sick.id() && record.Status == events.StatusFailed {
			t.Errorf("a dispatch of %s failed as %s", sick.id(), verdictOf(record))
		}
	}
	if n := w.count(streams.Intents); n != 4*turns {
		t.Errorf("%d intents, want %d", n, 4*turns)
	}
}
