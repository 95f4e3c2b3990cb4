package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/afterwrite/afterwrite/dispatcher"
	"github.com/afterwrite/afterwrite/events"
	"github.com/afterwrite/afterwrite/streams"
)

// never is an ack wait that no test outlives: what is not handed back does not come again.
const never = 10 * time.Minute

// decidedOnce holds that every receipt's dispatch was decided once, at its first attempt, and has one intent.
func (w *world) decidedOnce(p *probe, receipts []*events.Receipt) {
	w.t.Helper()
	for _, r := range receipts {
		w.becomes(p, r, proposed)
	}
	decisions := map[events.DispatchID]int{}
	for _, r := range w.records() {
		if r.Attempt != 1 {
			w.t.Errorf("record %d of %s is of attempt %d, want 1", r.RecordNumber, r.DispatchID, r.Attempt)
		}
		// A message that was handed back often is announced before its call, see the core.
		if r.Reason != events.ReasonInvocationStarted {
			decisions[r.DispatchID]++
		}
	}
	for id, n := range decisions {
		if n != 1 {
			w.t.Errorf("dispatch %s was decided %d times, want once", id, n)
		}
	}
	if len(decisions) != len(receipts) {
		w.t.Errorf("%d dispatches, want %d", len(decisions), len(receipts))
	}
	if n := int(w.count(streams.Intents)); n != len(receipts) {
		w.t.Errorf("%d intents, want %d", n, len(receipts))
	}
	if n := len(w.conflicts()); n != 0 {
		w.t.Errorf("%d conflicts, want none", n)
	}
}

// flood publishes as many Turns and gives their receipts. The broker has acknowledged them all when it returns, and may
// not have when it calls what is to happen meanwhile.
func (w *world) flood(prefix string, turns int, meanwhile ...func()) (receipts []*events.Receipt, last uint64) {
	w.t.Helper()
	receipts = make([]*events.Receipt, turns)
	futures := make([]jetstream.PubAckFuture, turns)
	for i := range turns {
		s, err := completed(fmt.Sprint(prefix, i)).settle()
		if err != nil {
			w.t.Fatal(err)
		}
		receipts[i] = s.receipt
		if futures[i], err = w.js.PublishMsgAsync(message(s.receipt)); err != nil {
			w.t.Fatal(err)
		}
	}
	for _, happen := range meanwhile {
		happen()
	}
	for _, f := range futures {
		select {
		case ack := <-f.Ok():
			last = max(last, ack.Sequence)
		case err := <-f.Err():
			w.t.Fatal(err)
		case <-w.ctx.Done():
			w.t.Fatal("the broker did not acknowledge the receipts in time")
		}
	}
	return receipts, last
}

func listening(o *dispatcher.Options) { o.Listen = "127.0.0.1:0" }

// unready waits until the dispatcher says that it is not ready for this reason, of which want is a part.
func (w *world) unready(d *running, want string) {
	w.t.Helper()
	w.eventually(func() string {
		if said := string(w.get(d.Addr().String(), "/readyz")); !strings.Contains(said, want) {
			return fmt.Sprintf("readiness says %q, want %q in it", said, want)
		}
		return ""
	})
}

func TestAStopFinishesWhatIsUnderWay(t *testing.T) {
	t.Parallel()
	release := make(gate)
	p := newProbe("a", nil)
	w := newParts(t, streams.Settings{AckWait: never}, p)
	p.answer = func(c call) answer {
		w.wait(release)
		return proposes(c)
	}
	w.serve(p)
	d := w.dispatch(listening)
	receipts, last := w.flood("turn", 5)
	w.eventually(func() string {
		if n := len(p.made()); n != 5 {
			return fmt.Sprintf("%d calls, want 5", n)
		}
		return ""
	})
	d.stop()
	w.unready(d, "not_started: stopping")
	release.open()
	w.stopped(d)
	w.acknowledged(last)
	w.decidedOnce(p, receipts)
}

func TestAStopHandsBackWhatDoesNotEndInTime(t *testing.T) {
	t.Parallel()
	p := newProbe("a", inOrder(silent, proposes))
	w := newParts(t, streams.Settings{AckWait: never}, p)
	w.serve(p)
	d := w.dispatch(func(o *dispatcher.Options) { o.StopGrace = 100 * time.Millisecond })
	s, at := w.settle(completed("a"))
	w.eventually(func() string {
		if len(p.made()) == 0 {
			return "nobody was called"
		}
		return ""
	})
	w.stopped(d)
	if r := w.state(p, s.receipt); r != nil {
		t.Fatalf("the stop left a record that is %s", r.Status)
	}
	w.dispatch()
	w.acknowledged(at.Sequence)
	w.decidedOnce(p, []*events.Receipt{s.receipt})
}

func TestRollingRestartsUnderWayLoseAndRepeatNothing(t *testing.T) {
	t.Parallel()
	p := newProbe("a", proposes)
	w := newParts(t, streams.Settings{AckWait: never}, p)
	w.serve(p)
	var receipts []*events.Receipt
	var last uint64
	for i := range 6 {
		d := w.dispatch()
		more, at := w.flood(fmt.Sprintf("turn_%d_", i), 100, d.stop) // into the arms of one that is leaving
		receipts, last = append(receipts, more...), at
		w.stopped(d)
	}
	w.dispatch()
	w.acknowledged(last)
	w.decidedOnce(p, receipts)
}

func TestADeletedConsumerIsMadeAgainAndNothingIsSkipped(t *testing.T) {
	t.Parallel()
	healed := make(gate)
	p := newProbe("a", nil)
	p.answer = func(c call) answer {
		select {
		case <-healed:
			return proposes(c)
		default:
			return raises(c)
		}
	}
	w := newParts(t, streams.Settings{}, p)
	w.install("{max_attempts: 100, initial: 1s, max: 1s}", p)
	w.serve(p)
	d := w.dispatch(listening)
	receipts, last := w.flood("before", 5)
	w.acknowledged(last) // all of them wait for another attempt now
	if err := w.js.DeleteConsumer(w.ctx, streams.Retries, streams.RetryConsumer(p.id())); err != nil {
		t.Fatal(err)
	}
	if err := w.js.DeleteConsumer(w.ctx, streams.Receipts, streams.DispatcherConsumer); err != nil {
		t.Fatal(err)
	}
	more, last := w.flood("after", 5)
	healed.open()
	w.eventually(func() string {
		if _, err := w.js.Consumer(w.ctx, streams.Receipts, streams.DispatcherConsumer); err != nil {
			return err.Error()
		}
		return ""
	})
	w.acknowledged(last)
	for _, r := range append(receipts, more...) {
		w.becomes(p, r, proposed)
	}
	w.drained()
	if n := w.count(streams.Intents); n != 10 {
		t.Errorf("%d intents, want 10", n)
	}
	if n := len(w.conflicts()); n != 0 {
		t.Errorf("%d conflicts, want none", n)
	}
	w.ready(d)
}

// ready waits until the dispatcher says that it is.
func (w *world) ready(d *running) {
	w.t.Helper()
	w.eventually(func() string {
		if said := string(w.get(d.Addr().String(), "/readyz")); said != "ready\n" {
			return "readiness says " + said
		}
		return ""
	})
}

func TestADispatcherEndsLoudlyWhenItsJournalIsGone(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name  string
		used  bool // a dispatch is in it
		again bool // an empty one takes its place
	}{
		{"deleted", true, false},
		{"empty in its place", true, true},
		{"empty in its place from the start", false, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			p := newProbe("a", proposes)
			w := newParts(t, streams.Settings{}, p)
			w.serve(p)
			d := w.dispatch(func(o *dispatcher.Options) { o.StopGrace = 100 * time.Millisecond })
			if test.used {
				s, at := w.settle(completed("a"))
				w.acknowledged(at.Sequence)
				w.becomes(p, s.receipt, proposed)
			}
			if err := w.js.DeleteStream(w.ctx, streams.Journal); err != nil {
				t.Fatal(err)
			}
			if test.again {
				w.apply()
			}
			select {
			case <-d.ended:
			case <-w.patient.Done():
				t.Fatal("the dispatcher goes on")
			}
			if d.err == nil || !strings.Contains(d.err.Error(), "the journal was deleted or created anew") {
				t.Errorf("the dispatcher ended with %v, want an error that names the journal", d.err)
			}
		})
	}
}

func TestStreamsThatFollowFromTheJournalAreMadeAgain(t *testing.T) {
	t.Parallel()
	for _, stream := range []string{streams.Intents, streams.Retries} {
		t.Run(stream, func(t *testing.T) {
			t.Parallel()
			healed := make(gate)
			sound, failing := newProbe("sound", proposes), newProbe("failing", nil)
			failing.answer = func(c call) answer {
				select {
				case <-healed:
					return proposes(c)
				default:
					return raises(c)
				}
			}
			w := newParts(t, streams.Settings{}, sound, failing)
			w.install("{max_attempts: 5, initial: 1s, max: 1s}", sound, failing)
			w.serve(sound)
			w.serve(failing)
			w.dispatch()
			receipts, last := w.flood("turn", 5)
			w.acknowledged(last)
			if err := w.js.DeleteStream(w.ctx, stream); err != nil {
				t.Fatal(err)
			}
			healed.open()
			w.apply()
			for _, r := range receipts {
				w.becomes(sound, r, proposed)
				w.becomes(failing, r, proposed)
			}
			w.eventually(func() string {
				if n := w.count(streams.Intents); n != 10 {
					return fmt.Sprintf("%d intents, want 10", n)
				}
				return ""
			})
			w.drained()
		})
	}
}

func TestABrokerThatRestartsUnderWayLosesAndRepeatsNothing(t *testing.T) {
	t.Parallel()
	p := newProbe("a", proposes)
	p.registration.Budget.TimeoutMillis = 1000 // a reply may be on its way while the broker is down
	w := newParts(t, streams.Settings{AckWait: 2 * time.Second}, p)
	w.serve(p)
	w.dispatch()
	w.dispatch()
	const turns = 300
	receipts := make([]*events.Receipt, turns)
	published := make(chan error, 1)
	go func() { published <- w.publishAll(receipts) }()
	for n := range 2 {
		w.eventually(func() string {
			if len(p.made()) < turns/3*(n+1) {
				return "the flow has not begun"
			}
			return ""
		})
		w.restartBroker()
	}
	if err := <-published; err != nil {
		t.Fatal(err)
	}
	for _, r := range receipts {
		w.becomes(p, r, proposed)
	}
	w.acknowledged(w.count(streams.Receipts))
	w.drained()
	if n := w.count(streams.Intents); n != turns {
		t.Errorf("%d intents, want %d", n, turns)
	}
	if n := len(w.conflicts()); n != 0 {
		t.Errorf("%d conflicts, want none", n)
	}
}

// publishAll settles as many Turns and publishes their receipts one by one, as an orchestrator does.
func (w *world) publishAll(receipts []*events.Receipt) error {
	publisher := streams.NewPublisher(w.js, streams.PublisherOptions{AttemptTimeout: 500 * time.Millisecond})
	for i := range receipts {
		s, err := completed(fmt.Sprint("turn", i)).settle()
		if err != nil {
			return err
		}
		receipts[i] = s.receipt
		if _, err := publisher.Publish(w.ctx, s.receipt); err != nil {
			return err
		}
	}
	return nil
}

func TestWorkGoesOnOnceAFullStreamHasRoomAgain(t *testing.T) {
	t.Parallel()
	const small = 24 << 10
	for _, test := range []struct {
		stream string
		size   func(*streams.Settings) *int64
	}{
		{streams.Journal, func(s *streams.Settings) *int64 { return &s.JournalMaxBytes }},
		{streams.Intents, func(s *streams.Settings) *int64 { return &s.IntentsMaxBytes }},
	} {
		t.Run(test.stream, func(t *testing.T) {
			t.Parallel()
			p := newProbe("a", proposes)
			settings := streams.Settings{}
			*test.size(&settings) = small
			w := newParts(t, settings, p)
			w.serve(p)
			d := w.dispatch(listening)
			const turns = 40
			receipts, last := w.flood("turn", turns)
			w.unready(d, "stream_filling: "+test.stream+" holds ")
			w.unready(d, "broker_refuses: ")

			consumer, err := w.js.Consumer(w.ctx, streams.Receipts, streams.DispatcherConsumer)
			if err != nil {
				t.Fatal(err)
			}
			floor := consumer.CachedInfo().AckFloor.Stream
			if floor >= last {
				t.Fatal("everything fits, so that nothing was tried")
			}
			for _, r := range receipts[:floor] { // they were published in this order, alone
				if record := w.state(p, r); record == nil || w.last(streams.Intents, streams.IntentSubject(record.Intents[0].IntentID, probeKind)) == nil {
					t.Errorf("%s is acknowledged without a record and its intent", r.Receipt.ReceiptID)
				}
			}

			*test.size(&w.settings) = mib
			w.apply()
			w.acknowledged(last)
			w.decidedOnce(p, receipts)
		})
	}
}
