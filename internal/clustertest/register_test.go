package clustertest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go"

	"github.com/afterwrite/afterwrite/streams"
)

// A subject of the journal is to be a register with compare-and-set: an append that names the last record is stored
// exactly if that still is the last one. That is what every promise of the dispatcher stands on.

// action is what a client asks of a register.
type action struct {
	register string
	read     bool
	// expect and write are the values that an append expects and writes; "" is no record.
	expect, write string
}

// outcome is what the client heard.
type outcome struct {
	kind  outcomeKind
	value string // what was read
}

type outcomeKind int

const (
	done outcomeKind = iota
	// lost: another record is the last one.
	lost
	// unsure: nothing was stored, and nothing is said about the last record: a rival was in flight, or nobody listened.
	unsure
	// unanswered: it may have been stored, now or later.
	unanswered
)

var register = porcupine.NondeterministicModel{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		byRegister := map[string][]porcupine.Operation{}
		for _, op := range history {
			name := op.Input.(action).register
			byRegister[name] = append(byRegister[name], op)
		}
		var parts [][]porcupine.Operation
		for _, part := range byRegister {
			parts = append(parts, part)
		}
		return parts
	},
	Init: func() []any { return []any{""} },
	Step: func(state, input, output any) []any {
		last, a, o := state.(string), input.(action), output.(outcome)
		holds, next := last == a.expect, a.write
		if a.read {
			holds, next = last == o.value, last
		}
		switch {
		case o.kind == unsure, o.kind == unanswered && (a.read || !holds):
			return []any{last}
		case o.kind == unanswered:
			return []any{last, next}
		case (o.kind == done) == holds:
			if o.kind == lost {
				next = last
			}
			return []any{next}
		}
		return nil
	},
	DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v → %+v", input, output) },
}

// client appends to registers and reads them, and keeps what it did. It knows sequences; the model knows values.
type client struct {
	id      int
	nc      *nats.Conn
	start   time.Time
	history []porcupine.Operation
}

func (c *client) do(ctx context.Context, a action, f func(ctx context.Context) outcome) outcome {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	call := time.Since(c.start).Nanoseconds()
	o := f(ctx)
	returned := time.Since(c.start).Nanoseconds()
	if o.kind == unanswered {
		returned = int64(time.Hour) // it may still be on its way
	}
	c.history = append(c.history, porcupine.Operation{ClientId: c.id, Input: a, Call: call, Output: o, Return: returned})
	return o
}

// brokerAnswer is what the broker says to a write, or to a read of the leader.
type brokerAnswer struct {
	Sequence uint64 `json:"seq"`
	Error    *struct {
		Code int `json:"err_code"`
	} `json:"error"`
	Message *struct {
		Sequence uint64 `json:"seq"`
		Data     []byte `json:"data"`
	} `json:"message"`
}

const (
	wrongLast         = 10071
	wrongLastInFlight = 10164
	noMessage         = 10037
)

// ask gives the broker's answer, nil if there was none; heard is false if nobody can have heard the question.
func (c *client) ask(ctx context.Context, m *nats.Msg) (answer *brokerAnswer, heard bool) {
	reply, err := c.nc.RequestMsgWithContext(ctx, m)
	if err != nil {
		return nil, !errors.Is(err, nats.ErrNoResponders)
	}
	answer = new(brokerAnswer)
	if json.Unmarshal(reply.Data, answer) != nil {
		return nil, true
	}
	return answer, true
}

func (c *client) append(ctx context.Context, subject string, expect uint64, a action) outcome {
	return c.do(ctx, a, func(ctx context.Context) outcome {
		answer, heard := c.ask(ctx, &nats.Msg{
			Subject: subject, Data: []byte(a.write),
			Header: nats.Header{streams.HeaderExpectedSequence: {strconv.FormatUint(expect, 10)}},
		})
		switch {
		case !heard:
			return outcome{kind: unsure}
		case answer == nil:
			return outcome{kind: unanswered}
		case answer.Error == nil && answer.Sequence > 0:
			return outcome{kind: done}
		case answer.Error != nil && answer.Error.Code == wrongLast:
			return outcome{kind: lost}
		case answer.Error != nil && answer.Error.Code == wrongLastInFlight:
			return outcome{kind: unsure}
		}
		return outcome{kind: unanswered}
	})
}

// read reads the last record from the stream's leader, as a dispatcher does before it decides.
func (c *client) read(ctx context.Context, subject string) (sequence uint64, value string, ok bool) {
	o := c.do(ctx, action{register: subject, read: true}, func(ctx context.Context) outcome {
		answer, _ := c.ask(ctx, &nats.Msg{
			Subject: streams.MsgGetSubject(streams.Journal), Data: []byte(`{"last_by_subj":"` + subject + `"}`),
		})
		switch {
		case answer != nil && answer.Message != nil:
			sequence = answer.Message.Sequence
			return outcome{kind: done, value: string(answer.Message.Data)}
		case answer != nil && answer.Error != nil && answer.Error.Code == noMessage:
			return outcome{kind: done}
		}
		return outcome{kind: unanswered}
	})
	return sequence, o.value, o.kind == done
}

func TestASubjectOfTheJournalIsARegisterWithCompareAndSet(t *testing.T) {
	t.Parallel()
	w := newWorld(t, callTimeout)
	const clients, registers = 9, 2
	rounds, pause := 1, 2*time.Millisecond
	if *full {
		rounds, pause = 8, 20*time.Millisecond
	}
	var subjects []string
	for i := range registers {
		dispatch := w.dispatchOf(receipt(i))
		subjects = append(subjects, streams.JournalSubject(dispatch, hookID))
	}
	ctx, stop := context.WithCancel(w.ctx)
	start := time.Now()
	var working sync.WaitGroup
	var asked atomic.Int64
	more := func(n int64) {
		for want := asked.Load() + n; asked.Load() < want; {
			select {
			case <-time.After(poll):
			case <-ctx.Done():
				t.Fatal("the clients do nothing")
			}
		}
	}
	all := make([]*client, clients)
	for i := range all {
		// Each is connected to one node, whatever becomes of it.
		c := &client{id: i, nc: w.connect(w.cluster.Nodes()[i%nodes].ClientURL()), start: start}
		all[i] = c
		working.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(i), 0)) //nolint:gosec // reproducible on purpose
			for n := 0; ctx.Err() == nil; n++ {
				asked.Add(1)
				subject := subjects[rng.IntN(registers)]
				sequence, value, ok := c.read(ctx, subject)
				if !ok {
					continue
				}
				write := fmt.Sprintf("client %d write %d", i, n)
				c.append(ctx, subject, sequence, action{register: subject, expect: value, write: write})
				select {
				case <-time.After(pause): // so that a history does not grow beyond what can be checked
				case <-ctx.Done():
				}
			}
		})
	}
	for range rounds {
		more(200)
		leader := w.cluster.StreamLeader(streams.Journal)
		leader.Stop()
		w.cluster.StreamLeader(streams.Journal)
		leader.Start()
		w.cluster.AwaitCurrent(streams.Journal)
		if *full {
			leader := w.cluster.StreamLeader(streams.Journal)
			leader.Isolate()
			w.cluster.StreamLeader(streams.Journal)
			leader.Rejoin()
			w.cluster.AwaitCurrent(streams.Journal)
		}
	}
	more(200)
	stop()
	working.Wait()
	var history []porcupine.Operation
	count := map[outcomeKind]int{}
	for _, c := range all {
		history = append(history, c.history...)
		for _, op := range c.history {
			count[op.Output.(outcome).kind]++
		}
	}
	t.Logf("%d operations: %d done, %d lost, %d unsure, %d unanswered",
		len(history), count[done], count[lost], count[unsure], count[unanswered])
	if count[done] == 0 || count[lost]+count[unsure] == 0 {
		t.Error("nobody won, or nobody lost: the history shows nothing")
	}
	if result := porcupine.CheckOperationsTimeout(register.ToModel(), history, time.Minute); result != porcupine.Ok {
		t.Errorf("the history is not that of a register with compare-and-set: %s", result)
	}
}

func TestTheRegisterTellsWrongHistories(t *testing.T) {
	one := action{register: "r", write: "one"}
	two := action{register: "r", write: "two"}
	after := action{register: "r", expect: "one", write: "three"}
	read := action{register: "r", read: true}
	for name, test := range map[string]struct {
		actions  []action
		outcomes []outcome
		right    bool
	}{
		"two create":                      {[]action{one, two}, []outcome{{}, {}}, false},
		"one creates, one loses":          {[]action{one, two}, []outcome{{}, {kind: lost}}, true},
		"nobody creates, one loses":       {[]action{one, two}, []outcome{{kind: unsure}, {kind: lost}}, false},
		"an unanswered one may be stored": {[]action{one, two}, []outcome{{kind: unanswered}, {kind: lost}}, true},
		"or not":                          {[]action{one, two}, []outcome{{kind: unanswered}, {}}, true},
		"a follower":                      {[]action{one, after, read}, []outcome{{}, {}, {value: "three"}}, true},
		"a record is forgotten":           {[]action{one, read}, []outcome{{}, {}}, false},
		"a record goes backwards":         {[]action{one, after, read}, []outcome{{}, {}, {value: "one"}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			var history []porcupine.Operation
			for i, a := range test.actions {
				op := porcupine.Operation{ClientId: i, Input: a, Call: int64(2 * i), Output: test.outcomes[i], Return: int64(2*i + 1)}
				if test.outcomes[i].kind == unanswered {
					op.Return = 1000
				}
				history = append(history, op)
			}
			if got := porcupine.CheckOperations(register.ToModel(), history); got != test.right {
				t.Errorf("right = %t, want %t", got, test.right)
			}
		})
	}
}
