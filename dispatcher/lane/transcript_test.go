package lane_test

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"github.com/afterwrite/afterwrite/dispatcher/core"
	"github.com/afterwrite/afterwrite/dispatcher/lane"
	"github.com/afterwrite/afterwrite/events"
)

var rewrite = flag.Bool("rewrite", false, "write what the lane does into the transcripts, to be reviewed as a diff")

// TestTranscripts plays the files of testdata. Each holds inputs to a lane, one a line, and beneath "----" the
// effects that the lane emits on each, up to an empty line. The inputs:
//
//	boot [receipts=N] [places=N] [trip=N] [max=N]   a lane of one hook, max invocations a dispatch
//	deliver N [deliveries=N] [waited=D]             receipt N, in its own message
//	wake N [deliveries=N]                           a wake-up for receipt N's dispatch
//	reply OP result|other|malformed|error|absent    what the provider, or the broker, answers to a call
//	written OP ok|lost|refused                      what the broker answers to a write; ok applies it
//	store OP                                        the write is applied, and its answer lost
//	loaded OP [absent|failed]                       what the journal holds, or not
//	rival N proposed|other|retrying                 another dispatcher writes a record
//	wait D                                          time passes
//	redrive N, stop, abandon, reconnect
func TestTranscripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no transcripts: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var got string
			synctest.Test(t, func(t *testing.T) { got = play(t, string(want)) })
			if *rewrite {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil { //nolint:gosec // a test's own data
					t.Fatal(err)
				}
				return
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Error("the lane did something else (-want +got):\n" + diff)
			}
		})
	}
}

// play runs the inputs of a transcript and gives it with the effects that came of them.
func play(t *testing.T, script string) string {
	var out strings.Builder
	s := &stage{t: t, entries: map[core.Key]core.Entry{}, stored: map[core.Key][]byte{}, saves: map[lane.Op]*core.Save{}, data: map[lane.Op][]byte{}}
	effects := false
	for line := range strings.SplitSeq(strings.TrimSuffix(script, "\n"), "\n") {
		switch {
		case line == "----":
			effects = true
		case line == "":
			effects = false
			out.WriteByte('\n')
		case effects: // what was there before
		case strings.HasPrefix(line, "#"):
			out.WriteString(line + "\n")
		default:
			out.WriteString(line + "\n")
			s.lines = nil
			s.input(strings.Fields(line))
			if len(s.lines) > 0 {
				out.WriteString("----\n" + strings.Join(s.lines, "\n") + "\n")
			}
		}
	}
	return out.String()
}

const hookID, kind = "cap.hook", "cap.act"

// stage is a lane, and what the world around it holds.
type stage struct {
	t         *testing.T
	lane      *lane.Lane
	installed *core.Installed
	start     time.Time
	sequence  uint64
	entries   map[core.Key]core.Entry
	stored    map[core.Key][]byte
	saves     map[lane.Op]*core.Save
	data      map[lane.Op][]byte
	lines     []string
}

func (s *stage) say(format string, args ...any) {
	s.lines = append(s.lines, fmt.Sprintf(format, args...))
}

// option finds name=value among the words.
func option(words []string, name, otherwise string) string {
	for _, word := range words {
		if value, ok := strings.CutPrefix(word, name+"="); ok {
			return value
		}
	}
	return otherwise
}

func (s *stage) number(word string) int {
	n, err := strconv.Atoi(word)
	if err != nil {
		s.t.Fatal(err)
	}
	return n
}

func (s *stage) duration(word string) time.Duration {
	d, err := time.ParseDuration(word)
	if err != nil {
		s.t.Fatal(err)
	}
	return d
}

func (s *stage) input(words []string) {
	s.t.Helper()
	now := time.Now()
	switch words[0] {
	case "boot":
		s.boot(words)
	case "deliver":
		s.lane.Deliver(now, &lane.Delivery{
			Source: lane.Receipts, Event: s.receipt(words[1]), Sequence: uint64(s.number(words[1])), //nolint:gosec // small
			Deliveries: s.number(option(words, "deliveries", "1")), StreamTime: now, Waited: s.duration(option(words, "waited", "0s")),
		})
	case "wake":
		s.lane.Deliver(now, &lane.Delivery{
			Source: lane.Source{Hook: hookID}, Key: s.dispatch(words[1]).Key, Sequence: 1000,
			Deliveries: s.number(option(words, "deliveries", "1")), StreamTime: now,
		})
	case "reply":
		s.lane.Replied(now, s.op(words[1]), s.reply(words[2], s.op(words[1])))
	case "written":
		s.written(now, s.op(words[1]), words[2])
	case "store":
		s.store(s.op(words[1]))
	case "loaded":
		s.loaded(now, s.op(words[1]), words[2:])
	case "rival":
		s.rival(s.dispatch(words[1]), words[2])
	case "wait":
		time.Sleep(s.duration(words[1])) // of the synctest bubble: no time passes, the clock is set
		now = time.Now()
		s.lane.Tick(now)
	case "redrive":
		s.lane.Redrive(now, &lane.Request{Key: s.dispatch(words[1]).Key, Operator: "operator"})
	case "stop":
		s.lane.Stop()
	case "abandon":
		s.lane.Abandon(now)
	case "reconnect":
		s.lane.Reconnected(now)
	default:
		s.t.Fatalf("unknown input %s", words[0])
	}
	s.lane.Pull(now)
}

func (s *stage) op(word string) lane.Op { return lane.Op(s.number(strings.TrimPrefix(word, "#"))) } //nolint:gosec // small

func (s *stage) boot(words []string) {
	schema, err := events.CompilePayloadSchema(kind, []byte(`{"type":"object"}`))
	if err != nil {
		s.t.Fatal(err)
	}
	registration := events.Registration{
		SchemaVersion: events.RegistrationSchema, HookID: hookID, CapabilityID: "cap", Phase: events.PostWriteback,
		FailurePolicy: events.Isolate, EventKinds: events.EventKinds(), IntentKinds: []events.IntentKind{kind},
		RequestedReadScope: []events.ReadScope{events.SettlementIdentity},
		Budget: events.HookBudget{
			MaxInvocationsPerDispatch: s.number(option(words, "max", "3")), MaxIntentsPerDispatch: 1, MaxResultBytes: 4096, TimeoutMillis: 1000,
		},
	}
	s.installed = &core.Installed{
		Hooks: map[events.HookID]core.Hook{hookID: {
			Registration: registration, Digest: registration.Digest(),
			Payloads: map[events.IntentKind]*events.PayloadSchema{kind: schema},
		}},
		Profiles:      map[string]core.Profile{"default": {Name: "default", Enabled: true, Hooks: []events.HookID{hookID}, Retry: core.DefaultRetry}},
		SkewAllowance: time.Second, DuplicateWindow: time.Minute, JournalAge: time.Hour,
	}
	s.start = time.Now()
	s.lane = lane.New(lane.Options{
		Installed: s.installed, Receipts: s.number(option(words, "receipts", "4")),
		Hooks: map[events.HookID]lane.HookLimits{hookID: {
			Places: s.number(option(words, "places", "2")), TripAfter: s.number(option(words, "trip", "9")), OpenFor: 5 * time.Second,
		}},
	}, s, s)
}

func (s *stage) receipt(n string) lane.Event {
	receipt := &events.Receipt{
		SchemaVersion: events.ReceiptSchema, Profile: "default", EventKind: events.ReplanRecorded,
		Plan: events.Settlement{AgentID: "agent", EffectID: "effect_" + n, GoalID: "goal", TodoID: "todo", TurnInstanceID: "turn_" + n},
		Receipt: events.WritebackReceipt{
			Checkpointed: true, CommittedAt: events.NewTimestamp(s.start), EffectID: "effect_" + n, ReceiptID: "receipt_" + n,
			StateRevision: "rev", Status: events.Committed, StepKind: events.DurableWriteback,
		},
		Projection: events.Projection{SchemaVersion: events.ProjectionSchema, Transition: events.ReplanEntered},
	}
	return lane.Event{SubjectKind: receipt.EventKind, MessageID: receipt.MessageID(), Data: events.Canonical(receipt)}
}

// dispatch is receipt n's one dispatch.
func (s *stage) dispatch(n string) *core.Dispatch {
	event := s.receipt(n)
	command := core.AdmitReceipt{SubjectKind: event.SubjectKind, Data: event.Data, Deliveries: 1, StreamTime: s.start, Now: s.start}
	result, err := core.Commit(command, core.State{Installed: s.installed}, core.System)
	if err != nil || len(result.Plan) != 1 {
		s.t.Fatalf("receipt %s plans no dispatch: %v", n, err)
	}
	return &result.Plan[0]
}

// named is the number of the receipt that the dispatch is about.
func (s *stage) named(key core.Key) string {
	for n := range 20 {
		if s.dispatch(strconv.Itoa(n)).Key == key {
			return strconv.Itoa(n)
		}
	}
	s.t.Fatalf("a dispatch of no receipt: %s", key.Dispatch)
	return ""
}

func (s *stage) result(id events.DispatchID, variant string) []byte {
	intent := events.Intent{
		Budget: events.IntentBudget{MaxAttempts: 1, MaxResultBytes: 1024}, CapabilityID: "cap", FailurePolicy: events.Isolate,
		HookID: hookID, IntentKind: kind, Operation: "act", Payload: jsontext.Value(`{"variant":"` + variant + `"}`),
		PolicyVersion: "v0", SchemaVersion: events.IntentSchema, SourceDispatchID: id,
	}
	intent.IntentID = intent.Identity()
	return events.Canonical(&events.HookResult{
		CapabilityID: "cap", DispatchID: id, HookID: hookID, Intents: []events.Intent{intent},
		SchemaVersion: events.HookResultSchema, Status: events.ResultProposed,
	})
}

func (s *stage) reply(word string, op lane.Op) core.Reply {
	id := events.DispatchID(s.data[op])
	switch word {
	case "result":
		return core.Reply{Kind: core.ReplyResult, Data: s.result(id, "true")}
	case "other":
		return core.Reply{Kind: core.ReplyResult, Data: s.result(id, "other")}
	case "malformed":
		return core.Reply{Kind: core.ReplyResult, Data: []byte("{")}
	case "error":
		return core.Reply{Kind: core.ReplyProviderError}
	case "absent":
		return core.Reply{Kind: core.ReplyNoResponder}
	}
	s.t.Fatalf("unknown reply %s", word)
	return core.Reply{}
}

func (s *stage) store(op lane.Op) {
	save := s.saves[op]
	if save == nil || save.Record == nil {
		return
	}
	s.put(save.Record, s.data[op])
}

func (s *stage) put(record *events.DispatchReceipt, data []byte) {
	key := core.Key{Dispatch: record.DispatchID, Hook: record.HookID}
	s.sequence++
	s.entries[key] = core.Entry{Sequence: s.sequence, Record: record}
	s.stored[key] = data
}

func (s *stage) written(now time.Time, op lane.Op, word string) {
	switch word {
	case "ok":
		s.store(op)
		s.lane.Written(now, op, lane.Written{Sequence: s.sequence})
	case "lost":
		s.lane.Written(now, op, lane.Written{Lost: true})
	case "refused":
		s.lane.Written(now, op, lane.Written{Err: os.ErrPermission})
	default:
		s.t.Fatalf("unknown answer %s", word)
	}
}

func (s *stage) loaded(now time.Time, op lane.Op, words []string) {
	n := string(s.data[op])
	key := s.dispatch(n).Key
	switch {
	case len(words) == 0:
		s.lane.Loaded(now, op, lane.Loaded{Entry: s.entries[key], Data: s.stored[key]})
	case words[0] == "absent":
		s.lane.Loaded(now, op, lane.Loaded{})
	default:
		s.lane.Loaded(now, op, lane.Loaded{Err: os.ErrPermission})
	}
}

// rival writes what another dispatcher would have written about the dispatch.
func (s *stage) rival(d *core.Dispatch, word string) {
	call := core.Call{Dispatch: d, Attempt: 1, Invocations: 1}
	if record := s.entries[d.Key].Record; record != nil {
		call.Base = record.RecordNumber
	}
	reply := core.Reply{Kind: core.ReplyProviderError}
	if word != "retrying" {
		reply = core.Reply{Kind: core.ReplyResult, Data: s.result(d.Key.Dispatch, map[string]string{"proposed": "true", "other": "other"}[word])}
	}
	state := core.State{Installed: s.installed, Journal: map[core.Key]core.Entry{d.Key: s.entries[d.Key]}}
	result, err := core.Commit(core.DecideAttempt{Dispatch: d, Call: call, Reply: reply, Now: s.start}, state, core.System)
	if err != nil || result.Save == nil {
		s.t.Fatalf("the rival could not decide: %v", err)
	}
	s.put(result.Save.Record, events.Canonical(result.Save.Record))
}

// The effects, as they are written into the transcript.

func (s *stage) Pull(op lane.Op, source lane.Source, batch int) {
	name := "receipts"
	if source != lane.Receipts {
		name = "wake-ups of " + source.Hook
	}
	s.say("pull %d %s #%d", batch, name, op)
}

func (s *stage) Call(op lane.Op, call *core.Call, _ lane.Trace) {
	s.data[op] = []byte(call.Dispatch.Key.Dispatch)
	s.say("call %s attempt %d on record %d #%d", s.named(call.Dispatch.Key), call.Attempt, call.Base, op)
}

func (s *stage) Load(op lane.Op, key core.Key, exact bool) {
	s.data[op] = []byte(s.named(key))
	from := "a replica"
	if exact {
		from = "the leader"
	}
	s.say("load %s from %s #%d", s.named(key), from, op)
}

func (s *stage) Append(op lane.Op, save *core.Save, data []byte, _ lane.Trace) {
	if before, again := s.data[op]; again && !bytes.Equal(before, data) {
		s.t.Errorf("op %d is repeated with other bytes", op)
	}
	s.saves[op], s.data[op] = save, data
	switch {
	case save.Record != nil:
		r := save.Record
		s.say("append %s record %d: %s %s %s after sequence %d #%d", s.named(core.Key{Dispatch: r.DispatchID, Hook: r.HookID}),
			r.RecordNumber, r.Status, r.Code, r.Reason, save.Expect, op)
	case save.Refusal != nil:
		s.say("append refusal %s #%d", save.Refusal.Reason, op)
	default:
		s.say("append conflict %s #%d", save.Conflict.Reason, op)
	}
}

func (s *stage) Publish(op lane.Op, intent *events.Intent, _ events.Timestamp, _ lane.Trace) {
	s.say("publish intent of %s #%d", s.named(core.Key{Dispatch: intent.SourceDispatchID, Hook: intent.HookID}), op)
}

func (s *stage) Schedule(op lane.Op, schedule core.Schedule) {
	verb := "schedule"
	if schedule.Replace {
		verb = "reschedule"
	}
	s.say("%s %s in %s #%d", verb, s.named(schedule.Key), time.Until(schedule.At), op)
}

func (s *stage) Forget(op lane.Op) { s.say("forget #%d", op) }

func name(d *lane.Delivery) string {
	if d.Source == lane.Receipts {
		return "receipt " + strconv.FormatUint(d.Sequence, 10)
	}
	return "wake-up"
}

func (s *stage) Acknowledge(d *lane.Delivery) { s.say("acknowledge %s", name(d)) }
func (s *stage) Progress(d *lane.Delivery)    { s.say("progress of %s", name(d)) }
func (s *stage) HandBack(d *lane.Delivery, delay time.Duration) {
	s.say("hand back %s for %s", name(d), delay)
}

func (s *stage) Answer(_ *lane.Request, a lane.Answer) {
	switch {
	case a.Record != nil:
		s.say("answer: record %d is %s", a.Record.RecordNumber, a.Record.Status)
	case a.Rejection != nil:
		s.say("answer: %s", a.Rejection.Reason)
	default:
		s.say("answer: %v", a.Err)
	}
}

// As an observer it minds panics, and tells of breakers.

func (s *stage) Decided(time.Time, *lane.Delivery, *core.Dispatch, *core.Result, lane.Trace) {}
func (s *stage) Replied(events.HookID, core.ReplyKind, time.Duration)                        {}
func (s *stage) Settled(lane.Source, time.Duration, bool)                                    {}
func (s *stage) Lost(core.Key)                                                               {}
func (s *stage) Failed(string, error)                                                        {}
func (s *stage) Breaker(_ events.HookID, state string)                                       { s.say("breaker %s", state) }
func (s *stage) Panicked(_ lane.Source, _ uint64, value any, stack []byte) {
	s.t.Errorf("panic: %v\n%s", value, stack)
}
