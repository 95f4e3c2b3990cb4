package dispatcher

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
)

// A bound that is too large has the lane leave a receipt to its ack deadline, one that is too small has it work on one
// that somebody else has been given.
func TestTheInboxBoundsHowLongAMessageLayInIt(t *testing.T) {
	start := time.Now()
	var (
		b    inbox
		at   = func(seconds float64) time.Time { return start.Add(time.Duration(seconds * float64(time.Second))) }
		come = func(n int) {
			for range n {
				b.messages <- new(nats.Msg)
			}
		}
		// idle looks as often as a lane does that is idle.
		idle = func(from, to float64) {
			for s := from; s <= to; s += 0.5 {
				b.look(at(s))
			}
		}
		take = func(seconds ...float64) (waited []float64) {
			for _, s := range seconds {
				<-b.messages
				waited = append(waited, b.took(at(s)).Seconds())
			}
			return waited
		}
	)
	for name, row := range map[string]struct {
		run  func() []float64
		want []float64
	}{
		"what came before the first look":    {func() []float64 { come(2); b.look(at(0.5)); return take(0.5, 1) }, []float64{0.5, 1}},
		"what came long after it was empty":  {func() []float64 { idle(0, 60); come(1); return take(60.5) }, []float64{0.5}},
		"what lay there while nobody looked": {func() []float64 { idle(0, 1); come(2); b.look(at(60)); return take(60, 60) }, []float64{59, 59}},
		"what the client still held when the process was resumed": {func() []float64 {
			idle(0, 1)
			b.look(at(60))
			come(2)
			return take(60, 60.5)
		}, []float64{59, 59.5}},
		"what came a while after that": {func() []float64 {
			idle(0, 1)
			idle(60, 62)
			come(1)
			return take(62.5)
		}, []float64{0.5}},
		// When the first is taken, at 0.1, the second is there; what comes later is known to have come after 0.1, until at
		// 0.3 all that was there at 0.1 is taken; and to have come after 0.3 only when all that was there then is taken.
		"an inbox that is never empty": {func() []float64 {
			come(2)
			waited := take(0.1)
			come(1)
			waited = append(waited, take(0.2)...)
			come(2)
			waited = append(waited, take(0.3, 0.4)...)
			come(1)
			return append(waited, take(0.5, 0.6)...)
		}, []float64{0.1, 0.2, 0.2, 0.3, 0.4, 0.3}},
	} {
		b = newInbox(start)
		if diff := cmp.Diff(row.want, row.run()); diff != "" {
			t.Errorf("%s, in seconds (-want +got):\n%s", name, diff)
		}
	}
}

// What is asked for too soon would be dropped for its age as soon as it comes, and the next that is asked for likewise.
func TestNothingIsAskedForUntilASecondAfterAPause(t *testing.T) {
	start := time.Now()
	b := newInbox(start)
	var got []bool
	for _, ms := range []int{0, 100, 1100, 2101, 2600, 3100, 3101, 3200} {
		got = append(got, b.look(start.Add(time.Duration(ms)*time.Millisecond)))
	}
	if diff := cmp.Diff([]bool{true, true, true, false, false, false, true, true}, got); diff != "" {
		t.Errorf("may be asked (-want +got):\n%s", diff)
	}
}
