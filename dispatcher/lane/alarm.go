package lane

import (
	"container/heap"
	"time"
)

// alarms is a heap of the ops that have a deadline, the earliest first. Deadlines are nearly always set in order and
// met, so that an op enters and leaves near the end, which is cheap.
type alarms []*op

func (a alarms) Len() int { return len(a) }
func (a alarms) Less(i, j int) bool {
	if c := a[i].deadline.Compare(a[j].deadline); c != 0 {
		return c < 0
	}
	return a[i].id < a[j].id
}
func (a alarms) Swap(i, j int) {
	a[i], a[j] = a[j], a[i]
	a[i].alarm, a[j].alarm = i, j
}

// Push implements heap.Interface.
func (a *alarms) Push(x any) {
	o := x.(*op)
	o.alarm = len(*a)
	*a = append(*a, o)
}

// Pop implements heap.Interface.
func (a *alarms) Pop() any {
	old := *a
	o := old[len(old)-1]
	old[len(old)-1] = nil
	*a = old[:len(old)-1]
	o.alarm = noAlarm
	return o
}

const noAlarm = -1

func (a *alarms) set(o *op, at time.Time) {
	o.deadline = at
	if o.alarm == noAlarm {
		heap.Push(a, o)
		return
	}
	heap.Fix(a, o.alarm)
}

func (a *alarms) clear(o *op) {
	if o.alarm != noAlarm {
		heap.Remove(a, o.alarm)
	}
}
