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
		at   = func(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }
		come = func(n int) {
			for range n {
				b.messages <- new(nats.Msg)
			}
		}
		take = func(seconds ...int) (waited []time.Duration) {
			for _, s := range seconds {
				<-b.messages
				waited = append(waited, b.took(at(s))/time.Second)
			}
			return waited
		}
	)
	for name, row := range map[string]struct {
		run  func() []time.Duration
		want []time.Duration
	}{
		"what came before the first look":    {func() []time.Duration { come(2); b.look(at(1)); return take(1, 2) }, []time.Duration{1, 2}},
		"what came long after it was empty":  {func() []time.Duration { b.look(at(60)); come(1); return take(61) }, []time.Duration{1}},
		"what lay there while nobody looked": {func() []time.Duration { b.look(at(1)); come(2); b.look(at(60)); return take(60, 60) }, []time.Duration{59, 59}},
		// When the first is taken, at 10, the second is there; what comes later is known to have come after 10, until at
		// 30 all that was there at 10 is taken; and to have come after 30 only when all that was there then is taken.
		"an inbox that is never empty": {func() []time.Duration {
			come(2)
			waited := take(10)
			come(1)
			waited = append(waited, take(20)...)
			come(2)
			waited = append(waited, take(30, 40)...)
			come(1)
			return append(waited, take(50, 60)...)
		}, []time.Duration{10, 20, 20, 30, 40, 30}},
	} {
		b = newInbox(start)
		if diff := cmp.Diff(row.want, row.run()); diff != "" {
			t.Errorf("%s, in seconds (-want +got):\n%s", name, diff)
		}
	}
}
