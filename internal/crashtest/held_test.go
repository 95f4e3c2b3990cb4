package crashtest

import (
	"iter"

	"github.com/google/go-cmp/cmp"

	"github.com/afterwrite/afterwrite/dispatcher/journal"
	"github.com/afterwrite/afterwrite/events"
	"github.com/afterwrite/afterwrite/streams"
)

// uncounted is how many deliveries of a message may begin a call that the journal does not know of yet.
const uncounted = 3

// dispatch is the dispatch of receipt i, reckoned from the contract alone.
func (w *world) dispatch(i int) events.DispatchID {
	registration := events.Registration{
		SchemaVersion: events.RegistrationSchema, HookID: hookID, CapabilityID: capabilityID,
		Phase: events.PostWriteback, FailurePolicy: events.Isolate,
		EventKinds: []events.EventKind{events.ReplanRecorded}, IntentKinds: []events.IntentKind{intentKind},
		RequestedReadScope: []events.ReadScope{events.SettlementIdentity, events.BoundedEventProjection},
	}
	return events.DispatchIdentity(w.published[i].Identity(), hookID, capabilityID, registration.Digest(), events.ReplanRecorded)
}

func collect[D any](w *world, stored iter.Seq2[streams.Stored[D], error]) []D {
	w.t.Helper()
	var all []D
	for s, err := range stored {
		if err != nil {
			w.t.Fatal(err)
		}
		all = append(all, s.Document)
	}
	return all
}

// state is the last record of the dispatch of receipt i, nil if there is none.
func (w *world) state(i int) *events.DispatchReceipt {
	w.t.Helper()
	records := collect(w, journal.History(w.ctx, w.js, w.dispatch(i)))
	if len(records) == 0 {
		return nil
	}
	return records[len(records)-1]
}

// hold holds what is there once everything has settled.
func (w *world) hold(p path) {
	w.t.Helper()
	proposed := map[events.IntentID]int{}
	for i, want := range p.want {
		records := collect(w, journal.History(w.ctx, w.js, w.dispatch(i)))
		w.holdRecords(want, records)
		for _, record := range records {
			for k := range record.Intents {
				proposed[record.Intents[k].IntentID]++
			}
		}
		if calls := w.provider.called(w.dispatch(i)); calls > uncounted+maxInvocations*(1+redrives(want)) {
			w.t.Errorf("the provider was called %d times for one dispatch", calls)
		}
	}
	if states := collect(w, journal.States(w.ctx, w.js)); len(states) != len(p.want) {
		w.t.Errorf("the journal knows %d dispatches, want %d", len(states), len(p.want))
	}
	published := map[events.IntentID]int{}
	for _, intent := range collect(w, streams.Read(w.ctx, w.js, streams.Intents, streams.IntentFilter(""), false,
		func(data []byte) (*events.Intent, error) { return events.Decode[events.Intent](data) })) {
		published[intent.IntentID]++
	}
	if diff := cmp.Diff(proposed, published); diff != "" {
		w.t.Errorf("how often each intent is proposed and published (-proposed +published):\n%s", diff)
	}
	for id, n := range published {
		if n != 1 {
			w.t.Errorf("the intent %s is published %d times", id, n)
		}
	}
	if n := len(collect(w, journal.Conflicts(w.ctx, w.js, ""))); n != p.conflicts {
		w.t.Errorf("%d conflicts, want %d", n, p.conflicts)
	}
	if n := len(collect(w, journal.Refusals(w.ctx, w.js))); n != p.refusals {
		w.t.Errorf("%d refusals, want %d", n, p.refusals)
	}
}

func redrives(want want) int {
	if want.redriven {
		return 1
	}
	return 0
}

// holdRecords holds the records of one dispatch against the design's status table, and its end.
func (w *world) holdRecords(want want, records []*events.DispatchReceipt) {
	w.t.Helper()
	if len(records) == 0 {
		w.t.Error("a receipt was acknowledged and left no record")
		return
	}
	var ends []events.Status
	for i, record := range records {
		if record.RecordNumber != i+1 {
			w.t.Errorf("record %d of %s is numbered %d", i+1, record.DispatchID, record.RecordNumber)
		}
		if record.Invocations > maxInvocations || record.Attempt > maxAttempts {
			w.t.Errorf("%d invocations of %d in %d attempts of %d", record.Invocations, maxInvocations, record.Attempt, maxAttempts)
		}
		if record.Status.Terminal() {
			ends = append(ends, record.Status)
		}
	}
	wanted := []events.Status{want.status}
	if want.redriven {
		wanted = []events.Status{events.StatusFailed, want.status}
	}
	if diff := cmp.Diff(wanted, ends); diff != "" {
		w.t.Errorf("ends of a dispatch (-want +got):\n%s", diff)
	}
	last := records[len(records)-1]
	if !last.Status.Terminal() || len(last.Intents) != want.intents {
		w.t.Errorf("the last record says %s with %d intents, want %s with %d", last.Status, len(last.Intents), want.status, want.intents)
	}
}

func (p *provider) called(dispatch events.DispatchID) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.calls[dispatch]
}
