package crashtest

import (
	"fmt"

	"github.com/nats-io/nats.go"

	"github.com/afterwrite/afterwrite/events"
	"github.com/afterwrite/afterwrite/streams"
)

// intentsOf is how many intents the provider proposes for a fact.
var intentsOf = map[string]int{"nothing": 0, "one_shelf": 1, "two_shelves": 2}

// path is what the dispatcher is doing when it dies.
type path struct {
	name string
	// places bounds the calls of the hook that are under way at once.
	places int
	// before brings the world to where the path begins, with dispatchers that live.
	before func(w *world)
	// during goes on while the dispatcher that is to die runs, and ends with ended.
	during func(w *world, ended <-chan struct{})
	// after goes on once another one lives.
	after func(w *world)
	// want is what becomes of the dispatch of each receipt, by the receipt's place.
	want []want
	// conflicts and refusals are how many of them are recorded.
	conflicts, refusals int
}

// want is the end of a dispatch.
type want struct {
	status   events.Status
	intents  int
	redriven bool
}

var ends = map[string]want{
	"nothing":     {status: events.StatusNotApplicable},
	"one_shelf":   {status: events.StatusProposed, intents: 1},
	"two_shelves": {status: events.StatusProposed, intents: 2},
}

var paths = []path{
	{
		// Receipts come and are answered; one is told twice, and one is no receipt.
		name: "receipts", places: 16,
		before: func(w *world) {
			w.provider.serve()
			for i, fact := range []string{"two_shelves", "nothing", "one_shelf"} {
				w.publish(receipt(i, fact))
			}
			w.publishMalformed()
		},
		during: func(w *world, ended <-chan struct{}) {
			if w.settled(ended) {
				w.publishAgain(0, "one_shelf")
			}
		},
		after: func(w *world) {
			// What is told first stands, so the second telling waits for the first to be decided.
			if w.settled(nil); len(w.published) == 3 {
				w.publishAgain(0, "one_shelf")
			}
		},
		want:      []want{ends["two_shelves"], ends["nothing"], ends["one_shelf"]},
		conflicts: 1, refusals: 1,
	},
	{
		// Nobody serves the hook until every dispatch waits, or the dispatcher is dead.
		name: "wake-ups", places: 16,
		before: func(w *world) {
			for i, fact := range []string{"one_shelf", "nothing"} {
				w.publish(receipt(i, fact))
			}
		},
		during: func(w *world, ended <-chan struct{}) {
			if w.eventually(ended, w.waiting) {
				w.provider.serve()
			}
		},
		after: func(w *world) { w.provider.serve() },
		want:  []want{ends["one_shelf"], ends["nothing"]},
	},
	{
		// An operator asks again and again until somebody answers.
		name: "redrive", places: 16,
		before: func(w *world) {
			w.provider.set(true)
			w.provider.serve()
			w.publish(receipt(0, "one_shelf"))
			p := w.start(nil)
			w.settled(nil)
			w.stop(p)
			w.provider.set(false)
		},
		during: func(w *world, ended <-chan struct{}) { w.redrive(ended, w.dispatch(0)) },
		after:  func(w *world) { w.redrive(nil, w.dispatch(0)) },
		want:   []want{{status: events.StatusProposed, intents: 1, redriven: true}},
	},
	{
		// One place for several slow calls: receipts and wake-ups contend for it, and calls outlast half the ack wait.
		name: "crowd", places: 1,
		before: func(w *world) {
			w.provider.takes = 6 * ackWait / 10
			for i := range 2 {
				w.publish(receipt(i, "one_shelf"))
			}
			p := w.start(nil)
			w.eventually(nil, w.waiting)
			w.stop(p)
			w.provider.serve()
			w.publish(receipt(2, "nothing"))
		},
		want: []want{ends["one_shelf"], ends["one_shelf"], ends["nothing"]},
	},
}

// publishAgain tells receipt i again, with another fact.
func (w *world) publishAgain(i int, fact string) {
	w.t.Helper()
	again := *w.published[i]
	again.Projection.FactRefs = []string{fact}
	w.publish(&again)
}

// publishMalformed publishes what is no receipt.
func (w *world) publishMalformed() {
	w.t.Helper()
	header := events.NewEnvelope("malformed", "afterwrite/test", events.ReceiptSchema, "").Header()
	ack, err := w.js.PublishMsg(w.ctx, &nats.Msg{
		Subject: streams.ReceiptSubject(events.ReplanRecorded), Header: nats.Header(header), Data: []byte(`{"plan":{}}`),
	})
	if err != nil {
		w.t.Fatal(err)
	}
	w.last = max(w.last, ack.Sequence)
}

// waiting complains unless every receipt's dispatch is journaled to be tried again.
func (w *world) waiting() string {
	waiting := 0
	for i := range w.published {
		if last := w.state(i); last != nil && last.Status == events.StatusRetrying {
			waiting++
		}
	}
	if waiting < len(w.published) {
		return fmt.Sprintf("%d dispatches wait, want %d", waiting, len(w.published))
	}
	return ""
}

// settled waits until every receipt is acknowledged and no wake-up is left. It gives up once ended is closed.
func (w *world) settled(ended <-chan struct{}) bool {
	w.t.Helper()
	return w.eventually(ended, func() string {
		consumer, err := w.js.Consumer(w.ctx, streams.Receipts, streams.DispatcherConsumer)
		if err != nil {
			return err.Error()
		}
		if floor := consumer.CachedInfo().AckFloor.Stream; floor < w.last {
			return fmt.Sprintf("receipts are acknowledged up to %d, want %d", floor, w.last)
		}
		retries, err := w.js.Stream(w.ctx, streams.Retries)
		if err != nil {
			return err.Error()
		}
		if left := retries.CachedInfo().State.Msgs; left > 0 {
			return fmt.Sprintf("%d wake-ups are left", left)
		}
		return ""
	})
}
