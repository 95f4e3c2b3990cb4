package core_test

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/afterwrite/afterwrite/dispatcher/core"
	"github.com/afterwrite/afterwrite/events"
)

// world is a broker and a host in memory: it delivers, commits, journals, schedules and publishes as the contract of
// the core asks, one step at a time, and may be killed between any two. It says what it does, and it fails on every
// record and effect that the design does not allow.
type world struct {
	t tester
	// out is the transcript.
	out  strings.Builder
	in   *core.Installed
	now  time.Time
	zero time.Time
	// stale answers a load with an older entry than the last, as a replica may; nil never does.
	stale func(history []core.Entry) core.Entry

	sequence  uint64
	journal   map[core.Key][]core.Entry
	conflicts map[string]*events.Conflict
	refusals  map[string]*events.Refusal
	intents   map[events.IntentID]events.Timestamp
	schedules map[core.Key]time.Time
	messages  []*message
	wakeUps   []*message
	calls     []*call
	pressure  map[events.HookID]core.Pressure
	// told are the dispatches that were planned, in the order in which they first were.
	told []core.Key
}

type tester interface {
	Helper()
	Fatalf(format string, args ...any)
}

// message is a receipt's or a wake-up's, until it is acknowledged.
type message struct {
	name       string
	receipt    *events.Receipt
	key        core.Key
	at         time.Time
	deliveries int
}

// delivery is one taking of a message. It ends with the host.
type delivery struct {
	*message
	number int
	// keys are its dispatches, and open counts those that are not settled.
	keys []core.Key
	open int
}

// call is an attempt under way. It ends with the host.
type call struct {
	effect   core.Call
	fresh    bool
	delivery *delivery
	ended    bool
}

// kill says where the host is killed while it carries out a step.
type kill string

const (
	killNever      kill = ""
	killBeforeSave kill = "before-save"
	killAfterSave  kill = "after-save"
	killBeforeAck  kill = "before-ack"
)

var errKilled = errors.New("killed")

func newWorld(t tester, in *core.Installed, now time.Time) *world {
	return &world{
		t: t, in: in, now: now, zero: now,
		journal:   map[core.Key][]core.Entry{},
		conflicts: map[string]*events.Conflict{},
		refusals:  map[string]*events.Refusal{},
		intents:   map[events.IntentID]events.Timestamp{},
		schedules: map[core.Key]time.Time{},
		pressure:  map[events.HookID]core.Pressure{},
	}
}

func (w *world) say(format string, args ...any) { fmt.Fprintf(&w.out, "  "+format+"\n", args...) }

func (w *world) since(at time.Time) string { return at.Sub(w.zero).String() }

// publish puts a receipt on its stream.
func (w *world) publish(name string, receipt *events.Receipt) *message {
	m := &message{name: name, receipt: receipt, at: w.now}
	w.messages = append(w.messages, m)
	return m
}

func (m *message) String() string {
	if m.receipt == nil {
		return "wake-up of " + m.key.Hook
	}
	return m.receipt.Receipt.ReceiptID
}

func (m *message) take() *delivery {
	m.deliveries++
	return &delivery{message: m, number: m.deliveries}
}

// deliver takes a receipt's message from the stream and begins its dispatches.
func (w *world) deliver(m *message, at kill) error {
	taken := m.take()
	admitted, err := w.commit(core.AdmitReceipt{
		SubjectKind: m.receipt.EventKind, Data: events.Canonical(m.receipt), MessageID: m.receipt.MessageID(),
		Deliveries: taken.number, StreamTime: m.at, Now: w.now,
	}, core.System, killNever)
	if err != nil {
		return err
	}
	taken.open = len(admitted.Plan)
	for i := range admitted.Plan {
		d := &admitted.Plan[i]
		taken.keys = append(taken.keys, d.Key)
		if !slices.Contains(w.told, d.Key) {
			w.told = append(w.told, d.Key)
		}
		r, err := w.commit(core.BeginDispatch{
			Dispatch: d, Fresh: admitted.Fresh, Deliveries: taken.number, Pressure: w.pressure[d.Key.Hook], Now: w.now,
		}, core.System, at)
		if err != nil {
			return err
		}
		w.settle(taken, r, admitted.Fresh)
	}
	return w.acknowledge(taken, at)
}

// wake takes a wake-up's message.
func (w *world) wake(m *message, at kill) error {
	taken := m.take()
	taken.keys, taken.open = []core.Key{m.key}, 1
	r, err := w.commit(core.WakeDispatch{
		Key: m.key, Deliveries: taken.number, Pressure: w.pressure[m.key.Hook], WokenAt: m.at, Now: w.now,
	}, core.System, at)
	if err != nil {
		return err
	}
	w.settle(taken, r, false)
	return w.acknowledge(taken, at)
}

// reply ends an attempt.
func (w *world) reply(c *call, reply core.Reply, at kill) error {
	c.ended = true
	r, err := w.commit(core.DecideAttempt{
		Dispatch: c.effect.Dispatch, Fresh: c.fresh, Call: c.effect, Reply: reply, Now: w.now,
	}, core.System, at)
	if err != nil {
		return err
	}
	w.settle(c.delivery, r, false)
	return w.acknowledge(c.delivery, at)
}

// redrive is an operator's request, as the dispatcher serves it.
func (w *world) redrive(key core.Key, operator string, at kill) error {
	actor := core.Actor{Operator: operator}
	if _, err := w.commit(core.PrepareRedrive{Key: key, Now: w.now}, actor, killNever); err != nil {
		return err
	}
	_, err := w.commit(core.RedriveDispatch{Key: key, Now: w.now}, actor, at)
	return err
}

// settle begins what the result calls for; a dispatch that is neither called nor handed back is settled.
func (w *world) settle(d *delivery, r *core.Result, fresh bool) {
	for _, effect := range r.After(r.Save.Stored()) {
		switch e := effect.(type) {
		case core.Call:
			w.calls = append(w.calls, &call{effect: e, fresh: fresh, delivery: d})
			w.say("call %d to %s: attempt %d, invocation %d, on record %d",
				len(w.calls), e.Dispatch.Key.Hook, e.Attempt, e.Invocations, e.Base)
			return
		case core.HandBack:
			w.say("handed back")
			return
		case core.PublishIntents, core.Schedule:
		}
	}
	d.open--
}

func (w *world) acknowledge(d *delivery, at kill) error {
	if d.open != 0 {
		return nil
	}
	if at == killBeforeAck {
		return w.die()
	}
	for _, key := range d.keys {
		w.checkSettled(d, key)
	}
	is := func(other *message) bool { return other == d.message }
	if slices.ContainsFunc(w.messages, is) || slices.ContainsFunc(w.wakeUps, is) {
		w.say("acknowledged")
	}
	w.messages = slices.DeleteFunc(w.messages, is)
	w.wakeUps = slices.DeleteFunc(w.wakeUps, is)
	return nil
}

// die loses what the host holds in memory: the attempts under way, and with them their deliveries.
func (w *world) die() error {
	w.say("killed")
	for _, c := range w.calls {
		c.ended = true
	}
	return errKilled
}

// commit does what the contract asks of a host, steps 1 to 4, but for the calls.
func (w *world) commit(command core.Command, actor core.Actor, at kill) (*core.Result, error) {
	w.t.Helper()
	var r *core.Result
	for try := 0; ; try++ {
		var err error
		if r, err = w.decide(command, actor, try); err != nil {
			w.say("%s: rejected, %v", name(command), err)
			return nil, err
		}
		w.say("%s: %s", name(command), r.Outcome)
		if at == killBeforeSave {
			return nil, w.die()
		}
		if r.Save == nil || w.append(r.Save) {
			break
		}
		w.say("the write lost")
		if try == 1 {
			w.t.Fatalf("a write lost on what nothing else has written")
		}
		command = loaded(command)
	}
	if at == killAfterSave {
		return nil, w.die()
	}
	for _, effect := range r.After(r.Save.Stored()) {
		w.carryOut(effect)
	}
	return r, nil
}

// decide loads and commits, twice, because equal commands on equal state must give equal results.
func (w *world) decide(command core.Command, actor core.Actor, try int) (*core.Result, error) {
	w.t.Helper()
	state := core.State{Installed: w.in, Journal: map[core.Key]core.Entry{}}
	for {
		needs := core.Needs(command, state, actor)
		if len(needs) == 0 {
			break
		}
		if _, err := core.Commit(command, state, actor); !errors.Is(err, core.ErrNotLoaded) {
			w.t.Fatalf("Commit while %v is needed: %v, want ErrNotLoaded", needs, err)
		}
		for _, key := range needs {
			state.Journal[key] = w.load(command, key, try)
		}
	}
	first, err := core.Commit(command, state, actor)
	second, again := core.Commit(command, state, actor)
	if fmt.Sprint(err) != fmt.Sprint(again) || !reflect.DeepEqual(first, second) {
		w.t.Fatalf("%s decided differently a second time:\n%+v, %v\n%+v, %v", name(command), first, err, second, again)
	}
	if err != nil {
		if errors.Is(err, core.ErrNotLoaded) {
			w.t.Fatalf("ErrNotLoaded with nothing needed")
		}
		return nil, err
	}
	return first, nil
}

// load reads the last record. A wake-up and a redrive read it from the leader; others may be told an older one, until
// a write lost.
func (w *world) load(command core.Command, key core.Key, try int) core.Entry {
	history := w.journal[key]
	if w.stale != nil && try == 0 {
		switch command.(type) {
		case core.BeginDispatch, core.DecideAttempt:
			return w.stale(history)
		}
	}
	if len(history) == 0 {
		return core.Entry{}
	}
	return history[len(history)-1]
}

// loaded is the command after its write lost: it is not decided as if the journal were empty again.
func loaded(command core.Command) core.Command {
	switch c := command.(type) {
	case core.BeginDispatch:
		c.Fresh = false
		return c
	case core.DecideAttempt:
		c.Fresh = false
		return c
	}
	return command
}

// append writes to the journal, and reports whether the expected sequence was the last one.
func (w *world) append(s *core.Save) bool {
	w.t.Helper()
	switch {
	case s.Refusal != nil:
		if _, recorded := w.refusals[s.Refusal.Digest]; !recorded {
			w.refusals[s.Refusal.Digest] = s.Refusal
			w.say("refusal: %s", s.Refusal.Reason)
		}
		return true
	case s.Conflict != nil:
		c := s.Conflict
		subject := c.DispatchID + "." + c.LoserDigest + "." + c.HookID
		if _, recorded := w.conflicts[subject]; !recorded {
			w.conflicts[subject] = c
			w.say("conflict: %s, record %d stands", c.Reason, c.StandingRecord)
		}
		return true
	}
	key := core.Key{Dispatch: s.Record.DispatchID, Hook: s.Record.HookID}
	history := w.journal[key]
	var last core.Entry
	if len(history) > 0 {
		last = history[len(history)-1]
	}
	if s.Expect != last.Sequence {
		return false
	}
	w.checkRecord(last.Record, s.Record)
	w.sequence++
	w.journal[key] = append(history, core.Entry{Sequence: w.sequence, Record: s.Record})
	w.say("record %s", w.summary(s.Record))
	return true
}

func (w *world) summary(r *events.DispatchReceipt) string {
	text := fmt.Sprintf("%d: %s", r.RecordNumber, r.Status)
	if r.Code != "" || r.Reason != "" {
		text += fmt.Sprintf(" (%s, %s)", orNull(r.Code), orNull(r.Reason))
	}
	text += fmt.Sprintf(", attempt %d, invocations %d", r.Attempt, r.Invocations)
	if r.RetryAt != "" {
		text += ", due at " + w.since(events.Timestamp(r.RetryAt).Time())
	}
	if r.Actor != "" {
		text += ", by " + string(r.Actor)
	}
	return text
}

func orNull(s events.Optional) string {
	if s == "" {
		return "null"
	}
	return string(s)
}

func (w *world) carryOut(effect core.Effect) {
	w.t.Helper()
	switch e := effect.(type) {
	case core.PublishIntents:
		for i := range e.Intents {
			w.publishIntent(&e.Intents[i], e.AcceptedAt)
		}
	case core.Schedule:
		if at, there := w.schedules[e.Key]; there && !e.Replace {
			w.say("a wake-up of %s is scheduled already, for %s", e.Key.Hook, w.since(at))
			return
		}
		w.schedules[e.Key] = e.At
		w.say("wake-up of %s scheduled for %s", e.Key.Hook, w.since(e.At))
	case core.Call, core.HandBack:
	}
}

func (w *world) publishIntent(intent *events.Intent, at events.Timestamp) {
	w.t.Helper()
	history := w.journal[core.Key{Dispatch: intent.SourceDispatchID, Hook: intent.HookID}]
	recorded := slices.ContainsFunc(history, func(entry core.Entry) bool {
		return slices.ContainsFunc(entry.Record.Intents, func(i events.Intent) bool { return i.IntentID == intent.IntentID })
	})
	if !recorded {
		w.t.Fatalf("an intent is published that no record holds: %s", intent.IntentID)
	}
	if before, stored := w.intents[intent.IntentID]; stored {
		if before != at {
			w.t.Fatalf("an intent is published as accepted at %s and again at %s", before, at)
		}
		w.say("intent of %s is stored already", intent.HookID)
		return
	}
	w.intents[intent.IntentID] = at
	w.say("intent of %s stored", intent.HookID)
}

// advance moves the clock and fires what is due.
func (w *world) advance(d time.Duration) {
	w.now = w.now.Add(d)
	var due []core.Key
	for key, at := range w.schedules {
		if !at.After(w.now) {
			due = append(due, key)
		}
	}
	slices.SortFunc(due, func(a, b core.Key) int {
		return cmp.Or(w.schedules[a].Compare(w.schedules[b]), cmp.Compare(a.Hook, b.Hook), cmp.Compare(a.Dispatch, b.Dispatch))
	})
	for _, key := range due {
		w.fire(key, w.schedules[key])
	}
}

// fire turns the schedule of key into a wake-up.
func (w *world) fire(key core.Key, at time.Time) {
	delete(w.schedules, key)
	w.wakeUps = append(w.wakeUps, &message{key: key, at: at})
	w.say("wake-up of %s fires", key.Hook)
}

func name(command core.Command) string {
	return snake(fmt.Sprintf("%T", command)[len("core."):])
}

// answer is a valid result of the dispatch: proposed with an intent about each of refs, or not applicable.
func (w *world) answer(d *core.Dispatch, refs ...string) core.Reply {
	result := &events.HookResult{
		SchemaVersion: events.HookResultSchema,
		DispatchID:    d.Key.Dispatch, HookID: d.Key.Hook, CapabilityID: d.Capability,
		Status: events.ResultNotApplicable, Intents: []events.Intent{},
	}
	for _, ref := range refs {
		kind := w.in.Hooks[d.Key.Hook].Registration.IntentKinds[0]
		payload, err := json.Marshal(map[string]any{"ref": ref, "weight": 1}, json.Deterministic(true))
		if err != nil {
			w.t.Fatalf("%v", err)
		}
		intent := events.Intent{
			SchemaVersion: events.IntentSchema,
			HookID:        d.Key.Hook, CapabilityID: d.Capability, SourceDispatchID: d.Key.Dispatch,
			IntentKind: kind, Operation: "append", PolicyVersion: "v1", Payload: payload,
			Budget: events.IntentBudget{MaxAttempts: 1, MaxResultBytes: 1024}, FailurePolicy: events.Isolate,
		}
		intent.IntentID = intent.Identity()
		result.Status = events.ResultProposed
		result.Intents = append(result.Intents, intent)
	}
	return core.Reply{Kind: core.ReplyResult, Data: events.Canonical(result)}
}
