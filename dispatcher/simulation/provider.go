package simulation

import (
	"fmt"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/afterwrite/afterwrite/dispatcher/core"
	"github.com/afterwrite/afterwrite/events"
)

// mood is how a hook's provider behaves for a while.
type mood int

const (
	healthy    mood = iota
	slow            // answers, often after the timeout
	silentMood      // never answers
	absent          // nobody serves the subject
	failing         // answers with an error
	malformed       // answers, but not with a result
	fickle          // contradicts itself
	moods
)

// providers are those of all hooks.
type providers struct {
	w     *world
	moods map[events.HookID]mood
	// fixed hooks keep their mood.
	fixed map[events.HookID]bool
	calls int
}

// call gives the provider's reply and after how long, negative for never.
func (p *providers) call(hook events.HookID, dispatch events.DispatchID) (time.Duration, core.Reply) {
	p.calls++
	delay := p.w.between(100*time.Microsecond, 20*time.Millisecond)
	result := core.Reply{Kind: core.ReplyResult, Data: p.result(hook, dispatch, "same")}
	switch p.moods[hook] {
	case healthy:
	case slow:
		delay = p.w.between(0, 4*hookTimeout)
	case silentMood:
		return -1, core.Reply{}
	case absent:
		return delay, core.Reply{Kind: core.ReplyNoResponder}
	case failing:
		return delay, core.Reply{Kind: core.ReplyProviderError}
	case malformed:
		result.Data = result.Data[:len(result.Data)-1]
	case fickle:
		result.Data = p.result(hook, dispatch, fmt.Sprintf("call_%d", p.calls))
		delay = p.w.between(0, 2*hookTimeout)
	}
	return delay, result
}

// result is a hook's true answer: it depends on the dispatch alone, unless variant says otherwise.
func (p *providers) result(hook events.HookID, dispatch events.DispatchID, variant string) []byte {
	result := &events.HookResult{
		CapabilityID: capability(hook), DispatchID: dispatch, HookID: hook,
		SchemaVersion: events.HookResultSchema, Status: events.ResultNotApplicable,
	}
	if dispatch[len(dispatch)-1] < 'c' { // most of them
		intent := events.Intent{
			Budget: events.IntentBudget{MaxAttempts: 1, MaxResultBytes: 1024}, CapabilityID: capability(hook),
			FailurePolicy: events.Isolate, HookID: hook, IntentKind: intentKind(hook), Operation: "simulate",
			Payload: jsontext.Value(`{"variant":"` + variant + `"}`), PolicyVersion: "v0",
			SchemaVersion: events.IntentSchema, SourceDispatchID: dispatch,
		}
		intent.IntentID = intent.Identity()
		result.Status, result.Intents = events.ResultProposed, []events.Intent{intent}
	}
	return events.Canonical(result)
}

// change gives a hook another mood now and then.
func (p *providers) change(hooks []events.HookID) {
	p.w.after(p.w.between(time.Second, 20*time.Second), func() {
		if !p.w.faulty {
			return
		}
		hook := hooks[p.w.rng.IntN(len(hooks))]
		if !p.fixed[hook] {
			p.moods[hook] = mood(p.w.rng.IntN(int(moods)))
			if p.w.rng.IntN(2) == 0 {
				p.moods[hook] = healthy
			}
			p.w.tell("provider of %s has mood %d", hook, p.moods[hook])
		}
		p.change(hooks)
	})
}
