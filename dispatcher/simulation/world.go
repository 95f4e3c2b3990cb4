package simulation

import (
	"container/heap"
	"fmt"
	"io"
	"math/rand/v2"
	"time"
)

// world is virtual time and chance. Everything that happens is an event of its queue, run one after the other.
type world struct {
	rng    *rand.Rand
	events eventQueue
	number uint64
	start  time.Time
	// log tells the history, where somebody wants to read it.
	log io.Writer
	// watch is called after everything that happens.
	watch func()
	// faulty is false once the world behaves.
	faulty   bool
	failures []string
}

func newWorld(seed uint64, log io.Writer) *world {
	return &world{rng: rand.New(rand.NewPCG(seed, seed)), start: time.Now(), log: log, faulty: true} //nolint:gosec // reproducible on purpose
}

// now is the virtual time. Lanes' breakers read the clock themselves, so a world lives in a synctest bubble.
func (w *world) now() time.Time { return time.Now() }

func (w *world) elapsed() time.Duration { return time.Since(w.start) }

// chance is true with the probability, while the world is faulty.
func (w *world) chance(p float64) bool { return w.faulty && w.rng.Float64() < p }

// oneIn is true once in n times.
func (w *world) oneIn(n int) bool { return w.rng.IntN(n) == 0 }

// between is a duration from low to high.
func (w *world) between(low, high time.Duration) time.Duration {
	return low + time.Duration(w.rng.Int64N(int64(high-low)+1))
}

// latency is how long anything takes to get somewhere.
func (w *world) latency() time.Duration {
	if w.chance(.02) {
		return w.between(0, 8*time.Second)
	}
	return w.between(50*time.Microsecond, 2*time.Millisecond)
}

func (w *world) after(d time.Duration, f func()) { w.at(w.now().Add(d), f) }

func (w *world) at(at time.Time, f func()) {
	w.number++
	heap.Push(&w.events, &event{at: at, number: w.number, run: f})
}

// sometimes runs f again and again, after a pause that chance chooses, while the world is faulty.
func (w *world) sometimes(low, high time.Duration, f func()) {
	w.after(w.between(low, high), func() {
		if w.faulty {
			f()
			w.sometimes(low, high, f)
		}
	})
}

// run runs events until the deadline passed, nothing is left, or a check failed.
func (w *world) run(until time.Time) {
	for len(w.events) > 0 && len(w.failures) == 0 {
		next := w.events[0]
		if next.at.After(until) {
			break
		}
		heap.Pop(&w.events)
		if wait := next.at.Sub(w.now()); wait > 0 {
			time.Sleep(wait) // virtual
		}
		next.run()
		w.watch()
	}
}

func (w *world) tell(format string, args ...any) {
	if w.log != nil {
		_, _ = fmt.Fprintf(w.log, "%12s  %s\n", w.elapsed(), fmt.Sprintf(format, args...))
	}
}

// fail records that something happened which must not.
func (w *world) fail(format string, args ...any) {
	failure := fmt.Sprintf(format, args...)
	w.tell("FAIL %s", failure)
	w.failures = append(w.failures, fmt.Sprintf("at %s: %s", w.elapsed(), failure))
}

type event struct {
	at     time.Time
	number uint64
	run    func()
}

type eventQueue []*event

func (q eventQueue) Len() int { return len(q) }
func (q eventQueue) Less(i, j int) bool {
	if c := q[i].at.Compare(q[j].at); c != 0 {
		return c < 0
	}
	return q[i].number < q[j].number
}
func (q eventQueue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }

// Push implements heap.Interface.
func (q *eventQueue) Push(x any) { *q = append(*q, x.(*event)) }

// Pop implements heap.Interface.
func (q *eventQueue) Pop() any {
	old := *q
	last := old[len(old)-1]
	old[len(old)-1] = nil
	*q = old[:len(old)-1]
	return last
}
