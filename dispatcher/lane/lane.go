package lane

import (
	"cmp"
	"maps"
	"runtime/debug"
	"slices"
	"time"

	"github.com/afterwrite/afterwrite/dispatcher/core"
	"github.com/afterwrite/afterwrite/events"
)

// Options of a lane.
type Options struct {
	Installed *core.Installed
	// Hooks holds the limits of the installed hooks; a hook that is missing has the defaults.
	Hooks map[events.HookID]HookLimits
	// Retired are hooks that are no longer installed but whose wake-ups still wait to be closed.
	Retired []events.HookID
	// Receipts is the most receipts under way at once.
	Receipts int
	// AckWait is how long the broker waits for an acknowledgement or a sign of progress.
	AckWait time.Duration
	// PullExpiry is how long the broker keeps a pull that it cannot fill, and so the least that a stop may take.
	PullExpiry time.Duration
	// AnswerWait is how long a load or a write may go unanswered before it is repeated.
	AnswerWait time.Duration
}

// WithDefaults fills what is zero: 512 receipts, an ack wait of 30 s, pulls of 1 s, answers within 5 s.
func (o Options) WithDefaults() Options {
	o.Receipts = cmp.Or(o.Receipts, 512)
	o.AckWait = cmp.Or(o.AckWait, 30*time.Second)
	o.PullExpiry = cmp.Or(o.PullExpiry, time.Second)
	o.AnswerWait = cmp.Or(o.AnswerWait, 5*time.Second)
	return o
}

// Lane is one loop's worth of dispatches. It is not safe for concurrent use: one goroutine feeds it.
type Lane struct {
	options  Options
	effects  Effects
	observer Observer

	hooks   map[events.HookID]*hook
	ordered []*hook
	sources []*source
	bySrc   map[Source]*source

	ops    map[Op]*op
	lastOp Op
	// lastWork names works in the order they began: whatever is done to several is done in that order.
	lastWork uint64
	alarms   alarms
	works    map[uint64]*work
	open     int // dispatches of receipts under way
	most     int // as many as that may be
	late     []*op
	panics   map[uint64]int

	stopping bool // nothing more is asked for
	gone     bool // what still comes is handed back
}

// source is a consumer that the lane pulls from, one pull at a time.
type source struct {
	Source
	hook      *hook // nil for the receipts and for retired hooks
	taken     int   // messages under way
	requested int   // messages asked for and not yet come
	pull      *op
	rest      time.Time // not to be asked before, after it refused
}

// work is a message or a request until it is answered.
type work struct {
	id       uint64
	delivery *Delivery // nil for a request and for a late reply
	request  *Request
	begun    time.Time
	open     int // dispatches not yet settled, set by opens
	handBack time.Duration
	progress op
	plan     []dispatch
	trace    Trace
}

// New makes a lane. It emits nothing before its first input.
func New(options Options, effects Effects, observer Observer) *Lane {
	l := &Lane{
		options:  options.WithDefaults(),
		effects:  effects,
		observer: observer,
		hooks:    map[events.HookID]*hook{},
		bySrc:    map[Source]*source{},
		ops:      map[Op]*op{},
		works:    map[uint64]*work{},
		panics:   map[uint64]int{},
	}
	l.addSource(Receipts, nil)
	for _, id := range slices.Sorted(maps.Keys(options.Installed.Hooks)) {
		h := newHook(id, options.Hooks[id], observer)
		l.hooks[id] = h
		l.most += h.worth()
		l.ordered = append(l.ordered, h)
		l.addSource(Source{Hook: id}, h)
	}
	for _, id := range options.Retired {
		l.addSource(Source{Hook: id}, nil)
	}
	return l
}

func (l *Lane) addSource(name Source, h *hook) {
	s := &source{Source: name, hook: h}
	l.sources = append(l.sources, s)
	l.bySrc[name] = s
}

// Pull asks every source for what can be started now. The host calls it when it has no other input at hand.
func (l *Lane) Pull(now time.Time) {
	if l.stopping {
		return
	}
	for _, s := range l.sources {
		if s.requested > 0 || now.Before(s.rest) {
			continue
		}
		if room := l.room(s, now); room > 0 {
			s.requested = room
			s.pull = l.await(&op{kind: opPull, source: s}, now.Add(l.options.PullExpiry+l.options.AnswerWait))
			l.effects.Pull(s.pull.id, s.Source, room)
		}
	}
}

func (l *Lane) room(s *source, now time.Time) int {
	switch {
	case s.Source == Receipts:
		return receiptRoom(l.ordered, min(l.options.Receipts-s.taken, l.spare()), now)
	case s.hook == nil:
		return maxWakeBatch - s.taken
	}
	return s.hook.wakeRoom(s.taken)
}

// spare is how many receipts may be added for which every hook is called: one at least while nothing is under way.
func (l *Lane) spare() int {
	each := max(1, len(l.ordered))
	if l.open == 0 {
		return max(1, l.most/each)
	}
	return (l.most - l.open) / each
}

// opens sets how many dispatches of the work are not yet settled. Those of receipts leave room for no more than what is
// worth calling; wake-ups have a bound of their own, or they could keep out the receipts.
func (l *Lane) opens(w *work, n int) {
	if w.delivery != nil && w.delivery.Source == Receipts {
		l.open += n - w.open
	}
	w.open = n
}

// Skipped says that a message of the source came which is not delivered.
func (l *Lane) Skipped(from Source) {
	if s := l.bySrc[from]; s != nil && s.requested > 0 {
		if s.requested--; s.requested == 0 {
			l.over(s.pull)
		}
	}
}

// Deliver takes a message.
func (l *Lane) Deliver(now time.Time, d *Delivery) {
	l.Skipped(d.Source)
	if d.Waited >= l.options.AckWait {
		return // the broker has given it to somebody else by now
	}
	if l.gone {
		l.effects.HandBack(d, handBackDelay(1))
		return
	}
	w := l.begin(&work{delivery: d, begun: now, trace: d.Event.Trace})
	l.holds(d.Source, 1)
	w.progress = op{kind: opProgress, work: w}
	l.await(&w.progress, now.Add(l.options.AckWait/2))
	defer l.recovered(now, w)
	if d.Source == Receipts {
		l.admit(now, w)
		return
	}
	l.opens(w, 1)
	w.plan = []dispatch{{work: w, stage: stageWake, key: d.Key, exact: true}}
	l.advance(now, &w.plan[0])
}

// refusedRest is how long a source that refused a pull is left alone.
const refusedRest = 500 * time.Millisecond

// holds counts the messages of the source that are under way.
func (l *Lane) holds(from Source, change int) {
	if s := l.bySrc[from]; s != nil {
		s.taken += change
	}
}

// PullEnded says that a pull will bring nothing more; refused, that the source could not take it.
func (l *Lane) PullEnded(now time.Time, id Op, refused bool) {
	o := l.ops[id]
	if o == nil || o.kind != opPull {
		return
	}
	o.source.requested = 0
	if refused {
		o.source.rest = now.Add(refusedRest)
	}
	l.over(o)
}

// Awaits is what kind of answer an op awaits.
type Awaits int

const (
	// AwaitsNothing: the op is over.
	AwaitsNothing Awaits = iota
	// AwaitsPull: [Lane.PullEnded].
	AwaitsPull
	// AwaitsLoad: [Lane.Loaded].
	AwaitsLoad
	// AwaitsWrite: [Lane.Written].
	AwaitsWrite
	// AwaitsReply: [Lane.Replied].
	AwaitsReply
)

// Awaited is for adapters whose answers do not say what they answer.
func (l *Lane) Awaited(id Op) Awaits {
	o := l.ops[id]
	if o == nil {
		return AwaitsNothing
	}
	switch o.kind {
	case opPull:
		return AwaitsPull
	case opLoad:
		return AwaitsLoad
	case opAppend, opPublish, opSchedule:
		return AwaitsWrite
	case opCall, opLate:
		return AwaitsReply
	case opPause, opProgress:
	}
	return AwaitsNothing
}

// Reconnected says that the broker has forgotten every pull. Writes and loads that went unanswered are repeated in
// their time.
func (l *Lane) Reconnected(time.Time) {
	for _, s := range l.sources {
		if s.requested > 0 {
			s.requested = 0
			l.over(s.pull)
		}
	}
}

// Replied takes the end of a call.
func (l *Lane) Replied(now time.Time, id Op, reply core.Reply) {
	o := l.ops[id]
	if o == nil {
		return
	}
	switch o.kind {
	case opCall:
		defer l.recovered(now, o.dispatch.work)
		l.replied(now, o, reply)
	case opLate:
		l.forgetLate(o)
		if reply.Kind == core.ReplyResult {
			l.decideLate(now, o.dispatch, reply)
		}
	case opLoad, opAppend, opPublish, opSchedule, opPause, opProgress, opPull:
	}
}

// Loaded takes the answer to a load.
func (l *Lane) Loaded(now time.Time, id Op, loaded Loaded) {
	o := l.ops[id]
	if o == nil || o.kind != opLoad {
		return
	}
	l.over(o)
	defer l.recovered(now, o.dispatch.work)
	l.loaded(now, o.dispatch, loaded)
}

// Written takes the answer to an append, a publish or a schedule.
func (l *Lane) Written(now time.Time, id Op, written Written) {
	o := l.ops[id]
	if o == nil {
		return
	}
	switch o.kind {
	case opAppend, opPublish, opSchedule:
		defer l.recovered(now, o.dispatch.work)
		l.written(now, o, written)
	case opCall, opLate, opLoad, opPause, opProgress, opPull:
	}
}

// Redrive takes an operator's request.
func (l *Lane) Redrive(now time.Time, request *Request) {
	w := l.begin(&work{request: request, begun: now})
	l.opens(w, 1)
	w.plan = []dispatch{{work: w, stage: stagePrepare, key: request.Key, exact: true}}
	defer l.recovered(now, w)
	l.advance(now, &w.plan[0])
}

// SetBacklogFull tells whether a hook's backlog is at its ceiling.
func (l *Lane) SetBacklogFull(id events.HookID, full bool) {
	if h := l.hooks[id]; h != nil {
		h.backlogFull = full
	}
}

// Tick lets everything happen whose time has come.
func (l *Lane) Tick(now time.Time) {
	for len(l.alarms) > 0 && !l.alarms[0].deadline.After(now) {
		l.expired(now, l.alarms[0])
	}
}

// NextTick is when the lane next wants [Lane.Tick].
func (l *Lane) NextTick() (at time.Time, ok bool) {
	if len(l.alarms) == 0 {
		return time.Time{}, false
	}
	return l.alarms[0].deadline, true
}

// Stop begins the end: nothing more is asked for. What the broker was asked for before may still come, for as long as
// a pull lasts, and goes on like all that is under way. See [Lane.Idle].
func (l *Lane) Stop() { l.stopping = true }

// Idle reports whether nothing is under way, and nothing can come any more. A pull cannot be taken back: who went away
// before its end would leave to the ack deadline what the broker was just sending.
func (l *Lane) Idle() bool {
	return len(l.works) == 0 && !slices.ContainsFunc(l.sources, func(s *source) bool { return s.requested > 0 })
}

// Abandon hands back whatever is still under way, and whatever may come yet. The journal and a redelivery finish it.
func (l *Lane) Abandon(now time.Time) {
	l.gone = true
	for _, id := range slices.Sorted(maps.Keys(l.works)) {
		w := l.works[id]
		l.drop(w)
		if w.request != nil {
			l.effects.Answer(w.request, Answer{Err: errStopped})
		}
		l.settleWork(now, w, handBackDelay(1))
	}
}

// Load is how much the lane has under way: receipts, and attempts by hook.
func (l *Lane) Load() (receipts int, places map[events.HookID]int) {
	places = make(map[events.HookID]int, len(l.ordered))
	for _, h := range l.ordered {
		places[h.id] = h.taken
	}
	return l.bySrc[Receipts].taken, places
}

func (l *Lane) begin(w *work) *work {
	l.lastWork++
	w.id = l.lastWork
	l.works[w.id] = w
	return w
}

func (l *Lane) admit(now time.Time, w *work) {
	d := w.delivery
	command := core.AdmitReceipt{
		SubjectKind: d.Event.SubjectKind,
		BadEnvelope: d.Event.BadEnvelope,
		Data:        d.Event.Data,
		MessageID:   d.Event.MessageID,
		Deliveries:  d.Deliveries,
		StreamTime:  d.StreamTime,
		Now:         now,
	}
	result, err := core.Commit(command, core.State{Installed: l.options.Installed}, core.System)
	if err != nil {
		panic(err) // the system may admit, and nothing needs loading
	}
	defer l.observer.Decided(now, d, nil, result, w.trace) // what follows from it goes out first: somebody waits for that
	switch result.Outcome {
	case core.OutcomeIgnored:
		l.settleWork(now, w, 0)
	case core.OutcomeRefused:
		l.refuse(now, w, result)
	default:
		// One more, for a dispatch that settles at once may not settle the work under the loop.
		l.opens(w, len(result.Plan)+1)
		w.plan = make([]dispatch, len(result.Plan))
		for i := range result.Plan {
			planned := &result.Plan[i]
			w.plan[i] = dispatch{work: w, stage: stageBegin, key: planned.Key, planned: planned, fresh: result.Fresh}
		}
		// Inputs go out in plan order.
		for i := range w.plan {
			l.advance(now, &w.plan[i])
		}
		l.settled(now, w)
	}
}

func (l *Lane) refuse(now time.Time, w *work, result *core.Result) {
	l.opens(w, 1)
	w.plan = []dispatch{{work: w, stage: stageRefuse}}
	l.save(now, &w.plan[0], result)
}

// settled is called when one of the work's dispatches is over.
func (l *Lane) settled(now time.Time, w *work) {
	if l.opens(w, w.open-1); w.open == 0 {
		l.settleWork(now, w, w.handBack)
	}
}

// settleWork acknowledges the work's message, or hands it back if handBack says after how long.
func (l *Lane) settleWork(now time.Time, w *work, handBack time.Duration) {
	delete(l.works, w.id)
	l.opens(w, 0)
	d := w.delivery
	if d == nil {
		return
	}
	l.over(&w.progress)
	l.holds(d.Source, -1)
	if handBack > 0 {
		l.effects.HandBack(d, handBack)
	} else {
		delete(l.panics, d.Sequence)
		l.effects.Acknowledge(d)
	}
	l.observer.Settled(d.Source, now.Sub(w.begun), handBack > 0)
}

// maxPanics is how often handling a receipt may panic before it is refused.
const maxPanics = 3

// recovered ends a panic that came from handling w: a fault of ours in the handling of one message must not take
// the others down. The message is handed back, and in the end refused.
func (l *Lane) recovered(now time.Time, w *work) {
	value := recover()
	if value == nil {
		return
	}
	var source Source
	var sequence uint64
	if w.delivery != nil {
		source, sequence = w.delivery.Source, w.delivery.Sequence
	}
	l.observer.Panicked(source, sequence, value, debug.Stack())
	if _, open := l.works[w.id]; !open {
		return
	}
	l.drop(w)
	switch {
	case w.request != nil:
		l.effects.Answer(w.request, Answer{Err: errPanicked})
		l.settleWork(now, w, 0)
	case w.delivery == nil:
		l.settleWork(now, w, 0)
	case source != Receipts:
		l.settleWork(now, w, handBackDelay(w.delivery.Deliveries))
	default:
		if l.panics[sequence]++; l.panics[sequence] < maxPanics {
			l.settleWork(now, w, handBackDelay(w.delivery.Deliveries))
			return
		}
		command := core.RefusePoisoned{Data: w.delivery.Event.Data, Now: now}
		result, err := core.Commit(command, core.State{Installed: l.options.Installed}, core.System)
		if err != nil {
			panic(err) // the system may refuse, and nothing needs loading
		}
		l.observer.Decided(now, w.delivery, nil, result, w.trace)
		l.refuse(now, w, result)
	}
}

// drop forgets everything that is under way for w, but its sign of progress.
func (l *Lane) drop(w *work) {
	l.overAll(func(o *op) bool { return o.dispatch != nil && o.dispatch.work == w })
	for i := range w.plan {
		w.plan[i].place.release(errNotAttempted)
	}
}
