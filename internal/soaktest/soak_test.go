package soaktest

import (
	"flag"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go"

	"github.com/afterwrite/afterwrite/dispatcher/journal"
	"github.com/afterwrite/afterwrite/events"
	"github.com/afterwrite/afterwrite/streams"
)

var (
	receipts = flag.Int("receipts", 3_000, "how many receipts the heap is looked at over")
	backlog  = flag.Int("backlog", 1_000, "how many receipts wait meanwhile")
	hold     = flag.Duration("hold", time.Second, "how long a hook hangs, and is watched before it does")
	rate     = flag.Int("rate", 200, "receipts a second meanwhile")
)

// The heap after a collection says what the dispatcher keeps. It must depend neither on what waits nor on what was
// done; by how much it varied is reported.
func TestEveryReceiptOfABacklogIsSettledInBoundedMemory(t *testing.T) {
	const hook, looks = "steady.hook", 10
	w := newWorld(t, time.Minute+time.Duration(*receipts)*time.Millisecond, hook)
	w.serve(hook, nil)
	var heaps []float64
	published := 0
	began := time.Now()
	for look := 1; look <= looks; look++ {
		upTo := *receipts * look / looks
		w.eventually("the receipts of this part", func() bool {
			settled := w.settled()
			for ; published < min(settled+*backlog+*backlog/2, *receipts+*backlog); published++ {
				w.publish(published)
			}
			return settled >= upTo
		})
		heaps = append(heaps, w.heap())
		t.Logf("%8d settled, %7d wait, heap %.1f MB", upTo, published-w.settled(), heaps[look-1]/1e6)
	}
	took := time.Since(began)
	// A provider that could not keep up has left wake-ups behind, which end as intents too.
	w.eventually("an intent of every receipt", func() bool { return w.messages(streams.Intents) == published })
	if settled := w.settled(); settled != published {
		t.Errorf("%d of %d receipts are settled", settled, published)
	}
	slices.Sort(heaps)
	middle := heaps[len(heaps)/2]
	t.Logf("heap after a collection: median %.1f MB, from %+.0f %% to %+.0f %%; %.0f receipts/s", middle/1e6,
		100*(heaps[0]/middle-1), 100*(heaps[len(heaps)-1]/middle-1), float64(*receipts)/took.Seconds())
}

// One hook hangs for a while at a steady rate. The other's receipts go on, and when it is back its own are done too.
func TestAHookThatHangsHoldsUpNobodyAndDrainsByItself(t *testing.T) {
	const steady, hanging = "steady.hook", "hanging.hook"
	w := newWorld(t, time.Minute+6*(*hold)+8*time.Minute, steady, hanging)
	var hangs atomic.Bool
	w.serve(steady, nil)
	w.serve(hanging, &hangs)
	total := 2 * int(hold.Seconds()*float64(*rate))
	sent, seen := make([]time.Time, total), make([]atomic.Int64, total)
	_, err := w.nc.Subscribe(streams.IntentFilter(kindOf(steady)), func(m *nats.Msg) { note(t, m, seen) })
	if err != nil {
		t.Fatal(err)
	}
	ticker := time.NewTicker(time.Second / time.Duration(*rate))
	defer ticker.Stop()
	for i := range total {
		if i == total/2 {
			hangs.Store(true)
		}
		select {
		case <-ticker.C:
		case <-w.ctx.Done():
			t.Fatal("the receipts could not be published in time")
		}
		sent[i] = time.Now()
		w.publish(i)
	}
	w.eventually("the intents of the other hook", func() bool {
		for i := range seen {
			if seen[i].Load() == 0 {
				return false
			}
		}
		return true
	})
	hangs.Store(false)
	back := time.Now()
	w.eventually("the intents of the hook that is back", func() bool { return w.messages(streams.Intents) == 2*total })
	t.Logf("%d receipts, %d of them while it hung; p99 of the other hook %s before and %s then; its backlog was done %s after it was back",
		total, total/2, p99(sent, seen, 0, total/2), p99(sent, seen, total/2, total), time.Since(back).Round(time.Millisecond))
	for record, err := range journal.States(w.ctx, w.js) {
		if err != nil {
			t.Fatal(err)
		}
		if r := record.Document; r.Status != events.StatusProposed || r.Invocations > events.MaxInvocations {
			t.Errorf("%s of %s ended as %s after %d invocations", r.DispatchID, r.HookID, r.Status, r.Invocations)
		}
	}
}

// note says when the intent of a turn could be read.
func note(t *testing.T, m *nats.Msg, seen []atomic.Int64) {
	intent, err := events.Decode[events.Intent](m.Data)
	if err != nil {
		t.Error(err)
		return
	}
	var payload struct {
		Turn string `json:"turn"`
	}
	if err := json.Unmarshal(intent.Payload, &payload); err != nil {
		t.Error(err)
		return
	}
	n, err := strconv.Atoi(payload.Turn[len("turn_"):])
	if err != nil {
		t.Error(err)
		return
	}
	seen[n].CompareAndSwap(0, time.Now().UnixNano())
}

func p99(sent []time.Time, seen []atomic.Int64, from, to int) time.Duration {
	var took []time.Duration
	for i := from; i < to; i++ {
		took = append(took, time.Unix(0, seen[i].Load()).Sub(sent[i]))
	}
	slices.Sort(took)
	return took[len(took)*99/100].Round(10 * time.Microsecond)
}
