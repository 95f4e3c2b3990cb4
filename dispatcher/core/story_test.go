package core_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/afterwrite/afterwrite/dispatcher/core"
	"github.com/afterwrite/afterwrite/events"
)

// A story is a transcript: what happens stands after "> ", what comes of it is indented below. testdata/README.md
// lists what can happen.
func TestStoriesGoAsTold(t *testing.T) {
	files, err := filepath.Glob("testdata/stories/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no stories: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			told, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := tell(t, string(told))
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if diff := cmp.Diff(string(told), got); diff != "" {
				t.Errorf("the story goes differently (- told, + happened):\n%s", diff)
			}
		})
	}
}

// story is a world with one writeback in it, told once or more.
type story struct {
	*world
	g      *given
	t      *testing.T
	before map[string]*message
}

func tell(t *testing.T, told string) string {
	s := &story{g: readGiven(t), t: t, before: map[string]*message{}}
	start := time.Date(2026, 10, 1, 8, 0, 0, 0, time.UTC)
	s.world = newWorld(t, s.g.installed(t, "workshop", plain), start)
	for line := range strings.Lines(told) {
		if strings.HasPrefix(line, "  ") {
			continue // an output, to be told again
		}
		s.out.WriteString(line)
		if step, ok := strings.CutPrefix(strings.TrimSpace(line), "> "); ok {
			s.step(strings.Fields(step))
		}
	}
	return s.out.String()
}

func (s *story) step(words []string) {
	s.t.Helper()
	at := killNever
	if last := words[len(words)-1]; strings.HasPrefix(last, "kill=") {
		at = kill(strings.TrimPrefix(last, "kill="))
		words = words[:len(words)-1]
	}
	var err error
	switch verb, args := words[0], words[1:]; verb {
	case "install":
		s.in = s.g.installed(s.t, args[0], plain)
	case "receipt":
		s.before[args[0]] = s.publish(args[0], writeback(args[1:]))
	case "deliver":
		err = s.deliver(s.before[args[0]], at)
	case "reply":
		err = s.reply(s.call(args[0]), s.replyOf(s.call(args[0]), args[1:]), at)
	case "wake":
		err = s.wake(s.wakeUp(args), at)
	case "advance":
		s.advance(s.duration(args[0]))
	case "fire":
		s.fire(s.key(args[0]), s.now)
	case "lose":
		delete(s.schedules, s.key(args[0]))
	case "pressure":
		s.pressure[args[0]] = core.Pressure(strings.Join(args[1:], ""))
	case "redrive":
		err = s.redrive(s.key(args[0]), args[1], at)
	case "expire":
		s.world.journal = map[core.Key][]core.Entry{}
	case "kill":
		err = s.die()
	case "journal":
		s.tellJournal()
	default:
		s.t.Fatalf("nothing is called %q", verb)
	}
	if rejection := (*core.Rejection)(nil); err != nil && !errors.Is(err, errKilled) && !errors.As(err, &rejection) {
		s.t.Fatal(err)
	}
}

// writeback is the one writeback of the stories, with other facts if some are named.
func writeback(words []string) *events.Receipt {
	r := &events.Receipt{
		SchemaVersion: events.ReceiptSchema,
		EventKind:     events.TodoCompleted,
		Profile:       "ledger_only",
		Plan: events.Settlement{
			GoalID: "goal_a", AgentID: "agent_a", TodoID: "todo_a", TurnInstanceID: "turn_a",
			EffectID: "goal_a:agent_a:todo_a:turn_a",
		},
		Receipt: events.WritebackReceipt{
			ReceiptID: "receipt_a", EffectID: "goal_a:agent_a:todo_a:turn_a", StepKind: events.DurableWriteback,
			Status: events.Committed, StateRevision: "rev_a", CommittedAt: "2026-10-01T08:00:00Z", Checkpointed: true,
		},
		Projection: events.Projection{
			SchemaVersion: events.ProjectionSchema, Transition: events.SegmentCompleted, FactRefs: []string{"fact_a"},
		},
	}
	for _, word := range words {
		switch member, value, _ := strings.Cut(word, "="); member {
		case "profile":
			r.Profile = value
		case "fact":
			r.Projection.FactRefs = []string{value}
		case "committed_at":
			r.Receipt.CommittedAt = events.Timestamp(value)
		}
	}
	return r
}

func (s *story) replyOf(c *call, words []string) core.Reply {
	switch kind := words[0]; kind {
	case "proposed":
		return s.answer(c.effect.Dispatch, words[1:]...)
	case "not_applicable":
		return s.answer(c.effect.Dispatch)
	case "malformed":
		return core.Reply{Kind: core.ReplyResult, Data: []byte("{")}
	default:
		return core.Reply{Kind: core.ReplyKind(kind)}
	}
}

func (s *story) call(number string) *call {
	s.t.Helper()
	n, err := strconv.Atoi(number)
	if err != nil || n < 1 || n > len(s.calls) || s.calls[n-1].ended {
		s.t.Fatalf("call %s is not under way", number)
	}
	return s.calls[n-1]
}

// wakeUp is the first wake-up of a hook that has fired and is not acknowledged, or the one with a number.
func (s *story) wakeUp(words []string) *message {
	s.t.Helper()
	number := "1"
	if len(words) > 1 {
		number = words[1]
	}
	n := 0
	for _, m := range s.wakeUps {
		if m.key.Hook == words[0] {
			if n++; strconv.Itoa(n) == number {
				return m
			}
		}
	}
	s.t.Fatalf("wake-up %s of %s has not fired", number, words[0])
	return nil
}

// key is that of the hook's dispatch for the one writeback.
func (s *story) key(hook string) core.Key {
	s.t.Helper()
	for _, key := range s.told {
		if key.Hook == hook {
			return key
		}
	}
	s.t.Fatalf("no dispatch of %s was planned", hook)
	return core.Key{}
}

func (s *story) duration(text string) time.Duration {
	s.t.Helper()
	d, err := time.ParseDuration(text)
	if err != nil {
		s.t.Fatal(err)
	}
	return d
}

func (s *story) tellJournal() {
	var lines []string
	for key, history := range s.world.journal {
		for _, entry := range history {
			lines = append(lines, fmt.Sprintf("%s %s", key.Hook, s.summary(entry.Record)))
		}
	}
	slices.Sort(lines)
	for _, line := range lines {
		s.say("%s", line)
	}
	s.say("%d intents, %d conflicts, %d schedules, %d receipts and %d wake-ups not acknowledged",
		len(s.intents), len(s.conflicts), len(s.schedules), len(s.messages), len(s.wakeUps))
}
