package simulation

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/afterwrite/afterwrite/dispatcher/core"
	"github.com/afterwrite/afterwrite/dispatcher/lane"
	"github.com/afterwrite/afterwrite/events"
)

// scenario plays a history in which nothing happens by chance. Its nodes run when play is called.
func scenario(t *testing.T, s setting, play func(h *history)) {
	t.Helper()
	scenarioAt(t, 1, s, play)
}

// scenarioAt plays it with the latencies of a seed.
func scenarioAt(t *testing.T, seed uint64, s setting, play func(h *history)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		h := newHistory(seed, &log, s)
		h.w.faulty = false
		h.look = h.balanced
		h.begin()
		play(h)
		for _, failure := range h.w.failures {
			t.Error(failure)
		}
		if t.Failed() {
			t.Log("\n" + log.String())
		}
	})
}

// roomy is a setting in which no hook is saturated or suspended.
func roomy() setting {
	s := defaultSetting()
	s.limits = lane.HookLimits{Places: 64, TripAfter: 1000}
	return s
}

// publish has n receipts published, one every pause.
func (h *history) publish(n int, pause time.Duration) {
	for i := range n {
		h.w.after(time.Duration(i)*pause, func() { h.b.publish(tell(i, h.w.now(), "fact_a")) })
	}
}

// dispatches are those of the receipts so far, for one hook.
func (h *history) dispatches(hook events.HookID) (keys []core.Key) {
	for _, m := range h.check.messages {
		for _, p := range h.check.plan(m.told, h.latest) {
			if p.key.Hook == hook && !slices.Contains(keys, p.key) {
				keys = append(keys, p.key)
			}
		}
	}
	return keys
}

// story is a dispatch's records in short.
func (h *history) story(key core.Key) (story []string) {
	for _, s := range h.b.journal[key] {
		line := string(s.record.Status)
		for _, more := range []events.Optional{s.record.Code, s.record.Reason} {
			if more != "" {
				line += " " + string(more)
			}
		}
		story = append(story, fmt.Sprintf("%s %d/%d", line, s.record.Attempt, s.record.Invocations))
	}
	return story
}

// tells holds the story of every dispatch of a hook. The word "decided" stands for what the true answer is.
func (h *history) tells(hook events.HookID, want ...string) {
	keys := h.dispatches(hook)
	if len(keys) == 0 {
		h.w.fail("there is no dispatch of %s", hook)
	}
	for _, key := range keys {
		decided := string(events.StatusNotApplicable)
		if proposes(key.Dispatch) {
			decided = string(events.StatusProposed)
		}
		wanted := slices.Clone(want)
		for i := range wanted {
			if rest, ok := bytes.CutPrefix([]byte(wanted[i]), []byte("decided")); ok {
				wanted[i] = decided + string(rest)
			}
		}
		if diff := cmp.Diff(wanted, h.story(key)); diff != "" {
			h.w.fail("the story of %s (-want +got):\n%s", key.Dispatch, diff)
		}
	}
}

// over holds that everything is at rest.
func (h *history) over() {
	if !h.check.resting() {
		h.w.fail("something is still to happen")
	}
	h.check.atRest()
}

// balanced complains unless every receipt is at an end, waits with a wake-up, or is still to be acknowledged.
func (h *history) balanced() string {
	if t := h.check.tally(); t.terminal+t.waiting+t.unacknowledged != t.published {
		return fmt.Sprintf("published is not terminal + waiting + unacknowledged: %+v", t)
	}
	return ""
}

func TestWithABadProviderForAnHourEveryReceiptFailsOrWaits(t *testing.T) {
	for name, mood := range map[string]mood{"errors": failing, "silence": mute, "death at each call": dying, "absence": absent} {
		t.Run(name, func(t *testing.T) {
			s := defaultSetting()
			s.nodes = 2
			s.retry = core.DefaultRetry
			s.invocations = map[events.HookID]int{hooks[0]: 16, hooks[1]: 2}
			scenario(t, s, func(h *history) {
				for _, hook := range hooks {
					h.providers.moods[hook] = mood
				}
				h.publish(60, 10*time.Second)
				h.runFor(time.Hour)
				if got := h.check.tally(); got.published != 60 || got.unacknowledged != 0 || got.terminal == 0 {
					h.w.fail("after an hour: %+v", got)
				}
				for _, key := range slices.Concat(h.dispatches(hooks[0]), h.dispatches(hooks[1])) {
					if r := h.b.state(key); r.Status != events.StatusRetrying && r.Status != events.StatusFailed {
						h.w.fail("%s is %s", key.Dispatch, r.Status)
					}
				}
				// And when the provider is back, what waits drains without help.
				clear(h.providers.moods)
				h.runFor(10 * time.Minute)
				h.over()
			})
		})
	}
}

func TestALateResultEndsADispatchThatWasTriedAndScheduledAgain(t *testing.T) {
	s := roomy()
	s.retry = core.Retry{MaxAttempts: 6, Initial: 10 * time.Second, Max: time.Minute}
	scenario(t, s, func(h *history) {
		h.providers.script = func(_ events.DispatchID, nth int) answer {
			if nth == 1 {
				return answer{after: 15 * time.Second, kind: core.ReplyResult}
			}
			return answer{kind: core.ReplyProviderError}
		}
		h.publish(8, 0)
		h.runFor(16 * time.Second)
		for _, key := range h.dispatches(hooks[0]) {
			if !h.b.hasWakeup(key) {
				h.w.fail("%s was decided late, and the wake-up of its second attempt is gone already", key.Dispatch)
			}
		}
		h.runFor(time.Minute)
		h.tells(hooks[0],
			"retrying producer_timed_out no_reply 1/1",
			"retrying producer_failed provider_error 2/2",
			"decided 2/2",
		)
		// Its one invocation was used up before the result came.
		h.tells(hooks[1], "failed producer_timed_out invocations_exhausted 1/1")
		h.over()
	})
}

func TestALateResultBesideARunningAttemptIsTheOneRecord(t *testing.T) {
	s := roomy()
	s.timeout = 5 * time.Second
	scenario(t, s, func(h *history) {
		h.providers.script = func(_ events.DispatchID, nth int) answer {
			if nth == 1 {
				return answer{after: 7 * time.Second, kind: core.ReplyResult}
			}
			return answer{after: 4 * time.Second, kind: core.ReplyProviderError} // begun after 6 s
		}
		h.publish(8, 0)
		h.runFor(time.Minute)
		h.tells(hooks[0], "retrying producer_timed_out no_reply 1/1", "decided 1/1")
		h.over()
	})
}

func TestASlowProviderNeverGetsADispatchDecidedTwice(t *testing.T) {
	for name, twice := range map[string]bool{"delivered to one": false, "delivered to two at once": true} {
		t.Run(name, func(t *testing.T) {
			s := roomy()
			s.nodes = 2
			s.timeout = 30 * time.Second
			scenario(t, s, func(h *history) {
				h.b.receipts.twice = twice
				h.providers.script = func(events.DispatchID, int) answer {
					return answer{after: s.ackWait * 9 / 10, kind: core.ReplyResult}
				}
				h.runFor(time.Second) // both have pulled
				h.publish(8, time.Second)
				h.runFor(3 * time.Minute)
				for _, hook := range hooks {
					h.tells(hook, "decided 1/1")
				}
				if want := 16; !twice && h.providers.total != want {
					h.w.fail("%d calls, want %d", h.providers.total, want)
				}
				h.over()
			})
		})
	}
}

func TestAWakeUpThatFindsItsHookSaturatedComesAgain(t *testing.T) {
	s := defaultSetting()
	s.limits = lane.HookLimits{Places: 1, TripAfter: 1000}
	scenario(t, s, func(h *history) {
		for _, hook := range hooks {
			h.providers.moods[hook] = absent
		}
		h.publish(40, 500*time.Millisecond)
		h.runFor(2 * time.Second)
		h.providers.script = func(events.DispatchID, int) answer {
			return answer{after: 700 * time.Millisecond, kind: core.ReplyResult}
		}
		h.runFor(10 * time.Minute)
		if h.nodes[0].outcomes[core.OutcomeHandedBack] == 0 {
			h.w.fail("no wake-up found its hook saturated")
		}
		for _, key := range h.dispatches(hooks[0]) {
			if r := h.b.state(key); r.Status == events.StatusFailed || r.Invocations != 1 {
				h.w.fail("%s is %s after %d invocations", key.Dispatch, r.Status, r.Invocations)
			}
		}
		h.over()
	})
}

// failed brings a receipt to where both its dispatches have failed.
func (h *history) failed() []core.Key {
	for _, hook := range hooks {
		h.providers.moods[hook] = failing
	}
	h.publish(1, 0)
	h.runFor(30 * time.Second)
	clear(h.providers.moods)
	keys := slices.Concat(h.dispatches(hooks[0]), h.dispatches(hooks[1]))
	for _, key := range keys {
		if r := h.b.state(key); r.Status != events.StatusFailed {
			h.w.fail("%s is %s", key.Dispatch, r.Status)
		}
	}
	return keys
}

func TestARedriveBesideAStaleWakeUpIsNotLost(t *testing.T) {
	s := roomy()
	s.nodes = 2
	for seed := range uint64(200) {
		// The wake-up fires anywhere from before the request is made to after it is answered. Killed as well, the
		// redrive is done or not begun.
		asked := scheduleDelay - 8*time.Millisecond + time.Duration(seed%40)*250*time.Microsecond
		effects := int(seed/40) + 1
		scenarioAt(t, seed, s, func(h *history) {
			failed := h.failed()
			whole, killed := failed[0], failed[1]
			for _, key := range failed {
				h.b.setSchedule(key, h.w.now())
			}
			h.w.after(asked, func() {
				h.nodes[0].dieAfter = effects
				h.redrive(killed, h.nodes[0])
				h.redrive(whole, h.nodes[1])
			})
			h.runFor(3 * time.Minute)
			if r := h.b.state(whole); r.Status == events.StatusFailed {
				h.w.fail("%s is failed", whole.Dispatch)
			}
			h.over()
		})
	}
}

func TestARedriveKilledHalfwayIsDoneOrNotBegun(t *testing.T) {
	ends := map[events.Status]int{}
	for effects := range 8 {
		scenario(t, roomy(), func(h *history) {
			key := h.failed()[0]
			h.nodes[0].dieAfter = effects
			h.redrive(key, h.nodes[0])
			h.runFor(3 * time.Minute)
			h.over()
			ends[h.b.state(key).Status]++
		})
	}
	if ends[events.StatusFailed] == 0 || len(ends) < 2 {
		t.Errorf("the redrives ended as %v, want some not begun and some done", ends)
	}
}

func TestARedriveThatOutlastsItsPreparedWakeUpIsNotLost(t *testing.T) {
	// The process is stopped for longer than the wake-up lasts, anywhere within the redrive, and dies soon after.
	// Another one takes the wake-up meanwhile.
	s := roomy()
	s.nodes = 2
	for moment := range 8 {
		for effects := range 8 {
			scenario(t, s, func(h *history) {
				key, n := h.failed()[0], h.nodes[0]
				h.redrive(key, n)
				h.w.after(time.Duration(moment)*400*time.Microsecond, func() {
					n.freeze(70 * time.Second)
					n.dieAfter = effects
				})
				h.runFor(4 * time.Minute)
				h.over()
			})
		}
	}
}

func TestNoWakeUpIsLostToALaggingReplica(t *testing.T) {
	scenario(t, roomy(), func(h *history) {
		h.b.lag = true
		for _, hook := range hooks {
			h.providers.moods[hook] = absent
		}
		h.publish(20, 100*time.Millisecond)
		h.runFor(3 * time.Second)
		h.providers.moods[hooks[0]], h.providers.moods[hooks[1]] = failing, healthy
		h.runFor(5 * time.Minute)
		for _, key := range h.dispatches(hooks[0]) {
			h.redrive(key, h.nodes[0])
		}
		clear(h.providers.moods)
		h.runFor(5 * time.Minute)
		for _, key := range slices.Concat(h.dispatches(hooks[0]), h.dispatches(hooks[1])) {
			if r := h.b.state(key); r.Status == events.StatusFailed {
				h.w.fail("%s is failed", key.Dispatch)
			}
		}
		h.over()
	})
}

func TestAttemptsAreSpacedByTheBackoffAndStayWithinTheirBudget(t *testing.T) {
	s := roomy()
	s.invocations = map[events.HookID]int{hooks[0]: 16, hooks[1]: 3}
	scenario(t, s, func(h *history) {
		called := map[events.DispatchID][]time.Time{}
		h.providers.script = func(dispatch events.DispatchID, _ int) answer {
			called[dispatch] = append(called[dispatch], h.w.now())
			return answer{kind: core.ReplyProviderError}
		}
		h.publish(10, 100*time.Millisecond)
		h.runFor(5 * time.Minute)
		// 1 s doubling, give or take a fifth; the broker takes a quarter of a second to fire, and everything some time.
		pauses := []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, 16 * time.Second}
		for hook, attempts := range map[events.HookID]int{hooks[0]: 6, hooks[1]: 3} {
			for _, key := range h.dispatches(hook) {
				times := called[key.Dispatch]
				if len(times) != attempts {
					h.w.fail("%d attempts of %s, want %d", len(times), hook, attempts)
					continue
				}
				for i, pause := range pauses[:attempts-1] {
					low, high := pause*8/10, pause*12/10+scheduleDelay+100*time.Millisecond
					if gap := times[i+1].Sub(times[i]); gap < low || gap > high {
						h.w.fail("attempt %d comes after %s, want from %s to %s", i+2, gap, low, high)
					}
				}
			}
		}
		h.over()
	})
}

func TestTheSameMessageInAndAfterTheDuplicateWindowIsOneDispatch(t *testing.T) {
	s := roomy()
	s.window = 300 * time.Millisecond
	scenario(t, s, func(h *history) {
		same := tell(0, h.w.now(), "fact_a")
		for _, at := range []time.Duration{0, 250 * time.Millisecond, 500 * time.Millisecond, 750 * time.Millisecond} {
			h.w.after(at, func() { h.b.publish(same) })
		}
		h.runFor(5 * time.Second)
		h.nodes[0].stop()
		h.runFor(10 * time.Second)
		h.b.publish(same)
		h.runFor(10 * time.Second)
		if got, want := len(h.check.messages), 3; got != want {
			h.w.fail("the broker took the message %d times, want %d: at 0 and 500 ms, and after the restart", got, want)
		}
		want := 0
		for _, hook := range hooks {
			h.tells(hook, "decided 1/1")
			for _, key := range h.dispatches(hook) {
				if proposes(key.Dispatch) {
					want++
				}
			}
		}
		if len(h.b.intents) != want {
			h.w.fail("%d intents, want %d", len(h.b.intents), want)
		}
		h.over()
	})
}

func TestALostReplyIsAskedForAgainWithTheSameInput(t *testing.T) {
	s := roomy()
	scenario(t, s, func(h *history) {
		h.providers.script = func(_ events.DispatchID, nth int) answer {
			if nth == 1 {
				return answer{}
			}
			return answer{kind: core.ReplyResult}
		}
		same := tell(0, h.w.now(), "fact_a")
		h.b.publish(same)
		h.runFor(time.Second)
		h.b.publish(same) // the broker says duplicate, which is no attempt
		h.runFor(8 * time.Second)
		h.tells(hooks[0], "retrying producer_timed_out no_reply 1/1", "decided 2/2")
		for _, key := range h.dispatches(hooks[0]) {
			if inputs := h.check.inputs[key]; len(inputs) != 2 || inputs[0] != inputs[1] {
				h.w.fail("the inputs of %s are %v, want the same twice", key.Dispatch, inputs)
			}
		}
		h.over()
	})
}
