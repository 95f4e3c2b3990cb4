package clustertest

import (
	"context"
	"iter"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"

	"github.com/afterwrite/afterwrite/dispatcher/journal"
	"github.com/afterwrite/afterwrite/events"
	"github.com/afterwrite/afterwrite/streams"
)

const (
	writers = 32
	// gatherTimeout is how long the first call may wait for the last one.
	gatherTimeout = 30 * time.Second
)

func TestOfThirtyTwoThatCreateOneDispatchOneWins(t *testing.T) {
	t.Parallel()
	w := newWorld(t, gatherTimeout)
	t.Run("writers", func(t *testing.T) { raceWriters(t, w) })
	// What each call of a receipt's hook answers: the same, or each something else.
	shelves := map[string]func(place int) string{
		"same":      func(int) string { return "shelf" },
		"different": func(place int) string { return "shelf_" + strconv.Itoa(place) },
	}
	gatherings := map[string]*gathering{}
	for fact := range shelves {
		gatherings[fact] = &gathering{missing: writers, all: make(chan struct{})}
	}
	w.provide(func(in *events.HookInput) *events.HookResult {
		fact := in.Projection.FactRefs[0]
		// No decision is made before all have been called.
		return propose(in.DispatchID, shelves[fact](gatherings[fact].join(w.ctx)))
	})
	for range 4 {
		w.dispatch(writers / 4)
	}
	t.Run("decisions that agree", func(t *testing.T) { raceDecisions(t, w, "same", 0) })
	t.Run("decisions that differ", func(t *testing.T) { raceDecisions(t, w, "different", writers-1) })
}

// raceWriters has every writer create the record of a dispatch at once.
func raceWriters(t *testing.T, w *world) {
	dispatches := 8
	if *full {
		dispatches = 200
	}
	all := make([]*client, writers)
	start := time.Now()
	for i := range all {
		all[i] = &client{id: i, nc: w.connect(w.cluster.Nodes()[i%nodes].ClientURL()), start: start}
	}
	for n := range dispatches {
		subject := streams.JournalSubject(w.dispatchOf(receipt(1000+n)), hookID)
		var racing sync.WaitGroup
		outcomes := make([]outcome, writers)
		ready := make(chan struct{})
		for i, c := range all {
			racing.Go(func() {
				<-ready
				outcomes[i] = c.append(w.ctx, subject, 0, action{register: subject, write: "writer " + strconv.Itoa(i)})
			})
		}
		close(ready)
		racing.Wait()
		won := 0
		for _, o := range outcomes {
			if o.kind == done {
				won++
			}
			if o.kind == unanswered {
				t.Errorf("a writer was not answered, though nothing happened to the cluster")
			}
		}
		if won != 1 {
			t.Errorf("%d of %d writers won, want 1", won, writers)
		}
		all[0].read(w.ctx, subject)
	}
	var history []porcupine.Operation
	for _, c := range all {
		history = append(history, c.history...)
	}
	if result := porcupine.CheckOperationsTimeout(register.ToModel(), history, time.Minute); result != porcupine.Ok {
		t.Errorf("the history is not that of a register with compare-and-set: %s", result)
	}
}

// gathering lets everybody go once so many have come.
type gathering struct {
	mu      sync.Mutex
	missing int
	all     chan struct{}
}

func (g *gathering) join(ctx context.Context) (place int) {
	g.mu.Lock()
	if g.missing--; g.missing == 0 {
		close(g.all)
	}
	place = g.missing
	g.mu.Unlock()
	select {
	case <-g.all:
	case <-ctx.Done():
	}
	return place
}

// raceDecisions has one receipt told as often as there are lanes, and each telling decided on an empty journal.
func raceDecisions(t *testing.T, w *world, fact string, wantConflicts int) {
	r := receipt(wantConflicts)
	r.Projection.FactRefs = []string{fact}
	var last uint64
	for i := range writers {
		last = w.publishAs(fact+strconv.Itoa(i), r)
	}
	w.settled(last)

	dispatch := w.dispatchOf(r)
	records := documents(w, func() iter.Seq2[journal.Record, error] { return journal.History(w.ctx, w.js, dispatch) })
	if len(records) != 1 || records[0].Status != events.StatusProposed {
		t.Fatalf("%d records, want one that proposes", len(records))
	}
	conflicts := 0
	for _, conflict := range documents(w, w.conflicts) {
		if conflict.DispatchID != dispatch {
			continue
		}
		conflicts++
		if conflict.Reason != events.ReasonResultDiffers || conflict.StandingDigest != string(records[0].ResultDigest) {
			t.Errorf("a conflict says %s with %s, want result_differs with the record that stands", conflict.Reason, conflict.StandingDigest)
		}
	}
	if conflicts != wantConflicts {
		t.Errorf("%d conflicts, want %d", conflicts, wantConflicts)
	}
	intents := map[events.IntentID]int{}
	for _, intent := range documents(w, w.intents) {
		if intent.SourceDispatchID == dispatch {
			intents[intent.IntentID]++
		}
	}
	if diff := cmp.Diff(map[events.IntentID]int{records[0].Intents[0].IntentID: 1}, intents); diff != "" {
		t.Errorf("how often each intent is there (-want +got):\n%s", diff)
	}
}

// publishAs publishes a receipt under another message id than its own: the broker takes it for another message.
func (w *world) publishAs(id string, r *events.Receipt) uint64 {
	w.t.Helper()
	header := events.NewEnvelope(id, "afterwrite/test", events.ReceiptSchema, "").Header()
	header[streams.HeaderMessageID] = []string{id}
	ack, err := w.js.PublishMsg(w.ctx, &nats.Msg{
		Subject: streams.ReceiptSubject(r.EventKind), Header: nats.Header(header), Data: events.Canonical(r),
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return ack.Sequence
}
