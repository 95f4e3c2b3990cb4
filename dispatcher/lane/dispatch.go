package lane

import (
	"bytes"
	"errors"
	"time"

	"github.com/afterwrite/afterwrite/dispatcher/core"
	"github.com/afterwrite/afterwrite/events"
)

const (
	// maxDecisions is how often a dispatch is decided before its message is handed back.
	maxDecisions = 8
	// maxLooks is how often the journal is read for the record that won, before the write is tried again.
	maxLooks = 6
	// maxTries is how often a load or a write that is refused or not answered is tried before its message is handed
	// back. A decision is kept and its record tried for as long as it takes: coming again, the message would have to
	// be decided again, at the cost of another invocation.
	maxTries = 8
	// firstPause doubles up to lastPause, between looks and between tries.
	firstPause = 2 * time.Millisecond
	lastPause  = 5 * time.Second
	// maxLate is how many calls that timed out are still listened for; the oldest is forgotten first.
	maxLate = 1024
)

var (
	errPanicked = errors.New("lane: handling the request panicked")
	errStopped  = errors.New("lane: the dispatcher is stopping")
	errGaveUp   = errors.New("lane: the journal could not be read or written")
	errInFlight = errors.New("lane: somebody else's write of the same is not stored yet")
)

// stage is what the dispatch is about to ask the core.
type stage int

const (
	stageBegin stage = iota
	stageWake
	stageDecide
	stagePrepare
	stageRedrive
	// stageRefuse asks nothing more: the receipt's refusal is being written.
	stageRefuse
)

// dispatch is one dispatch on its way through the core.
type dispatch struct {
	work    *work
	stage   stage
	key     core.Key
	planned *core.Dispatch
	fresh   bool
	// exact says that the journal is to be read from the stream's leader.
	exact   bool
	journal map[core.Key]core.Entry

	call  core.Call
	reply core.Reply
	began time.Time
	place place

	// redriveBy is until when a prepared redrive may be written: its wake-up is then sure to come after the record.
	redriveBy time.Time

	result    *core.Result
	data      []byte // the document of result.Save
	lost      bool   // the write of data lost, and what won is being looked for
	waiting   int    // effects not yet acknowledged
	tail      core.Effect
	decisions int
	looks     int
	tries     int

	// step is the load, append or call under way: there is one at a time.
	step op
}

type opKind int

const (
	opLoad opKind = iota
	opAppend
	opPublish
	opSchedule
	opCall
	// opLate is a call that timed out and may still be answered.
	opLate
	// opPause waits before a load or a write is repeated.
	opPause
	opProgress
	opPull
)

// op is an effect whose answer is awaited, or a pause.
type op struct {
	id       Op
	kind     opKind
	dispatch *dispatch
	work     *work
	source   *source
	deadline time.Time
	alarm    int

	intent   *events.Intent
	accepted events.Timestamp
	schedule core.Schedule
	repeats  *op // what a pause is before
}

// next makes the dispatch's next load, append or call.
func (d *dispatch) next(kind opKind) *op {
	d.step = op{kind: kind, dispatch: d}
	return &d.step
}

func (l *Lane) await(o *op, deadline time.Time) *op {
	l.lastOp++
	o.id, o.alarm = l.lastOp, noAlarm
	l.ops[o.id] = o
	l.alarms.set(o, deadline)
	return o
}

func (l *Lane) over(o *op) {
	delete(l.ops, o.id)
	l.alarms.clear(o)
}

// overAll ends the ops that match, which is rare.
func (l *Lane) overAll(match func(*op) bool) {
	for _, o := range l.ops {
		if match(o) {
			if o.kind == opCall {
				l.effects.Forget(o.id)
			}
			l.over(o)
		}
	}
}

// advance asks the core about the dispatch's stage, loading first what it needs.
func (l *Lane) advance(now time.Time, d *dispatch) {
	if d.outlasted(now) {
		d.stage = stagePrepare
	}
	state := core.State{Installed: l.options.Installed, Journal: d.journal}
	actor := core.System
	if d.work.request != nil {
		actor = core.Actor{Operator: d.work.request.Operator}
	}
	var pressure core.Pressure
	if h := l.hooks[d.key.Hook]; h != nil && d.mayCall() {
		d.place, pressure = h.take(now, d.stage == stageBegin)
	}
	command := l.command(now, d, pressure)
	if len(core.Needs(command, state, actor)) > 0 {
		d.place.release(errNotAttempted)
		l.load(now, d)
		return
	}
	result, err := core.Commit(command, state, actor)
	if err != nil {
		l.rejected(now, d, err)
		return
	}
	delivery, planned, trace := d.work.delivery, d.planned, d.work.trace
	l.save(now, d, result)
	l.observer.Decided(now, delivery, planned, result, trace) // last, for nobody waits for it
}

// mayCall reports whether what the core is about to say may be to call.
func (d *dispatch) mayCall() bool {
	return d.stage == stageBegin && (d.fresh || d.journal != nil) || d.stage == stageWake && d.journal != nil
}

func (l *Lane) command(now time.Time, d *dispatch, pressure core.Pressure) core.Command {
	deliveries := 0
	if d.work.delivery != nil {
		deliveries = d.work.delivery.Deliveries
	}
	switch d.stage {
	case stageBegin:
		return core.BeginDispatch{Dispatch: d.planned, Fresh: d.fresh, Deliveries: deliveries, Pressure: pressure, Now: now}
	case stageWake:
		return core.WakeDispatch{Key: d.key, Deliveries: deliveries, Pressure: pressure, WokenAt: d.work.delivery.StreamTime, Now: now}
	case stageDecide:
		return core.DecideAttempt{Dispatch: d.planned, Fresh: d.fresh, Call: d.call, Reply: d.reply, Now: now}
	case stagePrepare:
		return core.PrepareRedrive{Key: d.key, Now: now}
	case stageRedrive:
		return core.RedriveDispatch{Key: d.key, Now: now}
	case stageRefuse:
	}
	panic("lane: a refusal asks nothing")
}

// rejected ends a request that the core turned down. Anything else is a fault of the lane.
func (l *Lane) rejected(now time.Time, d *dispatch, err error) {
	rejection := (*core.Rejection)(nil)
	if d.work.request == nil || !errors.As(err, &rejection) {
		panic(err)
	}
	l.effects.Answer(d.work.request, Answer{Rejection: rejection})
	l.settled(now, d.work)
}

func (l *Lane) load(now time.Time, d *dispatch) {
	l.emit(now, d.next(opLoad))
}

func (l *Lane) loaded(now time.Time, d *dispatch, loaded Loaded) {
	if loaded.Err != nil {
		l.observer.Failed("load", loaded.Err)
		l.again(now, d, d.next(opLoad))
		return
	}
	d.tries = 0
	if d.work.delivery == nil || d.work.delivery.Source != Receipts {
		d.work.trace = loaded.Trace // a wake-up carries nothing but its subject
	}
	if !d.lost {
		d.journal = map[core.Key]core.Entry{d.key: loaded.Entry}
		l.advance(now, d)
		return
	}
	switch save := d.result.Save; {
	case bytes.Equal(loaded.Data, d.data):
		d.lost = false
		l.release(now, d, save.Stored()) // it was our own, and only its acknowledgement was lost
	case loaded.Entry.Sequence > save.Expect:
		d.lost, d.looks = false, 0
		d.journal = map[core.Key]core.Entry{d.key: loaded.Entry}
		l.redecide(now, d)
	case d.looks < maxLooks:
		d.looks++
		l.pause(now, d.looks, d.next(opLoad))
	default:
		// Whoever won while still in flight has vanished again: nothing newer came.
		d.lost, d.looks = false, 0
		d.journal = map[core.Key]core.Entry{d.key: loaded.Entry}
		l.redecide(now, d)
	}
}

// redecide decides the dispatch again on what the journal now holds.
func (l *Lane) redecide(now time.Time, d *dispatch) {
	if d.decisions++; d.decisions >= maxDecisions {
		l.giveUp(now, d)
		return
	}
	d.place.release(errNotAttempted)
	if d.stage == stageRedrive {
		d.stage = stagePrepare // its wake-up may be spent on what it lost to
	}
	l.advance(now, d)
}

// save makes the result's document durable, and goes on from there.
func (l *Lane) save(now time.Time, d *dispatch, result *core.Result) {
	d.result = result
	if result.Save == nil {
		l.release(now, d, core.Durable{})
		return
	}
	d.data = document(result.Save)
	l.emit(now, d.next(opAppend))
}

func document(save *core.Save) []byte {
	switch {
	case save.Record != nil:
		return events.Canonical(save.Record)
	case save.Refusal != nil:
		return events.Canonical(save.Refusal)
	}
	return events.Canonical(save.Conflict)
}

// emit sends a load or a write and awaits its answer.
func (l *Lane) emit(now time.Time, o *op) {
	l.await(o, now.Add(l.options.AnswerWait))
	l.send(o)
}

func (l *Lane) send(o *op) {
	d := o.dispatch
	switch o.kind {
	case opLoad:
		l.effects.Load(o.id, d.key, d.exact)
	case opAppend:
		l.effects.Append(o.id, d.result.Save, d.data, d.work.trace)
	case opPublish:
		l.effects.Publish(o.id, o.intent, o.accepted, d.work.trace)
	case opSchedule:
		l.effects.Schedule(o.id, o.schedule)
	case opCall, opLate, opPause, opProgress, opPull:
	}
}

func (l *Lane) written(now time.Time, o *op, written Written) {
	d := o.dispatch
	if written.InFlight && (o.kind != opAppend || d.result.Save.Record == nil) {
		written.Err = errInFlight // what is only ever created is there once somebody has stored it, and not before
	}
	if written.Err != nil {
		l.over(o)
		l.observer.Failed("write", written.Err)
		l.again(now, d, o)
		return
	}
	l.over(o)
	d.tries = 0
	if o.kind != opAppend {
		// Expected sequence 0 that lost: it is there already.
		if d.waiting--; d.waiting == 0 {
			l.finish(now, d)
		}
		return
	}
	if save := d.result.Save; !written.Lost || save.Record == nil {
		l.release(now, d, save.Stored())
		return
	}
	l.observer.Lost(d.key)
	d.fresh, d.exact, d.lost = false, true, true
	l.load(now, d)
}

// release does what may be done once the result's document is durable.
func (l *Lane) release(now time.Time, d *dispatch, proof core.Durable) {
	d.tail = nil
	d.waiting = 1 // held while the loop below runs
	for _, effect := range d.result.After(proof) {
		switch effect := effect.(type) {
		case core.PublishIntents:
			for i := range effect.Intents {
				d.waiting++
				l.emit(now, &op{kind: opPublish, dispatch: d, intent: &effect.Intents[i], accepted: effect.AcceptedAt})
			}
		case core.Schedule:
			d.waiting++
			if d.stage == stagePrepare {
				d.redriveBy = now.Add(effect.At.Sub(now) / 2)
			}
			l.emit(now, &op{kind: opSchedule, dispatch: d, schedule: effect})
		case core.Call, core.HandBack:
			d.tail = effect
		}
	}
	if d.waiting--; d.waiting == 0 {
		l.finish(now, d)
	}
}

// finish does what comes last: the call, the next stage, or the end.
func (l *Lane) finish(now time.Time, d *dispatch) {
	if call, ok := d.tail.(core.Call); ok {
		d.call, d.planned, d.began = call, call.Dispatch, now
		if save := d.result.Save; save != nil {
			// The attempt goes on from the record that announced it; its sequence is not known here.
			d.journal, d.exact = nil, true
		}
		o := l.await(d.next(opCall), now.Add(call.Timeout))
		l.effects.Call(o.id, &d.call, d.work.trace)
		return
	}
	d.place.release(errNotAttempted)
	w := d.work
	if _, ok := d.tail.(core.HandBack); ok {
		w.handBack = handBackDelay(w.delivery.Deliveries)
	}
	switch d.stage {
	case stagePrepare:
		d.stage = stageRedrive
		l.advance(now, d)
		return
	case stageRedrive:
		l.effects.Answer(w.request, Answer{Record: d.result.State})
	case stageBegin, stageWake, stageDecide, stageRefuse:
	}
	d.forget()
	l.settled(now, w)
}

// forget lets go of the documents of a dispatch that is over. Its work may have others under way for long.
func (d *dispatch) forget() {
	d.planned, d.journal, d.result, d.data, d.tail = nil, nil, nil, nil, nil
	d.call, d.reply = core.Call{}, core.Reply{}
}

func (l *Lane) replied(now time.Time, o *op, reply core.Reply) {
	d := o.dispatch
	l.over(o)
	took := now.Sub(d.began)
	if reply.Kind == core.ReplyResult {
		d.place.release(nil)
	} else {
		d.place.release(errAttemptFailed)
	}
	d.stage, d.reply, d.decisions = stageDecide, reply, 0
	l.advance(now, d)
	l.observer.Replied(d.key.Hook, reply.Kind, took)
}

// timedOut ends a call without an answer, and goes on listening for one: a late valid result still counts.
func (l *Lane) timedOut(now time.Time, o *op) {
	if len(l.late) == maxLate {
		l.forgetLate(l.late[0])
	}
	id := o.id
	late := &dispatch{key: o.dispatch.key, planned: o.dispatch.planned, call: o.dispatch.call}
	l.replied(now, o, core.Reply{Kind: core.ReplyNone})
	lateOp := &op{id: id, kind: opLate, dispatch: late, alarm: noAlarm}
	l.ops[lateOp.id] = lateOp
	l.late = append(l.late, lateOp)
}

func (l *Lane) forgetLate(o *op) {
	for i := range l.late {
		if l.late[i] == o {
			l.late = append(l.late[:i], l.late[i+1:]...)
			break
		}
	}
	l.effects.Forget(o.id)
	l.over(o)
}

func (l *Lane) decideLate(now time.Time, d *dispatch, reply core.Reply) {
	w := l.begin(&work{begun: now})
	l.opens(w, 1)
	w.plan = []dispatch{{
		work: w, stage: stageDecide, key: d.key, planned: d.planned, exact: true, call: d.call, reply: reply,
	}}
	defer l.recovered(now, w)
	l.advance(now, &w.plan[0])
}

// expired is an op whose deadline passed.
func (l *Lane) expired(now time.Time, o *op) {
	switch o.kind {
	case opProgress:
		l.effects.Progress(o.work.delivery)
		l.alarms.set(o, now.Add(l.options.AckWait/2))
	case opPull:
		l.PullEnded(now, o.id, false)
	case opCall:
		defer l.recovered(now, o.dispatch.work)
		l.timedOut(now, o)
	case opPause:
		l.over(o)
		defer l.recovered(now, o.dispatch.work)
		if o.repeats.kind == opAppend && o.dispatch.outlasted(now) {
			l.redecide(now, o.dispatch)
			return
		}
		l.emit(now, o.repeats)
	case opLoad, opAppend, opPublish, opSchedule:
		// Unanswered: the same again, under the same name, so that either answer will do.
		l.observer.Failed("answer", errUnanswered)
		defer l.recovered(now, o.dispatch.work)
		if o.triedEnough() {
			l.giveUp(now, o.dispatch)
			return
		}
		if o.kind == opAppend && o.dispatch.outlasted(now) {
			l.over(o)
			l.redecide(now, o.dispatch)
			return
		}
		l.alarms.set(o, now.Add(l.options.AnswerWait))
		l.send(o)
	case opLate:
		l.forgetLate(o)
	}
}

// outlasted reports whether a redrive took so long that the wake-up it prepared may be spent on the record that is
// still failed. It has to be prepared again.
func (d *dispatch) outlasted(now time.Time) bool {
	return d.stage == stageRedrive && now.After(d.redriveBy)
}

var errUnanswered = errors.New("lane: the broker did not answer in time")

// triedEnough counts a try that came to nothing.
func (o *op) triedEnough() bool {
	o.dispatch.tries++
	keeps := o.kind == opAppend && o.dispatch.work.request == nil
	return o.dispatch.tries >= maxTries && !keeps
}

// again repeats a load or a write that failed, after a pause that grows.
func (l *Lane) again(now time.Time, d *dispatch, o *op) {
	if o.triedEnough() {
		l.giveUp(now, d)
		return
	}
	const slower = 4 // a store that refuses is not a race: begin at a longer pause
	l.pause(now, d.tries+slower, o)
}

func (l *Lane) pause(now time.Time, n int, before *op) {
	l.await(&op{kind: opPause, dispatch: before.dispatch, repeats: before}, now.Add(growing(n)))
}

func growing(n int) time.Duration {
	return min(firstPause<<min(n, 16), lastPause)
}

// giveUp ends the dispatch for this delivery: its message comes again and the journal says what is missing.
func (l *Lane) giveUp(now time.Time, d *dispatch) {
	l.overAll(func(o *op) bool { return o.dispatch == d })
	d.place.release(errNotAttempted)
	w := d.work
	if w.delivery != nil {
		w.handBack = handBackDelay(w.delivery.Deliveries)
	}
	if w.request != nil {
		l.effects.Answer(w.request, Answer{Err: errGaveUp})
	}
	l.settled(now, w)
}

// handBackDelay grows with the deliveries of a message, from half a second to half a minute.
func handBackDelay(deliveries int) time.Duration {
	const first, last = 500 * time.Millisecond, 30 * time.Second
	return min(first<<min(max(deliveries-1, 0), 10), last)
}
