package clustertest

import (
	"iter"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/zap"

	"github.com/afterwrite/afterwrite/dispatcher/journal"
	"github.com/afterwrite/afterwrite/events"
	"github.com/afterwrite/afterwrite/streams"
)

const (
	zapLevel = zap.ErrorLevel
	// callTimeout is short: an answer that is lost with its node is soon asked for again.
	callTimeout = 5 * time.Second
)

// disturbances are what happens to the cluster while receipts flow. Each ends with all nodes there.
var disturbances = map[string]func(f *flow){
	"the journal's leader is stopped": func(f *flow) {
		leader := f.cluster.StreamLeader(streams.Journal)
		leader.Stop()
		f.more(50)
		leader.Start()
		f.cluster.AwaitCurrent(streams.Journal)
	},
	"the leader of the receipts is isolated": func(f *flow) {
		leader := f.cluster.StreamLeader(streams.Receipts)
		leader.Isolate()
		f.more(50)
		leader.Rejoin()
		f.cluster.AwaitCurrent(streams.Receipts)
	},
	"all are restarted": func(f *flow) {
		for _, node := range f.cluster.Nodes() {
			node.Stop()
		}
		for _, node := range f.cluster.Nodes() {
			node.Start()
		}
		f.more(50)
	},
	"one after the other is restarted": func(f *flow) {
		for _, node := range f.cluster.Nodes() {
			node.Stop()
			f.more(20)
			node.Start()
			f.cluster.AwaitCurrent(streams.Journal)
		}
	},
}

// quick are the disturbances of the short form, in one flow.
var quick = []string{"the journal's leader is stopped", "all are restarted"}

// flow is receipts that are published all the time, to be dispatched by two dispatchers.
type flow struct {
	*world
	published atomic.Int64 // receipts that the broker has taken
	last      atomic.Uint64
	mu        sync.Mutex
	receipts  []*events.Receipt
	stop      chan struct{}
	wg        sync.WaitGroup
}

func startFlow(w *world) *flow {
	w.t.Helper()
	w.provide(func(in *events.HookInput) *events.HookResult { return propose(in.DispatchID, "shelf") })
	w.dispatch(2)
	w.dispatch(2)
	f := &flow{world: w, stop: make(chan struct{})}
	var next atomic.Int64
	for _, node := range w.cluster.Nodes() {
		// Whichever node is cut off from the others, somebody can publish.
		js, err := jetstream.New(w.connect(node.ClientURL()))
		if err != nil {
			w.t.Fatal(err)
		}
		publisher := streams.NewPublisher(js, streams.PublisherOptions{AttemptTimeout: time.Second, MaxBackoff: 500 * time.Millisecond})
		f.wg.Go(func() {
			for {
				select {
				case <-f.stop:
					return
				case <-time.After(5 * time.Millisecond):
				}
				r := receipt(int(next.Add(1)))
				done, err := publisher.Publish(w.ctx, r)
				if err != nil {
					w.t.Errorf("publish: %v", err)
					return
				}
				f.took(r, done.Sequence)
			}
		})
	}
	return f
}

func (f *flow) took(r *events.Receipt, sequence uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.receipts = append(f.receipts, r)
	f.last.Store(max(f.last.Load(), sequence))
	f.published.Add(1)
}

// more waits until the broker has taken so many more receipts.
func (f *flow) more(n int64) {
	f.t.Helper()
	ticker := time.NewTicker(poll)
	defer ticker.Stop()
	for want := f.published.Load() + n; f.published.Load() < want; {
		select {
		case <-ticker.C:
		case <-f.ctx.Done():
			f.t.Fatalf("the broker took %d receipts, want %d", f.published.Load(), want)
		}
	}
}

// finish stops publishing, and holds what is there once everything has settled.
func (f *flow) finish() {
	f.t.Helper()
	close(f.stop)
	f.wg.Wait()
	f.settled(f.last.Load())
	for _, stream := range []string{streams.Journal, streams.Intents} {
		f.cluster.AwaitCurrent(stream) // what is read below comes from any replica
	}
	ends, intents := map[events.DispatchID]int{}, map[events.IntentID]int{}
	for _, record := range documents(f.world, f.records) {
		if record.Status.Terminal() {
			ends[record.DispatchID]++
		}
		if record.Invocations > maxInvocations {
			f.t.Errorf("%d invocations of %d", record.Invocations, maxInvocations)
		}
	}
	for _, intent := range documents(f.world, f.intents) {
		intents[intent.IntentID]++
	}
	wantEnds, wantIntents := map[events.DispatchID]int{}, map[events.IntentID]int{}
	for _, r := range f.receipts {
		dispatch := f.dispatchOf(r)
		wantEnds[dispatch] = 1
		wantIntents[propose(dispatch, "shelf").Intents[0].IntentID] = 1
	}
	if diff := cmp.Diff(wantEnds, ends); diff != "" {
		f.t.Errorf("ends of each dispatch (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(wantIntents, intents); diff != "" {
		f.t.Errorf("how often each intent is there (-want +got):\n%s", diff)
	}
	if n := len(documents(f.world, f.conflicts)); n > 0 {
		f.t.Errorf("%d conflicts, want none", n)
	}
	f.t.Logf("%d receipts, all accounted for", len(f.receipts))
}

// documents reads to the end, again from the beginning while the cluster does not let it.
func documents[D any](w *world, read func() iter.Seq2[streams.Stored[D], error]) []D {
	w.t.Helper()
	for {
		documents, err := readAll(read())
		if err == nil {
			return documents
		}
		select {
		case <-time.After(poll):
		case <-w.ctx.Done():
			w.t.Fatal(err)
		}
	}
}

func readAll[D any](stored iter.Seq2[streams.Stored[D], error]) (documents []D, _ error) {
	for s, err := range stored {
		if err != nil {
			return nil, err
		}
		documents = append(documents, s.Document)
	}
	return documents, nil
}

func (w *world) records() iter.Seq2[streams.Stored[*events.DispatchReceipt], error] {
	return streams.Read(w.ctx, w.js, streams.Journal, streams.JournalFilter(), false,
		func(data []byte) (*events.DispatchReceipt, error) { return events.Decode[events.DispatchReceipt](data) })
}

func (w *world) intents() iter.Seq2[streams.Stored[*events.Intent], error] {
	return streams.Read(w.ctx, w.js, streams.Intents, streams.IntentFilter(""), false,
		func(data []byte) (*events.Intent, error) { return events.Decode[events.Intent](data) })
}

func (w *world) conflicts() iter.Seq2[streams.Stored[*events.Conflict], error] {
	return journal.Conflicts(w.ctx, w.js, "")
}

func TestWhateverHappensToTheClusterNothingIsLostAndNothingIsDoubled(t *testing.T) {
	t.Parallel()
	if !*full {
		f := startFlow(newWorld(t, callTimeout))
		for _, name := range quick {
			f.more(20)
			disturbances[name](f)
		}
		f.finish()
		return
	}
	const rounds = 5
	for name, disturb := range disturbances {
		t.Run(name, func(t *testing.T) {
			f := startFlow(newWorld(t, callTimeout))
			for range rounds {
				f.more(500)
				disturb(f)
			}
			f.finish()
		})
	}
}
